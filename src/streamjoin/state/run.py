"""Sorted run: rows of one layout, sorted by key, immutable; and the tombstones of evicted rows.

The rows of a run never change, so any copy of them found under the run's name is right; they may be
spilled and loaded again (`memory`). What does change is small and always here: a tombstone
per row (set by eviction, cleared never) and, for outer joins, a matched flag per row (set when it
took part in a result). Both are stored in the manifest.

Two more orders over the same rows are built on first need: by time, so that an invalidation
touches only the rows between the old and the new bound; and by the value of the key, so that a
range punctuation touches only the keys it covers.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from streamjoin.columnar.batch import Batch, Ints, Layout, Mask, Places
from streamjoin.columnar.hash_index import HashIndex
from streamjoin.columnar.keys import equal_at
from streamjoin.columnar.match import any_by_group, expand, find_ranges, match_repeated, match_unique
from streamjoin.errors import InvariantBroken
from streamjoin.punctuation import Range
from streamjoin.state.closed_ranges import code_bounds, codes
from streamjoin.state.memory import MemoryManager

_NONE: Ints = np.empty(0, np.int64)
_ORDERS = ("_by_time", "_by_value")  # over the rows, built on first need
_SHORT_ROWS = 4096  # a run up to here is searched as fast without an index
_ROWS_A_KEY = 16  # an index reads every row: it pays from one key asked for so many rows on


@dataclass(frozen=True, slots=True)
class RunMetadata:
    """What is known of a run's rows while they are spilled; bounds are inclusive."""

    layout: Layout
    rows: int
    nbytes: int
    hashes: tuple[int, int]
    times: tuple[int, int]  # says something only where the layout has a time


