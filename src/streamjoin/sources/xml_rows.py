"""The Convert operator for consumers of rows: punctuations as marked rows, and incremental reads of a file
that may still grow, from the end of one element to the end of another:

    <record> <sno> 79 </sno> <ipaddr> 64.58.76.224 </ipaddr> </record>      79, "64.58.76.224", false
    <punct:record> <sno> 79 </sno> <ipaddr> * </ipaddr> </punct:record>     79, null, true
    <punct:record> <sno> {80, 81} </sno> </punct:record>                    80, null, true and 81, null, true

A marked row closes a whole key. So every column outside of the key must be a wildcard: another punctuation
closes no key and is omitted, which is safe and only costs state. In the key a constant is its value, a
wildcard is null, a list is one row for each value. A range cannot be a row: `BadInput` with the byte offset
of its element.

Order: all rows, marked ones too, come in the stream's order. Cost: `scan` takes about 0.4 of the time of
`rows_of` for the same bytes, since it parses the elements but not their values.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamjoin.errors import BadInput, InvalidJoin
from streamjoin.punctuation import ANY, Constant, Empty, Enumeration, Pattern, Punctuation, Wildcard
from streamjoin.sources.xml import CHUNK_BYTES, Convert, Element, Position

FILE_SPAN = 1 << 40  # sequence numbers of one file; its elements begin at bytes below this


@dataclass(frozen=True, slots=True)
class RowFormat:
    """How the elements of a stream become rows.

    `schema` is that of the rows. Its column `marker` says which rows are punctuations of `key`; with an empty
    key there is no such column and no punctuation may come. Its column `sequence`, if named, is ascending:
    the byte at which the row's element begins, plus `FILE_SPAN` for each file before. All other columns are
    read from the children of the elements.
    """

    record: str
    schema: pa.Schema
    key: tuple[str, ...] = ()
    marker: str = "is_end"
    sequence: str | None = None

    def __post_init__(self) -> None:
        if self.key:
            self._check_column(self.marker, pa.bool_(), "marks the punctuations")
        if self.sequence is not None:
            self._check_column(self.sequence, pa.int64(), "gives the order")
        names = self.columns.names
        for name in self.key:
            if name not in names:
                raise InvalidJoin(f"The key column {name!r} is none of {names}. Give columns of the stream.")
        required = [field.name for field in self.columns if not field.nullable]
        if self.key and required:
            raise InvalidJoin(
                f"The columns {required} are declared not null, but the rows of punctuations have nulls. "
                f"Declare them nullable, or omit the key if the stream has no punctuations."
            )

    @property
    def columns(self) -> pa.Schema:
        """The columns that are read from the elements."""
        own = {self.marker if self.key else None, self.sequence}
        return pa.schema([field for field in self.schema if field.name not in own])

    def _check_column(self, name: str, dtype: pa.DataType, why: str) -> None:
        if name not in self.schema.names or self.schema.field(name).type != dtype:
            raise InvalidJoin(
                f"The column {name!r}, which {why}, is not in the schema {_written(self.schema)} as {dtype}. "
                f"Add it to the schema."
            )


class _Incremental(Convert):
    """A Convert whose position is exact even when the last token was split over two chunks."""

    def settle(self) -> list[Element]:
        """Parse every token that is complete, and return as `feed` does.

        From version 2.6 on, expat defers the rest of a split token until much more input has come.
        """
        if not hasattr(self._parser, "SetReparseDeferralEnabled"):
            return []
        self._parser.SetReparseDeferralEnabled(False)
        ready = self.feed(b"")
        self._parser.SetReparseDeferralEnabled(True)
        return ready


class MarkedRows(_Incremental):
    """A Convert that gives tables only: punctuations are marked rows in them.

    >>> form = RowFormat("record", pa.schema({"sno": pa.int64(), "is_end": pa.bool_()}), key=("sno",))
    >>> reading = MarkedRows(form)
    >>> reading.feed(b"<s><record><sno>79</sno></record><punct:record><sno>79</sno></punct:record>")
    []
    >>> reading.flush()[0].to_pylist()
    [{'sno': 79, 'is_end': False}, {'sno': 79, 'is_end': True}]
    """

    def __init__(
        self, form: RowFormat, *, batch_rows: int = 10_000, resume: Position | None = None, first: int = 0
    ) -> None:
        self._form = form
        self._first = first  # the sequence number of the file's byte 0
        self._marks: list[bool] = []  # of each row; may be one longer than the rows after an error
        self._starts: list[int] = []
        super().__init__(form.record, form.columns, batch_rows=batch_rows, resume=resume)
        self._key = [self._columns[name] for name in form.key]

    def _take_row(self) -> None:
        self._note(marked=False)
        super()._take_row()

    def _take_punctuation(self) -> None:
        punctuation = Punctuation(tuple(ANY if each is None else each for each in self._fields))
        for values in product(*self._closed(punctuation)):
            self._note(marked=True)
            row = dict(zip(self._key, values, strict=True))
            for at, column in enumerate(self._rows):
                column.append(row.get(at))
        if self.buffered >= self._batch_rows:
            self._cut()

    def _note(self, *, marked: bool) -> None:
        self._marks.append(marked)
        self._starts.append(self._first + self._start)

    def _closed(self, punctuation: Punctuation) -> list[tuple[Any, ...]]:
        """For each key column the closed values."""
        if not self._key:
            raise InvalidJoin(
                f"Element <{self._name}> at byte {self._start} is a punctuation, and no key is named. "
                f"Give the names of the key columns."
            )
        if not punctuation.closes_key(self._key):
            return [()]  # no row at all
        return [self._values(at, punctuation.patterns[at]) for at in self._key]

    def _values(self, column: int, pattern: Pattern) -> tuple[Any, ...]:
        if isinstance(pattern, Constant):
            return (pattern.value,)
        if isinstance(pattern, Enumeration):
            return pattern.values
        if isinstance(pattern, Wildcard):
            return (None,)
        if isinstance(pattern, Empty):
            return ()
        raise self._mistake(
            column, f"the range {pattern.text()} cannot be one marked row; write a constant, a list or *"
        )

    def _cut(self) -> None:
        rows = len(self._rows[0])
        super()._cut()
        if rows:
            self._ready[-1] = self._complete(self._ready[-1], rows)
            self._marks, self._starts = [], []

    def _complete(self, table: pa.Table, rows: int) -> pa.Table:
        arrays = dict(zip(table.column_names, table.columns, strict=True))
        if self._form.key:
            arrays[self._form.marker] = pa.array(self._marks[:rows], pa.bool_())
        if self._form.sequence is not None:
            arrays[self._form.sequence] = pa.array(self._starts[:rows], pa.int64())
        schema = self._form.schema
        return pa.Table.from_arrays([arrays[name] for name in schema.names], schema=schema)


# ---------------------------------------------------------------- incremental reads of a file


@dataclass(frozen=True, slots=True)
class Readable:
    """How far a file can be read: to `end`. `closed`: the document ends there; `error`: malformed there."""

    end: Position
    closed: bool = False
    error: BadInput | None = None


def scan(path: Path, start: Position, *, size: int, limit: int | None = None) -> Readable:
    """Find the last complete element among the first `size` bytes of the file.

    At most `limit` bytes further, or up to the end of the first element if it is longer. A file that ends in
    the middle of an element is not an error: the rest may still come.
    """
    reading = _Incremental(" ", pa.schema({"": pa.string()}), resume=start)  # no element has this name
    at = start.byte_offset
    step = CHUNK_BYTES if limit is None else min(CHUNK_BYTES, limit)
    stop = size if limit is None else min(size, at + limit)
    with path.open("rb") as file:
        file.seek(at)
        while at < size and (at < stop or reading.byte_offset == start.byte_offset):
            chunk = file.read(min(step, (stop if at < stop else size) - at))
            if not chunk:
                break
            if at == 0 and (b"\0" in chunk[:4] or chunk[:2] in (b"\xff\xfe", b"\xfe\xff")):
                wide = "It is UTF-16 or UTF-32, which cannot be read incrementally. Store it as UTF-8."
                return Readable(start, error=_of_file(path, BadInput(wide)))
            if at == 0 and (text := chunk.removeprefix(b"\xef\xbb\xbf").lstrip()) and text[:1] != b"<":
                foreign = f"It is no XML: it begins with {text[:20]!r}. Give XML files, or move it away."
                return Readable(start, error=_of_file(path, BadInput(foreign)))
            reading.feed(chunk)
            at += len(chunk)
            if reading.error is not None:
                return Readable(reading.position, error=_of_file(path, reading.error))
    if at < size:
        return Readable(reading.position)
    reading.settle()
    end = reading.position
    reading.end()
    return Readable(end, closed=reading.error is None)


def rows_of(
    path: Path, form: RowFormat, *, start: Position | None = None, end: int | None = None, number: int = 0
) -> Iterator[pa.Table]:
    """The rows of a file between two positions; without `end` up to the end of the document.

    `number` counts the files before this one, for the sequence.
    """
    reading = MarkedRows(form, resume=start, first=number * FILE_SPAN)
    at = start.byte_offset if start is not None else 0
    with path.open("rb") as file:
        file.seek(at)
        while end is None or at < end:
            chunk = file.read(CHUNK_BYTES if end is None else min(CHUNK_BYTES, end - at))
            if not chunk:
                break
            yield from reading.feed(chunk)
            at += len(chunk)
            if reading.error is not None:
                raise _of_file(path, reading.error)
    if end is None:
        yield from reading.end()
    else:
        yield from reading.settle()
        yield from reading.flush()
        if reading.error is None and reading.byte_offset != end:
            raise BadInput(
                f"{path} has changed: no element ends at byte {end} any more, where one did. "
                f"Only append to a file that is being read."
            )
    if reading.error is not None:
        raise _of_file(path, reading.error)


def _of_file(path: Path, error: BadInput) -> BadInput:
    return BadInput(f"{path}: {error}")


def _written(schema: pa.Schema) -> str:
    return "(" + ", ".join(f"{field.name} {field.type}" for field in schema) + ")"
