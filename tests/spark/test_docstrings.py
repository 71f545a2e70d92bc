"""The examples of docstrings that need Spark: skipped by the doctests, run here."""

import doctest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import streamjoin as sj
from tests.spark.streams import stream_of

pytestmark = [pytest.mark.spark]


def run_examples(of: object, namespace: dict[str, Any]) -> dict[str, Any]:
    """Run every example of a docstring, those marked to be skipped too; returns what they define."""
    name = getattr(of, "__qualname__", str(of))
    test = doctest.DocTestParser().get_doctest(of.__doc__ or "", namespace, name, None, 0)
    assert test.examples, name
    for example in test.examples:
        example.options.pop(doctest.SKIP, None)
    assert doctest.DocTestRunner().run(test, clear_globs=False).failed == 0, name
    return test.globs


def test_examples_that_need_spark(spark: SparkSession, tmp_path: Path) -> None:
    frames = [stream_of(spark, tmp_path / name, [pa.table({"k": [1]})]) for name in "ab"]
    a, b = (
        sj.stream(frame, name=name, key="k", unique=True) for frame, name in zip(frames, "ab", strict=True)
    )
    found: dict[str, Any] = {"folder": str(tmp_path / "checkpoint"), "session": sj.session}
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    for of in (sj.session, sj.Joined.dataframe, sj.Joined.elements, sj.Joined.write):
        found["joined"] = sj.join(a, b)
        found |= run_examples(of, found)
        if (query := found.pop("query", None)) is not None:
            query.processAllAvailable()
            query.stop()
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    assert [tuple(row) for row in found["results"]] == [(1,)]
