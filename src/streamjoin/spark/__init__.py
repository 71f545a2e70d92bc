"""The Spark runtime: pack, join by bucket inside Spark's state store, unpack. Holds no join logic."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["DataFrame", "SparkSession", "StreamingQuery"]
