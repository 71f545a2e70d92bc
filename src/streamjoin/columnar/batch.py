"""Batch: rows as Arrow columns with key hash and time; what every kernel, run and operator works on.

A `Batch` is one Arrow record batch in a fixed physical layout:

    h       int64   hash of the key
    t       int64   event time in microseconds (only where the input has a time)
    d       int64   the latest time of a result it may be part of (only of another join's results)
    k0 k1…          key columns, cast to the join's common types, never null
    p0 p1…          the other columns a result needs, in declared order

Positional names keep user columns out of the way. A batch that was `sorted()` is ascending by
`h`, and rows of one key are adjacent even where two keys share a hash, so a *group* (a maximal
range of rows of one key) is known by its first row. Worked number: keys 7 7 3 with hashes
9 9 2 sort to 3 7 7; groups start at rows 0 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin.columnar.keys import adjacent_equal, tie_order

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

Places = tuple[int, ...]  # where stored rows have each payload column; -1: they have none

NO_TIME = np.iinfo(np.int64).min  # stands for a null time of a row that stays all the same


@dataclass(frozen=True)
class Layout:
    """The physical columns of one input's rows."""

    key_types: tuple[pa.DataType, ...]
    timed: bool = False
    payload_types: tuple[pa.DataType, ...] = ()
    until: bool = False  # only with a time

    @property
    def first_key(self) -> int:
        """The number of the first key column."""
        return 1 + self.timed + self.until

    @cached_property
    def schema(self) -> pa.Schema:
        fields = [pa.field("h", pa.int64(), nullable=False)]
        if self.timed:
            fields.append(pa.field("t", pa.int64(), nullable=False))
        if self.until:
            fields.append(pa.field("d", pa.int64(), nullable=False))
        fields += [pa.field(f"k{i}", dtype) for i, dtype in enumerate(self.key_types)]
        fields += [pa.field(f"p{i}", dtype) for i, dtype in enumerate(self.payload_types)]
        return pa.schema(fields)

    @cached_property
    def keys_only(self) -> Layout:
        """The layout of rows that are nothing but a key: closed keys, propagated keys."""
        return Layout(self.key_types)

    @cached_property
    def keys_with_time(self) -> Layout:
        """The layout of keys with a time: scheduled punctuations, closed keys that are forgotten."""
        return Layout(self.key_types, timed=True)

    def empty(self) -> Batch:
        return Batch(self, pa.RecordBatch.from_pylist([], schema=self.schema))

    def batch(self, columns: Sequence[Any]) -> Batch:
        """A batch from one array per physical column."""
        return Batch(self, pa.RecordBatch.from_arrays(list(columns), schema=self.schema))


@dataclass(frozen=True, slots=True)
class Groups:
    """Where the keys of a sorted batch lie: `hash[g]`, rows `start[g] : start[g] + count[g]`."""

    hash: Ints
    start: Ints
    count: Ints
    collided: bool  # some hash stands for more than one key here

    def __len__(self) -> int:
        return len(self.hash)

    def of_rows(self) -> Ints:
        """The group number of every row."""
        return np.repeat(np.arange(len(self.hash)), self.count)


