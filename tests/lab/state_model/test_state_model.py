"""The experiment `state`: its prediction loop and what it refuses to report."""

from dataclasses import replace

import pytest

from lab.generators.patterns import punctuated, unique
from lab.registry import experiments
from lab.state_model import predicted
from lab.state_model.experiment import PRINTED, prediction, prediction_charts
from lab.state_model.predicted import PredictionCase, PredictionRun, WindowedPattern, compare
from streamjoin.errors import InvariantBroken


def test_the_lab_knows_the_experiment():
    assert "state" in experiments()


def test_a_small_pattern_is_predicted_and_its_claim_made():
    case = WindowedPattern(replace(punctuated("asc", 100, 40), spread=20), 2, rows=8_000)
    (claim,), series, charts = prediction(range(4, 5), lambda _: None, {PRINTED: case})
    assert claim.holds
    found = series["predicted"][PRINTED]
    assert claim.measured == pytest.approx(abs(found["error"]))
    assert found["claimed"]
    assert sum(one["claimed"] for one in series["predicted"].values()) == 1
    assert found["error_of_equation_1_late"] < -0.3  # it tends to zero
    assert abs(found["error_late"]) < 0.15
    assert list(charts["equation-1"].lines) == ["held", "our model", "equation 1 as printed"]


def test_equation_1_is_zero_where_each_key_has_ended_and_the_window_where_nothing_is_heeded():
    case = WindowedPattern(unique("asc"), 1, rows=3_000)(4)
    assert case.printed[-1] == pytest.approx(0, abs=1e-6)
    window = WindowedPattern(unique("asc"), 1, "wjoin", rows=3_000)(4)
    assert window.printed[-1] == pytest.approx(2 * 500, rel=0.1)  # a tuple every 2 ms, on both


@pytest.mark.parametrize("make", [predicted.news, predicted.auction, predicted.arriving])
def test_every_kind_of_case_counts_its_results(make):
    first = {predicted.news: "random", predicted.auction: "wjoin", predicted.arriving: predicted.ordered()}
    seen = compare("small", make(first[make], 4, 600))
    assert len(seen.measured) == len(seen.predicted) > 5


def test_a_case_whose_results_are_not_the_batch_joins_is_not_reported():
    case = WindowedPattern(punctuated("asc", 100, 40), 1, rows=1_000)(4)
    with pytest.raises(InvariantBroken, match="results, the batch join"):
        compare("wrong", PredictionCase(case.run, case.batches, case.results + 1))


def test_an_error_is_of_the_means_over_the_middle():
    held = [0, *[100] * 8, 0]
    assert PredictionRun([900, *[110] * 8, 900], held).error == pytest.approx(0.1)
    up_and_down = PredictionRun([0, *[110, 90] * 4, 0], held)
    assert (up_and_down.error, up_and_down.distance) == (0, pytest.approx(0.1))
    assert prediction_charts({}) == {}
