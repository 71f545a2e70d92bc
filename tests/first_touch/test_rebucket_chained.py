"""Joins over joins, `on=` joins and enrichments are cut into other buckets too, again and again as they run.

Played without a JVM: the buckets cannot see each other, everything goes through bytes as on Spark, and after
every batch exactly those tuples are stored that one local run stores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.enrich.rebucket import EnrichBuckets, cut_version, declared, read_spec
from streamjoin.enrich.snapshot import restore, store
from streamjoin.enrich.spec import END_OF_TIME
from streamjoin.join.forwarded_punctuations import ForwardedPunctuations
from streamjoin.join.partial_punctuations import PartialPunctuations
from streamjoin.join.persistence.rebucket import Totals, hash_ranges, rebucketed
from streamjoin.join.propagation import RangePropagation
from streamjoin.punctuation import Range
from streamjoin.state.stores import InMemoryRuns
from tests.join import test_chain_buckets as chains
from tests.join.persistence.test_rebucket import Stored
from tests.plan.graph import test_graph_buckets as graphs
from tests.tables import unbounded_is_meant

pytestmark = unbounded_is_meant


def cut(level: Any, rng: Random, refed: dict[int, int]) -> None:
    """The buckets of a join into others; `refed`: inputs that a join feeds which was cut, and its buckets."""
    old, spec = [Stored(join) for join in level.joins], level.spec
    manifests = [one.manifest for one in old]
    new = list(rebucketed(spec, manifests, lambda i: old[i].open(spec), rng.randint(1, 4), refed))
    inputs = [replace(one, partitions=refed.get(i, one.partitions)) for i, one in enumerate(spec.inputs)]
    level.spec = replace(spec, inputs=tuple(inputs))
    stored = [Stored(join) for join in new]
    totals = [Totals(one, refed) for one in (spec, level.spec)]
    for total, found in zip(totals, (old, stored), strict=True):
        for one in found:
            total.add(one.manifest, one.open(total.spec))
    assert totals[0].differences(totals[1]) == []
    level.joins = [one.open(level.spec) for one in stored]


def cut_tree(level: graphs.Level, rng: Random) -> None:
    refed = {}
    for i, below in level.below.items():
        before = len(below.joins)
        cut_tree(below, rng)
        if len(below.joins) != before:
            refed[i] = len(below.joins)
    cut(level, rng, refed)


@pytest.fixture
def cut_now_and_then(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Before some batches all joins are cut; counts how often there was something that waited for it."""
    seen: Counter[str] = Counter()
    step, chain_step, depth = graphs.Level.step, chains.Chain.step, []

    def note(level: Any) -> None:
        for join in level.joins:
            seen["partial"] += sum(map(len, join.state.partial_punctuations))
            seen["forwarded"] += sum(map(len, join.state.forwarded))
            ranges = join.state.range_propagation
            seen["unsent"] += 0 if ranges is None else len(ranges.unsent)
        for below in getattr(level, "below", {}).values():
            note(below)

    def graph_step(level: graphs.Level, given: Any) -> Any:
        if not depth and level.rng.random() < 0.4:
            note(level)
            cut_tree(level, level.rng)
        depth.append(level)
        try:
            return step(level, given)
        finally:
            depth.pop()

    def both_steps(chain: chains.Chain, below: Any, c: Any) -> Any:
        if chain.below.rng.random() < 0.4:
            note(chain.below)
            note(chain.above)
            before = len(chain.below.joins)
            cut(chain.below, chain.below.rng, {})
            after = len(chain.below.joins)
            cut(chain.above, chain.below.rng, {} if after == before else {0: after})
        return chain_step(chain, below, c)

    monkeypatch.setattr(graphs.Level, "step", graph_step)
    monkeypatch.setattr(chains.Chain, "step", both_steps)
    return seen


def test_joins_without_a_common_key_are_cut(cut_now_and_then: Counter[str]) -> None:
    waiting = (64, 18, 53, 68, 77, 51, 27, 70)  # punctuations wait for rows or for other buckets there
    assert [seed for seed in (*range(8), *waiting) if graphs.right(seed) is False] == []
    assert cut_now_and_then["partial"] or cut_now_and_then["forwarded"]


@pytest.mark.parametrize("kind", [chains.Data, chains.Ordered], ids=["closed_keys", "ordered"])
@pytest.mark.parametrize("seed", range(6))
def test_a_join_over_a_join_is_cut(kind: Any, seed: int, cut_now_and_then: Counter[str]) -> None:
    data = kind(seed)
    data.purge = None
    assert chains.play(data, seed, like_one=True) == data.expected()


@pytest.mark.parametrize("seed", range(8))
def test_buckets_that_purge_at_different_times_are_cut(seed: int, cut_now_and_then: Counter[str]) -> None:
    data = chains.purging_late(seed)
    assert chains.play(data, seed, like_one=False) == data.expected()


def test_a_range_that_some_buckets_have_sent_is_sent_again_by_all() -> None:
    component = RangePropagation((pa.int64(),))
    component.ranges.add(Range(1, 2))
    common = component.to_json()
    parts = [{**common, "unsent": texts} for texts in (["<1>"], [], ["<2>", "<1>"])]
    merged = component.merge(parts)
    assert merged["unsent"] == ["<1>", "<2>"]
    assert component.split(merged, hash_ranges(4)[2]) == merged == component.merge([merged, merged])


