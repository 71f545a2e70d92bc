"""Joins without one common key in one Spark query: the batch answer, over several batches and a restart."""

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import streamjoin as sj
from tests.spark.streams import Collected, run, stream_of

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::streamjoin.UnboundedState")]

BATCHES = 4
COLUMNS = {"a": ["x", "p"], "b": ["x", "y"], "c": ["y", "r"]}
AB_FIRST = {"a": 1, "b": 1, "c": sj.Rate(9, rows_per_key=9)}
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
VALID = "greatest(ta, tb, tc) <= least(ta + interval 8 seconds, tb + interval 12 seconds)"


def tables(name: str, seed: int) -> list[pa.Table]:
    """Batch i has times around 10 i seconds; a row may be 5 s older than one before it."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(BATCHES):
        seconds = 10 * i + rng.integers(0, 5, 40) + np.sort(rng.integers(0, 5, 40))
        times = [START + dt.timedelta(seconds=int(second)) for second in seconds]
        data = {column: rng.integers(0, 12, 40) for column in COLUMNS[name]}
        found.append(pa.table({**data, f"t{name}": pa.array(times, pa.timestamp("us", "UTC"))}))
    return found


def frames(spark: SparkSession, folder: Path, batches: slice = slice(None)) -> dict[str, DataFrame]:
    return {
        name: stream_of(spark, folder / name, tables(name, seed)[batches])
        for seed, name in enumerate(COLUMNS)
    }


def chain(given: dict[str, DataFrame], how: str = "inner") -> sj.Joined:
    windows = {"a": "8 seconds", "b": "12 seconds", "c": None}
    a, b, c = (
        sj.stream(
            frame,
            name=name,
            key=COLUMNS[name][0],
            time=f"t{name}",
            window=windows[name],
            lateness="10 seconds",
        )
        for name, frame in given.items()
    )
    return sj.join(a, b, c, on="a.x = b.x and b.y = c.y", name="abc", how=how, buckets=2, rates=AB_FIRST)


def batch_answer(spark: SparkSession, folder: Path) -> Counter[tuple[Any, ...]]:
    a, b, c = (spark.read.parquet(str(folder / name)) for name in COLUMNS)
    joined = a.join(b, "x").join(c, "y").where(VALID)
    return Counter(map(tuple, joined.select("x", "p", "ta", "y", "tb", "r", "tc").collect()))


def metrics(found: Collected, name: str) -> list[dict[str, int]]:
    return [each[name] for each in found.progress if each]


@pytest.mark.systems
def test_a_chain_with_windows_over_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    first = run(chain(frames(spark, tmp_path, slice(2))), tmp_path / "checkpoint")
    second = run(chain(frames(spark, tmp_path)), tmp_path / "checkpoint")
    answer = batch_answer(spark, tmp_path)
    assert first.bag() + second.bag() == answer
    assert len(answer) > 300
    assert first.violations == second.violations == []
    lower, upper = metrics(second, "abc_1"), metrics(second, "abc")
    assert len(lower) == len(upper) == BATCHES - 2
    assert all(each["abc_1_late"] == 0 for each in upper)
    # results and rows below leave by their windows: of four batches about two are held
    assert sum(each["abc_1_invalidated"] for each in upper) > 100
    assert lower[-1]["state_rows"] < 2 * 40 * 4


@pytest.mark.systems
def test_a_left_join_with_windows_over_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    first = run(chain(frames(spark, tmp_path, slice(2)), "left"), tmp_path / "checkpoint")
    second = run(chain(frames(spark, tmp_path), "left"), tmp_path / "checkpoint")
    found = first.bag() + second.bag()
    complete = batch_answer(spark, tmp_path)
    assert Counter({row: n for row, n in found.items() if row[3] is not None}) == complete
    kept = Counter(map(tuple, spark.read.parquet(str(tmp_path / "a")).select("x", "p", "ta").collect()))
    matched = {row[:3] for row in complete}
    alone = Counter({row: n for row, n in kept.items() if row not in matched})
    padded = Counter({row[:3]: n for row, n in found.items() if row[3] is None})
    assert padded <= alone
    # the others end at 40 s less a lateness of 10 s: what is 8 s older at least has left
    past = START + dt.timedelta(seconds=15)
    assert {row for row in alone if row[2].replace(tzinfo=dt.UTC) < past} <= padded.keys()
    assert first.violations == second.violations == []


def test_a_left_join_of_batch_dataframes(spark: SparkSession) -> None:
    a = spark.createDataFrame([(1, 10), (2, 20), (3, 30), (None, 40)], "x int, p int")
    b = spark.createDataFrame([(1, 7), (2, 8), (1, 9)], "x int, y int")
    c = spark.createDataFrame([(7, 70), (7, 71)], "y bigint, r int")
    given = zip((a, b, c), "abc", "xxy", strict=True)
    streams = [sj.stream(frame, name=name, key=key) for frame, name, key in given]
    joined = sj.join(*streams, on="a.x = b.x and b.y = c.y", how="left", buckets=2)
    expected = a.join(b.join(c, "y"), "x", "left")
    assert joined.plan.steps[1] == "join: a ⟕ join_1 on a.x = b.x"
    answer = Counter(map(tuple, expected.select("x", "p", "y", "r").collect()))
    assert Counter(map(tuple, joined.dataframe().collect())) == answer
    assert answer.total() == 5


def test_a_star_of_batch_dataframes(spark: SparkSession) -> None:
    rng = np.random.default_rng(7)
    fact = spark.createDataFrame(
        [(*tuple(map(int, rng.integers(0, 6, 3))), n) for n in range(60)], "x int, y int, z int, n int"
    )
    sides = {
        name: spark.createDataFrame([(int(k), f"{name}{k}") for k in rng.integers(0, 6, 8)], schema)
        for name, schema in {
            "a": "x int, u string",
            "b": "y bigint, v string",
            "c": "z int, w string",
        }.items()
    }
    keyed = {"a": "x", "b": "y", "c": "z"}
    streams = [sj.stream(frame, name=name, key=keyed[name]) for name, frame in sides.items()]
    joined = sj.join(
        sj.stream(fact, name="f", key="n"), *streams, on=["f.x = a.x", "f.y = b.y", "c.z = f.z"], buckets=2
    )
    expected = fact.join(sides["a"], "x").join(sides["b"], "y").join(sides["c"], "z")
    found = joined.dataframe()
    assert found.columns == ["x", "y", "z", "n", "u", "v", "w"]
    assert dict(found.dtypes)["y"] == "bigint"
    answer = Counter(map(tuple, expected.select(*found.columns).collect()))
    assert Counter(map(tuple, found.collect())) == answer
    assert len(answer) > 20
    kinds = Counter(row._kind for row in joined.elements().select("_kind").collect())
    assert kinds == {"row": answer.total()}


def test_punctuations_column_by_column(spark: SparkSession, tmp_path: Path) -> None:
    """Of b, <1, *> closes x = 1 in the first operator; <*, 7> goes on to the second, which joins y, once no
    bucket of the first holds a row of it.
    """
    b = pa.schema({"x": pa.int64(), "y": pa.int64(), "over": pa.bool_()})
    rows = [(1, 7, False), (2, 8, False), (3, 7, False), (None, 7, True), (None, 8, True)]
    ends = [(1, None, True), (2, None, True), (3, None, True)]
    given = {
        "a": [pa.table({"x": [1, 2], "p": [10, 20]}), pa.table({"x": [3], "p": [30]})],
        "b": [
            pa.Table.from_pylist([dict(zip(b.names, row, strict=True)) for row in each], schema=b)
            for each in (rows, ends)
        ],
        "c": [pa.table({"y": [7, 8], "r": [70, 80]}), pa.table({"y": [7, 8], "r": [70, 80]}).slice(0, 0)],
    }
    frames_ = {name: stream_of(spark, tmp_path / name, each) for name, each in given.items()}
    joined = sj.join(
        sj.stream(frames_["a"], name="a", key="x", unique=True),
        sj.stream(
            frames_["b"],
            name="b",
            key=["x", "y"],
            punctuation=sj.marked("over", null_is_wildcard=True),
        ),
        sj.stream(frames_["c"], name="c", key="y", unique=True),
        on="a.x = b.x and b.y = c.y",
        name="abc",
        buckets=3,
        rates=AB_FIRST,
        strict=True,
    )
    found = run(joined, tmp_path / "checkpoint")
    assert found.bag() == Counter([(1, 10, 7, 70), (2, 20, 8, 80), (3, 30, 7, 70)])
    assert found.violations == []
    lower, upper = metrics(found, "abc_1"), metrics(found, "abc")
    held = [
        [each["state_rows"], each["closed_keys"]] for one in zip(lower, upper, strict=True) for each in one
    ]
    # (3, 7) and <*, 7>, which waits for it, beside the keys 1 and 2; above c with 7, of which 8 is over
    assert held[0][0] == 3
    assert held[1][0] == 1
    assert held[2:] == [[0, 0], [0, 0]]
