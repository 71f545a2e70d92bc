"""Decisions the operator leaves open, each a small object: they change when work is done and in
which order, never what is computed.

| seam   | decides                                      | built in            |
| ------ | -------------------------------------------- | ------------------- |
| driver | which input gives the next rows, how many    | `drivers`           |
| order  | which rows of an input's turn come first     | `orders`            |
| purge  | when promises are carried out on the state   | `purging`           |
| probe  | in which order a row visits the other inputs | FewestRowsFirst     |
| spill  | how much is in memory, and what leaves first | `spilling`          |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from streamjoin.batch import Mask


class Queue(Protocol):
    """What a driver may know of an input and its unprocessed rows in this batch."""

    @property
    def input(self) -> int: ...
    @property
    def rows_left(self) -> int: ...
    @property
    def unique(self) -> bool: ...
    @property
    def live_rows(self) -> int: ...
    @property
    def cluster_left(self) -> int: ...


class Driver(Protocol):
    """Chooses the next input among those with something left, and how many rows it may give."""

    @property
    def name(self) -> str: ...
    def choose(self, queues: Sequence[Queue], previous: int | None) -> tuple[int, int]: ...


class TupleOrder(Protocol):
    """Which rows of a turn come first, given which keys other inputs wait for; None: as they came."""

    @property
    def name(self) -> str: ...
    def urgent(self, awaited: Callable[[], Mask]) -> Mask | None: ...


@dataclass(frozen=True, slots=True)
class Waiting:
    """Promises not carried out yet: of how many keys, what the state holds, and whether rows are left."""

    keys: int
    idle: bool
    held_bytes: Callable[[], int]


class Purge(Protocol):
    """Says whether promises that wait to be carried out are carried out now."""

    @property
    def name(self) -> str: ...
    def due(self, waiting: Waiting) -> bool: ...


class ProbeSequence(Protocol):
    """The order in which a driver's rows visit the other inputs, given their live rows."""

    @property
    def name(self) -> str: ...
    def sequence(self, others: Sequence[int], live_rows: Sequence[int]) -> list[int]: ...


class Spill(Protocol):
    """How much of the state may be in memory, which runs leave first, and whether joining them may wait."""

    @property
    def name(self) -> str: ...
    @property
    def limit_bytes(self) -> int | None: ...
    @property
    def flush(self) -> str: ...
    @property
    def defer(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class FewestRowsFirst:
    """The input with the least state first: it most likely ends the search."""

    name: str = "fewest_rows"

    def sequence(self, others: Sequence[int], live_rows: Sequence[int]) -> list[int]:
        return sorted(others, key=lambda other: live_rows[other])


@dataclass(frozen=True, slots=True)
class Strategies:
    """One choice for each seam."""

    driver: Driver
    order: TupleOrder
    purge: Purge
    probe: ProbeSequence
    spill: Spill