def test_what_is_forwarded_is_counted_anew() -> None:
    """A punctuation that all have sent stays complete; one that some have sent is forgotten."""
    a = sj.stream(pa.schema({"x": pa.int64()}), name="a", key="x")
    b = sj.stream(
        pa.schema({"x": pa.int64(), "y": pa.int64(), "end": pa.bool_()}),
        name="b",
        key=["x", "y"],
        punctuation=sj.marked("end", null_is_wildcard=True),
    )
    c = sj.stream(pa.schema({"y": pa.int64()}), name="c", key="y")
    below = sj.join(a, b, c, on="a.x = b.x and b.y = c.y").plan.streams[1].upstream.plan
    (number,) = [i for i, one in enumerate(below.spec.inputs) if one.forwarded]
    component = ForwardedPunctuations(replace(below.spec.inputs[number], partitions=2), number)
    nulls = pa.nulls(3, pa.int64())
    y = pa.array([7, 7, 8])
    by = pa.array([0, 1, 0])
    component.add(pa.RecordBatch.from_arrays([nulls, y, by], ["x", "y", "by"]))
    part = component.refed(component.to_json(), 3)
    component.restore(part)
    assert component.rows.keys[1].to_pylist() == [7, 7, 7]
    assert sorted(component.rows.payload[0].to_pylist()) == [0, 1, 2]
    assert component.digest(component.merge([part, part])) == component.digest(part)
    partial = PartialPunctuations("q0", below.spec.inputs[0].layout, None, 2)  # type: ignore[arg-type]
    assert partial.refed({"<1>": [0]}, 3) == {}


# Enrichments


class InBuckets:
    """An enrichment in hash buckets, from the stored state of a local run."""

    def __init__(self, run: sj.EnrichRun, folder: Path) -> None:
        self.step, self.folder, self.count = run._steps[0], folder, 0
        self.spec, self.version = self.step.join.spec, self.step.version
        self.joins = [self.step.join]

    def cut(self, buckets: int) -> None:
        """What a reader finds out from the stored state alone, in other buckets."""
        self.count += 1
        spec = replace(self.spec, buckets=len(self.joins))
        facts = declared(spec, "table")
        runs = [InMemoryRuns() for _ in self.joins]
        manifests = [store(join, run.save) for join, run in zip(self.joins, runs, strict=True)]
        old = EnrichBuckets(
            read_spec(spec.identity(), facts), manifests, runs.__getitem__, lambda _: self.version
        )
        place = self.folder / str(self.count) / self.version.id
        there = cut_version(self.version, buckets, place, 300)
        new_runs = [InMemoryRuns() for _ in range(buckets)]
        new = [
            store(join, run.save)
            for join, run in zip(old.into(buckets, lambda _: there), new_runs, strict=True)
        ]
        after = replace(old, manifests=new, runs=new_runs.__getitem__, versions=lambda _: there)
        assert after.totals() == old.totals()
        self.spec, self.version = replace(self.spec, buckets=buckets), there
        self.joins = [
            restore(
                self.spec,
                replace(manifest, identity=self.spec.identity()),
                run,
                lambda _, number=number: there.bucket(number),
            )
            for number, (manifest, run) in enumerate(zip(new, new_runs, strict=True))
        ]

    def push(self, rows: pa.Table) -> Iterator[dict[str, Any]]:
        arrived = self.step.read(rows)
        by_hash = arrived.rows.sorted()
        for hashes, join in zip(hash_ranges(len(self.joins)), self.joins, strict=True):
            here = hashes.slice_of(by_hash.hash)
            found = list(join.process(by_hash.slice(here.start, here.stop - here.start)))
            if arrived.latest_us is not None:
                found += join.advance(arrived.latest_us)
            found += join.step()
            yield from (row for batch in found for row in batch.to_pylist())

    def finish(self) -> Iterator[dict[str, Any]]:
        for join in self.joins:
            found = [*join.finish(), *join.advance(END_OF_TIME)]
            yield from (row for batch in found for row in batch.to_pylist())


@pytest.mark.parametrize("wait", [None, "10 seconds"])
@pytest.mark.parametrize("seed", range(6))
def test_an_enrichment_is_cut_while_rows_wait(seed: int, wait: str | None, tmp_path: Path) -> None:
    rng, draw = Random(seed), np.random.default_rng(seed)
    ids = draw.integers(0, 60, 80)
    towns = pa.table({"id": ids, "town": [f"town{i}" for i in range(len(ids))]})
    schema = pa.schema({"id": pa.int64(), "t": pa.timestamp("us"), "n": pa.int64()})
    stream = sj.stream(schema, name="orders", key="id", time="t", lateness="0 seconds")
    table = sj.table(
        towns, name="towns", key="id", memory="1 MB", cycle_batches=4, wait=wait, how="left", version="1"
    )
    begun = sj.EnrichRun(sj.enrich(stream, table).plan, folder=tmp_path / "staged", segment_bytes=300)
    parts, answer, waited = InBuckets(begun, tmp_path / "cut"), [], 0
    pushed: list[pa.Table] = []
    for batch in range(12):
        ids = draw.integers(0, 80, rng.randint(1, 12))
        times = pa.array([batch * 2_000_000] * len(ids), pa.timestamp("us"))
        pushed.append(pa.table({"id": ids, "t": times, "n": [batch] * len(ids)}, schema))
        answer += parts.push(pushed[-1])
        if rng.random() < 0.5:
            waited += sum(join.waiting + join.in_waiting_room for join in parts.joins)
            parts.cut(rng.randint(1, 5))
    answer += parts.finish()
    rows = pa.concat_tables(pushed)
    wanted = rows.join(towns, "id", join_type="left outer").select(["id", "t", "n", "town"]).to_pylist()
    assert Counter(map(str, answer)) == Counter(map(str, wanted))
    assert waited
