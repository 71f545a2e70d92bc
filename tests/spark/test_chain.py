"""A join over a join in one Spark query: the batch answer, both states let go, restarts, ranges."""

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

MARKED = {"punctuation": sj.marked("over")}
BATCHES, KEYS = 4, 40


def tables(column: str, seed: int) -> list[pa.Table]:
    """Rows of a batch's own keys and of the one before, which are over then."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(BATCHES):
        k = rng.integers(max(0, i - 1) * KEYS, (i + 1) * KEYS, 60)
        over = np.arange(max(0, i - 1) * KEYS, i * KEYS)
        marks = np.concatenate([np.zeros(len(k), bool), np.ones(len(over), bool)])
        values = rng.integers(0, 1000, len(marks))
        found.append(pa.table({"k": np.concatenate([k, over]), column: values, "over": marks}))
    return found


def frames(spark: SparkSession, folder: Path, batches: slice = slice(None)) -> dict[str, DataFrame]:
    return {
        name: stream_of(spark, folder / name, tables(column, seed)[batches])
        for seed, (name, column) in enumerate((("a", "x"), ("b", "y"), ("c", "z")))
    }


def chain(given: dict[str, DataFrame], *, key: str = "k", **lower: Any) -> sj.Joined:
    a, b, c = (sj.stream(given[name], name=name, key="k", **MARKED) for name in "abc")
    below = sj.join(a, b, name="lower", buckets=3, **lower)
    return sj.join(sj.stream(below, name="ab", key=key), c, name="upper", buckets=5)


def batch_answer(spark: SparkSession, folder: Path, how: str = "inner") -> Counter[tuple[Any, ...]]:
    a, b, c = (spark.read.parquet(str(folder / name)).where("not over").drop("over") for name in "abc")
    return Counter(tuple(row) for row in a.join(b, "k", how).join(c, "k").select(*"kxyz").collect())


def metrics(found: Collected, name: str) -> list[dict[str, int]]:
    return [each[name] for each in found.progress if each]


# ---------------------------------------------------------------- the answer, and what is held


@pytest.mark.systems
@pytest.mark.parametrize("how", ["inner", "left"])
def test_equals_the_batch_join_and_both_states_evict(spark: SparkSession, tmp_path: Path, how: str) -> None:
    found = run(chain(frames(spark, tmp_path), how=how), tmp_path / "checkpoint")
    if how == "left":  # what is not over yet may still match: its padded rows are yet to leave
        answer = batch_answer(spark, tmp_path, how)
        over = {row: n for row, n in answer.items() if row[0] < (BATCHES - 1) * KEYS}
        assert {row: n for row, n in found.bag().items() if row[0] < (BATCHES - 1) * KEYS} == over
    else:
        assert found.bag() == batch_answer(spark, tmp_path)
    assert found.violations == []
    propagated = [int(row._punctuation.strip("<>")) for row in found.punctuations]
    assert len(set(propagated)) == len(propagated)
    assert set(range((BATCHES - 1) * KEYS)) <= set(propagated)
    lower, upper = metrics(found, "lower"), metrics(found, "upper")
    assert len(lower) == len(upper) == BATCHES
    assert sum(each["results"] for each in lower) == sum(each["ab_rows"] for each in upper)
    # all rows of c whose keys are over have been let go, thanks to what the lower join told
    kept = spark.read.parquet(str(tmp_path / "c")).where(f"not over and k >= {(BATCHES - 1) * KEYS}").count()
    let_go = sum(each["c_purged"] + each["c_not_stored"] for each in upper)
    assert let_go == sum(each["c_rows"] for each in upper) - kept
    assert sorted(folder.name for folder in (tmp_path / "checkpoint" / "state").iterdir()) == ["0", "1"]


@pytest.mark.systems
def test_going_on_from_a_checkpoint_in_the_middle(spark: SparkSession, tmp_path: Path) -> None:
    first = run(chain(frames(spark, tmp_path, slice(2))), tmp_path / "checkpoint")
    rest = chain(frames(spark, tmp_path))
    second = run(rest, tmp_path / "checkpoint")
    assert len(metrics(second, "upper")) == BATCHES - 2
    assert first.bag() + second.bag() == batch_answer(spark, tmp_path)
    propagated = Counter(row._punctuation for row in (*first.punctuations, *second.punctuations))
    assert set(propagated.values()) == {1}
    assert first.violations == second.violations == []


@pytest.mark.systems
def test_the_lower_join_on_its_own_is_another_query(spark: SparkSession, tmp_path: Path) -> None:
    given = frames(spark, tmp_path, slice(2))
    a, b, c = (sj.stream(given[name], name=name, key="k", **MARKED) for name in "abc")
    below = sj.join(a, b, name="lower", buckets=3)
    above = sj.join(sj.stream(below, name="ab", key="k"), c, name="upper", buckets=5)
    alone, both = run(below, tmp_path / "one"), run(above, tmp_path / "two")
    assert both.bag() == batch_answer(spark, tmp_path)
    assert sum(each["results"] for each in metrics(both, "lower")) == len(alone.rows)
    assert {row._kind for row in alone.punctuations} == {"punctuation"}
    assert below.dataframe().columns == ["k", "x", "y"]


# ---------------------------------------------------------------- forms of chains, on batch DataFrames


def rows_of(spark: SparkSession, name: str, keys: Any, columns: str) -> DataFrame:
    """Keys, each with a text of its own."""
    return spark.createDataFrame([(key, f"{name}{key}") for key in keys], columns)


def test_another_key_another_type_sql_and_three_levels(spark: SparkSession) -> None:
    a = rows_of(spark, "a", range(10), "k int, x string")
    b = spark.createDataFrame([(k, k % 3) for k in range(0, 10, 2)], "k long, g int")
    c = spark.createDataFrame([(0, "zero"), (1, "one")], "g long, z string")
    d = spark.createDataFrame([(float(k), k * 1.5) for k in range(10)], "k double, w double")
    ab = sj.join(
        sj.stream(a, name="a", key="k"),
        sj.stream(b, name="b", key="k"),
        name="lower",
        where="k <> 4",
        buckets=3,
    )
    abc = sj.join(sj.stream(ab, name="ab", key="g"), sj.stream(c, name="c", key="g"), name="upper", buckets=2)
    top = sj.join(sj.stream(abc, name="abc", key="k"), sj.stream(d, name="d", key="k"), name="top", buckets=4)
    expected = a.join(b, "k").where("k <> 4").join(c, "g").join(d, "k").select("k", "g", "x", "z", "w")
    assert top.dataframe().columns == ["k", "g", "x", "z", "w"]
    assert Counter(map(tuple, top.dataframe().collect())) == Counter(map(tuple, expected.collect()))


def test_outer_joins_of_batches_end_at_every_level(spark: SparkSession) -> None:
    keys = {"a": [1, 2, 3], "b": [2, 4], "c": [3, 5]}
    a, b, c = (rows_of(spark, name, each, f"k int, {name}v string") for name, each in keys.items())
    ab = sj.join(sj.stream(a, name="a", key="k"), sj.stream(b, name="b", key="k"), name="lower", how="full")
    top = sj.join(
        sj.stream(ab, name="ab", key="k"), sj.stream(c, name="c", key="k"), name="upper", how="full"
    )
    expected = a.join(b, "k", "full").join(c, "k", "full")
    assert Counter(map(tuple, top.dataframe().collect())) == Counter(map(tuple, expected.collect()))


def test_composite_keys_of_awkward_names_in_another_order(spark: SparkSession) -> None:
    day = dt.date(2026, 1, 1)
    a = spark.createDataFrame(
        [(1, day, True, "p", False), (2, day, True, "q", False)],
        "`a b` int, d date, `_x` boolean, s string, over boolean",
    )
    b = spark.createDataFrame([(1, day, 7)], "k int, d date, n int")
    c = spark.createDataFrame([("2026-01-01", 1, [1, 2])], "at string, k int, l array<int>")
    c = c.selectExpr("cast(at as timestamp_ntz) as at", "k", "l")
    ab = sj.join(
        sj.stream(a, name="a", key=["a b", "d"], **MARKED),
        sj.stream(b, name="b", key=["k", "d"]),
        name="lower",
    )
    top = sj.join(
        sj.stream(ab, name="ab", key=["d", "a b"]), sj.stream(c, name="c", key=["at", "k"]), name="upper"
    )
    (row,) = top.dataframe().collect()
    assert tuple(row)[1:] == (1, True, "p", 7, [1, 2])


def test_windows_over_results(spark: SparkSession) -> None:
    def timed(name: str, seed: int) -> DataFrame:
        rng = np.random.default_rng(seed)
        drawn = zip(rng.integers(0, 6, 40).tolist(), sorted(rng.integers(0, 60, 40).tolist()), strict=True)
        return spark.createDataFrame([(k, at(s)) for k, s in drawn], f"k int, t{name} timestamp")

    frames_ = {name: timed(name, seed) for seed, name in enumerate("abc")}
    late = {"lateness": "60 seconds"}
    a, b, c = (
        sj.stream(frame, name=name, key="k", time=f"t{name}", window="9 seconds", **late)
        for name, frame in frames_.items()
    )
    below = sj.join(a, b, name="lower", buckets=3)
    ab = sj.stream(below, name="ab", key="k", time="tb", window="5 seconds", **late)
    found = sj.join(ab, c, name="upper", buckets=2).dataframe()
    expected = (
        frames_["a"]
        .join(frames_["b"], "k")
        .where("abs(unix_seconds(ta) - unix_seconds(tb)) <= 9")
        .join(frames_["c"], "k")
        .where("unix_seconds(tc) - unix_seconds(tb) <= 5 and unix_seconds(tb) - unix_seconds(tc) <= 9")
    )
    answer = Counter(map(tuple, found.collect()))
    assert answer == Counter(map(tuple, expected.collect()))
    assert len(answer) > 20


# ---------------------------------------------------------------- ranges and the end


def at(second: int) -> dt.datetime:
    return dt.datetime(2026, 1, 1, 0, 0, second, tzinfo=dt.UTC)


SCHEMAS = {
    "timed": pa.schema({"k": pa.int64(), "v": pa.string(), "t": pa.timestamp("us", "UTC")}),
    "control": pa.schema({"k_from": pa.int64(), "k_to": pa.int64(), "over": pa.timestamp("us", "UTC")}),
    "c": pa.schema({"k": pa.int64(), "z": pa.int64(), "over": pa.bool_()}),
}


def files(kind: str, *batches: list[tuple[Any, ...]]) -> list[pa.Table]:
    names = SCHEMAS[kind].names
    return [
        pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in each], schema=SCHEMAS[kind])
        for each in batches
    ]


def ranged_chain(spark: SparkSession, folder: Path) -> sj.Joined:
    """(a left join b) ⋈ c, four batches; both inputs below close the same ranges.

    In batch 2, 1 to 100 is closed on both. Key 50 of a matched nothing; its purge strategy would wait, but
    its padded row leaves, and the range after it.
    """
    many = [(k, "m", at(20)) for k in range(200, 300)]
    a = files("timed", [(50, "a50", at(5))], [(1001, "", at(15))], [(1002, "", at(25)), *many], [])
    b = files("timed", *([(2000 + i, "", at(5 + 10 * i))] for i in range(4)))
    over = files("control", [], [(1, 100, at(10))], [(200, 300, at(24))], [])
    c = files("c", [(k, k, False) for k in (1, 7, 50, 77, 150)], [], [], [])

    def declared(name: str, rows: list[pa.Table]) -> Any:
        control = stream_of(spark, folder / f"{name}-control", over)
        return sj.stream(
            stream_of(spark, folder / name, rows),
            name=name,
            key="k",
            time="t",
            lateness="0 seconds",
            punctuation=sj.control(control, time="over"),
            columns=["v"],
        )

    below = sj.join(
        declared("a", a), declared("b", b), name="lower", how="left", purge=sj.PurgeEvery(3), buckets=4
    )
    ab = sj.stream(below, name="ab", key="k")
    return sj.join(
        ab, sj.stream(stream_of(spark, folder / "c", c), name="c", key="k", **MARKED), name="upper", buckets=3
    )


@pytest.mark.systems
def test_a_range_acts_in_the_batch_in_which_it_is_closed_below(spark: SparkSession, tmp_path: Path) -> None:
    """Every bucket below settles the range's keys in that batch, whatever its purge waits for."""
    found = run(ranged_chain(spark, tmp_path), tmp_path / "checkpoint")
    assert found.violations == []
    assert [tuple(row) for row in found.rows] == [(50, "a50", None, 50)]
    upper = metrics(found, "upper")
    # c's rows: 1, 7, 50, 77 and 150
    assert [each["c_purged"] for each in upper] == [0, 4, 0, 0]
    assert [each["results"] for each in upper] == [0, 1, 0, 0]


