"""MESHJOIN: a stream and a relation on disk (Polyzotis et al.; SSBJ section 2.2, figure 1).

R is read in a cycle of k partitions of b tuples. In each step a chunk of w stream tuples enters the hash
table and the queue, one partition of R is read, each of its tuples is looked up in the hash table, and the
oldest chunk leaves once it has met all k partitions. Worked number: k = 3, w = 2: 6 stream tuples wait, and a
tuple that enters in step 1 leaves behind step 3. No index on R, no order of R is assumed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from lab.reference.elements import Output, Row, Work


class Disk:
    """A relation that is read partition by partition; `page`: tuples of a page."""

    def __init__(self, relation: Sequence[Row], partition: int, work: Work, page: int = 100) -> None:
        self.partitions = [relation[at : at + partition] for at in range(0, len(relation), partition)] or [[]]
        self.next = 0
        self._work, self._page = work, page

    @property
    def begins(self) -> bool:
        """The next partition is the first of a cycle."""
        return self.next == 0

    def read(self) -> Sequence[Row]:
        partition = self.partitions[self.next]
        self.next = (self.next + 1) % len(self.partitions)
        self._work.pages_read += -(-len(partition) // self._page)
        return partition


class Waiting:
    """The hash table of stream tuples, and the queue of their chunks: H_S and Q."""

    def __init__(self) -> None:
        self.table: dict[int, list[Row]] = {}
        self.queue: deque[list[Row]] = deque()
        self.rows = 0

    def add(self, chunk: Iterable[Row]) -> None:
        rows = list(chunk)
        self.queue.append(rows)
        self.rows += len(rows)
        for row in rows:
            self.table.setdefault(row.key, []).append(row)

    def expire(self) -> None:
        """The oldest chunk has met all of R; its tuples are the oldest of their values too."""
        for row in self.queue.popleft():
            rows = self.table[row.key]
            rows.pop(0)
            self.rows -= 1
            if not rows:
                del self.table[row.key]


class MeshJoin:
    """`step` with the next chunk of the stream; results are (stream tuple, tuple of R)."""

    def __init__(self, relation: Sequence[Row], *, partition: int, page: int = 100) -> None:
        self.work, self.output = Work(), Output()
        self.disk = Disk(relation, partition, self.work, page)
        self.waiting = Waiting()

    def step(self, chunk: Iterable[Row]) -> None:
        """A chunk enters, a partition is read, a chunk leaves."""
        self.waiting.add(chunk)
        for row in self.disk.read():
            self.work.probes += 1
            for waiting in self.waiting.table.get(row.key, ()):
                self.output.rows.append((waiting, row))
        if len(self.waiting.queue) == len(self.disk.partitions):
            self.waiting.expire()

    def finish(self) -> None:
        """Steps without stream tuples until none waits."""
        while self.waiting.rows:
            self.step(())
