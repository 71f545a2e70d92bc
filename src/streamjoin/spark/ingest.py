"""The map side: rows of one input become a few Arrow blobs per bucket, and a heartbeat for each.

Runs in Spark's Python workers under `mapInArrow`. The JVM has already cast the keys, hashed them
and turned event time into microseconds, so a batch comes in the join's physical layout, followed
by the columns that say which rows are promises and where they stand:

    h [t [d]] k0… p0…  [mark [named unheard]]  [last]  [part off]

Rows of a control source come with the time of each promise, and where a key column is promised by
ranges with their ends; a key is null where it is not a single value:

    h t k0…  [f0 g0]…

Every bucket gets at least one blob from every task, so that every bucket runs in every batch and
knows how far event time has got.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin.columnar.batch import NO_TIME, Batch, Ints, Layout, Mask
from streamjoin.columnar.keys import canonical, valid
from streamjoin.declare.stream import Arrival
from streamjoin.join.arrival_order import with_tracks
from streamjoin.join.arrivals import Arrivals, Positions
from streamjoin.join.control_intake import Promised, check_times, scheduled_arrivals
from streamjoin.join.forwarded import punctuation_rows
from streamjoin.join.intake import latest_time, offsets, sort_marks
from streamjoin.join.statistics.monitor import look
from streamjoin.join.wire import split, to_bytes
from streamjoin.spark.exchange import GUARD
from streamjoin.spark.malloc import return_free_blocks, return_large_blocks

PACKED = "bucket int, input int, blob binary"
PACKED_ARROW = pa.schema(
    [pa.field("bucket", pa.int32()), pa.field("input", pa.int32()), pa.field("blob", pa.binary())]
)
TASK_BYTES = 16 << 20  # rows a task collects before it packs them
BLOB_BYTES = 256 << 10  # the largest blob, about: an Arrow batch of 4,000 stays below its limit of 2 GB


@dataclass(frozen=True)
class Packing(ABC):
    """Packs for one input. `labels` are the bucket numbers as Spark sees them, one per bucket."""

    number: int
    name: str
    layout: Layout
    labels: tuple[int, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What `mapInArrow` calls for every task."""
        waiting: list[pa.RecordBatch] = []
        held, packed = 0, False
        for batch in batches:
            if batch.num_rows == 0:
                continue
            waiting.append(batch)
            held += batch.nbytes
            if held >= TASK_BYTES:
                yield self._pack(waiting)
                waiting, held, packed = [], 0, True
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
class Packer(Packing):
    """Packs the rows of an input."""

    marked: bool = False
    null_is_wildcard: bool = False
    closing: bool = False
    sequenced: bool = False
    keep_unkeyed: bool = False  # rows with null keys are results of their own
    arrival: Arrival | None = None
    stamped: bool = False  # results of another join, which tells how far their time has got
    forwarded: tuple[int, ...] = ()  # payload columns of which promises go on to a later operator
    limited: bool = False  # the join has a memory limit, and works in the same processes

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self.limited:
            return_large_blocks()
        yield from super().__call__(batches)
        if self.limited:
            return_free_blocks()

    def arrivals(self, batch: pa.RecordBatch) -> Arrivals:
        """One record batch from the JVM, sorted out."""
        columns = {field.name: batch.column(i) for i, field in enumerate(batch.schema)}
        keys = self.keys(columns)
        has_key = valid(keys)
        marks = _flags(columns["mark"]) if self.marked else None
        data: Mask = np.ones(batch.num_rows, np.bool_) if marks is None else ~marks
        chosen = np.flatnonzero(data & has_key)
        time = _times(columns["t"]) if self.layout.timed else None
        at = None
        if self.sequenced:
            at = Positions(columns["part"].to_numpy(), offsets(columns["off"], self.name))
        rows = self._rows(columns, keys, time, chosen)
        result = Arrivals(
            rows,
            self.layout.keys_only.empty(),
            latest_us=None if self.stamped else latest_time(time, data),
            null_keys=int(np.count_nonzero(data)) - len(chosen),
            unkeyed=self._unkeyed(columns, keys, time, data & ~has_key),
            rows_at=None if at is None else at.take(chosen),
            order=look(rows) if self.arrival is None else None,
        )
        if marks is not None and "named" in columns:  # of other columns than the key
            on_way = marks & _flags(columns["named"]) & ~_flags(columns["unheard"])
            result = self.with_later(result, columns, keys, (np.flatnonzero(on_way), at))
            marks = marks & ~_flags(columns["named"])
        if marks is not None and marks.any():
            result = self.with_marked(result, columns["h"], keys, (np.flatnonzero(marks), at))
        if self.closing:
            last = np.flatnonzero(_flags(columns["last"])[chosen])
            keys_at = None if result.rows_at is None else result.rows_at.take(last)
            result = replace(result, keys=rows.only_keys().take(last), keys_at=keys_at)
        if self.arrival is not None and result.rows_at is not None:
            result = with_tracks(self.arrival, result, result.rows_at)
        return result

    def _rows(self, columns: dict[str, Any], keys: list[Any], time: Ints | None, chosen: Ints) -> Batch:
        parts = [columns["h"]]
        if time is not None:
            parts.append(pa.array(time))
        if self.layout.until:
            parts.append(columns["d"])
        parts += keys
        parts += [_as_type(columns[f"p{i}"], dtype) for i, dtype in enumerate(self.layout.payload_types)]
        everything = self.layout.batch(parts)
        return everything if len(chosen) == len(everything) else everything.take(chosen)

    def _unkeyed(
        self, columns: dict[str, Any], keys: list[Any], time: Ints | None, mask: Mask
    ) -> Batch | None:
        return self._rows(columns, keys, time, np.flatnonzero(mask)) if self.keep_unkeyed else None

    def with_later(
        self,
        result: Arrivals,
        columns: dict[str, Any],
        keys: list[Any],
        marked: tuple[Ints, Positions | None],
    ) -> Arrivals:
        """With promises that a later operator can use, if there is one."""
        rows, at = marked
        if len(rows) == 0 or not self.forwarded:
            return result
        named = [_as_type(columns[f"p{n}"], self.layout.payload_types[n]) for n in self.forwarded]
        by = np.zeros(len(keys[0]), np.int64) if at is None else at.partition
        return replace(result, forwarded=punctuation_rows([*keys, *named], by).take(pa.array(rows)))

    def with_marked(
        self, result: Arrivals, hashes: Any, keys: list[Any], marked: tuple[Ints, Positions | None]
    ) -> Arrivals:
        """With the promises of these rows about the key."""
        rows, at = marked
        single, wide, patterns = sort_marks(keys, rows, self.name, may_be_wide=self.null_is_wildcard)
        picked = pa.array(single)
        return replace(
            result,
            keys=self.layout.keys_only.batch([hashes.take(picked), *(key.take(picked) for key in keys)]),
            keys_at=None if at is None else at.take(single),
            patterns=patterns,
            patterns_at=None if at is None else at.take(wide),
        )


