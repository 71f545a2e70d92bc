"""Watermarks: for each input the event time before which no more rows will come.

The watermark of input i is the greatest event time of finished batches less the declared lateness; with
`idle` declared, at least the smallest watermark of the others less `idle`. Worked number: greatest times
100 and 40, lateness 0, idle 20 on the second: 100 and max(40, 100 - 20) = 80. Only event times count,
never a clock, so the answer does not depend on when batches run.

Two times follow from them, both by input. `latest`: the greatest event time that the input has reached.
`settled`: no tuple of the input before that takes part in a later result. Worked number: watermarks 100 and
80 of inputs with windows 10 and 30 are settled before min(100, 80 - 10) = 70 and min(80, 100 - 30) = 70.

Invariant: a watermark never moves back. Every bucket of a join has the same ones between batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamjoin.join.spec import InputSpec
from streamjoin.state.component import StateComponent

NO_WATERMARK = -(1 << 62)  # below every time a stream can have
END_OF_TIME = 1 << 62  # above every such time


class Watermarks(StateComponent):
    """`own`: from an input's own rows alone; `current`: as it counts; `ended`: which inputs have ended;
    `reached`: the greatest event time of each input, that of the batch at work included.
    """

    name = "watermarks"

    def __init__(self, inputs: Sequence[InputSpec]) -> None:
        self._inputs = inputs
        self.own = [NO_WATERMARK] * len(inputs)
        self.reached = [NO_WATERMARK] * len(inputs)
        self.ended = [False] * len(inputs)
        self.current = self.of_all()
        self.frontier: list[int] | None = None  # while a batch is at work, where that evicts (`frontier`)

    @property
    def passed(self) -> list[int]:
        """For each input the time before which no row of it comes any more, in this batch or after it."""
        return self.current if self.frontier is None else self.frontier

    def of_all(self) -> list[int]:
        """The watermark of every input. An ended input holds nobody back."""
        watermarks = list(self.own)
        for _ in watermarks:  # an idle input may wait for another idle one: n rounds reach all
            for i, spec in enumerate(self._inputs):
                others = [watermarks[m] for m in range(len(watermarks)) if m != i and not self.ended[m]]
                if spec.idle_us is not None and others and min(others) > NO_WATERMARK:
                    watermarks[i] = max(watermarks[i], min(others) - spec.idle_us)
        return watermarks

    def begin(self, number: int, latest_us: int | None) -> None:
        """A batch begins that has this greatest event time, None where it has none."""
        if latest_us is not None:
            self.reached[number] = max(self.reached[number], latest_us)

    def latest(self, number: int) -> int:
        """The greatest event time that an input has reached, by its rows or its watermark."""
        return max(self.reached[number], self.current[number])

    def latest_of_all(self) -> int:
        return max(map(self.latest, range(len(self.own))))

    def settled(self, number: int) -> int:
        """No tuple of this input with an earlier time takes part in a later result.

        A new one has at least the watermark of its input; one that is stored is evicted once every other
        input has ended, or its watermark is past all that it could match.
        """
        bounds = [] if self.ended[number] else [self.current[number]]
        for other, watermark in enumerate(self.current):
            if other != number and not self.ended[other]:
                reach = self._inputs[number].reach_to(other)
                known = reach is not None and watermark > NO_WATERMARK
                bounds.append(watermark - (reach or 0) if known else NO_WATERMARK)
        return min(bounds, default=END_OF_TIME)

    def saw(self, number: int, latest_us: int) -> None:
        """The greatest event time of a finished batch."""
        if self._inputs[number].sent_watermark:
            return
        self.own[number] = max(self.own[number], latest_us - self._inputs[number].lateness_us)

    def reach(self, number: int, time_us: int) -> None:
        """A punctuation: no row before `time_us` will come on this input."""
        self.own[number] = max(self.own[number], time_us)

    def advance(self) -> list[int]:
        """Make `current` what `own` and `ended` say by now; returns the watermarks before.

        Never backwards, though an input that ends may have advanced an idle one.
        """
        before, self.current = self.current, list(map(max, self.current, self.of_all()))
        return before

    def to_json(self) -> Any:
        return {"own": self.own, "ended": self.ended, "current": self.current, "reached": self.reached}

    def restore(self, part: Any) -> None:
        self.own, self.ended, self.current, self.reached = (
            list(part[name]) for name in ("own", "ended", "current", "reached")
        )
