"""A query that ends by itself answers every row, also where rows wait for several batches."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import streamjoin as sj
from streamjoin.spark.sources.ticks import OffsetLog
from tests.spark.streams import stream_of

pytestmark = pytest.mark.spark

KEYS = 2_000
TABLE = pa.table({"k": range(KEYS), "name": [f"{i:060d}" for i in range(KEYS)]})
ROWS = [pa.table({"k": [(7 * i + 300 * part) % KEYS for i in range(300)]}) for part in range(6)]


def enriched(spark: SparkSession, folder: Path, cycles: list[int]) -> sj.Enriched:
    tables = [
        sj.table(TABLE, name=f"m{i}", key="k", memory="200 KB", cycle_batches=n) for i, n in enumerate(cycles)
    ]
    return sj.enrich(sj.stream(stream_of(spark, folder, ROWS), name="orders", key="k"), *tables, buckets=2)


@pytest.mark.parametrize("cycles", [[3], pytest.param([3, 2], marks=pytest.mark.systems)])
def test_available_now_works_off_what_waits(spark: SparkSession, tmp_path: Path, cycles: list[int]) -> None:
    """Six batches of rows, and three ticks were all that a query had: the last rows waited on."""
    found: Counter[Any] = Counter()
    query = enriched(spark, tmp_path / "s", cycles).write(
        rows=lambda rows, _: found.update(row.k for row in rows.collect()),
        checkpoint=str(tmp_path / "checkpoint"),
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    assert found == Counter(key for table in ROWS for key in table["k"].to_pylist())
    waited = [sum(one["waiting"] for one in sj.progress(p).values()) for p in query.recentProgress]
    assert max(waited) > 0
    assert waited[-1] == 0
    data = sum(1 for progress in query.recentProgress if progress.numInputRows > 1)
    assert len(query.recentProgress) <= data + sum(cycles)


def test_a_query_of_one_batch_is_warned_of(spark: SparkSession, tmp_path: Path) -> None:
    joined = enriched(spark, tmp_path / "s", [3])
    with pytest.warns(UserWarning, match="rows wait for m0 .* give trigger="):
        query = joined.write(
            rows=lambda rows, _: rows.count(), checkpoint=str(tmp_path / "checkpoint"), trigger={"once": True}
        )
    query.awaitTermination()


def test_a_log_that_is_elsewhere_is_said(tmp_path: Path) -> None:
    with pytest.raises(sj.BadInput, match=r"give dataframe.* the checkpointLocation of the query"):
        OffsetLog(tmp_path / "offsets").sources_moved()
