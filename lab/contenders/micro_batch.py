"""What Spark reports of a micro-batch: its end, its rows, its state, its answer, and this library's metrics.

A batch is a `StreamingQueryProgress` as JSON. `answer` is what a contender observes of its result rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from streamjoin.plan.figures import joins

Batch = Mapping[str, Any]


def ended(batch: Batch) -> float:
    """When a batch was done, in seconds since 1970."""
    began = datetime.fromisoformat(batch["timestamp"]).timestamp()
    return float(began + batch["durationMs"]["triggerExecution"] / 1000)


def stored(batch: Batch) -> tuple[int, int]:
    """Rows and bytes in Spark's state stores: what it calls memory used, with RocksDB's files."""
    operators = batch["stateOperators"]
    files = sum(int(one.get("customMetrics", {}).get("rocksdbSstFileSize", 0)) for one in operators)
    rows, used = (sum(int(one[name]) for one in operators) for name in ("numRowsTotal", "memoryUsedBytes"))
    return rows, files + used


def answered(batch: Batch) -> dict[str, Any]:
    """Rows and sums of the result."""
    return batch.get("observedMetrics", {}).get("answer") or {}


def join_metrics(batch: Batch, join: str | None = None) -> dict[str, Any]:
    """What this library's join reports; without a name the only join."""
    found = joins(batch)
    return found.get(join, {}) if join is not None else next(iter(found.values()), {})


def waiting(batch: Batch) -> bool:
    """Whether a join with a table has rows that wait for a segment to be read."""
    return any(figures.get("waiting") for figures in joins(batch).values())


def file_rows(batch: Batch) -> int:
    """Rows read from files; this library's own ticks are no rows."""
    files = [one for one in batch["sources"] if one["description"].startswith("FileStreamSource")]
    return sum(int(one["numInputRows"]) for one in files)
