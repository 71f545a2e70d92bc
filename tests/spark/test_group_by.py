"""Group by on Spark: final rows equal Spark's own join and groupBy, and leave with the punctuation."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamjoin as sj
from tests.spark.streams import run, stream_of, write_batches

pytestmark = pytest.mark.spark

BATCHES, ITEMS = 6, 40
TIME = pa.timestamp("us", "UTC")


def batches(seed: int) -> tuple[list[pa.Table], list[pa.Table]]:
    """Items that are opened once, and bids that end two batches later."""
    rng = np.random.default_rng(seed)
    items, bids = [], []
    for i in range(BATCHES):
        opened = np.arange(i * ITEMS, (i + 1) * ITEMS)
        items.append(pa.table({"k": opened, "title": [f"item {k % 7}" for k in opened]}))
        k = rng.integers(max(0, i - 1) * ITEMS, (i + 1) * ITEMS, 300)
        over = np.arange(max(0, i - 2) * ITEMS, max(0, i - 1) * ITEMS)
        data = {
            "k": pa.array(k),
            "price": pa.array(rng.integers(0, 50, len(k)), mask=rng.random(len(k)) < 0.1),
            "share": pa.array(rng.integers(-8, 8, len(k)) / 4, pa.float32()),
            "paid": pa.array(rng.integers(0, 10**6, len(k)))
            .cast(pa.decimal128(19, 0))
            .cast(pa.decimal128(21, 2)),
            "who": pa.array([f"bidder {n}" for n in rng.integers(0, 3, len(k))]),
            "at": pa.array(rng.integers(0, 10**9, len(k)), pa.timestamp("us")).cast(TIME),
            "is_end": pa.array(np.zeros(len(k), bool)),
        }
        rows = pa.table(data)
        ends = pa.Table.from_pylist([{"k": int(item), "is_end": True} for item in over], rows.schema)
        bids.append(pa.concat_tables([rows, ends]))
    return items, bids


def declared(items: DataFrame, bids: DataFrame, **options: Any) -> sj.Joined:
    options.setdefault("buckets", 3)
    return sj.join(
        sj.stream(items, name="item", key="k", unique=True),
        sj.stream(bids, name="bid", key="k", time="at", punctuation=sj.marked("is_end")),
        **options,
    )


ASKED = {
    "n": ("*", "count"),
    "priced": ("price", "count"),
    "total": ("price", "sum"),
    "shares": ("share", "sum"),
    "paid": ("paid", "sum"),
    "lowest": ("share", "min"),
    "newest": ("at", "max"),
    "mean": ("price", "avg"),
    "prices": ("price", "collect"),
    "final": ("who", "last"),
}


def by_spark(items: DataFrame, bids: DataFrame, how: str = "inner") -> DataFrame:
    joined = items.join(bids.where(~F.col("is_end")), "k", how)
    return joined.groupBy("title", "k").agg(
        F.count("*").alias("n"),
        F.count("price").alias("priced"),
        F.sum("price").alias("total"),
        F.sum("share").alias("shares"),
        F.sum("paid").alias("paid"),
        F.min("share").alias("lowest"),
        F.max("at").alias("newest"),
        F.avg("price").alias("mean"),
        F.sort_array(F.collect_list("price")).alias("prices"),
        F.max_by("who", "at").alias("final"),
    )


def bag(rows: Any) -> Counter[tuple[Any, ...]]:
    return Counter(
        tuple(
            tuple(value)
            if isinstance(value, list)
            else round(value, 9)
            if isinstance(value, float)
            else value
            for value in row
        )
        for row in rows
    )


def files(folder: Path, seed: int) -> tuple[list[pa.Table], list[pa.Table]]:
    items, bids = batches(seed)
    write_batches(folder / "item", items)
    write_batches(folder / "bid", bids)
    return items, bids


@pytest.mark.parametrize("how", ["inner", "left"])
def test_batch_dataframes_give_sparks_own_answer(spark: SparkSession, tmp_path: Path, how: str) -> None:
    files(tmp_path, 1)
    items, bids = spark.read.parquet(str(tmp_path / "item")), spark.read.parquet(str(tmp_path / "bid"))
    joined = sj.join(
        sj.stream(items, name="item", key="k"),
        sj.stream(bids.where(~F.col("is_end")).drop("is_end"), name="bid", key="k"),
        how=how,
        buckets=3,
    )
    asked = {name: each for name, each in ASKED.items() if name != "final"}
    ours = joined.group_by("title", "k").agg(**asked).dataframe()
    theirs = by_spark(items, bids, how).drop("final")
    assert [(f.name, f.dataType.simpleString()) for f in ours.schema] == [
        (f.name, f.dataType.simpleString()) for f in theirs.schema
    ]
    assert bag(ours.collect()) == bag(theirs.collect())
    plain = joined.group_by("k").agg(n=("*", "count"), newest=("at", "max"))  # emitted without packing
    wanted = by_spark(items, bids, how).select("k", "n", "newest")
    assert bag(plain.dataframe().collect()) == bag(wanted.collect())


def test_null_keys_are_a_group_of_batch_dataframes(spark: SparkSession) -> None:
    left = spark.createDataFrame([(None, 1), (1, 2), (None, 3)], "k int, x int")
    right = spark.createDataFrame([(1, 5), (None, 6)], "k int, y int")
    joined = sj.join(
        sj.stream(left, name="l", key="k"), sj.stream(right, name="r", key="k"), how="full", buckets=3
    )
    found = joined.group_by("k").agg(n=("*", "count"), xs=("x", "collect")).dataframe().collect()
    assert bag(found) == Counter({(None, 3, (1, 3)): 1, (1, 1, (2,)): 1})


def streaming(spark: SparkSession, folder: Path, seed: int, **options: Any) -> sj.Joined:
    items, bids = batches(seed)
    return declared(
        stream_of(spark, folder / "item", items), stream_of(spark, folder / "bid", bids), **options
    )


def finished(spark: SparkSession, folder: Path) -> DataFrame:
    """Spark's answer, for the items whose end has been told."""
    items, bids = spark.read.parquet(str(folder / "item")), spark.read.parquet(str(folder / "bid"))
    return by_spark(items.join(bids.where("is_end").select("k"), "k", "left_semi"), bids)


