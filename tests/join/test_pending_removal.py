"""Batch purging: what a purge propagates leaves at once; removing tuples may wait, and changes no answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.join import operator
from tests.join.test_frontier import drawn
from tests.tables import NOTHING, WAYS, Story, rows, stream, unbounded_is_meant

pytestmark = unbounded_is_meant
ROOMY = [way for way in WAYS if way != "spilled"]


def ends(name: str, columns: str, **declared: Any) -> Any:
    return stream(name, f"{columns} end:bool", punctuation=sj.marked("end", ignore_data=True), **declared)


@pytest.mark.parametrize("way", ROOMY)
def test_padded_rows_and_punctuations_do_not_wait(way: Any) -> None:
    """With a left join: 2 leaves padded when b closes it; of both only the tuple of b's key 3 stays."""
    run = Story(sj.join(ends("a", "k x"), ends("b", "k y"), how="left", purge=sj.PurgeEvery(100)), way)
    run.push("a", "k x\n1 10\n2 20")
    run.push("b", "k y\n1 100\n3 300")
    assert run.push("b", "k y end\n1 - true\n2 - true") == [(2, 20, None)]
    assert run.push("a", "k x end\n1 - true\n2 - true\n3 - true") == NOTHING
    assert run.punctuations() == ["<1>", "<2>", "<3>"]
    assert run.held() == {"a": 0, "b": 2}  # purged, and to be removed
    assert run.state().deferred > 0
    assert run.push("b", "k y\n1 101") == NOTHING  # a new key: a removes what is left of the old one first
    assert run.held() == {"a": 0, "b": 1}
    assert run.push("a", "k x\n1 11") == [(1, 11, 101)]
    assert run.finish() == NOTHING
    assert run.held() == {"a": 0, "b": 0}


def test_mjoin_purges_whole_across_batches() -> None:
    one, many = stream("one", "k x", unique=True), ends("many", "k y")
    run = Story(sj.join(one, many, operator="mjoin_1np"))
    run.push("one", "k x\n" + "\n".join(f"{key} {key}" for key in range(120)))
    for key in range(99):
        run.push("many", f"k y end\n{key} - true")
    assert (run.held()["one"], run.state().deferred, run.punctuations()) == (120, 99, [])
    run.push("many", "k y end\n99 - true")
    assert (run.held()["one"], run.state().deferred, len(run.punctuations())) == (20, 0, 100)
    run.push("many", "k y end\n100 - true")
    assert run.held()["one"] == 20
    run.run.idle()  # both inputs are blocked
    assert run.held()["one"] == 19


@pytest.mark.parametrize("operator", [None, "mjoin_1np"])
def test_memory_is_full_and_punctuations_wait(operator: Any) -> None:
    """Purging comes before spilling (MJoin's third trigger): 3,000 tuples stayed while runs were spilled."""
    one, many = stream("one", "k x:str", unique=True), ends("many", "k y")
    joined = sj.join(one, many, operator=operator, purge=sj.PurgeEvery(10**6), memory="1 MB")
    run = joined.local()
    stored = 0
    for first in range(0, 30_000, 1500):
        keys = list(range(first, first + 1500))
        run.push("one", pa.table({"k": keys, "x": ["x" * 100] * 1500}))
        run.push("many", pa.table({"k": keys, "y": keys, "end": [True] * 1500}, schema=many.schema))
        stored = max(stored, run.state().rows["one"])
        assert all(each.loaded is not None for each in run.join.sides[0].runs)
    assert stored < 8000
    assert run.counters()["one_purged"] > 20_000


def answer(seed: int, purge: Any, *, crash: bool = False) -> tuple[Any, ...]:
    """Rows, violations and punctuations of each batch, and the rows of the end."""
    streams, options, batches = drawn(seed)
    streams = [replace(one, on_violation="drop") for one in streams]  # kept rows go by the order in a batch
    joined = sj.join(*streams, **options, purge=purge)
    joined = sj.Joined(replace(joined.plan, spec=replace(joined.plan.spec, evicts_within=bool(seed % 2))))
    run, found, rng = joined.local(), [], Random(seed)
    for batch in _conforming(streams, batches):
        result = Counter(rows(run.step(batch)))
        told = sorted(str(each) for each in run.violations())
        found.append((result, told, sorted(map(str, run.punctuations()))))
        if crash and rng.random() < 0.5:
            run = joined.local(snapshot=run.snapshot())
    found.append(Counter(rows(run.finish())))
    assert not any(run.state().rows.values())
    return tuple(found)


def _conforming(streams: list[Any], batches: list[dict[str, pa.Table]]) -> Iterator[dict[str, pa.Table]]:
    """Without what a stream brings of a key that it has closed: in which turn a key is forgotten, and is a
    new key from then on, is up to the strategy.
    """
    over: dict[str, set[int]] = {one.name: set() for one in streams}
    for batch in batches:
        kept = {}
        for one in streams:
            chosen, closed = [], set()
            for row in batch[one.name].to_pylist():
                if row["k"] not in over[one.name] | closed:
                    chosen.append(row)
                    closed |= {row["k"]} if row["over"] or one.unique else set()
            over[one.name] |= closed
            kept[one.name] = pa.Table.from_pylist(chosen, schema=one.schema)
        yield kept


def test_the_answer_is_that_of_purging_at_once() -> None:
    for seed in range(60):
        at_once = answer(seed, "immediate")
        for purge in (sj.PurgeEvery(3), sj.PurgeEvery(1000)):
            assert answer(seed, purge, crash=seed % 3 == 0) == at_once, f"seed {seed}"


def test_planted_a_new_key_finds_the_tuples_of_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator, "come_again", lambda *_: False)
    run = Story(sj.join(ends("a", "k x"), ends("b", "k y"), purge=sj.PurgeEvery(100)))
    run.push("b", "k y\n1 100")
    for name in "ab":
        run.punctuate(name, k=1)
    assert run.push("a", "k x\n1 11") == [(1, 11, 100)]  # should be nothing
