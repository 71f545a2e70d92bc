"""The program of every contender on Spark: this library or Spark's own joins, each in a JVM of its own.

    python -m lab.contenders.spark_contender lab.peers.tpch_query:TpchQuery '{"engine": "streamjoin", …}'

A work gives a `SparkQuery`: its query over its files by each engine, and the sums that check the answer. This
module starts the session, warms it with the same query on a few rows, runs the query until its files are read
and nothing waits, follows its progress, measures CPU time (and memory where `watches` says so), and prints
one `protocol.Measured` as JSON. Rows go to Spark's no-op sink, counted and summed on the way; a query with a
`collector` gets them batch by batch instead.

Start-up is the JVM, the session and the warming; what `rows` does before the query starts (staging a table)
is told apart as `staging_s`.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Protocol

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lab.contenders.first_rows import first_rows
from lab.contenders.micro_batch import answered, ended, file_rows, join_metrics, stored, waiting
from lab.contenders.process_tree import CpuClock, WorkerMemory, cpu_seconds, idle_worker_bytes
from lab.contenders.protocol import Answer, Measured
from streamjoin.spark.session import session

Engine = Literal["streamjoin", "spark-heap", "spark-rocksdb"]
_HEAP = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
_FORMAT = "spark.sql.streaming.join.stateFormatVersion"


class Collector(Protocol):
    """Takes the result rows batch by batch."""

    def take(self, frame: DataFrame, batch: int) -> None: ...

    def answer(self) -> Answer: ...

    def first_batch(self) -> int | None: ...

    def extra(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class SparkQuery(ABC):
    """A work by one engine, over the files under `folder`; fields are JSON values."""

    engine: Engine
    folder: str

    @property
    def ours(self) -> bool:
        return self.engine == "streamjoin"

    @abstractmethod
    def rows(self, spark: SparkSession, checkpoint: str) -> DataFrame:
        """The result as a stream."""

    def sums(self) -> tuple[Column, Column]:
        """The plain and the mixed number of a result row, which a batch join must add up to too."""
        raise NotImplementedError

    def observed_too(self) -> Sequence[Column]:
        """Further aggregates over the result rows, by batch in `extra`."""
        return ()

    def warmed_by(self) -> Iterable[str]:
        """The inputs whose first rows warm the session; none: it is not warmed."""
        return ()

    def collector(self) -> Collector | None:
        """Takes the rows, where a count and two sums are not enough."""
        return None

    @property
    def join_name(self) -> str | None:
        """Whose metrics are the state, where this library runs several joins."""
        return None

    @property
    def watches(self) -> bool:
        """Whether CPU time by batch and the workers' memory are sampled."""
        return False

    def detail(self, spark: SparkSession) -> str:
        """Version, state store and format, and what is declared."""
        store = "its own heap store" if self.engine == "spark-heap" else "RocksDB, changelog checkpoints"
        if self.ours:
            return f"on Spark {spark.version}, {store}, 2 cores"
        return f"Spark {spark.version}, {store}, join state format {spark.conf.get(_FORMAT)}, 2 cores"

    def run_to_end(self, writer: Any) -> list[dict[str, Any]]:
        """Run the query until its files are read and nothing waits; the progress of all its batches."""
        return until_done(writer)

    def command(self) -> list[str]:
        """How this contender is started."""
        name = f"{type(self).__module__}:{type(self).__name__}"
        return [sys.executable, "-m", "lab.contenders.spark_contender", name, json.dumps(asdict(self))]


def open_session(engine: Engine) -> SparkSession:
    """A session with the recommended settings of each engine."""
    conf = {"spark.sql.streaming.stateStore.providerClass": _HEAP} if engine == "spark-heap" else {}
    return session(cores=2, memory="6g", conf=conf)


def observed(frame: DataFrame, query: SparkQuery) -> DataFrame:
    """The same rows, counted, with two sums over them."""
    plain, mixed = query.sums()
    counted = (F.count(F.lit(1)).alias("rows"), F.sum(plain).alias("sum"), F.sum(mixed).alias("mix"))
    return frame.observe("answer", *counted, *query.observed_too())


