"""The cache of a semi-stream join: values with all their master rows, or known to have none.

For each value it counts the stream tuples that met it and the cycles since it came, so that what it saves is
known: worked number, 30 tuples in 6 cycles are 5 a cycle that would wait.
"""

from __future__ import annotations

import numpy as np

from streamjoin.batch import Batch, Ints, Layout, Mask, concat
from streamjoin.state.run import Run, match


class MasterCache:
    """Values and their master rows, both sorted."""

    def __init__(self, layout: Layout) -> None:
        self.keys = layout.keys_only.empty()
        self.rows = layout.empty()
        self._met: Ints = np.empty(0, np.int64)
        self._cycles: Ints = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + self.keys.nbytes + 16 * len(self.keys)

    @property
    def value_bytes(self) -> float:
        """What a value takes beside its master rows."""
        return 16.0 + (self.keys.nbytes / len(self.keys) if len(self.keys) else 16.0)

    def look_up(self, tuples: Batch) -> Mask:
        """Which keys of sorted stream tuples are here; their tuples are counted."""
        known: Mask = np.zeros(len(tuples.groups), np.bool_)
        if len(self.keys):
            hit = match(tuples, Run("cache", self.keys))
            known[hit.probe] = True
            self._met[hit.start] += tuples.groups.count[hit.probe]
        return known

    def add(self, keys: Batch, rows: Batch) -> None:
        """New values (sorted, distinct) with all their master rows (sorted); known ones stay as they are."""
        if len(self.keys) and len(keys):
            fresh: Mask = np.ones(len(keys), np.bool_)
            fresh[match(keys, Run("cache", self.keys)).probe] = False
            if not fresh.all():
                keys = keys.where(fresh)
                rows = _of(rows, keys)
        if len(keys) == 0:
            return
        together = concat(self.keys.layout, [self.keys, keys])
        order = together.sort_order(in_stretches=True)
        new = np.zeros(len(keys), np.int64)
        self._met = np.concatenate((self._met, new))[order]
        self._cycles = np.concatenate((self._cycles, new))[order]
        self.keys = together.take(order)
        self.rows = concat(self.rows.layout, [self.rows, rows]).sorted(in_stretches=True)

    def end_cycle(self) -> None:
        """All values were here for one more cycle."""
        self._cycles = self._cycles + 1

    def evict(self, row_bytes: float, factor: float, tuple_bytes: float) -> int:
        """Let go of values whose tuples would take less memory waiting; counts begin again."""
        rows_of = np.zeros(len(self.keys), np.int64)
        hit = match(self.rows, Run("cache", self.keys)) if len(self.rows) else None
        if hit is not None:
            rows_of[hit.start] = self.rows.groups.count[hit.probe]
        cache = rows_of * row_bytes + self.value_bytes
        disk = self._met / np.maximum(self._cycles, 1) * tuple_bytes
        stays = (cache < factor * disk) | (self._cycles == 0)
        gone = int(np.count_nonzero(~stays))
        if gone:
            self.keys = self.keys.where(stays)
            self.rows = _of(self.rows, self.keys)
        self._met = np.zeros(len(self.keys), np.int64)
        self._cycles = np.zeros(len(self.keys), np.int64)
        return gone


def _of(rows: Batch, keys: Batch) -> Batch:
    """The rows (sorted) of some keys (sorted)."""
    mine: Mask = np.zeros(len(rows.groups), np.bool_)
    if len(rows) and len(keys):
        mine[match(rows, Run("keys", keys)).probe] = True
    return rows.where(mine[rows.groups.of_rows()]) if len(rows) else rows
