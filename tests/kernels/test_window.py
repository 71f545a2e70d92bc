"""The window predicate: (latest time) - t_i <= W_i for every component, inclusive."""

import itertools

import numpy as np
import pytest

from streamjoin.kernels.window import within_windows


def inside(times, windows):
    columns = [np.array([time], np.int64) for time in times]
    return bool(within_windows(columns, windows)[0])


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
    first, second = np.array([0, 0, 0]), np.array([3, 4, 5])
    assert within_windows([first, second], [4, None]).tolist() == [True, True, False]
    none = np.empty(0, np.int64)
    assert within_windows([none, none], [4, 4]).tolist() == []
