"""A table from PostgreSQL: one read-only transaction at REPEATABLE READ, streamed as Arrow batches.

What others commit while it is read is not seen. A lost connection raises `SourceLost`; staging then
begins again, since a snapshot ends with its connection. Types: numeric(12, 2) is decimal128(12, 2),
numeric without a size is text, and so is what Arrow has no type for (uuid, inet …).

Needs `pip install "streamjoin[postgresql]"`. A password in the URI is shown nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar
from urllib.parse import unquote

import pyarrow as pa

from streamjoin.enrich.tables.source import TableSource, check_columns
from streamjoin.enrich.tables.sql_names import one_of, quoted_part
from streamjoin.errors import BadInput, InvalidJoin, SourceLost, StreamJoinError

_BATCH_BYTES = 4 << 20
_LOST = ("08", "53", "57", "58")  # classes of SQLSTATE: connection, resources, operator, system
_SNAPSHOT = "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"


def postgresql(uri: str, *, table: str | None = None, query: str | None = None) -> PostgreSQL:
    """A table (`customers`, `shop.customers`; each name as it is stored) or a query of a database."""
    return PostgreSQL(uri, one_of(table, query, "postgresql"))


@dataclass(frozen=True)
class PostgreSQL(TableSource):
    """Rows of a database; `rows_of` is what stands after FROM."""

    snapshot: ClassVar[bool] = True

    uri: str = field(repr=False)
    rows_of: str

    def schema(self) -> pa.Schema:
        return self._schema

    @cached_property
    def _schema(self) -> pa.Schema:
        with self._naming_failures(), self._connected() as cursor:
            found = cursor.adbc_execute_schema(f"SELECT * FROM {self.rows_of}")  # noqa: S608
        return pa.schema([pa.field(each.name, _type(each)) for each in found])

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        check_columns(self, columns)
        schema = pa.schema([self._schema.field(name) for name in columns])
        chosen = ", ".join(map(self._selected, schema)) or "1 AS none"
        with self._naming_failures(), self._connected() as cursor:
            cursor.execute(_SNAPSHOT)
            cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
            cursor.execute(f"SELECT {chosen} FROM {self.rows_of}")  # noqa: S608
            for batch in cursor.fetch_record_batch():
                yield _in_types(batch, schema)

    def describe(self) -> str:
        place = re.match(r"postgres(?:ql)?://(?:.*@)?([^/?]*)/?([^?]*)", self.uri)
        where = f"{place[1] or 'local'}/{place[2]}" if place else "a database"
        return f"PostgreSQL {self.rows_of} at {where}"

    def _selected(self, column: Any) -> str:
        name = quoted_part(column.name)
        return f"{name}::text AS {name}" if pa.types.is_string(column.type) else name

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        try:
            from adbc_driver_postgresql import dbapi  # noqa: PLC0415
        except ImportError as error:
            raise InvalidJoin(
                'PostgreSQL needs a driver; install it with pip install "streamjoin[postgresql]"'
            ) from error
        with dbapi.connect(self.uri, autocommit=True) as connection, connection.cursor() as cursor:
            yield cursor

    @contextmanager
    def _naming_failures(self) -> Iterator[None]:
        """Failures of the driver as errors of this library, without the password: so nothing is chained."""
        try:
            yield
        except StreamJoinError:
            raise
        except (OSError, pa.ArrowException) as error:  # while rows are read
            lost = isinstance(error, OSError) and "ERROR:" not in str(error)
            raise self._failed(error, lost=lost) from None
        except Exception as error:
            state = getattr(error, "sqlstate", None)
            if state is None and not type(error).__module__.startswith("adbc"):
                raise
            raise self._failed(error, lost=state is None or state[:2] in _LOST) from None

    def _failed(self, error: Exception, *, lost: bool) -> StreamJoinError:
        text = " ".join(str(error).split())
        for secret in _secrets(self.uri):
            text = text.replace(secret, "***")
        if lost:
            return SourceLost(
                f"{self.describe()} cannot be reached ({text}); does it run, and is the URI right?"
            )
        if getattr(error, "sqlstate", None) is not None:
            return InvalidJoin(f"{self.describe()} cannot be read ({text}); correct the table or query")
        return BadInput(f"{self.describe()} cannot be read ({text}); correct the rows or the query")


def _secrets(uri: str) -> list[str]:
    """What a message must not show, as written and as meant."""
    written = re.findall(r"//[^:/?]*:(.+)@", uri) + re.findall(r"password\s*=\s*'?([^'\s&]+)", uri)
    return sorted({form for each in written for form in (each, unquote(each))}, key=len, reverse=True)


def _type(column: Any) -> pa.DataType:
    """The type of a column of a result; what Arrow has no type for is read as text."""
    if not isinstance(column.type, pa.BaseExtensionType):
        return column.type
    size = int((column.metadata or {}).get(b"POSTGRESQL:typmod", b"-1"))
    if column.metadata.get(b"POSTGRESQL:type") == b"numeric" and size >= 0:
        precision, scale = (size - 4) >> 16, (size - 4) & 0x7FF
        if precision <= 38 and scale <= precision:
            return pa.decimal128(precision, scale)
    return pa.string()


def _in_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        column.storage if isinstance(column.type, pa.BaseExtensionType) else column
        for column in batch.columns
    ]
    cast = [column.cast(dtype) for column, dtype in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=schema)
