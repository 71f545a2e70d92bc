"""Staging on Spark: the segments are the rows with a key, with the hashes that streams have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

import streamjoin as sj
from streamjoin.columnar.batch import Layout
from streamjoin.enrich import progress_bar
from streamjoin.enrich.segments import StagedForm, StagedVersion, VersionStore
from streamjoin.enrich.tables.files import table_source
from streamjoin.join.wire import bucket_bounds
from streamjoin.spark.staging import HASH, SparkStaging, stage_frame, stage_table

pytestmark = pytest.mark.spark

KEY = T.StructType([T.StructField("a", T.LongType()), T.StructField("b", T.DoubleType())])
ARROW_KEY = pa.struct({"a": pa.int64(), "b": pa.float64()})
FORM = StagedForm(
    ("id", "pair"), ("text",), Layout((pa.int64(), ARROW_KEY), payload_types=(pa.string(),)), HASH, 3
)


def staged(version: StagedVersion) -> list[dict[str, Any]]:
    bounds, found = bucket_bounds(version.form.buckets), []
    for number in range(version.form.buckets):
        table = version.bucket(number)
        rows = [row for segment in range(len(table.segments)) for row in table.read(segment).data.to_pylist()]
        hashes = np.array([row["h"] for row in rows], np.int64)
        assert np.all(hashes[1:] >= hashes[:-1])
        assert np.all(np.searchsorted(bounds, hashes, side="right") == number)
        found += rows
    return found


def test_a_frame_is_staged_by_the_hash_of_streams(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3,000 rows, every tenth without a key, keys narrower than the join's; five slices for three buckets."""
    monkeypatch.setattr("streamjoin.spark.staging._slices", lambda rows: 5)
    monkeypatch.setattr("streamjoin.spark.staging.is_shown", lambda: True)  # with a bar
    monkeypatch.setattr(progress_bar, "is_shown", lambda: True)
    frame = spark.range(3000).select(
        F.when(F.col("id") % 10 > 0, F.col("id") % 700).cast("int").alias("id"),
        F.struct((F.col("id") % 2).cast("int").alias("x"), F.lit(0.5).alias("y")).alias("pair"),
        F.concat(F.lit("row "), F.col("id")).alias("text"),
    )
    store = VersionStore(tmp_path / "m", "m")
    version = stage_frame(frame, FORM, store, "v", SparkStaging([T.LongType(), KEY], 10_000))
    rows = staged(version)
    hashed = frame.where("id is not null").select(
        F.xxhash64(F.col("id").cast("long"), F.col("pair").cast(KEY)), "id", "pair.x", "text"
    )
    assert sorted((r["h"], r["k0"], r["k1"]["a"], r["p0"]) for r in rows) == sorted(
        map(tuple, hashed.collect())
    )
    assert (version.rows, version.null_keys, len(version.segments) > 10) == (2700, 300, True)
    assert store.find("v", FORM) == version
    assert all(path.suffix in (".segment", ".json") for path in version.folder.iterdir())
    with pytest.raises(sj.InvalidJoin, match=r"'m' has no column 'id', 'text'; it has 'pair'"):
        stage_frame(frame.select("pair"), FORM, store, "w", SparkStaging([T.LongType(), KEY]))
    failing = frame.withColumn("text", F.raise_error(F.lit("no such text")))
    with pytest.raises(PySparkException, match="no such text"):
        stage_frame(failing, FORM, store, "w", SparkStaging([T.LongType(), KEY]))
    assert [path.name for path in store.folder.iterdir() if path.is_dir()] == ["0001-v"]


def test_arrow_files_are_staged_by_way_of_parquet_and_parquet_itself(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = pa.table(
        {
            "id": pa.array([1, None, 3], pa.int16()),
            "pair": pa.array([{"x": 1, "y": -0.0}] * 3),
            "text": ["a", "b", "c"],
        }
    )
    with pa.OSFile(str(tmp_path / "m.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    store = VersionStore(tmp_path / "m", "m")
    version = stage_table(
        spark, table_source(tmp_path / "m.arrow"), FORM, store, "v", SparkStaging([T.LongType(), KEY])
    )
    assert sorted((r["k0"], r["p0"]) for r in staged(version)) == [(1, "a"), (3, "c")]
    assert version.null_keys == 1
    folder = tmp_path / "some files" / "pair=1"
    folder.mkdir(parents=True)
    pq.write_table(table.drop(["pair"]), folder / "m.parquet")
    (folder / "notes.txt").write_text("not Parquet")
    form = StagedForm(
        ("pair", "id"), ("text",), Layout((pa.int64(),) * 2, payload_types=(pa.string(),)), HASH, 1
    )
    source = table_source(tmp_path / "some files")
    version = stage_table(spark, source, form, store, "w", SparkStaging([T.LongType(), T.LongType()]))
    assert sorted((r["k0"], r["k1"], r["p0"]) for r in staged(version)) == [(1, 1, "a"), (1, 3, "c")]
    assert all(path.suffix in (".segment", ".json") for path in version.folder.iterdir())
