"""Propagation: the punctuations, ranges, watermark and end-of-stream that a join sends downstream.

- Finished keys leave as punctuations, each once: `PropagatedKeys` remembers those that some input may
  still bring back.
- A range is finished when every input has closed it: what leaves is the intersection of the inputs'
  ranges and patterns, once, when none of its keys waits to be purged (a padded row may still leave with one
  that does). Worked number: inputs that have closed [1, 5] and [3, 9] propagate [3, 5]; when the first
  closes [6, 7] too, the range has grown, and [3, 7] is propagated.
- The watermark of the output is the smallest watermark of the inputs that have not ended: a later result
  has a new component, whose time is at least the watermark of its input.

Ranges reach every bucket of a join in the same batch, so all buckets note the same parts in the same
words; only the batch in which each propagates a part may differ. The join that follows counts the buckets
(`PartialPunctuations`), and a part acts there when all have sent it.

Cost: one walk along the ranges of all inputs, in batches that bring new ones; patterns of composite
keys are compared each with each, and are expected to be few.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamjoin.columnar.batch import Batch, Layout
from streamjoin.join.outputs import Forwarded, Output, OutputWatermark
from streamjoin.join.watermarks import NO_WATERMARK
from streamjoin.punctuation import ANY, Constant, Punctuation
from streamjoin.state.closed_keys import ClosedKeys, KeyPatterns, covers, pattern_mask
from streamjoin.state.closed_ranges import ClosedRanges
from streamjoin.state.component import Contents, Holds, StateComponent, refuse
from streamjoin.state.sorted_runs import CompactionPolicy, KeySet, RunNames, SortedRuns

if TYPE_CHECKING:
    from streamjoin.join.operator_state import OperatorState


def punctuations_of(keys: Sequence[Any]) -> list[Punctuation]:
    """One punctuation per row of key columns. A nested key stands as its JSON text."""
    columns = [
        [json.dumps(value, default=str, sort_keys=True) for value in key.to_pylist()]
        if pa.types.is_nested(key.type)
        else key.to_pylist()
        for key in keys
    ]
    return [Punctuation(tuple(map(Constant, row))) for row in zip(*columns, strict=True)]


class PropagatedKeys(KeySet, StateComponent):
    """Finished keys that were propagated, and that not every input has closed."""

    name = "propagated_keys"
    holds: Holds = "punctuations"

    def __init__(self, layout: Layout, names: RunNames, policy: CompactionPolicy) -> None:
        super().__init__("a", layout, names, policy)

    def sorted_runs(self) -> Sequence[SortedRuns]:
        return (self.side,)

    def contents(self) -> Iterator[Contents]:
        if len(self):
            yield Contents("propagated", len(self), self.side.live(), waits=True)


class RangePropagation(StateComponent):
    """What is finished so far (`ranges` or `patterns`, or the `end`), and what of it is `unsent`."""

    name = "range_propagation"

    def __init__(self, key_types: tuple[pa.DataType, ...], *, only_end: bool = False) -> None:
        self._types = key_types
        self._only_end = only_end
        self.ranges = ClosedRanges(key_types[0])
        self.patterns: list[KeyPatterns] = []
        self.end = False
        self.unsent: list[KeyPatterns] = []
        self.stale = False  # an input has closed more since the last update; never true between batches

    def update(self, closed_keys: Sequence[ClosedKeys]) -> None:
        """Note what has become closed on every input."""
        if not self.stale:
            return
        self.stale = False
        still_open = [one for one in closed_keys if not one.ended]
        if not still_open:
            if not self.end:
                self.unsent = [tuple(ANY for _ in self._types)]
            self.end = True
        elif self._only_end:
            return
        elif still_open[0].ranges is not None:
            common = reduce(
                ClosedRanges.intersect, [one.ranges for one in still_open if one.ranges is not None]
            )
            self.unsent += [(one,) for one in common.beyond(self.ranges).patterns()]
            self.ranges = common
        else:
            shared = reduce(_shared, [one.patterns for one in still_open])
            self.unsent += [one for one in shared if not any(covers(known, one) for known in self.patterns)]
            self.patterns = shared

    def take(self, pending: Sequence[Batch]) -> tuple[KeyPatterns, ...]:
        """The parts that may be propagated now: none of their keys waits to be purged."""
        ready: list[KeyPatterns] = []
        waiting: list[KeyPatterns] = []
        for patterns in self.unsent:
            waits = any(pattern_mask(patterns, keys.keys).any() for keys in pending if len(keys))
            (waiting if waits else ready).append(patterns)
        self.unsent = waiting
        return tuple(ready)

    def to_json(self) -> Any:
        return {
            "ranges": self.ranges.to_json(),
            "patterns": [Punctuation(patterns).text() for patterns in self.patterns],
            "end": self.end,
            "unsent": [Punctuation(patterns).text() for patterns in self.unsent],
        }

    def restore(self, part: Any) -> None:
        self.ranges = ClosedRanges.from_json(self._types[0], part["ranges"])
        self.patterns, self.unsent = (
            [Punctuation.parse(text, self._types).patterns for text in part[name]]
            for name in ("patterns", "unsent")
        )
        self.end = part["end"]

    def merge(self, parts: Sequence[Any]) -> Any:
        """The join that follows counts the buckets, so their number stays."""
        refuse(self.name)


def _shared(ours: list[KeyPatterns], theirs: list[KeyPatterns]) -> list[KeyPatterns]:
    """What both lists match, without what another of it covers."""
    found: list[KeyPatterns] = []
    for one in ours:
        for other in theirs:
            both = Punctuation(one).intersect(Punctuation(other))
            if not both.says_nothing and not any(covers(known, both.patterns) for known in found):
                found = [known for known in found if not covers(both.patterns, known)]
                found.append(both.patterns)
    return found


def forward(state: OperatorState) -> Iterator[Output]:
    """The punctuations about a later key and the watermark that go downstream at the end of a batch.

    Nothing while matches are deferred: results of any value and time may still follow.
    """
    if state.deferred.waiting:
        return
    for i, forwarded in enumerate(state.forwarded):
        counters = state.counters.inputs[i]
        ready = forwarded.take(state.sides[i], counters.purged + counters.invalidated + counters.expired)
        if ready is not None:
            payload = state.spec.payload_names(i)
            names = [*state.spec.key_names, *(payload[n] for n in state.spec.inputs[i].forwarded)]
            yield Forwarded(pa.RecordBatch.from_arrays(ready, names))
    watermark = output_watermark(state)
    if state.spec.stamps and watermark > NO_WATERMARK:
        yield OutputWatermark(watermark)


def output_watermark(state: OperatorState) -> int:
    """The time before which no later result will be. Worked number: inputs at 30 and 21 give 21."""
    watermarks = state.watermarks
    open_ = [at for at, ended in zip(watermarks.current, watermarks.ended, strict=True) if not ended]
    return min(open_, default=NO_WATERMARK)
