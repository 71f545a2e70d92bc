"""Groups of an enriched stream would never be final: it says to group first, and that works."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import streamjoin as sj
from tests.spark.streams import stream_of
from tests.tables import unbounded_is_meant

pytestmark = unbounded_is_meant

CITIES = pa.table({"id": [1, 2], "city": ["Rome", "Oslo"]})


def test_it_is_refused_with_what_to_write() -> None:
    orders = sj.stream(pa.schema({"id": pa.int64()}), name="orders", key="id")
    enriched = sj.enrich(orders, sj.table(CITIES, name="cities", key="id", memory="1 MB"))
    with pytest.raises(
        sj.InvalidJoin, match=r"'city' are never final.*groups = sj.join.*sj.enrich.*, cities\)"
    ):
        enriched.group_by("city")


def test_groups_are_enriched() -> None:
    orders = sj.stream(pa.schema({"id": pa.int64(), "total": pa.int64()}), name="orders", key="id")
    bills = sj.stream(pa.schema({"id": pa.int64()}), name="bills", key="id", unique=True)
    groups = sj.join(orders, bills).group_by("id").agg(total=("total", "sum")).local()
    sums = sj.stream(pa.schema({"id": pa.int64(), "total": pa.int64()}), name="sums", key="id")
    enriched = sj.enrich(sums, sj.table(CITIES, name="cities", key="id", memory="1 MB")).local()
    groups.push("bills", pa.table({"id": [1, 2]}))
    groups.push("orders", pa.table({"id": [1, 2, 1], "total": [5, 7, 6]}))
    final = groups.punctuate("orders", id=1)
    assert enriched.push("sums", final).to_pylist() == [{"id": 1, "total": 11, "city": "Rome"}]
    last = enriched.push("sums", groups.finish()).to_pylist()
    assert last == [{"id": 2, "total": 7, "city": "Oslo"}]


@pytest.mark.spark
@pytest.mark.systems
def test_groups_are_enriched_in_one_query_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    batches = [pa.table({"id": [1, 2, 1], "total": [5, 7, 6], "last": [False, False, True]})]
    batches += [pa.table({"id": [2, 3], "total": [1, 9], "last": [True, True]})]
    bought = stream_of(spark, tmp_path / "orders", batches)
    orders = sj.stream(bought, name="orders", key="id", punctuation=sj.closing("last"))
    billed = stream_of(spark, tmp_path / "bills", [pa.table({"id": [1, 2, 3]})])
    bills = sj.stream(billed, name="bills", key="id", unique=True)
    groups = sj.join(orders, bills, buckets=2).group_by("id").agg(total=("total", "sum"))
    cities = sj.table(CITIES, name="cities", key="id", memory="1 MB", how="left")
    enriched = sj.enrich(sj.stream(groups.dataframe(), name="groups", key="id"), cities, buckets=2)
    found: list[Any] = []
    query = enriched.write(
        rows=lambda rows, _: found.extend(map(tuple, rows.collect())),
        checkpoint=str(tmp_path / "checkpoint"),
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    assert sorted(found) == [(1, 11, "Rome"), (2, 8, "Oslo"), (3, 9, None)]
