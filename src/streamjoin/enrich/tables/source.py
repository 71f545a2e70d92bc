"""TableSource: the protocol of a place that a table is read from, and the checks that hold for every source.

A source is read from its beginning to its end each time a version is staged, in batches of any size: memory
stays at a few of them. Two readings give the same rows as long as `fingerprint` is the same. Cost: staging
calls `schema` and `rows` once and `fingerprint` twice.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from streamjoin.errors import BadInput, InvalidJoin


@runtime_checkable
class TableSource(Protocol):
    """Where a table is read from: an object with these five methods is a source of `sj.table`.

    A class may inherit from this one, and then needs `schema` and `batches` only; it need not.
    `batches` raises `sj.SourceLost` where the connection is lost: then it is called again after a pause.
    A source whose batches all come from one snapshot, whatever others write meanwhile, says so with a class
    attribute `snapshot = True`; any other is refused where its fingerprint changes while it is read.

    >>> import pyarrow as pa
    >>> import streamjoin as sj
    >>> class Squares(sj.TableSource):
    ...     def schema(self):
    ...         return pa.schema({"n": pa.int64(), "square": pa.int64()})
    ...
    ...     def batches(self, columns):
    ...         rows = {"n": range(10), "square": [n * n for n in range(10)]}
    ...         yield pa.RecordBatch.from_pydict(rows, self.schema()).select(columns)
    >>> numbers = sj.stream(pa.schema({"n": pa.int64()}), name="numbers", key="n")
    >>> run = sj.enrich(numbers, sj.table(Squares(), name="squares", key="n", memory="1 MB")).local()
    >>> run.push("numbers", pa.table({"n": [7, 12]})).to_pylist()
    [{'n': 7, 'square': 49}]
    """

    @abstractmethod
    def schema(self) -> pa.Schema:
        """All columns of the table, by name and type."""
        ...

    @abstractmethod
    def batches(self, columns: Sequence[str]) -> Iterable[pa.RecordBatch]:
        """All rows, with these columns, in any order and in batches of any size."""
        ...

    def rows(self) -> int | None:
        """How many rows there are; None where only reading them would tell."""
        return None

    def fingerprint(self) -> str | None:
        """A short text that changes with the content; None where that cannot be known without reading."""
        return None

    def describe(self) -> str:
        """What messages and `explain` call it; without secrets."""
        return type(self).__name__


_METHODS = ("schema", "batches", "rows", "fingerprint", "describe")


def missing_methods(source: Any) -> list[str]:
    """The methods that an object lacks to be a `TableSource`."""
    return [name for name in _METHODS if not callable(getattr(source, name, None))]


def check_columns(source: TableSource, columns: Sequence[str]) -> None:
    """Refuse columns that the table does not have."""
    there = source.schema().names
    missing = [name for name in columns if name not in there]
    if missing:
        raise InvalidJoin(
            f"{source.describe()} has no column {', '.join(map(repr, missing))}; "
            f"it has {', '.join(map(repr, there)) or 'none'}"
        )


def read_batches(source: TableSource, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """All rows, with these columns in this order and in the types of the source's own schema."""
    check_columns(source, columns)
    schema = pa.schema([source.schema().field(name) for name in columns])
    for batch in source.batches(columns):
        try:
            fitting = batch.select(list(columns)).cast(schema)
        except (KeyError, ValueError, pa.ArrowException) as error:
            raise BadInput(
                f"{source.describe()} gave a batch that does not fit its schema ({error}); let batches() "
                "give the columns it is asked for, in the types that schema() says"
            ) from error
        yield fitting


def check_unchanged(source: TableSource, fingerprint: str | None) -> None:
    """Refuse what changed while it was read, where its batches are of no one snapshot."""
    if not getattr(source, "snapshot", False) and source.fingerprint() != fingerprint:
        raise BadInput(
            f"{source.describe()} changed while it was read; stage it again when no one writes to it"
        )
