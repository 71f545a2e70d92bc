"""Two streams on Spark, one row of `one` for each key and several of `many`: their files, and their join.

Files `one/` and `many/` under a folder, a file a micro-batch. The same join by this library and by Spark's
own operators: inner, or outer within a time; with long or string keys; with a unique key and punctuations,
which Spark has no use for. Worked number for the answer: every row of `many` finds its one partner, so an
inner join has as many results as `many` has rows.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lab.contenders.protocol import Answer, Work
from lab.contenders.spark_contender import SparkQuery
from streamjoin.api.join import join, stream
from streamjoin.declare.marked import marked
from streamjoin.plan.bounds import UnboundedState

SEED = 11
FAN_OUT = 10
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TwoStreams(SparkQuery):
    """The join of the files `one/` and `many/`."""

    key_type: str = "long"
    value_type: str = "long"
    punctuated: bool = False
    how: str = "inner"
    step_s: float = 0.0  # event time between two batches; 0: rows have no time
    pause_before_last_s: float = 0.0
    memory: str | None = None  # the join's limit
    watched: bool = False
    buckets: int | None = None

    @property
    def watches(self) -> bool:
        return self.watched

    def frames(self, spark: SparkSession) -> tuple[DataFrame, DataFrame]:
        """The two streams, one file a micro-batch."""
        mark = ", is_end boolean" if self.punctuated else ""
        when = ", t timestamp" if self.step_s else ""
        schemas = {
            "one": f"k {self.key_type}, va {self.value_type}{when}",
            "many": f"k {self.key_type}, vb {self.value_type}{when}{mark}",
        }
        one, many = (
            spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(f"{self.folder}/{side}")
            for side, schema in schemas.items()
        )
        return one, many

    def rows(self, spark: SparkSession, checkpoint: str = "") -> DataFrame:
        one, many = self.frames(spark)
        if self.step_s:
            return self._within_a_time(one, many)
        if self.ours:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UnboundedState)
                end = marked("is_end") if self.punctuated else None
                return join(
                    stream(one, name="one", key="k", unique=self.punctuated),
                    stream(many, name="many", key="k", punctuation=end),
                    memory=self.memory,
                    buckets=self.buckets,
                ).dataframe()
        return one.join(many.where("not is_end").drop("is_end") if self.punctuated else many, "k")

    def _within_a_time(self, one: DataFrame, many: DataFrame) -> DataFrame:
        """A row of `many` belongs to a row of `one` at most half a step older; missing values are -1.

        In the data no row of `many` is older than its partner, so its own window can be short.
        """
        span = f"{self.step_s / 2:g} seconds"
        if self.ours:
            timed: dict[str, Any] = {"key": "k", "time": "t", "lateness": "0 seconds"}
            both = join(
                stream(one, name="one", window=span, columns=["va"], **timed),
                stream(many, name="many", window="1 millisecond", columns=["vb"], **timed),
                how=self.how,
            ).dataframe()
        else:
            left = one.withWatermark("t", "0 seconds").alias("a")
            right = many.withWatermark("t", "0 seconds").alias("b")
            within = F.expr(f"a.k = b.k and b.t >= a.t and b.t <= a.t + interval {span}")
            both = left.join(right, within, self.how)
            both = both.select(F.expr("coalesce(a.k, b.k)").alias("k"), "va", "vb")
        return both.where("k >= 0").fillna(-1, ["va", "vb"])

    def sums(self) -> tuple[Column, Column]:
        va, vb = (F.col(c) if self.value_type == "long" else F.length(c).cast("long") for c in ("va", "vb"))
        key = F.col("k") if self.key_type == "long" else F.length("k").cast("long")
        return va + vb, ((va * 31 + vb * 17) % 1_000_003) * (key % 1_009)

    def run_to_end(self, writer: Any) -> list[dict[str, Any]]:
        if not self.pause_before_last_s:
            return super().run_to_end(writer)
        query = _with_pause(writer, Path(self.folder), self.pause_before_last_s)
        return [json.loads(batch.json) for batch in query.recentProgress if batch.numInputRows]


def _with_pause(writer: Any, folder: Path, pause_s: float) -> Any:
    """All files but the last of each stream, then a pause in the same query, then the last."""
    last = [max((folder / side).iterdir()) for side in ("one", "many")]
    hidden = [path.with_name(f"_{path.name}.hidden") for path in last]
    for path, aside in zip(last, hidden, strict=True):
        path.rename(aside)
    query = writer.trigger(processingTime="0 seconds").start()
    query.processAllAvailable()
    time.sleep(pause_s)
    for path, aside in zip(last, hidden, strict=True):
        os.utime(aside)
        aside.rename(path)
    query.processAllAvailable()
    query.stop()
    return query


# Files


def prepare(
    folder: Path,
    batches: int,
    *,
    rows: int,
    strings: bool = False,
    punctuated: bool = False,
    all_keys: bool = False,
) -> Work:
    """Write both streams, a file per batch, and the sums over their inner join.

    Rows of the many side have a key of their own batch, or with `all_keys` of any batch so far.
    """
    random = np.random.default_rng(SEED)
    answer = Answer(0, 0, 0)
    _make_folders(folder)
    keys = rows // (FAN_OUT + 1)
    for i in range(batches):
        one = np.arange(i * keys, (i + 1) * keys)
        many = random.integers(0 if all_keys else i * keys, (i + 1) * keys, keys * FAN_OUT)
        va, vb = one * 2, many * 3
        left, right = _columns(one, va, strings=strings), _columns(many, vb, strings=strings)
        tables = {
            "one": pa.table({"k": left[0], "va": left[1]}),
            "many": pa.table({"k": right[0], "vb": right[1]}),
        }
        if punctuated:
            tables["many"] = _with_ends(tables["many"], pa.array(one - keys if i else one[:0]))
        for side, table in tables.items():
            pq.write_table(table, folder / side / f"{i:03}.parquet")
        if strings:
            answer += _sums(*(np.full(len(many), length) for length in (16, 100, 100)))
        else:
            answer += _sums(many, many * 2, many * 3)
    return _work(folder, batches * rows, answer)


def _make_folders(folder: Path) -> None:
    for side in ("one", "many"):
        (folder / side).mkdir(parents=True)


def _work(folder: Path, rows: int, answer: Answer) -> Work:
    return Work("two streams", "one row of `one` and several of `many` for a key", folder, {}, rows, answer)


def write_batches(folder: Path, batches: Any) -> Work:
    """Batches of tables `one` and `many` (`vb` three times the key, `va` twice) as files, with their sums."""
    answer, rows = Answer(0, 0, 0), 0
    _make_folders(folder)
    for number, batch in enumerate(batches):
        for side, table in batch.items():
            pq.write_table(table, folder / side / f"{number:04}.parquet")
            rows += len(table)
        key = batch["many"]["k"].to_numpy()
        answer += _sums(key, key * 2, key * 3)
    return _work(folder, rows, answer)


def _columns(keys: Any, values: Any, *, strings: bool) -> tuple[pa.Array, pa.Array]:
    if not strings:
        return pa.array(keys), pa.array(values)
    payload = pa.array([f"{value:0100d}" for value in values.tolist()])
    return pa.array([f"key-{key:012d}" for key in keys.tolist()]), payload


def _with_ends(table: pa.Table, keys: pa.Array) -> pa.Table:
    """The rows, then a punctuation for every key of the batch before."""
    rows = table.append_column("is_end", pa.array(np.zeros(len(table), np.bool_)))
    ends = pa.table(
        [keys, pa.nulls(len(keys), pa.int64()), pa.array(np.ones(len(keys), np.bool_))], rows.schema.names
    )
    return pa.concat_tables([rows, ends])


def _sums(key: Ints, va: Ints, vb: Ints) -> Answer:
    """What the contenders' answer must add up to, of joined rows."""
    mixed = ((va * 31 + vb * 17) % 1_000_003) * (key % 1_009)
    return Answer(len(key), int((va + vb).sum()), int(mixed.sum()))


