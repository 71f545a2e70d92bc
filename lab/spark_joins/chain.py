"""Several streams on one key on Spark: their files, and their join.

This library joins them in one operator. Spark joins two, and their result with the next: a chain of its own
stream-stream joins. A key has `fan_out` rows on every input, all in one batch. Worked number for the state:
with three inputs and a fan-out of 4 a key has 12 rows; the chain stores 4 + 4 for its first join, 16 results
of it and 4 for its second: 28, and 12 / 28 = 0.43.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lab.contenders.protocol import WEIGHTS, Answer, Work
from lab.contenders.spark_contender import SparkQuery
from streamjoin.api.join import join, stream
from streamjoin.plan.bounds import UnboundedState

SEED = 6


@dataclass(frozen=True)
class Chain(SparkQuery):
    """The join of the files `s1/`, `s2/`…, with the columns k and v1, v2…"""

    inputs: int = 3

    def rows(self, spark: SparkSession, checkpoint: str = "") -> DataFrame:
        streams = [
            spark.readStream.schema(f"k long, v{i} long")
            .option("maxFilesPerTrigger", 1)
            .parquet(f"{self.folder}/s{i}")
            for i in range(1, self.inputs + 1)
        ]
        if not self.ours:
            return reduce(lambda left, right: left.join(right, "k"), streams)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnboundedState)
            inputs = [stream(frame, name=f"s{i}", key="k") for i, frame in enumerate(streams, 1)]
            return join(*inputs).dataframe()

    def sums(self) -> tuple[Column, Column]:
        values = [F.col(f"v{i}") for i in range(1, self.inputs + 1)]
        weighted = reduce(lambda a, b: a + b, [v * w for v, w in zip(values, WEIGHTS, strict=False)])
        plain = reduce(lambda a, b: a + b, values)
        return plain, (weighted % 1_000_003) * (F.col("k") % 1_009)


def prepare(folder: Path, inputs: int, fan_out: int, batches: int, rows: int) -> Work:
    """Write the streams, a file per batch, and the sums over their join."""
    random = np.random.default_rng(SEED)
    keys = rows // (inputs * fan_out)
    answer = Answer(0, 0, 0)
    for i in range(1, inputs + 1):
        (folder / f"s{i}").mkdir(parents=True)
    for batch in range(batches):
        key = np.arange(batch * keys, (batch + 1) * keys)
        # the value of row r of a key on input i
        values = [np.array([key * (i + 2) + row for row in range(fan_out)]).T for i in range(inputs)]
        for i, value in enumerate(values, 1):
            order = random.permutation(value.size)
            table = pa.table({"k": np.repeat(key, fan_out)[order], f"v{i}": value.ravel()[order]})
            pq.write_table(table, folder / f"s{i}" / f"{batch:03}.parquet")
        answer += _sums(key, values)
    says = f"{inputs} streams, {fan_out} rows for a key in each"
    return Work("chain", says, folder, {}, batches * keys * inputs * fan_out, answer)


def _sums(key: Any, values: list[Any]) -> Answer:
    """What the contenders' answer must add up to: every combination of a key's rows."""
    plain = weighted = np.zeros((len(key), 1), np.int64)
    for value, weight in zip(values, WEIGHTS, strict=False):
        plain, weighted = (
            (sums[:, :, None] + times * value[:, None, :]).reshape(len(key), -1)
            for sums, times in ((plain, 1), (weighted, weight))
        )
    mixed = (weighted % 1_000_003) * (key % 1_009)[:, None]
    return Answer(plain.size, int(plain.sum()), int(mixed.sum()))
