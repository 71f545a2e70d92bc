"""The number of buckets changes in place: for joins over joins and enrichments, on any file system; and a
kill in the middle leaves a checkpoint to go on from and says which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession

import streamjoin as sj
from streamjoin.cli.main import commands
from streamjoin.spark.checkpoint.in_place import Switch, refuse_unfinished, unfinished
from streamjoin.spark.checkpoint.inspect import join_states
from streamjoin.spark.checkpoint.reader import Checkpoint
from streamjoin.spark.files import Files
from tests.spark.streams import write_batches


class Killed(Exception):
    """As if the process had been killed."""


class Disk:
    """Files in memory, by path; a kill comes after so many changes."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files, self.left = dict(files), 10_000

    def _change(self) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def write(self, path: str, text: str) -> None:
        self._change()
        self.files[path] = text

    def remove(self, path: str) -> None:
        for name in sorted(self.files):
            if name == path or name.startswith(f"{path}/"):
                self._change()
                del self.files[name]

    def copy(self, source: str, target: str) -> None:
        for name in sorted(self.files):
            if name == source or name.startswith(f"{source}/"):
                self._change()
                self.files[target + name[len(source) :]] = self.files[name]


OLD = {f"c/state/{n}/{part}/7.zip": f"old {n} {part}" for n in range(2) for part in range(2)}
NEW = {path.replace("c/", "c.rebucketed/", 1): text.replace("old", "new") for path, text in OLD.items()}
REST = {"c/offsets/6": "offsets", "c.tables/t/1": "old table", "c.rebucketed.tables/t/1": "new table"}
REPLACED = tuple(f"state/{n}/{part}" for n in range(2) for part in range(2))


def test_a_kill_at_any_moment_of_the_switch_leaves_the_old_one_or_says_how_to_finish() -> None:
    switch = Switch("c", "c.rebucketed", "c-before-rebucket", 5, REPLACED, (".tables",))
    wanted = {
        **{path: text.replace("old", "new") for path, text in OLD.items()},
        "c/offsets/6": "offsets",
        "c.tables/t/1": "new table",
    }
    seen: Counter[str] = Counter()
    for moment in range(60):
        disk: Any = Disk({**OLD, **NEW, **REST})
        disk.left = moment
        try:
            switch.run(disk, lambda _: None)
            seen["done"] += 1
        except Killed:
            found = unfinished(disk, "c")
            if found is None and disk.files == {**OLD, **NEW, **REST}:
                seen["before"] += 1  # nothing of the old one was touched
                continue
            disk.left = 10_000
            if found is None:  # the new one is whole, and its work folder is what is left
                assert {path: text for path, text in disk.files.items() if "rebucketed" not in path} == wanted
                seen["after"] += 1
                continue
            with pytest.raises(sj.StateFormatError, match="the copy of the old one, c-before-rebucket"):
                refuse_unfinished(disk, "c")
            found.finish(disk, lambda _: None)
            seen["finished"] += 1
        assert disk.files == wanted
    assert min(seen[what] for what in ("before", "finished", "after", "done")) > 0


ROWS = {
    "a": [pa.table({"k": [i, i + 4], "x": [f"a{i}", f"a{i + 4}"]}) for i in range(4)],
    "b": [pa.table({"k": [(i + 1) % 4, i + 4], "y": [i, i]}) for i in range(4)],
    "c": [pa.table({"k": [(i + 2) % 4], "z": [f"c{i}"]}) for i in range(4)],
}
ANSWER = {
    (a["k"], a["x"], b["y"], c["z"])
    for a in pa.concat_tables(ROWS["a"]).to_pylist()
    for b in pa.concat_tables(ROWS["b"]).to_pylist()
    for c in pa.concat_tables(ROWS["c"]).to_pylist()
    if a["k"] == b["k"] == c["k"]
}
SCHEMAS = {"a": "k long, x string", "b": "k long, y long", "c": "k long, z string"}


def chain(spark: SparkSession, folder: Path) -> sj.Joined:
    def stream(name: str) -> sj.Stream:
        reader = spark.readStream.schema(SCHEMAS[name]).option("maxFilesPerTrigger", 1)
        return sj.stream(reader.parquet(str(folder / name)), name=name, key="k", unique=name != "b")

    lower = sj.stream(sj.join(stream("a"), stream("b"), name="lower"), name="ab", key="k")
    return sj.join(lower, stream("c"), name="upper")


def run(joined: Any, checkpoint: str) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []

    def sink(frame: DataFrame, _: int) -> None:
        found.extend(tuple(row) for row in frame.collect())

    joined.write(rows=sink, checkpoint=checkpoint, trigger={"availableNow": True}).awaitTermination()
    return found


