"""Constraint monitor: which declared constraints the live data satisfies, and which others it would.

It looks at samples, so that it costs little. Of each input: the keys with the smallest hashes, with
how often each has come (a uniform sample of the distinct keys, however many there are); and at the
edge the first rows of a table in the order in which they came, for the slack with which they are
ascending, descending or clustered. Worked number: keys 3 1 2 need a slack of 2 to be ascending, as 2
comes two places after 3 and 1 one place.

What is seen is advice, not a fact about the future: a constraint is only ever declared by the user.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import reduce
from itertools import chain
from typing import Any

import numpy as np

from streamjoin.columnar.batch import Batch, Ints
from streamjoin.state.closed_ranges import codes
from streamjoin.state.component import HashRange, StateComponent

SAMPLED_KEYS = 256
LOOKED_AT = 512  # rows of a table whose order is looked at, at most
_SHARE = 64  # and at most one row in so many
_EMPTY: Ints = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Order:
    """The slack that rows looked at would need: to ascend, to descend, to come in clusters."""

    rows: int = 0
    ascending: int = 0
    descending: int = 0
    clustered: int = 0

    def and_then(self, other: Order | None) -> Order:
        """Both together: the rows add up, a slack is the wider one."""
        if other is None:
            return self
        return Order(
            self.rows + other.rows,
            max(self.ascending, other.ascending),
            max(self.descending, other.descending),
            max(self.clustered, other.clustered),
        )


def look(rows: Batch) -> Order | None:
    """The order of the first rows, which stand as they came; None where they are too few to tell."""
    size = min(LOOKED_AT, len(rows) // _SHARE)
    if size < 2:
        return None
    some = rows.slice(0, size)
    coded = some.hash
    ordered = _EMPTY
    if len(some.keys) == 1:
        values = codes(some.keys[0])
        ordered = values if isinstance(values, np.ndarray) else _EMPTY
    everything = size  # no order at all
    ascending = _lateness(ordered) if len(ordered) else everything
    descending = _lateness(~ordered) if len(ordered) else everything
    return Order(size, ascending, descending, _scatter(coded))


def _lateness(values: Ints) -> int:
    """The most places by which a value comes after the first greater one."""
    reach = np.maximum.accumulate(values)
    late = np.flatnonzero(values < reach)
    return int((late - np.searchsorted(reach, values[late], side="right")).max()) if len(late) else 0


def _scatter(keys: Ints) -> int:
    """The most rows of other keys between two of one key."""
    order = np.argsort(keys, kind="stable")
    same = keys[order][1:] == keys[order][:-1]
    between = np.diff(order)[same]
    return int(between.max()) - 1 if len(between) else 0


class Monitor(StateComponent):
    """What has been seen of one input, in one bucket."""

    def __init__(self, number: int = 0) -> None:
        self.name, self.input = f"monitor {number}", number
        self.keys = _EMPTY  # the smallest hashes, ascending
        self.counts = _EMPTY  # the rows of each
        self.order = Order()

    def see(self, rows: Batch, order: Order | None) -> None:
        """Rows that have come, and how the first of them stood."""
        self.order = self.order.and_then(order)
        hashes = rows.hash
        if len(self.keys) == SAMPLED_KEYS:
            hashes = hashes[hashes <= self.keys[-1]]
        if len(hashes) == 0:
            return
        new, counts = np.unique(hashes, return_counts=True)
        keys = np.concatenate([self.keys, new[:SAMPLED_KEYS]])
        self.keys, place = np.unique(keys, return_inverse=True)
        total = np.bincount(place, np.concatenate([self.counts, counts[:SAMPLED_KEYS]])).astype(np.int64)
        self.keys, self.counts = self.keys[:SAMPLED_KEYS], total[:SAMPLED_KEYS]

    def seen(self, widest_slack: int) -> Seen:
        """The figures that are shown."""
        repeated = int(np.count_nonzero(self.counts > 1))
        order = self.order
        return Seen(
            len(self.keys),
            repeated,
            order.rows,
            order.ascending,
            order.descending,
            order.clustered,
            widest_slack,
        )

    def to_json(self) -> list[list[int]]:
        return [self.keys.tolist(), self.counts.tolist(), list(astuple(self.order))]

    def restore(self, part: Any) -> None:
        self.keys, self.counts = (np.array(values, np.int64) for values in part[:2])
        self.order = Order(*part[2])

    def merge(self, parts: Sequence[Any]) -> Any:
        """The samples of all buckets, which follow each other in hash order."""
        keys, counts, orders = zip(*parts, strict=True)
        order = reduce(Order.and_then, [Order(*each) for each in orders])
        return [list(chain(*keys)), list(chain(*counts)), list(astuple(order))]

    def split(self, whole: Any, hashes: HashRange) -> Any:
        """A range beyond an old sample begins with an empty one: its keys are seen from now on."""
        keys, counts, order = whole
        here = hashes.slice_of(np.array(keys, np.int64))
        order = order if hashes.of_first_bucket else list(astuple(Order()))
        return [keys[here][:SAMPLED_KEYS], counts[here][:SAMPLED_KEYS], order]

    def digest(self, whole: Any) -> Any:
        """Samples may differ: they are advice."""
        return whole[2]


@dataclass(frozen=True, slots=True)
class Seen:
    """Figures of one input. Those called keys and rows add up over buckets, a slack is the greatest."""

    sampled_keys: int
    repeated_keys: int
    ordered_rows: int
    ascending_slack: int
    descending_slack: int
    clustered_slack: int
    arrival_slack: int
