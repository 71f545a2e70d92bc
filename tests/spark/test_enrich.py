"""A stream enriched with a table on Spark: equal to the batch join, over restarts and versions."""

import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import streamjoin as sj
from streamjoin.spark.checkpoint.inspect import join_states
from streamjoin.spark.checkpoint.reader import Checkpoint
from streamjoin.spark.checkpoint.rebucket import Rebucketing
from tests.spark.streams import stream_of, write_batches

pytestmark = pytest.mark.spark

Bag = Counter[tuple[Any, ...]]


def orders(first: int, rows: int, seed: int) -> pa.Table:
    """Keys from 0 to 1200, skewed, some null."""
    rng = np.random.default_rng(seed)
    key = (rng.zipf(1.3, rows) - 1) % 1200
    return pa.table({"k": pa.array(key, mask=rng.random(rows) < 0.02), "id": np.arange(first, first + rows)})


def customers(seed: int, name: str = "name") -> pa.Table:
    """Of 1,000 values some have no row, some several; a few rows have none."""
    rng = np.random.default_rng(seed)
    key = pa.array(rng.integers(0, 1000, 1500), mask=rng.random(1500) < 0.01)
    return pa.table({"k": key, name: [f"{seed}-{i}" + "x" * 60 for i in range(1500)]})


def batch_join(tables: list[pa.Table], static: pa.Table, *, left: bool) -> Bag:
    """All pairs, by nested dictionaries."""
    named: dict[int, list[str]] = {}
    for key, name in zip(*(column.to_pylist() for column in static.columns), strict=True):
        named.setdefault(key, []).append(name)
    found: Bag = Counter()
    for table in tables:
        for key, number in zip(*(column.to_pylist() for column in table.columns), strict=True):
            partners = named.get(key, []) if key is not None else []
            found.update((key, number, name) for name in (partners or ([None] if left else [])))
    return found


def run(joined: sj.Enriched, checkpoint: Path) -> tuple[Bag, list[dict[str, Any]]]:
    """Until the files are read and nothing waits; the rows, and the metrics of each batch."""
    found: Bag = Counter()
    metrics: list[dict[str, Any]] = []

    def start(frame: DataFrame) -> Any:
        assert frame.isStreaming
        writer = frame.writeStream.foreachBatch(lambda rows, _: found.update(map(tuple, rows.collect())))
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
        observed = [sj.progress(progress) for progress in query.recentProgress]
        metrics.extend(one["enrich"] for one in observed if one)
        return query

    joined.run_until_done(start, checkpoint=str(checkpoint))
    return found, metrics


@pytest.mark.parametrize(
    ("how", "cycle", "operator"),
    [("inner", 1, None), pytest.param("left", 3, "ssbj", marks=pytest.mark.systems)],
)
def test_it_equals_the_batch_join(spark: SparkSession, tmp_path: Path, how, cycle, operator):
    tables = [orders(500 * i, 500, i) for i in range(3)]
    static = customers(1)
    (tmp_path / "m").mkdir()
    pq.write_table(static, tmp_path / "m" / "0.parquet")
    joined = sj.enrich(
        sj.stream(stream_of(spark, tmp_path / "s", tables), name="orders", key="k"),
        sj.table(str(tmp_path / "m"), name="m", key="k", memory="200 KB", cycle_batches=cycle, how=how),
        operator=operator,
        buckets=3,
    )
    found, metrics = run(joined, tmp_path / "checkpoint")
    assert found == batch_join(tables, static, left=how == "left")
    assert sum(one["orders_rows"] + one["orders_null_keys"] for one in metrics) == 1500
    assert sum(one["results"] for one in metrics) == sum(found.values())
    assert metrics[-1]["waiting"] == 0
    assert (max(one["waiting"] for one in metrics) > 0) == (cycle > 1)
    assert operator is not None or sum(one["hits"] for one in metrics) > 0  # the paper needs three cycles
    for one in metrics:
        held = one["segment_bytes"] + one["cache_bytes"] + one["waiting_bytes"] + one["switching_bytes"]
        assert 0 < held <= one["memory_bytes"] <= 200 << 10


