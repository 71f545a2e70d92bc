"""Spark data source `streamjoin_xml`: the XML Convert operator (`sources.xml_rows`), in batch and streaming.

Options:

- `path`: a file that may still grow, or a folder of files. `record`: the name of the record's element.
- `columns`: the columns as DDL text, such as "sno long, ipaddr string"; or a `.schema(…)` instead.
- `key`: the key columns, separated by commas, of a stream with punctuations. Without it a punctuation fails
  the query.
- `marker` ("is_end"): the boolean column that is true on the rows of punctuations; added when `key` is given.
- `sequence`: the name of a long column that ascends in the stream's order: the byte at which a row's element
  begins, plus 2^40 for each file begun before. The rows of a list `{1, 2}` share one number.
- `max_bytes_per_batch` (16 MB): how much a micro-batch reads; a larger element is read whole. Before Spark
  4.2 it is refused, and a micro-batch reads all there is.

The marker and then the sequence are appended to `columns`. A source cannot add columns to a `.schema(…)`:
both must be part of it.

A folder's files are read one after the other, by name among those not begun yet; the next is begun when the
root element of the one before is closed. Names that begin with "." or "_" are skipped, so a file can be
written under such a name and renamed. A streaming read leaves an incomplete element for a later micro-batch,
as a file may still grow; a batch read (`spark.read`) refuses a truncated or empty document. Both refuse what
is no XML and an encoding that is not known.

Malformed XML: what came before is delivered, then the query fails with the file and the byte, and continues
from its checkpoint once the file is repaired from there. A wrong value in well-formed XML fails the
micro-batch that contains it.

An offset has, for each file that still exists, the byte up to which it was read, the name of its root and its
encoding. So move finished files away before they are thousands; one that is rewritten is not read again.
Cost: the driver parses a batch for its last complete element (0.4 of the time of reading it), then one task
reads it, so that its rows keep their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from streamjoin.errors import BadInput, InvalidJoin
from streamjoin.sources.xml import Position
from streamjoin.sources.xml_rows import MarkedRows, RowFormat, rows_of, scan
from streamjoin.spark.sources.options import Options
from streamjoin.spark.versions import (
    LimitedReader,
    ReadLimit,
    ReadMaxBytes,
    arrow_schema_of,
    needs,
    stream_reader,
)

Offset: TypeAlias = dict[str, Any]  # JSON of numbers, strings and booleans

_BATCH_ROWS = 100_000  # of one record batch
_XML = "streamjoin_xml"
_XML_OPTIONS = {
    "path": "a file or a folder that the driver and the workers can read",
    "record": "the name of the record's element",
    "columns": "the columns as DDL text such as 'sno long, ipaddr string', unless there is a .schema(…)",
    "key": "the key columns of the punctuations, separated by commas",
    "marker": "the name of the boolean column that marks punctuations",
    "sequence": "the name of a long column for the order of the rows",
    "max_bytes_per_batch": "how much a micro-batch reads, 1 or more",
}


@dataclass(frozen=True)
class _FileOffset:
    """How far a file was read. `number`: how many files were begun before it."""

    number: int
    position: Position = field(default_factory=Position)
    done: bool = False

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> _FileOffset:
        position = Position(stored["byte"], stored.get("root"), stored.get("encoding"))
        return cls(stored["number"], position, stored.get("done", False))

    def stored(self) -> dict[str, Any]:
        entry: dict[str, Any] = {"number": self.number, "byte": self.position.byte_offset}
        if self.done:
            return entry | {"done": True}
        around = {"root": self.position.root, "encoding": self.position.encoding}
        return entry | {name: value for name, value in around.items() if value is not None}


@dataclass(frozen=True)
class _FileRange:
    """The bytes of one file that a batch reads; `end` None: to the end of the document."""

    name: str
    mark: _FileOffset
    end: int | None


@dataclass(frozen=True)
class _FileRanges(InputPartition):
    ranges: tuple[_FileRange, ...]


@dataclass(frozen=True)
class _XmlPlan:
    """The checked options."""

    path: Path
    form: RowFormat
    max_bytes: int

    @classmethod
    def of(cls, given: Mapping[str, str], schema: StructType) -> _XmlPlan:
        options = Options(_XML, given, _XML_OPTIONS)
        form = RowFormat(
            options.required("record"),
            arrow_schema_of(schema, "UTC"),
            key=_key(options),
            marker=_marker(options),
            sequence=options.text("sequence"),
        )
        MarkedRows(form)  # refuses types without a text form here, and not in a task
        path = Path(options.required("path")).absolute()
        plan = cls(path, form, options.at_least_one("max_bytes_per_batch", 16 << 20))
        plan.sizes()
        return plan

    def sizes(self) -> dict[str, int]:
        """The existing files in the order of their names, and their sizes."""
        if self.path.is_file():
            return {self.path.name: self.path.stat().st_size}
        if not self.path.is_dir():
            raise InvalidJoin(f"{_XML} finds nothing at {self.path}. Give {_XML_OPTIONS['path']}.")
        files = sorted(each for each in self.path.iterdir() if each.is_file() and each.name[0] not in "._")
        return {file.name: file.stat().st_size for file in files}

    def file(self, name: str) -> Path:
        return self.path / name if self.path.is_dir() else self.path

    def rows(self, part: _FileRanges) -> Iterator[pa.RecordBatch]:
        for each in part.ranges:
            file, start, number = self.file(each.name), each.mark.position, each.mark.number
            for table in rows_of(file, self.form, start=start, end=each.end, number=number):
                yield from table.to_batches(max_chunksize=_BATCH_ROWS)


def _key(options: Options) -> tuple[str, ...]:
    names = (options.text("key") or "").split(",")
    return tuple(name.strip() for name in names if name.strip())


def _marker(options: Options) -> str:
    return options.required("marker") if "marker" in options.given else "is_end"


class XmlSource(DataSource):
    """Rows and marked punctuations of XML streams in files. Options: see the module."""

    @classmethod
    def name(cls) -> str:
        return _XML

    def schema(self) -> str:
        options = Options(_XML, self.options, _XML_OPTIONS)
        columns = [options.required("columns")]
        if _key(options):
            columns.append(f"{_quoted(_marker(options))} boolean")
        if "sequence" in options.given:
            columns.append(f"{_quoted(options.required('sequence'))} long")
        return ", ".join(columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _XmlReader(_XmlPlan.of(self.options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        limits = [name for name in self.options if name == "max_bytes_per_batch"]
        return stream_reader(_XmlStreamReader(_XmlPlan.of(self.options, schema)), limits)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _check_goes_on(start: Offset, end: Offset) -> None:
    """Refuse an end that was found without knowing the start, where files were numbered otherwise then."""
    before = start["files"]
    same = all(
        before[name]["number"] == one["number"] for name, one in end["files"].items() if name in before
    )
    if end["begun"] < start["begun"] or not same:
        raise needs("4.2", f"{_XML}: to go on from a checkpoint after its files were moved or others added")


class _XmlReader(DataSourceReader):
    """Batch reads: each existing file as a whole document."""

    def __init__(self, plan: _XmlPlan) -> None:
        self._plan = plan

    def partitions(self) -> list[_FileRanges]:
        names = enumerate(self._plan.sizes())
        return [_FileRanges(tuple(_FileRange(name, _FileOffset(number), None) for number, name in names))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._plan.rows(cast("_FileRanges", partition))


class _XmlStreamReader(LimitedReader):
    """Offset: how many files were begun, and for each that still exists how far it was read."""

    def __init__(self, plan: _XmlPlan) -> None:
        self._plan = plan
        self._until: dict[str, int] | None = None  # with availableNow, what existed when the query began

    def initialOffset(self) -> Offset:
        return {"begun": 0, "files": {}}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxBytes(self._plan.max_bytes)

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = self._plan.sizes()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The end of the last complete element within the limit; an error is raised when it is next."""
        sizes = self._plan.sizes() if self._until is None else self._until
        marks = {name: _FileOffset.of(stored) for name, stored in start["files"].items()}
        self._check_there(marks, sizes)
        begun, moved = start["begun"], False
        left = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        for name in sorted(sizes, key=lambda name: (name not in marks, name)):
            mark = marks.get(name) or _FileOffset(begun)
            if mark.done:
                continue
            found = scan(self._plan.file(name), mark.position, size=sizes[name], limit=left)
            if found.end != mark.position or found.closed:
                marks[name] = _FileOffset(mark.number, found.end, found.closed)
                begun, moved = max(begun, mark.number + 1), True
            if found.error is not None and not moved:
                raise found.error
            if left is not None:
                left -= found.end.byte_offset - mark.position.byte_offset
            if not found.closed or (left is not None and left <= 0):
                break
        if not moved:
            return start
        return {"begun": begun, "files": {name: marks[name].stored() for name in sizes if name in marks}}

    def _check_there(self, marks: Mapping[str, _FileOffset], sizes: Mapping[str, int]) -> None:
        for name, mark in marks.items():
            if not mark.done and sizes.get(name, -1) < mark.position.byte_offset:
                raise BadInput(
                    f"{self._plan.file(name)} is missing or shorter than the "
                    f"{mark.position.byte_offset} bytes that were read of it. "
                    f"Restore it, or start with another checkpoint."
                )

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        _check_goes_on(start, end)
        ranges = []
        for name, stored in end["files"].items():
            upto = _FileOffset.of(stored)
            begun = start["files"].get(name)
            mark = _FileOffset(upto.number) if begun is None else _FileOffset.of(begun)
            if upto.position.byte_offset > mark.position.byte_offset:
                ranges.append(_FileRange(name, mark, upto.position.byte_offset))
        ranges.sort(key=lambda each: each.mark.number)
        return [_FileRanges(tuple(ranges))] if ranges else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._plan.rows(cast("_FileRanges", partition))
