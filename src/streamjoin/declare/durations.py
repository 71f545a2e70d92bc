"""Durations: text or `timedelta` where a user gives them, whole microseconds (`_us`) inside."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TypeAlias

from streamjoin.errors import InvalidJoin

Duration: TypeAlias = str | timedelta

_UNITS_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_DURATION_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+?)s?(?=\s|\d|$|,)\s*,?", re.IGNORECASE)


def duration_us(value: Duration, *, what: str) -> int:
    """A duration as whole microseconds: `"12 hours"`, `"1 minute 30 seconds"` or a timedelta.

    >>> duration_us("1 minute 30 seconds", what="window")
    90000000
    """
    if isinstance(value, timedelta):
        microseconds = value // timedelta(microseconds=1)
    elif isinstance(value, str):
        microseconds = _parse_duration(value, what=what)
    else:
        raise InvalidJoin(f'{what} is {value!r}; give a duration such as "12 hours" or a timedelta')
    if microseconds < 0:
        raise InvalidJoin(f"{what} is {value!r}; a duration cannot be negative, give one of 0 or more")
    return microseconds


def duration_text(micros: float) -> str:
    """A duration in few words, in the unit in which it reads best.

    >>> duration_text(90_000_000), duration_text(7_200_000_000), duration_text(1_500)
    ('90 s', '2 h', '0.0015 s')
    """
    for unit, name, least in (("day", "d", 2), ("hour", "h", 2), ("minute", "min", 2)):
        if micros >= least * _UNITS_US[unit]:
            return f"{micros / _UNITS_US[unit]:.3g} {name}"
    return f"{micros / 1e6:.3g} s"


def _parse_duration(text: str, *, what: str) -> int:
    at, total = 0, 0.0
    while at < len(text):
        part = _DURATION_PART.match(text, at)
        unit = _UNITS_US.get(part.group(2).lower()) if part else None
        if part is None or unit is None:
            break
        total, at = total + float(part.group(1)) * unit, part.end()
    if at == 0 or text[at:].strip():
        raise InvalidJoin(
            f'{what} is {text!r}; give a number and a unit such as "12 hours" (units: {", ".join(_UNITS_US)})'
        )
    return round(total)
