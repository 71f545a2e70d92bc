"""Window predicate. A result is valid when, for every component i, (the latest time among
its components) - t_i <= W_i, inclusive. Worked number: times 10 and 14 with windows 4 and none
are valid, 10 and 15 are not.

The same said with two times for each combination: its latest time, and until when it may go on, the least
of t_i + W_i. It is valid while latest <= until, and as the one only grows and the other only shrinks, a
partial combination that fails can never become valid. One more tuple with time t and window W keeps it
valid exactly when latest - W <= t <= until; so where the tuples of a key stand in the order of time, those
that do are found by two binary searches.

A component may be a result itself. Then its time is the latest of its own components, and until when it may
go on stands with each row: what lies between is its window, one for each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from streamjoin.columnar.batch import Ints, Mask
from streamjoin.columnar.match import expand

_MOST = 1 << 62  # codes of key and time must stay below
Until: TypeAlias = "Ints | None"  # None: for ever
NEVER = 1 << 62  # an `until` that no time reaches


@dataclass(frozen=True, slots=True)
class Span:
    """The latest time of each combination, and until when it may go on; None: for ever."""

    latest: Ints
    until: Until

    def grown(self, rows: Ints, by: Span) -> Span:
        """Some of the combinations, each with one more tuple."""
        latest = np.maximum(self.latest[rows], by.latest)
        if self.until is None:
            return Span(latest, by.until)
        until = self.until[rows]
        return Span(latest, until if by.until is None else np.minimum(until, by.until))

    def valid(self) -> Mask:
        """Which combinations lie in all windows."""
        if self.until is None:
            return np.ones(len(self.latest), np.bool_)
        inside: Mask = self.latest <= self.until
        return inside

    def at(self, chosen: Ints | Mask) -> Span:
        """Some of the combinations."""
        return Span(self.latest[chosen], None if self.until is None else self.until[chosen])


def span_of(time: Ints, window_us: int | Ints | None) -> Span:
    """The span of single tuples of one input; the window is the input's, or each tuple's own."""
    return Span(time, None if window_us is None else time + window_us)


@dataclass(frozen=True, slots=True)
class TimeOrder:
    """Rows of several keys, by key and then by time; `codes` ascend with them."""

    rows: Ints
    codes: Ints
    start: Ints  # of each key in `rows`
    count: Ints
    earliest: int
    width: int  # the codes of one key: from key * width on

    @classmethod
    def of(cls, times: Ints, start: Ints, count: Ints) -> TimeOrder | None:
        """Of one range of rows for each key; None where key and time do not fit one code."""
        key, rows = expand(start, count)
        time = times[rows]
        if len(time) == 0:
            return None
        earliest = int(time.min())
        width = int(time.max()) - earliest + 2
        if width * len(count) >= _MOST:
            return None
        codes = key * width + (time - earliest)
        if np.any(codes[1:] < codes[:-1]):
            order = np.argsort(codes, kind="stable")
            rows, codes = rows[order], codes[order]
        return cls(rows, codes, np.cumsum(count) - count, count, earliest, width)

    def between(self, key: Ints, span: Span, window_us: int | None) -> tuple[Ints, Ints]:
        """For each combination, by its key: where in `rows` the tuples stand that keep it valid."""
        base = key * self.width
        low, high = self.start[key], (self.start + self.count)[key]
        if window_us is not None:
            first = np.clip(span.latest - window_us - self.earliest, 0, self.width - 1)
            low = np.searchsorted(self.codes, base + first, side="left")
        if span.until is not None:
            last = np.clip(span.until - self.earliest, -1, self.width - 2)
            high = np.searchsorted(self.codes, base + last, side="right")
        return low, np.maximum(high - low, 0)


def latest_and_until(
    times: Sequence[Ints | None], windows_us: Sequence[int | Ints | None], count: int
) -> tuple[Ints, Ints]:
    """L and D of combinations: their latest time, and until when they may be part of a larger result.

    A component without a time says nothing of L, one without a window nothing of D. Worked number: times
    10 and 14 with windows 6 and none give L = 14 and D = 16.
    """
    latest: Ints = np.full(count, np.iinfo(np.int64).min)
    until: Ints = np.full(count, NEVER)
    for time, window in zip(times, windows_us, strict=True):
        if time is not None:
            latest = np.maximum(latest, time)
            until = until if window is None else np.minimum(until, time + window)
    return latest, until
