"""One query of NEXMark on Spark: a contender of `spark_contender`.

This library's form of a query is the example a user copies, `examples/nexmark/<query>.py`, loaded by its
path; Spark's is in `nexmark_spark`. Both read the files of a work, one of each input a micro-batch, to the
end. Rows of q4, q7 and q9 are few, and are collected batch by batch, to know when each was emitted.
"""

from __future__ import annotations

import runpy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import feather
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lab.contenders.protocol import Answer
from lab.contenders.spark_contender import SparkQuery
from lab.peers import nexmark_spark
from lab.peers.nexmark_work import CHECKS, OVER, WINDOW_MS, delays
from streamjoin.errors import BadInput

_EXAMPLES = Path(__file__).parents[2] / "examples" / "nexmark"
_TIMES = ("date_time", "expires")


@dataclass(frozen=True)
class NexmarkQuery(SparkQuery):
    """One query over the inputs of its work."""

    query: str
    inputs: Mapping[str, Mapping[str, str]]

    def warmed_by(self) -> Iterable[str]:
        return self.inputs

    def tables(self, spark: SparkSession) -> dict[str, DataFrame]:
        """The inputs, one file a micro-batch; the side table whole."""
        found = {}
        for name, columns in self.inputs.items():
            schema = ", ".join(f"{column} {kind}" for column, kind in columns.items())
            path = f"{self.folder}/{name}"
            if name == "side":
                found[name] = spark.read.schema(schema).csv(path)
                continue
            rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).csv(path)
            times = {column: F.timestamp_millis(column) for column in _TIMES if column in columns}
            found[name] = rows.withColumns(times)
        return found

    def rows(self, spark: SparkSession, checkpoint: str) -> DataFrame:
        """By columns as in `CHECKS`."""
        given = self.tables(spark)
        if not self.ours:
            return nexmark_spark.QUERIES[self.query](given)
        example = _EXAMPLES / f"{self.query}.py"
        if not example.exists():
            raise BadInput(f"there is no {example.name} in examples/nexmark; run the lab from a clone")
        inputs = [rows.drop("is_end") if name == "person" else rows for name, rows in given.items()]
        more = [checkpoint] if self.query == "q13" else []
        rows: DataFrame = runpy.run_path(str(example))["query"](*inputs, *more)
        if self.query == "q9":
            rows = rows.withColumn("bid_time", F.unix_millis("date_time"))
        return rows

    def sums(self) -> tuple[Column, Column]:
        plain, mixed = (F.expr(each) for each in CHECKS[self.query].sql())
        return plain, mixed

    def collector(self) -> FinalRows | None:
        return FinalRows(self.query, self.folder) if self.query in OVER else None

    @property
    def join_name(self) -> str:
        return self.query

    def detail(self, spark: SparkSession) -> str:
        example = f"; examples/nexmark/{self.query}.py" if self.ours else ""
        return super().detail(spark) + example


class FinalRows:
    """Rows that are emitted once, when they are final: what they are, and of each key in which batch."""

    def __init__(self, query: str, folder: str) -> None:
        self.query, self.folder, self.rows, self.batch = query, folder, list[pa.Table](), list[int]()

    def take(self, frame: DataFrame, batch: int) -> None:
        rows = frame.toArrow()
        if len(rows):
            self.rows.append(rows)
            self.batch.append(batch)

    def answer(self) -> Answer:
        rows = pa.concat_tables(self.rows)
        if self.query == "q4":
            sums = rows.group_by("category").aggregate([("final", "sum"), ("final", "count")])
            average = sums["final_sum"].to_numpy() // sums["final_count"].to_numpy()
            rows = pa.table({"category": sums["category"], "average": average})
        return CHECKS[self.query].answer(rows)

    def first_batch(self) -> int | None:
        return self.batch[0] if self.batch else None

    def extra(self) -> dict[str, Any]:
        """How much later than its key was over each row was emitted."""
        keys = [self._keys(rows) for rows in self.rows]
        batches = np.repeat(self.batch, [len(each) for each in keys])
        emitted = pa.table({"key": np.concatenate(keys), "batch": batches})
        over = feather.read_table(f"{self.folder}/{self.query}.over.arrow")
        return {"delay": delays(over, emitted)}

    def _keys(self, rows: pa.Table) -> Any:
        if self.query != "q7":
            return rows[OVER[self.query]].to_numpy()
        times = rows["date_time"].cast(pa.timestamp("us")).cast(pa.int64()).to_numpy() // 1_000
        return times // WINDOW_MS * WINDOW_MS
