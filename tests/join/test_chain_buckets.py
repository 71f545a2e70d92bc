"""A join over a join, each in several hash buckets that cannot see each other, as on Spark but without it.

Every batch is split by bucket, goes through bytes and is put together again, below and above; what a
bucket below gives is one task of the input above, its ranges under its own number. Buckets are stored
and restored now and then. The answer must be the batch answer, and where all buckets purge at the end
of a batch, what is held must be what one local run holds: every range that all buckets have told acts,
in the batch in which the last one told it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.columnar.batch import concat
from streamjoin.columnar.keys import hash_keys
from streamjoin.join import wire
from streamjoin.join.arrivals import Arrivals, Positions
from streamjoin.join.intake import Intake
from streamjoin.join.operator import StreamJoin
from streamjoin.join.outputs import FinishedKeys, FinishedPatterns, Results
from streamjoin.join.persistence import snapshot
from streamjoin.punctuation import pattern
from tests.local.test_chain_properties import COLUMNS, Data
from tests.tables import rows, schema, table, unbounded_is_meant

pytestmark = unbounded_is_meant


class Buckets:
    """The buckets of one join; `step` takes the tasks of each input and gives what each bucket emits."""

    def __init__(self, plan: Any, count: int, rng: Random, partitions: dict[int, int]) -> None:
        inputs = [replace(spec, partitions=partitions.get(i, 1)) for i, spec in enumerate(plan.spec.inputs)]
        self.spec, self.rng = replace(plan.spec, inputs=tuple(inputs)), rng
        self.joins = [StreamJoin(self.spec) for _ in range(count)]
        preserved = plan.spec.how.preserved
        self.intakes = [
            Intake(one, spec.layout, hash_keys, keep_unkeyed=i in preserved)
            for i, (one, spec) in enumerate(zip(plan.streams, inputs, strict=True))
        ]

    def step(self, tasks: dict[int, list[Arrivals]]) -> list[list[Any]]:
        shares: list[dict[int, list[Arrivals]]] = [{i: [] for i in tasks} for _ in self.joins]
        for i, arrived in ((i, one) for i, found in tasks.items() for one in found):
            for bucket, share in wire.split(arrived, len(self.joins), limit_bytes=60):
                value = wire.to_bytes(share)
                shares[bucket][i].append(wire.from_bytes(value, self.spec.inputs[i].layout))
        emitted = []
        for bucket, share in enumerate(shares):
            together = {
                i: wire.together(self.spec.inputs[i].layout, found) for i, found in share.items() if found
            }
            emitted.append(list(self.joins[bucket].process(together)))
            if self.rng.random() < 0.3:
                kept = snapshot.to_bytes(self.joins[bucket])
                self.joins[bucket] = snapshot.from_bytes(self.spec, kept)
        return emitted

    def tasks(self, i: int, elements: list[tuple[Any, ...]], columns: str) -> list[Arrivals]:
        """Rows and punctuations of one input and batch; the punctuations act after all rows."""
        texts = [columns, *(f"{key} {value}" for kind, key, value in elements if kind == "row")]
        closed_keys = [
            sj.between(low, high) if low < high else pattern(low)
            for kind, low, high in elements
            if kind == "over"
        ]
        data = self.intakes[i].arrivals(table(schema(columns), "\n".join(texts)))
        return [data, *(self.intakes[i].punctuation((punctuation,)) for punctuation in closed_keys)]

    def end(self, i: int) -> list[Arrivals]:
        return [Arrivals.nothing(self.spec.inputs[i].layout).and_nothing_more()]

    def held(self) -> list[int]:
        return [sum(join.sides[i].live_rows for join in self.joins) for i in range(len(self.spec.inputs))]


class Chain:
    """Both joins; `step` gives the results and asserts that nothing is a violation."""

    def __init__(self, joined: sj.Joined, below: int, above: int, rng: Random) -> None:
        ab = joined.plan.streams[0]
        self.below = Buckets(ab.upstream.plan, below, rng, {})
        self.above = Buckets(joined.plan, above, rng, {0: below})

    def step(self, below: dict[int, list[Arrivals]], c: list[Arrivals]) -> list[tuple[Any, ...]]:
        emitted = self.below.step(below)
        wide = [{one for one in outputs if isinstance(one, FinishedPatterns)} for outputs in emitted]
        assert all(each == wide[0] for each in wide), "a range leaves all buckets in the same batch"
        given = [self._passed(i, outputs) for i, outputs in enumerate(emitted)]
        outputs = [one for each in self.above.step({0: given, 1: c}) for one in each]
        assert all(isinstance(one, Results | FinishedKeys | FinishedPatterns) for one in outputs)
        return [row for one in outputs if isinstance(one, Results) for row in rows(one.rows)]

    def _passed(self, bucket: int, outputs: list[Any]) -> Arrivals:
        """What one bucket below gives, as a task of the input above (on Spark `spark.chain` does this)."""
        intake = self.above.intakes[0]
        found = [one.rows for one in outputs if isinstance(one, Results)]
        arrived = intake.arrivals(pa.Table.from_batches(found, self.below.spec.output))
        keys = [intake.key_batch(one.keys.keys) for one in outputs if isinstance(one, FinishedKeys)]
        wide = [each for one in outputs if isinstance(one, FinishedPatterns) for each in one.patterns]
        at = Positions(np.full(len(wide), bucket), np.zeros(len(wide), np.int64)) if wide else None
        return replace(arrived, keys=concat(arrived.keys.layout, keys), patterns=tuple(wide), patterns_at=at)


class Ordered(Data):
    """Keys of a and b ascend, and that is declared: each batch closes a range that grows."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        for name in "ab":
            self.streams[name] = sorted(each for each in self.streams[name] if each[0] == "row")
        self.declared = {"arrival": sj.ordered()}


