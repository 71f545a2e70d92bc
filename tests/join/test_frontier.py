"""Windows inside a batch: a large batch evicts while it is at work, and its answer is that of a small one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.join.frontier import WindowEviction
from streamjoin.join.operator import StreamJoin
from tests.tables import NOTHING, WAYS, Story, rows, stream, unbounded_is_meant

PER_SECOND, SECONDS = 100, 40
SCHEMA = pa.schema({"k": pa.int64(), "t": pa.timestamp("us"), "v": pa.int64()})
WINDOW = {"time": "t", "window": "1 second", "lateness": "0 seconds"}


def seconds_of_events(seed: int) -> pa.Table:
    count = PER_SECOND * SECONDS
    times = pa.array(np.arange(count) * 1_000_000 // PER_SECOND, pa.timestamp("us"))
    keys = np.random.default_rng(seed).integers(0, 50, count)
    return pa.table({"k": keys, "t": times, "v": np.arange(count)}, schema=SCHEMA)


@pytest.fixture
def most_stored(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tuples that were stored after each turn."""
    stored: list[int] = []
    real = StreamJoin._turn

    def turn(self: StreamJoin, *given: Any) -> Any:
        yield from real(self, *given)
        stored.append(sum(side.live_rows for side in self.sides))

    monkeypatch.setattr(StreamJoin, "_turn", turn)
    return stored


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({"goal": "memory"}, 400),
        ({"operator": "pwjoin"}, 400),
        ({"memory": "64 MB"}, 1300),
        ({"goal": "memory", "driver": sj.Timestamp(quota=20)}, 230),
    ],
)
def test_a_large_batch_stores_what_its_windows_need(
    options: dict[str, Any], most: int, most_stored: list[int]
) -> None:
    """40 s of events with windows of 1 s: 201 tuples can still match; it stored 8,000."""
    batch = {"a": seconds_of_events(1), "b": seconds_of_events(2)}

    def results(**options: Any) -> Counter[Any]:
        streams = [sj.stream(SCHEMA, name=name, key="k", **WINDOW) for name in "ab"]
        return Counter(rows(sj.join(*streams, **options).local().step(batch)))

    expected = results()
    assert max(most_stored) == 2 * PER_SECOND * SECONDS
    most_stored.clear()
    assert results(**options) == expected
    assert max(most_stored) <= most


def test_explain_says_it() -> None:
    streams = [sj.stream(SCHEMA, name=name, key="k", **WINDOW) for name in "ab"]
    says = "in the order of event time: windows evict while a batch is at work"
    assert says in sj.join(*streams, goal="memory").explain()
    assert says in sj.join(*streams, memory="64 MB").explain()
    assert (
        "as pwjoin does: tuples in the order of their event times"
        in sj.join(*streams, operator="pwjoin").explain()
    )
    assert says not in sj.join(*streams).explain()


@pytest.mark.parametrize("way", WAYS)
def test_a_tuple_stays_for_a_row_that_is_late_in_its_batch(way: Any) -> None:
    """The rows of b come in no order: the last one still matches the first of a."""
    declared = {"time": "t", "window": "5 seconds", "lateness": "20 seconds"}
    a, b = (stream(name, f"k t:time {name}v", **declared) for name in "ab")
    joined = sj.join(a, b, goal="memory", driver=sj.Timestamp(quota=1))
    run = Story(joined, way)
    found = run.step(a="k t av\n1 0 1\n1 30 2", b="k t bv\n1 29 3\n1 16 4\n1 4 5")
    assert found == [(1, 0, 1, 4, 5), (1, 30, 2, 29, 3)]
    assert run.push("a", "k t av\n1 17 6") == [(1, 17, 6, 16, 4)]  # within the lateness: b's 16 was kept
    assert run.violations() == NOTHING


# ---------------------------------------------------------------- the same answer


HOW = ["inner", "left", "right", "full", "left_semi", "left_anti"]


