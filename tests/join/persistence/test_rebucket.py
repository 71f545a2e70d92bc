"""A state cut into other buckets goes on as if it had always been cut so.

Scripts of the simulation (`tests.simulation.generate`: windows, lateness, unique keys, orders of arrival,
punctuations of every pattern, partial punctuations, control sources, violations, every join type) are
played once in one piece and once in hash buckets whose number changes again and again. Every operation must
give the same.
"""

from __future__ import annotations

import warnings
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.join import wire
from streamjoin.join.follower_state import FollowerState
from streamjoin.join.operator import StreamJoin
from streamjoin.join.outputs import FinishedPatterns, Output
from streamjoin.join.pending_purge import PendingPurge
from streamjoin.join.persistence.rebucket import Totals, WholeState, hash_ranges, rebucketed
from streamjoin.join.persistence.snapshot import json_parts, restore, store
from streamjoin.join.persistence.stored_spec import declared, read_spec
from streamjoin.join.spec import JoinSpec
from streamjoin.state.codec import batch_bytes, decode_batch
from streamjoin.state.component import HashRange
from streamjoin.state.manifest import Manifest, RunEntry
from streamjoin.state.run import Run
from streamjoin.state.stores import InMemoryRuns, encoded
from tests.simulation.generate import script
from tests.simulation.play import Player, _Watched, hash_function
from tests.simulation.script import Restart
from tests.tables import stream, table, unbounded_is_meant


class Stored:
    """A bucket as it is stored: a manifest and the bytes of runs."""

    def __init__(self, join: StreamJoin) -> None:
        self.runs: dict[str, bytes] = {}
        self.manifest = store(join, self._save)

    def open(self, spec: JoinSpec) -> StreamJoin:
        manifest = replace(self.manifest, identity=spec.identity())
        return restore(spec, manifest, InMemoryRuns(dict(self.runs)))

    def _save(self, run: Run) -> str:
        name, self.runs[name] = encoded(run)
        return name


def totals(spec: JoinSpec, buckets: list[Stored]) -> Totals:
    found = Totals(spec)
    for bucket in buckets:
        found.add(bucket.manifest, bucket.open(spec))
    return found


class InBuckets(_Watched):
    """A local run whose join is cut into buckets."""

    def cut_into(self, buckets: int) -> None:
        if not hasattr(self, "joins"):
            self.joins = [StreamJoin(replace(self.plan.spec, buckets=buckets)) for _ in range(buckets)]
            for join in self.joins:
                join.names.memory_manager.run_store = InMemoryRuns()
            return
        old = [Stored(join) for join in self.joins]
        # what a reader finds out from the stored state alone
        identity, facts = old[0].manifest.identity, declared(self.plan.spec)
        spec = read_spec(identity, facts, self.plan.spec.compaction)
        new = list(rebucketed(spec, [one.manifest for one in old], lambda i: old[i].open(spec), buckets))
        stored = [Stored(join) for join in new]
        assert totals(spec, old).differences(totals(spec, stored)) == []
        self.joins = [one.open(replace(self.plan.spec, buckets=buckets)) for one in stored]

    def _process(self, arrivals: dict[int, Any]) -> pa.Table:
        return pa.Table.from_batches(self._sorted_out(self._shares(arrivals)), self.plan.spec.emits)

    def _shares(self, arrivals: dict[int, Any]) -> Iterator[Output]:
        shares: list[dict[int, Any]] = [{} for _ in self.joins]
        for i, arrived in arrivals.items():
            for bucket, share in wire.split(arrived, len(self.joins), limit_bytes=1 << 30):
                shares[bucket][i] = share
        first: list[Output] = []
        for number, (join, share) in enumerate(zip(self.joins, shares, strict=True)):
            outputs = list(join.process(share))
            wide = [one for one in outputs if isinstance(one, FinishedPatterns)]
            first = wide if number == 0 else first
            assert wide == first, "a range leaves all buckets in the same batch"
            yield from (one for one in outputs if number == 0 or one not in wide)


def spread(weak: bool) -> Any:
    """Few hashes, but all over their range."""
    return lambda keys: hash_function(weak)(keys) * ((1 << 61) if weak else 1)


def play(seed: int) -> Counter[str]:
    told = script(seed)
    # other drivers ask how much each input holds, and so go another way in each bucket
    told = replace(told, settings=replace(told.settings, driver="round_robin"))
    one, rng = Player(told), Random(seed)
    many = Player(told)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sj.UnboundedState)
        one.run, many.run = (
            kind(one.plan, hash_function=spread(told.settings.weak_hash)) for kind in (_Watched, InBuckets)
        )
    many.run.cut_into(rng.randint(1, 5))
    kinds: Counter[str] = Counter()
    for number, operation in enumerate(told.operations):
        if isinstance(operation, Restart) or rng.random() < 0.3:
            many.run.cut_into(rng.randint(1, 6))
            kinds["cuts"] += 1
        if isinstance(operation, Restart):
            continue
        expected, found = one.do(operation), many.do(operation)
        where = f"seed {seed}, operation {number}, {len(many.run.joins)} buckets: {operation}"
        assert sorted(map(repr, found.events)) == sorted(map(repr, expected.events)), where
        assert Counter(found.violations) == Counter(expected.violations), where
        kinds.update(event[0] for event in found.events)
        kinds.update(violation[1] for violation in found.violations)
    held = [sum(side.live_rows for join in many.run.joins for side in [join.sides[i]]) for i in range(2)]
    assert held == [side.live_rows for side in one.run.join.sides[:2]]
    results = sum(join.results for join in many.run.joins)
    assert results == one.run.join.results
    return kinds


