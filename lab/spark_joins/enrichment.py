"""A stream enriched from a large Parquet table on Spark: their files, and their join.

- "spark-rocksdb": Spark's stream-static join, `stream.join(spark.read.parquet(table), "k")`. Each
  micro-batch is planned anew. As the batch is far below `autoBroadcastJoinThreshold`, the plan is a
  BroadcastHashJoin with BuildLeft: the hash table is built on the batch, and the table is scanned.
- "streamjoin": the stream joined with the staged table. Staging (sorting the table into segments, once) is
  timed apart and is no part of any batch.

The batch join's sums are made while the files are written: of each part of the table the rows whose value is
in the stream are kept, with the checksum of their padding. Worked number: 40 million rows and 2 million
tuples keep about 0.9 million rows. Cost: about 1.5 µs a row of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lab.contenders.protocol import Answer, Measured, Work
from lab.contenders.spark_contender import SparkQuery
from streamjoin.api.enrich import enrich, table
from streamjoin.api.join import stream
from streamjoin.columnar.batch import Ints
from streamjoin.columnar.match import expand
from streamjoin.demo.generators.zipf import ZipfStreams

SEED = 7
_FILE_ROWS = 500_000


@dataclass(frozen=True)
class Enrichment(SparkQuery):
    """The files `table/` under `folder`, and one of the stream's for each batch in another folder there."""

    batch_rows: int
    memory_bytes: int
    stream: str = "stream"
    cycle_batches: int = 10
    buckets: int = 2
    watched: bool = True

    @property
    def watches(self) -> bool:
        return self.watched

    def rows(self, spark: SparkSession, checkpoint: str) -> DataFrame:
        tuples = (
            spark.readStream.schema("k long, id long, x int")
            .option("maxFilesPerTrigger", 1)
            .parquet(f"{self.folder}/{self.stream}")
        )
        path = f"{self.folder}/table"
        if not self.ours:
            return tuples.join(spark.read.parquet(path), "k")
        side = table(path, name="table", key="k", memory=self.memory_bytes, cycle_batches=self.cycle_batches)
        ours = enrich(stream(tuples, name="stream", key="k"), side, name="enriched", buckets=self.buckets)
        return ours.dataframe(checkpoint=checkpoint)

    def sums(self) -> tuple[Column, Column]:
        mixed = F.col("id") * 31 + F.col("m") * 17 + F.crc32("pad")
        return F.col("id") + F.col("m") + F.col("x"), (mixed % 1_000_003) * (F.col("k") % 1_009)

    def observed_too(self) -> Sequence[Column]:
        """In which batch the tuples of the results came."""
        came = F.expr(f"id div {self.batch_rows}")
        return F.sum(came).alias("came"), F.min(came).alias("earliest")


def prepare(
    folder: Path, streams: ZipfStreams, batches: Mapping[str, int], batch_rows: int
) -> dict[str, Work]:
    """Write both sides, the stream in several lengths by folder; rows that have a tuple give the sums."""
    for side in ("table", *batches):
        (folder / side).mkdir(parents=True)
    longest = max(batches.values())
    for i in range(longest):
        for side in (side for side, count in batches.items() if i < count):
            file = folder / side / f"{i:04}.parquet"
            pq.write_table(streams.tuples(i * batch_rows, batch_rows), file)
    tuples = streams.tuples(0, longest * batch_rows)
    used = np.zeros(streams.rows + 1, np.bool_)
    used[tuples["k"].to_numpy()] = True
    kept = []
    for i, first in enumerate(range(0, streams.rows, _FILE_ROWS)):
        rows = streams.table_rows(first, min(_FILE_ROWS, streams.rows - first))
        pq.write_table(rows, folder / "table" / f"{i:04}.parquet", use_dictionary=False)
        kept.append(_with_checksums(rows.filter(pa.array(used[rows["k"].to_numpy()]))))
    rows = pa.concat_tables(kept)
    says = f"{streams.rows:,} rows of a table, Zipf {streams.skew:g}"
    return {
        side: Work(
            side, says, folder, {}, count * batch_rows, sums(tuples.slice(0, count * batch_rows), rows)
        )
        for side, count in batches.items()
    }


def _with_checksums(rows: pa.Table) -> pa.Table:
    check = np.fromiter(map(crc32, rows["pad"].to_pylist()), np.int64, len(rows))
    return pa.table({"k": rows["k"], "m": rows["m"], "check": check})


def sums(tuples: pa.Table, rows: pa.Table) -> Answer:
    """What the contenders' answer must add up to."""
    rows = rows.sort_by("k")
    keys: Ints = rows["k"].to_numpy()
    key = tuples["k"].to_numpy()
    first = np.searchsorted(keys, key, side="left")
    tuple_, row = expand(first, np.searchsorted(keys, key, side="right") - first)
    id_, extra = tuples["id"].to_numpy()[tuple_], tuples["x"].to_numpy().astype(np.int64)[tuple_]
    m, check = rows["m"].to_numpy()[row], rows["check"].to_numpy()[row]
    mixed = ((id_ * 31 + m * 17 + check) % 1_000_003) * (key[tuple_] % 1_009)
    return Answer(len(row), int((id_ + m + extra).sum()), int(mixed.sum()))


# What a run says


def counted(found: Measured) -> slice:
    """The last half of the batches that bring rows."""
    last = max(i for i, rows in enumerate(found.extra["input_rows"]) if rows) + 1
    return slice(last // 2, last)


def cpu(found: Measured) -> float:
    """CPU seconds of those batches, for a million rows."""
    part = counted(found)
    seconds = found.extra["cpu_s"][part.stop - 1] - found.extra["cpu_s"][part.start - 1]
    return float(1e6 * seconds / sum(found.extra["input_rows"][part]))


def latency(found: Measured) -> dict[str, float]:
    """From the batch that brought a tuple to the one that gave its result: mean and worst."""
    part = counted(found)
    ages = [
        (one["rows"], number - one["came"] / one["rows"], number - one["earliest"])
        for number, one in list(enumerate(found.extra["answers"]))[part]
        if one.get("rows")
    ]
    rows = sum(count for count, _, _ in ages)
    mean = sum(count * age for count, age, _ in ages) / max(rows, 1)
    worst = max(age for _, _, age in ages)
    batch_s = sum(found.extra["trigger_ms"][part]) / 1000 / (part.stop - part.start)
    return {
        "mean_batches": mean,
        "worst_batches": worst,
        "mean_s": (mean + 1) * batch_s,
        "worst_s": (worst + 1) * batch_s,
    }


def summary(runs: Sequence[Measured], rate: Any) -> dict[str, Any]:
    """The series of one engine."""
    return {
        "rows_per_s": [rate(one) for one in runs],
        "cpu_s_per_million_rows": [cpu(one) for one in runs],
        "latency": [latency(one) for one in runs],
        **{name: [one.extra[name] for one in runs] for name in ("trigger_ms", "staging_s", "worker_bytes")},
        "gauges": runs[-1].extra["gauges"],
    }