@dataclass(eq=False)
class Run:
    """Sorted rows under a name that no other rows ever had."""

    name: str
    loaded: Batch | None  # None: the rows are not in memory; see `batch`
    tombstones: Mask | None = None
    matched: Mask | None = None
    stored_as: str | None = None  # the name under which these rows are stored, once they are
    known_collided: bool | None = None  # whether two keys share a hash here, where it is known
    known_metadata: RunMetadata | None = None
    memory_manager: MemoryManager | None = None
    arrived: Ints | None = None  # the turn in which each row came, where matches may be deferred
    spilled_at: int | None = None  # and the turn in which the run was spilled
    places: Places | None = None  # of the payload columns among the stored ones, where these differ
    asked: int = 0  # keys that were looked for here while the rows are in memory
    tombstoned_rows: int = field(init=False)

    def __post_init__(self) -> None:
        self.tombstoned_rows = 0 if self.tombstones is None else int(self.tombstones.sum())

    @property
    def batch(self) -> Batch:
        """The rows, loaded where they are spilled; ask once for each piece of work."""
        if self.loaded is not None:
            return self.loaded
        if self.memory_manager is None:
            raise InvariantBroken(f"run {self.name} is neither in memory nor stored; please report this")
        return self.memory_manager.fetch(self)

    @property
    def metadata(self) -> RunMetadata:
        if self.known_metadata is None:
            batch = self.batch
            times = (int(batch.bound.min()), int(batch.bound.max())) if batch.layout.timed else (0, 0)
            bounds = int(batch.hash[0]), int(batch.hash[-1])
            self.known_metadata = RunMetadata(batch.layout, len(batch), batch.nbytes, bounds, times)
        return self.known_metadata

    def unload(self) -> None:
        """Unload the rows and the indexes built over them; flags and metadata stay."""
        self.known_metadata, self.known_collided = self.metadata, self.collided
        self.loaded, self.asked = None, 0
        for built in (*_ORDERS, "_index"):
            self.__dict__.pop(built, None)

    def __len__(self) -> int:
        return self._rows

    @cached_property
    def _rows(self) -> int:
        return len(self.loaded) if self.loaded is not None else self.metadata.rows

    @property
    def layout(self) -> Layout:
        return self.loaded.layout if self.loaded is not None else self.metadata.layout

    @property
    def live_rows(self) -> int:
        return self._rows - self.tombstoned_rows

    @property
    def nbytes(self) -> int:
        return self.loaded.nbytes if self.loaded is not None else self.metadata.nbytes

    @property
    def resident_bytes(self) -> int:
        """About what the rows and the indexes built over them take of memory."""
        if self.loaded is None:
            return 0
        groups = 24 * len(self.loaded.groups) if self.loaded.grouped else 0
        orders = 16 * len(self.loaded) * sum(name in self.__dict__ for name in _ORDERS)
        index = self._index.nbytes if "_index" in self.__dict__ else 0
        return self.loaded.nbytes + groups + orders + index

    @property
    def born(self) -> int:
        """The step in which these rows came together."""
        return int(self.name.partition("-")[0])

    @cached_property
    def hash_bounds(self) -> tuple[int, int]:
        """Smallest and greatest hash, both inclusive."""
        if self.loaded is None:
            return self.metadata.hashes
        values = self.loaded.hash
        return int(values[0]), int(values[-1])

    @property
    def collided(self) -> bool:
        """Whether two keys of this run share a hash."""
        if self.known_collided is None:
            self.known_collided = self.batch.collided
        return self.known_collided

    @property
    def time_bounds(self) -> tuple[int, int]:
        """Earliest and latest time by which a row is evicted, both inclusive; only for a timed layout."""
        return self.metadata.times

    @cached_property
    def _by_time(self) -> tuple[Ints, Ints]:
        times = self.batch.bound
        order = np.argsort(times, kind="stable")
        return times[order], order

    @cached_property
    def _by_value(self) -> tuple[Any, Ints]:
        """The codes of a single key column's values, ascending, and the group of each."""
        coded = codes(self.batch.distinct_keys().keys[0])
        if isinstance(coded, list):
            order = sorted(range(len(coded)), key=coded.__getitem__)
            return [coded[i] for i in order], np.array(order, np.int64)
        by_code = np.argsort(coded, kind="stable")
        return coded[by_code], by_code

    @cached_property
    def _index(self) -> HashIndex:
        """Over the hashes of the rows, or of the keys where one has more rows."""
        values = self.batch.hash
        return HashIndex.of(self.batch.groups.hash if np.any(values[1:] == values[:-1]) else values)

    def find(self, hashes: Ints) -> tuple[Ints, Ints, Ints]:
        """Which of ascending hashes without repeats are here, where no two keys share one: their positions,
        and for each the start and length of its rows.

        A run that was just mapped from a file is searched as it is, and indexed once enough was asked of it.
        """
        batch = self.batch
        self.asked += len(hashes)
        if len(self) <= _SHORT_ROWS:
            found, at = match_unique(hashes, batch.groups.hash)
        elif _ROWS_A_KEY * self.asked < len(self):
            return find_ranges(hashes, batch.hash)
        else:
            found, at = self._index.find(hashes)
            if len(self._index.values) == len(self):
                return found, at, np.ones(len(at), np.int64)
        return found, batch.groups.start[at], batch.groups.count[at]

    def groups_within(self, pattern: Range) -> Ints:
        """The groups whose (single) key lies in a range, ascending."""
        low, high = code_bounds(pattern, self.layout.key_types[0])
        coded, group = self._by_value
        first = bisect.bisect_left(coded, low)
        last = len(coded) if high is None else bisect.bisect_left(coded, high)
        return np.sort(group[first : max(first, last)])

    def hit(self, groups: Ints) -> Hit:
        """Groups of this run as what a probe for them would find."""
        mine = self.batch.groups
        return Hit(self, groups, mine.start[groups], mine.count[groups])

    def alive(self, rows: Ints) -> Mask:
        """Which of these rows are live."""
        if self.tombstones is None:
            return np.ones(len(rows), np.bool_)
        flags: Mask = ~self.tombstones[rows]
        return flags

    def live_mask(self) -> Mask:
        return np.ones(len(self), np.bool_) if self.tombstones is None else ~self.tombstones

    def mark_matched(self, rows: Ints) -> None:
        """Remember that these rows took part in a result."""
        if self.matched is None:
            self.matched = np.zeros(len(self), np.bool_)
        self.matched[rows] = True

    def arrived_between(self, start: int, stop: int) -> Ints:
        """The turns of the live rows from `start` to `stop`."""
        turns: Ints = np.zeros(stop - start, np.int64) if self.arrived is None else self.arrived[start:stop]
        return turns if self.tombstones is None else turns[~self.tombstones[start:stop]]

    def matched_between(self, start: int, stop: int) -> Mask:
        """The matched flags of the live rows from `start` to `stop`."""
        flags: Mask = np.zeros(stop - start, np.bool_) if self.matched is None else self.matched[start:stop]
        return flags if self.tombstones is None else flags[~self.tombstones[start:stop]]

    def unmatched(self, rows: Ints) -> Ints:
        """Those of the rows that never took part in a result."""
        return rows if self.matched is None else rows[~self.matched[rows]]

    def delete(self, rows: Ints) -> int:
        """Tombstone distinct rows; returns how many were live."""
        if len(rows) == 0:
            return 0
        if self.tombstones is None:
            self.tombstones = np.zeros(len(self), np.bool_)
        newly = int(np.count_nonzero(~self.tombstones[rows]))
        self.tombstones[rows] = True
        self.tombstoned_rows += newly
        return newly

    def delete_groups(self, start: Ints, count: Ints) -> int:
        """Tombstone disjoint ranges of rows; returns how many rows were live.

        Few rows are marked one by one; many are flooded in one pass over the run.
        """
        rows = int(count.sum())
        if 4 * rows < len(self):
            return self.delete(expand(start, count)[1])
        if rows == len(self):
            flood: Mask = np.ones(len(self), np.bool_)
        else:
            edge = np.zeros(len(self) + 1, np.int8)
            edge[start] = 1
            edge[start + count] -= 1
            flood = np.cumsum(edge[:-1], dtype=np.int8).view(np.bool_)
        tombstones = flood if self.tombstones is None else self.tombstones | flood
        before, self.tombstones, self.tombstoned_rows = (
            self.tombstoned_rows,
            tombstones,
            int(np.count_nonzero(tombstones)),
        )
        return self.tombstoned_rows - before

    def live_between(self, start_us: int, stop_us: int) -> Ints:
        """Live rows with start <= the time by which they are evicted < stop."""
        earliest, latest = self.time_bounds
        if start_us > latest or stop_us <= earliest:
            return _NONE
        if start_us <= earliest and stop_us > latest:
            rows: Ints = np.flatnonzero(self.live_mask())
            return rows
        times, order = self._by_time
        found = order[np.searchsorted(times, start_us) : np.searchsorted(times, stop_us)]
        return found[self.alive(found)]