# Files of outer joins

OUTER_STEP_S = 10  # event time between two batches
KEYS_A_BATCH = 50_000
_MATCHED = 0.8  # of the keys of either side


def prepare_outer(folder: Path, batches: int) -> dict[str, Work]:
    """Two streams with times, a fifth of the keys of each without a partner, and the sums of their joins."""
    random = np.random.default_rng(SEED)
    answers = {how: Answer(0, 0, 0) for how in ("left", "full")}
    _make_folders(folder)
    for i in range(batches + 2):
        last = i >= batches  # batches that only move event time on, with keys below 0, which do not count
        keys = np.arange(i * KEYS_A_BATCH, (i + 1) * KEYS_A_BATCH)
        one = np.array([-1 - i]) if last else keys[random.random(len(keys)) < _MATCHED]
        with_partner = keys[: int(len(keys) * _MATCHED)]
        many = np.array([-101 - i]) if last else random.choice(with_partner, KEYS_A_BATCH * FAN_OUT)
        start = (i + (10 if last else 0)) * OUTER_STEP_S * 1_000_000
        when_one = start + np.sort(random.integers(0, 1_000_000, len(one)))
        when_many = start + 1_000_000 + np.sort(random.integers(0, 4_000_000, len(many)))
        _write(folder / "one" / f"{i:03}.parquet", when_one, k=one, va=one * 2)
        _write(folder / "many" / f"{i:03}.parquet", when_many, k=many, vb=many * 3)
        if not last:
            answers = {how: found + _outer_sums(one, many, how) for how, found in answers.items()}
    rows = batches * KEYS_A_BATCH * (FAN_OUT + 1)
    return {how: _work(folder, rows, answer) for how, answer in answers.items()}


def _write(path: Path, when: Ints, **columns: Ints) -> None:
    pq.write_table(pa.table({**columns, "t": pa.array(when, pa.timestamp("us", "UTC"))}), path)


def _outer_sums(one: Ints, many: Ints, how: str) -> Answer:
    """Rows and sums of the outer join; a padded value counts as -1."""
    partner = np.isin(many, one)
    rows = [(many[partner], many[partner] * 2, many[partner] * 3)]
    alone = one[~np.isin(one, many)]
    rows.append((alone, alone * 2, np.full(len(alone), -1)))
    if how == "full":
        orphan = many[~partner]
        rows.append((orphan, np.full(len(orphan), -1), orphan * 3))
    return _sums(*(np.concatenate(part) for part in zip(*rows, strict=True)))
