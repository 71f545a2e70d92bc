"""Control sources on Spark: punctuations reach their buckets and wait there until time is past."""

import datetime as dt
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import streamjoin as sj
from tests.spark.streams import Collected, run, stream_of

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::streamjoin.UnboundedState")]

KEYS = 20


def at(second: int) -> dt.datetime:
    return dt.datetime(2026, 1, 1, 0, 0, second, tzinfo=dt.UTC)


def batch_join(spark: SparkSession, control: Any) -> sj.Joined:
    """News of every key, access of two up to second 30, and one control table."""
    news = spark.createDataFrame([(k, f"v{k}") for k in range(KEYS)], "k long, v string")
    access = spark.createDataFrame([(7, "x", at(5)), (8, "y", at(30))], "k int, w string, t timestamp")
    return sj.join(
        sj.stream(news, name="news", key="k", unique=True),
        sj.stream(
            access,
            name="access",
            key="k",
            time="t",
            lateness="0 seconds",
            punctuation=sj.control(control, time="over"),
            columns=["w"],
        ),
        buckets=5,
    )


def propagated(joined: sj.Joined) -> list[int]:
    found = joined.elements().collect()
    assert Counter((row.v, row.w) for row in found if row._kind == "row") == {("v7", "x"): 1, ("v8", "y"): 1}
    assert [row for row in found if row._kind == "violation"] == []
    return sorted(int(row._punctuation.strip("<>")) for row in found if row._kind == "punctuation")


@pytest.mark.systems
def test_constants_lists_ranges_and_wildcards_reach_every_bucket(spark: SparkSession) -> None:
    """Progress is 30: punctuations for 29 act, those for 30 and later wait."""
    constants = [(k, at(29)) for k in range(0, KEYS, 2)] + [(k, at(30)) for k in range(1, KEYS, 2)]
    control = spark.createDataFrame(constants, "k short, over timestamp")
    assert propagated(batch_join(spark, control)) == list(range(0, KEYS, 2))

    lists = [(list(range(3, KEYS)), at(29)), ([], at(29)), ([0, None], at(1)), ([1], at(31))]
    control = spark.createDataFrame(lists, "k array<int>, over timestamp")
    assert propagated(batch_join(spark, control)) == [0, *range(3, KEYS)]

    ranges = [(2, 4, at(29)), (6, 6, at(29)), (15, None, at(29)), (9, 1, at(29)), (None, 0, at(30))]
    control = spark.createDataFrame(ranges, "k_from long, k_to int, over timestamp")
    assert propagated(batch_join(spark, control)) == [2, 3, 4, 6, *range(15, KEYS)]

    control = spark.createDataFrame([(None, dt.date(2025, 12, 30))], "k array<long>, over date")
    assert propagated(batch_join(spark, control)) == list(range(KEYS))
    nobody = spark.createDataFrame([(None, at(30))], "k long, over timestamp")
    assert propagated(batch_join(spark, nobody)) == []


def test_composite_keys_of_awkward_names_and_types(spark: SparkSession) -> None:
    news = spark.createDataFrame(
        [(float(k), s, k) for k in range(4) for s in "ab"], "`a.b` double, s string, v int"
    )
    access = spark.createDataFrame([(0.0, "z", at(30))], "`a.b` float, s string, `t x` timestamp")
    rows = [(1.0, ["a", "b"], at(1)), (-0.0, ["a"], at(1)), (None, ["b"], at(2)), (3.0, None, at(30))]
    control = spark.createDataFrame(rows, "`a.b` float, s array<string>, `over t` timestamp")
    joined = sj.join(
        sj.stream(news, name="news", key=["a.b", "s"], unique=True),
        sj.stream(
            access,
            name="access",
            key=["a.b", "s"],
            time="t x",
            lateness="0 seconds",
            punctuation=sj.control(control, time="over t"),
        ),
        buckets=5,
    )
    found = {row._punctuation for row in joined.elements().collect() if row._kind == "punctuation"}
    assert found == {'<1.0, "a">', '<1.0, "b">', '<0.0, "a">', '<0.0, "b">', '<2.0, "b">', '<3.0, "b">'}


SCHEMAS = {
    "news": pa.schema({"k": pa.int64(), "v": pa.string()}),
    "access": pa.schema({"k": pa.int64(), "w": pa.string(), "t": pa.timestamp("us", "UTC")}),
    "control": pa.schema({"k_from": pa.int64(), "k_to": pa.int64(), "over": pa.timestamp("us", "UTC")}),
}


def tables(name: str, *batches: list[tuple[Any, ...]]) -> list[pa.Table]:
    names = SCHEMAS[name].names
    return [
        pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in batch], schema=SCHEMAS[name])
        for batch in batches
    ]


