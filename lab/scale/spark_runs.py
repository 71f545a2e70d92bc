"""The same growth on Spark, whole micro-batches: state, a hot key, and the number of buckets.

All queries are the join of `local` on files, a file a micro-batch, in one session of two cores;
each answer is compared with the batch join's sums. Times are trigger times: all that a micro-batch takes.

A near-empty batch (22 rows) at the end of a query tells what a bucket costs that has nothing to do: the slope
of its time over the number of buckets. Worked number: 0.30 s with 1 bucket and 0.61 s with 32 is 10 ms each.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from lab import contender
from lab.bench.one_session import Ran, Stage, Stages, ran
from lab.contender import Task
from lab.scale.local import Batch
from lab.throughput import Data
from streamjoin.api.join import join, stream
from streamjoin.plan.bounds import UnboundedState
from streamjoin.spark.session import session

_PARTITIONS = "spark.sql.shuffle.partitions"
_INSIDE = ("load_us", "join_us", "emit_us", "store_us")  # of the stateful side, by this library's metrics


@dataclass(frozen=True)
class Seen:
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


def written(folder: Path, batches: Iterable[Batch]) -> Data:
    """Files of both streams, and the sums over their join: each row of `many` finds its one partner."""
    answer = {"rows": 0, "sum": 0, "mix": 0}
    for side in ("one", "many"):
        (folder / side).mkdir(parents=True)
    for number, batch in enumerate(batches):
        for side, table in batch.items():
            pq.write_table(table, folder / side / f"{number:04}.parquet")
        key = batch["many"]["k"].to_numpy()
        mixed = ((key * 2 * 31 + key * 3 * 17) % 1_000_003) * (key % 1_009)
        sums = {"rows": len(key), "sum": int((key * 5).sum()), "mix": int(mixed.sum())}
        answer = {name: answer[name] + sums[name] for name in answer}
    return Data(folder, answer)


def near_empty(count: int) -> list[Batch]:
    """Batches that hardly bring anything: two known keys, and twenty rows of them."""
    keys = np.repeat([0, 1], 10)
    many = pa.table({"k": keys, "vb": keys * 3})
    nothing = many.schema.empty_table().rename_columns(["k", "va"])
    return [{"one": nothing, "many": many}] * count


def follow(spark: SparkSession, data: Data, *, buckets: int, partitions: int) -> Seen:
    """One query over all files."""
    spark.conf.set(_PARTITIONS, partitions)
    task = Task("streamjoin", str(data.folder))
    one, many = contender.frames(spark, task)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnboundedState)
        joined = join(stream(one, name="one", key="k"), stream(many, name="many", key="k"), buckets=buckets)
        frame = contender.checked(joined.dataframe(), task)
    stages = Stages(spark)
    found = ran(frame, data.answer, f"the join with {buckets} buckets")
    return _seen(found, stages.new(), buckets, partitions)


def _seen(found: Ran, stages: Sequence[Stage], buckets: int, partitions: int) -> Seen:
    batches = len(found.batches)
    maps = [one for one in stages if one.shuffle_bytes][-batches:]
    joins = [one for one in stages if not one.shuffle_bytes][-batches:]
    inside = np.sum([found.gauge(name) for name in _INSIDE], axis=0) / 1000
    return Seen(
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


def at_size(seen: Seen, size: int) -> float:
    """The median time of the batch that reaches a size of the state and of its neighbours."""
    there = next(i for i, rows in enumerate(seen.state_rows) if rows >= size)
    return float(median(seen.trigger_ms[there - 1 : there + 2]))


def hottest_task(seen: Seen, counted: int) -> list[float]:
    """By batch: the longest task of the join stage by the median of them."""
    return [max(tasks) / max(median(tasks), 1) for tasks in seen.join_task_ms[-counted:]]
