"""The stateful side of a semi-stream join: one bucket inside Spark's transformWithState.

As `processor`, with one more thing to find: the bucket's share of the staged table, by the version that
the tick of a micro-batch names. It is immutable, so all workers read the same files. What a batch gives
depends on the state, its rows and its version only, so that a batch that is run again gives the same.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from streamjoin.enrich.operator import EnrichJoin
from streamjoin.enrich.segments import StagedBucket, StagedVersion
from streamjoin.enrich.snapshot import restore, store
from streamjoin.enrich.spec import END_OF_TIME, EnrichCounters, EnrichSpec
from streamjoin.errors import InvariantBroken
from streamjoin.join.arrivals import Arrivals
from streamjoin.join.outputs import Results
from streamjoin.join.wire import from_bytes
from streamjoin.spark.allocator import return_free_blocks, return_large_blocks
from streamjoin.spark.bucket_cache import JOINS, digest
from streamjoin.spark.exchange import GUARD
from streamjoin.spark.ingest import PACKED_ARROW
from streamjoin.spark.outputs import Emitter
from streamjoin.spark.processor import CALLS, TIMES, Stopwatch, local_folder
from streamjoin.spark.state_store import BucketRunStore, BucketStore
from streamjoin.state.manifest import Manifest
from streamjoin.state.stores import RunFiles

STREAM, TICKS = 0, 1  # the inputs
COUNTED = tuple(field.name for field in fields(EnrichCounters) if field.name != "rows")
GAUGES = (
    "waiting",
    "waiting_room",
    "versions",
    "cache_rows",
    "segment_bytes",
    "cache_bytes",
    "waiting_bytes",
    "switching_bytes",
    "memory_bytes",
)


def metric_names(stream: str) -> list[str]:
    """The metrics of one bucket and batch, in the order of the emitted array."""
    return [f"{stream}_rows", *COUNTED, f"{stream}_null_keys", *CALLS, *TIMES, *GAUGES]


class TickPacker:
    """Tells every bucket the version of a tick; for `mapInArrow`."""

    def __init__(self, labels: tuple[int, ...]) -> None:
        self.labels = labels

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for version in batch.column(0).to_pylist():
                labels = [*self.labels, GUARD]
                blobs = [version.encode()] * len(self.labels) + [b""]
                columns = [labels, [TICKS] * len(labels), blobs]
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array(column, field.type)
                        for column, field in zip(columns, PACKED_ARROW, strict=True)
                    ],
                    schema=PACKED_ARROW,
                )


class StagedVersions:
    """The versions of this worker, opened; the longest unused go first."""

    def __init__(self, limit: int = 8) -> None:
        self._opened: OrderedDict[tuple[str, int], StagedBucket] = OrderedDict()
        self._limit = limit

    def bucket(self, folder: Path, table: str, number: int) -> StagedBucket:
        key = str(folder), number
        if key not in self._opened:
            known = next((one.owner for (path, _), one in self._opened.items() if path == key[0]), None)
            self._opened[key] = (known or StagedVersion.open(folder, table)).bucket(number)
            if len(self._opened) > self._limit:
                self._opened.popitem(last=False)
        self._opened.move_to_end(key)
        return self._opened[key]


VERSIONS = StagedVersions()  # lives as long as the worker's process


class EnrichBucket(StatefulProcessor):
    """Handles one bucket after another; Spark makes one per task."""

    def __init__(
        self,
        spec: EnrichSpec,
        emitter: Emitter,
        staged: tuple[str, str],
        labels: tuple[int, ...],
        cache_name: str,
        *,
        ends: bool = False,
    ) -> None:
        self.spec = spec
        self.emitter = emitter
        self.folder, self.table = staged
        self.labels = labels
        self.cache_name = cache_name
        self.ends = ends  # a batch input: nothing follows

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.store = BucketStore(handle)
        self.files = RunFiles(local_folder() / self.cache_name)
        return_large_blocks()

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        """One bucket's share of a micro-batch."""
        label = int(key[0])
        blobs, version = _received(rows)
        if label == GUARD:
            self._check_identity()
            return
        bucket = self.labels.index(label)
        watch = Stopwatch()
        self.store.calls.clear()
        stored = self.store.manifest()
        run_store = BucketRunStore(self.store, self.files)
        join = self._current(bucket, stored, run_store, version)
        before = astuple(join.counts)
        watch.lap("load_us")
        shares = [from_bytes(blob, self.spec.stream) for blob in blobs]
        for output in together(self._answers(join, shares, version, bucket), self.spec.frame_rows):
            watch.lap("join_us")
            yield from self.emitter.frames(Results(output), bucket)
            watch.lap("emit_us")
        watch.lap("join_us")
        self._commit(bucket, join, stored, run_store)
        watch.lap("store_us")
        return_free_blocks()
        counted = [now - then for now, then in zip(astuple(join.counts), before, strict=True)]
        calls = [self.store.calls["manifest"], self.store.calls["run"]]
        times = [watch.spent[name] for name in TIMES]
        yield self.emitter.metrics(
            [*counted, sum(share.null_keys for share in shares), *calls, *times, *_gauges(join)]
        )

    def close(self) -> None:
        self.files.shrink()

    def _answers(
        self, join: EnrichJoin, shares: list[Arrivals], version: str | None, bucket: int
    ) -> Iterator[pa.RecordBatch]:
        """What the rows of the batch give."""
        if version is not None:
            join.use(self._table(version, bucket))
        for share in shares:
            yield from join.process(share.rows)
            if share.unkeyed is not None:
                rows = np.arange(len(share.unkeyed))
                yield from join.leave(share.unkeyed, rows, join.newest.table.version)
        times = [share.latest_us for share in shares if share.latest_us is not None]
        if times:
            yield from join.advance(max(times))
        yield from join.step()
        if self.ends:
            yield from join.finish()
            yield from join.advance(END_OF_TIME)

    def _table(self, version: str, bucket: int) -> StagedBucket:
        return VERSIONS.bucket(Path(self.folder) / version, self.table, bucket)

    def _check_identity(self) -> None:
        """Refuse a checkpoint of another join, also where no bucket would find its old state."""
        stored = self.store.manifest()
        if stored is not None:
            Manifest.decode(stored).check_identity(self.spec.identity())
        else:
            self.store.put_manifest(Manifest(self.spec.identity(), {}).encode())

    def _current(
        self, bucket: int, stored: bytes | None, run_store: BucketRunStore, version: str | None
    ) -> EnrichJoin:
        """The join as it was after the last committed batch."""
        if stored is not None:
            join: EnrichJoin | None = JOINS.take(self.cache_name, bucket, digest(stored))
            if join is None or join.spec != self.spec:
                manifest = Manifest.decode(stored)
                join = restore(self.spec, manifest, run_store, lambda one: self._table(one, bucket))
        elif version is None:
            raise InvariantBroken("the first batch of a bucket has no version; please report this")
        else:
            join = EnrichJoin(self.spec, self._table(version, bucket))
        join.names.memory_manager.run_store = run_store
        join.names.begin(join.names.step + 1)
        return join

    def _commit(self, bucket: int, join: EnrichJoin, stored: bytes | None, run_store: BucketRunStore) -> None:
        value = run_store.commit(store(join, run_store.saved_as), stored)
        join.names.memory_manager.run_store = None  # the next batch has its own
        JOINS.put(self.cache_name, bucket, digest(value), join)


def together(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of at least so many, but for the last: a frame costs about 5 ms to send."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(one.num_rows for one in held) >= rows:
            yield pa.concat_batches(held)
            held = []
    if held:
        yield pa.concat_batches(held)


def _received(rows: Iterator[pd.DataFrame]) -> tuple[list[Any], str | None]:
    """The stream's blobs, in an order that a batch that is run again has too, and the version, if told."""
    blobs, version = [], None
    for frame in rows:
        for number, blob in zip(frame["input"], frame["blob"], strict=True):
            if number == TICKS:
                version = bytes(blob).decode()
            else:
                blobs.append(blob)
    return sorted(blobs, key=lambda blob: (len(blob), zlib.crc32(blob))), version


def _gauges(join: EnrichJoin) -> list[int]:
    division = join.division()
    return [
        join.waiting,
        join.in_waiting_room,
        len(join.scans),
        len(join.cache),
        *astuple(division),
        join.spec.memory_bytes,
    ]
