"""Left joins with on=: `a left join (b join c)` over a graph of edges; names that depend on no order.

Rows, padding and punctuations equal nested loops over all rows, whatever the schedule, the crashes and the
order of operators.
"""

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import assume, given

import streamjoin as sj
from streamjoin.api.join import _lifted
from streamjoin.join.eviction import Eviction
from streamjoin.plan.graph.order import forced
from streamjoin.plan.planner import JoinOptions
from tests.plan.graph.test_graph_properties import SEEDS, Drawn, moderate, play
from tests.tables import NOTHING, WAYS, Story, rows, stream, table, unbounded_is_meant

pytestmark = unbounded_is_meant
in_every_way = pytest.mark.parametrize("way", WAYS)
CHAIN = "a.x = b.x and b.y = c.y"
AB_FIRST = {"a": 1, "b": 1, "c": sj.Rate(9, rows_per_key=9)}


def chain(a: Any = None, b: Any = None, c: Any = None, **options: Any) -> sj.Joined:
    streams = [
        stream("a", "x p", **(a or {})),
        stream("b", "x y q", **(b or {})),
        stream("c", "y r", **(c or {})),
    ]
    return sj.join(*streams, on=CHAIN, name="abc", how="left", **options)


@in_every_way
def test_a_row_is_in_complete_results_or_padded_once(way: Any) -> None:
    joined = chain(rates=AB_FIRST)
    assert joined.plan.steps[:2] == ("abc_1: b ⋈ c on b.y = c.y", "abc: a ⟕ abc_1 on a.x = b.x")
    run = Story(joined, way)
    assert run.push("a", "x p\n1 10\n2 20\n3 30\n- 40") == [(None, 40, None, None, None)]
    assert run.push("b", "x y q\n1 7 5\n2 8 6") == NOTHING  # 2 has a row of b, and none of c
    assert run.push("c", "y r\n7 700") == [(1, 10, 7, 5, 700)]
    assert run.finish() == [(2, 20, None, None, None), (3, 30, None, None, None)]
    assert not any(run.held().values())


@in_every_way
def test_windows_pad_too(way: Any) -> None:
    timed = {"lateness": "0 seconds"}
    a = stream("a", "x t:time", time="t", window="10 seconds", **timed)
    b = stream("b", "x y u:time", time="u", window="10 seconds", **timed)
    c = stream("c", "y v:time", time="v", **timed)
    run = Story(sj.join(a, b, c, on=CHAIN, how="left"), way)
    run.push("a", "x t\n1 0\n2 1")
    run.push("b", "x y u\n1 7 5")
    assert run.push("c", "y v\n7 9") == [(1, 0, 7, 5, 9)]
    assert run.push("c", "y v\n9 30") == NOTHING  # b may still bring a row at 5, but c none that is as old
    assert run.push("b", "x y u\n8 8 30") == [(2, 1, None, None, None)]
    assert run.violations() == []


@in_every_way
def test_punctuations_pad_and_are_propagated_behind_the_padded_row(way: Any) -> None:
    over = sj.marked("over", null_is_wildcard=True)
    a = stream("a", "x p", unique=True)
    b = stream("b", "x y over:bool", key=["x", "y"], punctuation=over)
    c = stream("c", "y r", unique=True)
    run = Story(sj.join(a, b, c, on=CHAIN, how="left", name="abc"), way)
    run.push("a", "x p\n1 10\n2 20")
    run.push("c", "y r\n7 70")
    assert run.push("b", "x y\n1 7") == [(1, 10, 7, 70)]
    assert run.push("b", "x y over\n2 - true") == [(2, 20, None, None)]
    assert run.punctuations() == ["<2>"]
    assert run.push("b", "x y over\n1 - true") == NOTHING
    assert run.punctuations() == ["<1>"]
    assert run.held()["a"] == 0


@in_every_way
def test_a_condition_decides_what_is_a_match(way: Any) -> None:
    run = Story(chain(where=pc.field("r") > pc.field("p")), way)
    run.push("a", "x p\n1 10\n2 800")
    run.push("b", "x y q\n1 7 5\n2 7 6")
    assert run.push("c", "y r\n7 700") == [(1, 10, 7, 5, 700)]
    assert run.finish() == [(2, 800, None, None, None)]


def test_groups_of_padded_rows() -> None:
    run = Story(chain().group_by("x").agg(n=("*", "count"), found=("r", "count")))
    run.push("a", "x p\n1 10\n2 20")
    run.push("b", "x y q\n1 7 5\n1 7 6")
    run.push("c", "y r\n7 700")
    assert run.finish() == [(1, 2, 2), (2, 1, 0)]


def test_inputs_of_one_class_share_the_last_operator() -> None:
    a, b, c, d = (stream(name, f"x y {name}v") for name in "abcd")
    joined = sj.join(a, b, c, d, on="a.x = b.x and b.x = c.x and c.y = d.y", name="j", how="left_outer")
    assert joined.plan.steps[:2] == ("j_1: c ⋈ d on c.y = d.y", "j: a ⟕ (b ⋈ j_1) on a.x = b.x = c.x")


