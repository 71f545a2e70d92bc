"""Match sorted keys and expand groups into pairs. Arrays in, index arrays out.

Worked number: sorted hashes [2, 5, 9] and [5, 9, 11] match at (1, 0) and (2, 1); a group that
starts at row 4 with 3 rows expands to child rows 4, 5, 6. The smaller side is searched in the
larger one, so matching costs the smaller size times the logarithm of the larger.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def match_unique(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """Positions of equal values in two ascending arrays without repeats; ascending in both."""
    if len(left) > len(right):
        theirs, ours = match_unique(right, left)
        return ours, theirs
    if len(left) == 0:
        none = np.empty(0, np.int64)
        return none, none
    at = right.searchsorted(left)
    at[at == len(right)] = 0  # beyond the end: compared with any value that differs
    (found,) = (right[at] == left).nonzero()
    return found, at[found]


def find_ranges(left: Ints, right: Ints) -> tuple[Ints, Ints, Ints]:
    """Where the values of an ascending array without repeats stand in an ascending array with.

    Returns positions in `left` (ascending), and for each the start and length of its range.
    """
    if len(right) == 0:
        none = np.empty(0, np.int64)
        return none, none, none
    low = right.searchsorted(left, side="left")
    low[low == len(right)] = 0  # beyond the end: compared with any value that differs
    (found,) = (right[low] == left).nonzero()
    start = low[found]
    return found, start, right.searchsorted(left[found], side="right") - start


def match_repeated(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """All pairs of equal values in two ascending arrays with repeats; ascending in left."""
    low = np.searchsorted(right, left, side="left")
    count = np.searchsorted(right, left, side="right") - low
    return expand(low, count)


def expand(start: Ints, count: Ints) -> tuple[Ints, Ints]:
    """Each parent i becomes `count[i]` pairs (i, start[i]), (i, start[i] + 1)…; in that order."""
    parent = np.repeat(np.arange(len(count)), count)
    first = np.cumsum(count) - count
    child = np.arange(len(parent)) + np.repeat(start - first, count)
    return parent, child


def bounded_slices(count: Ints, *, limit: int) -> Iterator[slice]:
    """Cut parents into slices whose counts sum to at most `limit`, one parent at the least."""
    total = np.cumsum(count)
    start, done = 0, 0
    while start < len(count):
        stop = max(int(np.searchsorted(total, done + limit, side="right")), start + 1)
        yield slice(start, stop)
        start, done = stop, int(total[stop - 1])


def any_by_group(flags: Mask, parent: Ints, groups: int) -> Mask:
    """For each parent group, whether one of its flags is set."""
    result: Mask = np.zeros(groups, np.bool_)
    result[parent[flags]] = True
    return result
