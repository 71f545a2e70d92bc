"""The join on Spark: the same answer as anywhere else, in Spark's own types, with its state in Spark."""

import datetime as dt
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import streamjoin as sj
from streamjoin.errors import StateFormatError
from streamjoin.spark.exchange import GUARD, bucket_labels, spark_hash
from streamjoin.spark.metrics_log import MetricsLog, read_log, state_chart
from tests.spark.streams import run, stream_of

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::streamjoin.UnboundedState")]

UTC = dt.UTC
ACCESS = pa.schema({"sno": pa.int64(), "ip": pa.string(), "is_end": pa.bool_()})


def at(second: int) -> dt.datetime:
    return dt.datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)


def news_and_access(spark: SparkSession, folder: Path) -> sj.Joined:
    news = stream_of(
        spark,
        folder / "news",
        [pa.table({"sno": [79], "title": ["a"]}), pa.table({"sno": [80, 81], "title": ["b", "c"]})],
    )
    access = stream_of(
        spark,
        folder / "access",
        [
            pa.table({"sno": [79, 79, 80], "ip": ["x", "y", "z"], "is_end": [False] * 3}),
            pa.table({"sno": [79, 80], "ip": [None, "w"], "is_end": [True, False]}, schema=ACCESS),
            pa.table({"sno": [79, 80], "ip": ["liar", None], "is_end": [False, True]}, schema=ACCESS),
        ],
    )
    return sj.join(
        sj.stream(news, name="news", key="sno", unique=True),
        sj.stream(access, name="access", key="sno", punctuation=sj.marked("is_end")),
        name="news_access",
    )


