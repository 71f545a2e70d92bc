"""The basic works on Spark, by this library or by Spark's own joins, in a process and a JVM of its own.

Started as `python -m lab.peers.spark_job <task as JSON>`; prints a `work.Measured`. It reads the
CSV files of a work, one file of each input a micro-batch, and sinks the result without writing it; the answer
is observed on the way. Start-up is the JVM, the session, and the same query on a few rows (`warming`). Bytes
of state: of this library its own gauge, of Spark's stores what it calls memory used, with RocksDB's files.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lab.contender import Engine, Task, cpu_seconds, observed, start
from lab.peers.progress import ended, stored
from lab.peers.warming import first_rows
from lab.peers.work import Check, Work
from lab.peers.works import scan_sql
from streamjoin.api.enrich import enrich, table
from streamjoin.api.join import join, stream
from streamjoin.plan.bounds import UnboundedState

SPAN = "10 seconds"  # of the interval join
MASTER = "master"
_FORMAT = "spark.sql.streaming.join.stateFormatVersion"


@dataclass(frozen=True)
class SparkTask:
    """What one contender does."""

    engine: Engine
    job: str
    folder: str
    inputs: Mapping[str, Mapping[str, str]]
    check: Mapping[str, Any]

    @staticmethod
    def of(work: Work, job: str, engine: Engine, check: Check) -> SparkTask:
        return SparkTask(engine, job, str(work.folder), work.inputs, asdict(check))

    def command(self) -> list[str]:
        return [sys.executable, "-m", "lab.peers.spark_job", json.dumps(asdict(self))]


Frames = Mapping[str, DataFrame]


def frames(spark: SparkSession, task: SparkTask) -> dict[str, DataFrame]:
    """The inputs as streams, one file a micro-batch; master data as a table."""
    found = {}
    for name, columns in task.inputs.items():
        schema = ", ".join(f"`{column}` {kind}" for column, kind in columns.items())
        path = str(Path(task.folder) / name)
        if name == MASTER and task.job == "lookup":
            found[name] = spark.read.schema(schema).csv(path)
        else:
            found[name] = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).csv(path)
    return found


def two_way(task: SparkTask, given: Frames, _: str) -> DataFrame:
    """A row of `one` with ten of `many`; nothing says when a key is over."""
    if task.engine != "streamjoin":
        return given["one"].join(given["many"], "k")
    one = stream(given["one"], name="one", key="k", unique=True)
    return join(one, stream(given["many"], name="many", key="k")).dataframe()


def interval(task: SparkTask, given: Frames, _: str) -> DataFrame:
    """A row of `many` belongs to one of `one` that is at most ten seconds older.

    In the data no row of `many` is older than its partner, so its own window can be short.
    """
    timed = {name: frame.withColumn("t", F.timestamp_millis("t")) for name, frame in given.items()}
    if task.engine == "streamjoin":
        of: dict[str, Any] = {"key": "k", "time": "t", "lateness": "0 seconds"}
        return join(
            stream(timed["one"], name="one", window=SPAN, columns=["va"], **of),
            stream(timed["many"], name="many", window="1 millisecond", columns=["vb"], **of),
        ).dataframe()
    one = timed["one"].withWatermark("t", "0 seconds").alias("a")
    many = timed["many"].withWatermark("t", "0 seconds").alias("b")
    within = F.expr(f"a.k = b.k and b.t between a.t and a.t + interval {SPAN}")
    return one.join(many, within).select("a.k", "va", "vb")


def three_way(task: SparkTask, given: Frames, _: str) -> DataFrame:
    """Three streams on one key: one operator here, a chain of two joins in Spark."""
    if task.engine != "streamjoin":
        return reduce(lambda left, right: left.join(right, "k"), given.values())
    return join(*(stream(frame, name=name, key="k") for name, frame in given.items())).dataframe()


def lookup(task: SparkTask, given: Frames, checkpoint: str) -> DataFrame:
    """A stream with a row of master data each."""
    if task.engine != "streamjoin":
        return given["stream"].join(given[MASTER], "k")
    held = table(given[MASTER], name=MASTER, key="k", memory="64 MB")
    return enrich(stream(given["stream"], name="stream", key="k"), held).dataframe(checkpoint=checkpoint)


def scan(task: SparkTask, given: Frames, _: str) -> DataFrame:
    """Every column of every input, no join; of marked rows nothing."""
    rows = {
        name: frame.where("NOT is_end") if "is_end" in frame.columns else frame
        for name, frame in given.items()
    }
    numbers = [frame.selectExpr(f"{scan_sql(task.inputs[name])} AS n") for name, frame in rows.items()]
    return reduce(lambda left, right: left.union(right), numbers)


JOBS: Mapping[str, Callable[[SparkTask, Frames, str], DataFrame]] = {
    "two-way": two_way,
    "interval": interval,
    "three-way": three_way,
    "lookup": lookup,
    "scan": scan,
}


def run(task: SparkTask) -> dict[str, Any]:
    """Start, run until the files are read, measure."""
    began = time.time()
    spark = start(Task(task.engine, task.folder))
    check = Check(**task.check)
    with first_rows(task.folder, task.inputs) as short, _checkpoint() as checkpoint:
        _until_done(_query(spark, replace(task, folder=short), check, checkpoint), checkpoint)
    with _checkpoint() as checkpoint:
        out = _query(spark, task, check, checkpoint)
        started, cpu = time.time(), cpu_seconds()
        progress = _until_done(out, checkpoint)
        over, cpu = time.time(), cpu_seconds() - cpu
        detail = _detail(spark, task)
        spark.stop()
    answers = [batch["observedMetrics"].get("answer") or {} for batch in progress]
    first = next((i for i, each in enumerate(answers) if each.get("rows")), None)
    return {
        "engine": task.engine,
        "detail": detail,
        "startup_s": started - began,
        "wall_s": over - started,
        "cpu_s": cpu,
        "answer": {name: sum(each.get(name) or 0 for each in answers) for name in ("rows", "sum", "mix")},
        "first_result_s": None if first is None else ended(progress[first]) - started,
        "state": [(ended(batch) - started, *_state(task, batch)) for batch in progress],
        "extra": {"trigger_ms": [batch["durationMs"]["triggerExecution"] for batch in progress]},
    }


def _checkpoint() -> Any:
    return tempfile.TemporaryDirectory(ignore_cleanup_errors=True)


def _query(spark: SparkSession, task: SparkTask, check: Check, checkpoint: str) -> DataFrame:
    """The rows of the job, counted and summed on the way."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnboundedState)
        joined = JOBS[task.job](task, frames(spark, task), checkpoint)
    return observed(joined, *(F.expr(each) for each in check.sql()))


