"""The same growth on Spark, whole micro-batches: state, a hot key, and the number of buckets.

All queries are the join of `local` on files, a file a micro-batch, in one session of two cores;
each answer is compared with the batch join's sums. Times are trigger times: all that a micro-batch takes.

A near-empty batch (22 rows) at the end of a query tells what a bucket costs that has nothing to do: the slope
of its time over the number of buckets. Worked number: 0.30 s with 1 bucket and 0.61 s with 32 is 10 ms each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from lab.contenders.one_session import FinishedQuery, Stage, Stages, run_query
from lab.contenders.protocol import Work
from lab.contenders.spark_contender import observed
from lab.scale.local import Batch
from lab.spark_joins.two_streams import TwoStreams
from streamjoin.spark.session import session

_PARTITIONS = "spark.sql.shuffle.partitions"
_INSIDE = ("load_us", "join_us", "emit_us", "store_us")  # of the stateful side, by this library's metrics


@dataclass(frozen=True)
class QueryProfile:
    """One query: by batch what it took; map stages write a shuffle, the others read it and join."""

    buckets: int
    partitions: int
    rows: list[int]
    trigger_ms: list[int]
    add_batch_ms: list[int]
    state_rows: list[int]
    state_bytes: list[int]
    commit_ms: list[int]  # summed over partitions
    inside_ms: list[float]  # of the join itself, summed over buckets
    map_ms: list[int]  # summed over tasks
    join_task_ms: list[list[int]]
    shuffle_bytes: list[int]

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def open_session() -> SparkSession:
    """Two cores, and room for the progress of every batch."""
    conf = {"spark.sql.streaming.numRecentProgressUpdates": "400", "spark.ui.retainedStages": "4000"}
    return session(cores=2, memory="6g", conf=conf, log=Path("out/spark.log"))


def near_empty(count: int) -> list[Batch]:
    """Batches that hardly bring anything: two known keys, and twenty rows of them."""
    keys = np.repeat([0, 1], 10)
    many = pa.table({"k": keys, "vb": keys * 3})
    nothing = many.schema.empty_table().rename_columns(["k", "va"])
    return [{"one": nothing, "many": many}] * count


def follow(spark: SparkSession, work: Work, *, buckets: int, partitions: int) -> QueryProfile:
    """One query over all files."""
    spark.conf.set(_PARTITIONS, partitions)
    query = TwoStreams("streamjoin", str(work.folder), buckets=buckets)
    frame = observed(query.rows(spark), query)
    stages = Stages(spark)
    found = run_query(frame, work.answer, f"the join with {buckets} buckets")
    return _profile(found, stages.new(), buckets, partitions)


def _profile(found: FinishedQuery, stages: Sequence[Stage], buckets: int, partitions: int) -> QueryProfile:
    batches = len(found.batches)
    maps = [one for one in stages if one.shuffle_bytes][-batches:]
    joins = [one for one in stages if not one.shuffle_bytes][-batches:]
    inside = np.sum([found.gauge(name) for name in _INSIDE], axis=0) / 1000
    return QueryProfile(
        buckets,
        partitions,
        found.input_rows,
        found.trigger_ms,
        [int(batch["durationMs"]["addBatch"]) for batch in found.batches],
        found.gauge("state_rows"),
        found.gauge("state_bytes"),
        found.commit_ms(),
        inside.tolist(),
        [sum(one.task_ms) for one in maps],
        [list(one.task_ms) for one in joins],
        [one.shuffle_bytes for one in maps],
    )


def at_size(profile: QueryProfile, size: int) -> float:
    """The median time of the batch that reaches a size of the state and of its neighbours."""
    there = next(i for i, rows in enumerate(profile.state_rows) if rows >= size)
    return float(median(profile.trigger_ms[there - 1 : there + 2]))


def hottest_task(profile: QueryProfile, counted: int) -> list[float]:
    """By batch: the longest task of the join stage by the median of them."""
    return [max(tasks) / max(median(tasks), 1) for tasks in profile.join_task_ms[-counted:]]
