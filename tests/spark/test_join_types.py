"""Outer, semi and anti joins on Spark: streams cut into files, and batch DataFrames."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import streamjoin as sj
from tests.spark.streams import run, stream_of
from tests.spark.test_seeded import NEXMARK, Generated, cut, files, generate, nexmark

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::streamjoin.UnboundedState")]

HOW = ["left", "right", "full", "left_semi", "left_anti"]


def expected(inputs: list[Generated], how: str) -> Counter[tuple[Any, ...]]:
    """Ids by the type of join, from all pairs of one key that lie in their windows."""
    left, right = inputs
    pairs = [
        (a[2], b[2])
        for a in left.rows
        for b in right.rows
        if a[0] is not None
        and a[0] == b[0]
        and (left.window is None or max(a[1], b[1]) - a[1] <= left.window)
        and (right.window is None or max(a[1], b[1]) - b[1] <= right.window)
    ]
    matched = [{pair[i] for pair in pairs} for i in range(2)]
    if how == "left_semi":
        return Counter((row[2],) for row in left.rows if row[2] in matched[0])
    if how == "left_anti":
        return Counter((row[2],) for row in left.rows if row[2] not in matched[0])
    found: Counter[tuple[Any, ...]] = Counter(pairs)
    if how in ("left", "full"):
        found.update((row[2], None) for row in left.rows if row[2] not in matched[0])
    if how in ("right", "full"):
        found.update((None, row[2]) for row in right.rows if row[2] not in matched[1])
    return found


def declared(frame: Any, number: int, one: Generated, *, windowed: bool) -> Any:
    timed = {"time": f"t{number}", "lateness": f"{one.lateness} seconds"} if windowed else {}
    if one.window is not None:
        timed["window"] = f"{one.window} seconds"
    end = sj.marked("end", null_is_wildcard=True)
    columns = [f"id{number}"]
    return sj.stream(
        frame, name=f"s{number}", key="k", unique=one.unique, punctuation=end, columns=columns, **timed
    )


@pytest.mark.parametrize(
    ("seed", "how"),
    [
        pytest.param(seed, how, marks=[] if how == "full" else pytest.mark.systems)
        for seed, how in enumerate(HOW)
    ],
)
def test_the_answer_is_the_batch_joins(spark: SparkSession, tmp_path: Path, seed: int, how: str) -> None:
    rng = random.Random(seed)
    windowed = seed % 2 == 0
    inputs = [generate(rng, number, windowed=windowed) for number in range(2)]
    tables = [files(rng, one, number) for number, one in enumerate(inputs)]
    for batches in tables:  # in the end a wildcard: nothing follows
        end = [{"k": None, "end": True}]
        batches.append(pa.Table.from_pylist(end, schema=batches[0].schema))
    streams = [
        declared(stream_of(spark, tmp_path / str(i), tables[i]), i, one, windowed=windowed)
        for i, one in enumerate(inputs)
    ]
    found = run(sj.join(*streams, how=how, buckets=3), tmp_path / "checkpoint")
    ids = ["id0"] if how in ("left_semi", "left_anti") else ["id0", "id1"]
    assert found.violations == []
    assert Counter(tuple(row[name] for name in ids) for row in found.rows) == expected(inputs, how)
    batch = [
        declared(spark.read.parquet(str(tmp_path / str(i))), i, one, windowed=windowed)
        for i, one in enumerate(inputs)
    ]
    at_once = sj.join(*batch, how=how, buckets=3).dataframe().collect()
    assert Counter(tuple(row[name] for name in ids) for row in at_once) == expected(inputs, how)


def test_a_condition_as_an_expression_and_as_sql(spark: SparkSession) -> None:
    a = spark.createDataFrame([(1, 10), (2, 20), (None, 30)], "k long, x long")
    b = spark.createDataFrame([(1, 11), (1, 9), (2, 5)], "k long, y long")

    def answer(how: str, where: Any) -> list[Any]:
        inputs = sj.stream(a, name="a", key="k"), sj.stream(b, name="b", key="k")
        frame = sj.join(*inputs, how=how, where=where).dataframe()
        return sorted(map(tuple, frame.collect()), key=str)

    assert answer("inner", "y > x") == [(1, 10, 11)]
    assert answer("inner", pc.field("y") > pc.field("x")) == [(1, 10, 11)]
    padded = [(1, 10, 11), (2, 20, None), (None, 30, None)]
    assert answer("left", pc.field("y") > pc.field("x")) == padded
    assert answer("left", "y > x") == padded
    with pytest.raises(sj.InvalidJoin, match="give a pyarrow expression"):
        answer("left", "sqrt(y) > x")


def with_end(table: pa.Table, rng: random.Random) -> list[pa.Table]:
    """Files of the rows, and a last one that ends the stream."""
    rows = table.append_column("end", pa.array([False] * len(table)))
    return [*cut(rows, rng), pa.Table.from_pylist([{"end": True}], schema=rows.schema)]


@pytest.mark.systems
def test_nexmark_q101_and_q104(spark: SparkSession, tmp_path: Path) -> None:
    assert NEXMARK.exists()
    rng = random.Random(101)
    ends = {"punctuation": sj.marked("end", null_is_wildcard=True)}
    auction, bid = nexmark("auction"), nexmark("bid")
    counts = Counter(bid["auction"].to_pylist())
    few = pa.table({"id": [key for key, count in counts.items() if count < 20]})

    def stream(name: str, table: pa.Table, key: str, columns: list[str]) -> Any:
        frame = stream_of(spark, tmp_path / name, with_end(table, rng))
        return sj.stream(frame, name=name, key=key, columns=columns, **ends)

    auctions = stream("auction", auction, "id", ["item_name"])
    q101 = sj.join(auctions, stream("bid", bid, "auction", ["price"]), how="left")
    rows = spark.createDataFrame(
        run(q101, tmp_path / "q101").rows, "id string, item_name string, price string"
    )
    highest = rows.groupBy("id", "item_name").agg(F.max(F.col("price").cast("long")).alias("price"))
    expected_rows = Counter(
        (row["auction_id"], row["auction_item_name"], int(row["current_highest_bid"] or 0) or None)
        for row in nexmark("q101.expected").to_pylist()
    )
    assert Counter(map(tuple, highest.collect())) == expected_rows
    q104 = sj.join(auctions, stream("few", few, "id", []), how="left_anti")
    expected_rows = Counter(tuple(row.values()) for row in nexmark("q104.expected").to_pylist())
    assert run(q104, tmp_path / "q104").bag() == expected_rows
