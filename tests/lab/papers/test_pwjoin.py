"""The joins of the PWJoin paper as the lab runs them, in small; equation 1."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from lab.experiment import Statement
from lab.generators.patterns import PATTERN_SCHEMA, clustered, unique
from lab.papers import pwjoin
from lab.papers.pattern_reference import ReferenceContender
from lab.papers.pattern_runs import PATTERN, Contender, PairSum, answer, cut, local, observe
from lab.papers.pwjoin import ASCENDING, RANDOM, parts
from lab.papers.pwjoin_cost import best_case, predicted
from streamjoin.errors import InvariantBroken


def rows(*tuples: tuple[int, float]) -> pa.Table:
    start = datetime(2004, 3, 14, tzinfo=UTC)
    columns = {
        "k": [k for k, _ in tuples],
        "t": [start + timedelta(seconds=at) for _, at in tuples],
        "v": list(range(1, len(tuples) + 1)),
        "is_end": [False] * len(tuples),
    }
    return pa.table(columns, schema=PATTERN_SCHEMA)


def test_equation_1_by_a_worked_number():
    # 1,000 tuples a second stay 5 s; 40 of 160 keys were ended
    assert predicted(1000, 5, 2, 20, 160) == 5000 * (1 - 40 / 160) == 3750


@pytest.mark.parametrize(
    ("window_a", "window_b", "expected"),
    [
        (5, 5, PairSum(1, 1)),  # 0 s with 3 s
        (10, 5, PairSum(2, 3)),  # and with 9 s: a's tuple waits for ten seconds
        (5, 10, PairSum(1, 1)),  # b's window is for a's tuples after it
        (None, None, PairSum(2, 3)),
    ],
)
def test_the_answer_by_hand_and_by_the_join(window_a, window_b, expected):
    data = cut(rows((1, 0), (2, 1)), rows((1, 3), (1, 9)), 1.0)
    assert answer(data, window_a, window_b) == expected
    operator = "pjoin" if window_a is None else "pwjoin"
    assert observe(local(operator, window_a, window_b), data.batches, expected).results[-1] == expected.rows


def test_single_tuples_and_batches_give_the_same_and_a_planted_answer_stops_it():
    data = cut(ASCENDING.table(rows=200, seed=1), RANDOM.table(rows=200, seed=2), 0.5)
    whole, single = (Contender("pwjoin", data, 1, one_by_one).run() for one_by_one in (False, True))
    assert whole.results == single.results
    assert whole.punctuations == single.punctuations
    wanted = answer(data, 1, 1)
    with pytest.raises(InvariantBroken, match="nothing is reported"):
        observe(local("pwjoin", 1, 1), data.batches, replace(wanted, mix=wanted.mix + 1))


def test_best_case_holds_a_cluster_of_a_and_nothing_of_b():
    held, largest = best_case(clustered("asc", 5), 60)
    assert max(held["a"]) == largest
    assert max(held["b"]) == 0
    held, _ = best_case(unique("asc"), 30)
    assert max(held["a"]) == 1


def test_parts_have_their_figures():
    assert [part.says.split()[0] for part in parts()] == ["figure", "figure", "figure", "figures", "equation"]


@pytest.mark.parametrize("operator", ["pwjoin", "wjoin", "pjoin"])
def test_the_reference_engine_sees_what_the_product_sees(operator):
    data = cut(PATTERN.table(rows=600, seed=1), PATTERN.table(rows=600, seed=2), 0.5)
    window = None if operator == "pjoin" else 1
    paper = ReferenceContender(operator, data, window).run()
    ours = Contender(operator, data, window, single=True).run()
    assert (paper.results, paper.punctuations) == (ours.results, ours.punctuations)
    for name in "ab":  # cross invalidation: a tuple of the other stream has to come first
        assert np.all(np.array(ours.held[name]) <= np.array(paper.held[name]) + 5)


def test_of_two_claims_with_one_id_the_first_decides():
    says = Statement("pwjoin-9-small-single", "A by B", "PWJoin", ">", 1, "times")
    [claim] = pwjoin._decided([says.decided([1.1]), says.decided([0.9])])
    assert (claim.holds, claim.product.holds) == (True, False)
