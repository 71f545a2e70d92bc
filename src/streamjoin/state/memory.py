"""Which runs of a join are in memory: at most `limit_bytes` of them, whatever the state holds.

The rows of a run never change, so once saved they can leave memory at any time and come back as
they were; its flags and its extent (rows, bytes, bounds of hash and time) always stay. What is new
is resident until it must make room. What comes back stays where there is room; else it is a
visitor: the first to go when the next one comes. So a pass over all runs reads each once and the
residents stay.

Worked number: a limit of 100, runs of 60 and 30 bytes. A new one of 40 makes 130: the largest, 60,
is saved and leaves. To probe it later it visits; the visit ends with the next one.

Cost: a look at the sizes of all runs in memory for each run that comes in. Without a limit, nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from streamjoin.columnar.batch import Batch, Layout
from streamjoin.errors import InvariantBroken

if TYPE_CHECKING:
    from streamjoin.state.run import Run


class RunStore(Protocol):
    """Where runs are kept outside of memory."""

    def save(self, run: Run) -> str:
        """Keep the rows of a run; returns under which name."""

    def load(self, name: str, layout: Layout) -> Batch:
        """The rows kept under a name."""


def largest_first(runs: Sequence[Run]) -> list[Run]:
    """XJoin's choice: the fewest runs leave."""
    return sorted(runs, key=lambda run: -run.resident_bytes)


def oldest_first(runs: Sequence[Run]) -> list[Run]:
    """What has waited longest leaves: right where partners come soon or never."""
    return sorted(runs, key=lambda run: run.born)


FLUSH: dict[str, Callable[[Sequence[Run]], list[Run]]] = {"largest": largest_first, "oldest": oldest_first}


@dataclass
class MemoryManager:
    """The runs in memory, the limit they share, and where the others are kept."""

    limit_bytes: int | None = None
    flush: str = "largest"
    run_store: RunStore | None = None
    turn: int = 0  # noted on runs that leave, where joining with them may wait
    _inside: weakref.WeakSet[Run] = field(default_factory=weakref.WeakSet)
    _visitors: weakref.WeakSet[Run] = field(default_factory=weakref.WeakSet)

    @property
    def resident_bytes(self) -> int:
        """Bytes of the runs in memory; only counted where there is a limit."""
        return sum(run.resident_bytes for run in list(self._inside))

    def admit(self, run: Run) -> None:
        """A new run, in memory."""
        run.home = self
        if self.limit_bytes is not None:
            self._inside.add(run)
            self._make_room(besides=run)

    def fetch(self, run: Run) -> Batch:
        """The rows of a run that is not in memory."""
        if self.run_store is None or run.stored_as is None:
            raise InvariantBroken(f"the rows of run {run.name} are nowhere; please report this")
        run.held = batch = self.run_store.load(run.stored_as, run.layout)
        if self.limit_bytes is not None:
            for visitor in list(self._visitors):
                self._let_go(visitor)
            if self.resident_bytes + run.nbytes > self.limit_bytes:
                self._visitors.add(run)
            self._inside.add(run)
        return batch

    def shrink(self, spare_bytes: int = 0) -> None:
        """Let go of visitors, and of residents until `spare_bytes` of the limit are free."""
        for visitor in list(self._visitors):
            self._let_go(visitor)
        self._make_room(spare_bytes=spare_bytes)

    def _make_room(self, *, besides: Run | None = None, spare_bytes: int = 0) -> None:
        if self.limit_bytes is None:
            return
        excess = self.resident_bytes + spare_bytes - self.limit_bytes
        if excess <= 0:
            return
        others = [run for run in list(self._inside) if run is not besides]
        for run in [*self._visitors, *FLUSH[self.flush](others)]:
            if excess <= 0:
                return
            excess -= self._let_go(run)

    def _let_go(self, run: Run) -> int:
        """The rows of a run leave memory, saved before if they never were; returns their bytes."""
        self._visitors.discard(run)
        if run not in self._inside:
            return 0
        if run.stored_as is None:
            if self.run_store is None:
                raise InvariantBroken("a run must leave memory and nothing keeps it; please report this")
            run.stored_as = self.run_store.save(run)
        self._inside.discard(run)
        if run.arrived is not None and run.left is None:
            run.left = self.turn
        freed = run.resident_bytes
        run.leave_memory()
        return freed
