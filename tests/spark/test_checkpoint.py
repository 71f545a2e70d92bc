"""A checkpoint from outside: what it holds and why, and the same state in other buckets.

The query of most tests joins three streams of files: `a` with a window, `b` whose marked rows end keys,
`c` clustered within each partition. It is stopped between batches, its state is cut into other buckets,
and it goes on from there.
"""

from __future__ import annotations

import errno
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession

import streamjoin as sj
from streamjoin.cli.main import commands
from streamjoin.spark.checkpoint.cut import CutJoin
from streamjoin.spark.checkpoint.inspect import join_states
from streamjoin.spark.checkpoint.reader import Checkpoint
from streamjoin.spark.checkpoint.rebucket import Rebucketing
from streamjoin.state.component import HashRange
from tests.spark.streams import write_batches
from tests.tables import at

pytestmark = pytest.mark.spark

BATCHES = 6
KEYS = 20
SCHEMAS = {
    "a": "k long, a string, t timestamp_ntz",
    "b": "k long, b long, t timestamp_ntz, is_end boolean",
    "c": "k long, c long, t timestamp_ntz, part string, off long",
}


def make_tables(seed: int) -> dict[str, list[pa.Table]]:
    """Batch i brings the keys of i on `a` and `c`, rows of the last three on `b`; keys of i - 3 end there."""
    rng = np.random.default_rng(seed)
    tables: dict[str, list[pa.Table]] = {"a": [], "b": [], "c": []}
    for i in range(BATCHES):
        keys = np.arange(i * KEYS, (i + 1) * KEYS)
        time = pa.array([at(i * 60)] * KEYS, pa.timestamp("us"))
        tables["a"].append(pa.table({"k": keys, "a": [f"a{key}" for key in keys], "t": time}))
        chosen = rng.integers(max(0, (i - 2) * KEYS), (i + 1) * KEYS, 60)
        ended = np.arange(max(0, (i - 3) * KEYS), max(0, (i - 2) * KEYS))
        both = np.concatenate([chosen, ended])
        tables["b"].append(
            pa.table(
                {
                    "k": both,
                    "b": rng.integers(0, 1000, len(both)),
                    "t": pa.array([at(i * 60)] * len(both), pa.timestamp("us")),
                    "is_end": np.arange(len(both)) >= len(chosen),
                }
            )
        )
        twice = np.repeat(keys, 2)
        tables["c"].append(
            pa.table(
                {
                    "k": twice,
                    "c": np.arange(len(twice)),
                    "t": pa.array([at(i * 60)] * len(twice), pa.timestamp("us")),
                    "part": np.where(twice % 2 == 0, "p", "q"),
                    "off": np.arange(len(twice)) + 1000 * i,
                }
            )
        )
    return tables


def batch_join(tables: dict[str, list[pa.Table]]) -> Counter[tuple[Any, ...]]:
    """Same key; on `b` only rows that are no marks; nobody's window is left, the streams are too short."""
    rows = {name: [row for one in found for row in one.to_pylist()] for name, found in tables.items()}
    by_key: dict[int, list[Any]] = {}
    for c in rows["c"]:
        by_key.setdefault(c["k"], []).append(c)
    names = {a["k"]: a for a in rows["a"]}
    return Counter(
        (b["k"], names[b["k"]]["a"], names[b["k"]]["t"], b["b"], b["t"], c["c"], c["t"])
        for b in rows["b"]
        if not b["is_end"]
        for c in by_key[b["k"]]
    )


class Sink:
    """What each batch gave, by its id; a batch that runs again replaces what it gave before."""

    def __init__(self) -> None:
        self.rows: dict[int, list[Any]] = {}
        self.over: dict[int, list[Any]] = {}
        self.violations: list[Any] = []
        self.runs: list[int] = []

    def all_rows(self) -> Counter[tuple[Any, ...]]:
        return Counter(tuple(row) for batch in self.rows.values() for row in batch)

    def all_over(self) -> Counter[int]:
        return Counter(row.k for batch in self.over.values() for row in batch)


