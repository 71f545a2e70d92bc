"""Clustered and ordered arrival on Spark, within each partition: over tasks, batches and restarts."""

import itertools
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import streamjoin as sj
from tests.spark.streams import Collected, run, write_batches

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::streamjoin.UnboundedState")]

KEYS = 60
SCHEMA = pa.schema({"k": pa.string(), "v": pa.int64(), "part": pa.string(), "off": pa.int64()})
ARRIVALS = {
    "clustered and descending": (
        sj.clustered(slack=2),
        sj.ordered(descending=True, slack=2),
        range(KEYS)[::-1],
    ),
    "ordered twice": (sj.ordered(slack=2), sj.ordered(slack=2), range(KEYS)),
}
Row = tuple[str, int, str, int]


def made(rng: random.Random, keys: Any, copies: int) -> list[Row]:
    """Two partitions that bring their keys in order, sometimes a place too late; offsets have gaps."""
    offsets = {"p": 100, "q": 7}
    rows: list[Row] = []
    for key, part in zip(keys, itertools.cycle("pq"), strict=False):
        for _ in range(copies):
            offsets[part] += rng.choice((1, 1, 2, 30))
            rows.append((f"{key:03}", len(rows), part, offsets[part]))
    for part in "pq":  # within the slack: a tuple one place too late
        own = [i for i, row in enumerate(rows) if row[2] == part]
        for i, j in zip(own[::2], own[1::2], strict=False):
            if rng.random() < 0.5:
                (a, v, _, _), (b, w, _, _) = rows[i], rows[j]
                rows[i], rows[j] = (b, w, part, rows[i][3]), (a, v, part, rows[j][3])
    return rows


