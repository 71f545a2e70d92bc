"""The joins of the PWJoin paper as the lab runs them, in small; equation 1."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from lab.generators.patterns import PATTERN_SCHEMA, clustered, unique
from lab.papers.pattern_runs import Contender, PairSum, answer, cut, local, observe
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
