"""Durations: text or `timedelta` where a user gives them, whole microseconds (`_us`) inside.

What is printed can be typed back: `duration_text` of whole microseconds is exact, and `duration_us` reads it.

Every duration is at most `MOST_US`, 10,000 years. Event times are microseconds in 64 bits, and the engine
adds durations to them and subtracts them: a watermark is time - lateness, and a tuple leaves when it is past
time + window. Worked number: the last timestamp of the year 9999 is 2.5e17, and with a window, a lateness, an
idle and a ttl of 10,000 years each it is 1.5e18, where 64 bits end at 9.2e18.
"""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction
from typing import TypeAlias

from streamjoin.errors import InvalidJoin

Duration: TypeAlias = str | timedelta

UNITS_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_SHORT = {
    "microsecond": ("us", "µs", "μs", "usec", "micro"),
    "millisecond": ("ms", "msec", "milli"),
    "second": ("s", "sec"),
    "minute": ("min",),
    "hour": ("h", "hr"),
    "day": ("d",),
    "week": ("w", "wk"),
}
_WRITTEN = {
    spelled: UNITS_US[unit]
    for unit, short in _SHORT.items()
    for name in (unit, *short)
    for spelled in (name, f"{name}s")
}
_PART = re.compile(r"\s*([+-]?)\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-zµμ]+)\s*,?\s*", re.IGNORECASE)
MOST_US = 10_000 * 365 * UNITS_US["day"]
_MOST_SAID = "10,000 years of 365 days"


def duration_us(value: Duration, *, what: str) -> int:
    """A duration as whole microseconds: `"12 hours"`, `"1 h 30 min"` or a timedelta.

    >>> duration_us("1 minute 30 seconds", what="window"), duration_us("1 h", what="window")
    (90000000, 3600000000)
    """
    if isinstance(value, timedelta):
        microseconds = value // timedelta(microseconds=1)
    elif isinstance(value, str):
        microseconds = _parse_duration(value, what=what)
    else:
        raise InvalidJoin(f'{what} is {value!r}; give a duration such as "12 hours" or a timedelta')
    if microseconds < 0:
        raise InvalidJoin(f"{what} is {value!r}, which is negative; give a duration of 0 or more")
    if microseconds > MOST_US:
        raise InvalidJoin(
            f"{what} is {value!r}; the longest duration is {_MOST_SAID}: give a shorter one, or leave it out "
            "if it has no end"
        )
    return microseconds


def duration_text(micros: float) -> str:
    """A duration in few words, in the unit in which it reads best; of whole microseconds exactly.

    >>> duration_text(90_000_000), duration_text(7_200_000_000), duration_text(1_500)
    ('90 s', '2 h', '0.0015 s')
    >>> duration_text(1_001_000_000), duration_text(1_001_000_000.0)  # declared, and measured
    ('16 min 41 s', '16.7 min')
    """
    exact = isinstance(micros, int)
    for unit, name in (("day", "d"), ("hour", "h"), ("minute", "min")):
        if micros >= 2 * UNITS_US[unit]:
            text = f"{_short(micros / UNITS_US[unit])} {name}"
            return _in_parts(int(micros)) if exact and _parse_duration(text) != micros else text
    return f"{_decimals(micros / 1e6, 6) if exact else _short(micros / 1e6)} s"


def _short(number: float) -> str:
    """Three digits, without an exponent.

    >>> _short(16.68), _short(12345.6), _short(0.0000012)
    ('16.7', '12346', '0.0000012')
    """
    if abs(number) >= 1000:
        return f"{number:.0f}"
    text = f"{number:.3g}"
    return text if "e" not in text else _decimals(number, 9)


def _decimals(number: float, most: int) -> str:
    return f"{number:.{most}f}".rstrip("0").rstrip(".")


def _in_parts(micros: int) -> str:
    """Days, hours, minutes and seconds, those that are not zero."""
    parts = []
    for unit, name in (("day", "d"), ("hour", "h"), ("minute", "min")):
        count, micros = divmod(micros, UNITS_US[unit])
        if count:
            parts.append(f"{count} {name}")
    return " ".join([*parts, *([f"{_decimals(micros / 1e6, 6)} s"] if micros else [])])


def _parse_duration(text: str, *, what: str = "duration") -> int:
    at, total = 0, Fraction(0)
    while part := _PART.match(text, at):
        unit = _WRITTEN.get(part[3].lower())
        if unit is None:
            break
        at, total = part.end(), total + Fraction(f"{part[1]}{part[2]}") * unit
    if at == 0 or text[at:].strip():
        raise InvalidJoin(
            f'{what} is {text!r}; give a number and a unit such as "12 hours" or "10 min" '
            f"(units: {', '.join(UNITS_US)}, or {', '.join(short[0] for short in _SHORT.values())})"
        )
    return round(total)
