"""NEXMark q9: the winning bid of each auction: the highest in time, of equal ones the earliest.

    python examples/nexmark/q9.py

As in q4, the row of an auction is emitted in the batch in which the bids close it, once. The greatest of
(price, earliest time, bidder) is encoded as one string of fixed width, whose order is the one that `max`
needs, and decoded after the join.
"""

import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import streamjoin as sj
from streamjoin.demo.spark_sources.registry import register

LATEST = 10**16 - 1  # microseconds: in the year 2286


def query(auction: DataFrame, bid: DataFrame) -> DataFrame:
    opened = sj.stream(
        auction.where("not is_end").selectExpr("id", "seller", "category", "date_time AS opens", "expires"),
        name="auction",
        key="id",
        unique=True,
    )
    rank = F.concat(
        F.lpad("price", 12, "0"), F.lpad(LATEST - F.unix_micros("date_time"), 16, "0"), F.col("bidder")
    )
    bids = sj.stream(
        bid.select("auction", "date_time", "is_end", rank.alias("rank")),
        name="bid",
        key="auction",
        punctuation=sj.marked("is_end"),
    )
    at = pc.field("date_time")
    in_time = (at >= pc.field("opens")) & (at <= pc.field("expires"))
    joined = sj.join(opened, bids, name="q9", where=in_time)
    won = joined.group_by("id", "seller", "category").agg(best=("rank", "max")).dataframe()
    return won.select(
        "id",
        "seller",
        "category",
        F.substring("best", 29, 12).cast("long").alias("bidder"),
        F.substring("best", 1, 12).cast("long").alias("price"),
        F.timestamp_micros(LATEST - F.substring("best", 13, 16).cast("long")).alias("date_time"),
    )


def main() -> None:
    spark = sj.session(log="out/spark.log")
    register(spark)
    nexmark = spark.readStream.format("streamjoin_nexmark").options(seed=7, events=200_000, punctuations=True)
    rows = query(nexmark.option("table", "auction").load(), nexmark.option("table", "bid").load())
    rows.writeStream.format("console").trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
