"""Selectivities that are declared at a driver: it goes by them from the first batch."""

from __future__ import annotations

from typing import Any

import pytest

import streamjoin as sj
from tests.tables import Story, stream, unbounded_is_meant

pytestmark = unbounded_is_meant

PAIRS = {("a", "b"): 0.5, ("a", "c"): 0.01, ("b", "c"): 0.01}


def three(driver: Any) -> sj.Joined:
    return sj.join(*(stream(name, f"k {column}") for name, column in ("ax", "by", "cz")), driver=driver)


def first_turns(driver: Any) -> list[int]:
    """The inputs in the order in which the second batch takes them, after one without a single match."""
    joined = three(driver)
    chosen: list[int] = []
    kind = type(joined.plan.spec.strategies.driver)
    good = kind.choose

    def choose(self: Any, queues: Any, previous: Any) -> Any:
        found = good(self, queues, previous)
        chosen.append(found[0])
        return found

    run = Story(joined)
    run.step(a="k x\n1 1\n2 1", b="k y\n3 1\n4 1", c="k z\n5 1\n6 1\n7 1\n8 1")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kind, "choose", choose)
        run.step(a="k x\n11 1", b="k y\n12 1\n13 1", c="k z\n14 1\n15 1\n16 1")
    assert run.count("driver_fallbacks") == (0 if joined.plan.spec.strategies.driver.selectivities else 2)
    return chosen


def test_initial_output_goes_by_declared_selectivities_before_anything_has_matched() -> None:
    """Equation 1: a 1 x 2 x 4, b 2 x 2 x 4, c 3 x 2 x 2, each times the selectivity of all three."""
    assert first_turns(sj.InitialOutput()) == [0, 1, 2]
    assert first_turns(sj.InitialOutput(selectivities=PAIRS))[0] == 1


def test_consumption_rate_goes_by_declared_results_by_row() -> None:
    assert first_turns(sj.ConsumptionRate(selectivities={"a": 9.0, "b": 0.1, "c": 3.0})) == [1, 2, 0]


def test_adaptive_and_output_rate_take_them_too() -> None:
    for kind in (sj.Adaptive, sj.OutputRate):
        run = Story(three(kind(selectivities=PAIRS)))
        run.step(a="k x\n1 1", b="k y\n1 1", c="k z\n1 1")
        assert run.count("driver_fallbacks") == 0


def test_the_answer_does_not_depend_on_what_was_declared() -> None:
    rows = {"a": "k x\n1 1\n2 2", "b": "k y\n1 3\n1 4", "c": "k z\n1 5\n2 6"}
    wrong = sj.InitialOutput(selectivities=dict.fromkeys(PAIRS, 0.0))
    assert Story(three(wrong)).step(**rows) == Story(three("round_robin")).step(**rows)


def test_explain_says_that_they_were_declared() -> None:
    text = three(sj.InitialOutput(selectivities=PAIRS)).explain()
    assert "driver: initial_output (as you asked; by the selectivities you declared)" in text


def test_expected_output_by_measured_and_declared_selectivities() -> None:
    """Of 4 x 5 pairs 4 match; 10 rows of a against 5 of b are expected to give 10 x 0.2 x 5."""
    joined = sj.join(
        stream("a", "k x"), stream("b", "k y"), driver=sj.InitialOutput(selectivities={("a", "b"): 0.1})
    )
    run = joined.local()
    story = Story(joined)
    story.push("b", "k y\n1 1\n2 1\n3 1\n4 1\n5 1")
    story.push("a", "k x\n1 1\n2 1\n3 1\n4 1")
    expected = story.run.expected_output({"a": 10})["a"]
    assert expected.measured == pytest.approx(10 * (4 / 20) * 5)
    assert expected.declared == pytest.approx(10 * 0.1 * 5)
    (pair,) = story.run.selectivities()
    assert (pair.inputs, pair.measured, pair.declared) == (("a", "b"), pytest.approx(0.2), 0.1)
    assert run.expected_output({"b": 1})["b"].measured is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({("a", "b"): 0.1}, r"selectivities lack \(a, c\), \(b, c\); declare them too"),
        ({**PAIRS, ("a", "d"): 0.1}, "selectivities name d; the inputs of this join are a, b, c"),
        ({**PAIRS, ("a", "b"): 2}, "give a share of the combinations, from 0 to 1"),
        ({}, "give a share for each pair of inputs"),
    ],
)
def test_mistakes(given: Any, says: str) -> None:
    with pytest.raises(sj.InvalidJoin, match=says):
        three(sj.Adaptive(selectivities=given))
