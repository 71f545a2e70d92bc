"""What a join tells a join that follows it beyond single keys: ranges, patterns, and its end.

A range is over for the join when every input has closed it: what is told is the intersection of the
inputs' wide promises, once, when none of its keys waits to be settled any more (a padded row may still
leave with one that does). Worked number: inputs that have closed [1, 5] and [3, 9] tell [3, 5]; when
the first closes [6, 7] too, the range has grown, and [3, 7] is told.

Wide promises reach every bucket of a join in the same batch, so all buckets note the same parts in the
same words; only when each tells a part may differ. The join that follows counts the buckets
(`PartialPunctuations`), and a part acts there when all have told it.

Cost: one walk along the ranges of all inputs, in batches that bring new ones; patterns of composite
keys are compared each with each, and are expected to be few.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import pyarrow as pa

from streamjoin.columnar.batch import Batch
from streamjoin.punctuation import ANY, Punctuation
from streamjoin.state.closed_keys import ClosedKeys, KeyPatterns, covers, pattern_mask
from streamjoin.state.closed_ranges import ClosedRanges


class RangePropagation:
    """The parts noted so far (`ranges` or `patterns`, or the `end`), and those not told yet."""

    def __init__(self, key_types: tuple[pa.DataType, ...], *, only_end: bool = False) -> None:
        self._types = key_types
        self._only_end = only_end
        self.ranges = ClosedRanges(key_types[0])
        self.patterns: list[KeyPatterns] = []
        self.end = False
        self.untold: list[KeyPatterns] = []
        self.stale = False  # an input has promised more since the last look; never true between batches

    def look(self, closed_keys: Sequence[ClosedKeys]) -> None:
        """Note what has become closed on every input."""
        if not self.stale:
            return
        self.stale = False
        still_open = [one for one in closed_keys if not one.ended]
        if not still_open:
            if not self.end:
                self.untold = [tuple(ANY for _ in self._types)]
            self.end = True
        elif self._only_end:
            return
        elif still_open[0].ranges is not None:
            common = reduce(
                ClosedRanges.intersect, [one.ranges for one in still_open if one.ranges is not None]
            )
            self.untold += [(one,) for one in common.beyond(self.ranges).patterns()]
            self.ranges = common
        else:
            shared = reduce(_shared, [one.patterns for one in still_open])
            self.untold += [one for one in shared if not any(covers(known, one) for known in self.patterns)]
            self.patterns = shared

    def take(self, unsettled: Sequence[Batch]) -> tuple[KeyPatterns, ...]:
        """The parts that may be told now: none of their keys is unsettled."""
        told: list[KeyPatterns] = []
        waiting: list[KeyPatterns] = []
        for patterns in self.untold:
            waits = any(pattern_mask(patterns, keys.keys).any() for keys in unsettled if len(keys))
            (waiting if waits else told).append(patterns)
        self.untold = waiting
        return tuple(told)

    def to_json(self) -> dict[str, Any]:
        return {
            "ranges": self.ranges.to_json(),
            "patterns": [Punctuation(patterns).text() for patterns in self.patterns],
            "end": self.end,
            "untold": [Punctuation(patterns).text() for patterns in self.untold],
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Go on from what `to_json` wrote."""
        self.ranges = ClosedRanges.from_json(self._types[0], saved["ranges"])
        self.patterns, self.untold = (
            [Punctuation.parse(text, self._types).patterns for text in saved[name]]
            for name in ("patterns", "untold")
        )
        self.end = saved["end"]


def _shared(ours: list[KeyPatterns], theirs: list[KeyPatterns]) -> list[KeyPatterns]:
    """What both lists speak of, without what another of it covers."""
    found: list[KeyPatterns] = []
    for one in ours:
        for other in theirs:
            both = Punctuation(one).intersect(Punctuation(other))
            if not both.says_nothing and not any(covers(known, both.patterns) for known in found):
                found = [known for known in found if not covers(both.patterns, known)]
                found.append(both.patterns)
    return found