@pytest.mark.systems
@pytest.mark.parametrize("key", ["k", "x"])
def test_the_end_is_passed_on_whatever_the_key(spark: SparkSession, tmp_path: Path, key: str) -> None:
    schema = pa.schema({"k": pa.int64(), "x": pa.int64(), "over": pa.bool_()})

    def of(*batches: list[tuple[Any, ...]]) -> list[pa.Table]:
        return [
            pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in each], schema=schema)
            for each in batches
        ]

    data = {
        "a": of([(1, 1, False)], [(None, 0, True)], []),
        "b": of([(1, 1, False)], [], [(None, 0, True)]),
        "c": of([(k, k, False) for k in range(1, 9)], [], []),
    }
    a, b, c = (stream_of(spark, tmp_path / name, batches) for name, batches in data.items())
    ends = {"punctuation": sj.marked("over", null_is_wildcard=True)}
    below = sj.join(
        sj.stream(a, name="a", key="k", **ends),
        sj.stream(b, name="b", key="k", columns=[], **ends),
        name="lower",
        buckets=3,
    )
    ab = sj.stream(below, name="ab", key=key)
    found = run(
        sj.join(ab, sj.stream(c, name="c", key="k", **MARKED), name="upper", buckets=2), tmp_path / "q"
    )
    assert len(found.rows) == 1
    assert [each["c_purged"] for each in metrics(found, "upper")] == [0, 0, 8]


# ---------------------------------------------------------------- what is refused


def test_what_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(1, 1)], "k int, v int")
    below = sj.join(sj.stream(frame, name="a", key="k"), sj.stream(frame, name="b", key="k"), name="lower")
    ab = sj.stream(below, name="ab", key="k")
    local = sj.stream(pa.schema({"k": pa.int64()}), name="c", key="k")
    with pytest.raises(sj.InvalidJoin, match="c has a schema and ab a DataFrame"):
        sj.join(ab, local, name="upper")
    with pytest.raises(sj.InvalidJoin, match="several joins have the name lower"):
        sj.join(ab, sj.stream(frame, name="c", key="k"), name="lower")
    with pytest.raises(sj.InvalidJoin, match="several streams have the name a"):
        sj.join(ab, sj.stream(frame, name="a", key="k"), name="upper")
    streaming = stream_of(spark, tmp_path / "c", [pa.table({"k": [1]})])
    with pytest.raises(sj.InvalidJoin, match="streaming and batch inputs cannot be mixed"):
        sj.join(ab, sj.stream(streaming, name="c", key="k"), name="upper").dataframe()
