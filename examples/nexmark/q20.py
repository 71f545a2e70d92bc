"""NEXMark q20: bids with their auction, in category 10.

    python examples/nexmark/q20.py

An auction comes once (`unique`), so a bid that comes after it is not stored. Auctions of other categories are
no results, but they close their id: as marked rows they are punctuations that purge the bids waiting for
them. And when auction a + 101 opens, a has had its last bid: marked rows of the bids (`is_end`) close it,
which purges the auction. The state is the open auctions, and bids that came before their auction.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import streamjoin as sj
from streamjoin.demo.spark_sources.registry import register


def query(auction: DataFrame, bid: DataFrame) -> DataFrame:
    auctions = sj.stream(
        auction.where("not is_end").drop("is_end").withColumn("other", F.col("category") != 10),
        name="auction",
        key="id",
        unique=True,
        punctuation=sj.marked("other", ignore_data=True),
    )
    bids = sj.stream(bid, name="bid", key="auction", punctuation=sj.marked("is_end"))
    return sj.join(bids, auctions, name="q20").dataframe()


def main() -> None:
    spark = sj.session(log="out/spark.log")
    register(spark)
    nexmark = spark.readStream.format("streamjoin_nexmark").options(seed=7, events=200_000, punctuations=True)
    rows = query(nexmark.option("table", "auction").load(), nexmark.option("table", "bid").load())
    rows.writeStream.format("console").trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
