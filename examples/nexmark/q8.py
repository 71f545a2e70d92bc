"""NEXMark q8: who opened an auction in the 10 seconds in which they registered?

    python examples/nexmark/q8.py

The key is the person and the start of the window. A left semi join emits a person once, at the first of the
auctions, and evicts them: the DISTINCT of the SQL form needs no state of its own. Two rows of one tumbling
window are less than 10 seconds apart, so a sliding window of 10 seconds changes no answer and bounds the
state on both sides.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import streamjoin as sj
from streamjoin.demo.spark_sources.registry import register


def query(person: DataFrame, auction: DataFrame, lateness: str = "0 seconds") -> DataFrame:
    """`lateness`: by how much rows may come out of order."""
    starts = F.window("date_time", "10 seconds").start
    persons = sj.stream(
        person.withColumn("starts", starts),
        name="person",
        key=["id", "starts"],
        time="date_time",
        window="10 seconds",
        lateness=lateness,
        columns=["name"],
    )
    auctions = sj.stream(
        auction.where("not is_end").withColumn("starts", starts),
        name="auction",
        key=["seller", "starts"],
        time="date_time",
        window="10 seconds",
        lateness=lateness,
        columns=[],
    )
    return sj.join(persons, auctions, name="q8", how="left_semi").dataframe().select("id", "name", "starts")


def main() -> None:
    spark = sj.session(log="out/spark.log")
    register(spark)
    nexmark = spark.readStream.format("streamjoin_nexmark").options(seed=7, events=200_000)
    person = nexmark.option("table", "person").load()
    auction = nexmark.options(table="auction", punctuations=True).load()
    rows = query(person, auction)
    rows.writeStream.format("console").trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
