"""The enrich join in one bucket: its `BucketWork`, the ticks it gets, and the names of its metrics.

Beside its state a bucket needs its share of the staged table, in the version that the tick of a micro-batch
names. A version is immutable, so all workers read the same files. The output of a batch depends on the state,
its rows and its version only, so a batch that is run again gives the same. docs/metrics.md says what each
metric counts.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from streamjoin.enrich.operator import EnrichJoin
from streamjoin.enrich.rebucket import declared
from streamjoin.enrich.segments import StagedBucket, StagedVersion, saved_at
from streamjoin.enrich.snapshot import restore, store
from streamjoin.enrich.spec import END_OF_TIME, EnrichCounters, EnrichSpec
from streamjoin.errors import InvariantBroken
from streamjoin.join.arrivals import Arrivals
from streamjoin.join.outputs import Results
from streamjoin.join.wire import from_bytes
from streamjoin.spark.exchange import GUARD
from streamjoin.spark.ingest import PACKED_ARROW
from streamjoin.spark.processor import CALLS, TIMES
from streamjoin.spark.state_store import BucketRunStore
from streamjoin.state.manifest import Manifest
from streamjoin.state.run import Run

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
    """The metrics of one bucket and batch, in the order in which a bucket reports them."""
    return [f"{stream}_rows", *COUNTED, f"{stream}_null_keys", *CALLS, *TIMES, *GAUGES]


class TickPacker:
    """Sends the version of a tick to every bucket; for `mapInArrow`."""

    def __init__(self, labels: tuple[int, ...]) -> None:
        self.labels = labels

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
    """The opened versions of this worker; the least recently used are closed first.

    A version never changes, but rebucketing puts another one of the same id in its place.
    """

    def __init__(self, limit: int = 8) -> None:
        self._opened: OrderedDict[tuple[str, int, int], StagedBucket] = OrderedDict()
        self._limit = limit

    def bucket(self, folder: Path, table: str, number: int) -> StagedBucket:
        key = str(folder), saved_at(folder), number
        if key not in self._opened:
            known = next((one.owner for (*of, _), one in self._opened.items() if of == [*key[:2]]), None)
            self._opened[key] = (known or StagedVersion.open(folder, table)).bucket(number)
            if len(self._opened) > self._limit:
                self._opened.popitem(last=False)
        self._opened.move_to_end(key)
        return self._opened[key]


VERSIONS = StagedVersions()  # lives as long as the worker's process


class ReceivedRows(NamedTuple):
    """The stream's rows of one batch and bucket, blob by blob, and the table's version, if a tick names
    one.
    """

    shares: list[Arrivals]
    version: str | None


@dataclass(frozen=True)
class EnrichBucket:
    """The enrich join's part of the bucket processor; `ends`: a batch input, after which nothing follows."""

    spec: EnrichSpec
    folder: str  # of the staged versions
    table: str
    labels: tuple[int, ...]
    cache_name: str
    ends: bool = False
    limits_memory: ClassVar[bool] = True

    def identity(self) -> Manifest:
        return Manifest(self.spec.identity(), {}, declared(self.spec, self.table))

    def receive(self, frames: Iterator[pd.DataFrame]) -> ReceivedRows:
        """Rows in an order that a batch that is run again has too."""
        blobs, version = [], None
        for frame in frames:
            for number, blob in zip(frame["input"], frame["blob"], strict=True):
                if number == TICKS:
                    version = bytes(blob).decode()
                else:
                    blobs.append(blob)
        blobs.sort(key=lambda blob: (len(blob), zlib.crc32(blob)))
        return ReceivedRows([from_bytes(blob, self.spec.stream) for blob in blobs], version)

    def create(self, label: int, received: ReceivedRows) -> EnrichJoin:
        if received.version is None:
            raise InvariantBroken("the first batch of a bucket has no version; please report this")
        return EnrichJoin(self.spec, self._table(received.version, label))

    def fits(self, operator: EnrichJoin) -> bool:
        return replace(operator.spec, where=None) == replace(self.spec, where=None)

    def restore(self, label: int, manifest: Manifest, run_store: BucketRunStore) -> EnrichJoin:
        return restore(self.spec, manifest, run_store, lambda version: self._table(version, label))

    def process(self, operator: EnrichJoin, received: ReceivedRows, label: int) -> Iterator[Results]:
        """What the rows of the batch give, in few and large frames."""
        operator.names.begin(operator.names.step + 1)
        answers = self._answers(operator, received, label)
        return (Results(rows) for rows in coalesced(answers, self.spec.frame_rows))

    def store(self, operator: EnrichJoin, save: Callable[[Run], str]) -> Manifest:
        return store(operator, save)

    def totals(self, operator: EnrichJoin) -> list[int]:
        return list(astuple(operator.counts))

    def arrived(self, received: ReceivedRows) -> list[int]:
        return [sum(share.null_keys for share in received.shares)]

    def gauges(self, operator: EnrichJoin) -> list[int]:
        state = [operator.waiting, operator.in_waiting_room, len(operator.scans), len(operator.cache)]
        return [*state, *astuple(operator.division()), operator.spec.memory_bytes]

    def _answers(self, join: EnrichJoin, received: ReceivedRows, label: int) -> Iterator[pa.RecordBatch]:
        if received.version is not None:
            join.use(self._table(received.version, label))
        for share in received.shares:
            yield from join.process(share.rows)
            if share.unkeyed is not None:
                rows = np.arange(len(share.unkeyed))
                yield from join.leave(share.unkeyed, rows, join.newest.table.version)
        times = [share.latest_us for share in received.shares if share.latest_us is not None]
        if times:
            yield from join.advance(max(times))
        yield from join.step()
        if self.ends:
            yield from join.finish()
            yield from join.advance(END_OF_TIME)

    def _table(self, version: str, label: int) -> StagedBucket:
        return VERSIONS.bucket(Path(self.folder) / version, self.table, self.labels.index(label))


def coalesced(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of at least so many, but for the last: a frame costs about 5 ms to send."""
    collected: list[pa.RecordBatch] = []
    for batch in batches:
        collected.append(batch)
        if sum(one.num_rows for one in collected) >= rows:
            yield pa.concat_batches(collected)
            collected = []
    if collected:
        yield pa.concat_batches(collected)
