"""Short lists: names in a representation of one line, however many there are."""

from __future__ import annotations

from collections.abc import Sequence

_MOST = 6


def few(names: Sequence[str], separator: str = ", ", most: int = _MOST) -> str:
    """The first names, and how many more there are.

    >>> few("abc"), few("abcdefgh")
    ('a, b, c', 'a, b, c, d, e, f and 2 more')
    """
    hidden = len(names) - most
    if hidden <= 1:
        return separator.join(names)
    return f"{separator.join(names[:most])} and {hidden} more"
