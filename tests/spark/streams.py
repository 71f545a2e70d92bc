"""Streams of files for tests: each table is one micro-batch."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import streamjoin as sj


def write_batches(folder: Path, tables: list[pa.Table]) -> Path:
    """One file per table; Spark's file source takes them in the order of their time stamps."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, table in enumerate(tables):
        path = folder / f"{i:05}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1_700_000_000 + i, 1_700_000_000 + i))
    return folder


def stream_of(spark: SparkSession, folder: Path, tables: list[pa.Table]) -> DataFrame:
    write_batches(folder, tables)
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


class Collected:
    """What a query gave its sinks."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.punctuations: list[Any] = []
        self.violations: list[Any] = []
        self.progress: list[Any] = []

    def bag(self) -> Counter[tuple[Any, ...]]:
        return Counter(tuple(row) for row in self.rows)


def run(joined: sj.Joined, checkpoint: Path) -> Collected:
    """Run a join until its files are read."""
    found = Collected()
    query = joined.write(
        rows=lambda frame, _: found.rows.extend(frame.collect()),
        punctuations=lambda frame, _: found.punctuations.extend(frame.collect()),
        violations=lambda frame, _: found.violations.extend(frame.collect()),
        checkpoint=str(checkpoint),
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    found.progress = [sj.progress(progress) for progress in query.recentProgress]
    return found
