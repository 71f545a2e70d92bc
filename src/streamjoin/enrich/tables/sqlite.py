"""A table from SQLite, with Python's own driver: one SELECT, so one snapshot, fetched in batches.

SQLite's values have types, its columns only affinities: a column declared as INTEGER, REAL, TEXT or BLOB has
that type, also in a query, and so has a CAST. Any other has the type of its first 1,000 values (whole numbers
beside others are floats); where a query gives no rows such a column is refused, as it would have another type
once there are rows. A later value that does not fit is an error that names its column. Dates are what they
are in SQLite: text or numbers.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import pyarrow as pa

from streamjoin.enrich.tables.files import BATCH_ROWS
from streamjoin.enrich.tables.source import TableSource, check_columns
from streamjoin.enrich.tables.sql_names import one_of, quoted_part
from streamjoin.errors import BadInput, InvalidJoin, SourceLost

_LOOKED_AT = 1000
_TYPES = {int: pa.int64(), float: pa.float64(), str: pa.string(), bytes: pa.binary()}
# what a declaration contains; any other decides nothing
_DECLARED = {
    "INT": int,
    "BLOB": bytes,
    **dict.fromkeys(("CHAR", "CLOB", "TEXT"), str),
    **dict.fromkeys(("REAL", "FLOA", "DOUB"), float),
}


def sqlite(path: str | Path, *, table: str | None = None, query: str | None = None) -> SQLite:
    """A table or a query of a SQLite file, as the source of `sj.table`.

    >>> import sqlite3, tempfile
    >>> import streamjoin as sj
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     shop = sqlite3.connect(f"{folder}/shop.db")
    ...     created = shop.execute("create table customers (id integer, city text)")
    ...     shop.close()
    ...     sj.sqlite(f"{folder}/shop.db", table="customers").schema().names
    ['id', 'city']
    """
    return SQLite(Path(path), one_of(table, query, "sqlite"), table)


@dataclass(frozen=True)
class SQLite(TableSource):
    """Rows of a database file; `rows_of` is what stands after FROM."""

    snapshot: ClassVar[bool] = True

    path: Path
    rows_of: str
    table: str | None = None

    def schema(self) -> pa.Schema:
        return self._schema

    @cached_property
    def _schema(self) -> pa.Schema:
        with self._connected() as database:
            first = database.execute(f"SELECT * FROM {self.rows_of} LIMIT {_LOOKED_AT}")  # noqa: S608
            names = [each[0] for each in first.description]
            columns = list(zip(*first.fetchall(), strict=True)) or [()] * len(names)
            wishes = self._wishes(database)
        return pa.schema(
            [
                pa.field(name, _TYPES[_declared(*wish) or self._seen(name, column)])
                for name, column, wish in zip(names, columns, wishes, strict=True)
            ]
        )

    def _wishes(self, database: sqlite3.Connection) -> list[tuple[str, ...]]:
        """What is declared of each column: of one of a table as it was written, of a CAST its affinity."""
        found = []
        for number, (what, rows) in enumerate((("VIEW", ""), ("TABLE", " LIMIT 0"))):
            name = f"streamjoin_columns_{number}"
            database.execute(f"CREATE TEMP {what} {name} AS SELECT * FROM {self.rows_of}{rows}")  # noqa: S608
            told = database.execute("SELECT type FROM pragma_table_info(?)", (name,))
            found.append([wish for (wish,) in told])
        return list(zip(*found, strict=True))

    def _seen(self, name: str, values: Sequence[Any]) -> type:
        kinds = {type(value) for value in values if value is not None}
        if kinds == {int, float}:
            return float
        if len(kinds) > 1:
            listed = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise BadInput(f"{self.describe()}: column {name!r} holds {listed}; cast it in a query")
        if not values and self.table is None:
            raise InvalidJoin(
                f"{self.describe()} gives no rows now, and column {name!r} has no type without them; "
                f"write CAST(… AS INTEGER), REAL or TEXT in the query"
            )
        return kinds.pop() if kinds else str

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        check_columns(self, columns)
        schema = pa.schema([self._schema.field(name) for name in columns])
        chosen, first = ", ".join(map(quoted_part, columns)), 0
        with self._connected() as database:
            found = database.execute(f"SELECT {chosen} FROM {self.rows_of}")  # noqa: S608
            while rows := found.fetchmany(BATCH_ROWS):
                arrays = [
                    self._array(each, values, first)
                    for each, values in zip(schema, zip(*rows, strict=True), strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
                first += len(rows)

    def _array(self, column: Any, values: Sequence[Any], first: int) -> Any:
        try:
            return pa.array(values, column.type)
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise BadInput(
                f"{self.describe()}: column {column.name!r} does not hold {column.type} only, "
                f"from row {first} on ({error}); correct the rows, or cast it in a query"
            ) from error

    def rows(self) -> int | None:
        with self._connected() as database:
            return int(database.execute(f"SELECT count(*) FROM {self.rows_of}").fetchone()[0])  # noqa: S608

    def fingerprint(self) -> str | None:
        """Of the file and its log: their sizes and times of change."""
        digest = hashlib.blake2b(self.rows_of.encode(), digest_size=8)
        for file in (self.path, self.path.with_name(self.path.name + "-wal")):
            if file.exists():
                digest.update(f"{file.stat().st_size}|{file.stat().st_mtime_ns}\n".encode())
        return digest.hexdigest()

    def describe(self) -> str:
        return f"SQLite {self.rows_of} in {self.path}"

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        if not self.path.is_file():
            raise InvalidJoin(f"{self.describe()}: there is no such file; give the path of a database")
        try:
            with closing(sqlite3.connect(f"file:{quote(str(self.path))}?mode=ro", uri=True)) as database:
                yield database
        except sqlite3.OperationalError as error:
            if "locked" in str(error) or "busy" in str(error):
                raise SourceLost(
                    f"{self.describe()} cannot be reached ({error}); who writes to it?"
                ) from error
            raise InvalidJoin(
                f"{self.describe()} cannot be read ({error}); correct the table or query"
            ) from error
        except sqlite3.DatabaseError as error:
            raise BadInput(f"{self.describe()} cannot be read ({error}); give a whole database") from error


def _declared(*wishes: str) -> type | None:
    """The type that the first declaration has that decides one."""
    told = (kind for wish in wishes for part, kind in _DECLARED.items() if part in wish.upper())
    return next(told, None)
