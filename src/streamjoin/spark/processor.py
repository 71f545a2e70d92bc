"""The stateful side: one bucket's join inside Spark's transformWithState.

Decode the batch's blobs, take the join from a cache or rebuild it from the state store, let it
work, store what it added, emit. Everything that must survive is in the state store, committed
with the micro-batch; if a task fails or runs twice, the caches find nothing and the store is read.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple, fields, replace
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from streamjoin.join.arrivals import Arrivals
from streamjoin.join.operator import StreamJoin
from streamjoin.join.outputs import Counters
from streamjoin.join.persistence.snapshot import restore, store
from streamjoin.join.persistence.stored_spec import declared
from streamjoin.join.spec import JoinSpec
from streamjoin.join.statistics.forecast import Outlook
from streamjoin.join.statistics.monitor import Seen
from streamjoin.join.strategies.order import Sequential
from streamjoin.join.wire import from_bytes, together
from streamjoin.spark.allocator import return_free_blocks, return_large_blocks
from streamjoin.spark.bucket_cache import JOINS, digest
from streamjoin.spark.exchange import GUARD
from streamjoin.spark.outputs import Emitter
from streamjoin.spark.state_store import BucketRunStore, BucketStore
from streamjoin.state.manifest import Manifest
from streamjoin.state.stores import RunFiles

COUNTERS = tuple(field.name for field in fields(Counters))
HELD = ("state_rows", "state_bytes", "closed_keys", "waiting", "resident_bytes", "groups")
GAUGES = (*HELD, "predicted_rows", "predicted_bytes")
SEEN = tuple(field.name for field in (*fields(Seen), *fields(Outlook)))
TOTALS = ("results", "propagated_keys", "fallbacks")
CALLS = ("state_calls", "run_calls")  # to the state store: for the manifest, and for runs
TIMES = ("load_us", "join_us", "emit_us", "store_us")  # summed over buckets, which work side by side


def metric_names(spec: JoinSpec) -> list[str]:
    """The metrics of one bucket and batch, in the order of the emitted array; `seen_names` follow."""
    counted = [f"{one.name}_{counter}" for one in spec.inputs for counter in COUNTERS]
    return [*counted, *TOTALS, *CALLS, *TIMES, *GAUGES]


def seen_names(spec: JoinSpec) -> list[str]:
    """What the monitor saw of each input."""
    return [f"{one.name}_{figure}" for one in spec.inputs for figure in SEEN]


def always_zero(spec: JoinSpec) -> set[str]:
    """Metrics that cannot be anything else in this join."""
    never = {
        "invalidated": not spec.windowed,
        "late": not spec.windowed,
        "expired": all(one.ttl_us is None for one in spec.inputs),
        "intermediate": len(spec.inputs) == 2,
        "padded": not spec.how.preserved,
        "waited": isinstance(spec.strategies.order, Sequential),
    }
    found = {f"{one.name}_{counter}" for one in spec.inputs for counter, so in never.items() if so}
    found |= {f"{one.name}_duplicate_key" for one in spec.inputs if not one.unique}
    found |= {f"{one.name}_null_time" for one in spec.inputs if not one.layout.timed}
    return found | ({"groups"} if spec.grouping is None else set())


class Stopwatch:
    """Where the time of one bucket and batch goes, in microseconds."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()
        self._last = time.perf_counter_ns()

    def lap(self, name: str) -> None:
        """Everything since the last lap was spent on this."""
        now = time.perf_counter_ns()
        self.spent[name] += (now - self._last) // 1000
        self._last = now


