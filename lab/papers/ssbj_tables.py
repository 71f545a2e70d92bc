"""Master data of the semi-stream experiment, on disk: in the paper's form, or staged.

In the paper's form segments are cut from the table as it came, so a value's rows may be in any of them.
Staged, they are ranges of hashes, as this library stages them. A reader can be throttled: it then waits until
a read of n bytes has taken n / rate seconds, and a looked-up key counts as 4 KiB, a page. Worked number: a
segment of 2.6 MB at 100 MB/s takes 26 ms.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from streamjoin.columnar.batch import Batch, Ints, Layout
from streamjoin.columnar.keys import hash_keys
from streamjoin.enrich.operator import StagedRows
from streamjoin.enrich.read_costs import ReadCosts
from streamjoin.enrich.segments import StagedBucket, StagedForm, VersionStore
from streamjoin.enrich.staging import StagingOptions, stage
from streamjoin.enrich.tables.files import MemoryTable
from streamjoin.errors import InvariantBroken
from streamjoin.state.codec import decode_run, encode_run

STREAM = Layout((pa.int64(),), payload_types=(pa.int64(), pa.int32()))
TABLE = Layout((pa.int64(),), payload_types=(pa.int64(), pa.binary()))
OUTPUT = pa.schema({"k": pa.int64(), "id": pa.int64(), "x": pa.int32(), "m": pa.int64(), "pad": pa.binary()})
PAGE_BYTES = 4096


class TableAndStream(Protocol):
    """Master data with columns k, m, pad and a stream with k, id and one more, by number."""

    @property
    def rows(self) -> int: ...
    @property
    def stream_schema(self) -> pa.Schema: ...
    def table_rows(self, first: int, count: int) -> pa.Table: ...
    def table(self) -> Iterator[pa.Table]: ...
    def tuples(self, first: int, count: int) -> pa.Table: ...


def stream_layout(schema: pa.Schema) -> Layout:
    """Tuples of such a stream as the operator takes them."""
    return Layout((pa.int64(),), payload_types=tuple(schema.types[1:]))


def output_of(stream: Layout) -> pa.Schema:
    """The columns of the results of such tuples."""
    return OUTPUT.set(2, pa.field("x", stream.payload_types[1]))


_FORM = StagedForm(("k",), ("m", "pad"), TABLE, "local", 1)


def table_batch(table: pa.Table) -> Batch:
    """Rows of master data as the operator reads them, sorted."""
    key, *others = (column.combine_chunks() for column in table.combine_chunks().columns)
    return TABLE.batch([pa.array(hash_keys([key])), key, *others]).sorted()


@dataclass
class FileTable:
    """Master data as it came, in segments of equal length, each a file: the paper's, without any order."""

    folder: Path
    rows: int
    segment_bytes: tuple[int, ...]
    version: str = "1"
    starts: Ints | None = None
    costs: ReadCosts = field(default_factory=ReadCosts)

    @classmethod
    def write(cls, folder: Path, streams: TableAndStream, segments: int) -> FileTable:
        folder.mkdir(parents=True)
        ends = np.linspace(0, streams.rows, segments + 1).astype(int).tolist()
        sizes = []
        for i in range(segments):
            batch = table_batch(streams.table_rows(ends[i], ends[i + 1] - ends[i]))
            (folder / f"{i:05}").write_bytes(encode_run(batch))
            sizes.append(batch.nbytes)
        return cls(folder, streams.rows, tuple(sizes))

    @property
    def row_bytes(self) -> float:
        return sum(self.segment_bytes) / self.rows

    def read(self, segment: int) -> Batch:
        return decode_run((self.folder / f"{segment:05}").read_bytes(), TABLE, check=False)

    def find(self, segment: int, keys: Batch) -> Batch:
        raise InvariantBroken("unordered segments cannot be looked up; please report this")


@dataclass
class Disk:
    """A master whose reads take at least as long as from a disk of some speed, where that is given.

    It waits, or only counts the seconds that such a disk would take: then they are added to those of the
    processor.
    """

    table: StagedRows
    bytes_per_s: float | None = None
    waits: bool = True
    seconds: float = 0.0  # of the disk, where it does not wait

    def __post_init__(self) -> None:
        self.version, self.rows, self.starts = self.table.version, self.table.rows, self.table.starts
        self.segment_bytes, self.row_bytes = self.table.segment_bytes, self.table.row_bytes

    @property
    def costs(self) -> ReadCosts:
        if self.bytes_per_s is None:
            return self.table.costs
        return ReadCosts(1 / self.bytes_per_s, PAGE_BYTES / self.bytes_per_s, 0.0)

    def read(self, segment: int) -> Batch:
        began = time.perf_counter()
        found = self.table.read(segment)
        self._wait(began, self.table.segment_bytes[segment])
        return found

    def find(self, segment: int, keys: Batch) -> Batch:
        began = time.perf_counter()
        found = self.table.find(segment, keys)
        self._wait(began, len(keys) * PAGE_BYTES)
        return found

    def _wait(self, began: float, nbytes: int) -> None:
        if self.bytes_per_s is None:
            return
        if not self.waits:
            self.seconds += nbytes / self.bytes_per_s
            return
        left = began + nbytes / self.bytes_per_s - time.perf_counter()
        if left > 0:
            time.sleep(left)


def staged(folder: Path, streams: TableAndStream, segments: int) -> StagedBucket:
    """Master data as this library stages it, in about that many segments."""
    table = streams.table_rows(0, streams.rows)
    size = table_batch(table).nbytes // segments + 1
    version = stage(
        MemoryTable(table), _FORM, VersionStore(folder, "table"), "1", StagingOptions(segment_bytes=size)
    )
    return version.bucket(0)
