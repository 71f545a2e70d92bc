"""PWJoin: windows and punctuations together (section 4, figures 4 and 5); WJoin and PJoin are parts of it.

A row invalidates the other state by its time, probes it, and is stored unless the other input has ended its
key (on-the-fly discard). A punctuation purges the other state. A key is propagated when both inputs have
ended it; or earlier, when one has ended it and its last row leaves the window (early propagation): rows of
the other input are then dropped before they are looked at, until its own punctuation comes.

`PWJoin((5, 5))` has windows of 5 on both inputs, `PWJoin((None, None))` is PJoin, `PWJoin((5, 5),
punctuations=False)` is WJoin. Elements come in order of time, as the paper assumes. Worked number: windows of
5; a(79, t=0), End(a, 79), b(79, t=3), b(81, t=6): one result; the last row invalidates a's row, the last of a
punctuated key: 79 is propagated then, without a word of b.

One line differs from figure 5, as section 4.4 asks: an I-Node that was propagated early is taken out by the
matching punctuation without propagating again.
"""

from __future__ import annotations

from lab.reference.elements import Element, End, Output, Row, Work
from lab.reference.pwjoin_state import Flag, PWState


class PWJoin:
    """Two states; `take` each element."""

    def __init__(self, windows: tuple[int | None, int | None], *, punctuations: bool = True) -> None:
        self.work, self.output = Work(), Output()
        a, b = (PWState(window, self.work) for window in windows)
        self.states = a, b
        self._punctuations = punctuations

    @property
    def rows(self) -> int:
        """Rows in both states."""
        return self.states[0].rows + self.states[1].rows

    def take(self, element: Element) -> None:
        """The next element, in order of time."""
        own, other = self.states[element.input], self.states[1 - element.input]
        if isinstance(element, Row):
            self._invalidate(element, other)
            self._probe(element, own, other)
        elif self._punctuations:
            self._purge(element, own, other)

    def _invalidate(self, row: Row, other: PWState) -> None:
        for inode in other.invalidate(row.time):
            inode.flag = Flag.PROPAGATED
            self.output.ends.append(inode.key)

    def _probe(self, row: Row, own: PWState, other: PWState) -> None:
        inode = other.lookup(row.key)
        if inode is None:
            own.insert(row)
            return
        if inode.flag is Flag.PROPAGATED:
            self.work.dropped += 1
            return
        for found in other.rows_of(inode):
            self.output.rows.append((row, found) if row.input == 0 else (found, row))
        if inode.flag is Flag.NONE:
            own.insert(row)
        else:
            self.work.dropped += 1

    def _purge(self, end: End, own: PWState, other: PWState) -> None:
        inode = other.lookup(end.key)
        if inode is not None:
            other.purge(inode)
            if inode.flag is not Flag.NONE:
                mine = own.index.get(end.key)
                if mine is not None:
                    own.purge(mine)
                if inode.flag is Flag.PUNCTUATED:
                    self.output.ends.append(end.key)
                inode.flag = Flag.PROPAGATED  # its ring, if a T-Node still has it, says nothing any more
                return
        own.mark_punctuated(end.key)
