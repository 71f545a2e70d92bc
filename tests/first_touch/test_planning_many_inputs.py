"""Joins of many inputs with on=: planning takes steps that grow with a power of the inputs, not with 2 to it.

Nothing is timed here: what is counted are the groups of inputs looked at, and the operators planned.
"""

import itertools
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.plan.graph import tree
from streamjoin.plan.graph.edges import graph_of
from streamjoin.plan.graph.tree import grow, leaves
from tests.tables import stream, unbounded_is_meant

pytestmark = unbounded_is_meant
MANY = 64


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often groups were looked at, and operators planned."""
    counted: Counter[str] = Counter()

    def counting(what: str) -> None:
        real = getattr(tree, what)

        def call(*given: Any, **named: Any) -> Any:
            counted[what] += 1
            return real(*given, **named)

        monkeypatch.setattr(tree, what, call)

    counting("_maximal")
    counting("plan_join")
    return counted


def chain(count: int) -> sj.Joined:
    streams = [stream(f"s{i}", f"x y v{i}") for i in range(count)]
    edges = [f"{one.name}.y = {two.name}.x" for one, two in itertools.pairwise(streams)]
    return sj.join(*streams, on=edges)


def test_a_chain_of_64_inputs_is_planned_in_steps_that_grow_with_their_square(steps: Counter[str]) -> None:
    chain(MANY // 2)
    half = dict(steps)
    steps.clear()
    chain(MANY)
    assert steps["_maximal"] < 4 * MANY * MANY
    assert steps["plan_join"] < 10 * MANY
    assert all(steps[what] < 5 * half[what] for what in half)


def test_it_runs() -> None:
    run = chain(MANY).local()
    for i in range(MANY):
        rows = pa.table({"x": [i, 1000 + i], "y": [i + 1, 0], f"v{i}": [i, -i]})
        found = run.push(f"s{i}", rows)
    (row,) = found.to_pylist()
    assert [row[f"v{i}"] for i in range(MANY)] == list(range(MANY))


def test_a_class_of_many_inputs_is_one_operator(steps: Counter[str]) -> None:
    streams = [stream(f"s{i}", f"x v{i}") for i in range(MANY)]
    joined = sj.join(
        *streams, on=[f"{one.name}.x = {two.name}.x" for one, two in itertools.pairwise(streams)]
    )
    assert len(joined.plan.streams) == MANY
    assert steps["_maximal"] < 4 * MANY


def test_inputs_that_share_two_classes_in_pairs(steps: Counter[str]) -> None:
    """Of 12 pairs each has a class of its own beside x: one of each pair makes 2 to the 12 largest groups."""
    streams = [stream(f"s{i}", f"x y{i // 2} v{i}") for i in range(24)]
    edges = [f"{one.name}.x = {two.name}.x" for one, two in itertools.pairwise(streams)]
    edges += [f"s{i}.y{i // 2} = s{i + 1}.y{i // 2}" for i in range(0, 24, 2)]
    joined = sj.join(*streams, on=edges)
    assert len(joined.plan.streams) == 12
    assert steps["plan_join"] < 3000
    assert steps["_maximal"] < 10_000


EDGES = [
    "a.x = b.x and b.y = c.y and c.z = d.z",
    "a.x = b.x and b.x = c.x and c.y = d.y",
    "a.x = b.x and a.y = c.y and a.z = d.z",
    "a.x = b.x and b.x = c.x and c.x = d.x and a.y = b.y and c.z = d.z",
    "a.x = b.x and b.x = c.x and c.x = d.x and a.y = b.y and b.z = c.z",
]


@pytest.mark.parametrize("on", EDGES)
def test_the_groups_are_those_of_trying_all_subsets(on: str) -> None:
    units = leaves(graph_of([stream(name, "x y z") for name in "abcd"], on))
    ordered = sorted(units, key=lambda unit: unit.inputs)
    expected: list[set[Any]] = []
    for size in range(len(units), 1, -1):
        for group in itertools.combinations(ordered, size):
            keys = {one.classes & other.classes for one, other in itertools.combinations(group, 2)}
            if len(keys) == 1 and all(keys) and not any({*group} < known for known in expected):
                expected.append({*group})
    assert [{*one.parts} for one in grow(units)] == expected
