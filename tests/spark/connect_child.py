"""What a user writes, the same on classic and on Connect: declare, explain, start, watch, write, enrich.

`python -m tests.spark.connect_child FOLDER [URL]` reads `orders`, `lines` and `customers` in the folder and
prints one JSON line of what it found. Without a URL it makes a classic session.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import streamjoin as sj


class Write:
    """A sink of plain values: on Connect it runs on the server."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __call__(self, batch: Any, number: int) -> None:
        batch.write.mode("overwrite").parquet(f"{self.folder}/{number}")


def main(folder: Path, url: str | None) -> dict[str, Any]:
    spark: Any = (
        sj.session(cores=2, memory="1g") if url is None else SparkSession.builder.remote(url).getOrCreate()
    )
    try:
        return {**joins(spark, folder), **enriches(spark, folder)}
    finally:
        spark.stop()


def joins(spark: Any, folder: Path) -> dict[str, Any]:
    orders_df = read(spark, folder / "orders", "id long, customer long, t timestamp").withWatermark(
        "t", "1 minute"
    )
    lines_df = read(spark, folder / "lines", "order_id long, item string, is_last boolean")
    orders = sj.stream(orders_df, name="orders", key="id", unique=True, columns=["customer"])
    lines = sj.stream(lines_df, name="lines", key="order_id", punctuation=sj.marked("is_last"))
    joined = sj.join(orders, lines, name="shop", where="lower(item) <> 'none'", buckets=2)
    sinks = {name: Write(folder / "out" / name) for name in ("rows", "punctuations", "violations")}
    query = patiently(
        lambda: joined.write(**sinks, checkpoint=str(folder / "write"), trigger={"availableNow": True})
    )
    query.awaitTermination()
    metrics = [sj.progress(progress).get("shop", {}) for progress in query.recentProgress]
    try:
        joined.dataframe().writeStream.outputMode("update")
        refused = ""
    except sj.InvalidJoin as error:
        refused = str(error)
    second = joined.dataframe().writeStream.format("parquet").option("path", str(folder / "direct"))
    second = second.option("checkpointLocation", str(folder / "frame")).trigger(availableNow=True)
    second.start().awaitTermination()
    return {
        "watermark": [orders.time, orders.lateness_us],
        "explained": joined.explain().splitlines()[0],
        "rows": rows(spark, folder / "out" / "rows" / "*"),
        "punctuations": len(rows(spark, folder / "out" / "punctuations" / "*")),
        "direct": rows(spark, folder / "direct"),
        "results": sum(one["results"] for one in metrics),
        "state": metrics[-1]["state_rows"],
        "advice": joined.advice(query.lastProgress.observedMetrics["streamjoin_shop"]),
        "refused": refused,
    }


def enriches(spark: Any, folder: Path) -> dict[str, Any]:
    orders = sj.stream(
        read(spark, folder / "orders", "id long, customer long, t timestamp"), name="o", key="customer"
    )
    found = {}
    for kind, source in (
        ("path", str(folder / "customers")),
        ("frame", spark.read.parquet(str(folder / "customers"))),
    ):
        table = sj.table(source, name="customers", key="id", memory="64 MB", columns=["city"])
        enriched = sj.enrich(orders, table, name=f"with_{kind}", buckets=2)
        sink, checkpoint = Write(folder / "out" / kind), str(folder / f"enrich-{kind}")
        start = partial(enriched.write, rows=sink, checkpoint=checkpoint, trigger={"availableNow": True})
        patiently(start).awaitTermination()
        found[f"enriched_{kind}"] = rows(spark, folder / "out" / kind / "*")
    return found


def patiently(start: Callable[[], Any]) -> Any:
    """Start a query; a Connect server waits ten seconds for a sink's Python, too few on a busy machine."""
    for _ in range(20):
        try:
            return start()
        except PySparkException as error:
            if "connect back" not in str(error):
                raise
    return start()


def read(spark: Any, path: Path, schema: str) -> Any:
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(path))


def rows(spark: Any, path: Path) -> list[list[Any]]:
    columns = [name for name in spark.read.parquet(str(path)).columns if name != "t"]
    return sorted([*row] for row in spark.read.parquet(str(path)).select(columns).collect())


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)))