@pytest.mark.systems
def test_it_goes_on_after_a_restart_and_takes_new_versions(spark: SparkSession, tmp_path: Path):
    """Two batches with the first version, one with the second; the first is removed when nothing uses it."""
    tables = [orders(200 * i, 200, i) for i in range(3)]
    stream = stream_of(spark, tmp_path / "s", tables[:2])
    versions = [customers(1), customers(2)]
    pq.write_table(versions[0], tmp_path / "m.parquet")

    def joined() -> sj.Enriched:
        return sj.enrich(
            sj.stream(stream, name="orders", key="k"),
            sj.table(
                str(tmp_path / "m.parquet"),
                name="m",
                key="k",
                memory="200 KB",
                cycle_batches=2,
                columns=["name", "_version"],
                how="left",
            ),
            buckets=2,
        )

    checkpoint = tmp_path / "checkpoint"
    first, _ = run(joined(), checkpoint)
    pq.write_table(versions[1], tmp_path / "m.parquet")
    [second_id] = joined().refresh(checkpoint=str(checkpoint))
    write_batches(tmp_path / "s", tables)
    second, _ = run(joined(), checkpoint)
    [first_id] = {row[-1] for row in first}
    assert {row[-1] for row in second} == {second_id}
    assert Counter(row[:-1] for row in first.elements()) == batch_join(tables[:2], versions[0], left=True)
    assert Counter(row[:-1] for row in second.elements()) == batch_join(tables[2:], versions[1], left=True)
    for _ in range(2):  # no more rows: ticks only; the last batch of a query is committed by the next one
        run(joined(), checkpoint)
    [state] = join_states(Checkpoint.at(spark, checkpoint))
    size = state.to_json()["state"]
    assert size["waiting"] == {second_id: 0}
    assert (size["rows"], size["cache_rows"] > 0) == (
        sum(len(table["k"].drop_null()) for table in tables),
        True,
    )
    assert f"version {second_id}: no row waits for it" in state.text()
    Rebucketing.of(spark, checkpoint, 5, tmp_path / "other").run(lambda _: None)
    [state] = join_states(Checkpoint.at(spark, tmp_path / "other"))
    assert state.to_json()["state"]["waiting"] == {second_id: 0}
    assert state.to_json()["buckets"] == 5
    staged = {path.name for path in (tmp_path / "checkpoint.tables/enrich/m").iterdir() if path.is_dir()}
    assert first_id not in staged
    assert second_id in staged
    shutil.rmtree(tmp_path / "checkpoint.tables")
    with pytest.raises(sj.StateFormatError, match=r"has run, and .* is not there; restore the folder"):
        run(joined(), checkpoint)


@pytest.mark.systems
def test_a_version_that_is_deleted_while_rows_wait_for_it_is_missed(spark: SparkSession, tmp_path: Path):
    checkpoint = str(tmp_path / "checkpoint")

    def start() -> Any:
        joined = sj.enrich(
            sj.stream(stream_of(spark, tmp_path / "s", [orders(0, 200, 1)]), name="orders", key="k"),
            sj.table(customers(1), name="m", key="k", memory="200 KB", cycle_batches=4),
            operator="meshjoin",
            buckets=2,
        )
        writer = joined.dataframe(checkpoint=checkpoint).writeStream.format("noop").trigger(availableNow=True)
        return writer.option("checkpointLocation", checkpoint).start()

    query = start()
    while not query.recentProgress and query.isActive:
        time.sleep(0.1)
    query.stop()
    [version] = (tmp_path / "checkpoint.tables/enrich/m").glob("0001-*")
    shutil.rmtree(version)
    query = start()
    with pytest.raises(StreamingQueryException, match=r"(?s)version 0001.* is not there; restore the folder"):
        query.awaitTermination()