def three_streams(spark: SparkSession, folder: Path, buckets: int, **options: Any) -> sj.Joined:
    def read(name: str) -> DataFrame:
        reader = spark.readStream.schema(SCHEMAS[name]).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(folder / name))

    a = sj.stream(read("a"), name="a", key="k", time="t", window="1 hour", lateness="0 seconds", unique=True)
    b = sj.stream(
        read("b"), name="b", key="k", time="t", lateness="0 seconds", punctuation=sj.marked("is_end")
    )
    c = sj.stream(
        read("c"),
        name="c",
        key="k",
        time="t",
        lateness="0 seconds",
        arrival=sj.clustered(slack=1),
        sequence=["part", "off"],
    )
    return sj.join(a, b, c, name="three", buckets=buckets, **options)


def run(joined: sj.Joined, checkpoint: Path, sink: Sink) -> None:
    def rows(frame: DataFrame, number: int) -> None:
        sink.runs.append(number)
        sink.rows[number] = frame.collect()

    query = joined.write(
        rows=rows,
        punctuations=lambda frame, number: sink.over.__setitem__(number, frame.collect()),
        violations=lambda frame, _: sink.violations.extend(frame.collect()),
        checkpoint=str(checkpoint),
        trigger={"availableNow": True},
    )
    query.awaitTermination()


def bring(folder: Path, tables: dict[str, list[pa.Table]], batches: int) -> None:
    for name, found in tables.items():
        write_batches(folder / name, found[:batches])


def rebucket(spark: SparkSession, checkpoint: Path, buckets: int, **options: Any) -> Path:
    asked = Rebucketing.of(spark, checkpoint, buckets, **options)
    asked.run(lambda _: None)
    return Path(asked.target)


def uncommit(checkpoint: Path, number: int) -> None:
    """As if the driver had died after the batch's work and before its commit."""
    (checkpoint / "commits" / str(number)).unlink()
    (checkpoint / "commits" / f".{number}.crc").unlink()


