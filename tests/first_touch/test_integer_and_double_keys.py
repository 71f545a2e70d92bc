"""A 64-bit integer key joined with a double key is compared as Spark compares it: both as doubles.

Beyond 2^53 two whole numbers may be one double. What is declared of such keys (unique, punctuations, an
order) would then drop rows that break nothing, so it is refused when the join is declared, with what to cast.
"""

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import streamjoin as sj
from tests.tables import unbounded_is_meant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = unbounded_is_meant

BIG = 2**53
LONGS = [1, BIG - 1, BIG, BIG + 1, BIG + 3, -(BIG + 1), 2**63 - 1, None]
DOUBLES = [1.0, 1.5, float(BIG - 1), float(BIG), float(BIG + 4), -float(BIG), 2.0**63, float("nan"), -0.0]
PAIRS = {
    "long": (pa.array(LONGS), pa.array(DOUBLES)),
    "float": (pa.array([1, 2**24 + 1, BIG + 1]), pa.array([1.0, 2.0**24, float(BIG)], pa.float32())),
    "decimal": (
        pa.array([Decimal(f"{n}.1") for n in (0, 1, BIG, BIG + 1)], pa.decimal128(30, 1)),
        pa.array([0.1, 1.1, BIG + 0.1, BIG + 1.1]),
    ),
}


def brute_force(left: pa.Array, right: pa.Array) -> set[tuple[int, int]]:
    return {
        (i, j)
        for i, one in enumerate(left.to_pylist())
        for j, other in enumerate(right.to_pylist())
        if one is not None and float(one) == other
    }


def sides(pair: tuple[pa.Array, pa.Array]) -> list[pa.Table]:
    return [
        pa.table({"k": keys, name: list(range(len(keys)))}) for keys, name in zip(pair, "ab", strict=True)
    ]


def joined(left: Any, right: Any, **options: Any) -> sj.Joined:
    return sj.join(sj.stream(left, name="l", key="k"), sj.stream(right, name="r", key="k"), **options)


@pytest.mark.parametrize("name", PAIRS)
def test_locally(name: str) -> None:
    left, right = sides(PAIRS[name])
    run = joined(left.schema, right.schema).local()
    run.push("l", left)
    found = {(row["a"], row["b"]) for row in run.push("r", right).to_pylist()}
    assert found == brute_force(*PAIRS[name])


def test_a_table() -> None:
    left, right = sides(PAIRS["long"])
    run = sj.enrich(
        sj.stream(left.schema, name="l", key="k"), sj.table(right, name="t", key="k", memory="64 MB")
    ).local()
    found = [*run.push("l", left).to_pylist(), *run.finish().to_pylist()]
    assert {(row["a"], row["b"]) for row in found} == brute_force(*PAIRS["long"])


@pytest.mark.spark
@pytest.mark.parametrize(
    "name", ["long", *(pytest.param(name, marks=pytest.mark.systems) for name in ("float", "decimal"))]
)
def test_on_spark(spark: "SparkSession", name: str) -> None:
    left, right = (spark.createDataFrame(table) for table in sides(PAIRS[name]))
    by_spark = left.join(right, left.k == right.k).select("a", "b").collect()
    expected = {(row.a, row.b) for row in by_spark}
    assert expected == brute_force(*PAIRS[name])
    join = joined(left, right, buckets=2).dataframe()
    assert {(row.a, row.b) for row in join.collect()} == expected


SCHEMA = pa.schema({"k": pa.int64(), "end": pa.bool_(), "a": pa.int64()})
DOUBLE = sj.stream(pa.schema({"k": pa.float64(), "b": pa.int64()}), name="r", key="k")


@pytest.mark.parametrize(
    "declared",
    [{"unique": True}, {"punctuation": sj.marked("end")}, {"arrival": sj.clustered()}],
    ids=["unique", "punctuation", "clustered"],
)
def test_what_is_declared_of_keys_that_doubles_mix_up_is_refused(declared: dict[str, Any]) -> None:
    longs = sj.stream(SCHEMA, name="l", key="k", **declared)
    with pytest.raises(
        sj.InvalidJoin, match=r"l\.k is int64 and compared as double.*cast l\.k to double.*or r\.k to int64"
    ):
        sj.join(longs, DOUBLE)


def test_it_is_allowed_where_no_two_keys_become_one() -> None:
    small = pa.schema({"k": pa.int32(), "a": pa.int64()})
    sj.join(sj.stream(small, name="l", key="k", unique=True), DOUBLE)
    longs = sj.stream(SCHEMA, name="l", key="k")
    sj.join(longs, sj.stream(DOUBLE.schema, name="r", key="k", unique=True))


def test_a_punctuation_of_a_value_that_is_no_double_is_refused() -> None:
    run = joined(SCHEMA, DOUBLE.schema).local()
    run.push("r", pa.table({"k": [float(BIG)], "b": [1]}))
    with pytest.raises(sj.BadInput, match=f"{BIG + 1} is no double.*cast"):
        run.punctuate("l", k=BIG + 1)
    run.punctuate("l", k=BIG)
    assert run.state().rows == {"l": 0, "r": 0}
