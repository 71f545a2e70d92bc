"""Spark's Python daemon, with this library preloaded.

Spark stops Python workers that were idle for a minute and forks new ones from its daemon. Loading
pandas, Arrow, protobuf and this library takes a new worker about a second, more than a whole micro-batch;
forked from a daemon that has them, it starts at once. Set as `spark.python.daemon.module`.
"""

from typing import Any

import pyspark.sql.streaming.proto.StateMessage_pb2
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import streamjoin.spark.ingest
import streamjoin.spark.join_bucket  # noqa: F401 - loaded for the workers, like all above

serve: Any = manager  # untyped in some versions

if __name__ == "__main__":
    serve()
