"""Symmetric hash join (Wilschut and Apers; MJoin section 1.2, SSBJ section 2.1).

A row probes the hash table of the other input and is then stored in its own. Nothing ever leaves. Worked
number: rows a1, b1, a2 of one key give (a1, b1) at the second and (a2, b1) at the third. Cost of a row: the
rows of one bucket of the other input.
"""

from __future__ import annotations

from lab.reference.buckets import HashState
from lab.reference.elements import Element, End, Output, Work


class SHJ:
    """Two hash tables and a loop; punctuations are ignored."""

    def __init__(self, *, buckets: int = 16) -> None:
        self.work, self.output = Work(), Output()
        self.states = HashState(buckets, self.work), HashState(buckets, self.work)
        self._clock = 0

    def take(self, element: Element) -> None:
        """The next element of either input."""
        if isinstance(element, End):
            return
        self._clock += 1
        own, other = self.states[element.input], self.states[1 - element.input]
        for stored in other.probe(element.key):
            pair = (element, stored.row) if element.input == 0 else (stored.row, element)
            self.output.rows.append(pair)
        own.insert(element, self._clock)