@dataclass(frozen=True)
class Batch:
    """Rows in one `Layout`; immutable. `hash`, `time` and `keys` are views, not copies."""

    layout: Layout
    data: pa.RecordBatch

    def __len__(self) -> int:
        return int(self.data.num_rows)

    @cached_property
    def hash(self) -> Ints:
        array: Ints = self.data.column(0).to_numpy()
        return array

    @cached_property
    def time(self) -> Ints:
        """Event times in microseconds; only for a timed layout."""
        array: Ints = self.data.column(1).to_numpy()
        return array

    @cached_property
    def bound(self) -> Ints:
        """The time that lets each row go: its `until` where the layout has one, else its own time."""
        array: Ints = self.data.column(2).to_numpy() if self.layout.until else self.time
        return array

    def windows(self, rows: Ints, window_us: int | None) -> int | Ints | None:
        """How long after its time each of the rows may still join: its own where the layout has one."""
        if window_us is None or not self.layout.until:
            return window_us
        own: Ints = self.bound[rows] - self.time[rows]
        return own

    @cached_property
    def keys(self) -> list[Any]:
        first = self.layout.first_key
        return [self.data.column(first + i) for i in range(len(self.layout.key_types))]

    @cached_property
    def payload(self) -> list[Any]:
        first = self.layout.first_key + len(self.layout.key_types)
        return [self.data.column(first + i) for i in range(len(self.layout.payload_types))]

    @cached_property
    def nbytes(self) -> int:
        return int(self.data.nbytes)

    def take(self, rows: Ints) -> Batch:
        return Batch(self.layout, self.data.take(pa.array(rows)))

    def where(self, mask: Mask) -> Batch:
        if mask.all():
            return self
        return self.take(np.flatnonzero(mask))

    def slice(self, start: int, length: int) -> Batch:
        if start == 0 and length == len(self):
            return self
        return Batch(self.layout, self.data.slice(start, length))

    def only_keys(self) -> Batch:
        """The same rows without time and payload."""
        if self.layout.keys_only == self.layout:
            return self
        return self.layout.keys_only.batch([self.data.column(0), *self.keys])

    def keys_at(self, time_us: int) -> Batch:
        """The same rows without payload, all with one time."""
        times = pa.array(np.full(len(self), time_us, np.int64))
        return self.layout.keys_with_time.batch([self.data.column(0), times, *self.keys])

    def sorted(self, *, in_runs: bool = False) -> Batch:
        """The rows by hash, equal keys adjacent; rows of one key in any order.

        `in_runs`: the rows are a few sorted runs one after another; merging them is
        then cheaper than sorting.
        """
        order = self._sorting("stable" if in_runs else "quicksort")
        if order is None:
            return self
        known: Batch | None = self.__dict__.get("_sorted")
        if known is None:
            known = self.__dict__["_sorted"] = self.take(order)
            known.__dict__["_order"] = None
        return known

    def sort_order(self, *, in_runs: bool = False) -> Ints:
        """The row numbers in the order of `sorted()`."""
        order = self._sorting("stable" if in_runs else "quicksort")
        return np.arange(len(self)) if order is None else order

    def _sorting(self, kind: Literal["quicksort", "stable"]) -> Ints | None:
        """The order of `sorted()`, None where the rows have it already; found once."""
        if "_order" not in self.__dict__:
            self.__dict__["_order"] = self._find_order(kind)
        order: Ints | None = self.__dict__["_order"]
        return order

    def _find_order(self, kind: Literal["quicksort", "stable"]) -> Ints | None:
        values, order = self.hash, None
        if len(values) < 2:
            return None
        if np.any(values[1:] < values[:-1]):
            order = np.argsort(values, kind=kind)
            values = values[order]
        same_hash = values[1:] == values[:-1]
        if not same_hash.any():
            return order
        keys = self.keys if order is None else [key.take(pa.array(order)) for key in self.keys]
        split = same_hash & ~adjacent_equal(keys)
        if not split.any():
            return order
        # Two keys share a hash. Only their rows are put in order, which is rare and small.
        order = np.arange(len(values)) if order is None else order
        bounds = np.flatnonzero(np.concatenate(([True], ~same_hash, [True])))
        touched = np.unique(np.searchsorted(bounds, np.flatnonzero(split), side="right") - 1)
        for start, stop in zip(bounds[touched], bounds[touched + 1], strict=True):
            ties = tie_order([key.slice(start, stop - start) for key in keys])
            order[start:stop] = order[start:stop][ties]
        return order

    @property
    def grouped(self) -> bool:
        """Whether `groups` is known already."""
        return "groups" in self.__dict__

    @cached_property
    def groups(self) -> Groups:
        """The keys of a sorted batch."""
        values = self.hash
        if len(values) == 0:
            none = np.empty(0, np.int64)
            return Groups(none, none, none, collided=False)
        if len(values) == 1:
            return Groups(values, np.zeros(1, np.int64), np.ones(1, np.int64), collided=False)
        new_hash = values[1:] != values[:-1]
        new_key = new_hash | ~adjacent_equal(self.keys)
        start = np.concatenate(([0], np.flatnonzero(new_key) + 1))
        count = np.diff(start, append=len(values))
        return Groups(values[start], start, count, collided=bool((new_key != new_hash).any()))

    @property
    def collided(self) -> bool:
        """Whether two keys of a sorted batch share a hash."""
        if self.grouped:
            return self.groups.collided
        same_hash = self.hash[1:] == self.hash[:-1]
        return bool(same_hash.any() and np.any(same_hash & ~adjacent_equal(self.keys)))

    def distinct_keys(self) -> Batch:
        """One row per key of a sorted batch, keys only."""
        keys = self.only_keys()
        return keys if len(self.groups) == len(self) else keys.take(self.groups.start)


def concat(layout: Layout, batches: Sequence[Batch]) -> Batch:
    """All rows, one batch after another."""
    full = [batch for batch in batches if len(batch)]
    if not full:
        return layout.empty()
    if len(full) == 1:
        return full[0]
    return Batch(layout, pa.concat_batches([batch.data for batch in full]))
