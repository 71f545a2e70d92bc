"""Joins without one common key in hash buckets that cannot see each other: as on Spark, without a JVM.

Every batch is split by bucket and goes through bytes, on every level; what the buckets of a lower operator
give goes the way it goes on Spark (`spark.chain`), in tasks of some buckets each. Buckets are stored and
restored now and then. The answer must be that of nested loops, nothing a violation, and after every batch
exactly those tuples held that one local run holds: event time and promises go on as they do there.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.columnar.keys import canonical, hash_keys
from streamjoin.join import wire
from streamjoin.join.admission import Violation
from streamjoin.join.arrivals import Arrivals
from streamjoin.join.intake import Intake
from streamjoin.join.operator import StreamJoin
from streamjoin.join.outputs import Results
from streamjoin.join.partial_punctuations import PartialPunctuations
from streamjoin.join.persistence import snapshot
from streamjoin.spark.chain import PROPAGATED, PropagatedPacker, Unpack
from streamjoin.spark.outputs import PUNCTUATIONS, Packed
from streamjoin.state.codec import decode_batch
from tests.plan.graph.test_graph_properties import Drawn, Input, _word
from tests.tables import rows, table, unbounded_is_meant

pytestmark = unbounded_is_meant
Given = dict[str, list[Arrivals]]


class Level:
    """The buckets of one operator, and below them those of the operators whose results it joins."""

    def __init__(self, plan: Any, rng: Random) -> None:
        self.plan, self.rng = plan, rng
        self.below = {i: Level(one.inner.plan, rng) for i, one in enumerate(plan.streams) if one.inner}
        partitions = {i: len(level.joins) for i, level in self.below.items()}
        inputs = [replace(one, partitions=partitions.get(i, 1)) for i, one in enumerate(plan.spec.inputs)]
        self.spec = replace(plan.spec, inputs=tuple(inputs))
        self.joins = [StreamJoin(self.spec) for _ in range(rng.randint(1, 4))]

    def intakes(self) -> dict[str, Intake]:
        """How rows and promises of the streams come in."""
        found = (
            {} if not self.below else {k: v for one in self.below.values() for k, v in one.intakes().items()}
        )
        for i, stream in enumerate(self.plan.streams):
            if i not in self.below:
                found[stream.name] = Intake(stream, self.spec.inputs[i].layout)
        return found

    def step(self, given: Given) -> list[list[Any]]:
        """One batch; what each bucket gives."""
        shares: list[dict[int, list[Arrivals]]] = [{} for _ in self.joins]
        for i, stream in enumerate(self.plan.streams):
            for task in self._passed(i, given) if i in self.below else given[stream.name]:
                for bucket, share in wire.split(task, len(self.joins), limit_bytes=90):
                    layout = self.spec.inputs[i].layout
                    shares[bucket].setdefault(i, []).append(wire.from_bytes(wire.to_bytes(share), layout))
        emitted = []
        for bucket, share in enumerate(shares):
            whole = {i: wire.together(self.spec.inputs[i].layout, found) for i, found in share.items()}
            emitted.append(list(self.joins[bucket].process(whole)))
            if self.rng.random() < 0.3:
                kept = snapshot.to_bytes(self.joins[bucket])
                self.joins[bucket] = snapshot.from_bytes(self.spec, kept)
        assert not any(isinstance(one, Violation) for each in emitted for one in each)
        return emitted

    def _passed(self, i: int, given: Given) -> list[Arrivals]:
        """What the buckets below give, as tasks of this operator's input."""
        level, stream = self.below[i], self.plan.streams[i]
        spec = self.spec.inputs[i]
        packer = PropagatedPacker(
            i, stream.name, spec.layout, (0,), stamped=bool(stream.stamps), forwarded=spec.forwarded,
            places=stream.inner.places, key_types=stream.inner.plan.spec.key_types,
        )  # fmt: skip
        tasks: dict[int, list[pa.RecordBatch]] = {0: []}
        unpack = Unpack(level.spec)
        for bucket, outputs in enumerate(level.step(given)):
            frames = [frame for output in outputs for frame in Packed().frames(output, bucket)]
            for kind, blob in ((int(frame["kind"][0]), frame["blob"][0]) for frame in frames):
                if kind != PUNCTUATIONS or stream.inner.places is not None:
                    element = unpack._element(kind, bucket, decode_batch(blob))
                    tasks.setdefault(bucket % 2, []).append(_selected(stream, spec, element))
        return [packer.arrivals(pa.concat_batches(each)) if each else Arrivals.nothing(spec.layout)
                for each in tasks.values()]  # fmt: skip

    def held(self) -> dict[str, int]:
        found = {}
        for i, stream in enumerate(self.plan.streams):
            found[stream.name] = sum(join.sides[i].live_rows for join in self.joins)
        return {**found, **{name: count for one in self.below.values() for name, count in one.held().items()}}


