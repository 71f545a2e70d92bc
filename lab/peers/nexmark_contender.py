"""One contender of a NEXMark query on Spark, in a Python process and a JVM of its own.

    python -m lab.peers.nexmark_contender '{"engine": "streamjoin", "query": "q20", "folder": …}'

This library's form of a query is the example a user copies, `examples/nexmark/<query>.py`, loaded by its
path; Spark's is in `nexmark_spark`. Both read the files of a work, one of each input a micro-batch, to the
end, after the same query on a few rows has warmed the session. What is measured is printed as one JSON line
(`work.Measured`). Rows go to Spark's no-op sink, counted and summed on the way; those of q4, q7 and q9 are
few, and are collected batch by batch, so that it is known when each left.
"""

from __future__ import annotations

import json
import runpy
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyspark
from pyarrow import feather
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lab.contender import Engine, Task, cpu_seconds, observed, start
from lab.peers import nexmark_spark
from lab.peers.nexmark_work import CHECKS, OVER, WINDOW_MS, delays
from lab.peers.progress import ended, stored
from lab.peers.warming import first_rows
from lab.peers.work import Answer, Measured
from streamjoin.errors import BadInput

_EXAMPLES = Path(__file__).parents[2] / "examples" / "nexmark"
_TIMES = ("date_time", "expires")
_FORMAT = "spark.sql.streaming.join.stateFormatVersion"


@dataclass(frozen=True)
class NexmarkTask:
    """What one contender does."""

    engine: Engine
    query: str
    folder: str
    inputs: Mapping[str, Mapping[str, str]]

    def argument(self) -> str:
        return json.dumps(asdict(self))


def tables(spark: SparkSession, task: NexmarkTask) -> dict[str, DataFrame]:
    """The inputs of a query, one file a micro-batch; the side table whole."""
    found = {}
    for name, columns in task.inputs.items():
        schema = ", ".join(f"{column} {kind}" for column, kind in columns.items())
        path = f"{task.folder}/{name}"
        if name == "side":
            found[name] = spark.read.schema(schema).csv(path)
            continue
        rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).csv(path)
        times = {column: F.timestamp_millis(column) for column in _TIMES if column in columns}
        found[name] = rows.withColumns(times)
    return found


def rows_of(task: NexmarkTask, given: Mapping[str, DataFrame], checkpoint: str) -> DataFrame:
    """The rows of a query, by columns as in `CHECKS`."""
    if task.engine != "streamjoin":
        return nexmark_spark.QUERIES[task.query](given)
    example = _EXAMPLES / f"{task.query}.py"
    if not example.exists():
        raise BadInput(f"there is no {example.name} in examples/nexmark; run the lab from a clone")
    inputs = [rows.drop("is_end") if name == "person" else rows for name, rows in given.items()]
    more = [checkpoint] if task.query == "q13" else []
    rows: DataFrame = runpy.run_path(str(example))["query"](*inputs, *more)
    if task.query == "q9":
        rows = rows.withColumn("bid_time", F.unix_millis("date_time"))
    return rows


class Left:
    """Rows that leave batch by batch, collected: what they are, and of each key in which batch."""

    def __init__(self, query: str) -> None:
        self.query, self.rows, self.batch = query, list[pa.Table](), list[int]()

    def take(self, frame: DataFrame, batch: int) -> None:
        rows = frame.toArrow()
        if len(rows):
            self.rows.append(rows)
            self.batch.append(batch)

    def answer(self) -> Answer:
        rows = pa.concat_tables(self.rows)
        if self.query == "q4":
            sums = rows.group_by("category").aggregate([("final", "sum"), ("final", "count")])
            average = sums["final_sum"].to_numpy() // sums["final_count"].to_numpy()
            rows = pa.table({"category": sums["category"], "average": average})
        return CHECKS[self.query].answer(rows)

    def delays(self, folder: str) -> dict[str, Any]:
        keys = [self._keys(rows) for rows in self.rows]
        batches = np.repeat(self.batch, [len(each) for each in keys])
        left = pa.table({"key": np.concatenate(keys), "batch": batches})
        return delays(feather.read_table(f"{folder}/{self.query}.over.arrow"), left)

    def _keys(self, rows: pa.Table) -> Any:
        if self.query != "q7":
            return rows[OVER[self.query]].to_numpy()
        times = rows["date_time"].cast(pa.timestamp("us")).cast(pa.int64()).to_numpy() // 1_000
        return times // WINDOW_MS * WINDOW_MS