@pytest.mark.systems
def test_a_query_goes_on_in_other_buckets_exactly_where_it_stopped(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables, sink = make_tables(1), Sink()
    bring(tmp_path, tables, 3)
    run(three_streams(spark, tmp_path, 3), tmp_path / "checkpoint", sink)
    five = rebucket(spark, tmp_path / "checkpoint", 5)
    assert five == tmp_path / "checkpoint-5"
    bring(tmp_path, tables, 5)
    with pytest.raises(sj.StateFormatError, match="it is in 5 buckets, and this join has 3"):
        run(three_streams(spark, tmp_path, 3), shutil.copytree(five, tmp_path / "other"), Sink())
    run(three_streams(spark, tmp_path, 5), five, sink)
    uncommit(five, 4)
    two = rebucket(spark, five, 2, to=tmp_path / "deep" / "two")
    shutil.rmtree(tmp_path / "checkpoint")  # the new one stands alone
    shutil.rmtree(five)
    bring(tmp_path, tables, BATCHES)
    run(three_streams(spark, tmp_path, 2), two, sink)
    assert sink.runs == [0, 1, 2, 3, 4, 4, 5]  # batch 4 was planned, and ran again as planned
    assert sink.all_rows() == batch_join(tables)
    assert sink.all_over() == Counter(range((BATCHES - 3) * KEYS))
    assert sink.violations == []
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.systems
def test_a_state_whose_versions_have_ids_goes_on_too(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's second format of checkpoints names each version of the state in its commit."""
    tables = {name: found[:3] for name, found in make_tables(2).items()}
    sink = Sink()
    version = "spark.sql.streaming.stateStore.checkpointFormatVersion"
    before = spark.conf.get(version)
    spark.conf.set(version, "2")
    try:
        bring(tmp_path, tables, 2)
        run(three_streams(spark, tmp_path, 3), tmp_path / "checkpoint", sink)
        two = rebucket(spark, tmp_path / "checkpoint", 2)
        bring(tmp_path, tables, 3)
        run(three_streams(spark, tmp_path, 2), two, sink)
    finally:
        spark.conf.set(version, before)
    assert list((two / "state" / "0" / "0").glob("2_*.zip"))
    assert sink.runs == [0, 1, 2]
    assert sink.all_rows() == batch_join(tables)


# Several stateful operators, what the state says, what is refused


def two_joins(spark: SparkSession, folder: Path, first: int, second: int) -> DataFrame:
    """Two joins over the same files in one query, and Spark's own state behind them."""

    def pair(name: str, buckets: int) -> DataFrame:
        a = spark.readStream.schema("k long, a string").option("maxFilesPerTrigger", 1)
        b = spark.readStream.schema("k long, b long, is_end boolean").option("maxFilesPerTrigger", 1)
        one = sj.stream(a.parquet(str(folder / "one")), name="one", key="k", unique=True)
        many = sj.stream(
            b.parquet(str(folder / "many")), name="many", key="k", punctuation=sj.marked("is_end")
        )
        joined = sj.join(one, many, name=name, buckets=buckets).dataframe()
        return joined.selectExpr(f"'{name}' as who", "k", "a", "b")

    return pair("first", first).union(pair("second", second)).dropDuplicates(["who", "k"])


@pytest.mark.systems
def test_of_several_joins_one_can_be_cut_and_the_others_stay(spark: SparkSession, tmp_path: Path) -> None:
    ones = [pa.table({"k": range(i * 10, i * 10 + 10), "a": ["x"] * 10}) for i in range(2)]
    manys = [
        pa.table({"k": range(i * 10 - 5, i * 10 + 5), "b": range(10), "is_end": [False] * 10})
        for i in range(1, 3)
    ]
    found: dict[int, list[Any]] = {}

    def run_on(checkpoint: Path, first: int, second: int) -> None:
        writer = two_joins(spark, tmp_path, first, second).writeStream.option(
            "checkpointLocation", str(checkpoint)
        )
        writer = writer.foreachBatch(lambda frame, number: found.__setitem__(number, frame.collect()))
        writer.trigger(availableNow=True).start().awaitTermination()

    bring(tmp_path, {"one": ones, "many": manys}, 1)
    run_on(tmp_path / "checkpoint", 2, 2)
    operators = Checkpoint.at(spark, tmp_path / "checkpoint").operators()
    assert sum(one.variables == ("state",) for one in operators) == 2
    assert len(operators) == 3
    with pytest.raises(sj.InvalidJoin, match="no join 'third' here; give one of first, second"):
        rebucket(spark, tmp_path / "checkpoint", 3, join="third")
    three = rebucket(spark, tmp_path / "checkpoint", 3, join="second")
    buckets = {one.spec.name: one.spec.buckets for one in join_states(Checkpoint.at(spark, three))}
    assert buckets == {"first": 2, "second": 3}
    bring(tmp_path, {"one": ones, "many": manys}, 2)
    run_on(three, 2, 3)
    rows = Counter((row.who, row.k, row.a) for batch in found.values() for row in batch)
    assert rows == Counter((who, k, "x") for who in ("first", "second") for k in range(5, 20))


@pytest.fixture(scope="module")
def stopped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint after two batches of three streams in three buckets, the second not committed."""
    folder = tmp_path_factory.mktemp("stopped")
    bring(folder, make_tables(3), 2)
    run(three_streams(spark, folder, 3), folder / "checkpoint", Sink())
    uncommit(folder / "checkpoint", 1)
    return folder / "checkpoint"


def command(*words: Any) -> Any:
    return CliRunner().invoke(commands, [str(word) for word in words])


@pytest.fixture
def same_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands use the tests' own session, and leave it running."""

    @contextmanager
    def ours(conf: Any = ()) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("streamjoin.cli.state.quiet_session", ours)
    monkeypatch.setattr("streamjoin.cli.rebucket.quiet_session", ours)


def file_times(folder: Path) -> dict[Path, int]:
    """When each file was written; before 4.3 Spark's reader makes folders and removes them again."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.usefixtures("same_session")
def test_state_says_what_is_held_and_why(stopped: Path) -> None:
    before = file_times(stopped)
    told = command("state", stopped).output
    assert f"{stopped}: state after batch 0; batch 1 was planned and will run again" in told
    assert "three (operator 0): a ⋈ b ⋈ c, inner join, 3 buckets" in told
    assert "a: 20 tuples" in told
    assert "18 tuples wait until b closes their key or its event time passes 1970-01-01 01:00:00" in told
    assert "2 tuples wait until b closes their key or its event time passes" in told
    assert "and c closes their key or its event time" in told
    assert "it closes keys by punctuations of b (rows marked is_end)" in told
    assert "18 keys are remembered as come (unique) until b closes them too; keys" in told
    whole = json.loads(command("state", stopped, "--json", "--join", "three").output)
    assert (whole["batch"], whole["planned_batch"]) == (0, 1)
    (join,) = whole["joins"]
    assert [one["tuples"] for one in join["state"]["inputs"]] == [20, 4, 40]
    assert sorted(join["by_bucket"]) == ["0", "1", "2"]
    one = json.loads(command("state", stopped, "--json", "--bucket", "1").output)["joins"][0]
    assert one["state"] == join["by_bucket"]["1"]
    assert file_times(stopped) == before


@pytest.mark.usefixtures("same_session")
def test_rebucket_from_the_command_line(stopped: Path, tmp_path: Path) -> None:
    done = command("rebucket", stopped, "--buckets", 4, "--to", tmp_path / "four")
    assert done.exit_code == 0, done.output
    assert "three: bucket 4 of 4" in done.output
    assert f"{tmp_path / 'four'}: in 4 buckets; start the query from here" in done.output
    again = command("rebucket", stopped, "--buckets", 4, "--to", tmp_path / "four")
    assert "is there already; give another folder" in str(again.exception)
    same = command("rebucket", stopped, "--buckets", 3, "--to", tmp_path / "three")
    assert "in 3 buckets already; give another number" in str(same.exception)
    inside = command("rebucket", stopped, "--buckets", 4, "--to", stopped / "four")
    assert "lies in the old checkpoint" in str(inside.exception)
    assert "give 1 or more" in str(command("rebucket", stopped, "--buckets", 0).exception)
    assert "give one of 0 to 2" in str(command("state", stopped, "--bucket", 3).exception)
    assert "no join 'x' here; give one of three" in str(command("state", stopped, "--join", "x").exception)
    assert [path.name for path in tmp_path.iterdir()] == ["four"]


@pytest.mark.usefixtures("same_session")
def test_what_is_no_checkpoint_of_a_join_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    nothing = command("state", tmp_path)
    assert isinstance(nothing.exception, sj.StateFormatError)
    assert "is no checkpoint of a streaming query" in str(nothing.exception)
    write_batches(tmp_path / "in", [pa.table({"k": [1, 2]})])
    counts = spark.readStream.schema("k long").parquet(str(tmp_path / "in")).groupBy("k").count()
    writer = counts.writeStream.format("noop").outputMode("update").trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "counts")).start().awaitTermination()
    for words in (["state", tmp_path / "counts"], ["rebucket", tmp_path / "counts", "--buckets", 2]):
        assert "has no state of streamjoin; give" in str(command(*words).exception)
    (tmp_path / "counts" / "commits" / "0").unlink()
    assert "no finished batch yet" in str(command("state", tmp_path / "counts").exception)


@pytest.mark.usefixtures("same_session")
def test_a_lost_row_is_found_before_the_new_checkpoint_gets_its_name(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = HashRange.slice_of

    def wrong(stretch: HashRange, hashes: Any) -> slice:
        found = right(stretch, hashes)
        return slice(found.start, max(found.start, found.stop - 1))

    monkeypatch.setattr(HashRange, "slice_of", wrong)
    done = command("rebucket", stopped, "--buckets", 2, "--to", tmp_path / "two")
    assert isinstance(done.exception, sj.errors.InvariantBroken)
    assert "differs from the old one in rows of p0u, rows of p2c, rows of s0" in str(done.exception)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("same_session")
def test_a_full_disk_leaves_nothing_behind(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(CutJoin, "write", full)
    done = command("rebucket", stopped, "--buckets", 2, "--to", tmp_path / "two")
    assert isinstance(done.exception, sj.errors.LimitExceeded)
    assert "No space left on device" in str(done.exception)
    assert str(done.exception).endswith("free some, or give --to on another disk")
    assert not list(tmp_path.iterdir())


def test_the_state_of_a_running_query_is_read(spark: SparkSession, tmp_path: Path) -> None:
    bring(tmp_path, make_tables(4), 1)
    query = three_streams(spark, tmp_path, 2).write(
        rows=lambda frame, _: frame.collect(), checkpoint=str(tmp_path / "live")
    )
    try:
        query.processAllAvailable()
        (live,) = join_states(Checkpoint.at(spark, tmp_path / "live"))
        assert live.whole.inputs[0].tuples == KEYS
        bring(tmp_path, make_tables(4), 2)
        query.processAllAvailable()
        (live,) = join_states(Checkpoint.at(spark, tmp_path / "live"))
        assert live.whole.inputs[0].tuples == 2 * KEYS
    finally:
        query.stop()
