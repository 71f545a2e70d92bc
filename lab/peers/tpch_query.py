"""The join of the TPC-H comparison on Spark: a contender of `spark_contender`.

This library's form is the example a user copies, `examples/tpch/orders_lines_customers.py`, loaded by its
path. Spark's is its stream-static join of orders with customers, then its stream-stream join with the lines:
no time bounds it, so it stores every row. Both read one file of each stream a micro-batch. The session is not
warmed: the first rows of orders and customers would not meet.
"""

from __future__ import annotations

import runpy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lab.contenders.spark_contender import SparkQuery
from lab.peers.tpch_work import CHECK
from streamjoin.errors import BadInput

EXAMPLE = Path(__file__).parents[2] / "examples" / "tpch" / "orders_lines_customers.py"


@dataclass(frozen=True)
class TpchQuery(SparkQuery):
    """Orders with their customers and their lines."""

    inputs: Mapping[str, Mapping[str, str]]

    def rows(self, spark: SparkSession, checkpoint: str) -> DataFrame:
        schemas = {
            name: ", ".join(f"{column} {kind}" for column, kind in columns.items())
            for name, columns in self.inputs.items()
        }
        orders, lines = (
            spark.readStream.schema(schemas[name])
            .option("maxFilesPerTrigger", 1)
            .csv(f"{self.folder}/{name}")
            for name in ("orders", "lines")
        )
        customers = spark.read.schema(schemas["customers"]).csv(f"{self.folder}/customers")
        if not self.ours:
            known = orders.join(customers, F.expr("o_custkey = c_custkey"))
            return known.join(lines.drop("part", "place"), F.expr("o_orderkey = l_orderkey"))
        if not EXAMPLE.exists():
            raise BadInput(f"there is no {EXAMPLE.name} in examples/tpch; run the lab from a clone")
        rows: DataFrame = runpy.run_path(str(EXAMPLE))["query"](orders, lines, customers, checkpoint)
        return rows

    def sums(self) -> tuple[Column, Column]:
        plain, mixed = (F.expr(each) for each in CHECK.sql())
        return plain, mixed

    @property
    def join_name(self) -> str:
        return "tpch"

    def detail(self, spark: SparkSession) -> str:
        declared = f"; declared as in examples/tpch/{EXAMPLE.name}" if self.ours else ""
        return super().detail(spark) + declared
