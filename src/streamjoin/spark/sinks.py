"""Sinks of one query: rows, punctuations and violations of a join, each batch computed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from streamjoin.errors import InvalidJoin
from streamjoin.spark.frame import SparkJoin
from streamjoin.spark.outputs import PUNCTUATIONS, VIOLATIONS, Packed

Sink = Callable[[DataFrame, int], None]


def write(
    join: SparkJoin, sinks: Mapping[str, Sink | None], *, checkpoint: str, trigger: Mapping[str, Any] | None
) -> StreamingQuery:
    """Start a query that gives every sink its share of each batch: `f(batch_df, batch_id)`."""
    given = {name: sink for name, sink in sinks.items() if sink is not None}
    if not given:
        raise InvalidJoin("write() has no sink; give rows=, punctuations= or violations=")

    def each(emitted: DataFrame, batch_id: int) -> None:
        emitted.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            for name, sink in given.items():
                sink(_share(join, name, emitted), batch_id)
        finally:
            emitted.unpersist()

    writer = join.emitted(Packed()).writeStream.foreachBatch(each).option("checkpointLocation", checkpoint)
    return writer.trigger(**(trigger or {})).start() if trigger else writer.start()


def _share(join: SparkJoin, name: str, emitted: DataFrame) -> DataFrame:
    if name == "rows":
        return join.rows(emitted)
    return join.elements(emitted, PUNCTUATIONS if name == "punctuations" else VIOLATIONS)