@pytest.mark.parametrize("part", range(4))
def test_going_on_in_other_buckets_changes_nothing(part: int) -> None:
    kinds = sum((play(seed) for seed in range(part * 40, part * 40 + 40)), Counter())
    assert kinds["cuts"] > 100
    assert kinds["row"] > 100
    assert kinds["over"] > 50
    assert kinds["after_punctuation"]


# Each check was seen to fail


def _nothing_pending(component: PendingPurge, whole: Any, hashes: HashRange) -> Any:
    return []


def _no_arrival_order(component: FollowerState, whole: Any, hashes: HashRange) -> Any:
    rows = decode_batch(bytes.fromhex(whole[1])).slice(0, 0)
    return [whole[0], bytes(batch_bytes(rows)).hex()]


def _all_but_the_last(hashes: HashRange, stored: Any) -> slice:
    found = SLICE_OF(hashes, stored)
    return slice(found.start, max(found.start, found.stop - 1))


SLICE_OF = HashRange.slice_of


@pytest.mark.parametrize(
    ("owner", "name", "bug"),
    [
        (HashRange, "slice_of", _all_but_the_last),
        (FollowerState, "split", _no_arrival_order),
    ],
    ids=["a row is lost", "the order of arrival is lost"],
)
def test_a_planted_bug_is_seen_by_the_check_after_cutting(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, bug: Any
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, bug)
        with pytest.raises(AssertionError, match=r"rows of|arrival_order"):
            deque(map(play, range(60)), maxlen=0)


def test_punctuations_that_wait_for_the_purge_go_with_their_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    a = stream("a", "k x end:bool", punctuation=sj.marked("end"))
    b = stream("b", "k y end:bool", punctuation=sj.marked("end"))
    plan = sj.join(a, b, purge=sj.PurgeEvery(100)).plan

    def over_when_finished() -> list[Any]:
        run = InBuckets(plan)
        run.cut_into(2)
        run.push("a", table(a.schema, "k x end\n1 10 false\n2 20 false\n3 30 false"))
        run.push("b", table(b.schema, "k y end\n1 - true\n2 - true"))
        assert sum(len(join.state.pending_removal[0]) for join in run.joins) == 2
        run.cut_into(5)
        assert run.joins[0].counters[0].rows == 3
        rows = run.push("b", table(b.schema, "k y end\n3 33 false"))
        assert rows.to_pylist() == [{"k": 3, "x": 30, "y": 33}]
        run.finish()
        return sorted(one.patterns[0].value for one in run.punctuations())

    assert over_when_finished() == [1, 2, 3]
    monkeypatch.setattr(PendingPurge, "split", _nothing_pending)
    with pytest.raises(AssertionError, match="pending_removal"):
        over_when_finished()


# What is refused


@unbounded_is_meant
def test_a_part_that_no_component_knows_is_refused_by_name() -> None:
    spec = sj.join(stream("a", "k x"), stream("b", "k y")).plan.spec
    facts = json_parts(StreamJoin(spec))
    with pytest.raises(sj.StateFormatError, match=r"holds weather, which .* use the version"):
        WholeState.of(spec, [{**facts, "weather": 1}])
    with pytest.raises(sj.StateFormatError, match=r"holds weather, which .* use the version"):
        restore(spec, Manifest(spec.identity(), {}, {**facts, "weather": 1}), InMemoryRuns())
    rows = RunEntry("1-z-1-x", 5, 100, False, (0, 9), (0, 0))
    manifest = Manifest(spec.identity(), {"z": [[rows]]}, facts)
    with pytest.raises(sj.StateFormatError, match="holds rows of z, which"):
        list(rebucketed(spec, [manifest], lambda _: StreamJoin(spec), 2))


@unbounded_is_meant
def test_buckets_that_disagree_are_refused() -> None:
    spec = sj.join(stream("a", "k x"), stream("b", "k y")).plan.spec
    facts = json_parts(StreamJoin(spec))
    with pytest.raises(sj.StateFormatError, match=r"disagree on watermarks.*restore the checkpoint"):
        WholeState.of(spec, [facts, {**facts, "watermarks": {"own": [1, 2]}}])


def test_hash_ranges_cover_every_hash_once() -> None:
    for buckets in (1, 2, 3, 7):
        found = hash_ranges(buckets)
        assert found[0].first == np.iinfo(np.int64).min
        assert found[-1].last == np.iinfo(np.int64).max
        assert [one.last + 1 for one in found[:-1]] == [one.first for one in found[1:]]


@unbounded_is_meant
def test_a_specification_is_read_from_what_is_stored() -> None:
    a = stream("a", "k x:str t:time", time="t", window="5 seconds", lateness="0 seconds")
    b = stream("b", "k y t:time", time="t", lateness="0 seconds", arrival=sj.ordered(slack=2))
    spec = sj.join(a, b, how="left").plan.spec
    run = sj.join(a, b, how="left").local()
    run.push("a", table(a.schema, "k x t\n1 a 1\n2 b 2"))
    known = read_spec(spec.identity(), declared(spec), spec.compaction)
    assert known.identity() == spec.identity()
    assert [one.layout for one in known.inputs] == [one.layout for one in spec.inputs]
    assert Stored(run.join).open(known).sides[0].live_rows == 2
