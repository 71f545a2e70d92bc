"""Waiting pool: rows of an input that were retrieved and wait for more urgent ones (MJoin section 5.1).

Value-oriented scheduling joins rows first whose key another input has closed, and puts the others of the
turn here, with the punctuations behind them. They last beyond the turn, as if they still stood in the input's
queue: the next turn of the input takes out those that have become urgent, and all of them once nothing is
urgent any more (the paper's switch back to sequential scheduling); what is left is joined when the queues
are empty, so that at the end of a batch nothing waits. Worked case: key 7 is closed on the other input, and a
turn brings rows of 7, 8, 7 and the punctuation of 7: 7 is joined, closed and propagated, 8 waits.

Invariant: a punctuation leaves the pool after all rows that came before it. One of a single key may overtake
rows of other keys, a range or pattern none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamjoin.columnar.batch import Batch, concat
from streamjoin.state.closed_keys import KeyPatterns


@dataclass(frozen=True, slots=True)
class Retrieved:
    """Rows of one input and the punctuations behind them, in the order in which they came."""

    rows: Batch
    keys: Batch
    patterns: tuple[KeyPatterns, ...] = ()

    def __bool__(self) -> bool:
        return bool(len(self.rows) or len(self.keys) or self.patterns)

    def and_then(self, later: Retrieved) -> Retrieved:
        """These, then later ones of the same input."""
        if not self or not later:
            return self or later
        rows = concat(self.rows.layout, [self.rows, later.rows])
        keys = concat(self.keys.layout, [self.keys, later.keys])
        return Retrieved(rows, keys, (*self.patterns, *later.patterns))


class WaitingPools:
    """One pool for each input, in the order in which their first rows began to wait."""

    def __init__(self) -> None:
        self._pools: dict[int, Retrieved] = {}

    def with_waiting(self, i: int, new: Retrieved) -> Retrieved:
        """What waits of input i and what was just retrieved; nothing waits any more."""
        waiting = self._pools.pop(i, None)
        return new if waiting is None else waiting.and_then(new)

    def wait(self, i: int, rest: Retrieved) -> None:
        """These are joined later."""
        if rest:
            self._pools[i] = rest

    def inputs(self) -> Sequence[int]:
        """The inputs with a pool that is not empty."""
        return list(self._pools)