def bring(folder: Path, batches: int) -> None:
    for name, tables in ROWS.items():
        write_batches(folder / name, tables[:batches])


@pytest.fixture
def command(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command line, on the tests' own session."""

    @contextmanager
    def ours(conf: Any = ()) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("streamjoin.cli.rebucket.quiet_session", ours)
    return lambda *words: CliRunner().invoke(commands, ["rebucket", *map(str, words)])


def buckets(spark: SparkSession, checkpoint: str) -> dict[str, int]:
    states = join_states(Checkpoint.at(spark, checkpoint))
    return {one.to_json()["join"]: one.to_json()["buckets"] for one in states}


@pytest.mark.spark
@pytest.mark.systems
@pytest.mark.filterwarnings("ignore::streamjoin.UnboundedState")
def test_a_join_over_a_join_on_another_file_system_goes_on_after_a_kill_in_the_switch(
    spark: SparkSession, tmp_path: Path, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint is on viewfs, Hadoop's own, which no path of this machine leads to."""
    (tmp_path / "mounted").mkdir()
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.viewfs.mounttable.restart.link./data", f"file://{tmp_path}/mounted")
    checkpoint = "viewfs://restart/data/checkpoint"
    bring(tmp_path, 2)
    found = run(chain(spark, tmp_path), checkpoint)
    copy, copies = Files.copy, []

    def killed(files: Files, source: str, target: str) -> None:
        copies.append(target)
        if unfinished(files, checkpoint) is not None and len(copies) % 3 == 0:
            raise Killed
        copy(files, source, target)

    with monkeypatch.context() as patch:
        patch.setattr(Files, "copy", killed)
        assert isinstance(command(checkpoint, "--buckets", 3, "--in-place").exception, Killed)
    bring(tmp_path, 3)
    with pytest.raises(sj.StateFormatError, match=r"finish it with `streamjoin rebucket .* --in-place`, or"):
        run(chain(spark, tmp_path), checkpoint)
    done = command(checkpoint, "--in-place")
    assert done.exit_code == 0, done.exception
    assert f"{checkpoint}: in 3 buckets; start the query from here" in done.output
    assert buckets(spark, checkpoint) == {"lower": 3, "upper": 3}
    kept = f"{checkpoint}-before-rebucket"
    assert buckets(spark, kept) == {"lower": 2, "upper": 2}
    third = run(chain(spark, tmp_path), checkpoint)
    assert Counter(run(chain(spark, tmp_path), kept)) == Counter(third)  # either can be gone on from
    bring(tmp_path, 4)
    assert "is there already, a copy" in str(command(checkpoint, "--buckets", 1, "--in-place").exception)
    Files(spark).remove(kept)
    assert command(checkpoint, "--buckets", 1, "--in-place", "--join", "lower").exit_code == 0
    assert buckets(spark, checkpoint) == {"lower": 1, "upper": 3}
    found += third + run(chain(spark, tmp_path), checkpoint)
    assert Counter(found) == Counter(ANSWER)
    assert sorted(path.name for path in (tmp_path / "mounted").iterdir()) == [
        "checkpoint",
        "checkpoint-before-rebucket",
    ]


@pytest.mark.spark
@pytest.mark.systems
def test_enrichments_change_their_buckets_in_place(spark: SparkSession, tmp_path: Path, command: Any) -> None:
    def enriched() -> sj.Enriched:
        reader = spark.readStream.schema(SCHEMAS["a"]).option("maxFilesPerTrigger", 1)
        tables = [
            sj.table(
                pa.table({"k": range(8), name: range(8)}),
                name=name,
                key="k",
                memory="1 MB",
                version="1",
                cycle_batches=3,
            )
            for name in ("one", "two")
        ]
        return sj.enrich(sj.stream(reader.parquet(str(tmp_path / "a")), name="a", key="k"), *tables)

    checkpoint = str(tmp_path / "checkpoint")
    bring(tmp_path, 2)
    found = run(enriched(), checkpoint)
    assert command(checkpoint, "--buckets", 5, "--in-place").exit_code == 0
    assert buckets(spark, checkpoint) == {"enrich": 5, "enrich_one": 5}
    bring(tmp_path, 4)
    for _ in range(3):
        found += run(enriched(), checkpoint)
    assert Counter(found) == Counter((k, f"a{k}", k, k) for k in range(8))
    assert [version.form.buckets for version in _versions(enriched(), checkpoint)] == [5, 5]


def _versions(enriched: sj.Enriched, checkpoint: str) -> list[Any]:
    from streamjoin.spark.enrich_frame import SparkEnrich

    return SparkEnrich.versions(enriched.plan, checkpoint)
