"""Physical columns of a join as Spark expressions: quoted names, normalized keys, times in microseconds."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F
from pyspark.sql import types as T


def quoted(name: str) -> str:
    """A column's name as Spark's expressions need it."""
    return "`" + name.replace("`", "``") + "`"


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