@dataclass(frozen=True)
class ControlPacker(Packing):
    """Packs the promises of an input's control source. `ranged`: whether a key column has ends."""

    ranged: tuple[bool, ...] = ()
    time: str = ""

    def arrivals(self, batch: pa.RecordBatch) -> Arrivals:
        """One record batch from the JVM, sorted out."""
        columns = {field.name: batch.column(i) for i, field in enumerate(batch.schema)}
        times = check_times(columns["t"], self.name, self.time)
        punctuated = []
        for i, (value, ranged) in enumerate(zip(self.keys(columns), self.ranged, strict=True)):
            dtype = self.layout.key_types[i]
            ends = [canonical(_as_type(columns[f"{end}{i}"], dtype)) for end in "fg"] if ranged else []
            punctuated.append(Promised(value, *ends))
        return scheduled_arrivals(self.layout, punctuated, columns["h"], times)


def _packed(buckets: list[int], inputs: list[int], blobs: list[bytes]) -> pa.RecordBatch:
    columns = [pa.array(buckets, pa.int32()), pa.array(inputs, pa.int32()), pa.array(blobs, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=PACKED_ARROW)


def _as_type(column: Any, dtype: pa.DataType) -> Any:
    """The column in its stored type: Spark's Arrow may differ in time zone or field names only."""
    return column if column.type == dtype else column.cast(dtype)


def _flags(column: Any) -> Mask:
    flags: Mask = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
    return flags


def _times(column: Any) -> Ints:
    times: Ints = pc.fill_null(column, NO_TIME).to_numpy(zero_copy_only=False)
    return times