class BucketJoin(StatefulProcessor):
    """Handles one bucket after another; Spark makes one per task."""

    def __init__(self, spec: JoinSpec, emitter: Emitter, cache_name: str, *, ends: bool = False) -> None:
        self.spec = spec
        self.emitter = emitter
        self.cache_name = cache_name
        self.ends = ends  # batch inputs: nothing follows

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.store = BucketStore(handle)
        self.files = RunFiles(local_folder() / self.cache_name)
        if self.spec.memory_share is not None:
            return_large_blocks()

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        """One bucket's share of a micro-batch."""
        bucket = int(key[0])
        if bucket == GUARD:
            for _ in rows:  # Spark wants a group's input read to its end
                pass
            self._check_identity()
            return
        watch = Stopwatch()
        arrivals = self._arrivals(rows)
        self.store.calls.clear()
        stored = self.store.manifest()
        run_store = BucketRunStore(self.store, self.files)
        join = self._current(bucket, stored, run_store)
        before = _totals(join)
        watch.lap("load_us")
        for output in join.process(arrivals):
            watch.lap("join_us")
            yield from self.emitter.frames(output, bucket)
            watch.lap("emit_us")
        watch.lap("join_us")
        self._commit(bucket, join, stored, run_store)
        watch.lap("store_us")
        calls = [self.store.calls["manifest"], self.store.calls["run"]]
        if self.spec.memory_share is not None:
            return_free_blocks()
        counted = _difference(_totals(join), before)
        yield self.emitter.metrics([*counted, *calls, *(watch.spent[name] for name in TIMES), *_gauges(join)])

    def close(self) -> None:
        self.files.shrink()

    def _arrivals(self, frames: Iterator[pd.DataFrame]) -> dict[int, Arrivals]:
        shares: dict[int, list[Arrivals]] = {}
        for frame in frames:
            for number, blob in zip(frame["input"], frame["blob"], strict=True):
                shares.setdefault(number, []).append(from_bytes(blob, self.spec.inputs[number].layout))
        arrivals = {
            number: together(self.spec.inputs[number].layout, found)
            for number, found in sorted(shares.items())
        }
        if not self.ends:
            return arrivals
        return {number: arrived.and_nothing_more() for number, arrived in arrivals.items()}

    def _check_identity(self) -> None:
        """Refuse a checkpoint of another join, also where no bucket would find its old state."""
        stored = self.store.manifest()
        now = Manifest(self.spec.identity(), {}, declared(self.spec))
        if stored is not None:
            before = Manifest.decode(stored)
            before.check_identity(now.identity)
            if before.facts == now.facts:
                return
        self.store.put_manifest(now.encode())

    def _current(self, bucket: int, stored: bytes | None, run_store: BucketRunStore) -> StreamJoin:
        """The join as it was after the last committed batch."""
        if stored is None:
            join = StreamJoin(self.spec)
        else:
            cached = JOINS.take(self.cache_name, bucket, digest(stored))
            if cached is not None and not _alike(cached.spec, self.spec):
                cached = None
            join = cached or restore(self.spec, Manifest.decode(stored), run_store)
        join.names.memory_manager.run_store = run_store
        return join

    def _commit(self, bucket: int, join: StreamJoin, stored: bytes | None, run_store: BucketRunStore) -> None:
        value = run_store.commit(store(join, run_store.saved_as), stored)
        join.names.memory_manager.run_store = None  # the next batch has its own
        JOINS.put(self.cache_name, bucket, digest(value), join)


def _alike(ours: JoinSpec, theirs: JoinSpec) -> bool:
    """Whether nothing was changed that a restart may change: a ttl, the memory, strategies.

    Conditions cannot be compared; that they are the same is part of the cache's name.
    """
    return replace(ours, where=None) == replace(theirs, where=None)


def local_folder() -> Path:
    """A folder on this executor's own disk that goes with it."""
    local = os.environ.get("SPARK_LOCAL_DIRS") or os.environ.get("TMPDIR") or "/tmp"  # noqa: S108
    return Path(local.split(",")[0]) / f"streamjoin-runs-{os.getuid()}"


def _totals(join: StreamJoin) -> list[int]:
    counted = [getattr(counters, name) for counters in join.counters for name in COUNTERS]
    return [*counted, join.results, join.propagated_keys, join.fallbacks]


def _difference(after: list[int], before: list[int]) -> list[int]:
    return [a - b for a, b in zip(after, before, strict=True)]


def _gauges(join: StreamJoin) -> list[int]:
    held = join.held()
    outlook = join.outlook()
    predicted = [sum(one.predicted for one in outlook), round(join.calibration.predicted_bytes())]
    seen = [
        value
        for sampled, ahead in zip(join.seen(), outlook, strict=True)
        for value in (*astuple(sampled), *astuple(ahead))
    ]
    return [*astuple(held), *predicted, *seen]