@pytest.mark.systems
def test_rows_wait_for_a_table_row_that_comes_late(spark: SparkSession, tmp_path: Path):
    """9 came at second 0 and waits 10 seconds; its table row is there before second 8 has passed."""
    second = pa.scalar(1_700_000_000_000_000)

    def at(*rows: tuple[int, int]) -> pa.Table:
        times = pa.array([second.as_py() + 1_000_000 * t for _, t in rows]).cast(pa.timestamp("us", "UTC"))
        return pa.table({"k": [k for k, _ in rows], "t": times})

    stream = stream_of(spark, tmp_path / "s", [at((9, 0), (8, 0), (1, 2))])
    pq.write_table(pa.table({"k": [1], "name": ["one"]}), tmp_path / "m.parquet")

    def joined() -> sj.Enriched:
        return sj.enrich(
            sj.stream(stream, name="orders", key="k", time="t", lateness="1 second"),
            sj.table(
                str(tmp_path / "m.parquet"), name="m", key="k", memory="1 MB", wait="10 seconds", how="left"
            ),
            buckets=2,
        )

    first, metrics = run(joined(), tmp_path / "checkpoint")
    assert {(row[0], row[2]) for row in first} == {(1, "one")}
    assert metrics[-1]["waiting_room"] == 2
    pq.write_table(pa.table({"k": [1, 9], "name": ["one", "nine"]}), tmp_path / "m.parquet")
    write_batches(tmp_path / "s", [at((9, 0), (8, 0), (1, 2)), at((1, 5))])
    second_run, _ = run(joined(), tmp_path / "checkpoint")
    assert {(row[0], row[2]) for row in second_run} == {(9, "nine"), (1, "one")}
    write_batches(tmp_path / "s", [at((9, 0), (8, 0), (1, 2)), at((1, 5)), at((1, 30))])
    third, metrics = run(joined(), tmp_path / "checkpoint")
    assert {(row[0], row[2]) for row in third} == {(8, None), (1, "one")}
    assert metrics[-1]["waiting_room"] == 0


@pytest.mark.systems
def test_several_tables_and_any_dataframe(spark: SparkSession, tmp_path: Path):
    """A table of a DataFrame with nested columns, then of another table on another key."""
    tables = [orders(100 * i, 100, i) for i in range(3)]
    stream = stream_of(spark, tmp_path / "s", tables)
    people = spark.sql("select id as k, named_struct('n', id * 2, 'l', array(id)) as who from range(0, 500)")
    pairs = spark.sql("select cast(id as int) as n, concat('p', id) as label from range(0, 1000, 4)")
    first = sj.enrich(
        sj.stream(stream, name="orders", key="k"),
        sj.table(people, name="people", key="k", memory="1 MB"),
        name="first",
    )
    checkpoint = str(tmp_path / "checkpoint")
    enriched = first.dataframe(checkpoint=checkpoint).selectExpr("who.n as n", "id")
    joined = sj.enrich(
        sj.stream(enriched, name="named", key="n"),
        sj.table(pairs, name="pairs", key="n", memory="1 MB"),
    )
    found, _ = run(joined, tmp_path / "checkpoint")
    keys = [(k, i) for t in tables for k, i in zip(*(c.to_pylist() for c in t.columns), strict=True)]
    assert found == Counter(
        (2 * k, i, f"p{2 * k}") for k, i in keys if k is not None and k < 500 and k % 2 == 0
    )


def test_a_batch_dataframe_as_stream_gives_the_batch_answer(spark: SparkSession, tmp_path: Path):
    table, static = orders(0, 500, 3), customers(2)
    pq.write_table(table, tmp_path / "s.parquet")
    joined = sj.enrich(
        sj.stream(spark.read.parquet(str(tmp_path / "s.parquet")), name="orders", key="k"),
        sj.table(static, name="m", key="k", memory="1 MB", cycle_batches=5),
    )
    frame = joined.dataframe(checkpoint=str(tmp_path / "checkpoint"))
    assert Counter(map(tuple, frame.collect())) == batch_join([table], static, left=False)
