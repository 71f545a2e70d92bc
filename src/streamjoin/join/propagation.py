"""Propagation: the punctuations, ranges, watermark and end-of-stream that a join sends downstream.

- Finished keys leave as punctuations, each once: `PropagatedKeys` remembers those that some input may
  still bring back.
- A range is finished when every input has closed it: what leaves is the intersection of the inputs'
  ranges and patterns, once, at the end of the batch, after its keys that waited for a purge (a padded row
  or a final group may leave with them). Worked number: inputs that have closed [1, 5] and [3, 9] propagate
  [3, 5]; when the first closes [6, 7] too, the range has grown, and [3, 7] is propagated.
- The watermark of the output is that of the event time that the next join goes by. Of results with stamps
  that is their latest time, and the watermark the smallest of the inputs that have not ended: a later result
  has a new component, whose time is at least the watermark of its input. Where it is the time of one input,
  a later result may have a stored tuple of it, or be one that was padded: `Watermarks.settled`.

Ranges reach every bucket of a join in the same batch, and each purges their keys before that batch ends;
so all buckets propagate the same parts in the same batch, and for a user one bucket speaks for all. A join
that follows counts the buckets (`PartialPunctuations`), and a part acts there when all have sent it.

Cost: one walk along the ranges of all inputs, in batches that bring new ones; each new pattern of a
composite key is compared with those of the other inputs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamjoin.columnar.batch import Layout
from streamjoin.join.outputs import Forwarded, Output, OutputWatermark
from streamjoin.join.watermarks import END_OF_TIME, NO_WATERMARK
from streamjoin.punctuation import ANY, NULL, Constant, Punctuation
from streamjoin.state.closed_keys import ClosedKeys, KeyPatterns, covers
from streamjoin.state.closed_ranges import ClosedRanges
from streamjoin.state.component import Contents, Holds, StateComponent, agreed
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
    return [
        Punctuation(tuple(NULL if value is None else Constant(value) for value in row))
        for row in zip(*columns, strict=True)
    ]


class PropagatedKeys(KeySet, StateComponent):
    """Finished keys that not every input has closed or forgotten; propagated, where the join does so."""

    name = "propagated_keys"
    holds: Holds = "punctuations"

    def __init__(
        self,
        layout: Layout,
        names: RunNames,
        policy: CompactionPolicy,
        clock: Callable[[], int] | None = None,
    ) -> None:
        super().__init__("a", layout, names, policy, clock)

    def sorted_runs(self) -> Sequence[SortedRuns]:
        return (self.side,)

    def contents(self) -> Iterator[Contents]:
        if len(self):
            yield Contents("propagated", len(self), self.side.live(), waits=True)


class RangePropagation(StateComponent):
    """What is finished so far (`ranges` or `patterns`, or the `end`), and what of it is `unsent`.

    `counted`: a join follows that counts the buckets of this one; only to it the end is propagated.
    """

    name = "range_propagation"

    def __init__(
        self, key_types: tuple[pa.DataType, ...], *, only_end: bool = False, counted: bool = False
    ) -> None:
        self._types = key_types
        self._only_end, self._counted = only_end, counted
        self.ranges = ClosedRanges(key_types[0])
        self.patterns: list[KeyPatterns] = []
        self.end = False
        self.unsent: list[KeyPatterns] = []
        self._new: list[tuple[int, KeyPatterns]] = []  # closed by an input since; none between batches
        self._ended: list[int] | None = None  # the inputs that had ended at the last update

    def closed(self, i: int, patterns: KeyPatterns) -> None:
        """Input i has closed more."""
        self._new.append((i, patterns))

    def update(self, closed_keys: Sequence[ClosedKeys]) -> None:
        """Note what has become closed on every input."""
        if not self._new:
            return
        new, self._new = self._new, []
        still_open = [one for one in closed_keys if not one.ended]
        if not still_open:
            if self._counted and not self.end:
                self.unsent = [tuple(ANY for _ in self._types)]
            self.end = True
        elif self._only_end:
            return
        elif still_open[0].ranges is not None:
            common = reduce(
                ClosedRanges.intersect, [one.ranges for one in still_open if one.ranges is not None]
            )
            self.unsent += [(one,) for one in common.beyond(self.ranges).patterns()]
            self.ranges = common.copy()  # of one input that is still open it is that input's own
        else:
            self._update_patterns(closed_keys, new)

    def _update_patterns(self, closed_keys: Sequence[ClosedKeys], new: list[tuple[int, KeyPatterns]]) -> None:
        """Composite keys: new patterns against those of the others; all of them after an input ended."""
        still_open = [i for i, one in enumerate(closed_keys) if not one.ended]
        of = {i: closed_keys[i].patterns for i in still_open}
        ended, self._ended = self._ended, [i for i, one in enumerate(closed_keys) if one.ended]
        if ended == self._ended:
            shared: list[KeyPatterns] = []
            for i, patterns in new:
                found = [patterns] if i in of else []
                for other in still_open:
                    found = found if other == i else _shared(found, of[other])
                shared += found
        else:
            shared = reduce(_shared, of.values())
        for one in shared:
            if not any(covers(known, one) for known in self.patterns):
                self.patterns = [known for known in self.patterns if not covers(one, known)]
                self.unsent = [known for known in self.unsent if not covers(one, known)]
                self.patterns.append(one)
                self.unsent.append(one)

    def take(self) -> tuple[KeyPatterns, ...]:
        """The parts to propagate now, when none of their keys waits to be purged."""
        ready, self.unsent = tuple(self.unsent), []
        return ready

    def to_json(self) -> Any:
        if not (self.ranges or self.patterns or self.end or self.unsent):
            return None
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
        """Every bucket has noted the same; what one has not sent yet, all new ones send (`refed`)."""
        unsent = list(dict.fromkeys(text for part in parts for text in part["unsent"]))
        noted = [{**part, "patterns": sorted(part["patterns"]), "unsent": []} for part in parts]
        return {**agreed(self.name, noted), "unsent": unsent}


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
    if NO_WATERMARK < watermark < END_OF_TIME:
        yield OutputWatermark(watermark)


def output_watermark(state: OperatorState) -> int:
    """The time before which no later result will be. Worked number: inputs at 30 and 21 give 21, and for the
    time of the first, whose window is 5, min(30, 21 - 5) = 16.
    """
    watermarks = state.watermarks
    if state.spec.timed_by is not None:
        return watermarks.settled(state.spec.timed_by)
    if not state.spec.stamps:
        return NO_WATERMARK
    open_ = [at for at, ended in zip(watermarks.current, watermarks.ended, strict=True) if not ended]
    return min(open_, default=NO_WATERMARK)