def tables(rows: list[Row], batches: int) -> list[pa.Table]:
    """A file for each partition and batch: each is a task of its own."""
    step = -(-len(rows) // batches)
    return [
        pa.Table.from_pylist(
            [dict(zip(SCHEMA.names, row, strict=True)) for row in rows[i : i + step] if row[2] == part],
            schema=SCHEMA,
        )
        for i in range(0, len(rows), step)
        for part in "pq"
    ]


def read(spark: SparkSession, folder: Path, files: int = 2) -> DataFrame:
    schema = "k string, v long, part string, off long"
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", files).parquet(str(folder))


def joined(spark: SparkSession, folder: Path, first: Any, second: Any) -> sj.Joined:
    sequence = ["part", "off"]
    return sj.join(
        sj.stream(read(spark, folder / "a"), name="a", key="k", arrival=first, sequence=sequence),
        sj.stream(read(spark, folder / "b"), name="b", key="k", arrival=second, sequence=sequence),
        buckets=3,
    )


def pairs(found: Collected) -> Counter[tuple[Any, ...]]:
    return Counter((row.k, row.a_v, row.b_v) for row in found.rows)


def last_metrics(found: Collected) -> dict[str, Any]:
    return next(metrics["join"] for metrics in reversed(found.progress) if metrics)


def locally(first: Any, second: Any, in_batches: dict[str, list[pa.Table]]) -> list[dict[str, Any]]:
    """What a local run gives for each batch of two files per input, and how much it holds then."""
    declared = {"key": "k", "sequence": ["part", "off"]}
    a = sj.stream(SCHEMA, name="a", arrival=first, **declared)
    one_run = sj.join(a, sj.stream(SCHEMA, name="b", arrival=second, **declared)).local()
    told = []
    for i in range(0, len(in_batches["a"]), 2):
        rows = one_run.step({name: pa.concat_tables(files[i : i + 2]) for name, files in in_batches.items()})
        told.append(
            {
                "rows": Counter((row["k"], row["a_v"], row["b_v"]) for row in rows.to_pylist()),
                "over": Counter(one.text() for one in one_run.punctuations()),
                "broken": Counter(
                    (one["stream"], one["reason"], one["row"]["v"]) for one in one_run.violations()
                ),
                "held": sum(one_run.state().rows.values()),
            }
        )
    return told


def as_told(found: Collected) -> dict[str, Any]:
    return {
        "rows": pairs(found),
        "over": Counter(row._punctuation for row in found.punctuations),
        "broken": Counter(
            (row._input, row._reason, row.a_v if row._input == "a" else row.b_v) for row in found.violations
        ),
        "held": last_metrics(found)["state_rows"],
    }


def both(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Two batches as one."""
    return {what: other[what] if what == "held" else one[what] + other[what] for what in one}


@pytest.mark.parametrize("kind", ["clustered and descending", "ordered twice"])
@pytest.mark.systems
def test_followed_over_tasks_batches_and_a_restart(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    rng = random.Random(kind)
    first, second, keys = ARRIVALS[kind]
    one, other = made(rng, keys, 3), made(rng, keys, 2)
    # a key of `b` that comes back at the end, when its range is long closed on both
    back = (other[0][0], 1000, "p", 10**6)
    in_batches = {"a": tables(one, 4), "b": tables([*other, back], 4)}
    for name, files in in_batches.items():
        write_batches(tmp_path / name, files[:4])
    before = run(joined(spark, tmp_path, first, second), tmp_path / "checkpoint")
    for name, files in in_batches.items():
        write_batches(tmp_path / name, files)
    # another environment means other Python workers, which have nothing cached: all comes from the checkpoint
    monkeypatch.setitem(spark.sparkContext.environment, "STREAMJOIN_TEST", kind)
    after = run(joined(spark, tmp_path, first, second), tmp_path / "checkpoint")
    expected = Counter((k, v, w) for k, v, *_ in one for j, w, *_ in other if k == j)
    assert pairs(before) + pairs(after) == expected
    told = locally(first, second, in_batches)
    assert as_told(before) == both(told[0], told[1])
    assert as_told(after) == both(told[2], told[3])
    assert as_told(before)["broken"] == Counter()
    assert as_told(after)["broken"] == Counter([("b", "after_punctuation", 1000)])
    assert last_metrics(after)["state_rows"] <= 6 * 5  # what the slack leaves open


def test_a_cluster_that_comes_back_is_a_violation(spark: SparkSession, tmp_path: Path) -> None:
    rows: list[Row] = [("1", 1, "p", 1), ("2", 2, "p", 5), ("1", 3, "q", 6), ("1", 4, "p", 9)]
    write_batches(tmp_path / "a", tables(rows, 1))
    write_batches(tmp_path / "b", tables([("1", 10, "p", 1), ("2", 20, "p", 2)], 1))
    found = run(joined(spark, tmp_path, sj.clustered(), sj.ordered()), tmp_path / "checkpoint")
    # in `q` the same key has a cluster of its own: only the one in `p` comes back
    assert pairs(found) == Counter([("1", 1, 10), ("1", 3, 10), ("2", 2, 20)])
    assert [(row._input, row._reason, row.a_v) for row in found.violations] == [("a", "after_punctuation", 4)]


def test_a_partition_over_several_tasks(spark: SparkSession, tmp_path: Path) -> None:
    """Each brings its own stretch: followed one after another. Mixed ones are refused."""
    rows = [(f"{i:03}", i, "p", i) for i in range(20)]
    whole = [pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)]
    write_batches(tmp_path / "b", whole)
    write_batches(tmp_path / "a", [whole[0].slice(10), whole[0].slice(0, 10)])
    found = run(joined(spark, tmp_path, sj.ordered(), sj.clustered()), tmp_path / "checkpoint")
    assert found.violations == []
    assert len(found.rows) == 20
    assert last_metrics(found)["state_rows"] == 2
    mixed = sj.stream(
        read(spark, tmp_path / "b").repartition(2),
        name="a",
        key="k",
        arrival=sj.ordered(),
        sequence=["part", "off"],
    )
    with pytest.raises(StreamingQueryException, match=r"stream 'a', source partition .*do not repartition"):
        run(sj.join(mixed, sj.stream(read(spark, tmp_path / "b"), name="b", key="k")), tmp_path / "mixed")


def test_a_sequence_with_partitions_is_asked_for(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, 0)], "k int, off long")
    for sequence in (None, ["off"]):
        one = sj.stream(frame, name="a", key="k", arrival=sj.ordered(), sequence=sequence)
        with pytest.raises(sj.InvalidJoin, match=r"clustered or ordered on Spark without a sequence .*add"):
            sj.join(one, sj.stream(frame, name="b", key="k")).dataframe()
