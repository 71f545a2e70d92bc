"""Key columns of two types meet in the one that docs/semantics.md says, locally and on Spark alike.

Each case is a table: values of the left key, values of the right key, and which of them are equal. Spark's
own join is asked too. A date with a timestamp is midnight in the timestamp's zone; on Spark the session's.
"""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import streamjoin as sj
from tests.tables import unbounded_is_meant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = unbounded_is_meant

DEC = pa.decimal128
DAY, OTHER = date(2024, 3, 31), date(2024, 4, 1)


class Case(NamedTuple):
    """Values of two types; `equal`: the pairs of row numbers that join."""

    left: pa.Array
    right: pa.Array
    common: pa.DataType
    equal: set[tuple[int, int]]


def dates(zone: str | None) -> Case:
    times = pa.array(["2024-03-31 00:00", "2024-03-31 01:00", "2024-04-01 00:00"]).cast(pa.timestamp("us"))
    if zone is not None:
        times = pc.assume_timezone(times, zone)
    return Case(pa.array([DAY, OTHER, None]), times, times.type, {(0, 0), (1, 2)})


CASES = {
    "date, timestamp without a zone": dates(None),
    "date, timestamp": dates("Europe/Berlin"),
    "int, long": Case(pa.array([1, 2], pa.int32()), pa.array([2, 2**40]), pa.int64(), {(1, 0)}),
    "byte, short": Case(pa.array([1, -2], pa.int8()), pa.array([-2, 300], pa.int16()), pa.int16(), {(1, 0)}),
    "int, decimal": Case(
        pa.array([1, 2], pa.int32()),
        pa.array([Decimal("2.00"), Decimal("1.50")], DEC(5, 2)),
        DEC(12, 2),
        {(1, 0)},
    ),
    "long, decimal": Case(
        pa.array([2**62, 2]), pa.array([Decimal(2**62), Decimal(3)], DEC(19, 0)), DEC(19, 0), {(0, 0)}
    ),
    "decimal, decimal": Case(
        pa.array([Decimal("1.5"), Decimal("2.25")], DEC(6, 2)),
        pa.array([Decimal("1.500"), Decimal("2.251")], DEC(6, 3)),
        DEC(7, 3),
        {(0, 0)},
    ),
    "int, float": Case(
        pa.array([1, 2**24 + 1], pa.int32()),
        pa.array([1.0, float(2**24)], pa.float32()),
        pa.float64(),
        {(0, 0)},
    ),
    "float, double": Case(pa.array([0.5, 0.1], pa.float32()), pa.array([0.5, 0.1]), pa.float64(), {(0, 0)}),
    "decimal, double": Case(
        pa.array([Decimal("0.3"), Decimal("0.7"), Decimal("1.1")], DEC(5, 1)),
        pa.array([0.3, 0.7, 1.2]),
        pa.float64(),
        {(0, 0), (1, 1)},
    ),
}
UNSIGNED = {
    "uint64, int64": Case(pa.array([2**64 - 1, 5], pa.uint64()), pa.array([-1, 5]), DEC(20, 0), {(1, 1)}),
    "uint32, int32": Case(
        pa.array([2**32 - 1, 5], pa.uint32()), pa.array([-1, 5], pa.int32()), pa.int64(), {(1, 1)}
    ),
}


def sides(case: Case) -> tuple[pa.Table, pa.Table]:
    return tuple(
        pa.table({"k": keys, name: list(range(len(keys)))})
        for keys, name in ((case.left, "a"), (case.right, "b"))
    )


def joined(left: Any, right: Any, **options: Any) -> sj.Joined:
    return sj.join(sj.stream(left, name="l", key="k"), sj.stream(right, name="r", key="k"), **options)


@pytest.mark.parametrize("name", [*CASES, *UNSIGNED])
@pytest.mark.parametrize("swapped", [False, True])
def test_locally(name: str, *, swapped: bool) -> None:
    case = {**CASES, **UNSIGNED}[name]
    left, right = reversed(sides(case)) if swapped else sides(case)
    join = joined(left.schema, right.schema)
    assert join.plan.spec.key_types == (case.common,)
    run = join.local()
    run.push("l", left)
    found = run.push("r", right).to_pylist()
    assert {(row["a"], row["b"]) for row in found} == case.equal


def test_a_date_punctuates_a_join_on_timestamps() -> None:
    left, right = sides(CASES["date, timestamp"])
    run = joined(left.schema, right.schema).local()
    run.punctuate("l", k=DAY)
    run.push("r", right)
    assert run.state().rows == {"l": 0, "r": 2}
    run.punctuate("l", k=sj.between(DAY, OTHER))
    assert run.state().rows == {"l": 0, "r": 0}


def test_a_midnight_that_a_clock_skips_is_the_first_instant_of_the_day() -> None:
    """As Spark says: in São Paulo 2018-11-04 began at 01:00."""
    zone = "America/Sao_Paulo"
    left = pa.table({"k": [date(2018, 11, 4)]})
    right = pa.table({"k": pa.array([datetime(2018, 11, 4, 3, tzinfo=UTC)], pa.timestamp("us", zone))})
    run = joined(left.schema, right.schema).local()
    run.push("l", left)
    assert run.push("r", right).num_rows == 1


def on_spark(spark: "SparkSession", case: Case, kind: str | None = None) -> None:
    left, right = (spark.createDataFrame(table) for table in sides(case))
    right = right if kind is None else right.withColumn("k", right.k.cast(kind))
    by_spark = left.join(right, left.k == right.k).select("a", "b").collect()
    assert {(row.a, row.b) for row in by_spark} == case.equal
    join = joined(left, right, buckets=2).dataframe()
    assert {(row.a, row.b) for row in join.collect()} == case.equal


@pytest.mark.spark
def test_dates_on_spark(spark: "SparkSession") -> None:
    on_spark(spark, dates(spark.conf.get("spark.sql.session.timeZone")))


@pytest.mark.spark
@pytest.mark.systems
def test_dates_and_timestamps_without_a_zone_on_spark(spark: "SparkSession") -> None:
    on_spark(spark, dates(None), "timestamp_ntz")


@pytest.mark.spark
@pytest.mark.systems
@pytest.mark.parametrize("name", [name for name in CASES if "date" not in name])
def test_on_spark(spark: "SparkSession", name: str) -> None:
    on_spark(spark, CASES[name])


@pytest.mark.parametrize("other", [pa.timestamp("us"), pa.int64(), pa.string(), pa.time64("us")], ids=str)
def test_what_has_no_common_type_is_refused_with_what_to_do(other: pa.DataType) -> None:
    with pytest.raises(sj.InvalidJoin, match="cast one of them first"):
        joined(pa.schema({"k": pa.timestamp("us", "UTC")}), pa.schema({"k": other}))
