"""Decisions the operator leaves open, each a small object: they change when work is done and in
which order, never what is computed.

| seam   | decides                                      | built in            |
| ------ | -------------------------------------------- | ------------------- |
| driver | which input gives the next rows, how many    | `drivers`           |
| order  | which rows of an input's turn come first     | `orders`            |
| purge  | when promises are carried out on the state   | `purging`           |
| probe  | in which order a row visits the other inputs | `sequences`         |
| spill  | how much is in memory, and what leaves first | `spilling`          |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from streamjoin.columnar.batch import Mask
from streamjoin.join.statistics.selectivity import Selectivities


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
    @property
    def next_time_us(self) -> int | None: ...
    def rows_until(self, time_us: int | None) -> int: ...
    @property
    def results_per_row(self) -> float | None: ...
    @property
    def expected_output(self) -> float | None: ...
    def expected_lookups(self, rows: float, added: Mapping[int, float]) -> float: ...


class Driver(Protocol):
    """Chooses the next input among those with something left, and how many rows it may give.

    One with a method `for_batch(queues)` is asked at the beginning of each batch for the driver of that
    batch. One with `needs_selectivities` is reported while none are known.
    """

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
    """The order in which a driver's rows visit the other inputs, given the live rows of all inputs and
    what was measured.
    """

    @property
    def name(self) -> str: ...
    def sequence(
        self, driver: int, others: Sequence[int], live_rows: Sequence[int], measured: Selectivities
    ) -> list[int]: ...


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
class Strategies:
    """One choice for each seam."""

    driver: Driver
    order: TupleOrder
    purge: Purge
    probe: ProbeSequence
    spill: Spill
