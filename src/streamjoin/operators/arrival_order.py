"""Clustered and ordered arrival turned into promises.

Clustered with slack k: after a tuple of key v, v may come back within the next k + 1 tuples; once
that many have passed without it, v is closed. Ordered with slack k: a tuple may be smaller than
one before it only if it comes within the next k tuples; so everything below the greatest of all
but the last k tuples is closed. Worked number, slack 0: keys 3 3 4 close 3, in both cases.

A tracker sees an input's tuples in their order and carries over what the slack needs: the last
few keys, or the last few values and the greatest before them. Rows that come back all the same
are told apart here, so that cutting the input into batches elsewhere changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin.batch import Batch, Layout, Mask, concat
from streamjoin.metadata import Arrival, Clustered, Ordered
from streamjoin.punctuation import Range
from streamjoin.state.promises import KeyPatterns
from streamjoin.state.ranges import codes


@dataclass(frozen=True, slots=True)
class Implied:
    """Rows that came back too late, and what is closed after the batch."""

    behind: Mask
    keys: Batch
    patterns: tuple[KeyPatterns, ...]


class ClusterTracker:
    """Keys that may still come back, with the tuples that have passed since each."""

    def __init__(self, arrival: Clustered, layout: Layout) -> None:
        self.slack = arrival.slack
        self.recent = Layout(layout.key_types, payload_types=(pa.int64(),)).empty()  # payload: age

    def follow(self, rows: Batch) -> Implied:
        """The next rows of the input, in order."""
        size, carried = len(rows), len(self.recent)
        keys_only = rows.layout.keys_only
        both = concat(keys_only, [self.recent.only_keys(), rows.only_keys()])
        order = both.sort_order()
        ages = self.recent.payload[0].to_numpy() if carried else np.empty(0, np.int64)
        position = np.concatenate([-1 - ages, np.arange(size)])[order]
        by_key = both.take(order)
        groups = by_key.groups
        group = groups.of_rows()
        within = np.lexsort((position, group))
        position, source = position[within], order[within]
        reopened = np.zeros(len(position), np.bool_)
        reopened[1:] = (group[1:] == group[:-1]) & (position[1:] - position[:-1] - 1 > self.slack)
        # once a key has come back too late, all its later tuples of this batch are behind too
        after = np.maximum.accumulate(np.where(reopened, np.arange(len(position)), -1))
        late = after >= groups.start[group] if len(groups) else reopened
        behind: Mask = np.zeros(size, np.bool_)
        behind[source[late & (source >= carried)] - carried] = True
        on_time_last = np.where(late, np.iinfo(np.int64).min, position)
        last_seen = np.maximum.reduceat(on_time_last, groups.start) if len(groups) else position
        age = size - 1 - last_seen
        closed = age > self.slack
        distinct = by_key.distinct_keys()
        still = np.flatnonzero(~closed)
        self.recent = self.recent.layout.batch(
            [column.take(pa.array(still)) for column in distinct.data.columns] + [pa.array(age[still])]
        )
        return Implied(behind, distinct.where(closed), ())

    def state(self) -> list[pa.RecordBatch]:
        return [self.recent.data]

    def restore(self, batches: list[pa.RecordBatch]) -> None:
        self.recent = Batch(self.recent.layout, batches[0])


class OrderTracker:
    """The last `slack` values, and the greatest before them (the smallest, if descending)."""

    def __init__(self, arrival: Ordered, layout: Layout) -> None:
        self.arrival = arrival
        self.dtype = layout.key_types[0]
        self.limit = pa.array([], self.dtype)
        self.recent = pa.array([], self.dtype)

    def follow(self, rows: Batch) -> Implied:
        """The next rows of the input, in order."""
        carried = len(self.limit) + len(self.recent)
        values = pa.concat_arrays([self.limit, self.recent, rows.keys[0]])
        coded = codes(values)
        if isinstance(coded, list):  # as objects: numpy's own byte strings lose their trailing zeros
            coded = np.array(coded, dtype=object)
        _, rank = np.unique(coded, return_inverse=True)
        rank = -rank if self.arrival.descending else rank
        reach = np.maximum.accumulate(rank) if len(rank) else rank
        # the limit for value i is the greatest of all but the `slack` values before it
        bar = np.full(len(rank), np.iinfo(np.int64).min)
        bar[1 + self.arrival.slack :] = reach[: max(len(rank) - 1 - self.arrival.slack, 0)]
        if len(self.limit):
            bar = np.maximum(bar, rank[0])
        behind: Mask = (rank < bar)[carried:]
        settled = len(values) - self.arrival.slack
        patterns: tuple[KeyPatterns, ...] = ()
        if settled > 0:
            greatest = int(np.argmax(rank[:settled]))
            self.limit, self.recent = values.slice(greatest, 1), values.slice(settled)
            patterns = ((self._closed_below(self.limit[0].as_py()),),)
        else:
            self.recent = values
        return Implied(behind, rows.layout.keys_only.empty(), patterns)

    def _closed_below(self, value: Any) -> Range:
        if self.arrival.descending:
            return Range(value, None, False, False)
        return Range(None, value, False, False)

    def state(self) -> list[pa.RecordBatch]:
        return [pa.RecordBatch.from_arrays([column], ["k"]) for column in (self.limit, self.recent)]

    def restore(self, batches: list[pa.RecordBatch]) -> None:
        self.limit, self.recent = (batch.column(0) for batch in batches)


Tracker = ClusterTracker | OrderTracker


def tracker(arrival: Arrival, layout: Layout) -> Tracker:
    """What follows an input that declares this arrival."""
    return (
        ClusterTracker(arrival, layout) if isinstance(arrival, Clustered) else OrderTracker(arrival, layout)
    )
