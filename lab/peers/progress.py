"""What Spark says of a micro-batch, as the contenders of the peers experiment on Spark tell it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any


def ended(batch: Mapping[str, Any]) -> float:
    """When a batch was done, in seconds since 1970."""
    began = datetime.fromisoformat(batch["timestamp"]).timestamp()
    return float(began + batch["durationMs"]["triggerExecution"] / 1000)


def stored(batch: Mapping[str, Any]) -> tuple[int, int]:
    """Rows and bytes in Spark's state stores: what it calls memory used, with RocksDB's files."""
    operators = batch["stateOperators"]
    files = sum(int(one.get("customMetrics", {}).get("rocksdbSstFileSize", 0)) for one in operators)
    rows, used = (sum(int(one[name]) for one in operators) for name in ("numRowsTotal", "memoryUsedBytes"))
    return rows, files + used
