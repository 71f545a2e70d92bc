"""Checks of what a user declares: a value of the wrong kind is refused when it is given.

Python takes any object for a flag (`unique="no"` is true) and `True` for a number; here neither passes.
"""

from __future__ import annotations

from typing import Any

from streamjoin.errors import InvalidJoin


def check_flag(given: Any, what: str) -> None:
    """Refuse what is neither True nor False.

    >>> check_flag("no", "stream 'news': unique")
    Traceback (most recent call last):
    streamjoin.errors.InvalidJoin: stream 'news': unique is 'no'; give True or False
    """
    if not isinstance(given, bool):
        raise InvalidJoin(f"{what} is {given!r}; give True or False")


def is_whole(given: Any, least: int | None = 1) -> bool:
    """Whether it is a whole number, and not less than `least`."""
    return isinstance(given, int) and not isinstance(given, bool) and (least is None or given >= least)


def check_number(given: Any, what: str) -> None:
    """Refuse what is no whole number of 1 or more."""
    if not is_whole(given):
        raise InvalidJoin(f"{what}={given!r}; give a whole number of 1 or more")


def check_column(given: Any, what: str) -> None:
    """Refuse what is no column's name."""
    if not isinstance(given, str) or not given:
        raise InvalidJoin(f"{what} is {given!r}; give a column's name")