def _selected(stream: Any, spec: Any, element: pa.RecordBatch) -> pa.RecordBatch:
    """What Spark's JVM makes of results on their way into the next operator."""
    keys = [
        canonical(element.column(name).cast(dtype))
        for name, dtype in zip(stream.key, spec.layout.key_types, strict=True)
    ]
    columns = {"h": pa.array(hash_keys(keys))}
    columns |= dict(zip("td", (element.column(name) for name in stream.stamps), strict=False))
    columns |= {f"k{i}": key for i, key in enumerate(keys)}
    columns |= {f"p{i}": element.column(name) for i, name in enumerate(stream.payload)}
    columns |= {name: element.column(name) for name in PROPAGATED}
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def batches(drawn: Drawn, rng: Random) -> list[dict[str, list[tuple[str, dict[str, Any]]]]]:
    """The elements cut into batches. Promises of a batch act after its rows, so none stands before a row."""
    found: list[dict[str, list[tuple[str, dict[str, Any]]]]] = [{}]
    left = rng.randint(1, 9)
    for one, element in drawn.order(rng):
        own = found[-1].setdefault(one.name, [])
        if left <= 0 or (own and own[-1][0] == "over" and element[0] == "row"):
            found.append({})
            left = rng.randint(1, 9)
        found[-1].setdefault(one.name, []).append(element)
        left -= 1
    return found


def rows_of(one: Input, schema: pa.Schema, elements: list[tuple[str, dict[str, Any]]]) -> pa.Table:
    given = [values for kind, values in elements if kind == "row"]
    lines = [" ".join(schema.names), *(" ".join(_word(row[n]) for n in schema.names) for row in given)]
    return table(schema, "\n".join(lines))


def play(drawn: Drawn, seed: int) -> tuple[Counter[tuple[Any, ...]], sj.Joined]:
    rng = Random(seed)
    joined = sj.join(*drawn.streams(), on=drawn.on)
    level, local = Level(joined.plan, rng), joined.local()
    intakes, schemas = level.intakes(), {one.name: one.schema for one in drawn.streams()}
    answer: Counter[tuple[Any, ...]] = Counter()
    for batch in batches(drawn, rng):
        given: Given = {}
        tables = {one.name: rows_of(one, schemas[one.name], batch.get(one.name, [])) for one in drawn.inputs}
        said = [(name, values) for name, each in batch.items() for kind, values in each if kind == "over"]
        for name, each in tables.items():
            cut = rng.randint(0, len(each))
            given[name] = [intakes[name].arrivals(part) for part in (each.slice(0, cut), each.slice(cut))]
        for name, values in said:
            patterns = [sj.punctuation.pattern(values[c]) for c in intakes[name].stream.speaks_of]
            given[name].append(intakes[name].said(patterns))
        outputs = [one for each in level.step(given) for one in each]
        answer.update(row for one in outputs if isinstance(one, Results) for row in rows(one.rows))
        local.step(tables)
        for name, values in said:
            local.punctuate(name, **values)
        assert level.held() == dict(local.state().rows)
    ends = {name: [Arrivals.nothing(each.layout).and_nothing_more()] for name, each in intakes.items()}
    for each in level.step(ends):
        answer.update(row for one in each if isinstance(one, Results) for row in rows(one.rows))
    assert not any(level.held().values())
    return answer, joined


def right(seed: int) -> bool | None:
    """Whether the answer is; None where the edges are refused."""
    drawn = Drawn(seed)
    try:
        answer, joined = play(drawn, seed)
    except sj.InvalidJoin:
        return None
    except AssertionError:
        return False
    return answer == drawn.expected(joined.plan.spec.emits.names)


def test_buckets_together_are_one_join() -> None:
    assert [seed for seed in range(16) if right(seed) is False] == []


def test_planted_a_promise_goes_on_when_one_bucket_has_passed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PartialPunctuations, "fulfilled", lambda self, keys, at: (keys, None))
    assert any(right(seed) is False for seed in range(200))
