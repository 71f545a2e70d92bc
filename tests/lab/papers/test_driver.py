"""The driver-input paper replayed: what is claimed of which cases, and what is never reported."""

from dataclasses import replace

import pytest

from lab.papers import driver, driver_reference, driver_runs
from lab.papers.cached_answers import cached_answers
from lab.papers.driver_claims import FIGURE_6, FIGURE_7, FIGURE_8, TABLE_4, TABLE_5
from lab.papers.driver_reference import CHOSEN_BEFORE, REFERENCE_QUICK, reference_case
from lab.papers.driver_runs import (
    BUFFERS,
    FIXED,
    GRID,
    POLICIES,
    TUPLES,
    CaseResult,
    DriverCase,
    PolicySummary,
)
from lab.report.figures import Context
from streamjoin.errors import InvariantBroken
from tests.lab.papers.stored_claims import stored_ids

ASKED = (*FIGURE_6, *FIGURE_7, *FIGURE_8, *TABLE_4, *TABLE_5)


def found(**times):
    def summary(policy):
        each = dict.fromkeys(("all", "first half", "second half"), times.get(policy, 1.0))
        shares = [min(float(x), 1.0) for x in GRID]
        return PolicySummary(each, each, each, each, dict.fromkeys(each, shares))

    return CaseResult({policy: summary(policy) for policy in (*POLICIES, CHOSEN_BEFORE)}, 0.1)


@pytest.fixture
def quick(tmp_path, monkeypatch):
    """Cases that take no time: what a case finds is made up."""
    monkeypatch.setattr(driver, "case", lambda what: found(initial_output=0.4))
    monkeypatch.setattr(driver, "reference_case", lambda what: found(initial_output=0.6))
    monkeypatch.setattr(driver, "cached_answers", lambda *rest, **_: cached_answers(*rest, workers=1))
    return Context(True, lambda _: None, tmp_path)


def test_ids_of_claims_are_unique_and_name_their_figure(quick):
    figures = [figure for part in driver.parts() for figure in part.run(replace(quick, quick=False))]
    ids = [claim.id for figure in figures for claim in figure.claims]
    assert sorted(ids) == stored_ids("driver")
    assert all(claim.id.startswith(figure.id) for figure in figures[:-2] for claim in figure.claims)
    assert [figure.id for figure in figures[-2:]] == ["driver-table-4", "driver-table-5"]
    assert all(claim.holds is not None for figure in figures for claim in figure.claims)
    assert all(claim.why for figure in figures for claim in figure.claims if not claim.holds)


def test_quick_leaves_averages_of_all_sets_open_and_says_what_others_are_of(quick):
    four, _ = driver.both_tables(quick)
    average = next(claim for claim in four.claims if claim.id == "driver-table-4-initial-output-1M")
    assert (average.holds, average.measured) == (None, None)
    assert driver.figures_7_8(quick, BUFFERS)[0].claims[2].why.endswith("measured on IV 1M only")


def test_the_reference_engine_decides_tuple_by_tuple_and_the_product_stands_beside(quick):
    [six] = driver.figure_6(quick, TUPLES)
    claims = {claim.id: claim for claim in six.claims}
    assert claims["driver-6-tuples-time"].measured == pytest.approx(0.8)  # mean of 0.6 and 1
    assert claims["driver-6-tuples-time"].product.measured is None  # not run in the short form
    _, eight = driver.figures_7_8(quick, TUPLES)
    half = next(claim for claim in eight.claims if claim.id == "driver-8-tuples-V-half")
    assert (half.measured, half.holds) == (pytest.approx(0.6), False)
    assert (half.product.measured, half.product.holds) == (pytest.approx(0.4), True)


def test_a_mean_is_over_sets_periods_and_policies_of_one_repeat():
    asked = next(one for one in FIGURE_6 if one.name == "time")
    cases = {
        (BUFFERS.name, name, period): [found(initial_output=0.5, output_rate=0.7), found(initial_output=0.7)]
        for name in ("I", "II", "III")
        for period in ("0.1M", "1M")
    }
    claim = asked.claim(cases, BUFFERS)
    assert (claim.low, claim.high, claim.runs) == (pytest.approx(0.6), pytest.approx(0.85), 2)
    assert claim.id == "driver-6-time"
    assert asked.claim(cases, TUPLES).holds is None


def test_a_wrong_answer_is_not_reported(quick, monkeypatch):
    monkeypatch.setattr(driver, "case", driver_runs.case)
    monkeypatch.setattr(driver_runs, "batch_join", lambda tables: (1, 2))
    small = DriverCase(replace(BUFFERS, scale=0.001), "V", "1M", 1)
    with pytest.raises(InvariantBroken, match="nothing is reported"):
        cached_answers(quick.folder, [small], driver_runs.case, quick.step, workers=1)
    assert not list(quick.folder.iterdir())


def test_what_is_kept_is_not_done_again(tmp_path):
    done = []
    for _ in range(2):
        answers = cached_answers(
            tmp_path, [1, 2], lambda task: done.append(task) or 10 * task, print, workers=1
        )
    assert answers == {1: 10, 2: 20}
    assert done == [1, 2]


def test_the_reference_engine_answers_and_counts(tmp_path):
    found = reference_case(DriverCase(replace(REFERENCE_QUICK, scale=0.003), "V", "1M", 1))
    assert set(found.policies) == {*FIXED, CHOSEN_BEFORE}
    assert found.lookups(CHOSEN_BEFORE) == 1
    assert found.steps(CHOSEN_BEFORE) == 1
    assert found.steps("initial_output") < 0.5
    for one in found.policies.values():
        assert one.consumed["all"] == sorted(one.consumed["all"])


def test_a_wrong_answer_of_the_reference_engine_is_not_reported(monkeypatch):
    monkeypatch.setattr(driver_reference, "batch_join", lambda tables: (1, 2))
    with pytest.raises(InvariantBroken, match="nothing is reported"):
        reference_case(DriverCase(replace(REFERENCE_QUICK, scale=0.002), "V", "1M", 1))