@dataclass(frozen=True, slots=True)
class Hit:
    """Keys of a probe that a run has: probe group `probe[i]` is `count[i]` rows from `start[i]`."""

    run: Run
    probe: Ints
    start: Ints
    count: Ints

    def live(self) -> tuple[Ints, Ints]:
        """Every live stored row: (position in this hit, row of the run), in run order per key."""
        parent, rows = expand(self.start, self.count)
        if self.run.tombstones is None:
            return parent, rows
        alive = self.run.alive(rows)
        return parent[alive], rows[alive]

    def present(self) -> Mask:
        """Which positions of this hit have a live row."""
        tombstones = self.run.tombstones
        if tombstones is None:
            return np.ones(len(self.start), np.bool_)
        if 4 * int(self.count.sum()) > len(tombstones):
            evicted_before = np.concatenate(([0], np.cumsum(tombstones)))
            present: Mask = evicted_before[self.start + self.count] - evicted_before[self.start] < self.count
            return present
        parent, _ = self.live()
        return any_by_group(np.ones(len(parent), np.bool_), parent, len(self.start))


def match(probe: Batch, run: Run) -> Hit:
    """The keys that a sorted probe and a run share, verified on the real key columns.

    Runs of a tier cover hash ranges, so only that part of the probe is searched.
    """
    ours = probe.groups
    low, high = run.hash_bounds
    first = int(ours.hash.searchsorted(low, side="left"))
    last = int(ours.hash.searchsorted(high, side="right"))
    if first == last:
        return Hit(run, _NONE, _NONE, _NONE)
    searched = ours.hash[first:last]
    batch = run.batch
    if run.collided or ours.collided:
        theirs = batch.groups
        left, right = match_repeated(searched, theirs.hash)
        start, count = theirs.start[right], theirs.count[right]
    else:
        left, start, count = run.find(searched)
    if len(left) == 0:
        return Hit(run, left, start, count)
    left = left + first
    same = equal_at(probe.keys, ours.start[left], batch.keys, start)
    if same.all():
        return Hit(run, left, start, count)
    return Hit(run, left[same], start[same], count[same])
