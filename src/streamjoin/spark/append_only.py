"""Append-only results: a DataFrame that refuses every output mode but append.

A result, once emitted, never changes, so append is the only meaningful mode. Spark would accept `update` for
this join and silently do the same as in append mode.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamjoin.errors import InvalidJoin


class _AppendOnly(DataStreamWriter):
    def outputMode(self, outputMode: str) -> DataStreamWriter:
        if str(outputMode).lower() != "append":
            raise InvalidJoin(
                f"output mode {outputMode!r}: a join's result never changes once it is emitted, "
                "so it is written with outputMode('append') only; aggregate it first, or leave the mode out"
            )
        return super().outputMode(outputMode)


class _Results(ClassicDataFrame):
    @property
    def writeStream(self) -> DataStreamWriter:
        return _AppendOnly(self)


def append_only(frame: Any) -> DataFrame:
    """The same DataFrame; written directly, it refuses other output modes."""
    return _Results(frame._jdf, frame.sparkSession)  # noqa: SLF001
