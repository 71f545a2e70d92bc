"""One contender of a measurement, in a Python process and a JVM of its own.

Reads its task as JSON from the first argument, runs a streaming query over prepared files, and
prints one JSON line: the trigger times of its micro-batches, CPU seconds of the whole process
tree, and sums over the answer that the caller compares before it reports a time.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import psutil
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streamjoin.api.join import join, stream
from streamjoin.declare.marked import marked
from streamjoin.plan.bounds import UnboundedState
from streamjoin.spark.session import session

Engine = Literal["streamjoin", "spark-heap", "spark-rocksdb"]
_HEAP = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


@dataclass(frozen=True)
class Task:
    """What one contender does: the files `one/` and `many/` under `folder`, a file per batch."""

    engine: Engine
    folder: str
    key_type: str = "long"
    value_type: str = "long"
    punctuated: bool = False
    how: str = "inner"
    step_s: float = 0.0  # event time between two batches; 0: rows have no time
    pause_before_last_s: float = 0.0
    memory: str | None = None  # the join's limit
    watched: bool = False  # sample the resident memory of Spark's Python workers

    def argument(self) -> str:
        return json.dumps(asdict(self))


def start(task: Task) -> SparkSession:
    """A session with the recommended settings of each engine."""
    conf = {}
    if task.engine == "spark-heap":
        conf["spark.sql.streaming.stateStore.providerClass"] = _HEAP
    return session(cores=2, memory="6g", conf=conf)


def frames(spark: SparkSession, task: Task) -> tuple[DataFrame, DataFrame]:
    """The two streams, one file a micro-batch."""
    mark = ", is_end boolean" if task.punctuated else ""
    time = ", t timestamp" if task.step_s else ""
    schemas = {
        "one": f"k {task.key_type}, va {task.value_type}{time}",
        "many": f"k {task.key_type}, vb {task.value_type}{time}{mark}",
    }
    one, many = (
        spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(Path(task.folder) / side))
        for side, schema in schemas.items()
    )
    return one, many


def joined(task: Task, one: DataFrame, many: DataFrame) -> DataFrame:
    """The same join by each engine."""
    if task.step_s:
        return outer(task, one, many)
    if task.engine == "streamjoin":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnboundedState)
            end = marked("is_end") if task.punctuated else None
            return join(
                stream(one, name="one", key="k", unique=task.punctuated),
                stream(many, name="many", key="k", punctuation=end),
                memory=task.memory,
            ).dataframe()
    rows = many.where("not is_end").drop("is_end") if task.punctuated else many
    return one.join(rows, "k")


def outer(task: Task, one: DataFrame, many: DataFrame) -> DataFrame:
    """An outer join within a time: a row of `many` belongs to a row of `one` at most half a step older.

    In the data no row of `many` is older than its partner, so its own window can be short.
    """
    span = f"{task.step_s / 2:g} seconds"
    if task.engine == "streamjoin":
        timed: dict[str, Any] = {"key": "k", "time": "t", "lateness": "0 seconds"}
        ours = join(
            stream(one, name="one", window=span, columns=["va"], **timed),
            stream(many, name="many", window="1 millisecond", columns=["vb"], **timed),
            how=task.how,
        )
        return ours.dataframe().where("k >= 0")
    left = one.withWatermark("t", "0 seconds").alias("a")
    right = many.withWatermark("t", "0 seconds").alias("b")
    within = F.expr(f"a.k = b.k and b.t >= a.t and b.t <= a.t + interval {span}")
    both = left.join(right, within, task.how)
    return both.select(F.expr("coalesce(a.k, b.k)").alias("k"), "va", "vb").where("k >= 0")


def checked(frame: DataFrame, task: Task) -> DataFrame:
    """The same rows, with sums over them that a batch join must give too."""
    frame = frame if task.how == "inner" else frame.fillna(-1, ["va", "vb"])
    va, vb = (F.col(c) if task.value_type == "long" else F.length(c).cast("long") for c in ("va", "vb"))
    key = F.col("k") if task.key_type == "long" else F.length("k").cast("long")
    mixed = ((va * 31 + vb * 17) % 1_000_003) * (key % 1_009)
    return observed(frame, va + vb, mixed)


def observed(frame: DataFrame, plain: Column, mixed: Column) -> DataFrame:
    """The same rows, counted, with two sums over them."""
    return frame.observe(
        "answer", F.count(F.lit(1)).alias("rows"), F.sum(plain).alias("sum"), F.sum(mixed).alias("mix")
    )


def run(task: Task) -> dict[str, Any]:
    """Start, run until the files are read, measure."""
    began = time.perf_counter()
    spark = start(task)
    one, many = frames(spark, task)
    return followed(task, spark, checked(joined(task, one, many), task), began)


def followed(task: Task, spark: SparkSession, out: DataFrame, began: float) -> dict[str, Any]:
    """Run a query until its files are read, stop the session, and tell what was seen."""
    started = time.perf_counter() - began
    memory = WorkerMemory(_idle_worker_bytes(spark, task)) if task.watched else None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
        writer = out.writeStream.format("noop").option("checkpointLocation", checkpoint)
        if task.pause_before_last_s:
            query = _with_pause(writer, task)
        else:
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
        progress = [json.loads(batch.json) for batch in query.recentProgress]
        cpu = cpu_seconds()
        peak = None if memory is None else memory.stop()
        stages = _stages(spark)
        spark.stop()
    batches = [batch for batch in progress if batch["numInputRows"] > 0]
    return {
        "startup_s": started,
        "worker_bytes": peak,
        "state_bytes": [_gauge(batch, "state_bytes") for batch in batches],
        "resident_bytes": [_gauge(batch, "resident_bytes") for batch in batches],
        "cpu_s": cpu,
        "trigger_ms": [batch["durationMs"]["triggerExecution"] for batch in batches],
        "duration_ms": [batch["durationMs"] for batch in batches],
        "parts_us": [_parts(batch) for batch in batches],
        "commit_ms": [_commit_ms(batch) for batch in batches],
        "map_stages": stages,
        "input_rows": [batch["numInputRows"] for batch in batches],
        "state_rows": [_state_rows(task, batch) for batch in batches],
        "answer": {
            name: sum((batch["observedMetrics"].get("answer") or {}).get(name) or 0 for batch in batches)
            for name in ("rows", "sum", "mix")
        },
    }


def _with_pause(writer: Any, task: Task) -> Any:
    """All files but the last of each stream, then a pause in the same query, then the last."""
    last = [max((Path(task.folder) / side).iterdir()) for side in ("one", "many")]
    hidden = [Path(f"{path}.hidden") for path in last]
    for path, aside in zip(last, hidden, strict=True):
        path.rename(aside.with_name("_" + aside.name))
    query = writer.trigger(processingTime="0 seconds").start()
    query.processAllAvailable()
    time.sleep(task.pause_before_last_s)
    for path, aside in zip(last, hidden, strict=True):
        moved = aside.with_name("_" + aside.name)
        os.utime(moved)
        moved.rename(path)
    query.processAllAvailable()
    query.stop()
    return query


def _state_rows(task: Task, batch: dict[str, Any]) -> int:
    if task.engine == "streamjoin":
        return int(batch["observedMetrics"]["streamjoin_join"]["state_rows"])
    return sum(int(operator["numRowsTotal"]) for operator in batch["stateOperators"])


def _gauge(batch: dict[str, Any], name: str) -> int:
    """A gauge of this library; 0 for the others."""
    return int((batch["observedMetrics"].get("streamjoin_join") or {}).get(name, 0))


def _parts(batch: dict[str, Any]) -> dict[str, int]:
    """Where the time of the stateful side went; only this library says so."""
    observed = batch["observedMetrics"].get("streamjoin_join") or {}
    return {name: value for name, value in observed.items() if name.endswith("_us")}


def _commit_ms(batch: dict[str, Any]) -> int:
    """The state store's commit, summed over partitions, as Spark reports it."""
    return sum(int(operator["commitTimeMs"]) for operator in batch["stateOperators"])


