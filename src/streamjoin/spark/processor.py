"""The bucket processor: the one stateful operator of both joins inside Spark's transformWithState.

For each bucket and micro-batch: read the manifest, take the operator from the worker's cache or rebuild it
from the state store, process what arrived, store the runs and the manifest that changed, emit metrics. What
differs between the stream join and the enrich join is a `BucketWork` (`join_bucket`, `enrich_bucket`).

Invariant: everything that must survive is in the state store, committed with the micro-batch. If a task fails
or runs twice, the cache has no operator under that manifest and the store is read. Cost beside the work
itself: two state calls for the manifest and one for each run that is loaded, added or dropped
(`state_store`).
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from streamjoin.errors import StateFormatError
from streamjoin.join.outputs import Output
from streamjoin.join.persistence.restart import check_restart
from streamjoin.plan.figures import bucket_text
from streamjoin.spark.exchange import GUARD
from streamjoin.spark.malloc import return_free_blocks, return_large_blocks
from streamjoin.spark.operator_cache import OPERATORS, digest
from streamjoin.spark.outputs import Emitter
from streamjoin.spark.state_store import BucketRunStore, BucketStore
from streamjoin.state.manifest import Manifest
from streamjoin.state.run import Run
from streamjoin.state.stores import RunFiles

CALLS = ("state_calls", "run_calls")
TIMES = ("load_us", "join_us", "emit_us", "store_us")


class BucketWork(Protocol):
    """What one kind of join does in a bucket; shipped to the workers, so it has declarations only.

    `operator` is the join's own (`StreamJoin`, `EnrichJoin`), `received` whatever `receive` returns. A bucket
    is known by its label, the number that Spark groups by.
    """

    @property
    def cache_name(self) -> str:
        """Equal for two works exactly where one may go on with the operators of the other."""
        ...

    @property
    def limits_memory(self) -> bool:
        """Whether workers give freed memory back to the system."""
        ...

    def identity(self) -> Manifest:
        """The manifest without runs that says which join a checkpoint belongs to."""
        ...

    def receive(self, frames: Iterator[pd.DataFrame]) -> Any:
        """The bucket's blobs of this batch, decoded; reads the frames to their end."""
        ...

    def create(self, label: int, received: Any) -> Any:
        """The operator of a bucket without state."""
        ...

    def fits(self, operator: Any) -> bool:
        """Whether a cached operator was made from the same declarations."""
        ...

    def restore(self, label: int, manifest: Manifest, run_store: BucketRunStore) -> Any:
        """The operator as it was stored."""
        ...

    def process(self, operator: Any, received: Any, label: int) -> Iterator[Output]:
        """One batch."""
        ...

    def store(self, operator: Any, save: Callable[[Run], str]) -> Manifest:
        """The manifest of the operator's state; `save` stores a run that is new and returns its name."""
        ...

    def totals(self, operator: Any) -> list[int]:
        """Counters since the operator was made; the processor emits what a batch added to them."""
        ...

    def arrived(self, received: Any) -> list[int]:
        """Counters of this batch that the operator does not keep."""
        ...

    def gauges(self, operator: Any) -> list[int]:
        """Figures of the state after the batch."""
        ...


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


class BucketProcessor(StatefulProcessor):
    """Handles one bucket after another; Spark makes one per task."""

    def __init__(self, work: BucketWork, emitter: Emitter) -> None:
        self.work = work
        self.emitter = emitter

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.store = BucketStore(handle)
        self.files = RunFiles(local_folder() / self.work.cache_name)
        if self.work.limits_memory:
            return_large_blocks()

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        """One bucket's share of a micro-batch."""
        label = int(key[0])
        if label == GUARD:
            for _ in rows:  # Spark requires a group's input to be read to its end
                pass
            with _said_first():
                self._check_identity()
            return
        work, watch = self.work, Stopwatch()
        received = work.receive(rows)
        self.store.calls.clear()
        stored = self.store.manifest()
        run_store = BucketRunStore(self.store, self.files)
        with _said_first():
            operator = self._current(label, stored, run_store, received)
        before = work.totals(operator)
        watch.lap("load_us")
        for output in work.process(operator, received, label):
            watch.lap("join_us")
            yield from self.emitter.frames(output, label)
            watch.lap("emit_us")
        watch.lap("join_us")
        self._commit(label, operator, stored, run_store)
        watch.lap("store_us")
        if work.limits_memory:
            return_free_blocks()
        counted = [now - then for now, then in zip(work.totals(operator), before, strict=True)]
        calls = [self.store.calls["manifest"], self.store.calls["run"]]
        times = [watch.spent[name] for name in TIMES]
        gauges = work.gauges(operator)
        figures = [*counted, *work.arrived(received), *calls, *times, *gauges]
        yield self.emitter.figures(bucket_text(label, figures))

    def close(self) -> None:
        self.files.shrink()

    def _check_identity(self) -> None:
        """Refuse a checkpoint of another join, also where no bucket would find its old state."""
        stored, now = self.store.manifest(), self.work.identity()
        if stored is not None:
            before = Manifest.decode(stored)
            check_restart(before.identity, now.identity)
            if (before.identity, before.facts) == (now.identity, now.facts):
                return
        self.store.put_manifest(now.encode())

    def _current(self, label: int, stored: bytes | None, run_store: BucketRunStore, received: Any) -> Any:
        """The operator as it was after the last committed batch."""
        if stored is None:
            operator = self.work.create(label, received)
        else:
            operator = OPERATORS.take(self.work.cache_name, label, digest(stored))
            if operator is None or not self.work.fits(operator):
                operator = self.work.restore(label, Manifest.decode(stored), run_store)
        operator.names.memory_manager.run_store = run_store
        return operator

    def _commit(self, label: int, operator: Any, stored: bytes | None, run_store: BucketRunStore) -> None:
        value = run_store.commit(self.work.store(operator, run_store.saved_as), stored)
        operator.names.memory_manager.run_store = None  # the next batch has its own
        OPERATORS.put(self.work.cache_name, label, digest(value), operator)


@contextmanager
def _said_first() -> Iterator[None]:
    """A state that cannot be gone on from is said in the first line of the query's exception.

    PySpark leaves out the trace of a worker with this variable; a worker ends with its exception.
    """
    try:
        yield
    except StateFormatError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def local_folder() -> Path:
    """A folder on this executor's own disk that is removed with it."""
    local = os.environ.get("SPARK_LOCAL_DIRS") or os.environ.get("TMPDIR") or "/tmp"  # noqa: S108
    return Path(local.split(",")[0]) / f"streamjoin-runs-{os.getuid()}"