def test_rows_punctuations_violations_and_metrics_of_one_query(spark: SparkSession, tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    spark.streams.addListener(log)
    try:
        found = run(news_and_access(spark, tmp_path), tmp_path / "checkpoint")
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        spark.streams.removeListener(log)
    assert found.bag() == Counter([(79, "a", "x"), (79, "a", "y"), (80, "b", "z"), (80, "b", "w")])
    propagated = [(row._kind, row.sno, row._punctuation) for row in found.punctuations]
    assert sorted(propagated) == [("punctuation", 79, "<79>"), ("punctuation", 80, "<80>")]
    # 79 was closed on both inputs and forgotten: the liar is a new key, which only waits
    assert found.violations == []
    lines = read_log(tmp_path / "metrics.jsonl")
    assert [line["join"] for line in lines] == ["news_access"] * len(lines)
    assert sum(line["results"] for line in lines) == 4
    assert sum(line["access_punctuations"] for line in lines) == 2
    assert sum(line["news_rows"] for line in lines) == 3
    assert lines[-1]["state_rows"] == 2  # news 81, and the liar
    assert state_chart(lines).png(tmp_path / "state.png").stat().st_size > 5_000


def test_keys_of_every_type_and_payloads_of_any(spark: SparkSession, tmp_path: Path) -> None:
    keys = {
        "decimal": [Decimal("1.50"), Decimal("2.25")],
        "text": ["a", "ü"],
        "raw": [b"\x00", b"b"],
        "day": [dt.date(2020, 1, 1), dt.date(2021, 1, 1)],
        "wall": [dt.datetime(2020, 1, 1, 3, 4, 5, 6), dt.datetime(2021, 1, 1)],  # noqa: DTZ001
        "instant": [at(1), at(2)],
        "number": [-0.0, float("nan")],
        "flag": [True, False],
        "nested": [{"x": 1, "y": None}, {"x": 2, "y": "q"}],
    }
    one = pa.table({name: pa.array(values) for name, values in keys.items()})
    many = pa.concat_tables([one, one.slice(0, 1)])
    many = many.set_column(6, "number", pa.array([0.0, float("nan"), 0.0]))
    one = one.append_column("a", pa.array([[{"p": 1}], None])).append_column("t", pa.array([at(5), None]))
    many = many.append_column("b", pa.array([{"m": [1, 2]}, {"m": []}, None]))
    left, right = stream_of(spark, tmp_path / "one", [one]), stream_of(spark, tmp_path / "many", [many])
    names = list(keys)
    joined = sj.join(sj.stream(left, name="one", key=names), sj.stream(right, name="many", key=names))
    found = run(joined, tmp_path / "checkpoint")
    batch = spark.read.parquet(str(tmp_path / "one")).join(spark.read.parquet(str(tmp_path / "many")), names)
    assert joined.dataframe().dtypes == batch.dtypes
    expected = sorted(repr(row).replace("-0.0", "0.0") for row in batch.collect())
    assert sorted(map(repr, found.rows)) == expected
    assert len(found.rows) == 3


def test_windows_lateness_and_watermarks_that_were_there(spark: SparkSession, tmp_path: Path) -> None:
    def batch(*rows: tuple[int, int]) -> pa.Table:
        return pa.table({"k": [k for k, _ in rows], "t": [at(second) for _, second in rows]})

    left = stream_of(spark, tmp_path / "a", [batch((1, 10), (2, 40)), batch((3, 20), (2, 41))])
    right = stream_of(spark, tmp_path / "b", [batch((1, 15), (1, 16)), batch((2, 45), (2, 46))])
    joined = sj.join(
        sj.stream(left.withWatermark("t", "10 seconds"), name="a", key="k", window="5 seconds"),
        sj.stream(right, name="b", key="k", time="t", lateness="0 seconds"),
    )
    found = run(joined, tmp_path / "checkpoint")
    pairs = Counter((row.k, row.a_t.second, row.b_t.second) for row in found.rows)
    # 10 and 15 are just in the window; 3 at 20 came after 40 - 10
    assert pairs == Counter([(1, 10, 15), (2, 40, 45), (2, 41, 45), (2, 41, 46)])
    assert [(row._input, row._reason, row.k) for row in found.violations] == [("a", "late", 3)]


def test_batch_frames_give_the_batch_answer_and_a_self_join_works(spark: SparkSession) -> None:
    left = spark.createDataFrame([(1, "a"), (2, "b"), (None, "c")], "k int, v string")
    right = spark.createDataFrame([(1, "x"), (1, "y"), (3, "z"), (None, "w")], "k long, v string")
    joined = sj.join(sj.stream(left, name="l", key="k"), sj.stream(right, name="r", key="k"))
    rows = joined.dataframe()
    assert rows.dtypes == [("k", "bigint"), ("l_v", "string"), ("r_v", "string")]
    assert sorted(map(tuple, rows.collect())) == [(1, "a", "x"), (1, "a", "y")]
    itself = sj.join(sj.stream(right, name="x", key="k"), sj.stream(right, name="y", key="k"))
    assert Counter(row.k for row in itself.elements().collect()) == Counter({1: 4, 3: 1})


def test_a_wildcard_reaches_every_bucket(spark: SparkSession) -> None:
    left = spark.createDataFrame([(k, f"v{k}") for k in range(20)], "k long, v string")
    right = spark.createDataFrame([(7, "x", False), (None, None, True)], "k long, w string, over boolean")
    joined = sj.join(
        sj.stream(left, name="l", key="k", unique=True),
        sj.stream(right, name="r", key="k", punctuation=sj.marked("over", null_is_wildcard=True)),
        buckets=5,
    )
    found = joined.elements().collect()
    assert [(row.k, row.v, row.w) for row in found if row._kind == "row"] == [(7, "v7", "x")]
    propagated = [row._punctuation for row in found if row._kind == "punctuation"]
    assert sorted(propagated) == sorted(f"<{k}>" for k in range(20))


def test_bucket_labels_fall_where_spark_puts_them(spark: SparkSession) -> None:
    numbers = spark.range(-50, 200).select(F.col("id").cast("int").alias("i"))
    found = numbers.select("i", F.hash("i").alias("h")).collect()
    assert {row.i: row.h for row in found} == {i: spark_hash(i) for i in range(-50, 200)}
    for buckets in (1, 2, 7, 32):
        labels = bucket_labels(buckets)
        assert sorted(spark_hash(label) % buckets for label in labels) == list(range(buckets))
        assert GUARD not in labels


@pytest.mark.systems
def test_a_restart_with_another_join_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    joined = news_and_access(spark, tmp_path)
    run(joined, tmp_path / "checkpoint")
    pq.write_table(pa.table({"sno": [82], "title": ["d"]}), tmp_path / "news" / "00009.parquet")
    other = sj.join(*joined.plan.streams, name="news_access", buckets=5)
    with pytest.raises(StateFormatError, match=r"it is in 2 buckets, and this join has 5"):
        run(other, tmp_path / "checkpoint")


def test_what_a_session_must_be_is_said_before_it_starts(spark: SparkSession) -> None:
    left = spark.createDataFrame([(1,)], "k int")
    right = spark.readStream.format("rate").load().select(F.col("value").alias("k"))
    joined = sj.join(sj.stream(left, name="l", key="k"), sj.stream(left, name="r", key="k"))
    mixed = sj.join(sj.stream(left, name="l", key="k"), sj.stream(right, name="r", key="k"))
    with pytest.raises(sj.InvalidJoin, match=r"cannot be mixed in one join \(l: batch, r: streaming\)"):
        mixed.dataframe()
    clustered = sj.stream(left, name="l", key="k", arrival=sj.clustered())
    with pytest.raises(sj.InvalidJoin, match="clustered or ordered on Spark without a sequence"):
        sj.join(clustered, sj.stream(left, name="r", key="k")).dataframe()
    with pytest.raises(sj.InvalidJoin, match="no sink"):
        joined.write(checkpoint="unused")
    local = sj.join(
        sj.stream(pa.schema({"k": pa.int64()}), name="l", key="k"), sj.stream(left, name="r", key="k")
    )
    with pytest.raises(sj.InvalidJoin, match="l was declared with a schema"):
        local.dataframe()
