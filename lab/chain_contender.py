"""One contender of the multi-way measurement: n streams joined on one key, in a process of its own.

This library joins them in one operator. Spark joins two, and their result with the next: a chain of its own
stream-stream joins. Started as `contender` is, with a `ChainTask` as JSON.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lab.contender import Task, followed, observed, start
from streamjoin.api.join import join, stream
from streamjoin.plan.bounds import UnboundedState

MIX = (31, 17, 13, 11, 7)  # a weight for the value of each input


@dataclass(frozen=True)
class ChainTask(Task):
    """The files `s1/`, `s2/`… under `folder`, a file per batch, with the columns k and v1, v2…"""

    inputs: int = 3


def frames(spark: SparkSession, task: ChainTask) -> list[DataFrame]:
    """The streams, one file a micro-batch."""
    return [
        spark.readStream.schema(f"k long, v{i} long")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(Path(task.folder) / f"s{i}"))
        for i in range(1, task.inputs + 1)
    ]


def joined(task: ChainTask, streams: list[DataFrame]) -> DataFrame:
    """The same join by each engine."""
    if task.engine != "streamjoin":
        return reduce(lambda left, right: left.join(right, "k"), streams)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnboundedState)
        inputs = [stream(frame, name=f"s{i}", key="k") for i, frame in enumerate(streams, 1)]
        return join(*inputs).dataframe()


def checked(task: ChainTask, frame: DataFrame) -> DataFrame:
    """The same rows, with sums over them that a batch join must give too."""
    values = [F.col(f"v{i}") for i in range(1, task.inputs + 1)]
    weighted = reduce(lambda a, b: a + b, [v * weight for v, weight in zip(values, MIX, strict=False)])
    plain = reduce(lambda a, b: a + b, values)
    return observed(frame, plain, (weighted % 1_000_003) * (F.col("k") % 1_009))


def run(task: ChainTask) -> dict[str, Any]:
    """Start, run until the files are read, measure."""
    began = time.perf_counter()
    spark = start(task)
    return followed(task, spark, checked(task, joined(task, frames(spark, task))), began)


if __name__ == "__main__":
    print(json.dumps(run(ChainTask(**json.loads(sys.argv[1])))))