def drawn(seed: int) -> tuple[list[Any], dict[str, Any], list[dict[str, pa.Table]]]:
    """Streams, how they are joined, and batches in which rows come too late too."""
    rng = Random(seed)
    count = rng.choice([2, 2, 3])
    how = rng.choice(HOW if count == 2 else ["inner", "left"])
    streams = []
    for name in "abc"[:count]:
        declared: dict[str, Any] = {"time": f"{name}t", "lateness": f"{rng.choice([0, 2, 6])} seconds"}
        window = rng.choice([1, 3, 8, None])
        declared |= {} if window is None and name != "a" else {"window": f"{window or 4} seconds"}
        declared["punctuation"] = sj.marked("over", ignore_data=True)
        declared["on_violation"] = rng.choice(["drop", "drop", "keep"])
        declared["unique"] = rng.random() < 0.2
        streams.append(stream(name, f"k {name}t:time {name}v over:bool", **declared))
    batches, clock, number = [], 0, 0
    for _ in range(rng.randint(2, 5)):
        batch = {}
        for one in streams:
            data: dict[str, list[Any]] = {name: [] for name in one.schema.names}
            time = clock
            for _ in range(rng.randint(0, 12)):
                number += 1
                over = rng.random() < 0.1
                time += rng.choice([0, 1, 1, 3])
                at = max(0, time - rng.choice([0, 0, 1, 4])) * 1_000_000
                for name, value in zip(data, (rng.randint(0, 4), at, number, over), strict=True):
                    data[name].append(value)
            batch[one.name] = pa.table(data).cast(one.schema)
        clock += rng.randint(3, 15)
        batches.append(batch)
    options = {"how": how, "driver": rng.choice([sj.Timestamp(1), sj.Timestamp(3), "round_robin"])}
    return streams, options, batches


def answer(seed: int, *, within: bool) -> tuple[Any, ...]:
    """Rows and violations of each batch, punctuations, and what is stored after it."""
    streams, options, batches = drawn(seed)
    plan = sj.join(*streams, **options).plan
    run = sj.Joined(replace(plan, spec=replace(plan.spec, evicts_within=within))).local()
    found = []
    for batch in batches:
        result = Counter(rows(run.step(batch)))
        told = sorted(str(each) for each in run.violations())
        found.append((result, told, sorted(map(str, run.punctuations())), run.state().rows))
    found.append(Counter(rows(run.finish())))
    return tuple(found)


@unbounded_is_meant
def test_the_answer_is_that_of_eviction_after_the_batch() -> None:
    for seed in range(60):
        assert answer(seed, within=True) == answer(seed, within=False), f"seed {seed}"


@unbounded_is_meant
def test_planted_the_next_batch_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the frontier of the rows that are left alone, tuples leave that the next batch matches."""
    monkeypatch.setattr(WindowEviction, "_at_least_after", lambda self, _: [1 << 62] * len(self.spec.inputs))
    assert any(answer(seed, within=True) != answer(seed, within=False) for seed in range(40))


# ---------------------------------------------------------------- finished keys


@unbounded_is_meant
@pytest.mark.parametrize("propagate", [True, False])
def test_rows_of_a_finished_key_are_not_looked_up(propagate: bool) -> None:
    """PWJoin section 4.4: a has closed 1 and stores nothing of it: rows of b are dropped before the probe."""
    a, b = stream("a", "k x over:bool", punctuation=sj.marked("over", ignore_data=True)), stream("b", "k y")
    run = sj.join(a, b, propagate=propagate).local()
    run.push("a", pa.table({"k": [1, 2], "x": [1, 2], "over": [True, False]}, schema=a.schema))
    run.push("b", pa.table({"k": [1, 1, 3], "y": [1, 2, 3]}))
    counters = run.counters()
    assert (counters["b_not_stored"], counters["b_probes"], counters["b_stored"]) == (2, 1, 1)
    assert len(run.punctuations()) == propagate
    run.finish()
    assert len(run.join.state.propagated) == 0
