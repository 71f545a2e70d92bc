"""The window predicate: (latest time) - t_i <= W_i for every component, inclusive."""

import itertools

import numpy as np
import pytest

from streamjoin.columnar.window import TimeOrder, span_of


def spans(columns, windows):
    """Combinations of one tuple from each column."""
    first, *others = [
        span_of(np.array(times, np.int64), w) for times, w in zip(columns, windows, strict=True)
    ]
    for other in others:
        first = first.grown(np.arange(len(other.latest)), other)
    return first


def inside(times, windows):
    return bool(spans([[time] for time in times], windows).valid()[0])


@pytest.mark.parametrize(
    ("times", "windows", "valid"),
    [
        ((10, 14), (4, None), True),  # the bound itself is inside
        ((10, 15), (4, None), False),
        ((14, 10), (4, None), True),  # the first is the later one: its window is not asked
        ((100, 10), (4, None), True),
        ((100, 10), (None, 4), False),
        ((10, 10), (1, 1), True),
        ((10, 14), (None, None), True),
        ((10, 12, 14), (4, 2, None), True),
        ((10, 12, 15), (4, 3, None), False),  # the latest counts for all, not the neighbour
        ((12, 10, 15), (3, None, None), True),
        ((0, 5, 9), (None, 4, None), True),
        ((-5, -1), (4, 4), True),
    ],
)
def test_a_worked_case(times, windows, valid):
    assert inside(times, windows) is valid


def test_the_answer_does_not_depend_on_the_order_of_components():
    for times in itertools.product(range(4), repeat=3):
        for windows in itertools.product([None, 1, 2], repeat=3):
            found = {
                inside([times[i] for i in order], [windows[i] for i in order])
                for order in itertools.permutations(range(3))
            }
            assert len(found) == 1


def test_a_pair_that_fails_never_becomes_valid():
    """So intermediate results may be pruned."""
    for times in itertools.product(range(5), repeat=3):
        for windows in itertools.product([None, 1, 3], repeat=3):
            if inside(times, windows):
                assert inside(times[:2], windows[:2])


def test_many_at_once_and_none():
    assert spans([[0, 0, 0], [3, 4, 5]], [4, None]).valid().tolist() == [True, True, False]
    assert spans([[], []], [4, 4]).valid().tolist() == []


@pytest.mark.parametrize("windows", list(itertools.product([None, 0, 3], repeat=2)))
def test_searching_the_order_of_time_finds_what_trying_every_pair_does(windows):
    """Tuples of three keys, the second of which has none; combinations of all keys."""
    rng = np.random.default_rng(7)
    times = rng.integers(100, 120, 30)
    start, count = np.array([0, 12, 12]), np.array([12, 0, 18])
    key, probes = np.repeat([0, 1, 2], 15), rng.integers(95, 125, 45)
    span = span_of(probes, windows[0])
    order = TimeOrder.of(times, start, count)
    low, found = order.between(key, span, windows[1])
    for i in range(45):
        rows = np.arange(start[key[i]], start[key[i]] + count[key[i]])
        tried = [row for row in rows if inside([probes[i], times[row]], windows)]
        assert sorted(order.rows[low[i] : low[i] + found[i]].tolist()) == tried


def test_times_too_far_apart_are_not_searched():
    assert TimeOrder.of(np.array([0, 1 << 61]), np.array([0, 1]), np.array([1, 1])) is None
