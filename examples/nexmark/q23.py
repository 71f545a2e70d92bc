"""NEXMark q23: bids, with the person who bids and the auctions that this person sells.

    python examples/nexmark/q23.py

Three streams with one common key are one operator: it stores the tuples of its inputs and no intermediate
results. A person comes once (`unique`), marked rows of the auctions (`is_end`) close a seller, and a control
stream closes bidders by ranges: nobody bids any more when the 1000th person after them has come.
"""

from pyspark.sql import DataFrame

import streamjoin as sj
from streamjoin.demo.spark_sources.registry import register


def query(person: DataFrame, auction: DataFrame, bid: DataFrame) -> DataFrame:
    persons = sj.stream(person, name="person", key="id", unique=True, columns=["name", "city", "state"])
    auctions = sj.stream(
        auction,
        name="auction",
        key="seller",
        punctuation=sj.marked("is_end"),
        columns=["id", "item_name", "category"],
    )
    over = person.where("id % 100 = 0").selectExpr(
        "CAST(NULL AS BIGINT) AS bidder_from", "id - 1000 AS bidder_to", "date_time AS over"
    )
    bids = sj.stream(
        bid.where("not is_end"),
        name="bid",
        key="bidder",
        time="date_time",
        lateness="0 seconds",
        punctuation=sj.control(over, time="over"),
        columns=["auction", "price", "channel", "date_time"],
    )
    return sj.join(persons, auctions, bids, name="q23").dataframe()


def main() -> None:
    spark = sj.session(log="out/spark.log")
    register(spark)
    nexmark = spark.readStream.format("streamjoin_nexmark").options(seed=7, events=200_000)
    person = nexmark.option("table", "person").load()
    auction = nexmark.options(table="auction", punctuations=True).load()
    rows = query(person, auction, nexmark.options(table="bid", punctuations=True).load())
    rows.writeStream.format("console").trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
