"""The basic works on Spark, by this library or by Spark's own joins: a contender of `spark_contender`.

It reads the CSV files of a work, one file of each input a micro-batch. Bytes of state: of this library its
own gauge, of Spark's stores what it calls memory used, with RocksDB's files.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lab.contenders.protocol import Check, Work
from lab.contenders.spark_contender import Engine, SparkQuery
from lab.peers.works import scan_sql
from streamjoin.api.enrich import enrich, table
from streamjoin.api.join import join, stream
from streamjoin.plan.bounds import UnboundedState

SPAN = "10 seconds"  # of the interval join
TABLE = "master"
_FORMAT = "spark.sql.streaming.join.stateFormatVersion"


@dataclass(frozen=True)
class BasicQuery(SparkQuery):
    """One of `JOBS`, over the inputs of a work."""

    job: str
    inputs: Mapping[str, Mapping[str, str]]
    check: Mapping[str, Any]

    @staticmethod
    def of(work: Work, job: str, engine: Engine, check: Check) -> BasicQuery:
        return BasicQuery(engine, str(work.folder), job, work.inputs, asdict(check))

    def warmed_by(self) -> Iterable[str]:
        return self.inputs

    def rows(self, spark: SparkSession, checkpoint: str) -> DataFrame:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnboundedState)
            return JOBS[self.job](self, frames(spark, self), checkpoint)

    def sums(self) -> tuple[Column, Column]:
        plain, mixed = (F.expr(each) for each in Check(**self.check).sql())
        return plain, mixed

    def detail(self, spark: SparkSession) -> str:
        if self.ours:
            return f"this library on Spark {spark.version}, RocksDB with changelog checkpoints, 2 cores"
        if self.job in {"lookup", "scan"}:
            what = "stream-static join" if self.job == "lookup" else "no join"
            return f"Spark {spark.version}, {what}, 2 cores"
        store = "heap state" if self.engine == "spark-heap" else "RocksDB state with changelog checkpoints"
        version = spark.conf.get(_FORMAT)
        return f"Spark {spark.version}, {store}, join state format {version}, 2 shuffle partitions, 2 cores"


Frames = Mapping[str, DataFrame]


def frames(spark: SparkSession, query: BasicQuery) -> dict[str, DataFrame]:
    """The inputs as streams, one file a micro-batch; master data as a table."""
    found = {}
    for name, columns in query.inputs.items():
        schema = ", ".join(f"`{column}` {kind}" for column, kind in columns.items())
        path = str(Path(query.folder) / name)
        if name == TABLE and query.job == "lookup":
            found[name] = spark.read.schema(schema).csv(path)
        else:
            found[name] = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).csv(path)
    return found


def two_way(query: BasicQuery, given: Frames, _: str) -> DataFrame:
    """A row of `one` with ten of `many`; nothing says when a key is over."""
    if not query.ours:
        return given["one"].join(given["many"], "k")
    one = stream(given["one"], name="one", key="k", unique=True)
    return join(one, stream(given["many"], name="many", key="k")).dataframe()


def interval(query: BasicQuery, given: Frames, _: str) -> DataFrame:
    """A row of `many` belongs to one of `one` that is at most ten seconds older.

    In the data no row of `many` is older than its partner, so its own window can be short.
    """
    timed = {name: frame.withColumn("t", F.timestamp_millis("t")) for name, frame in given.items()}
    if query.ours:
        of: dict[str, Any] = {"key": "k", "time": "t", "lateness": "0 seconds"}
        return join(
            stream(timed["one"], name="one", window=SPAN, columns=["va"], **of),
            stream(timed["many"], name="many", window="1 millisecond", columns=["vb"], **of),
        ).dataframe()
    one = timed["one"].withWatermark("t", "0 seconds").alias("a")
    many = timed["many"].withWatermark("t", "0 seconds").alias("b")
    within = F.expr(f"a.k = b.k and b.t between a.t and a.t + interval {SPAN}")
    return one.join(many, within).select("a.k", "va", "vb")


def three_way(query: BasicQuery, given: Frames, _: str) -> DataFrame:
    """Three streams on one key: one operator here, a chain of two joins in Spark."""
    if not query.ours:
        return reduce(lambda left, right: left.join(right, "k"), given.values())
    return join(*(stream(frame, name=name, key="k") for name, frame in given.items())).dataframe()


def lookup(query: BasicQuery, given: Frames, checkpoint: str) -> DataFrame:
    """A stream with a row of master data each."""
    if not query.ours:
        return given["stream"].join(given[TABLE], "k")
    side = table(given[TABLE], name=TABLE, key="k", memory="64 MB")
    return enrich(stream(given["stream"], name="stream", key="k"), side).dataframe(checkpoint=checkpoint)


def scan(query: BasicQuery, given: Frames, _: str) -> DataFrame:
    """Every column of every input, no join; of marked rows nothing."""
    rows = {
        name: frame.where("NOT is_end") if "is_end" in frame.columns else frame
        for name, frame in given.items()
    }
    numbers = [frame.selectExpr(f"{scan_sql(query.inputs[name])} AS n") for name, frame in rows.items()]
    return reduce(lambda left, right: left.union(right), numbers)


JOBS: Mapping[str, Callable[[BasicQuery, Frames, str], DataFrame]] = {
    "two-way": two_way,
    "interval": interval,
    "three-way": three_way,
    "lookup": lookup,
    "scan": scan,
}
