"""`.count()` and its sisters on groups: the answers, and the names of the columns, of Spark's GroupedData."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.api.join import GroupedBy
from tests.tables import unbounded_is_meant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ITEMS = pa.table({"k": [1, 2], "title": ["x", "y"]})
BIDS = pa.table({"k": [1, 1, 2], "price": [3, 5, 7], "share": [0.5, 1.5, None], "who": ["a", "b", "c"]})


def grouped(items: Any, bids: Any, *columns: str, **options: Any) -> GroupedBy:
    return sj.join(
        sj.stream(items, name="items", key="k", unique=True),
        sj.stream(bids, name="bids", key="k"),
        **options,
    ).group_by("k", *columns)


def locally(join: sj.Joined) -> list[dict[str, Any]]:
    run = join.local()
    run.push("items", ITEMS)
    run.push("bids", BIDS)
    return sorted(run.finish().to_pylist(), key=lambda row: row["k"])


@pytest.fixture
def groups() -> GroupedBy:
    return grouped(ITEMS.schema, BIDS.schema)


@unbounded_is_meant
def test_count(groups: GroupedBy) -> None:
    assert locally(groups.count()) == [{"k": 1, "count": 2}, {"k": 2, "count": 1}]


@unbounded_is_meant
def test_functions_of_columns(groups: GroupedBy) -> None:
    assert locally(groups.sum("price", "share"))[0] == {"k": 1, "sum(price)": 8, "sum(share)": 2.0}
    assert locally(groups.max("price"))[1] == {"k": 2, "max(price)": 7}
    assert locally(groups.min("who"))[0] == {"k": 1, "min(who)": "a"}
    assert (
        locally(groups.avg("price"))
        == locally(groups.mean("price"))
        == [
            {"k": 1, "avg(price)": 4.0},
            {"k": 2, "avg(price)": 7.0},
        ]
    )


@unbounded_is_meant
def test_without_columns_they_take_all_that_are_numbers(groups: GroupedBy) -> None:
    assert locally(groups.sum())[1] == {
        "k": 2,
        "sum(k)": 2,
        "sum(price)": 7,
        "sum(share)": None,
    }


@unbounded_is_meant
def test_agg_takes_a_mapping_too(groups: GroupedBy) -> None:
    assert locally(groups.agg({"price": "max", "*": "count"}))[0] == {"k": 1, "max(price)": 5, "count(1)": 2}


def test_a_group_column_called_count_is_refused_with_what_to_do() -> None:
    bids = pa.schema({"k": pa.int64(), "count": pa.int64()})
    with pytest.raises(
        sj.InvalidJoin, match=r"count is a group column and an aggregate; give .* another name"
    ):
        grouped(ITEMS.schema, bids, "count").count()


def test_what_is_no_number_has_no_sum(groups: GroupedBy) -> None:
    with pytest.raises(sj.InvalidJoin, match="there is no sum"):
        groups.sum("who")
    words = pa.schema({"k": pa.string()})
    with pytest.raises(sj.InvalidJoin, match="no column that is a number"):
        grouped(words, words).sum()


@pytest.mark.spark
@pytest.mark.systems
@unbounded_is_meant
def test_as_spark(spark: "SparkSession", tmp_path: Path) -> None:
    items, bids = (spark.createDataFrame(table) for table in (ITEMS, BIDS))
    ours, theirs = grouped(items, bids, buckets=2), items.join(bids, "k").groupBy("k")
    for function, columns in (("count", ()), ("sum", ()), ("max", ("price", "share"))):
        found, expected = (getattr(one, function)(*columns) for one in (ours, theirs))
        frame = found.dataframe()
        assert frame.columns == expected.columns
        assert sorted(frame.collect()) == sorted(expected.collect())
