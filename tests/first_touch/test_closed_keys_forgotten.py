"""Closed keys are forgotten once watermarks are past what they could match; else `explain()` says so."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.join.persistence.rebucket import rebucketed
from streamjoin.join.persistence.snapshot import restore, store
from streamjoin.join.persistence.stored_spec import declared, read_spec
from streamjoin.state.run import Run
from streamjoin.state.stores import InMemoryRuns, encoded
from tests.tables import WAYS, Story, at, stream, unbounded_is_meant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = unbounded_is_meant
in_every_way = pytest.mark.parametrize("way", WAYS)
WINDOWS = {"a": "10 seconds", "b": "30 seconds"}
TIMED = {"time": "t", "lateness": "0 seconds", "punctuation": sj.closing("last")}


def two(how: str = "inner", windows: dict[str, str] = WINDOWS, **declared: object) -> sj.Joined:
    a, b = (
        stream(name, f"k t:time {name}_x last:bool", window=windows.get(name), **{**TIMED, **declared})
        for name in "ab"
    )
    return sj.join(a, b, how=how)


def remembered(run: Story) -> int:
    return run.state().closed_keys


# ---------------------------------------------------------------- the line itself


@pytest.mark.parametrize("how", ["inner", "left", "right", "left_semi", "left_anti"])
@pytest.mark.parametrize("declared", [{}, {"unique": True, "punctuation": None}], ids=["closing", "unique"])
def test_keys_that_one_input_never_brings_do_not_pile_up(how: str, declared: dict[str, object]) -> None:
    """A row each second on both inputs, every key closed by its row, a fifth of the keys only on a."""
    joined = two(how, **declared)
    run = joined.local()
    schemas = {one.name: one.schema for one in joined.plan.streams}
    most = 0
    for start in range(0, 2000, 20):
        seconds = list(range(start, start + 20))
        for name in "ab":
            keys = [k for k in seconds if name == "a" or k % 5]
            columns = {"k": keys, "t": [at(k) for k in keys], f"{name}_x": keys, "last": [True] * len(keys)}
            run.push(name, pa.table(columns, schema=schemas[name]))
        most = max(most, run.state().closed_keys)
    assert most < 60
    assert run.forecast().closed_keys < 60
    assert "bounded" in joined.explain()
    assert joined.plan.bounds[0].closed_keys


@in_every_way
def test_a_key_is_forgotten_when_the_watermarks_are_past_its_time_and_window(way: str) -> None:
    """Closed at 100 on a, whose window is 10 s: a must be past 100 and b past 110."""
    run = Story(two(), way)
    run.push("a", "k t a_x last\n1 100 1 true")
    run.push("b", "k t b_x last\n2 110 1 false")
    assert run.push("a", "k t a_x last\n3 101 1 false") == []
    assert run.violations() == []
    run.push("a", "k t a_x last\n1 101 2 false")  # b is at 110, not past it
    assert [one[:2] for one in run.violations()] == [("a", "after_punctuation")]
    run.push("b", "k t b_x last\n2 111 1 false")
    run.push("a", "k t a_x last\n1 102 3 false")  # a new key
    assert run.violations() == []
    assert run.push("b", "k t b_x last\n1 111 5 false") == [(1, 102, 3, False, 111, 5, False)]


@in_every_way
def test_its_own_watermark_must_be_past_the_time_too(way: str) -> None:
    run = Story(two(), way)
    run.push("a", "k t a_x last\n1 100 1 true")
    run.push("b", "k t b_x last\n2 500 1 false")
    run.push("a", "k t a_x last\n1 100 2 false")
    assert [one[:2] for one in run.violations()] == [("a", "after_punctuation")]
    assert remembered(run) > 0
    run.push("a", "k t a_x last\n3 101 1 false")
    run.push("a", "k t a_x last\n1 101 2 false")
    assert run.violations() == []


@in_every_way
def test_rows_of_a_remembered_key_are_dropped_and_a_late_punctuation_propagates_it_again(way: str) -> None:
    run = Story(two(), way)
    run.step(a="k t a_x last\n9 100 1 false", b="k t b_x last\n9 100 1 false")
    run.punctuate("a", k=1)
    assert run.punctuations() == ["<1>"]
    run.push("b", "k t b_x last\n1 105 1 false")
    assert run.held()["b"] == 1  # key 9 only
    run.punctuate("a", k=1)
    assert run.punctuations() == []
    run.step(a="k t a_x last\n9 200 1 false", b="k t b_x last\n9 200 1 false")
    assert remembered(run) == 0
    run.push("b", "k t b_x last\n1 201 1 true")
    run.step(a="k t a_x last\n9 300 1 false", b="k t b_x last\n9 300 1 false")
    assert run.punctuations() == ["<1>"]
    assert run.held() == {"a": 1, "b": 1}


def test_a_group_of_a_forgotten_key_is_emitted_once() -> None:
    grouped = two("left").group_by("k").agg(n=("*", "count"))
    run = Story(grouped)
    run.step(a="k t a_x last\n1 100 1 false", b="k t b_x last\n1 100 1 true")
    run.step(a="k t a_x last\n1 300 2 false", b="k t b_x last\n2 300 1 false")
    run.step(a="k t a_x last\n1 400 2 true", b="k t b_x last\n2 400 1 false")
    assert remembered(run) == 1  # a has closed 1; b's closed key is forgotten
    assert run.step(a="k t a_x last\n5 500 2 false", b="k t b_x last\n2 500 1 false") == [(1, 3)]


# ---------------------------------------------------------------- it is state like any other


def test_the_time_survives_rebucketing_and_compaction() -> None:
    joined = two()
    run = joined.local()
    for start in range(12):
        keys = list(range(100 * start, 100 * start + 100))
        columns = {"k": keys, "t": [at(start)] * 100, "a_x": keys, "last": [True] * 100}
        run.push("a", pa.table(columns, schema=joined.plan.streams[0].schema))
    stored = run.join.closed_keys[0].constants
    assert len(list(stored.side.runs)) < 12  # compacted
    whole = sorted(stored.side.live().time.tolist())
    assert whole == [start * 1_000_000 for start in range(12) for _ in range(100)]
    runs: dict[str, bytes] = {}

    def save(run: Run) -> str:
        name, runs[name] = encoded(run)
        return name

    manifest = store(run.join, save)
    spec = read_spec(manifest.identity, declared(joined.plan.spec), joined.plan.spec.compaction)
    buckets = list(rebucketed(spec, [manifest], lambda _: restore(spec, manifest, InMemoryRuns(runs)), 3))
    times = [bucket.closed_keys[0].constants.side.live().time.tolist() for bucket in buckets]
    assert all(times)
    assert sorted(each for some in times for each in some) == whole


def test_no_window_on_an_open_input_is_unbounded_and_said_so() -> None:
    """b never closes a key and has no window: what a has closed is remembered for ever."""
    a = stream("a", "k t:time a_x last:bool", window="10 seconds", **TIMED)
    b = stream("b", "k t:time b_x", time="t", lateness="0 seconds")
    joined = sj.join(a, b)
    assert "a: tuples bounded, remembered keys unbounded" in joined.explain()
    assert "or window= on b, so that closed keys of a are forgotten" in joined.explain()
    with pytest.raises(sj.InvalidJoin, match="so that closed keys of a are forgotten"):
        sj.join(a, b, strict=True)
    rates = {"a": sj.Rate(10, open_for="1 second"), "b": sj.Rate(10)}
    assert "864,000 closed keys (and growing)" in joined.explain(rates=rates)
    windowed = sj.join(a, stream("b", "k t:time b_x", time="t", lateness="0 seconds", window="5 seconds"))
    assert "100 closed keys, " in windowed.explain(rates=rates)
    assert sj.join(*windowed.plan.streams, strict=True)


def test_a_full_join_needs_both_inputs_to_close_a_key_and_says_so() -> None:
    told = two("full").explain()
    assert "closed keys of a are remembered until b closes them too, provided every key that a closes" in told
    run = Story(two("full").group_by("k").agg(n=("*", "count")))
    run.step(a="k t a_x last\n1 100 1 true", b="k t b_x last\n9 100 1 false")
    run.step(a="k t a_x last\n8 900 1 false", b="k t b_x last\n9 900 1 false")
    assert run.push("b", "k t b_x last\n1 901 1 true") == [(1, 2)]


# ---------------------------------------------------------------- on Spark


@pytest.mark.spark
@pytest.mark.systems
def test_spark_forgets_closed_keys_across_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    from tests.spark.streams import run, stream_of

    def batches(name: str, share: slice) -> list[pa.Table]:
        starts = range(0, 160, 20)[share]
        keys = [[k for k in range(start, start + 20) if name == "a" or k % 5] for start in starts]
        return [
            pa.table({"k": each, "t": [at(k) for k in each], f"{name}_x": each, "last": [True] * len(each)})
            for each in keys
        ]

    counted = []
    for share in (slice(0, 4), slice(0, 8)):  # the second query goes on from the first one's checkpoint
        a, b = (
            sj.stream(
                stream_of(spark, tmp_path / name, batches(name, share)),
                name=name,
                key="k",
                window=WINDOWS[name],
                **TIMED,
            )
            for name in "ab"
        )
        found = run(sj.join(a, b, name="both", buckets=2, strict=True), tmp_path / "checkpoint")
        counted += [each["both"]["closed_keys"] for each in found.progress if each]
        assert len(found.rows) == 64
        assert not found.violations
    # Of each batch 4 keys are missing on b. They are closed until the next batch is past a's window: 4. They
    # are propagated when their tuples are evicted, 2 in their own batch and 2 in the next, and that is
    # remembered no longer than the key: 2.
    assert set(counted) == {4 + 2}
