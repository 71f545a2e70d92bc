"""Promises that wait for their time: each acts once its input's progress is past it.

A control stream says "key 79 is over at 10:00". Tuples of 79 that are older may still come until the
input's progress P is past 10:00, strictly; until then the promise is state. Worked number: of promises
for the times 10, 20 and 20, P = 20 makes the first due and P = 21 the others. Where an input has
ended, all are due.

Single keys are runs with a time, patterns a short list. Adding appends a run; taking what is due
touches only the rows between the bound of the last time and the new one.
"""

from __future__ import annotations

import numpy as np

from streamjoin.columnar.batch import Batch, Layout, concat
from streamjoin.join.watermarks import NO_WATERMARK
from streamjoin.state.closed_keys import KeyPatterns
from streamjoin.state.sorted_runs import CompactionPolicy, RunNames, SortedRuns

TimedPatterns = tuple[int, KeyPatterns]


class Scheduled:
    """What one input will have promised when its event time has come.

    Nothing that waits has a time before `_since_us`. A key may wait more than once.
    """

    def __init__(self, tag: str, layout: Layout, names: RunNames, policy: CompactionPolicy) -> None:
        self.side = SortedRuns(tag, layout.keys_with_time, names, policy)
        self.patterns: list[TimedPatterns] = []
        self._since_us = NO_WATERMARK

    def __len__(self) -> int:
        return self.side.live_rows + len(self.patterns)

    @property
    def empty(self) -> bool:
        return not self.side.tiers and not self.patterns

    def add(self, keys: Batch | None, patterns: tuple[TimedPatterns, ...]) -> None:
        """Promises that have come: keys with their times, and patterns with theirs."""
        if keys is not None and len(keys):
            self._since_us = min(self._since_us, int(keys.time.min()))
            self.side.append(keys.sorted())
        self.patterns += patterns

    def due(self, before_us: int) -> tuple[Batch, tuple[KeyPatterns, ...]]:
        """Take out what has a time before the bound (exclusive): keys in any order, and patterns."""
        found = []
        for run in self.side.runs:
            rows = np.sort(run.live_between(self._since_us, before_us))
            if len(rows):
                found.append(run.batch.only_keys().take(rows))
                run.delete(rows)
        self._since_us = max(self._since_us, before_us)
        if found:
            self.side.drop_tombstoned()
        patterns = tuple(patterns for time_us, patterns in self.patterns if time_us < before_us)
        self.patterns = [(time_us, each) for time_us, each in self.patterns if time_us >= before_us]
        return concat(self.side.layout.keys_only, found), patterns

    def forget(self, keys: Batch) -> None:
        """Keys (of a sorted batch) that are closed on every input already."""
        self.side.forget(keys)
