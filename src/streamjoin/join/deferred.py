"""Pairs that are owed: XJoin's memory-disk and cleanup stages for n inputs.

Rows arrive in turns, and each keeps the number of its turn; a run that leaves memory keeps the turn
in which it `left`. Arriving rows visit only what is in memory. So a combination of rows, the
latest of which came in turn e, was given at once exactly when none of the others had left before e.
Whatever else joins is owed, and given when its part of the hash space is worked off: then all
combinations up to now are given, and only rows that come later can owe again. Each is given once.

Worked case: a (turn 1) leaves in turn 2; b of its key arrives in turn 3 and does not see it. 2 < 3:
the pair is owed. Had a left in turn 3 or later, b would have seen it.

A part that owes keeps its rows, promised or out of their window, until it is worked off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from streamjoin.columnar.assemble import Component
from streamjoin.columnar.batch import Batch, Ints, Mask
from streamjoin.join.probe import Probe
from streamjoin.state.run import Hit, Run
from streamjoin.state.sorted_runs import SortedRuns

PARTS = 16  # of the hash space, worked off one at a time
_SHIFT = 60  # the upper four bits of a hash say its part


def _part(hashes: Ints) -> Ints:
    parts: Ints = (hashes >> _SHIFT) + PARTS // 2
    return parts


class DeferredMatches:
    """By part of the hash space: up to which turn all is joined, and how many rows owe since."""

    def __init__(self) -> None:
        self.turn = 0
        self.settled: Ints = np.zeros(PARTS, np.int64)
        self.owed: Ints = np.zeros(PARTS, np.int64)

    def owing(self, rows: Batch, others: Sequence[SortedRuns]) -> Mask:
        """Which arriving rows may have partners outside memory."""
        gone: Mask = np.zeros(PARTS, np.bool_)
        for run in (run for side in others for run in side.runs if run.left is not None):
            first, last = _part(np.array(run.hash_bounds))
            gone[first : last + 1] = True
        mask: Mask = gone[_part(rows.hash)]
        return mask

    def incur(self, rows: Batch) -> None:
        """These rows owe."""
        self.owed += np.bincount(_part(rows.hash), minlength=PARTS)

    def has_deferred(self, hashes: Ints) -> Mask:
        """Which hashes lie in a part that owes."""
        mask: Mask = self.owed[_part(hashes)] > 0
        return mask

    def parts(self, *, only_largest: bool) -> list[int]:
        """The parts that owe, the largest debt first."""
        order = [int(part) for part in np.argsort(-self.owed, kind="stable") if self.owed[part]]
        return order[:1] if only_largest else order

    def settle(self, part: int) -> None:
        """All combinations in a part are given up to now."""
        self.settled[part], self.owed[part] = self.turn, 0

    def to_json(self) -> dict[str, Any]:
        return {"turn": self.turn, "settled": self.settled.tolist(), "owed": self.owed.tolist()}

    def restore(self, saved: dict[str, Any]) -> None:
        self.turn = saved["turn"]
        self.settled, self.owed = np.array(saved["settled"]), np.array(saved["owed"])

    def frames(
        self, part: int, sides: Sequence[SortedRuns], windows_us: tuple[int | None, ...], frame_rows: int
    ) -> Iterator[list[Component]]:
        """What a part owes: rows that came since it was last worked off, with all that came before them."""
        inputs = range(len(sides))
        for i in inputs:
            others = [other for other in inputs if other != i]
            for rows, arrived in self._recent(sides[i], part):
                probe = Probe(i, rows, windows_us, frame_rows, tuple(inputs))
                probe.visit(others, partial(_found_in_owing, sides), all_keys=True)
                for frame in probe.frames():
                    owed = _owed(probe, frame, arrived)
                    if owed.any():
                        yield [(batch, numbers[owed]) for batch, numbers in frame]

    def _recent(self, side: SortedRuns, part: int) -> Iterator[tuple[Batch, Ints]]:
        """Live rows of a part that came since it was worked off, run by run, and their turns."""
        for run in list(side.runs):
            first, last = _part(np.array(run.hash_bounds))
            if run.arrived is None or not first <= part <= last:
                continue
            since = run.live_mask() & (run.arrived > self.settled[part])
            rows = np.flatnonzero(since)
            if len(rows):
                rows = rows[_part(run.batch.hash[rows]) == part]
            if len(rows):
                yield run.batch.take(rows), run.arrived[rows]


def _owing_runs(sides: Sequence[SortedRuns], other: int) -> list[Run]:
    """Of two inputs the other must have left memory; of more, one of the others."""
    return [run for run in sides[other].runs if len(sides) > 2 or run.left is not None]


def _found_in_owing(sides: Sequence[SortedRuns], other: int, rows: Batch) -> list[Hit]:
    return sides[other].match(rows, _owing_runs(sides, other))


def _owed(probe: Probe, frame: list[Component], arrived: Ints) -> Mask:
    """Which combinations the driving row, the latest, did not see when it arrived."""
    latest = arrived[frame[probe.driver][1]]
    before: Mask = np.ones(len(latest), np.bool_)
    unseen: Mask = np.zeros(len(latest), np.bool_)
    for i, (batch, rows) in enumerate(frame):
        if i != probe.driver:
            run = probe.run_of(batch)
            if run.arrived is not None:
                before &= run.arrived[rows] < latest
            if run.left is not None:
                unseen |= run.left < latest
    return before & unseen