def _until_done(frame: DataFrame, checkpoint: str) -> list[dict[str, Any]]:
    """The progress of all batches; a semi-stream join may leave tuples waiting for another run."""
    progress: list[dict[str, Any]] = []
    while True:
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        progress += [json.loads(batch.json) for batch in query.recentProgress]
        if not _ours(progress[-1]).get("waiting"):
            return progress


def _ours(batch: dict[str, Any]) -> dict[str, Any]:
    told = [value for name, value in batch["observedMetrics"].items() if name.startswith("streamjoin_")]
    return told[0] if told else {}


def _state(task: SparkTask, batch: dict[str, Any]) -> tuple[int | None, int | None]:
    """Rows and bytes."""
    if task.engine == "streamjoin":
        told = _ours(batch)
        return told.get("state_rows"), told.get("state_bytes")
    return stored(batch)


def _detail(spark: SparkSession, task: SparkTask) -> str:
    if task.engine == "streamjoin":
        return f"this library on Spark {spark.version}, RocksDB with changelog checkpoints, 2 cores"
    if task.job in {"lookup", "scan"}:
        what = "stream-static join" if task.job == "lookup" else "no join"
        return f"Spark {spark.version}, {what}, 2 cores"
    store = "heap state" if task.engine == "spark-heap" else "RocksDB state with changelog checkpoints"
    version = spark.conf.get(_FORMAT)
    return f"Spark {spark.version}, {store}, join state format {version}, 2 shuffle partitions, 2 cores"


if __name__ == "__main__":
    print(json.dumps(run(SparkTask(**json.loads(sys.argv[1])))))
