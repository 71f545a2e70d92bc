"""Memory manager: keeps at most `limit_bytes` of a join's runs in memory and spills the others.

The rows of a run never change, so once stored they can be unloaded at any time and loaded again; its
flags and its metadata (rows, bytes, bounds of hash and time) always stay. A new run is in memory until
it must make room: then it is spilled. A spilled run that is needed is loaded. It stays where there is
room; else it is a transient load, and the next load unloads it. So a pass over all spilled runs reads
each once and spills nothing else.

Worked number: a limit of 100, runs of 60 and 30 bytes. A new one of 40 makes 130: the largest, 60,
is stored and spilled. To probe it later it is a transient load, until the next one.

Cost: the sizes of all runs in memory are summed for each run that is added or loaded. Without a limit,
nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from streamjoin.columnar.batch import Batch, Layout, Places
from streamjoin.errors import InvariantBroken

if TYPE_CHECKING:
    from streamjoin.state.run import Run


class RunStore(Protocol):
    """Where runs are stored outside of memory."""

    def save(self, run: Run) -> str:
        """Store the rows of a run; returns under which name."""

    def load(self, name: str, layout: Layout, places: Places | None = None) -> Batch:
        """The rows stored under a name, their payload from these places."""


def largest_first(runs: Sequence[Run]) -> list[Run]:
    """XJoin's choice: the fewest runs are spilled."""
    return sorted(runs, key=lambda run: -run.resident_bytes)


def oldest_first(runs: Sequence[Run]) -> list[Run]:
    """The oldest runs are spilled: right where partners come soon or never."""
    return sorted(runs, key=lambda run: run.born)


FLUSH: dict[str, Callable[[Sequence[Run]], list[Run]]] = {"largest": largest_first, "oldest": oldest_first}


@dataclass
class MemoryManager:
    """The runs in memory, the limit they share, and where the others are stored."""

    limit_bytes: int | None = None
    flush: str = "largest"
    run_store: RunStore | None = None
    turn: int = 0  # noted on runs that are spilled, where matches with them may be deferred
    _in_memory: weakref.WeakSet[Run] = field(default_factory=weakref.WeakSet)
    _transient: weakref.WeakSet[Run] = field(default_factory=weakref.WeakSet)

    @property
    def resident_bytes(self) -> int:
        """Bytes of the runs in memory; only counted where there is a limit."""
        return sum(run.resident_bytes for run in list(self._in_memory))

    def admit(self, run: Run) -> None:
        """A new run, in memory."""
        run.memory_manager = self
        if self.limit_bytes is not None:
            self._in_memory.add(run)
            self._make_room(besides=run)

    def fetch(self, run: Run) -> Batch:
        """The rows of a run that is not in memory."""
        if self.run_store is None or run.stored_as is None:
            raise InvariantBroken(f"run {run.name} is neither in memory nor stored; please report this")
        run.loaded = batch = self.run_store.load(run.stored_as, run.layout, run.places)
        if self.limit_bytes is not None:
            for run_ in list(self._transient):
                self._spill(run_)
            if self.resident_bytes + run.nbytes > self.limit_bytes:
                self._transient.add(run)
            self._in_memory.add(run)
        return batch

    def shrink(self, spare_bytes: int = 0) -> None:
        """Unload transient loads, and spill other runs until `spare_bytes` of the limit are free."""
        for run_ in list(self._transient):
            self._spill(run_)
        self._make_room(spare_bytes=spare_bytes)

    def _make_room(self, *, besides: Run | None = None, spare_bytes: int = 0) -> None:
        if self.limit_bytes is None:
            return
        excess = self.resident_bytes + spare_bytes - self.limit_bytes
        if excess <= 0:
            return
        others = [run for run in list(self._in_memory) if run is not besides]
        for run in [*self._transient, *FLUSH[self.flush](others)]:
            if excess <= 0:
                return
            excess -= self._spill(run)

    def _spill(self, run: Run) -> int:
        """Unload the rows of a run, stored before if they never were; returns their bytes."""
        self._transient.discard(run)
        if run not in self._in_memory:
            return 0
        if run.stored_as is None:
            if self.run_store is None:
                raise InvariantBroken("a run must be spilled and there is no run store; please report this")
            run.stored_as = self.run_store.save(run)
        self._in_memory.discard(run)
        if run.arrived is not None and run.spilled_at is None:
            run.spilled_at = self.turn
        freed = run.resident_bytes
        run.unload()
        return freed
