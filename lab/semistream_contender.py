"""One contender of the semi-stream measurement: a stream enriched from a Parquet table, in its own process.

Started as `contender` is, with a `EnrichTask` as JSON; prints one JSON line.

- "spark": Spark's stream-static join, `stream.join(spark.read.parquet(table), "k")`. Each micro-batch is
  planned anew. As the batch is far below `autoBroadcastJoinThreshold`, the plan is a BroadcastHashJoin with
  BuildLeft: the hash table is built on the batch, and the whole table is scanned past it.
- "streamjoin": `sj.enrich(sj.stream(…), sj.table(…))`. Staging (sorting the table into segments, once) is
  timed apart and is no part of any batch.

CPU seconds are those of the whole process tree between the end of one batch and the end of a later one.
The latency of a result is counted in batches, from the one that brought its tuple to the one that gave it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lab.contender import WorkerMemory, cpu_seconds, worker_bytes
from streamjoin.api.enrich import enrich, table
from streamjoin.api.join import stream
from streamjoin.spark.session import session

EnrichEngine = Literal["streamjoin", "spark"]
JOIN = "enriched"
GAUGES = (
    *("hits", "keys_found", "segments_read", "bytes_read", "segments_forced", "waiting", "cache_rows"),
    *("segment_bytes", "cache_bytes", "waiting_bytes", "load_us", "join_us", "emit_us", "store_us"),
)


@dataclass(frozen=True)
class EnrichTask:
    """The files `table/` under `folder`, and one of the stream's for each batch in another folder there."""

    engine: EnrichEngine
    folder: str
    batch_rows: int
    memory_bytes: int
    stream: str = "stream"
    cycle_batches: int = 10
    buckets: int = 2

    def argument(self) -> str:
        return json.dumps(asdict(self))


def joined(spark: SparkSession, task: EnrichTask, checkpoint: str) -> DataFrame:
    """The same join by each engine."""
    tuples = (
        spark.readStream.schema("k long, id long, x int")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(Path(task.folder) / task.stream))
    )
    folder = str(Path(task.folder) / "table")
    if task.engine == "spark":
        return tuples.join(spark.read.parquet(folder), "k")
    held = table(folder, name="table", key="k", memory=task.memory_bytes, cycle_batches=task.cycle_batches)
    ours = enrich(stream(tuples, name="stream", key="k"), held, name=JOIN, buckets=task.buckets)
    return ours.dataframe(checkpoint=checkpoint)


def observed(frame: DataFrame, batch_rows: int) -> DataFrame:
    """The same rows, with sums over them that a batch join must give too, and where they come from."""
    mixed = F.col("id") * 31 + F.col("m") * 17 + F.crc32("pad")
    came = F.expr(f"id div {batch_rows}")
    return frame.observe(
        "answer",
        F.count(F.lit(1)).alias("rows"),
        F.sum(F.col("id") + F.col("m") + F.col("x")).alias("sum"),
        F.sum((mixed % 1_000_003) * (F.col("k") % 1_009)).alias("mix"),
        F.sum(came).alias("came"),
        F.min(came).alias("earliest"),
    )


class CpuClock:
    """Notes the CPU seconds of the process tree over time."""

    def __init__(self) -> None:
        self._at: list[float] = [time.time()]
        self._cpu: list[float] = [cpu_seconds()]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            self._note()

    def _note(self) -> None:
        self._at.append(time.time())
        self._cpu.append(cpu_seconds())

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        self._note()

    def at(self, moments: list[float]) -> list[float]:
        """CPU seconds up to some moments, since this clock was made."""
        noted = np.maximum.accumulate(self._cpu)
        return [float(each) for each in np.interp(moments, self._at, noted) - noted[0]]


def run(task: EnrichTask) -> dict[str, Any]:
    """Stage, run until the files are read and nothing waits, measure."""
    spark = session(cores=2, memory="6g")
    idle = worker_bytes(spark)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True, dir=task.folder) as folder:
        checkpoint = str(Path(folder) / "checkpoint")
        began = time.perf_counter()
        frame = observed(joined(spark, task, checkpoint), task.batch_rows)
        staged = time.perf_counter() - began
        clock, memory = CpuClock(), WorkerMemory(idle)
        progress = _until_done(frame, checkpoint)
        clock.stop()
        workers = memory.stop()
        spark.stop()
    ends = [_end(batch) for batch in progress]
    return {
        "staging_s": staged,
        "worker_bytes": workers,
        "input_rows": [_rows(batch) for batch in progress],
        "trigger_ms": [batch["durationMs"]["triggerExecution"] for batch in progress],
        "cpu_s": clock.at(ends),
        "latency": _latency([_answer(batch) for batch in progress]),
        "gauges": [_gauges(batch) for batch in progress],
        "answer": {
            name: sum(_answer(batch).get(name) or 0 for batch in progress) for name in ("rows", "sum", "mix")
        },
    }


def _until_done(frame: DataFrame, checkpoint: str) -> list[dict[str, Any]]:
    """The progress of all batches, until a run has none with a result or a tuple."""
    progress: list[dict[str, Any]] = []
    while True:
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        ran = [json.loads(batch.json) for batch in query.recentProgress]
        progress += ran
        if not _gauges(progress[-1]).get("waiting"):
            return progress


def _rows(batch: dict[str, Any]) -> int:
    """Of the files; this library's own ticks are no rows."""
    files = [one for one in batch["sources"] if one["description"].startswith("FileStreamSource")]
    return sum(int(one["numInputRows"]) for one in files)


def _gauges(batch: dict[str, Any]) -> dict[str, int]:
    told = batch["observedMetrics"].get(f"streamjoin_{JOIN}") or {}
    return {name: told[name] for name in GAUGES if name in told}


def _answer(batch: dict[str, Any]) -> dict[str, Any]:
    return batch["observedMetrics"].get("answer") or {}


def _end(batch: dict[str, Any]) -> float:
    began = datetime.fromisoformat(batch["timestamp"]).timestamp()
    return float(began + batch["durationMs"]["triggerExecution"] / 1000)


def _latency(answers: list[dict[str, Any]]) -> list[dict[str, float]]:
    """For each batch the mean and the greatest age of its results, in batches."""
    return [
        {
            "rows": each["rows"],
            "mean": number - each["came"] / each["rows"],
            "worst": number - each["earliest"],
        }
        if each.get("rows")
        else {"rows": 0, "mean": 0.0, "worst": 0.0}
        for number, each in enumerate(answers)
    ]


if __name__ == "__main__":
    print(json.dumps(run(EnrichTask(**json.loads(sys.argv[1])))))
