"""The auction demo on local Spark: PWJoin, then the window join, over the same files.

A micro-batch is one file of each stream, so both move through event time in step. What is held comes
from the metrics that every join reports of itself, through `MetricsLog`.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from streamjoin.demo.auction import INPUTS, Watched, both_joins, watched_join
from streamjoin.demo.generators.auction import BID_SCHEMA, OPEN_SCHEMA, AuctionStreams
from streamjoin.errors import InvariantBroken
from streamjoin.spark.metrics_log import MetricsLog, read_log
from streamjoin.spark.session import session

_METRICS_S = 20  # how long the last metrics may take to arrive


def run_spark(
    streams: AuctionStreams, batch_hours: float, tick: Callable[[int], None]
) -> tuple[Watched, Watched]:
    """Both joins, one after the other, on one session."""
    log = Path("out/spark.log")  # Spark's own messages would cut the picture to pieces
    spark = session(cores=2, memory="2g", name="auction demo", log=log)
    joins = both_joins()
    try:
        with tempfile.TemporaryDirectory() as folder:
            batches = write_files(streams.batches(batch_hours), Path(folder))
            for watched, before in zip(joins, (0, batches), strict=True):
                watch(spark, watched, streams, Path(folder), _further(tick, before))
    finally:
        spark.stop()
    return joins


def _further(tick: Callable[[int], None], before: int) -> Callable[[int], None]:
    return lambda done: tick(before + done)


def write_files(batches: Iterable[Mapping[str, pa.Table]], folder: Path) -> int:
    """One file for each stream and batch; Spark's file source takes them by their time stamps."""
    count = 0
    for piece in batches:
        for name, table in piece.items():
            path = folder / name / f"{count:06}.parquet"
            path.parent.mkdir(exist_ok=True)
            pq.write_table(table, path)
            os.utime(path, (1_000_000_000 + count, 1_000_000_000 + count))
        count += 1
    return count


def watch(
    spark: SparkSession,
    watched: Watched,
    streams: AuctionStreams,
    folder: Path,
    tick: Callable[[int], None],
) -> None:
    """Run one join over the files to their end."""
    opened, bids = (
        spark.readStream.schema(from_arrow_schema(schema))
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / name))
        for name, schema in zip(INPUTS, (OPEN_SCHEMA, BID_SCHEMA), strict=True)
    )
    log = MetricsLog(folder / f"{watched.operator}.jsonl")
    spark.streams.addListener(log)
    try:
        elements = watched_join(watched, streams.window_us, opened, bids).elements()
        writer = elements.writeStream.foreachBatch(_collect(watched))
        checkpoint = str(folder / f"checkpoint-{watched.operator}")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        while not query.awaitTermination(1):  # raises what went wrong
            tick(len(watched.results))
        tick(len(watched.results))
        _read_metrics(watched, log.path)
    finally:
        spark.streams.removeListener(log)


def _collect(watched: Watched) -> Callable[[DataFrame, int], None]:
    """A sink that keeps result rows and announcements of every batch."""

    def each(frame: DataFrame, _: int) -> None:
        found: pa.Table = frame.toArrow()
        rows = found.filter(pc.equal(found["_kind"], "row"))
        watched.results.append(rows.select([name for name in rows.column_names if not name.startswith("_")]))
        over = found.filter(pc.equal(found["_kind"], "punctuation"))
        watched.propagated.append(over["item_id"].to_pylist())

    return each


def _read_metrics(watched: Watched, log: Path) -> None:
    """What each input holds after every batch: all that was stored, less all that has left."""
    end = time.monotonic() + _METRICS_S
    while not log.exists() or log.read_text().count("\n") < len(watched.results):
        if time.monotonic() > end:
            raise InvariantBroken(
                f"Spark gave the metrics of fewer than {len(watched.results)} batches; run the demo again"
            )
        time.sleep(0.1)
    lines = read_log(log)
    watched.closed_keys = [line["closed_keys"] for line in lines]
    watched.groups = [line["groups"] for line in lines]
    for name in INPUTS:
        changes = [
            line[f"{name}_stored"] - line[f"{name}_purged"] - line[f"{name}_invalidated"] for line in lines
        ]
        watched.held[name] = list(accumulate(changes))
