"""Frontier: for each input the event time before which no row of it comes any more, inside a batch too.

Between batches that is the watermark. While a batch is at work it is the least time of the input's rows that
are not processed yet, or the watermark after the batch where that is less. PWJoin invalidates by it, tuple by
tuple (cross invalidation); here after each turn of the driver. Worked number: 40 s of events with windows of
1 s in one batch, 100 rows a second on two inputs, in the order of their times: 200 tuples can match a
coming row, while a join that waits for the end of the batch stores 8,000.

Only eviction goes by the frontier. Lateness, scheduled punctuations and what is propagated go by the
watermarks of whole batches, so the answer does not depend on how rows are cut into batches: what leaves here
would leave when the batch ends, and matches nothing until then.

Invariant: inside a batch a frontier never moves back, and never passes the watermark after the batch.

Cost: the least times of a batch's rows once; for each turn the rows that the frontier passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from streamjoin.columnar.batch import Batch
from streamjoin.join.arrivals import Arrivals
from streamjoin.join.eviction import Eviction
from streamjoin.join.outputs import Output
from streamjoin.join.queues import InputQueue


class WindowEviction:
    """Invalidates tuples while a batch is at work, where the join's specification asks for it."""

    def __init__(self, eviction: Eviction) -> None:
        self.eviction, self.state, self.spec = eviction, eviction.state, eviction.spec
        self._queues: Sequence[InputQueue] = ()
        self._after: list[int] = []

    def begin(self, queues: Sequence[InputQueue], arrivals: Mapping[int, Arrivals]) -> Iterator[Output]:
        """All rows of the batch are known."""
        if not self.spec.invalidates_within:
            return
        self._queues = queues
        self._after = self._at_least_after(arrivals)
        self.state.watermarks.frontier = list(self.state.watermarks.current)
        yield from self.advance()

    def advance(self) -> Iterator[Output]:
        """A turn is over: invalidate the tuples that are outside the window of every row to come."""
        if not self.spec.invalidates_within:
            return
        before, now = self.state.watermarks.passed, list(self._after)
        for queue in self._queues:
            now[queue.input] = min(now[queue.input], queue.earliest_left_us)
        now = list(map(max, before, now))
        self.state.watermarks.frontier = now
        touched: list[Batch] = []
        for i, spec in enumerate(self.spec.inputs):
            for other in self.state.others(i):
                span = spec.span_to(other)
                if span is not None and now[other] > before[other]:
                    stop_us = now[other] - span
                    yield from self.eviction.invalidate(i, before[other] - span, stop_us, touched)
        # keys that finish by it are propagated when the batch ends
        for keys in touched:
            self.eviction.touched.add(keys)
        if now != before:
            for side in self.state.sides:
                side.drop_tombstoned()

    def end(self) -> None:
        """All rows of the batch are processed: the watermarks advance."""
        self._queues = ()
        self.state.watermarks.frontier = None

    def _at_least_after(self, arrivals: Mapping[int, Arrivals]) -> list[int]:
        """What the watermarks will be at least when the batch is finished; an idle input may be further."""
        watermarks = self.state.watermarks
        after = list(map(max, watermarks.current, watermarks.own))
        for i, arrived in arrivals.items():
            if arrived.latest_us is not None:
                after[i] = max(after[i], arrived.latest_us - self.spec.inputs[i].lateness_us)
            if arrived.watermark_us is not None:
                after[i] = max(after[i], arrived.watermark_us)
        return after
