"""Unpacking: what a join emitted packed, as DataFrames of rows, punctuations and violations.

Plain values only: a sink of a Spark Connect query is sent to the server and unpacks there, where the streams
that the join was declared with are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from streamjoin.join.spec import JoinSpec
from streamjoin.spark.outputs import ROWS, UnpackElements, tags, unpack_rows


@dataclass(frozen=True)
class Unpacking:
    """The output columns of a join in Spark's types; `where`: the condition that only Spark can test."""

    spec: JoinSpec
    output: T.StructType
    where: str | None

    def rows(self, packed: DataFrame) -> DataFrame:
        """The results, in the output columns."""
        blobs = packed.where(F.col("kind") == ROWS).select("blob")
        unpack: Any = unpack_rows
        return self.passing(blobs.mapInArrow(unpack, self.output))

    def elements(self, packed: DataFrame, kinds: Sequence[int] = ()) -> DataFrame:
        """Everything, or some kinds of it, tagged."""
        names = tags(self.spec.emits)
        tagged = T.StructType([*self.output.fields, *(T.StructField(name, T.StringType()) for name in names)])
        chosen = packed.where(F.col("kind").isin(*kinds)) if kinds else packed
        unpack: Any = UnpackElements(self.spec)
        found = chosen.select("kind", "input", "reason", "blob").mapInArrow(unpack, tagged)
        return self.passing(found, others=F.col(names[0]) != "row")

    def passing(self, rows: DataFrame, others: Any = None) -> DataFrame:
        """The rows for which the condition holds, and `others`."""
        if self.where is None:
            return rows
        return rows.where(F.expr(self.where) if others is None else others | F.expr(self.where))
