"""Spark's own watermark on a DataFrame: its column and delay become `time=` and `lateness=`.

In the join event time is data, so Spark's watermark has no effect there (no row is dropped by it); but it
declares the same: how late rows may be.
Spark notes the delay in the column's metadata, which follows the column through selections.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

_DELAY_MS = "spark.watermarkDelayMs"


@dataclass(frozen=True, slots=True)
class Watermark:
    """The event-time column of a DataFrame and how late its rows may be."""

    column: str
    delay_us: int


def watermark_of(frame: DataFrame) -> Watermark | None:
    """The watermark of a DataFrame, None where it has none."""
    for field in frame.schema.fields:
        if _DELAY_MS in field.metadata:
            return Watermark(field.name, int(field.metadata[_DELAY_MS]) * 1_000)
    return None
