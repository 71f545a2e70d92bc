"""The cache of a semi-stream join: values with all their table rows, or known to have none.

Rows are sorted runs, as the state of every join is, so that a batch stores only what it added. Each row
carries how often its value was met and since when, in one number; a value's is that of its first row. Worked
number: met 30 times since clock 100, at clock 700 with 100 ticks a cycle: 5 times a cycle. Counting every
eighth batch, each tuple for eight, is enough, and the numbers need not be stored again in between.

Invariant: a value is evicted with all its rows at once: a part of them would give a part of the results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamjoin.columnar.batch import Batch, Ints, Layout, Mask
from streamjoin.columnar.keys import equal_at
from streamjoin.state.run import Hit, Run
from streamjoin.state.sorted_runs import CompactionPolicy, MarkedRows, RunNames, SortedRuns

Floats = npt.NDArray[np.float64]

_MET = (1 << 32) - 1  # the lower half is how often a value was met, the upper since when


@dataclass(frozen=True, slots=True)
class CacheHits:
    """The outcome of a probe: which keys of sorted tuples are cached, and the rows of those with any."""

    known: Mask
    hits: list[Hit]


@dataclass(frozen=True, slots=True)
class CachedValues:
    """Statistics of cached values: how often each was met, for how many ticks it has been there, its rows,
    its hash.
    """

    met: Ints
    age: Ints
    rows: Ints
    hash: Ints


class TableCache:
    """Values and their table rows; `absent` are values without any."""

    def __init__(self, layout: Layout, names: RunNames, policy: CompactionPolicy) -> None:
        self.rows = SortedRuns("cache", layout, names, policy)
        self.absent = SortedRuns("absent", layout.keys_only, names, policy)

    @property
    def sides(self) -> tuple[SortedRuns, SortedRuns]:
        return self.rows, self.absent

    def __len__(self) -> int:
        """Rows, and values known to have none."""
        return self.rows.live_rows + self.absent.live_rows

    @property
    def nbytes(self) -> int:
        return sum(side.nbytes + 8 * side.live_rows for side in self.sides)

    @property
    def value_bytes(self) -> float:
        """Bytes of a value without rows."""
        stored = self.absent.live_rows + self.absent.tombstoned_rows
        return 8.0 + (self.absent.nbytes / stored if stored else 16.0 * len(self.absent.layout.key_types))

    def clear(self) -> None:
        """Evict everything."""
        for side in self.sides:
            side.tiers = []

    def look_up(self, tuples: Batch, weight: int) -> CacheHits:
        """Probe with sorted tuples; each counts `weight` times."""
        known: Mask = np.zeros(len(tuples.groups), np.bool_)
        hits = [[_live_hit(hit) for hit in side.match(tuples)] for side in self.sides]
        for hit in (hit for some in hits for hit in some):
            known[hit.probe] = True
            if weight:
                _count(hit.run, hit.start, weight * tuples.groups.count[hit.probe])
        return CacheHits(known, hits[0])

    def add(self, rows: Batch, absent: Batch, met: tuple[Ints, Ints], since: int) -> int:
        """Add values with all their rows, and keys known to have none; what is cached already stays.

        `met` is how often the value of each row came since then. Returns how many values are new.
        """
        added = 0
        for side, batch, count in zip(self.sides, (rows, absent), met, strict=True):
            if len(batch):
                by_key = batch.sorted()
                new = ~self._contains(by_key)
                marks = (since << 32) + np.minimum(count, _MET)[batch.sort_order()]
                mine = new[by_key.groups.of_rows()]
                if mine.any():
                    side.adopt(MarkedRows(by_key.where(mine), arrived=marks[mine]))
                    side.compact_due()
                added += int(np.count_nonzero(new))
        return added

    def _contains(self, rows: Batch) -> Mask:
        """For each key of sorted rows, whether it is cached."""
        cached: Mask = np.zeros(len(rows.groups), np.bool_)
        for side in self.sides:
            for hit in side.match(rows):
                cached[_live_hit(hit).probe] = True
        return cached

    def evict(self, clock: int, stays: Callable[[CachedValues], Mask]) -> int:
        """Evict the values for which `stays` is false; returns how many."""
        runs = [run for side in self.sides for run in side.runs]
        with_rows = sum(1 for _ in self.rows.runs)
        parts = [_values(run, clock, has_rows=i < with_rows) for i, run in enumerate(runs)]
        if not parts:
            return 0
        all_values = CachedValues(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        kept = np.split(stays(all_values), np.cumsum([len(part[0]) for part in parts])[:-1])
        _keep_values_whole(runs[:with_rows], kept)
        evicted = 0
        for run, keep in zip(runs, kept, strict=True):
            groups = run.batch.groups
            alive = run.alive(groups.start)
            evicted += int(np.count_nonzero(alive & ~keep))
            run.delete_groups(groups.start[~keep], groups.count[~keep])
        for side in self.sides:
            side.drop_tombstoned()
        return evicted

    def decay(self, clock: int) -> None:
        """Halve what was counted."""
        for side in self.sides:
            for run in side.runs:
                marks = _marks(run)
                run.arrived = _halved(marks >> 32, marks & _MET, clock)

    def begin_counting(self, clock: int, chosen: Callable[[Ints], Mask]) -> None:
        """Count again from now on, for the values whose hashes are chosen."""
        for side in self.sides:
            for run in side.runs:
                _marks(run)[chosen(run.batch.hash)] = clock << 32


def _keep_values_whole(runs: list[Run], kept: list[Mask]) -> None:
    """A value whose rows go on in the next run is evicted from both or from none."""
    borders = range(len(runs) - 1)
    for i in (*borders, *reversed(borders)):
        one, other = runs[i].batch, runs[i + 1].batch
        last, first = np.array([len(one) - 1]), np.zeros(1, np.int64)
        if equal_at(one.keys, last, other.keys, first)[0]:
            kept[i][-1] = kept[i + 1][0] = kept[i][-1] and kept[i + 1][0]


def _live_hit(hit: Hit) -> Hit:
    """Without evicted values: all rows of a value have a tombstone, or none."""
    if hit.run.tombstones is None or len(hit.probe) == 0:
        return hit
    alive = ~hit.run.tombstones[hit.start]
    return Hit(hit.run, hit.probe[alive], hit.start[alive], hit.count[alive])


def _marks(run: Run) -> Ints:
    """A run's counts and times of admission, writable."""
    marks = run.arrived if run.arrived is not None else np.zeros(len(run), np.int64)
    if not marks.flags.writeable:
        marks = marks.copy()
    run.arrived = marks
    return marks


def _count(run: Run, rows: Ints, more: Ints) -> None:
    marks = _marks(run)
    marks[rows] += np.minimum(more, _MET - (marks[rows] & _MET))


def _values(run: Run, clock: int, *, has_rows: bool) -> tuple[Ints, Ints, Ints, Ints]:
    groups = run.batch.groups
    marks = _marks(run)[groups.start]
    count = groups.count if has_rows else np.zeros(len(groups), np.int64)
    return marks & _MET, clock - (marks >> 32), count, groups.hash


def _halved(since: Ints, met: Ints, clock: int) -> Ints:
    return ((clock - (clock - since) // 2) << 32) + (met >> 1)
