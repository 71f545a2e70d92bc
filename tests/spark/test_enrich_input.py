"""A table on Spark that is declared again, is too large, or is none; and a waiting room that must end."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import streamjoin as sj

pytestmark = pytest.mark.spark


def enriched(frame: DataFrame, keys: list[int], **declared: Any) -> sj.Enriched:
    table = pa.table({"k": keys, "name": ["x" * 100] * len(keys)})
    declared = {"memory": "1 MB", **declared}
    return sj.enrich(
        sj.stream(frame, name="orders", key="k", time="t"),
        sj.table(table, name="m", key="k", **declared),
        buckets=2,
    )


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return spark.sql("select id as k, timestamp_seconds(id) as t from range(4)")


@pytest.mark.systems
def test_the_newest_version_is_the_one_that_is_declared(frame: DataFrame, tmp_path: Path):
    """Back to may after june is a version of its own, as buckets use the newest there is."""
    checkpoint = str(tmp_path / "checkpoint")

    def refreshed(label: str) -> list[str]:
        return enriched(frame, [1], version=label).refresh(checkpoint=checkpoint)

    assert [refreshed(label) for label in ("may", "may", "june", "may")] == [
        ["0001-may"],
        ["0001-may"],
        ["0002-june"],
        ["0003-may"],
    ]


@pytest.mark.systems
def test_a_version_that_needs_more_memory_is_refused_and_gone(frame: DataFrame, tmp_path: Path):
    """10,000 rows of one key are one segment: 2.3 MB in two buckets, each with as much for what waits."""
    checkpoint = str(tmp_path / "checkpoint")
    small, large = (enriched(frame, keys, version=str(len(keys))) for keys in ([1], [1] * 10_000))
    small.refresh(checkpoint=checkpoint)
    with pytest.raises(sj.InvalidJoin, match=r"memory=1,048,576 bytes is too small: it needs 4,\d{3},\d{3}"):
        large.refresh(checkpoint=checkpoint)
    assert [path.name for path in (tmp_path / "checkpoint.tables/enrich/m").glob("0*")] == ["0001-1"]


@pytest.mark.systems
def test_of_a_batch_nobody_waits_for_ever(frame: DataFrame, tmp_path: Path):
    joined = enriched(frame, [1, 2], wait="1 hour", how="left")
    rows = joined.dataframe(checkpoint=str(tmp_path / "checkpoint")).collect()
    assert {(row["k"], row["name"] is not None) for row in rows} == {
        (0, False),
        (1, True),
        (2, True),
        (3, False),
    }


def test_a_streaming_dataframe_is_no_master_data(spark: SparkSession, frame: DataFrame):
    stream = spark.readStream.format("rate").load()
    with pytest.raises(sj.InvalidJoin, match=r"is a streaming DataFrame; declare it with sj.stream"):
        sj.table(stream, name="m", key="value", memory="1 MB")
    with pytest.raises(sj.InvalidJoin, match="'m' is a Spark DataFrame, which this process cannot read; use"):
        sj.enrich(
            sj.stream(frame, name="s", key="k"), sj.table(frame, name="m", key="k", memory=1 << 20)
        ).local()