def add_file(folder: Path, number: int, table: pa.Table) -> None:
    path = folder / f"{number:05}.parquet"
    pq.write_table(table, path)
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def streaming_join(spark: SparkSession, folder: Path) -> sj.Joined:
    """Three batches; afterwards P = 19 and the punctuation of 20 to 29 for 20 waits."""
    news = tables("news", [(1, "a"), (2, "b"), (25, "c"), (26, "d")], [(3, "e")], [(4, "f")])
    access = tables("access", [(1, "x", at(1)), (2, "y", at(9))], [(1, "x2", at(10))], [(2, "y2", at(19))])
    control = tables("control", [(1, 1, at(9)), (2, 2, at(15))], [(20, 29, at(20))], [(9, 1, at(1))])
    frames = {
        name: stream_of(spark, folder / name, batches)
        for name, batches in (("news", news), ("access", access), ("control", control))
    }
    return sj.join(
        sj.stream(frames["news"], name="news", key="k", unique=True),
        sj.stream(
            frames["access"],
            name="access",
            key="k",
            time="t",
            lateness="0 seconds",
            punctuation=sj.control(frames["control"], time="over"),
            columns=["w"],
        ),
        buckets=5,
    )


def over(found: Collected) -> list[str]:
    return sorted(row._punctuation for row in found.punctuations)


def last_metrics(found: Collected) -> dict[str, int]:
    return [metrics["join"] for metrics in found.progress if metrics][-1]


@pytest.mark.systems
def test_what_waits_survives_a_restart_and_acts_when_time_is_past(
    spark: SparkSession, tmp_path: Path
) -> None:
    joined = streaming_join(spark, tmp_path)
    first = run(joined, tmp_path / "checkpoint")
    assert first.bag() == Counter([(1, "a", "x"), (2, "b", "y"), (1, "a", "x2"), (2, "b", "y2")])
    assert (over(first), first.violations) == (["<1>", "<2>"], [])
    metrics = last_metrics(first)
    assert metrics["state_rows"] == 4  # news 25, 26, 3 and 4
    assert metrics["closed_keys"] == 4 + 5  # those news are seen; and the range waits in each bucket
    for batch in filter(None, first.progress):
        assert batch["join"]["state_calls"] <= 3 * 5, "state calls a bucket and batch"

    (row,) = tables("access", [(25, "z", at(20))])
    add_file(tmp_path / "access", 3, row)  # P = 20: not past 20
    second = run(joined, tmp_path / "checkpoint")
    assert (second.bag(), over(second)) == (Counter([(25, "c", "z")]), [])

    (row,) = tables("access", [(26, "z", at(21))])
    add_file(tmp_path / "access", 4, row)
    third = run(joined, tmp_path / "checkpoint")
    assert (third.bag(), over(third)) == (Counter([(26, "d", "z")]), ["<25>", "<26>"])
    assert third.violations == []

    (end,) = tables("control", [(None, None, at(20))])
    add_file(tmp_path / "control", 3, end)  # no data in this batch at all
    fourth = run(joined, tmp_path / "checkpoint")
    assert over(fourth) == ["<3>", "<4>"]
    assert last_metrics(fourth)["state_rows"] == 0


def test_a_punctuation_without_a_time_fails_the_query(spark: SparkSession, tmp_path: Path) -> None:
    joined = streaming_join(spark, tmp_path)
    (nothing,) = tables("control", [(1, 1, None)])
    add_file(tmp_path / "control", 0, nothing)
    with pytest.raises(StreamingQueryException, match="'access': row 0 of its control source has no 'over'"):
        run(joined, tmp_path / "checkpoint")


def test_what_a_control_source_must_be(spark: SparkSession) -> None:
    control = spark.createDataFrame([(1, at(1))], "k long, over timestamp")
    rate = (
        spark.readStream.format("rate")
        .load()
        .select(F.col("value").alias("k"), F.col("timestamp").alias("over"))
    )
    with pytest.raises(sj.InvalidJoin, match="access: batch, control of access: streaming"):
        batch_join(spark, rate).dataframe()
    with pytest.raises(
        sj.InvalidJoin, match=r"is a Spark DataFrame and its control source a pyarrow\.Schema"
    ):
        batch_join(spark, SCHEMAS["control"])
    with pytest.raises(sj.InvalidJoin, match="control column 'k' is string, the join's key 'k' is int64"):
        batch_join(spark, control.withColumn("k", F.col("k").cast("string")))


def test_a_range_that_both_inputs_close_leaves_once_whatever_the_buckets(spark: SparkSession) -> None:
    """No key of it was ever stored; it reaches all buckets, and one of them speaks for all."""
    bound = spark.createDataFrame([(100, 200, at(1))], "k_from long, k_to long, over timestamp")
    inputs = [
        sj.stream(
            spark.createDataFrame([(k, at(5)) for k in range(4)], "k long, t timestamp"),
            name=name,
            key="k",
            time="t",
            lateness="0 seconds",
            punctuation=sj.control(bound, time="over"),
            columns=[],
        )
        for name in "ab"
    ]
    found = sj.join(*inputs, buckets=5).elements().collect()
    assert [row._punctuation for row in found if row._kind == "punctuation"] == ["<[100, 200]>"]
    assert [row.k for row in found if row._kind == "punctuation"] == [None]
    assert sum(row._kind == "row" for row in found) == 4
