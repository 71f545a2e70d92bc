"""Decisions the operator leaves open, each a small object: they change when work is done and in
which order, never what is computed.

| seam   | decides                                     | first implementation |
| ------ | ------------------------------------------- | -------------------- |
| driver | which input gives the next rows, how many   | RoundRobin           |
| order  | which of an input's rows come first         | Sequential           |
| purge  | when promises are carried out on the state  | PurgeImmediately     |
| probe  | in which order a row visits the other inputs | FewestRowsFirst     |
| spill  | what leaves memory when it is short         | KeepInMemory         |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from streamjoin.batch import Batch
from streamjoin.errors import InvalidJoin


class Queue(Protocol):
    """What a driver may know of an input's unprocessed rows in this batch."""

    @property
    def input(self) -> int: ...
    @property
    def rows_left(self) -> int: ...


class Driver(Protocol):
    """Chooses the next input among those with something left, and how many rows it may give."""

    @property
    def name(self) -> str: ...
    def choose(self, queues: Sequence[Queue], previous: int | None) -> tuple[int, int]: ...


class TupleOrder(Protocol):
    """Arranges an input's rows before they are processed."""

    @property
    def name(self) -> str: ...
    def arrange(self, rows: Batch) -> Batch: ...


class Purge(Protocol):
    """Says whether promises that wait to be carried out are carried out now."""

    @property
    def name(self) -> str: ...
    def due(self, waiting_keys: int, *, batch_ends: bool) -> bool: ...


class ProbeSequence(Protocol):
    """The order in which a driver's rows visit the other inputs, given their live rows."""

    @property
    def name(self) -> str: ...
    def sequence(self, others: Sequence[int], live_rows: Sequence[int]) -> list[int]: ...


class Spill(Protocol):
    """Moves state out of memory when it is short; returns the bytes moved."""

    @property
    def name(self) -> str: ...
    def relieve(self, held_bytes: int) -> int: ...


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """Inputs in turn, as declared; `quota` rows each time, or all that are there."""

    quota: int | None = None
    name: str = "round_robin"

    def __post_init__(self) -> None:
        if self.quota is not None and self.quota < 1:
            raise InvalidJoin(f"a quota of {self.quota} rows would never finish; give 1 or more")

    def choose(self, queues: Sequence[Queue], previous: int | None) -> tuple[int, int]:
        after = [queue for queue in queues if previous is not None and queue.input > previous]
        chosen = (after or list(queues))[0]
        return chosen.input, chosen.rows_left if self.quota is None else self.quota


@dataclass(frozen=True, slots=True)
class Sequential:
    """Rows as they came."""

    name: str = "sequential"

    def arrange(self, rows: Batch) -> Batch:
        return rows


@dataclass(frozen=True, slots=True)
class PurgeImmediately:
    """Each promise is carried out as soon as it acts: least state, earliest announcements."""

    name: str = "immediate"

    def due(self, waiting_keys: int, *, batch_ends: bool) -> bool:
        return waiting_keys > 0


@dataclass(frozen=True, slots=True)
class FewestRowsFirst:
    """The input with the least state first: it most likely ends the search."""

    name: str = "fewest_rows"

    def sequence(self, others: Sequence[int], live_rows: Sequence[int]) -> list[int]:
        return sorted(others, key=lambda other: live_rows[other])


@dataclass(frozen=True, slots=True)
class KeepInMemory:
    """All state stays in memory."""

    name: str = "none"

    def relieve(self, held_bytes: int) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class Strategies:
    """One choice for each seam."""

    driver: Driver = field(default_factory=RoundRobin)
    order: TupleOrder = field(default_factory=Sequential)
    purge: Purge = field(default_factory=PurgeImmediately)
    probe: ProbeSequence = field(default_factory=FewestRowsFirst)
    spill: Spill = field(default_factory=KeepInMemory)
