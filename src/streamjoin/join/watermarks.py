"""Event-time progress: for each input the time before which nothing will come any more.

P_i is the greatest event time of input i in finished batches less its lateness; with `idle`
declared, at least the smallest progress of the others less `idle`. Worked number: greatest times
100 and 40, lateness 0, idle 20 on the second: P = 100 and max(40, 100 - 20) = 80. Only event
times count, never a clock, so the answer does not depend on when batches run.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamjoin.join.spec import InputSpec

NO_WATERMARK = -(1 << 62)  # below every time a stream can have
END_OF_TIME = 1 << 62  # above every such time


class OwnWatermarks:
    """How far each input has got; moves only forward."""

    def __init__(self, inputs: Sequence[InputSpec]) -> None:
        self._inputs = inputs
        self.own = [NO_WATERMARK] * len(inputs)
        self.ended = [False] * len(inputs)

    def of_all(self) -> list[int]:
        """P_i of every input. An ended input holds nobody back."""
        watermarks = list(self.own)
        for _ in watermarks:  # an idle input may wait for another idle one: n rounds settle all
            for i, spec in enumerate(self._inputs):
                others = [watermarks[m] for m in range(len(watermarks)) if m != i and not self.ended[m]]
                if spec.idle_us is not None and others and min(others) > NO_WATERMARK:
                    watermarks[i] = max(watermarks[i], min(others) - spec.idle_us)
        return watermarks

    def saw(self, number: int, latest_us: int) -> None:
        """The greatest event time of a finished batch."""
        self.own[number] = max(self.own[number], latest_us - self._inputs[number].lateness_us)

    def reach(self, number: int, time_us: int) -> None:
        """A promise that nothing before `time_us` will come on this input."""
        self.own[number] = max(self.own[number], time_us)