def _stages(spark: SparkSession) -> list[dict[str, int]]:
    """The stages that read, pack and write a shuffle, in order; times summed over their tasks."""
    jvm: Any = spark.sparkContext._jsc.sc()  # noqa: SLF001
    jvm.listenerBus().waitUntilEmpty()
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001
    no_quantiles = gateway.new_array(gateway.jvm.double, 0)
    found = jvm.statusStore().stageList(None, False, False, no_quantiles, None)
    stages = [found.apply(i) for i in range(found.size())]
    return [
        {
            "run_ms": stage.executorRunTime(),
            "shuffle_write_ms": stage.shuffleWriteTime() // 1_000_000,
            "shuffle_bytes": stage.shuffleWriteBytes(),
        }
        for stage in sorted(stages, key=lambda stage: stage.stageId())
        if stage.shuffleWriteBytes() > 0
    ]


def cpu_seconds() -> float:
    """CPU time of this process and everything it started."""
    total = 0.0
    here = psutil.Process()
    for process in [here, *here.children(recursive=True)]:
        try:
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
        except psutil.Error:
            continue
    return total


def _workers() -> Iterator[psutil.Process]:
    """Spark's Python workers: forked by a Python process that is a child of the JVM."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            parent = process.parent()
            if parent is not None and parent.name().startswith("python") and parent.pid != os.getpid():
                yield process


def _idle_worker_bytes(spark: SparkSession, task: Task) -> int:
    """What a worker takes that has run this library once, on a few rows, and has nothing to do."""
    one, many = (
        spark.read.parquet(str(min((Path(task.folder) / side).iterdir()))).limit(10)
        for side in ("one", "many")
    )
    few = join(stream(one, name="one", key="k"), stream(many, name="many", key="k"))
    few.dataframe().count()
    return _least_worker_bytes()


def worker_bytes(spark: SparkSession) -> int:
    """The same where there are no such files: rows of its own."""
    few = [
        stream(spark.range(10).withColumnRenamed("id", "k"), name=name, key="k") for name in ("one", "two")
    ]
    join(*few).dataframe().count()
    return _least_worker_bytes()


def _least_worker_bytes() -> int:
    return min(int(process.memory_info().rss) for process in _workers())


class WorkerMemory:
    """Samples the workers' resident memory; `stop` gives the most that one took above an idle one."""

    def __init__(self, idle_bytes: int) -> None:
        self.idle_bytes, self._peak, self._over = idle_bytes, 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            for process in _workers():
                with suppress(psutil.Error):
                    self._peak = max(self._peak, process.memory_info().rss)

    def stop(self) -> dict[str, int]:
        self._over.set()
        self._thread.join()
        return {"idle": self.idle_bytes, "peak": self._peak}


if __name__ == "__main__":
    print(json.dumps(run(Task(**json.loads(sys.argv[1])))))
