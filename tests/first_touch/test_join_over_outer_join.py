"""A join over an outer join is sent a watermark: what the lower join gives late broke nothing."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import streamjoin as sj
from tests.tables import WAYS, Story, at, stream, unbounded_is_meant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = unbounded_is_meant
in_every_way = pytest.mark.parametrize("way", WAYS)
TIMED = {"lateness": "0 seconds"}


def lower(how: str = "left", *, window: str | None = "10 seconds", **declared: Any) -> sj.Joined:
    a = stream("a", "k t:time x", time="t", window=window, **TIMED, **declared)
    return sj.join(
        a, stream("b", "k u:time y", time="u", window="10 seconds", **TIMED), how=how, name="lower"
    )


def upper(joined: sj.Joined, **declared: Any) -> sj.Joined:
    ab = sj.stream(joined, name="ab", key="k", time="t", window="5 seconds", **declared)
    c = stream("c", "k v:time z", time="v", window="5 seconds", **TIMED)
    return sj.join(ab, c, how="left", name="upper")


@in_every_way
def test_padded_rows_are_not_late(way: str) -> None:
    """A match at 100 leaves at once, the row of 95 padded later: with a lateness of 0 it was a violation."""
    run = Story(upper(lower(), lateness="0 seconds"), way)
    run.push("a", "k t x\n1 95 1\n2 100 2")
    run.push("b", "k u y\n2 100 7")
    run.push("c", "k v z\n1 95 5\n2 100 6")
    assert run.push("b", "k u y\n9 106 7") == [(1, 95, 1, None, None, 95, 5)]
    assert run.violations() == []


@pytest.mark.parametrize(("a", "b", "watermark"), [(100, 60, 50), (60, 100, 60), (100, 105, 95)])
def test_the_watermark_is_the_least_of_its_own_and_the_others_less_its_window(
    a: int, b: int, watermark: int
) -> None:
    run = Story(upper(lower()))
    run.push("a", f"k t x\n1 {a} 1")
    run.push("b", f"k u y\n2 {b} 7")
    assert run.run.join.watermarks[0] == watermark * 1_000_000


def test_an_input_that_has_ended_holds_nothing_back() -> None:
    run = Story(upper(lower()))
    run.push("a", "k t x\n1 100 1")
    run.push("b", "k u y\n2 60 7")
    run.end("b")
    assert run.run.join.watermarks[0] == 100_000_000


def test_a_declared_lateness_is_ignored_with_a_note() -> None:
    told = upper(lower(), lateness="7 seconds").explain()
    assert "its watermark for t, the time of a, is sent by join lower (lateness 7 s is ignored" in told
    assert "is ignored" not in upper(lower()).explain()


def test_without_a_window_on_the_input_a_window_above_is_refused() -> None:
    with pytest.raises(sj.InvalidJoin, match="no lateness is enough; add window= to a"):
        upper(lower(window=None), lateness="1 hour")
    ab = sj.stream(lower(window=None), name="ab", key="k", time="t")
    assert sj.join(ab, stream("c", "k z"))  # without a window above it may be


@pytest.mark.parametrize(("how", "time"), [("left", "u"), ("right", "t"), ("full", "t"), ("full", "u")])
def test_the_time_of_a_side_that_may_be_null_is_refused(how: str, time: str) -> None:
    with pytest.raises(sj.InvalidJoin, match="is null where join 'lower'"):
        sj.stream(lower(how), name="ab", key="k", time=time)


def test_inner_joins_without_a_window_keep_the_declared_lateness() -> None:
    told = upper(lower("inner", window=None), lateness="7 seconds").explain()
    assert "lateness 7 s" in told
    assert "is sent by" not in told


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("how", ["inner", "left", "left_anti", "left_semi"])
def test_the_answer_is_that_of_the_batch_join_whatever_the_interleaving(how: str, seed: int) -> None:
    """Closed keys pad at once, others when the window is over; the inputs advance unevenly."""
    rng = random.Random(seed)
    rows: dict[str, list[tuple[int, int, int]]] = {}
    for name in "abc":
        times = sorted(rng.sample(range(200), 60))
        rows[name] = [(rng.randrange(8), t, n) for n, t in enumerate(times)]
    run = Story(upper(lower(how)))
    heads = {"a": "k t x", "b": "k u y", "c": "k v z"}
    left = {name: list(each) for name, each in rows.items()}
    found: Counter[Any] = Counter()
    closed: set[int] = set()
    while any(left.values()):
        name = rng.choice([each for each in left if left[each]])
        size = rng.randint(1, 12)
        batch, left[name] = left[name][:size], left[name][size:]
        text = "\n".join([heads[name], *(" ".join(map(str, row)) for row in batch)])
        found.update(run.push(name, text))
        over = {k for k, _, _ in rows["b"]} - {k for k, _, _ in left["b"]} - closed
        for k in over:
            found.update(run.punctuate("b", k=k))
        closed |= over
    found.update(run.finish())
    assert run.violations() == []
    below = batch_left(rows["a"], rows["b"], how)
    wanted = Counter((k, *head, *tail) for k, head, tail in batch_top(below, rows["c"]))
    assert found == wanted


def batch_left(a: list[Any], b: list[Any], how: str) -> list[tuple[int, tuple[Any, ...]]]:
    found: list[tuple[int, tuple[Any, ...]]] = []
    for k, t, x in a:
        met = [(u, y) for other, u, y in b if other == k and abs(t - u) <= 10]
        if how == "left_semi":
            found += [(k, (t, x))] if met else []
        elif how == "left_anti":
            found += [] if met else [(k, (t, x))]
        else:
            found += [(k, (t, x, *each)) for each in met]
            if how == "left" and not met:
                found.append((k, (t, x, None, None)))
    return found


def batch_top(below: list[tuple[int, tuple[Any, ...]]], c: list[Any]) -> list[Any]:
    found: list[Any] = []
    for k, head in below:
        met = [(v, z) for other, v, z in c if other == k and abs(head[0] - v) <= 5]
        found += [(k, head, each) for each in met or [(None, None)]]
    return found


def test_three_levels_pass_their_watermarks_on() -> None:
    ab = sj.stream(lower(), name="ab", key="k", time="t", window="20 seconds")
    c = stream("c", "k v:time z", time="v", window="5 seconds", **TIMED)
    middle = sj.join(ab, c, how="left", name="middle")
    abc = sj.stream(middle, name="abc", key="k", time="t", window="5 seconds")
    d = stream("d", "k w:time q", time="w", window="5 seconds", **TIMED)
    run = Story(sj.join(abc, d, name="top"))
    run.step(a="k t x\n1 100 1", b="k u y\n2 100 7", c="k v z\n2 80 7")
    assert run.run.join.watermarks[0] == 60_000_000  # min(min(100, 100 - 10), 80 - 20)
    assert [*itertools.islice(run.violations(), 1)] == []


@pytest.mark.spark
@pytest.mark.systems
def test_spark_sends_the_watermark_too(spark: SparkSession, tmp_path: Path) -> None:
    """A file a second; b is silent on odd keys, so half of a's rows leave padded, 10 s after matches do."""
    from tests.spark.streams import run, stream_of

    columns = {"a": ("t", "x"), "b": ("u", "y"), "c": ("v", "z")}
    rows = {
        "a": [[(k, 5 * i, 4 * i + k) for k in range(4)] for i in range(8)],
        "b": [[(k, 5 * i, 4 * i + k) for k in (0, 2)] for i in range(8)],
        "c": [[(k, 5 * i + 1, 4 * i + k) for k in range(4)] for i in range(8)],
    }
    frames = {}
    for name, (time, value) in columns.items():
        tables = [
            pa.table(
                {
                    "k": [k for k, _, _ in each],
                    time: [at(t) for _, t, _ in each],
                    value: [v for *_, v in each],
                }
            )
            for each in rows[name]
        ]
        frames[name] = stream_of(spark, tmp_path / name, tables)
    a, b, c = (
        sj.stream(frames[name], name=name, key="k", time=time, window=window, **TIMED)
        for (name, (time, _)), window in zip(
            columns.items(), ["10 seconds", "10 seconds", "5 seconds"], strict=True
        )
    )
    ab = sj.stream(
        sj.join(a, b, how="left", name="lower", buckets=2),
        name="ab",
        key="k",
        time="t",
        window="5 seconds",
        lateness="0 seconds",
    )
    found = run(sj.join(ab, c, name="upper", buckets=3), tmp_path / "checkpoint")
    assert not found.violations
    below = batch_left([*itertools.chain(*rows["a"])], [*itertools.chain(*rows["b"])], "left")
    wanted = Counter(
        (k, *head[1::2], tail[1])
        for k, head, tail in batch_top(below, [*itertools.chain(*rows["c"])])
        if tail[1] is not None
    )
    padded = {key for key in wanted if key[2] is None}
    given = Counter((row.k, row.x, row.y, row.z) for row in found.rows)
    assert set(given) <= set(wanted)
    assert any(key in padded for key in given)  # and what is still waiting is not late, but to come
    matched = Counter({key: count for key, count in wanted.items() if key[2] is not None})
    assert matched <= given