def test_what_is_refused() -> None:
    fact, a, b = stream("f", "x y n", key="n"), stream("a", "x p"), stream("b", "y q")
    with pytest.raises(sj.InvalidJoin, match=r"only f connects b with a; for \(f left join a\) left join b"):
        sj.join(fact, a, b, on="f.x = a.x and f.y = b.y", how="left")
    for how in ("right", "full", "left_semi", "left_anti"):
        with pytest.raises(sj.InvalidJoin, match=r"give how='left' and the input to keep first"):
            sj.join(fact, a, b, on="f.x = a.x and f.y = b.y", how=how)
    with pytest.raises(sj.InvalidJoin, match="give one of inner"):
        sj.join(fact, a, b, on="f.x = a.x and f.y = b.y", how="sideways")
    with pytest.raises(sj.InvalidJoin, match="keys= and null_safe= are for joins on one common key"):
        chain(keys="each")


# ---------------------------------------------------------------- names


def test_qualified_names_do_not_depend_on_the_order_of_the_inputs() -> None:
    found = set()
    for order in itertools.permutations("abc"):
        streams = {"a": stream("a", "x v"), "b": stream("b", "x z v"), "c": stream("c", "y v")}
        joined = sj.join(*map(streams.get, order), on="a.x = b.x and b.z = c.y", names="qualified")
        found.add(tuple(sorted(joined.plan.spec.emits.names)))
    assert found == {("a_v", "b_v", "b_z", "c_v", "x")}


def test_two_classes_of_one_name() -> None:
    streams = [stream(name, f"k m {name}") for name in "abcd"]
    joined = sj.join(*streams, on="a.k = b.k and b.m = c.m and c.k = d.k", names="qualified")
    run = Story(joined)
    assert run.run.plan.spec.emits.names == ["a_k", "a_m", "a_a", "m", "b_b", "c_k", "c_c", "d_m", "d_d"]


# ---------------------------------------------------------------- properties


class LeftDrawn(Drawn):
    """As `Drawn`, for a left join that keeps the first input."""

    def join(self) -> sj.Joined:
        try:
            return sj.join(*self.streams(), on=self.on, how="left")
        except sj.InvalidJoin as error:
            assume("equal" not in str(error) and "left join (all others" not in str(error))
            raise

    def expected(self, names: list[str]) -> Counter[tuple[Any, ...]]:
        found = super().expected(names)
        first = self.inputs[0]
        complete = super().expected([f"{first.name}_v"])
        padded = [row for row in first.rows() if (row[f"{first.name}_v"],) not in complete]
        return found + Counter(tuple(row.get(name) for name in names) for row in padded)


@given(seed=SEEDS)
@moderate
def test_equals_nested_loops_whatever_the_schedule(seed: int) -> None:
    drawn = LeftDrawn(seed)
    joined = drawn.join()
    expected = drawn.expected(joined.plan.spec.emits.names)
    assert play(drawn, joined, 1) == expected
    assert play(drawn, joined, 2, crash=0.4) == expected


@given(seed=SEEDS)
@moderate
def test_every_order_of_operators_gives_the_same(seed: int) -> None:
    drawn = LeftDrawn(seed, most=4)
    columns = drawn.join().plan.spec.emits
    plans = list(forced(drawn.streams(), drawn.on, JoinOptions(how="left"), _lifted))
    for plan in Random(seed).sample(plans, min(3, len(plans))):
        assert plan.spec.emits == columns
        assert play(drawn, sj.Joined(plan), seed) == drawn.expected(columns.names)


@given(seed=SEEDS)
@moderate
def test_no_row_follows_the_punctuation_of_its_key(seed: int) -> None:
    drawn = LeftDrawn(seed)
    joined = drawn.join()
    assert _rows_behind_their_punctuation(drawn, joined, seed) == []


def _rows_behind_their_punctuation(drawn: Drawn, joined: sj.Joined, seed: int) -> list[Any]:
    """Results that follow a punctuation of their key."""
    run, over, behind = joined.local(), set(), []
    schemas = {one.name: one.schema for one in drawn.streams()}
    places = [joined.plan.spec.emits.names.index(name) for name in joined.plan.spec.key_names]

    def take(result: Any) -> None:
        behind.extend(row for row in rows(result) if tuple(row[place] for place in places) in over)
        over.update(tuple(one.value for one in said.patterns) for said in run.punctuations())

    for one, (kind, values) in drawn.order(Random(seed)):
        if kind == "row":
            words = ["-" if value is None else str(value) for value in values.values()]
            take(run.push(one.name, table(schemas[one.name], f"{' '.join(values)}\n{' '.join(words)}")))
        else:
            take(run.punctuate(one.name, **values))
    for one in drawn.inputs:
        take(run.end(one.name))
    return behind


def test_planted_a_key_is_finished_though_the_first_input_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed_by_the_others(self: Any, keys: Any, finished: Any, closed_by_all: Any) -> Any:
        return real(self, keys, np.ones(len(keys), np.bool_), closed_by_all)

    real = Eviction._propagate_keys
    monkeypatch.setattr(Eviction, "_propagate_keys", closed_by_the_others)
    assert any(_rows_behind_their_punctuation(*each) for each in _some())


def _some() -> Iterator[tuple[Drawn, sj.Joined, int]]:
    for seed in range(60):
        drawn = LeftDrawn(seed, most=4)
        with contextlib.suppress(sj.InvalidJoin):
            yield drawn, sj.join(*drawn.streams(), on=drawn.on, how="left"), seed


def test_planted_a_padded_row_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Eviction, "pad_unmatched", lambda *_: iter(()))
    wrong = [
        play(drawn, joined, 1) != drawn.expected(joined.plan.spec.emits.names)
        for drawn, joined, _ in itertools.islice(_some(), 10)
    ]
    assert any(wrong)
