"""Scheduled ingest: rows of a control stream as one scheduled punctuation each, hashed as the data is.

Lists are exploded here, before hashing: only the JVM computes the hash that the data has. A null list is
a wildcard, so it is kept as one null; an empty list closes nothing, and neither does a null inside a list.
A range from a value to itself is that value, and has its hash.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from streamjoin.declare.control import Control, KeyForm
from streamjoin.spark.columns import by_place, micros, normal


def scheduled_punctuations(
    control: Control, keys: Sequence[tuple[str, T.DataType, KeyForm]], *, zoned: bool
) -> DataFrame:
    """Columns h, t, k0…, and f, g (the ends) where a key column is closed by ranges."""
    frame, at = by_place(control.source)
    dtype = control.source.schema[control.time].dataType
    columns = [micros(at[control.time], dtype, zoned=zoned).alias("t")]
    lists: dict[str, T.DataType] = {}
    for i, (name, dtype, form) in enumerate(keys):
        if form == "list":
            column = F.col(at[name]).cast(T.ArrayType(dtype))
            present = F.filter(column, lambda value: value.isNotNull())
            columns.append(F.coalesce(present, F.array(F.lit(None).cast(dtype))).alias(f"k{i}"))
            lists[f"k{i}"] = dtype
        elif form == "range":
            low, high = (normal(F.col(at[f"{name}_{end}"]).cast(dtype), dtype) for end in ("from", "to"))
            columns += [F.when(low == high, low).alias(f"k{i}"), low.alias(f"f{i}"), high.alias(f"g{i}")]
        else:
            columns.append(normal(F.col(at[name]).cast(dtype), dtype).alias(f"k{i}"))
    found = frame.select(*columns)
    for name, dtype in lists.items():  # Spark takes one explode at a time
        found = found.withColumn(name, F.explode(name)).withColumn(name, normal(F.col(name), dtype))
    hashed = F.xxhash64(*(F.col(f"k{i}") for i in range(len(keys))))
    return found.select(hashed.alias("h"), "*")
