"""Closed keys: the keys of which no more tuples will come on one input.

Layout: single keys as sorted runs with their real values (a hash collision must never close an
open key), coalesced ranges where the key is one column, whole patterns where it is several, and a
flag when the input has ended. For a unique input the keys it has `seen` are stored apart, so that
a duplicate is distinguished from a tuple after a punctuation.

Invariant: a key is stored singly only while no range, pattern or end covers it and some
other input is still open for it; the operator removes the others by `forget`. Where the join has windows,
a single key has the greatest event time that its input had reached when it was closed, and the operator
removes it by `forget_before` once watermarks are past what it could match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from streamjoin.columnar.batch import Batch, Ints, Layout, Mask
from streamjoin.columnar.types import orderable
from streamjoin.errors import BadInput
from streamjoin.punctuation import Constant, Empty, Pattern, Punctuation, Range, Wildcard
from streamjoin.state.closed_ranges import ClosedRanges
from streamjoin.state.component import Contents, Holds, StateComponent, agreed
from streamjoin.state.run import Run
from streamjoin.state.sorted_runs import CompactionPolicy, KeySet, RunNames, SortedRuns

KeyPatterns = tuple[Pattern, ...]


class ClosedKeys(StateComponent):
    """`closed(keys)` for one input, vectorised over the distinct keys of a sorted batch."""

    holds: Holds = "punctuations"

    def __init__(
        self,
        tag: str,
        layout: Layout,
        names: RunNames,
        policy: CompactionPolicy,
        number: int = 0,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.name, self.input = f"closed_keys {number}", number
        self.layout = layout.keys_only
        self.constants = KeySet(f"{tag}c", layout, names, policy, clock)
        self.seen = KeySet(f"{tag}u", layout, names, policy, clock)
        single = len(layout.key_types) == 1
        self.ranges = ClosedRanges(layout.key_types[0]) if single else None
        self.patterns: list[KeyPatterns] = []
        self.ended = False

    def __len__(self) -> int:
        """How many entries are stored: keys, ranges, patterns."""
        ranges = 0 if self.ranges is None else len(self.ranges)
        return len(self.constants) + len(self.seen) + ranges + len(self.patterns)

    @property
    def key_sets(self) -> tuple[KeySet, KeySet]:
        return self.constants, self.seen

    def sorted_runs(self) -> Sequence[SortedRuns]:
        return [key_set.side for key_set in self.key_sets]

    @property
    def state_rows(self) -> int:
        return len(self)

    def contents(self) -> Iterator[Contents]:
        for what, key_set in (("closed keys", self.constants), ("unique keys seen", self.seen)):
            if len(key_set):
                yield Contents(what, len(key_set), key_set.side.live(), waits=True)
        if self.ranges:
            yield Contents("ranges", len(self.ranges))
        if self.patterns:
            yield Contents("patterns", len(self.patterns))

    def to_json(self) -> Any:
        return {
            "ended": self.ended,
            "ranges": None if self.ranges is None else self.ranges.to_json(),
            "patterns": [Punctuation(patterns).text() for patterns in self.patterns],
        }

    def restore(self, part: Any) -> None:
        self.ended = part["ended"]
        if part["ranges"] is not None:
            self.ranges = ClosedRanges.from_json(self.layout.key_types[0], part["ranges"])
        self.patterns = [Punctuation.parse(text, self.layout.key_types).patterns for text in part["patterns"]]

    def merge(self, parts: Sequence[Any]) -> Any:
        """Ranges and patterns reach every bucket; the order of patterns says nothing."""
        return agreed(self.name, [{**part, "patterns": sorted(part["patterns"])} for part in parts])

    @property
    def wide(self) -> bool:
        """Something more than single keys is closed: a range, a pattern, or all."""
        return self.ended or bool(self.ranges) or bool(self.patterns)

    @property
    def empty(self) -> bool:
        """Nothing is closed."""
        return not self.wide and not self.constants.side.tiers and not self.seen.side.tiers

    def close_keys(self, keys: Batch) -> None:
        """No more tuples with one of these keys (sorted batch)."""
        open_keys = keys.distinct_keys()
        self.constants.append(open_keys.where(~self.closed(open_keys)))

    def see(self, keys: Batch) -> None:
        """Keys of a unique input that have now come."""
        self.seen.add(keys)

    def close_pattern(self, patterns: KeyPatterns) -> None:
        """No more tuples whose key matches; single keys it covers are absorbed."""
        if any(isinstance(pattern, Empty) for pattern in patterns):
            return
        if is_everything(patterns):
            self.ended = True
            self._absorb(patterns)
            return
        for pattern, dtype in zip(patterns, self.layout.key_types, strict=True):
            if isinstance(pattern, Range) and not orderable(dtype):
                raise BadInput(f"a range over keys of type {dtype} has no meaning; punctuate single keys")
        one = patterns[0]
        if isinstance(one, Constant) and orderable(self.layout.key_types[0]):
            one = Range(one.value, one.value)  # as a range of one value is written
        if self.ranges is not None and isinstance(one, Range):
            self.ranges.add(one)
        elif not self.covers(patterns):
            self.patterns = [known for known in self.patterns if not covers(patterns, known)]
            self.patterns.append(patterns)
        self._absorb(patterns)

    def _absorb(self, patterns: KeyPatterns) -> None:
        drop_matching(self.constants.side, patterns)

    def covers(self, patterns: KeyPatterns) -> bool:
        """Whether everything that these patterns match is known to be closed."""
        return self.ended or any(covers(known, patterns) for known in self.patterns)

    def closed(self, keys: Batch) -> Mask:
        """For each distinct key (group) of a sorted batch: will none of it come any more?"""
        return self.closed_by_punctuation(keys) | self.seen.contains(keys)

    def closed_by_punctuation(self, keys: Batch) -> Mask:
        """As `closed`, but not counting the tuples a unique input has shown."""
        groups = len(keys.groups)
        if self.ended:
            return np.ones(groups, np.bool_)
        mask = self.constants.contains(keys)
        return mask | self.covered_widely(keys)

    def covered_widely(self, keys: Batch) -> Mask:
        """For each distinct key of a sorted batch: does a range, a pattern or the end cover it?"""
        mask: Mask = np.full(len(keys.groups), self.ended)
        if self.ended or not (self.ranges or self.patterns):
            return mask
        distinct = keys.distinct_keys()
        if self.ranges:
            mask |= self.ranges.contains(distinct.keys[0])
        for patterns in self.patterns:
            mask |= pattern_mask(patterns, distinct.keys)
        return mask

    def forget(self, keys: Batch) -> None:
        """Keys that are closed on every input need no single memory any more."""
        for key_set in self.key_sets:
            key_set.remove(keys)

    def remembers(self, keys: Batch) -> Mask:
        """Which keys of a sorted batch without repeats are stored here one by one."""
        found: Mask = np.logical_or.reduce([key_set.contains(keys) for key_set in self.key_sets])
        return found

    def forget_before(self, stop_us: int, may_go: Callable[[Batch], Mask]) -> None:
        """Keys that were closed before a time, of those that may go."""
        for key_set in self.key_sets:
            key_set.forget_before(stop_us, may_go)


def is_everything(patterns: KeyPatterns) -> bool:
    """Whether the punctuation says that the input has ended."""
    return all(isinstance(pattern, Wildcard) for pattern in patterns)


def covers(wide: KeyPatterns, narrow: KeyPatterns) -> bool:
    """Whether every key that `narrow` matches is matched by `wide`."""
    return Punctuation(wide).covers(Punctuation(narrow))


def pattern_mask(patterns: KeyPatterns, keys: Sequence[Any]) -> Mask:
    """Which rows match every pattern."""
    mask: Mask = np.ones(len(keys[0]), np.bool_)
    for pattern, key in zip(patterns, keys, strict=True):
        if not isinstance(pattern, Wildcard):
            mask &= pattern.mask(key)
    return mask


def drop_matching(side: SortedRuns, patterns: KeyPatterns) -> None:
    """Purge all rows whose key matches."""
    for run in side.runs:
        hit = run.hit(_matching_groups(run, patterns))
        run.delete_groups(hit.start, hit.count)
    side.drop_tombstoned()


def matching_keys(side: SortedRuns, patterns: KeyPatterns) -> list[Batch]:
    """The distinct keys with a live row that match, one sorted batch per run."""
    found = []
    for run in side.runs:
        groups = _matching_groups(run, patterns)
        groups = groups[run.hit(groups).present()]
        if len(groups):
            found.append(run.batch.distinct_keys().take(groups))
    return found


def _matching_groups(run: Run, patterns: KeyPatterns) -> Ints:
    """The groups of a run whose key matches, ascending; a range is looked up, not scanned for."""
    if len(patterns) == 1 and isinstance(patterns[0], Range) and orderable(run.layout.key_types[0]):
        return run.groups_within(patterns[0])
    return np.flatnonzero(pattern_mask(patterns, run.batch.distinct_keys().keys))
