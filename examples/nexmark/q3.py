"""NEXMark q3: who sells in Oregon, Idaho or California, in category 10?

    python examples/nexmark/q3.py

A person registers once (`unique`), so an auction that comes after its seller is not stored. Persons of other
states are no results, but they close their id: as marked rows they are punctuations that purge the auctions
waiting for them. Marked rows of the auctions (`is_end`) close a seller, which purges the person.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import streamjoin as sj
from streamjoin.demo.spark_sources.registry import register


def query(person: DataFrame, auction: DataFrame) -> DataFrame:
    elsewhere = person.withColumn("elsewhere", ~F.col("state").isin("or", "id", "ca"))
    sellers = sj.stream(
        elsewhere,
        name="person",
        key="id",
        unique=True,
        punctuation=sj.marked("elsewhere", ignore_data=True),
        columns=["name", "city", "state"],
    )
    auctions = sj.stream(
        auction.where("category = 10 or is_end"),
        name="auction",
        key="seller",
        punctuation=sj.marked("is_end"),
        columns=["id"],
    )
    joined = sj.join(sellers, auctions, name="q3")
    return joined.dataframe().select("name", "city", "state", F.col("auction_id").alias("id"))


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
