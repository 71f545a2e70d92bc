"""The state of one input of PWJoin (section 4.1, figure 3): a time list, value lists, an I-Node index.

    index    79 → I-Node(79, flag) ── head ──► T-Node ──► T-Node ◄── tail     a value list
    time list:             begin ──► T-Node ──► T-Node ──► T-Node ◄── end     all values, oldest first

A T-Node holds a row and is in both lists. Deletion is lazy (section 4.3): a row that leaves is set to None in
its T-Node, and each list drops empty T-Nodes when it is walked next. A punctuated value has a ring: the last
T-Node of its value list points back to the I-Node, so that invalidating it says that no row of the value is
left (section 4.4). Worked number: rows 1, 2 of key 79 and one of 81 are 3 T-Nodes, 2 I-Nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from lab.reference.elements import Row, Work


class Flag(Enum):
    """What is known of a value in this stream: PunctFlag."""

    NONE = "none"
    PUNCTUATED = "punctuated"
    PROPAGATED = "propagated"


@dataclass(slots=True, eq=False)
class TNode:
    """A row in the time list and in a value list."""

    row: Row | None
    next_in_time: TNode | None = None
    next_in_value: TNode | None = None
    punctuated: INode | None = None  # the ring


@dataclass(slots=True, eq=False)
class INode:
    """A value list, and what its stream said of the value."""

    key: int
    head: TNode | None = None
    tail: TNode | None = None
    flag: Flag = Flag.NONE


class PWState:
    """`window`: how long a row can be joined after its time, inclusive; None: without end."""

    def __init__(self, window: int | None, work: Work) -> None:
        self.window, self._work = window, work
        self.index: dict[int, INode] = {}
        self.rows = 0  # that are not None
        self._begin: TNode | None = None
        self._end: TNode | None = None

    def lookup(self, key: int) -> INode | None:
        self._work.probes += 1
        return self.index.get(key)

    def insert(self, row: Row) -> None:
        """At the ends of the time list and of its value list."""
        node = TNode(row)
        if self._end is None:
            self._begin = node
        else:
            self._end.next_in_time = node
        self._end = node
        inode = self._inode(row.key)
        if inode.tail is None:
            inode.head = node
        else:
            inode.tail.next_in_value = node
        inode.tail = node
        self.rows += 1
        self._work.inserted += 1

    def rows_of(self, inode: INode) -> Iterator[Row]:
        """The value list; empty T-Nodes at its head are taken out."""
        while inode.head is not None and inode.head.row is None:
            self._work.scanned += 1
            inode.head = inode.head.next_in_value
        if inode.head is None:
            inode.tail = None
        node = inode.head
        while node is not None:
            self._work.scanned += 1
            if node.row is not None:
                yield node.row
            node = node.next_in_value

    def invalidate(self, now: int) -> list[INode]:
        """Rows whose window ended before `now` leave; gives the values of which that was the last row."""
        ended = []
        node = self._begin
        while node is not None:
            self._work.scanned += 1
            if node.row is not None:
                if self.window is None or node.row.time + self.window >= now:
                    break
                node.row = None
                self.rows -= 1
                self._work.invalidated += 1
            if node.punctuated is not None and node.punctuated.flag is Flag.PUNCTUATED:
                ended.append(node.punctuated)
            node = node.next_in_time
        self._begin = node
        if node is None:
            self._end = None
        return ended

    def purge(self, inode: INode) -> None:
        """All rows of a value leave, and so does its I-Node; its T-Nodes stay in the time list, empty."""
        node = inode.head
        while node is not None:
            self._work.scanned += 1
            if node.row is not None:
                node.row = None
                self.rows -= 1
                self._work.purged += 1
            node = node.next_in_value
        self.index.pop(inode.key, None)

    def mark_punctuated(self, key: int) -> None:
        """Also closes the ring, where the value has rows."""
        self._work.probes += 1
        inode = self._inode(key)
        inode.flag = Flag.PUNCTUATED
        if inode.tail is not None:
            inode.tail.punctuated = inode

    def _inode(self, key: int) -> INode:
        return self.index.setdefault(key, INode(key))
