"""NEXMark q4: the average price for which auctions were sold, by category.

    python examples/nexmark/q4.py

The price of an auction is its highest bid between its opening and `expires`. Marked rows of the bids
(`is_end`) close an auction: in that batch its final price is emitted, once, and its state is purged.
`expires` alone does not close it: a bid may come after it, so it does not imply that all bids before it have
come. The average over final prices is an ordinary aggregate: each price is added once and never retracted.
"""

from collections import Counter

import pyarrow.compute as pc
from pyspark.sql import DataFrame

import streamjoin as sj
from streamjoin.demo.spark_sources.registry import register


def query(auction: DataFrame, bid: DataFrame) -> DataFrame:
    """The final price of each auction that had a bid in time: id, category, final."""
    opened = sj.stream(
        auction.where("not is_end").selectExpr("id", "category", "date_time AS opens", "expires"),
        name="auction",
        key="id",
        unique=True,
    )
    bids = sj.stream(
        bid, name="bid", key="auction", punctuation=sj.marked("is_end"), columns=["price", "date_time"]
    )
    at = pc.field("date_time")
    in_time = (at >= pc.field("opens")) & (at <= pc.field("expires"))
    joined = sj.join(opened, bids, name="q4", where=in_time)
    return joined.group_by("id", "category").agg(final=("price", "max")).dataframe()


def main() -> None:
    spark = sj.session(log="out/spark.log")
    register(spark)
    nexmark = spark.readStream.format("streamjoin_nexmark").options(seed=7, events=200_000, punctuations=True)
    total, sold = Counter[int](), Counter[int]()

    def add(prices: DataFrame, batch: int) -> None:
        for category, price, count in (
            prices.groupBy("category").agg({"final": "sum", "*": "count"}).collect()
        ):
            total[category] += price
            sold[category] += count
        print(batch, {category: round(total[category] / sold[category], 2) for category in sorted(sold)})

    prices = query(nexmark.option("table", "auction").load(), nexmark.option("table", "bid").load())
    prices.writeStream.foreachBatch(add).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
