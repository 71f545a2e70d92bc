"""The seeded generators and the XML Convert operator as Spark sources, in batch and streaming.

    register(spark)
    access = (spark.readStream.format("streamjoin_news")
        .options(stream="access", seed=7, items_per_batch=500).load())
    bids = (spark.readStream.format("streamjoin_nexmark")
        .options(table="bid", seed=7, rate=20_000, live=True, punctuations=True).load())
    access = (spark.readStream.format("streamjoin_xml")
        .options(path="access.xml", record="record", columns="sno long, ipaddr string", key="sno").load())

Their options stand at the top of `news_source.py`, `nexmark_source.py` and `xml_source.py`. All plan on the
driver and read in a task, so that a micro-batch is a pair of offsets and can be read again: a query that is
restarted on its checkpoint goes on where it was, without loss or repetition. An option that is unknown,
missing or wrong is `InvalidJoin`; Spark shows it inside an error of its own, at `load` or when the query
starts.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from streamjoin.demo.spark_sources.news import NewsSource
from streamjoin.demo.spark_sources.nexmark import NexmarkSource
from streamjoin.spark.sources.xml import XmlSource

__all__ = ["NewsSource", "NexmarkSource", "XmlSource", "register"]


def register(spark: SparkSession) -> None:
    """Make `streamjoin_news`, `streamjoin_nexmark` and `streamjoin_xml` known; again does no harm."""
    for source in (NewsSource, NexmarkSource, XmlSource):
        spark.dataSource.register(source)