def run(task: NexmarkTask) -> Measured:
    """In a session of its own."""
    before = time.perf_counter()
    spark = start(Task(task.engine, task.folder))
    try:
        with first_rows(task.folder, task.inputs) as short, _checkpoint() as checkpoint:
            few = replace(task, folder=short)
            rows = rows_of(few, tables(spark, few), checkpoint)
            _finished(rows.writeStream.format("noop"), checkpoint)
        return measured(spark, task, before)
    finally:
        spark.stop()


def measured(spark: SparkSession, task: NexmarkTask, before: float) -> Measured:
    """Run to the end of the files; start-up counts from `before`."""
    left = Left(task.query) if task.query in OVER else None
    with _checkpoint() as checkpoint:
        rows = rows_of(task, tables(spark, task), checkpoint)
        if left is None:
            plain, mixed = (F.expr(each) for each in CHECKS[task.query].sql())
            writer = observed(rows, plain, mixed).writeStream.format("noop")
        else:
            writer = rows.writeStream.foreachBatch(left.take)
        startup_s, cpu_before = time.perf_counter() - before, cpu_seconds()
        began, began_at = time.perf_counter(), time.time()
        query = _finished(writer, checkpoint)
        wall_s = time.perf_counter() - began
        cpu_s = cpu_seconds() - cpu_before
        progress = [json.loads(batch.json) for batch in query.recentProgress]
    ends = [ended(batch) - began_at for batch in progress]
    if left is None:
        answers = [batch.get("observedMetrics", {}).get("answer") or {} for batch in progress]
        answer = Answer(*(sum(each.get(name) or 0 for each in answers) for name in ("rows", "sum", "mix")))
        first = next((at for at, each in zip(ends, answers, strict=True) if each.get("rows")), None)
        extra: dict[str, Any] = {}
    else:
        answer, extra = left.answer(), {"delay": left.delays(task.folder)}
        first = ends[left.batch[0]] if left.batch else None
    state = [(at, *_held(task, batch)) for at, batch in zip(ends, progress, strict=True)]
    extra |= {
        "trigger_ms": [batch["durationMs"]["triggerExecution"] for batch in progress],
        "input_rows": [batch["numInputRows"] for batch in progress],
    }
    return Measured(task.engine, _detail(spark, task), startup_s, wall_s, cpu_s, answer, first, state, extra)


def _checkpoint() -> Any:
    return tempfile.TemporaryDirectory(ignore_cleanup_errors=True)


def _finished(writer: Any, checkpoint: str) -> Any:
    """A query that has read its files to the end."""
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def _held(task: NexmarkTask, batch: Mapping[str, Any]) -> tuple[int, int]:
    """Rows and bytes of state after a batch, as the engine counts them; for this library of its join."""
    ours = batch.get("observedMetrics", {}).get(f"streamjoin_{task.query}") or {}
    if task.engine == "streamjoin" and "state_rows" in ours:
        return int(ours["state_rows"]), int(ours["state_bytes"])
    if task.engine == "streamjoin":
        return 0, 0
    return stored(batch)


def _detail(spark: SparkSession, task: NexmarkTask) -> str:
    store = "its own heap store" if task.engine == "spark-heap" else "RocksDB, changelog checkpoints"
    if task.engine == "streamjoin":
        return f"on Spark {pyspark.__version__}, {store}, 2 cores; examples/nexmark/{task.query}.py"
    return f"Spark {pyspark.__version__}, {store}, join state format {spark.conf.get(_FORMAT)}, 2 cores"


if __name__ == "__main__":
    print(json.dumps(asdict(run(NexmarkTask(**json.loads(sys.argv[1]))))))
