"""The specification of a semi-stream join, its counters, and the division of its memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import pyarrow as pa

from streamjoin.columnar.batch import Batch, Ints, Layout
from streamjoin.columnar.types import stored_type
from streamjoin.enrich.read_costs import ReadCosts
from streamjoin.join.predicate import Where

KIND = "semi-stream join"
Access = Literal["auto", "scan", "lookup", "paper"]
END_OF_TIME = (1 << 63) - 1  # the watermark at the end of the stream: the waiting room empties


class StagedRows(Protocol):
    """One version of the table (a bucket's share of it), in segments sorted by hash.

    Where segments are in order, `starts` are their smallest hashes, ascending, and all rows of a hash are in
    one segment; then the rows of some keys can be found without reading all. None: a key's rows may be in
    any.
    """

    @property
    def version(self) -> str: ...
    @property
    def rows(self) -> int: ...
    @property
    def segment_bytes(self) -> tuple[int, ...]: ...
    @property
    def row_bytes(self) -> float: ...
    @property
    def starts(self) -> Ints | None: ...
    @property
    def costs(self) -> ReadCosts: ...
    def read(self, segment: int) -> Batch:
        """All rows of a segment, sorted."""
        ...

    def find(self, segment: int, keys: Batch) -> Batch:
        """The rows of some sorted distinct keys of this segment, sorted; only where segments are in order."""
        ...


@dataclass(frozen=True)
class EnrichSpec:
    """A stream and a table on a common key; the sizes are those of one bucket."""

    stream: Layout
    table: Layout
    output: pa.Schema
    memory_bytes: int
    preserves: bool = False  # a left join: tuples without a table row leave padded
    caches: bool = True  # False: MESHJOIN
    access: Access = "auto"
    fills: bool = True  # spare memory caches values that do not pay, too
    cycle_batches: int = 1
    wait_us: int | None = None  # how long a tuple without a table row stays in the waiting room
    lateness_us: int = 0
    emits_version: bool = False  # the last output column is the version
    where: Where | None = None  # of the stream and the table: what a match is beside equal keys
    switching_factor: float = 1.0
    pointer_bytes: int = 8  # of the paper's queue, for each tuple that waits
    fudge: float = 1.2  # bytes of a sorted or hashed table, in multiples of its rows
    frame_rows: int = 1 << 16
    stream_columns: tuple[str, ...] = ()  # names of key, then payload, by which a restart knows them
    table_columns: tuple[str, ...] = ()
    time: str | None = None  # the column by which rows wait
    name: str = "join"
    buckets: int = 1
    hash: str = "local"

    def waiting_bytes(self, tuple_bytes: float) -> float:
        """Bytes that a tuple of so many bytes takes while it waits."""
        return self.fudge * tuple_bytes + (self.pointer_bytes if self.access == "paper" else 0)

    def identity(self) -> dict[str, Any]:
        """What a restart is compared by (`join.persistence.restart`)."""
        width = len(self.stream.key_types)
        of_stream = _types(self.stream_columns[width:], self.stream)
        of_table = _types(self.table_columns[width:], self.table)
        return {
            "kind": KIND,
            "name": self.name,
            "buckets": self.buckets,
            "hash": self.hash,
            "how": "left" if self.preserves else "inner",
            "inputs": ["stream"],
            "key": {"the stream": list(self.stream_columns[:width])},
            "key types": [stored_type(dtype) for dtype in self.stream.key_types],
            "times": {"the stream": self.time} if self.stream.timed else {},
            "table columns": [f"{name} {dtype}" for name, dtype in of_table.items()],
            "waiting room": self.wait_us is not None,
            **({} if self.where is None else {"where": self.where.whole.text}),
            "columns": {"stream": of_stream},
            "used": {},
        }


def _types(names: Sequence[str], layout: Layout) -> dict[str, str]:
    """The stored type of each payload column, by name or by place."""
    names = names or [str(place) for place in range(len(layout.payload_types))]
    return {name: stored_type(dtype) for name, dtype in zip(names, layout.payload_types, strict=True)}


@dataclass(frozen=True, slots=True)
class MemoryDivision:
    """The memory in use, in bytes: the segment being read, the cache, waiting and switching tuples."""

    segment: int
    cache: int
    waiting: int
    switching: int

    @property
    def total(self) -> int:
        return self.segment + self.cache + self.waiting + self.switching


@dataclass(slots=True)
class EnrichCounters:
    """Counters since the start, in stream tuples unless the name says otherwise."""

    rows: int = 0
    results: int = 0  # rows emitted
    hits: int = 0  # answered by the cache at once
    unmatched: int = 0  # had no table row
    keys_found: int = 0  # looked up
    segments_read: int = 0
    bytes_read: int = 0
    segments_forced: int = 0  # read because memory was short
    admitted: int = 0  # values that entered the cache
    evicted: int = 0
    retried: int = 0  # came back from the waiting room for a new version
