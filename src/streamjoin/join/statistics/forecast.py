"""Forecast: the inputs of the cost model, measured while the join runs, and the state size that they predict.

For input i: rows per unit of time, how long its tuples stay needed (`lifetimes`), and when its window
or ttl ends their stay at the latest. The clock is event time where every input has one, else the number
of rows that have come. Forecasts are made for a term in advance: the terms are 1, 2, 4, … steps up to
`TERM`, and all that is predicted in a term follows from what was measured before it, less and less the
longer ago. The state size does not enter into the prediction of tuples, only the bytes that a row took;
closed keys go on growing as they did from one term to the next.

Worked number: 1,000 rows a second whose share still needed falls evenly from 1 at age 0 to 0 at 10 s,
with a window of 4 s: 1,000 x (4 - 4 x 4 / 20) = 3,200 tuples, from 4 s after the start on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from streamjoin.join.spec import JoinSpec
from streamjoin.join.statistics.lifetimes import Life, Lives
from streamjoin.join.watermarks import NO_WATERMARK, Watermarks
from streamjoin.state.component import StateComponent

TERM = 8  # steps, at most, for which a forecast is made
_SCALE = 1e9  # rates are shown as rows per so many units of the clock


@dataclass(frozen=True)
class Outlook:
    """One input, measured beside predicted; all figures add up over buckets.

    `state_rows` and `predicted_rows`; `refitted_rows`: the model's prediction with what was measured since.
    Rates are in rows by 1e9 µs, or by 1e9 rows: as predicted, as measured, and of rows that nothing evicts.
    """

    state_rows: int
    predicted_rows: int
    refitted_rows: int
    predicted_rate: int
    measured_rate: int
    unevicted_rate: int


@dataclass(frozen=True)
class Expected:
    """What one input is expected to do: its rate, lives and stay, and the bytes of a stored tuple."""

    rate: float
    life: Life
    stay: float
    row_bytes: float = 0.0

    def rows(self, elapsed: float) -> float:
        """Tuples stored when so much time has passed since the start."""
        return self.rate * self.life.stored(min(self.stay, elapsed))

    def to_json(self) -> list[Any]:
        stay = None if self.stay == float("inf") else self.stay
        return [self.rate, self.life.to_json(), stay, self.row_bytes]

    @classmethod
    def from_json(cls, saved: list[Any]) -> Expected:
        rate, life, stay, row_bytes = saved
        return cls(rate, Life.from_json(life), float("inf") if stay is None else stay, row_bytes)


@dataclass(frozen=True)
class Size:
    """State size of one input: live tuples, and the bytes of their runs."""

    rows: int
    nbytes: int


@dataclass
class Memory:
    """Closed keys and their bytes at the end of the last term, and how they grew by the clock."""

    at: float = 0.0
    closed_keys: int = 0
    nbytes: int = 0
    growth: float = 0.0
    growth_bytes: float = 0.0

    def next(self, clock: float, closed_keys: int, nbytes: int) -> Memory:
        span = clock - self.at
        if span <= 0:
            return self
        return Memory(
            clock, closed_keys, nbytes, (closed_keys - self.closed_keys) / span, (nbytes - self.nbytes) / span
        )

    def closed_keys_at(self, clock: float) -> float:
        return max(0.0, self.closed_keys + self.growth * (clock - self.at))

    def bytes_at(self, clock: float) -> float:
        return max(0.0, self.nbytes + self.growth_bytes * (clock - self.at))


class Calibration(StateComponent):
    """Measures one join, or one bucket of it, and predicts what it will hold."""

    name = "calibration"

    def __init__(self, spec: JoinSpec) -> None:
        self.spec = spec
        count = len(spec.inputs)
        self.timed = all(one.layout.timed for one in spec.inputs)
        self.lives = [Lives() for _ in spec.inputs]
        self.begin: float | None = None
        self.clock = 0.0
        self.expected: list[Expected] | None = None
        self.memory = Memory()
        self.steps = 0
        self._due = 1
        self._new_rows = [0] * count
        # faded sums over the steps: rows, time passed, and how far watermarks lagged behind the clock
        self._rows = [0.0] * count
        self._passed = 0.0
        self._lag = [0.0] * count
        self._lags = [0.0] * count

    def came(self, i: int, hashes: Any, stored: Any) -> None:
        """Rows of input i that took part, and which of them were stored."""
        self._new_rows[i] += len(hashes)
        self.lives[i].came(hashes, stored)

    def tick(self, watermarks: Watermarks, earliest: float | None) -> bool:
        """A step ends, whose first row had the time `earliest`; whether a term ends with it."""
        self.steps += 1
        clock = self._now(watermarks)
        if self.begin is None:
            first = earliest if self.timed else 0.0
            if clock is None or first is None:  # nothing with a time has come yet
                self.lives = [Lives() for _ in self.lives]
                self._new_rows = [0] * len(self.lives)
                return False
            self.begin = self.clock = min(first, clock)
            self.memory.at = self.begin
        clock = self.clock if clock is None else max(clock, self.clock)
        self._passed += clock - self.clock
        self.clock = clock
        for i, lives in enumerate(self.lives):
            self._rows[i] += self._new_rows[i]
            self._new_rows[i] = 0
            reached = watermarks.current[i]
            if self.timed and reached > NO_WATERMARK and not watermarks.ended[i]:
                self._lag[i] += clock - reached
                self._lags[i] += 1
            lives.tick(clock, self._stay(i))
        return self.steps >= self._due

    def _now(self, watermarks: Watermarks) -> float | None:
        if not self.timed:
            return self.clock + sum(self._new_rows)
        times = [
            own + one.lateness_us
            for own, one in zip(watermarks.own, self.spec.inputs, strict=True)
            if own > NO_WATERMARK
        ]
        return float(max(times)) if times else None

    def _stay(self, i: int) -> float:
        """The age at which event time lets tuples of input i go: its window, or its ttl."""
        one = self.spec.inputs[i]
        lag = [total / number if number else 0.0 for total, number in zip(self._lag, self._lags, strict=True)]
        behind = lag[i] - one.lateness_us
        stays = []
        spans = [
            min((span for span in (one.window_us, limit) if span is not None), default=None)
            for limit in one.ranges_us or (None,) * len(lag)
        ]
        known = [span + lag[m] for m, span in enumerate(spans) if m != i and span is not None]
        if len(known) == len(lag) - 1:
            stays.append(max(known) - behind)
        if one.ttl_us is not None and self.timed:
            stays.append(one.ttl_us + one.lateness_us)
        return max(min(stays), 0.0) if stays else float("inf")

    def plan_term(self, sizes: Sequence[Size], closed_keys: int, closed_key_bytes: int) -> None:
        """A term has ended: what follows is predicted from what has been measured so far."""
        self._due = self.steps + min(self.steps, TERM)
        if self._passed <= 0:
            return
        known = [one.row_bytes for one in self.expected or ()] or [0.0] * len(sizes)
        self.expected = [
            replace(self._measured(i), row_bytes=size.nbytes / size.rows if size.rows else known[i])
            for i, size in enumerate(sizes)
        ]
        self.memory = self.memory.next(self.clock, closed_keys, closed_key_bytes)
        for lives in self.lives:
            lives.fade()
        self._rows = [rows / 2 for rows in self._rows]
        self._lag, self._lags = [one / 2 for one in self._lag], [one / 2 for one in self._lags]
        self._passed /= 2

    def _measured(self, i: int) -> Expected:
        rate = self._rows[i] / self._passed if self._passed > 0 else 0.0
        return Expected(rate, self.lives[i].life(self.clock), self._stay(i))

    @property
    def _elapsed(self) -> float:
        return 0.0 if self.begin is None else self.clock - self.begin

    def predicted(self) -> list[float]:
        """Tuples of each input that the model expects now; none before the first term ends."""
        if self.expected is None:
            return [0.0] * len(self.lives)
        return [one.rows(self._elapsed) for one in self.expected]

    def predicted_closed_keys(self) -> float:
        """Closed keys that are expected now."""
        return 0.0 if self.expected is None else self.memory.closed_keys_at(self.clock)

    def predicted_bytes(self) -> float:
        """Bytes of all state that the model expects now."""
        if self.expected is None:
            return 0.0
        tuples = (one.row_bytes * one.rows(self._elapsed) for one in self.expected)
        return sum(tuples) + self.memory.bytes_at(self.clock)

    def outlook(self, held: Sequence[int]) -> list[Outlook]:
        """Measured beside predicted, and what has changed between."""
        found = []
        for i, (rows, predicted) in enumerate(zip(held, self.predicted(), strict=True)):
            then = None if self.expected is None else self.expected[i]
            now = self._measured(i)
            figures = (
                predicted,
                now.rows(self._elapsed),
                0.0 if then is None else then.rate * _SCALE,
                now.rate * _SCALE,
                now.rate * now.life.lasting * _SCALE if now.stay > self._elapsed else 0.0,
            )
            found.append(Outlook(rows, *(round(figure) for figure in figures)))
        return found

    def to_json(self) -> dict[str, Any]:
        return {
            "lives": [lives.to_json() for lives in self.lives],
            "begin": self.begin,
            "clock": self.clock,
            "steps": [self.steps, self._due],
            "expected": None if self.expected is None else [one.to_json() for one in self.expected],
            "memory": asdict(self.memory),
            "sums": [self._rows, self._passed, self._lag, self._lags],
        }

    def restore(self, part: Any) -> None:
        self.lives = [Lives.from_json(each) for each in part["lives"]]
        self.begin, self.clock = part["begin"], part["clock"]
        self.steps, self._due = part["steps"]
        if part["expected"] is not None:
            self.expected = [Expected.from_json(each) for each in part["expected"]]
        self.memory = Memory(**part["memory"])
        self._rows, self._passed, self._lag, self._lags = part["sums"]

    def merge(self, parts: Sequence[Any]) -> None:
        """Forecasts of other buckets begin again."""
