"""Physical columns of a join as Spark expressions: names by place, normalized keys, times in microseconds."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T


def by_place(frame: DataFrame) -> tuple[DataFrame, dict[str, str]]:
    """The frame with its columns called c0, c1…, and what each is called now.

    So no name of a user needs quoting, equals one of ours, or is looked up without regard to its case.
    """
    placed = [f"c{i}" for i in range(len(frame.columns))]
    return frame.toDF(*placed), dict(zip(frame.columns, placed, strict=True))


def normal(key: Any, dtype: T.DataType) -> Any:
    """One zero for floating keys, so that -0.0 and 0.0 hash alike."""
    if isinstance(dtype, T.DoubleType | T.FloatType):
        return F.when(key == F.lit(0.0), F.lit(0.0).cast(dtype)).otherwise(key)
    return key


def micros(name: str, dtype: T.DataType, *, zoned: bool) -> Any:
    """Event time as microseconds; instants, or wall-clock times where no input has instants."""
    if isinstance(dtype, T.DateType) and not zoned:
        return F.unix_date(F.col(name)).cast("long") * F.lit(86_400_000_000)
    if isinstance(dtype, T.TimestampNTZType) and not zoned:
        return F.expr(f"timestampdiff(MICROSECOND, TIMESTAMP_NTZ'1970-01-01 00:00:00', {name})")
    return F.unix_micros(F.col(name).cast("timestamp"))
