"""The warehouse demo on local Spark: this library's join, then Spark's own stream-static join.

A micro-batch is one file of orders. The new customers come in while our query runs: the sink of the last
batch before the change brings them in and calls `refresh`, so the next batch uses them. Spark's own join
holds on to the table it began with; so it is stopped after that batch and started with the new one.

What our join reads and holds is what it reports (`observedMetrics`). What Spark's own join reads is
`inputBytes` of the stages of each batch. Spark does not count what Parquet's vectored reading gets in threads
of its own, so that is turned off for the customers, and only for them: of the orders only footers count.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from streamjoin.demo.generators.tpch import CUSTOMER_KEY, ORDER_KEY
from streamjoin.demo.warehouse import NAME, VERSION, Seen, Warehouse, Watched
from streamjoin.spark.metrics_log import PREFIX
from streamjoin.spark.session import session


def run_spark(warehouse: Warehouse, cycle_batches: int, tick: Callable[[int], None]) -> Watched:
    """Both queries, one after the other, on one session."""
    log = Path("out/spark.log")  # Spark's own messages would cut the picture to pieces
    spark = session(cores=2, memory="2g", name="warehouse demo", log=log)
    how = "inputBytes of its stages, the table is plain Parquet; it was started anew for the new version"
    watched = Watched(other="Spark's own join", how_counted=how)
    try:
        follow_ours(spark, warehouse, cycle_batches, watched, tick)
        follow_own(spark, warehouse, watched, lambda done: tick(len(warehouse.orders) + done))
    finally:
        spark.stop()
    return watched


def follow_ours(
    spark: SparkSession,
    warehouse: Warehouse,
    cycle_batches: int,
    watched: Watched,
    tick: Callable[[int], None],
) -> None:
    """One query over all orders, until none waits."""
    joined = warehouse.join(_orders(spark, warehouse, "*"), cycle_batches=cycle_batches)
    checkpoint = str(warehouse.folder / "ours")
    queries: list[StreamingQuery] = []

    def sink(frame: DataFrame, batch: int) -> None:
        watched.results.append(frame.toArrow())
        tick(min(batch + 1, len(warehouse.orders)))
        if batch + 1 == warehouse.switch:
            warehouse.bring_in(2)
            joined.refresh(checkpoint=checkpoint)

    def start(frame: DataFrame) -> StreamingQuery:
        queries.append(_start(frame, sink, checkpoint))
        return queries[-1]

    joined.run_until_done(start, checkpoint=checkpoint)
    seen = [_seen(progress) for query in queries for progress in query.recentProgress]
    watched.seen = [one for one in seen if one is not None]


def follow_own(
    spark: SparkSession, warehouse: Warehouse, watched: Watched, tick: Callable[[int], None]
) -> None:
    """Spark's join, a query for each version of the customers."""

    def sink(frame: DataFrame, _: int) -> None:
        watched.other_results.append(frame.toArrow())
        tick(len(watched.other_results))

    for version in (1, 2):
        counted = spark.read.option("parquet.hadoop.vectored.io.enabled", "false")
        customers = counted.parquet(str(warehouse.customers_of(version)))
        orders = _orders(spark, warehouse, str(version))
        joined = orders.join(customers, orders[ORDER_KEY] == customers[CUSTOMER_KEY]).drop(CUSTOMER_KEY)
        told = joined.withColumn(VERSION, F.lit(version).cast("long"))
        query = _start(told, sink, str(warehouse.folder / f"own-{version}"))
        query.awaitTermination()
        watched.other_bytes += input_bytes(spark, query)


def _orders(spark: SparkSession, warehouse: Warehouse, versions: str) -> DataFrame:
    return (
        spark.readStream.schema(from_arrow_schema(warehouse.orders[0].schema))
        .option("maxFilesPerTrigger", 1)
        .parquet(str(warehouse.folder / "orders" / versions))
    )


def _start(frame: DataFrame, sink: Callable[[DataFrame, int], None], checkpoint: str) -> StreamingQuery:
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    return writer.trigger(availableNow=True).start()


def _seen(progress: Any) -> Seen | None:
    """What our join reports of a batch."""
    metrics = progress.observedMetrics.get(f"{PREFIX}{NAME}")
    if metrics is None:
        return None
    found = metrics.asDict()
    return Seen(
        int(found["orders_rows"]),
        int(found["hits"]),
        int(found["bytes_read"]),
        int(found["waiting"]),
        int(found["segment_bytes"]),
        int(found["cache_bytes"]),
        int(found["waiting_bytes"]) + int(found["switching_bytes"]),
    )


def input_bytes(spark: SparkSession, query: StreamingQuery) -> list[int]:
    """Bytes that the stages of each batch of a query read from files, by Spark's own status store."""
    context = spark.sparkContext._jsc.sc()  # noqa: SLF001  # has no other way in from Python
    context.listenerBus().waitUntilEmpty()
    store = context.statusStore()
    jobs = store.jobsList(None)
    found: dict[int, int] = {}
    for job in (jobs.apply(i) for i in range(jobs.size())):
        says = job.description().get() if job.description().isDefined() else ""
        batch = re.search(rf"runId = {query.runId}.*batch = (\d+)", says, re.DOTALL)
        if batch is None:
            continue
        stages = job.stageIds()
        read = sum(store.lastStageAttempt(stages.apply(i)).inputBytes() for i in range(stages.size()))
        found[int(batch[1])] = found.get(int(batch[1]), 0) + int(read)
    return [found[batch] for batch in sorted(found)]
