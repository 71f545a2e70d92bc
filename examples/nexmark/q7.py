"""NEXMark q7: the highest bid of each 10 seconds.

    python examples/nexmark/q7.py

The highest price of each tumbling window is Spark's own aggregate; it is emitted when the watermark has
passed the window's end, and is joined with the bids of its window that have that price. Sliding windows bound
the state: a bid is at most 10 seconds older than the end of its window, so it is stored until later windows
are emitted, and a highest price is not stored at all, since all of its bids have come.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import streamjoin as sj
from streamjoin.demo.spark_sources.registry import register


def query(bid: DataFrame) -> DataFrame:
    starts = F.window("date_time", "10 seconds")
    timed = bid.withWatermark("date_time", "0 seconds")
    highest = timed.groupBy(starts.alias("window")).agg(F.max("price").alias("price"))
    tops = sj.stream(
        highest.where("price is not null").selectExpr(
            "window.start AS starts", "price", "window.end AS ends"
        ),
        name="top",
        key=["starts", "price"],
        time="ends",
        window="1 millisecond",  # no bid of it is newer than its end
        lateness="0 seconds",
    )
    bids = sj.stream(
        bid.where("not is_end").withColumn("starts", starts.start),
        name="bid",
        key=["starts", "price"],
        time="date_time",
        window="10 seconds",
        lateness="0 seconds",
        columns=["auction", "bidder", "date_time", "extra"],
    )
    joined = sj.join(tops, bids, name="q7")
    return joined.dataframe().select("auction", "price", "bidder", "date_time", "extra")


def main() -> None:
    spark = sj.session(log="out/spark.log")
    register(spark)
    nexmark = spark.readStream.format("streamjoin_nexmark").options(seed=7, events=500_000, punctuations=True)
    rows = query(nexmark.option("table", "bid").load())
    rows.writeStream.format("console").trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
