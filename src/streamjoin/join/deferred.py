"""Deferred matches: XJoin's memory-disk and cleanup stages for n inputs.

Arriving rows probe only the runs in memory. Matches with spilled runs are deferred, and made slice by
slice of the hash space while the inputs are blocked, or when they have ended. Rows arrive in turns; each
row keeps the number of its turn, and a run the turn in which it was spilled (`spilled_at`). So a
combination of rows, the latest of which came in turn e, was made at once exactly when none of the others
was spilled before e. Every other combination is deferred until its slice is joined: then all combinations
up to now are made, and only rows that come later can defer again. Each combination is made once.

Worked case: a (turn 1) is spilled in turn 2; b of its key arrives in turn 3 and does not see it. 2 < 3:
the match is deferred. Had a been spilled in turn 3 or later, b would have seen it.

A slice with deferred matches keeps its rows, closed or out of their window, until it is joined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from streamjoin.columnar.assemble import Component
from streamjoin.columnar.batch import Batch, Ints, Mask
from streamjoin.join.probe import Probe
from streamjoin.state.component import Holds, StateComponent, refuse
from streamjoin.state.memory import MemoryManager
from streamjoin.state.run import Hit, Run
from streamjoin.state.sorted_runs import SortedRuns

SLICES = 16  # of the hash space, joined one at a time
_SHIFT = 60  # the upper four bits of a hash say its slice


def _slice_of(hashes: Ints) -> Ints:
    slices: Ints = (hashes >> _SHIFT) + SLICES // 2
    return slices


class DeferredMatches(StateComponent):
    """By slice of the hash space: up to which turn all is joined, and how many rows deferred matches since.

    Not `active` where every match is made at once. A state in which it was active goes on so until the
    operator has made what is deferred (`stop`).
    """

    name = "deferred_matches"
    holds: Holds = "pending"

    def __init__(self, memory_manager: MemoryManager, *, active: bool) -> None:
        self.active = active
        self.turn = 0
        self.joined_until: Ints = np.zeros(SLICES, np.int64)
        self.deferred_rows: Ints = np.zeros(SLICES, np.int64)
        self._memory_manager = memory_manager

    @property
    def state_rows(self) -> int:
        return int(self.deferred_rows.sum())

    @property
    def waiting(self) -> bool:
        """Whether any match is deferred."""
        return self.active and bool(self.deferred_rows.any())

    def begin_turn(self) -> int | None:
        """The number of the next turn of rows; they have seen every run that is spilled from now on."""
        if not self.active:
            return None
        self.turn += 1
        self._memory_manager.turn = self.turn
        return self.turn

    def defer(self, rows: Batch, others: Sequence[SortedRuns]) -> Mask | None:
        """Which arriving rows may match spilled rows: their matches are deferred. None: no row."""
        if not self.active:
            return None
        spilled: Mask = np.zeros(SLICES, np.bool_)
        for run in (run for side in others for run in side.runs if run.spilled_at is not None):
            first, last = _slice_of(np.array(run.hash_bounds))
            spilled[first : last + 1] = True
        mask: Mask = spilled[_slice_of(rows.hash)]
        if not mask.any():
            return None
        self.deferred_rows += np.bincount(_slice_of(rows.hash[mask]), minlength=SLICES)
        return mask

    def has_deferred(self, hashes: Ints) -> Mask:
        """Which hashes lie in a slice with deferred matches."""
        mask: Mask = self.deferred_rows[_slice_of(hashes)] > 0
        return mask

    def slices(self, *, only_largest: bool) -> list[int]:
        """The slices with deferred matches, those of the most rows first."""
        rows = self.deferred_rows
        order = [int(number) for number in np.argsort(-rows, kind="stable") if rows[number]]
        return order[:1] if only_largest else order

    def complete(self, number: int) -> None:
        """All combinations of a slice are made up to now."""
        self.joined_until[number], self.deferred_rows[number] = self.turn, 0

    def stop(self, sides: Sequence[SortedRuns]) -> None:
        """Nothing is deferred any more, from now on: turns need not be known."""
        self.active = False
        for run in (run for side in sides for run in side.runs):
            run.arrived = run.spilled_at = None

    def to_json(self) -> Any:
        if not self.active:
            return None
        arrays = {"joined_until": self.joined_until.tolist(), "deferred_rows": self.deferred_rows.tolist()}
        return {"turn": self.turn, **arrays}

    def restore(self, part: Any) -> None:
        """Also where the join defers no more: then the next batch makes what is deferred."""
        self.active = True
        self.turn = self._memory_manager.turn = part["turn"]
        self.joined_until, self.deferred_rows = (
            np.array(part["joined_until"]),
            np.array(part["deferred_rows"]),
        )

    def merge(self, parts: Sequence[Any]) -> Any:
        """Only local runs defer, and they have one bucket."""
        refuse(self.name)

    def frames(
        self, number: int, sides: Sequence[SortedRuns], windows_us: tuple[int | None, ...], frame_rows: int
    ) -> Iterator[list[Component]]:
        """The deferred matches of a slice: rows that came since it was joined, with all that came before."""
        inputs = range(len(sides))
        for i in inputs:
            others = [other for other in inputs if other != i]
            for rows, arrived in self._recent(sides[i], number):
                probe = Probe(i, rows, windows_us, frame_rows, tuple(inputs))
                probe.visit(others, partial(_find_spilled, sides), all_keys=True)
                for frame in probe.frames():
                    missed = _missed(probe, frame, arrived)
                    if missed.any():
                        yield [(batch, numbers[missed]) for batch, numbers in frame]

    def _recent(self, side: SortedRuns, number: int) -> Iterator[tuple[Batch, Ints]]:
        """Live rows of a slice that came since it was joined, run by run, and their turns."""
        for run in list(side.runs):
            first, last = _slice_of(np.array(run.hash_bounds))
            if run.arrived is None or not first <= number <= last:
                continue
            since = run.live_mask() & (run.arrived > self.joined_until[number])
            rows = np.flatnonzero(since)
            if len(rows):
                rows = rows[_slice_of(run.batch.hash[rows]) == number]
            if len(rows):
                yield run.batch.take(rows), run.arrived[rows]


def _probed_runs(sides: Sequence[SortedRuns], other: int) -> list[Run]:
    """Of two inputs the other must be spilled; of more, one of the others."""
    return [run for run in sides[other].runs if len(sides) > 2 or run.spilled_at is not None]


def _find_spilled(sides: Sequence[SortedRuns], other: int, rows: Batch) -> list[Hit]:
    return sides[other].match(rows, _probed_runs(sides, other))


def _missed(probe: Probe, frame: list[Component], arrived: Ints) -> Mask:
    """Which combinations the driving row, the latest, did not see when it arrived."""
    latest = arrived[frame[probe.driver][1]]
    before: Mask = np.ones(len(latest), np.bool_)
    unseen: Mask = np.zeros(len(latest), np.bool_)
    for i, (batch, rows) in enumerate(frame):
        if i != probe.driver:
            run = probe.run_of(batch)
            if run.arrived is not None:
                before &= run.arrived[rows] < latest
            if run.spilled_at is not None:
                unseen |= run.spilled_at < latest
    return before & unseen
