"""The Spark runtime: pack, join by bucket inside Spark's state store, unpack. Holds no join logic."""

from streamjoin.errors import InvalidJoin

try:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
except ModuleNotFoundError as error:
    raise InvalidJoin(
        f'A join on Spark needs pyspark ({error}); pip install "streamjoin[spark]", or run it with local()'
    ) from error

__all__ = ["DataFrame", "SparkSession", "StreamingQuery"]
