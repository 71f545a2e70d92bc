"""Sorted runs in tiers: a log-structured merge store of rows, with tiered compaction.

A row is in exactly one run. Runs shrink only by whole-run drops and compaction, so a manifest that names
them stays small. Runs stand in tiers: the runs of one tier cover ascending hash ranges, so a probe row
touches one run per tier. Tiers of one size class are compacted into one when `fanout` of them exist: a
row is rewritten about log(state / batch) / log(fanout) times in its life, and there are at most
fanout - 1 tiers per class.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from streamjoin.columnar.batch import NO_TIME, Batch, Ints, Layout, Mask, concat
from streamjoin.state.memory import MemoryManager
from streamjoin.state.run import Hit, Run, match

_SMALLEST_CLASS_ROWS = 1024


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """When runs are rewritten: tiers of one size class by `fanout`, and a tier at its `tombstone_share`."""

    fanout: int = 6
    run_bytes: int = 128 << 20
    tombstone_share: float = 0.5
    smallest_class_rows: int = _SMALLEST_CLASS_ROWS

    def size_class(self, rows: int) -> int:
        if rows < self.smallest_class_rows:
            return 0
        return math.floor(math.log(rows / self.smallest_class_rows, self.fanout)) + 1


@dataclass(slots=True)
class RunNames:
    """Gives every run of a step its own name (the step's number keeps steps apart) and a place in
    the memory that all runs of a join share.
    """

    step: int = 0
    used: int = 0
    memory_manager: MemoryManager = field(default_factory=MemoryManager)

    def begin(self, step: int) -> None:
        self.step, self.used = step, 0

    def next(self, tag: str) -> str:
        self.used += 1
        return f"{self.step}-{tag}-{self.used}"


Tier = list[Run]


class MarkedRows(NamedTuple):
    """Rows on their way into a run: which took part in a result, and in which turn each came."""

    rows: Batch
    matched: Mask | None = None
    arrived: Ints | None = None

    def sorted(self) -> MarkedRows:
        """By hash; the rows are a few sorted runs, one after another."""
        if self.matched is None and self.arrived is None:
            return MarkedRows(self.rows.sorted(in_runs=True))
        return self._marked(self.rows.sorted(in_runs=True), self.rows.sort_order(in_runs=True))

    def between(self, start: int, rows: Batch) -> MarkedRows:
        """Some rows of this part, one after another from `start`, with their marks."""
        return self._marked(rows, slice(start, start + len(rows)))

    def _marked(self, rows: Batch, chosen: Ints | slice) -> MarkedRows:
        matched = None if self.matched is None else self.matched[chosen]
        return MarkedRows(rows, matched, None if self.arrived is None else self.arrived[chosen])


@dataclass(slots=True)
class SortedRuns:
    """Rows of one layout, as tiers of runs; newest tier last."""

    tag: str
    layout: Layout
    names: RunNames
    policy: CompactionPolicy = field(default_factory=CompactionPolicy)
    tiers: list[Tier] = field(default_factory=list)
    rewritten_rows: int = 0
    by_hash: bool = True  # rebucketing divides the rows by hash; False: all go to the first bucket

    @property
    def runs(self) -> Iterator[Run]:
        return (run for tier in self.tiers for run in tier)

    @property
    def live_rows(self) -> int:
        return sum([run.live_rows for tier in self.tiers for run in tier])

    @property
    def tombstoned_rows(self) -> int:
        return sum(run.tombstoned_rows for run in self.runs)

    @property
    def nbytes(self) -> int:
        return sum(run.nbytes for run in self.runs)

    def append(self, rows: Batch, matched: Mask | None = None, *, turn: int | None = None) -> None:
        """Add sorted rows as a new tier, then compact the tiers that are due."""
        if len(rows):
            self.adopt(MarkedRows(rows, matched, None if turn is None else np.full(len(rows), turn)))
            self.compact_due()

    def adopt(self, part: MarkedRows) -> None:
        """Add sorted rows as a tier, as they are."""
        self.tiers.append(self._cut([part]))

    def in_memory_first(self, *, never_spilled: bool = False) -> list[Run]:
        """The runs in the order in which a probe visits them; or only those that were never spilled."""
        return sorted(
            (run for run in self.runs if not never_spilled or run.spilled_at is None),
            key=lambda run: run.loaded is None,
        )

    def match(self, probe: Batch, among: Iterable[Run] | None = None) -> list[Hit]:
        """What a sorted probe shares with each run, or some; runs without a common key are left out."""
        if len(probe) == 0:
            return []
        hits = (match(probe, run) for run in (self.in_memory_first() if among is None else among))
        return [hit for hit in hits if len(hit.probe)]

    def present(self, probe: Batch) -> Mask:
        """For each key (group) of a sorted probe, whether a live row of it is stored."""
        found: Mask = np.zeros(len(probe.groups), np.bool_)
        missing = np.arange(len(found))
        keys = probe.distinct_keys()
        for run in self.runs:
            hit = match(keys, run)
            if len(hit.probe) == 0:
                continue
            here = hit.probe[hit.present()]
            if len(here):
                found[missing[here]] = True
                still = ~found[missing]
                missing, keys = missing[still], keys.where(still)
                if len(missing) == 0:
                    break
        return found

    def forget(self, keys: Batch) -> int:
        """Tombstone all rows with a key of a sorted batch; returns how many were live."""
        evicted = sum(hit.run.delete(hit.live()[1]) for hit in self.match(keys))
        if evicted:
            self.drop_tombstoned()
        return evicted

    def live(self) -> Batch:
        """All live rows, sorted."""
        return concat(self.layout, [run.batch.where(run.live_mask()) for run in self.runs]).sorted()

    def drop_tombstoned(self) -> None:
        """Drop runs without a live row; compact tiers with too many tombstones."""
        tiers = []
        for tier in self.tiers:
            rows, tombstones = sum(map(len, tier)), sum(run.tombstoned_rows for run in tier)
            if tombstones == rows:
                continue
            if tombstones > self.policy.tombstone_share * rows and not _has_spilled(tier):
                tiers.append(self._compact([tier]))
            elif tombstones:
                tiers.append([run for run in tier if run.live_rows])
            else:
                tiers.append(tier)
        self.tiers = tiers
        self.compact_due()

    def compact_due(self) -> None:
        """Compact tiers of one size class until fewer than `fanout` of each are left."""
        while len(self.tiers) >= self.policy.fanout:
            classes: dict[int, list[Tier]] = {}
            for tier in self.tiers:
                if not _has_spilled(tier):
                    classes.setdefault(self.policy.size_class(sum(map(len, tier))), []).append(tier)
            due = next(
                (tiers for _, tiers in sorted(classes.items()) if len(tiers) >= self.policy.fanout), None
            )
            if due is None:
                return
            compacted = self._compact(due)
            chosen = {id(tier) for tier in due}
            self.tiers = [tier for tier in self.tiers if id(tier) not in chosen]
            if compacted:
                self.tiers.append(compacted)

    def _compact(self, tiers: list[Tier]) -> Tier:
        """One tier with the live rows of several, built hash range by hash range."""
        runs = [run for tier in tiers for run in tier if run.live_rows]
        self.rewritten_rows += sum(run.live_rows for run in runs)
        parts = _compacted(runs, self.layout, self.policy.run_bytes)
        return self._cut(parts)

    def _cut(self, sorted_parts: Iterable[MarkedRows]) -> Tier:
        """Runs of at most `run_bytes` each, in hash order."""
        tier = []
        for part in sorted_parts:
            start = 0
            for piece in _pieces(part.rows, self.policy.run_bytes):
                rows, matched, arrived = part.between(start, piece)
                run = Run(self.names.next(self.tag), rows, matched=matched, arrived=arrived)
                self.names.memory_manager.admit(run)
                tier.append(run)
                start += len(piece)
        return tier


def _has_spilled(tier: Tier) -> bool:
    """Whether a run of a tier was spilled in a turn that must be known: then the tier stays as it is."""
    return any(run.spilled_at is not None for run in tier)


def _pieces(part: Batch, limit_bytes: int) -> Iterator[Batch]:
    """The rows in order, in pieces of at most `limit_bytes`, or of one row."""
    if len(part) <= 1 or part.nbytes <= limit_bytes:
        yield part
        return
    step = max(1, min(len(part) - 1, len(part) * limit_bytes // part.nbytes))
    for start in range(0, len(part), step):  # rows differ in size: a piece may need cutting again
        piece = part.take(np.arange(start, min(start + step, len(part))))  # a slice would keep all of it
        yield from _pieces(piece, limit_bytes)


def _compacted(runs: list[Run], layout: Layout, run_bytes: int) -> Iterator[MarkedRows]:
    """Sorted live rows of all runs, in ascending, disjoint hash ranges of about `run_bytes`."""
    bounds = [*_even_bounds(runs, math.ceil(1.1 * sum(run.nbytes for run in runs) / run_bytes)), None]
    begin = [0] * len(runs)
    for bound in bounds:
        ends = [_end_below(run, bound) for run in runs]
        part = _together(layout, runs, list(zip(begin, ends, strict=True)))
        begin = ends
        if len(part.rows):
            yield part.sorted()


def _end_below(run: Run, bound: int | None) -> int:
    """How many rows of a run have a hash below a bound; where its metadata says it, nothing is loaded."""
    low, high = run.hash_bounds
    if bound is None or high < bound:
        return len(run)
    return 0 if low >= bound else int(np.searchsorted(run.batch.hash, bound, side="left"))


def _together(layout: Layout, runs: list[Run], ranges: list[tuple[int, int]]) -> MarkedRows:
    """The live rows of a range of each run, one run after another."""
    full = [(run, begin, end) for run, (begin, end) in zip(runs, ranges, strict=True) if end > begin]
    slices = []
    for run, begin, end in full:
        rows = run.batch.slice(begin, end - begin)
        slices.append(rows if run.tombstones is None else rows.where(~run.tombstones[begin:end]))
    matched = [run.matched_between(begin, end) for run, begin, end in full]
    arrived = [run.arrived_between(begin, end) for run, begin, end in full]
    return MarkedRows(
        concat(layout, slices),
        np.concatenate(matched) if any(run.matched is not None for run in runs) and full else None,
        np.concatenate(arrived) if any(run.arrived is not None for run in runs) and full else None,
    )


def _even_bounds(runs: list[Run], parts: int) -> list[int]:
    """Ascending hashes that cut the rows of all runs into about so many equal parts."""
    if parts < 2:
        return []
    step = max(1, sum(map(len, runs)) // (32 * parts))
    sample = np.sort(np.concatenate([run.batch.hash[::step].copy() for run in runs]))
    return [int(each) for each in np.unique(sample[len(sample) * np.arange(1, parts) // parts])]


def present(hits: Iterable[Hit], groups: int) -> Mask:
    """Which of the probe's groups have a live row in any of these hits."""
    mask: Mask = np.zeros(groups, np.bool_)
    for hit in hits:
        mask[hit.probe[hit.present()]] = True
    return mask


class KeySet:
    """A set of keys with their real values behind the hashes; a `SortedRuns` of rows that are only keys.

    With a `clock` each key has the time at which it was put in, and can be forgotten by it. No key that
    may be forgotten has a time before `_since_us`.
    """

    def __init__(
        self,
        tag: str,
        layout: Layout,
        names: RunNames,
        policy: CompactionPolicy,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self._clock, self._since_us = clock, NO_TIME
        self.side = SortedRuns(
            tag, layout.keys_only if clock is None else layout.keys_with_time, names, policy
        )

    def __len__(self) -> int:
        return self.side.live_rows

    def contains(self, keys: Batch) -> Mask:
        """For each key (group) of a sorted batch, whether it is in the set."""
        if not self.side.tiers:
            return np.zeros(len(keys.groups), np.bool_)
        return self.side.present(keys)

    def add(self, keys: Batch) -> None:
        """Put in the distinct keys of a sorted batch that are not there yet."""
        distinct = keys.distinct_keys()
        self.append(distinct.where(~self.contains(distinct)))

    def append(self, keys: Batch) -> None:
        """Put in the distinct keys of a sorted batch, none of which is there."""
        if self._clock is not None and len(keys):
            now_us = self._clock()
            self._since_us = min(self._since_us, now_us)
            keys = keys.keys_at(now_us)
        self.side.append(keys)

    def forget_before(self, stop_us: int, may_go: Callable[[Batch], Mask]) -> None:
        """Take out keys that were put in before a time (exclusive), those of them that may go.

        Touches the keys between the bound of the last call and this one, and those that had to stay.
        """
        if self._clock is None or stop_us <= self._since_us:
            return
        stay = gone = 0
        for run in self.side.runs:
            rows = np.sort(run.live_between(self._since_us, stop_us))
            if len(rows):
                free = may_go(run.batch.only_keys().take(rows))
                gone += run.delete(rows[free])
                stay += len(rows) - int(np.count_nonzero(free))
        if gone:
            self.side.drop_tombstoned()
        if stay == 0:
            self._since_us = stop_us

    def remove(self, keys: Batch) -> int:
        """Take out the keys of a sorted batch; returns how many were there."""
        return self.side.forget(keys)
