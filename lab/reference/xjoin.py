"""XJoin in its three stages (Urhan and Franklin; MJoin sections 1.2 and 5.2).

1. A row probes the other input's bucket in memory and is stored; while memory is full, the largest bucket
   goes to disk.
2. While both inputs are blocked (`idle`), the disk part of a bucket is joined with the memory part of the
   same bucket of the other input: the largest disk part first that has something to do.
3. At the end of both inputs (`finish`) every bucket is joined whole.

No pair comes twice. It was joined in stage 1 if the two rows were in memory together, by their times of
arrival and departure; in stage 2 if the history of the bucket says that one was on disk and the other in
memory then. Worked number: a came at 1 and left at 3, b came at 5: not joined in stage 1; stage 2 ran at 7 on
what had left by 3, and b was in memory at 7: joined there, so stage 3 leaves the pair out.
"""

from __future__ import annotations

from itertools import product

from lab.reference.buckets import HashState, Stored, flush_largest
from lab.reference.elements import Element, End, Output, Work


class XJoin:
    """`memory`: rows of both inputs in memory (None: all fit); `page`: rows of a disk page."""

    def __init__(self, *, buckets: int = 16, memory: int | None = None, page: int = 100) -> None:
        self.work, self.output = Work(), Output()
        self.states = HashState(buckets, self.work, page), HashState(buckets, self.work, page)
        self._memory, self._clock, self._buckets = memory, 0, buckets
        # By input and bucket: (what had left memory by then, when it met the other's memory part)
        self._history: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def take(self, element: Element) -> None:
        """Stage 1: the next element of either input."""
        if isinstance(element, End):
            return
        self._clock += 1
        own, other = self.states[element.input], self.states[1 - element.input]
        for stored in other.probe(element.key):
            pair = (element, stored.row) if element.input == 0 else (stored.row, element)
            self.output.rows.append(pair)
        own.insert(element, self._clock)
        if self._memory is not None:
            while self.states[0].in_memory + self.states[1].in_memory > self._memory:
                flush_largest(self.states, self._clock)

    def idle(self) -> bool:
        """Stage 2 on one bucket; False if there is nothing to do."""
        choices = [
            (len(self.states[side].buckets[n].disk), side, n)
            for side, n in product((0, 1), range(self._buckets))
            if self._is_due(side, n)
        ]
        if not choices:
            return False
        _, side, number = max(choices)
        self._clock += 1
        disk = self.states[side].read_disk(number)
        memory = self.states[1 - side].buckets[number].memory
        for on_disk, in_memory in product(disk, memory):
            self._pair(side, on_disk, in_memory, number)
        last = max(stored.left for stored in disk)
        self._history.setdefault((side, number), []).append((last, self._clock))
        return True

    def finish(self) -> None:
        """Stage 3."""
        self._clock += 1
        for number in range(self._buckets):
            a, b = ([*state.read_disk(number), *state.buckets[number].memory] for state in self.states)
            for left, right in product(a, b):
                self._pair(0, left, right, number)

    def _is_due(self, side: int, number: int) -> bool:
        """Rows on disk or in memory that came to it after the last time."""
        disk, memory = self.states[side].buckets[number].disk, self.states[1 - side].buckets[number].memory
        if not disk or not memory:
            return False
        done = self._history.get((side, number), [])
        if not done:
            return True
        last, then = done[-1]
        return disk[-1].left > last or memory[-1].came > then

    def _pair(self, side: int, one: Stored, other: Stored, number: int) -> None:
        self.work.scanned += 1
        self.work.comparisons += 1
        if one.row.key != other.row.key or self._joined_before(side, one, other, number):
            return
        pair = (one.row, other.row) if side == 0 else (other.row, one.row)
        self.output.rows.append(pair)

    def _joined_before(self, side: int, one: Stored, other: Stored, number: int) -> bool:
        if one.came <= other.left and other.came <= one.left:
            return True  # stage 1
        return any(
            disk.left <= last and memory.came <= then <= memory.left
            for of, disk, memory in ((side, one, other), (1 - side, other, one))
            for last, then in self._history.get((of, number), [])
        )
