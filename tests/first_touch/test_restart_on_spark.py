"""Restarts of a Spark query that a long-lived job makes: other columns, partitions, zone, buckets left out.

What cannot go on is refused before the query starts where the checkpoint is known, else in the first line of
the query's exception.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import streamjoin as sj
from streamjoin.join.persistence.restart import check_restart
from streamjoin.spark.checkpoint.starts import Starts
from streamjoin.spark.files import Files
from tests.spark.streams import write_batches

pytestmark = pytest.mark.spark

ZONE, PARTITIONS = "spark.sql.session.timeZone", "spark.sql.shuffle.partitions"
A = [
    pa.table({"k": [i, 10 + i], "x": [i, i], "at": pa.array([i, i], pa.timestamp("us", "UTC"))})
    for i in range(4)
]
B = [pa.table({"k": [i], "y": [f"y{i}"]}) for i in (99, 1, 0, 12)]


@contextmanager
def session_of(spark: SparkSession, **settings: str) -> Iterator[None]:
    """The session with other settings, as after a restart with another cluster or driver."""
    names = {"zone": ZONE, "partitions": PARTITIONS}
    before = {name: spark.conf.get(name) for name in names.values()}
    try:
        for what, value in settings.items():
            spark.conf.set(names[what], value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, str(value))


class Query:
    """Two streams of files; batch i of each is file i."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self.rows = spark, folder, {}
        self.checkpoint = str(folder / "checkpoint")

    def bring(self, batches: int) -> None:
        write_batches(self.folder / "a", A[:batches])
        write_batches(self.folder / "b", B[:batches])

    def joined(self, a: str = "k long, x long, at timestamp", b_key: str = "k", **options: Any) -> sj.Joined:
        def read(schema: str, name: str) -> DataFrame:
            reader = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
            return reader.parquet(str(self.folder / name))

        left = sj.stream(read(a, "a"), name="a", key="k", unique=True)
        right = sj.stream(read("k long, y string", "b"), name="b", key=b_key)
        return sj.join(left, right, **options)

    def run(self, joined: sj.Joined, fail_at: int | None = None) -> None:
        def sink(frame: DataFrame, number: int) -> None:
            self.rows[number] = [row.asDict() for row in frame.collect()]
            if number == fail_at:
                raise RuntimeError("the sink is down")

        query = joined.write(rows=sink, checkpoint=self.checkpoint, trigger={"availableNow": True})
        query.awaitTermination()


