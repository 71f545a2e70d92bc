"""Spark ingest, the map side of the exchange: rows of one input become a few Arrow blobs per bucket.

Runs in Spark's Python workers under `mapInArrow`. The JVM has already cast the keys, hashed them
and turned event time into microseconds, so a batch comes in the join's physical layout, followed
by the columns that its punctuation source reads and by each row's position in its source:

    h [t [d]] k0… p0…  [s0…]  [part off]

The packer only decodes these; `join.row_intake`, which local runs share, turns them into arrivals.
Rows of a control stream come with the time of each punctuation, and where a key column is closed by
ranges with their ends; a key is null where it is not a single value:

    h t k0…  [f0 g0]…

Every bucket gets at least one blob from every task, so that every bucket runs in every batch and
knows the watermarks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamjoin.columnar.batch import NO_TIME, Ints, Layout
from streamjoin.columnar.keys import canonical
from streamjoin.declare.punctuation_source import Read
from streamjoin.declare.stream import Stream
from streamjoin.join.arrivals import Arrivals, Positions
from streamjoin.join.notices import LOG, Notices, about_control_rows
from streamjoin.join.row_intake import DecodedRows, RowIntake, offsets
from streamjoin.join.scheduled_intake import ScheduledColumn, check_times, scheduled_arrivals
from streamjoin.join.wire import split, to_bytes
from streamjoin.spark.exchange import GUARD
from streamjoin.spark.malloc import return_free_blocks, return_large_blocks

PACKED = "bucket int, input int, blob binary"
PACKED_ARROW = pa.schema(
    [pa.field("bucket", pa.int32()), pa.field("input", pa.int32()), pa.field("blob", pa.binary())]
)
TASK_BYTES = 16 << 20  # rows a task collects before it packs them
_NOTICES = Notices()  # of this worker process
BLOB_BYTES = 256 << 10  # the largest blob, about: an Arrow batch of 4,000 stays below its limit of 2 GB


@dataclass(frozen=True)
class Packing(ABC):
    """Packs for one input. `labels` are the bucket numbers as Spark sees them, one per bucket."""

    number: int
    name: str
    layout: Layout
    labels: tuple[int, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What `mapInArrow` calls for every task."""
        waiting: list[pa.RecordBatch] = []
        nbytes, packed = 0, False
        for batch in batches:
            if batch.num_rows == 0:
                continue
            waiting.append(batch)
            nbytes += batch.nbytes
            if nbytes >= TASK_BYTES:
                yield self._pack(waiting)
                waiting, nbytes, packed = [], 0, True
        if waiting or not packed:
            yield self._pack(waiting)
        yield _packed([GUARD], [self.number], [b""])

    def _pack(self, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        if batches:
            arrivals = self.arrivals(batches[0] if len(batches) == 1 else pa.concat_batches(batches))
        else:
            arrivals = Arrivals.nothing(self.layout)
        shares = list(split(arrivals, len(self.labels), limit_bytes=BLOB_BYTES))
        labels = [self.labels[bucket] for bucket, _ in shares]
        return _packed(labels, [self.number] * len(shares), [to_bytes(share) for _, share in shares])

    @abstractmethod
    def arrivals(self, batch: pa.RecordBatch) -> Arrivals:
        """One record batch from the JVM, sorted out."""

    def keys(self, columns: dict[str, Any]) -> list[Any]:
        """The key columns in the join's types."""
        types = enumerate(self.layout.key_types)
        return [canonical(_as_type(columns[f"k{i}"], dtype)) for i, dtype in types]


@dataclass(frozen=True)
class PhysicalReads:
    """Where a batch from the JVM has the columns that punctuations are read from.

    A column that is payload stands there; the others are selected in addition (`added`, by physical name).
    """

    read: Mapping[str, str] = field(default_factory=dict)
    named: Mapping[str, str] = field(default_factory=dict)
    added: Mapping[str, Read] = field(default_factory=dict)

    @classmethod
    def of(cls, stream: Stream) -> PhysicalReads:
        """What the punctuation source of a stream reads, and the columns that its punctuations name."""
        added: dict[str, Read] = {}

        def physical(column: Read) -> str:
            if column in stream.payload:
                return f"p{stream.payload.index(column)}"
            added[f"s{len(added)}"] = column
            return f"s{len(added) - 1}"

        reads = {} if stream.punctuation is None else stream.punctuation.reads(stream)
        read = {label: physical(column) for label, column in reads.items()}
        named = {name: physical(name) for name in stream.wildcards_for_key}
        return cls(read, named, added)


@dataclass(frozen=True)
class Packer(Packing):
    """Packs the rows of an input."""

    intake: RowIntake
    reads: PhysicalReads = field(default_factory=PhysicalReads)
    sequenced: bool = False
    limited: bool = False  # the join has a memory limit, and works in the same processes

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self.limited:
            return_large_blocks()
        yield from super().__call__(batches)
        if self.limited:
            return_free_blocks()

    def arrivals(self, batch: pa.RecordBatch) -> Arrivals:
        """One record batch from the JVM, sorted out."""
        found = self.intake.arrivals(self.decoded(batch))
        source = self.intake.source
        if found.control_rows_with_data and source is not None and _NOTICES.first(self.name):
            LOG.warning("%s.", about_control_rows(self.name, source))
        return found

    def decoded(self, batch: pa.RecordBatch) -> DecodedRows:
        """The columns of a batch as the shared core takes them."""
        columns = {field.name: batch.column(i) for i, field in enumerate(batch.schema)}
        payload = [_as_type(columns[f"p{i}"], dtype) for i, dtype in enumerate(self.layout.payload_types)]
        at = None
        if self.sequenced:
            at = Positions(columns["part"].to_numpy(), offsets(columns["off"], self.name))
        return DecodedRows(
            columns["h"],
            self.keys(columns),
            payload,
            _times(columns["t"]) if self.layout.timed else None,
            columns["d"] if self.layout.until else None,
            at,
            {label: columns[name] for label, name in self.reads.read.items()},
            {label: columns[name] for label, name in self.reads.named.items()},
        )


@dataclass(frozen=True)
class ScheduledPacker(Packing):
    """Packs the punctuations of an input's control stream. `ranged`: whether a key column has ends."""

    ranged: tuple[bool, ...] = ()
    time: str = ""

    def arrivals(self, batch: pa.RecordBatch) -> Arrivals:
        """One record batch from the JVM, sorted out."""
        columns = {field.name: batch.column(i) for i, field in enumerate(batch.schema)}
        times = check_times(columns["t"], self.name, self.time)
        scheduled = []
        for i, (value, ranged) in enumerate(zip(self.keys(columns), self.ranged, strict=True)):
            dtype = self.layout.key_types[i]
            ends = [canonical(_as_type(columns[f"{end}{i}"], dtype)) for end in "fg"] if ranged else []
            scheduled.append(ScheduledColumn(value, *ends))
        return scheduled_arrivals(self.layout, scheduled, columns["h"], times)


def _packed(buckets: list[int], inputs: list[int], blobs: list[bytes]) -> pa.RecordBatch:
    columns = [pa.array(buckets, pa.int32()), pa.array(inputs, pa.int32()), pa.array(blobs, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=PACKED_ARROW)


def _as_type(column: Any, dtype: pa.DataType) -> Any:
    """The column in its stored type: Spark's Arrow may differ in time zone or field names only."""
    return column if column.type == dtype else column.cast(dtype)


def _times(column: Any) -> Ints:
    times: Ints = pc.fill_null(column, NO_TIME).to_numpy(zero_copy_only=False)
    return times
