"""Declarations and settings as a Spark user gives them: SQL conditions, sequences, output modes, sessions."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import streamjoin as sj
from streamjoin.spark import session
from streamjoin.spark.session import ROCKSDB, check_session
from tests.spark.streams import run, stream_of

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::streamjoin.UnboundedState")]


def test_an_sql_condition_closes_keys_at_their_place(spark: SparkSession, tmp_path: Path) -> None:
    orders = pa.table({"k": [1, 2], "name": ["one", "two"]})
    first = pa.table(
        {
            "k": [1, 1, 2, 1],
            "status": ["open", "paid", "open", "open"],
            "part": ["a", "a", "a", "a"],
            "off": [0, 1, 2, 3],
        }
    )
    second = pa.table({"k": [2], "status": ["PAID"], "part": ["b"], "off": [0]})
    joined = sj.join(
        sj.stream(
            stream_of(spark, tmp_path / "o", [orders, orders.slice(0, 0)]), name="o", key="k", unique=True
        ),
        sj.stream(
            stream_of(spark, tmp_path / "l", [first, second]),
            name="line",
            key="k",
            sequence=["part", "off"],
            punctuation=sj.closing("lower(status) = 'paid'"),
        ),
        buckets=2,
    )
    found = run(joined, tmp_path / "checkpoint")
    assert sorted(map(tuple, found.rows)) == [
        (1, "one", "open"),
        (1, "one", "paid"),
        (2, "two", "PAID"),
        (2, "two", "open"),
    ]
    assert [(row.k, row.status, row._reason) for row in found.violations] == [
        (1, "open", "after_punctuation")
    ]
    assert sorted(row.k for row in found.punctuations) == [1, 2]
    assert found.progress[-1]["join"]["state_rows"] == 0


def test_only_append_is_accepted(spark: SparkSession, tmp_path: Path) -> None:
    tables = {name: [pa.table({"k": [1], name: [2]})] for name in ("x", "y")}
    inputs = [
        sj.stream(stream_of(spark, tmp_path / name, rows), name=name, key="k")
        for name, rows in tables.items()
    ]
    joined = sj.join(*inputs)
    for mode in ("update", "complete", "Update"):
        with pytest.raises(sj.InvalidJoin, match=r"written with outputMode\('append'\) only"):
            joined.dataframe().writeStream.outputMode(mode)
        with pytest.raises(sj.InvalidJoin, match=f"output mode '{mode}'"):
            joined.elements().writeStream.outputMode(mode)
    writer = joined.dataframe().writeStream.outputMode("append").format("memory").queryName("appended")
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert [tuple(row) for row in spark.table("appended").collect()] == [(1, 2, 2)]
    assert sj.stream(joined.dataframe(), name="again", key="k").key == ("k",)


def standing_in(conf: dict[str, str], **more: str) -> Any:
    """A session with these settings; what it would take to make a real one is another JVM."""
    return SimpleNamespace(conf={**conf, **{name.replace("_", "."): value for name, value in more.items()}})


def test_speculation_needs_checkpoints_with_unique_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "check_workers", lambda spark: None)  # these sessions have none
    settings = {
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "1",
    }
    check_session(standing_in(settings, spark_speculation="false"))
    with pytest.raises(sj.InvalidJoin, match=r"checkpointFormatVersion to 2, or spark.speculation to false"):
        check_session(standing_in(settings, spark_speculation="true"))
    settings["spark.sql.streaming.stateStore.checkpointFormatVersion"] = "2"
    check_session(standing_in(settings, spark_speculation="true"))


def test_advice_from_the_metrics_of_a_query(spark: SparkSession, tmp_path: Path) -> None:
    keys = list(range(20_000))
    one = pa.table({"k": keys, "x": keys})
    many = pa.table({"k": [key for key in keys for _ in range(2)], "y": [0] * 40_000})
    joined = sj.join(
        sj.stream(stream_of(spark, tmp_path / "one", [one]), name="one", key="k"),
        sj.stream(stream_of(spark, tmp_path / "many", [many]), name="many", key="k"),
        buckets=3,
    )
    found = run(joined, tmp_path / "checkpoint")
    said = joined.advice(found.progress[0]["join"])
    assert any(text.startswith("one: no key repeats") and "unique=True" in text for text in said)
    assert any(text.startswith("many:") and "sj.ordered(slack=0)" in text for text in said)
    assert not any(text.startswith("many: no key repeats") for text in said)


def test_a_source_joined_with_itself_and_batches_in_which_an_input_is_empty(
    spark: SparkSession, tmp_path: Path
) -> None:
    edges = pa.table({"who": [1, 2, 2, 3], "whom": [2, 3, 4, 1]})
    follows = stream_of(spark, tmp_path / "follows", [edges.slice(0, 2), edges.slice(0, 0), edges.slice(2)])
    names = pa.table({"id": [1, 2], "name": ["one", "two"]})
    people = stream_of(spark, tmp_path / "people", [names.slice(0, 0), names])  # and no third file
    joined = sj.join(
        sj.stream(follows, name="first", key="whom"),
        sj.stream(follows, name="second", key="who"),
        sj.stream(people, name="between", key="id"),
        buckets=2,
    )
    found = run(joined, tmp_path / "checkpoint")
    assert sorted(map(tuple, found.rows)) == [(1, 3, 2, "one"), (2, 1, 3, "two"), (2, 1, 4, "two")]
