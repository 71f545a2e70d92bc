"""Watermarks: for each input the event time before which no more rows will come.

The watermark of input i is the greatest event time of finished batches less the declared lateness; with
`idle` declared, at least the smallest watermark of the others less `idle`. Worked number: greatest times
100 and 40, lateness 0, idle 20 on the second: 100 and max(40, 100 - 20) = 80. Only event times count,
never a clock, so the answer does not depend on when batches run.

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
    """`own`: from an input's own rows alone; `current`: as it counts; `ended`: which inputs have ended."""

    name = "watermarks"

    def __init__(self, inputs: Sequence[InputSpec]) -> None:
        self._inputs = inputs
        self.own = [NO_WATERMARK] * len(inputs)
        self.ended = [False] * len(inputs)
        self.current = self.of_all()

    def of_all(self) -> list[int]:
        """The watermark of every input. An ended input holds nobody back."""
        watermarks = list(self.own)
        for _ in watermarks:  # an idle input may wait for another idle one: n rounds reach all
            for i, spec in enumerate(self._inputs):
                others = [watermarks[m] for m in range(len(watermarks)) if m != i and not self.ended[m]]
                if spec.idle_us is not None and others and min(others) > NO_WATERMARK:
                    watermarks[i] = max(watermarks[i], min(others) - spec.idle_us)
        return watermarks

    def saw(self, number: int, latest_us: int) -> None:
        """The greatest event time of a finished batch."""
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
        return {"own": self.own, "ended": self.ended, "current": self.current}

    def restore(self, part: Any) -> None:
        self.own, self.ended, self.current = (list(part[name]) for name in ("own", "ended", "current"))
