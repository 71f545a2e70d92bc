"""Watching a Spark query: its batches as they end, and the rows that Spark's own joins hold."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery


def batches(query: StreamingQuery) -> Iterator[Any]:
    """The progress of each batch that had rows, until the query ends; raises what went wrong with it."""
    last = -1
    while True:
        running = query.isActive
        for progress in query.recentProgress:
            if progress.batchId > last and progress.numInputRows > 0:
                last = progress.batchId
                yield progress
        if not running:
            query.awaitTermination()
            return
        time.sleep(0.2)


def rows_of_operators(progress: Any) -> int:
    """What the stateful operators of a query hold, as Spark counts it."""
    return sum(int(operator.numRowsTotal) for operator in progress.stateOperators)