@pytest.mark.systems
def test_a_stream_in_several_buckets_gives_sparks_own_answer(spark: SparkSession, tmp_path: Path) -> None:
    grouped = streaming(spark, tmp_path, 2).group_by("title", "k").agg(**ASKED)
    found = run(grouped, tmp_path / "checkpoint")
    assert bag(found.rows) == bag(finished(spark, tmp_path).collect())
    assert {row["k"] for row in found.punctuations} == set(range((BATCHES - 2) * ITEMS))
    assert not found.violations
    gauges = [progress["join"]["groups"] for progress in found.progress if progress]
    assert max(gauges) > 0
    assert gauges[-1] < 3 * 4 * 2 * ITEMS


def test_a_row_leaves_in_the_batch_of_its_punctuation(spark: SparkSession, tmp_path: Path) -> None:
    grouped = streaming(spark, tmp_path, 3).group_by("k").agg(n=("*", "count"), price=("price", "max"))
    seen: dict[int, dict[str, list[Any]]] = {}

    def each(frame: DataFrame, batch: int) -> None:
        seen[batch] = {"row": [], "punctuation": [], "violation": []}
        for row in frame.collect():
            seen[batch][row["_kind"]].append(row)

    elements = grouped.elements()
    assert elements.columns == ["k", "n", "price", "_kind", "_input", "_punctuation", "_reason"]
    writer = elements.writeStream.foreachBatch(each).option("checkpointLocation", str(tmp_path / "c"))
    writer.trigger(availableNow=True).start().awaitTermination()
    for batch, found in seen.items():
        over = {row["k"] for row in found["punctuation"]}
        assert over == set(range(max(0, batch - 2) * ITEMS, max(0, batch - 1) * ITEMS))
        assert {row["k"] for row in found["row"]} <= over
    everything = [row for found in seen.values() for row in found["row"]]
    assert bag((row["k"], row["n"]) for row in everything) == bag(
        finished(spark, tmp_path).select("k", "n").collect()
    )


@pytest.mark.systems
def test_violations_show_their_group_columns_only(spark: SparkSession, tmp_path: Path) -> None:
    items, bids = batches(4)
    items.append(pa.table({"k": [(BATCHES - 1) * ITEMS], "title": ["again"]}))
    joined = declared(stream_of(spark, tmp_path / "item", items), stream_of(spark, tmp_path / "bid", bids))
    found = run(joined.group_by("k").agg(title=("price", "sum")), tmp_path / "checkpoint")
    (violation,) = found.violations
    assert (violation["k"], violation["title"], violation["_reason"]) == (
        (BATCHES - 1) * ITEMS,
        None,
        "duplicate_key",
    )


@pytest.mark.systems
def test_a_restart_goes_on_with_the_groups_it_had(spark: SparkSession, tmp_path: Path) -> None:
    items, bids = batches(5)
    found = Counter()
    for until in (2, 4, BATCHES):
        joined = declared(
            stream_of(spark, tmp_path / "item", items[:until]),
            stream_of(spark, tmp_path / "bid", bids[:until]),
        )
        found += bag(run(joined.group_by("title", "k").agg(**ASKED), tmp_path / "checkpoint").rows)
    assert found == bag(finished(spark, tmp_path).collect())
    other = declared(
        stream_of(spark, tmp_path / "item", items), stream_of(spark, tmp_path / "bid", [*bids, bids[-1]])
    )
    with pytest.raises(Exception, match="group_by was"):
        run(other.group_by("k").agg(n=("*", "count")), tmp_path / "checkpoint")


def test_what_streams_cannot_do_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    items, bids = (stream_of(spark, tmp_path / str(i), each) for i, each in enumerate(batches(6)))
    never = sj.join(sj.stream(items, name="item", key="k", unique=True), sj.stream(bids, name="bid", key="k"))
    with pytest.raises(sj.InvalidJoin, match=r"no key ever is before the inputs end: declare .* on bid"):
        never.group_by("k").agg(n=("*", "count")).dataframe()
    with pytest.raises(sj.InvalidJoin, match="give a pyarrow expression"):
        declared(items, bids, where="sqrt(price) > 3").group_by("k").agg(n=("*", "count"))
    where = declared(items, bids, where=pc.field("price") > 45).group_by("k").agg(low=("price", "min"))
    rows = run(where, tmp_path / "checkpoint").rows
    assert {row["low"] for row in rows} <= {46, 47, 48, 49}
    assert rows