def batches(order: list[tuple[str, tuple[Any, ...]]], rng: Random) -> list[dict[str, list[tuple[Any, ...]]]]:
    """The elements cut into batches. Its punctuations act after its rows, so none stands before a row."""
    found: list[dict[str, list[tuple[Any, ...]]]] = []
    at = 0
    while at < len(order):
        size = rng.randint(1, 9)
        part, at = order[at : at + size], at + size
        found.append({name: [each for own, each in part if own == name] for name in "abc"})
    return found


def play(data: Data, seed: int, *, like_one: bool) -> Counter[tuple[Any, ...]]:
    rng = Random(seed)
    joined = data.join()
    chain, local = Chain(joined, rng.randint(2, 5), rng.randint(2, 5), rng), joined.local()
    answer: Counter[tuple[Any, ...]] = Counter()
    for batch in batches(data.order(rng), rng):
        below = {i: chain.below.tasks(i, batch[name], COLUMNS[name]) for i, name in enumerate("ab")}
        answer.update(chain.step(below, chain.above.tasks(1, batch["c"], COLUMNS["c"])))
        tell(local, batch)
        if not any(
            join.state.range_propagation.unsent for join in chain.below.joins
        ):  # all have sent the same
            assert not any(join.state.partial_punctuations[0].patterns for join in chain.above.joins)
        if like_one:
            held = dict(zip(["a", "b", "ab", "c"], chain.below.held() + chain.above.held(), strict=True))
            assert held == dict(local.state().rows)
    answer.update(chain.step({i: chain.below.end(i) for i in range(2)}, chain.above.end(1)))
    assert chain.below.held() == chain.above.held() == [0, 0]
    return answer


def tell(run: sj.LocalRun, batch: dict[str, list[tuple[Any, ...]]]) -> None:
    """The same batch for one local run."""
    texts = {
        name: "\n".join(
            [COLUMNS[name], *(f"{key} {value}" for kind, key, value in elements if kind == "row")]
        )
        for name, elements in batch.items()
    }
    run.step({name: table(schema(COLUMNS[name]), text) for name, text in texts.items()})
    for name, elements in batch.items():
        for low, high in (each[1:] for each in elements if each[0] == "over"):
            run.punctuate(name, k=sj.between(low, high) if low < high else low)


@pytest.mark.parametrize("kind", [Data, Ordered], ids=["closed_keys", "ordered"])
@pytest.mark.parametrize("seed", range(12))
def test_buckets_together_are_one_join(kind: type[Data], seed: int) -> None:
    data = kind(seed)
    data.purge = None
    assert play(data, seed, like_one=True) == data.expected()


def purging_late(seed: int) -> Data:
    """Rows of a that match nothing leave when their bucket purges, each in its own time."""
    data = Data(seed)
    data.how, data.upper, data.purge = "left", "inner", sj.PurgeEvery(Random(seed).choice([5, 9, 20]))
    data.streams["b"] = [each for each in data.streams["b"] if each[0] == "over"]
    return data


@pytest.mark.parametrize("seed", range(12))
def test_buckets_that_purge_at_different_times(seed: int) -> None:
    data = purging_late(seed)
    assert play(data, seed, like_one=False) == data.expected()
