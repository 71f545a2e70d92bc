"""One contender of the TPC-H comparison on Spark, in a Python process and a JVM of its own.

    python -m lab.peers.tpch_contender '{"engine": "streamjoin", "folder": …, "inputs": …}'

This library's form is the example a user copies, `examples/tpch/orders_lines_customers.py`, loaded by its
path. Spark's is its stream-static join of orders with customers, then its stream-stream join with the lines:
no time bounds it, so it holds every row. Both read one file of each stream a micro-batch. Staging the
customers is told apart. Prints one JSON line (`work.Measured`).
"""

from __future__ import annotations

import json
import runpy
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lab.contender import Engine, Task, cpu_seconds, observed, start
from lab.peers.progress import ended, stored
from lab.peers.tpch_work import CHECK
from lab.peers.work import Answer, Measured
from streamjoin.errors import BadInput

EXAMPLE = Path(__file__).parents[2] / "examples" / "tpch" / "orders_lines_customers.py"
_FORMAT = "spark.sql.streaming.join.stateFormatVersion"


@dataclass(frozen=True)
class TpchTask:
    """What one contender does."""

    engine: Engine
    folder: str
    inputs: Mapping[str, Mapping[str, str]]

    def argument(self) -> str:
        return json.dumps(asdict(self))


def rows_of(spark: SparkSession, task: TpchTask, checkpoint: str) -> DataFrame:
    """The same join by each engine."""
    schemas = {
        name: ", ".join(f"{column} {kind}" for column, kind in columns.items())
        for name, columns in task.inputs.items()
    }
    orders, lines = (
        spark.readStream.schema(schemas[name]).option("maxFilesPerTrigger", 1).csv(f"{task.folder}/{name}")
        for name in ("orders", "lines")
    )
    customers = spark.read.schema(schemas["customers"]).csv(f"{task.folder}/customers")
    if task.engine != "streamjoin":
        known = orders.join(customers, F.expr("o_custkey = c_custkey"))
        return known.join(lines.drop("part", "place"), F.expr("o_orderkey = l_orderkey"))
    if not EXAMPLE.exists():
        raise BadInput(f"there is no {EXAMPLE.name} in examples/tpch; run the lab from a clone")
    rows: DataFrame = runpy.run_path(str(EXAMPLE))["query"](orders, lines, customers, checkpoint)
    return rows


def run(task: TpchTask) -> Measured:
    """Run to the end of the files."""
    before = time.perf_counter()
    spark = start(Task(task.engine, task.folder))
    startup_s = time.perf_counter() - before
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
        rows = rows_of(spark, task, checkpoint)
        plain, mixed = (F.expr(each) for each in CHECK.sql())
        writer = observed(rows, plain, mixed).writeStream.format("noop")
        staging_s = time.perf_counter() - before - startup_s
        cpu_before, began, began_at = cpu_seconds(), time.perf_counter(), time.time()
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        wall_s, cpu_s = time.perf_counter() - began, cpu_seconds() - cpu_before
        progress = [json.loads(batch.json) for batch in query.recentProgress]
        detail = _detail(spark, task)
        spark.stop()
    ends = [ended(batch) - began_at for batch in progress]
    answers = [batch["observedMetrics"].get("answer") or {} for batch in progress]
    answer = Answer(*(sum(each.get(name) or 0 for each in answers) for name in ("rows", "sum", "mix")))
    first = next((at for at, each in zip(ends, answers, strict=True) if each.get("rows")), None)
    state = [(at, *_held(task, batch)) for at, batch in zip(ends, progress, strict=True)]
    extra = {
        "staging_s": staging_s,
        "trigger_ms": [batch["durationMs"]["triggerExecution"] for batch in progress],
        "input_rows": [batch["numInputRows"] for batch in progress],
    }
    return Measured(task.engine, detail, startup_s, wall_s, cpu_s, answer, first, state, extra)


def _held(task: TpchTask, batch: Mapping[str, Any]) -> tuple[int, int]:
    """Tuples and bytes of state after a batch, as the engine counts them; ours without a cache."""
    if task.engine == "streamjoin":
        ours = batch["observedMetrics"].get("streamjoin_tpch") or {}
        return int(ours.get("state_rows", 0)), int(ours.get("state_bytes", 0))
    return stored(batch)


def _detail(spark: SparkSession, task: TpchTask) -> str:
    store = "its own heap store" if task.engine == "spark-heap" else "RocksDB, changelog checkpoints"
    if task.engine == "streamjoin":
        return (
            f"on Spark {pyspark.__version__}, {store}, 2 cores; declared as in examples/tpch/{EXAMPLE.name}"
        )
    return f"Spark {pyspark.__version__}, {store}, join state format {spark.conf.get(_FORMAT)}, 2 cores"


if __name__ == "__main__":
    print(json.dumps(asdict(run(TpchTask(**json.loads(sys.argv[1]))))))
