"""A state component that is defined here and registered survives a stop and rebucketing.

The component is the example of `docs/contributing/state-component.md`, as it stands there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import streamjoin as sj
from streamjoin.join import wire
from streamjoin.join.operator import StreamJoin
from streamjoin.join.operator_state import OperatorState
from streamjoin.join.persistence.rebucket import Totals, rebucketed
from streamjoin.join.persistence.snapshot import from_bytes, json_parts, restore, store, to_bytes
from streamjoin.state.component import StateComponent
from streamjoin.state.stores import InMemoryRuns
from tests.tables import stream, table

PAGE = Path(__file__).parents[3] / "docs" / "contributing" / "state-component.md"
SPEC = sj.join(stream("a", "k x", unique=True), stream("b", "k y", unique=True)).plan.spec
COMPONENTS = OperatorState.components


def example() -> Any:
    """The class of the page's worked example."""
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    found: dict[str, Any] = {}
    exec(compile(code, PAGE.name, "exec"), found)
    return found["VisitedKeys"]


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The example, registered and used as the page says."""
    component = example()
    init, components, join = OperatorState.__init__, OperatorState.components, StreamJoin._join

    def with_it(self: Any, spec: Any) -> None:
        init(self, spec)
        self.visited_keys = component(spec, self.names)

    def registration(self: Any) -> list[StateComponent]:
        return [*components(self), self.visited_keys]

    def used(self: Any, i: int, arrived: Any) -> Iterator[Any]:
        self.state.visited_keys.see(arrived.sorted())
        yield from join(self, i, arrived)

    monkeypatch.setattr(OperatorState, "__init__", with_it)
    monkeypatch.setattr(OperatorState, "components", registration)
    monkeypatch.setattr(StreamJoin, "_join", used)
    return component


def keys_of(join: Any) -> list[int]:
    return sorted(join.state.visited_keys.keys.side.live().keys[0].to_pylist())


def joined() -> Any:
    a, b = stream("a", "k x", unique=True), stream("b", "k y", unique=True)
    run = sj.join(a, b).local()
    run.push("a", table(a.schema, "\n".join(["k x", *(f"{k} {k}" for k in range(40))])))
    run.push("b", table(b.schema, "\n".join(["k y", *(f"{k} {k}" for k in range(20, 60))])))
    return run.join


def cut(join: Any, buckets: int) -> tuple[list[Any], Totals, Totals]:
    """The join in so many buckets, and the totals before and after."""
    runs = InMemoryRuns()
    manifest = store(join, runs.save)
    before, after = Totals(SPEC), Totals(SPEC)
    before.add(manifest, join)
    new = list(rebucketed(SPEC, [manifest], lambda _: restore(SPEC, manifest, runs), buckets))
    for one in new:
        after.add(store(one, runs.save), one)
    return new, before, after


def test_a_registered_component_survives_a_stop(registered: Any) -> None:
    join = joined()
    again = from_bytes(SPEC, to_bytes(join))
    assert again.state.visited_keys.rows == join.state.visited_keys.rows == 80
    assert keys_of(again) == keys_of(join) == list(range(60))


def test_a_registered_component_is_rebucketed(registered: Any) -> None:
    join = joined()
    new, before, after = cut(join, 3)
    assert before.differences(after) == []
    assert sorted(key for one in new for key in keys_of(one)) == list(range(60))
    assert [one.state.visited_keys.rows for one in new] == [80, 0, 0]
    bounds = wire.bucket_bounds(3)
    for number, one in enumerate(new):
        hashes = one.state.visited_keys.keys.side.live().hash
        assert set(bounds.searchsorted(hashes, side="right").tolist()) == {number}


def test_a_component_that_is_not_divided_rightly_is_found(
    registered: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registered, "split", lambda self, whole, hashes: whole)
    _, before, after = cut(joined(), 3)
    assert before.differences(after) == ["visited_keys"]


def test_a_version_without_the_component_refuses_its_state(registered: Any) -> None:
    manifest = store(joined(), InMemoryRuns().save)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OperatorState, "components", COMPONENTS)
        with pytest.raises(sj.StateFormatError, match=r"holds visited_keys, which this version does not"):
            restore(SPEC, manifest, InMemoryRuns())


def test_component_names_and_tags_are_unique() -> None:
    join = joined()
    names = [component.name for component in join.state.components()]
    tags = [side.tag for side in join.state.sorted_runs()]
    assert len(set(names)) == len(names)
    assert len(set(tags)) == len(tags)
    assert set(json_parts(join)) <= set(names)