def until_done(writer: Any) -> list[dict[str, Any]]:
    """A join with a table may leave rows waiting for another run."""
    progress: list[dict[str, Any]] = []
    while True:
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        progress += [json.loads(batch.json) for batch in query.recentProgress]
        if not waiting(progress[-1]):
            return progress


def run(query: SparkQuery) -> Measured:
    """In a session of its own."""
    began = time.perf_counter()
    spark = open_session(query.engine)
    try:
        if inputs := list(query.warmed_by()):
            with first_rows(query.folder, inputs) as short, _checkpoint() as checkpoint:
                rows = replace(query, folder=short).rows(spark, checkpoint)
                until_done(rows.writeStream.format("noop").option("checkpointLocation", checkpoint))
        return measured(spark, query, began)
    finally:
        spark.stop()


def measured(spark: SparkSession, query: SparkQuery, began: float) -> Measured:
    """Run the query to its end; start-up counts from `began`."""
    collector = query.collector()
    idle = idle_worker_bytes(spark) if query.watches else 0
    startup_s = time.perf_counter() - began
    with _checkpoint() as checkpoint:
        rows = query.rows(spark, checkpoint)
        if collector is None:
            writer: Any = observed(rows, query).writeStream.format("noop")
        else:
            writer = rows.writeStream.foreachBatch(collector.take)
        staging_s = time.perf_counter() - began - startup_s
        watching = (CpuClock(), WorkerMemory(idle)) if query.watches else None
        cpu, start, started = cpu_seconds(), time.perf_counter(), time.time()
        progress = query.run_to_end(writer.option("checkpointLocation", checkpoint))
        wall_s, cpu_s = time.perf_counter() - start, cpu_seconds() - cpu
    ends = [ended(batch) for batch in progress]
    extra = {
        "staging_s": staging_s,
        "trigger_ms": [batch["durationMs"]["triggerExecution"] for batch in progress],
        "input_rows": [file_rows(batch) for batch in progress],
        "answers": [answered(batch) for batch in progress],
        "gauges": [join_metrics(batch, query.join_name) for batch in progress] if query.watches else [],
    }
    if watching is not None:
        clock, memory = watching
        clock.stop()
        extra |= {"cpu_s": clock.at(ends), "worker_bytes": memory.stop()}
    if collector is None:
        answer, first = _answer(progress)
    else:
        answer, first = collector.answer(), collector.first_batch()
        extra |= collector.extra()
    return Measured(
        query.engine,
        query.detail(spark),
        startup_s,
        wall_s,
        cpu_s,
        answer,
        None if first is None else ends[first] - started,
        [(end - started, *_state(query, batch)) for end, batch in zip(ends, progress, strict=True)],
        extra,
    )


def _checkpoint() -> Any:
    return tempfile.TemporaryDirectory(prefix="streamjoin-lab-", ignore_cleanup_errors=True)


def _answer(progress: Sequence[dict[str, Any]]) -> tuple[Answer, int | None]:
    """The sums over all batches, and the first batch with a result."""
    each = [answered(batch) for batch in progress]
    sums = (sum(one.get(name) or 0 for one in each) for name in ("rows", "sum", "mix"))
    return Answer(*sums), next((i for i, one in enumerate(each) if one.get("rows")), None)


def _state(query: SparkQuery, batch: dict[str, Any]) -> tuple[int | None, int | None]:
    """Rows and bytes of state after a batch, as the engine counts them; of this library its join's."""
    if query.ours:
        metrics = join_metrics(batch, query.join_name)
        return metrics.get("state_rows"), metrics.get("state_bytes")
    return stored(batch)


def main(name: str, fields: str) -> None:
    """Run the contender that the arguments name, and print what was measured."""
    module, _, kind = name.partition(":")
    query: SparkQuery = getattr(importlib.import_module(module), kind)(**json.loads(fields))
    print(json.dumps(asdict(run(query))))


if __name__ == "__main__":
    main(*sys.argv[1:])