@pytest.mark.filterwarnings("ignore::streamjoin.UnboundedState")
def test_a_query_goes_on_with_other_columns_partitions_and_spelling_of_its_zone(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = Query(spark, tmp_path)
    with session_of(spark, zone="UTC", partitions="3"):
        query.bring(2)
        with pytest.raises(StreamingQueryException, match="the sink is down"):
            query.run(query.joined(), fail_at=1)
    planned = query.rows.pop(1)
    assert [(row["k"], row["x"], row["y"]) for row in planned] == [(1, 1, "y1")]
    with session_of(spark, zone="Etc/UTC", partitions="5"):
        changed = "k long, at timestamp, new string, x long"
        with pytest.raises(sj.StateFormatError, match="it is in 3 buckets, and this join has 4"):
            query.run(query.joined(buckets=4))
        query.bring(3)
        query.run(query.joined(changed))  # the planned batch first, and then one more
        assert query.rows[1] == [{**row, "new": None} for row in planned]
        assert [(row["k"], row["x"], row["new"], row["y"]) for row in query.rows[2]] == [(0, 0, None, "y0")]
        query.bring(4)
        found: list[Any] = []
        frame = query.joined("k long, new string").dataframe(checkpoint=query.checkpoint)
        writer = frame.writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
        writer = writer.option("checkpointLocation", query.checkpoint).trigger(availableNow=True)
        writer.start().awaitTermination()
        assert [row.asDict() for row in found] == [{"k": 12, "new": None, "y": "y12"}]


@pytest.fixture(scope="module")
def begun(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Query:
    """A query that has finished a batch, in two buckets."""
    query = Query(spark, tmp_path_factory.mktemp("begun"))
    query.bring(1)
    query.run(query.joined())
    query.bring(2)
    return query


@pytest.mark.filterwarnings("ignore::streamjoin.UnboundedState")
def test_another_join_is_refused_before_the_query_starts(begun: Query) -> None:
    other = begun.joined(how="left")
    for call in ("dataframe", "elements", "write"):
        options = {"rows": print} if call == "write" else {}
        with pytest.raises(sj.StreamJoinError, match="how= was inner and is now left: write how='inner'"):
            getattr(other, call)(checkpoint=begun.checkpoint, **options)
    key = begun.joined(a="k string, x long", b_key="y")
    with pytest.raises(sj.StreamJoinError, match=r"key= of b was \['k'\] and is now \['y'\]"):
        key.dataframe(checkpoint=begun.checkpoint)
    with pytest.raises(sj.StreamJoinError, match=r"dataframe\(checkpoint=7\); give the path"):
        begun.joined().dataframe(checkpoint=7)


@pytest.mark.filterwarnings("ignore::streamjoin.UnboundedState")
def test_a_plain_dataframe_says_it_in_the_first_line_and_names_the_buckets(begun: Query) -> None:
    frame = begun.joined(buckets=7).dataframe()
    writer = frame.writeStream.format("noop").option("checkpointLocation", begun.checkpoint)
    with pytest.raises(StreamingQueryException) as failed:
        writer.trigger(availableNow=True).start().awaitTermination()
    first = str(failed.value).splitlines()[0]
    assert "it is in 2 buckets, and this join has 7: write buckets=2" in first
    assert "Traceback" not in first


@pytest.mark.filterwarnings("ignore::streamjoin.UnboundedState")
def test_a_checkpoint_that_a_plain_dataframe_began_is_known_from_its_state(begun: Query) -> None:
    files = Files(begun.spark)
    kept = files.read(Starts(files, begun.checkpoint).path)
    files.remove(Starts(files, begun.checkpoint).path)
    try:
        with pytest.raises(sj.StateFormatError, match="it is in 2 buckets, and this join has 7"):
            begun.joined(buckets=7).dataframe(checkpoint=begun.checkpoint)
    finally:
        files.write(Starts(files, begun.checkpoint).path, kept or "")


class Recorded:
    """A start record whose file and commits are in memory."""

    def __init__(self) -> None:
        self.text: str | None = None
        self.commits: list[int] = []

    def read(self, path: str) -> str | None:
        return self.text

    def write(self, path: str, text: str) -> None:
        self.text = text

    def numbers(self, folder: str) -> list[int]:
        return self.commits


def test_a_start_counts_once_a_batch_was_committed_after_it() -> None:
    """One that failed before is as if it had never been: the state has nothing of it."""
    files: Any = Recorded()
    starts = Starts(files, "checkpoint")
    first, wider, widest = ({"columns": {"a": dict.fromkeys(names, "int64")}} for names in ("x", "xy", "xyz"))
    assert starts.stored(["j"]) == {"j": None}
    starts.note({"j": None}, {"j": first})
    assert starts.stored(["j"]) == {"j": None}
    files.commits = [0]
    assert starts.stored(["j"]) == {"j": first}
    assert starts.stored(["renamed"]) == {"renamed": first}
    starts.note({"j": first}, {"j": wider})  # this start fails
    assert starts.stored(["j"]) == {"j": first}
    starts.note({"j": first}, {"j": widest})
    files.commits = [0, 1]
    assert starts.stored(["j"]) == {"j": widest}
    assert starts.stored(["j", "other"]) is None
    starts.note({"other": None}, {"other": first})
    assert starts.stored(["j", "other"]) == {"j": widest, "other": None}  # joins that are declared apart
    files.text = "{half"
    assert starts.stored(["j"]) is None


def test_the_refusal_of_buckets_says_how_to_keep_and_how_to_change_them() -> None:
    with pytest.raises(sj.StateFormatError, match="write buckets=4, or leave it out and give the checkpoint"):
        check_restart({"buckets": 4, "columns": {}, "used": {}}, {"buckets": 8, "columns": {}, "used": {}})
