"""NEXMark q13: each bid enriched with a row of a table.

    python examples/nexmark/q13.py

The table is staged once, cached within `memory`, and brought up to date by `refresh` while the query runs.
Spark's own stream-static join reads all of it in every micro-batch. No bid waits, so no state grows. A table
as small as this one fits a broadcast, where Spark's own join is faster.
"""

import tempfile

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import streamjoin as sj
from streamjoin.demo.spark_sources.registry import register


def query(bid: DataFrame, side: DataFrame, checkpoint: str) -> DataFrame:
    """`side` has the columns key and value; `checkpoint` is the one of the query that is started with it."""
    bids = sj.stream(
        bid.where("not is_end").withColumn("side_key", F.col("auction") % 10_000),
        name="bid",
        key="side_key",
        columns=["auction", "bidder", "price", "date_time"],
    )
    table = sj.table(side, name="side", key="key", memory="64 MB")
    joined = sj.enrich(bids, table, name="q13")
    return joined.dataframe(checkpoint=checkpoint).select("auction", "bidder", "price", "date_time", "value")


def main() -> None:
    spark = sj.session(log="out/spark.log")
    register(spark)
    nexmark = spark.readStream.format("streamjoin_nexmark").options(seed=7, events=200_000, punctuations=True)
    side = spark.range(10_000).select(F.col("id").alias("key"), F.concat(F.lit("side "), "id").alias("value"))
    with tempfile.TemporaryDirectory() as checkpoint:
        rows = query(nexmark.option("table", "bid").load(), side, checkpoint)
        writer = rows.writeStream.format("console").option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
