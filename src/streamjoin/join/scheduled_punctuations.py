"""Scheduled punctuations: each acts once its input's watermark is past its time.

A control stream says "key 79 is over at 10:00". Tuples of 79 that are older may still come until the
input's watermark P is past 10:00, strictly; until then the punctuation is state. Worked number: of those
for the times 10, 20 and 20, P = 20 makes the first due and P = 21 the others. Where an input has
ended, all are due.

Single keys are runs with a time, patterns a short list. Adding appends a run; taking what is due
touches only the rows between the bound of the last time and the new one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from streamjoin.columnar.batch import Batch, Layout, concat
from streamjoin.join.watermarks import NO_WATERMARK
from streamjoin.punctuation import Punctuation
from streamjoin.state.closed_keys import KeyPatterns
from streamjoin.state.component import Contents, Holds, StateComponent, agreed
from streamjoin.state.sorted_runs import CompactionPolicy, RunNames, SortedRuns

TimedPatterns = tuple[int, KeyPatterns]


class ScheduledPunctuations(StateComponent):
    """Punctuations of one input that wait for its watermark.

    Nothing that waits has a time before `_since_us`. A key may wait more than once.
    """

    holds: Holds = "punctuations"

    def __init__(
        self, tag: str, layout: Layout, names: RunNames, policy: CompactionPolicy, number: int = 0
    ) -> None:
        self.name, self.input = f"scheduled_punctuations {number}", number
        self.side = SortedRuns(tag, layout.keys_with_time, names, policy)
        self.patterns: list[TimedPatterns] = []
        self._since_us = NO_WATERMARK

    def __len__(self) -> int:
        return self.side.live_rows + len(self.patterns)

    def sorted_runs(self) -> Sequence[SortedRuns]:
        return (self.side,)

    @property
    def state_rows(self) -> int:
        return len(self)

    def contents(self) -> Iterator[Contents]:
        if len(self):
            rows = self.side.live()
            times = [*rows.time.tolist(), *(time_us for time_us, _ in self.patterns)]
            yield Contents("scheduled punctuations", len(self), rows, past_us=(min(times), max(times)))

    def to_json(self) -> Any:
        return [[time_us, Punctuation(patterns).text()] for time_us, patterns in self.patterns]

    def restore(self, part: Any) -> None:
        types = self.side.layout.key_types
        self.patterns = [(time_us, Punctuation.parse(text, types).patterns) for time_us, text in part]

    def merge(self, parts: Sequence[Any]) -> Any:
        """Patterns reach every bucket, in any order."""
        return agreed(self.name, [sorted(part) for part in parts])

    @property
    def empty(self) -> bool:
        return not self.side.tiers and not self.patterns

    def add(self, keys: Batch | None, patterns: tuple[TimedPatterns, ...]) -> None:
        """Punctuations that have come: keys with their times, and patterns with theirs."""
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
