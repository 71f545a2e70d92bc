"""Matching sorted values and expanding groups: worked numbers, and a comparison with plain loops."""

import numpy as np
import pytest

from streamjoin.columnar.match import (
    any_by_group,
    bounded_slices,
    expand,
    find_ranges,
    match_repeated,
    match_unique,
)


def ints(*values):
    return np.array(values, np.int64)


def pairs(found):
    left, right = found
    return list(zip(left.tolist(), right.tolist(), strict=True))


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (ints(2, 5, 9), ints(5, 9, 11), [(1, 0), (2, 1)]),
        (ints(5, 9, 11), ints(2, 5, 9), [(0, 1), (1, 2)]),
        (ints(), ints(1, 2), []),
        (ints(1, 2), ints(), []),
        (ints(), ints(), []),
        (ints(7), ints(7), [(0, 0)]),
        (ints(9), ints(1, 2), []),  # beyond the end
        (ints(0), ints(1, 2), []),
        (ints(-(2**63), 2**63 - 1), ints(-(2**63), 0, 2**63 - 1), [(0, 0), (1, 2)]),
        (ints(1, 3, 5, 7), ints(3, 7), [(1, 0), (3, 1)]),  # the longer side on the left
    ],
)
def test_values_without_repeats(left, right, expected):
    assert pairs(match_unique(left, right)) == expected


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (ints(5, 5), ints(5, 5, 6), [(0, 0), (0, 1), (1, 0), (1, 1)]),
        (ints(1, 2, 2), ints(2), [(1, 0), (2, 0)]),
        (ints(), ints(1), []),
        (ints(1), ints(), []),
        (ints(3), ints(1, 2), []),
    ],
)
def test_values_with_repeats(left, right, expected):
    assert pairs(match_repeated(left, right)) == expected


@pytest.mark.parametrize("seed", range(20))
def test_matching_equals_two_loops(seed):
    random = np.random.default_rng(seed)
    left, right = (np.sort(random.integers(-20, 20, random.integers(0, 40))) for _ in range(2))
    expected = [(i, j) for i, a in enumerate(left) for j, b in enumerate(right) if a == b]
    assert pairs(match_repeated(left, right)) == expected
    left, right = np.unique(left), np.unique(right)
    expected = [(i, j) for i, a in enumerate(left) for j, b in enumerate(right) if a == b]
    assert pairs(match_unique(left, right)) == expected


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (ints(2, 5, 9), ints(1, 5, 5, 5, 9), [(1, 1, 3), (2, 4, 1)]),
        (ints(9), ints(1, 2), []),  # beyond the end
        (ints(), ints(1), []),
        (ints(1), ints(), []),
        (ints(1), ints(1, 1), [(0, 0, 2)]),
        (ints(0, 3), ints(1, 2), []),
    ],
)
def test_values_without_repeats_in_values_with(left, right, expected):
    found, start, count = find_ranges(left, right)
    assert list(zip(found.tolist(), start.tolist(), count.tolist(), strict=True)) == expected


def test_a_group_expands_to_its_rows():
    parent, child = expand(ints(4, 0, 9), ints(3, 0, 2))
    assert parent.tolist() == [0, 0, 0, 2, 2]
    assert child.tolist() == [4, 5, 6, 9, 10]


def test_groups_may_overlap_and_stand_in_any_order():
    parent, child = expand(ints(5, 0, 5), ints(2, 1, 2))
    assert parent.tolist() == [0, 0, 1, 2, 2]
    assert child.tolist() == [5, 6, 0, 5, 6]


def test_nothing_expands_to_nothing():
    for start, count in ((ints(), ints()), (ints(3, 4), ints(0, 0))):
        parent, child = expand(start, count)
        assert parent.tolist() == child.tolist() == []


@pytest.mark.parametrize(
    ("count", "limit", "expected"),
    [
        ([2, 2, 2], 4, [(0, 2), (2, 3)]),
        ([2, 2, 2], 6, [(0, 3)]),
        ([9, 1, 1], 4, [(0, 1), (1, 3)]),  # one parent at the least, however large
        ([1, 9, 1], 4, [(0, 1), (1, 2), (2, 3)]),
        ([1, 1], 1, [(0, 1), (1, 2)]),
        ([], 4, []),
    ],
)
def test_slices_hold_at_most_the_limit(count, limit, expected):
    found = [(cut.start, cut.stop) for cut in bounded_slices(ints(*count), limit=limit)]
    assert found == expected


def test_any_of_a_group():
    flags = np.array([False, True, False, True])
    assert any_by_group(flags, ints(0, 0, 1, 3), 5).tolist() == [True, False, False, True, False]
    assert any_by_group(np.zeros(0, np.bool_), ints(), 2).tolist() == [False, False]
