"""Input queues: the rows and punctuations of one input in a batch that are not processed yet, in order.

A punctuation is handed out once all rows before it are. Without positions, or where rows of several
source partitions are mixed, that means: after the last row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from streamjoin.columnar.batch import NO_TIME, Batch, Ints
from streamjoin.join.arrivals import Positions
from streamjoin.join.statistics.selectivity import Selectivities
from streamjoin.join.watermarks import END_OF_TIME
from streamjoin.state.closed_keys import KeyPatterns
from streamjoin.state.sorted_runs import SortedRuns


@dataclass
class Standing:
    """The state sizes and selectivities that a driver may know while a batch is processed."""

    sides: Sequence[SortedRuns]
    measured: Selectivities = field(default_factory=lambda: Selectivities(0))
    results: int = 0  # before this batch
    rows: Sequence[int] = ()  # of each input, before this batch
    per_row: Mapping[int, float] | None = None  # results by row of each input, where they were declared

    @property
    def sizes(self) -> list[int]:
        return [side.live_rows for side in self.sides]


@dataclass
class InputQueue:
    """Rows and punctuations of one input; `take` hands them out."""

    input: int
    rows: Batch
    rows_at: Positions | None
    keys: Batch
    keys_at: Positions | None
    patterns: tuple[KeyPatterns, ...]
    patterns_at: Positions | None
    unique: bool = False
    clustered: bool = False
    live_rows: int = 0  # at the beginning of the batch
    standing: Standing = field(default_factory=lambda: Standing([]))
    _next_row: int = 0
    _next_key: int = 0
    _next_pattern: int = 0
    _key_due: Ints = field(init=False)
    _pattern_due: Ints = field(init=False)

    def __post_init__(self) -> None:
        one_partition = self._in_offset_order()
        self._key_due = self._due(self.keys_at if one_partition else None, len(self.keys))
        order = np.argsort(self._key_due, kind="stable")
        if np.any(order[1:] < order[:-1]):
            self.keys, self._key_due = self.keys.take(order), self._key_due[order]
        self._pattern_due = self._due(self.patterns_at if one_partition else None, len(self.patterns))
        by_due = np.argsort(self._pattern_due, kind="stable")
        self.patterns, self._pattern_due = tuple(self.patterns[i] for i in by_due), self._pattern_due[by_due]

    def _in_offset_order(self) -> bool:
        """Put rows of a single partition in offset order; False where order is not known."""
        if self.rows_at is None:
            return False
        known = [at.partition for at in (self.rows_at, self.keys_at, self.patterns_at) if at is not None]
        partitions = np.concatenate(known)
        if len(partitions) and (partitions != partitions[0]).any():
            return False
        offset = self.rows_at.offset
        if np.any(offset[1:] < offset[:-1]):
            order = np.argsort(offset, kind="stable")
            self.rows, self.rows_at = self.rows.take(order), self.rows_at.take(order)
        return True

    def _due(self, at: Positions | None, count: int) -> Ints:
        if at is None or self.rows_at is None:
            return np.full(count, len(self.rows), np.int64)
        return np.searchsorted(self.rows_at.offset, at.offset, side="right")

    @property
    def rows_left(self) -> int:
        return len(self.rows) - self._next_row

    @property
    def cluster_left(self) -> int:
        """How many of the next rows have the key of the last one handed out."""
        if not self.clustered or self._next_row == 0 or self.rows_left == 0:
            return 0
        rest = self.rows.hash[self._next_row :] != self.rows.hash[self._next_row - 1]
        return int(np.argmax(rest)) if rest.any() else self.rows_left

    @property
    def next_time_us(self) -> int | None:
        """The event time of the next row; without rows, before all others: punctuations act."""
        if not self.rows.layout.timed:
            return None
        return int(self.rows.time[self._next_row]) if self.rows_left else NO_TIME

    def rows_until(self, time_us: int | None) -> int:
        """How many of the next rows are not after a time."""
        if time_us is None:
            return 0
        after = self.rows.time[self._next_row :] > time_us
        return int(np.argmax(after)) if after.any() else self.rows_left

    @property
    def earliest_left_us(self) -> int:
        """The least event time of the rows that are left; without rows, after all times."""
        return int(self._earliest[self._next_row]) if self.rows_left else END_OF_TIME

    @cached_property
    def _earliest(self) -> Ints:
        """For each row the least event time of it and those behind it."""
        if not self.rows.layout.timed:
            return np.full(len(self.rows), NO_TIME, np.int64)
        return np.minimum.accumulate(self.rows.time[::-1])[::-1]

    @property
    def results_per_row(self) -> float | None:
        """The selectivity of the stream: results over its rows, before this batch, or as declared."""
        if self.standing.per_row is not None:
            return self.standing.per_row.get(self.input)
        rows = self.standing.rows[self.input]
        return self.standing.results / rows if rows and self.standing.results else None

    @property
    def expected_output(self) -> float | None:
        """Results that the rest of the buffer is expected to give now."""
        standing = self.standing
        if not standing.measured.known:
            return None
        return standing.measured.output(self.input, self.rows_left, standing.sizes)

    def expected_lookups(self, rows: float, added: Mapping[int, float]) -> float:
        """Lookups that so many rows are expected to need when some inputs hold more than now."""
        sizes = [size + added.get(i, 0.0) for i, size in enumerate(self.standing.sizes)]
        return self.standing.measured.lookups(self.input, rows, sizes)

    @property
    def done(self) -> bool:
        return (
            self.rows_left == 0
            and self._next_key == len(self.keys)
            and self._next_pattern == len(self.patterns)
        )

    def take(self, quota: int) -> tuple[Batch, Batch, tuple[KeyPatterns, ...]]:
        """Up to `quota` rows, and the punctuations that then act."""
        stop = min(self._next_row + max(quota, 0), len(self.rows))
        rows = self.rows.slice(self._next_row, stop - self._next_row)
        last_key = int(np.searchsorted(self._key_due, stop, side="right"))
        last_pattern = int(np.searchsorted(self._pattern_due, stop, side="right"))
        keys = self.keys.slice(self._next_key, last_key - self._next_key)
        patterns = self.patterns[self._next_pattern : last_pattern]
        self._next_row, self._next_key, self._next_pattern = stop, last_key, last_pattern
        return rows, keys, patterns
