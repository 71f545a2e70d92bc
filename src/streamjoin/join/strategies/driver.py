"""Driver strategy (stream scheduling): which input gives the next rows of a batch, and how many.

MJoin section 4.1: random and alternating treat inputs alike; priority-driven scheduling reads the
unique or smaller input first, so that the other's rows find their partner and need not be stored.
Section 5.4: with clustered arrival, a cluster is followed to its end.

The paper on the adaptive driver, section 3.2: a buffer (an input's rows of this batch) is worked through
before the next, which one first by what its rows are expected to give; the adaptive driver by what the
whole batch is expected to cost. Worked number: buffers of 100 and 10 rows, 1,000 tuples stored of each input,
one of 1,000 pairs matches: equation 1 expects 100 and 10 results, so `initial_output` takes the first.
What a policy needs and nobody has measured yet is not guessed: it is each input's turn as declared. With
`selectivities=` (`declared`) it goes by those from the start, and not by what is measured.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any, Protocol

from streamjoin.declare.checks import is_whole
from streamjoin.errors import InvalidJoin
from streamjoin.join.strategies.declared import Declared, check_complete, check_declared


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

    One with a method `for_inputs(names)` is asked for the driver of a join with inputs of these names. One
    with a method `for_batch(queues)` is asked at the beginning of each batch for the driver of that
    batch. One with `needs_selectivities` is reported while none are known. One with `by_time` finds the rows
    of each input in the order of their event times, unless a sequence gives another.
    """

    @property
    def name(self) -> str: ...
    def choose(self, queues: Sequence[Queue], previous: int | None) -> tuple[int, int]: ...


Quota = int | Mapping[str, int | None] | None


def check_quota(quota: Any) -> None:
    """A quota is a number of rows, or None for all that are there; of each input where it is a mapping."""
    if isinstance(quota, Mapping):
        for each in quota.values():
            check_quota(each)
    elif quota is not None and not is_whole(quota):
        raise InvalidJoin(f"a quota of {quota!r} rows would never finish; give 1 or more")


def _rows(queue: Queue, quota: int | None) -> int:
    return queue.rows_left if quota is None else quota


def _whole_buffers(
    queues: Sequence[Queue], previous: int | None, quota: int | None, rank: Callable[[Queue], float | None]
) -> tuple[int, int]:
    """The buffer that was begun is worked through, then the one of the lowest rank; `quota` rows at a time.

    Where the rank of one is not known, the first as declared.
    """
    chosen = next((queue for queue in queues if queue.input == previous and queue.rows_left), None)
    if chosen is None:
        ranks = [rank(queue) for queue in queues]
        known = [each for each in ranks if each is not None]
        chosen = queues[ranks.index(min(known)) if len(known) == len(ranks) else 0]
    return chosen.input, _rows(chosen, quota)


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """Inputs in turn, as declared; `quota` rows each time, or all that are there."""

    quota: int | None = None
    name: str = "round_robin"

    def __post_init__(self) -> None:
        check_quota(self.quota)

    def choose(self, queues: Sequence[Queue], previous: int | None) -> tuple[int, int]:
        after = [queue for queue in queues if previous is not None and queue.input > previous]
        chosen = (after or list(queues))[0]
        return chosen.input, _rows(chosen, self.quota)


@dataclass(frozen=True, slots=True)
class RandomInput:
    """Any input that has something left; the same again for the same seed and the same queues."""

    quota: int | None = 1000
    seed: int = 0
    name: str = "random"

    def __post_init__(self) -> None:
        check_quota(self.quota)
        if not is_whole(self.seed, least=None):
            raise InvalidJoin(f"RandomInput(seed={self.seed!r}); give a whole number")

    def choose(self, queues: Sequence[Queue], previous: int | None) -> tuple[int, int]:
        standing = [(queue.input, queue.rows_left) for queue in queues]
        chosen = random.Random(f"{self.seed} {standing}").choice(list(queues))
        return chosen.input, _rows(chosen, self.quota)


@dataclass(frozen=True, slots=True)
class Priority:
    """Unique inputs first, then the smaller; after its `quota` of rows it is the next one's turn.

    A mapping gives each input its own quota by its name; one that is not named gives all its rows.

    >>> Priority(quota={"news": 100, "access": 1000}).quota["access"]
    1000
    """

    quota: Quota = None
    name: str = "priority"
    inputs: tuple[str, ...] = field(
        default=(), compare=False, repr=False
    )  # their names, known once the join is planned

    def __post_init__(self) -> None:
        check_quota(self.quota)

    def for_inputs(self, names: Sequence[str]) -> Priority:
        """The same for inputs of these names."""
        return replace(self, inputs=_checked(self.quota, names))

    def choose(self, queues: Sequence[Queue], previous: int | None) -> tuple[int, int]:
        ranked = sorted(queues, key=lambda queue: (not queue.unique, queue.live_rows, queue.input))
        inputs = [queue.input for queue in ranked]
        turn = inputs.index(previous) + 1 if previous in inputs else 0
        chosen = ranked[turn % len(ranked)]
        own = self.quota.get(self.inputs[chosen.input]) if isinstance(self.quota, Mapping) else self.quota
        return chosen.input, _rows(chosen, own)


def _checked(quota: Quota, names: Sequence[str]) -> tuple[str, ...]:
    """The names of the inputs; a quota for others is a mistake."""
    unknown = [name for name in quota if name not in names] if isinstance(quota, Mapping) else []
    if unknown:
        raise InvalidJoin(
            f"a quota for {', '.join(map(repr, unknown))}, which is no input of this join; "
            f"give quotas for {', '.join(names)}"
        )
    return tuple(names)


@dataclass(frozen=True, slots=True)
class FollowClusters:
    """As `Priority`, but a cluster that was begun is read to its end before another input's turn."""

    quota: Quota = None
    name: str = "follow_clusters"
    inputs: tuple[str, ...] = field(default=(), compare=False, repr=False)  # as of `Priority`

    def __post_init__(self) -> None:
        check_quota(self.quota)

    def for_inputs(self, names: Sequence[str]) -> FollowClusters:
        """The same for inputs of these names."""
        return replace(self, inputs=_checked(self.quota, names))

    def choose(self, queues: Sequence[Queue], previous: int | None) -> tuple[int, int]:
        for queue in queues:
            if queue.input == previous and queue.cluster_left:
                return queue.input, queue.cluster_left
        return Priority(self.quota, inputs=self.inputs).choose(queues, previous)


@dataclass(frozen=True, slots=True)
class Timestamp:
    """The input with the oldest next row; it goes on to the next row of another, `quota` rows at least.

    With a quota of 1, rows are worked through in the order of their event times. `turns` bounds the cost of
    a large batch: its rows are handed out in about so many turns at most. Where no sequence says in which
    order the rows of an input came, they are taken in the order of their event times too.
    """

    quota: int = 1000
    name: str = "timestamp"
    turns: int | None = None
    by_time: bool = True

    def __post_init__(self) -> None:
        if self.quota is None:
            raise InvalidJoin("sj.Timestamp(quota=None); give the number of rows it hands out at least")
        check_quota(self.quota)
        check_quota(self.turns)

    def for_batch(self, queues: Sequence[Queue]) -> Timestamp:
        """With the quota that keeps a batch within its turns."""
        if self.turns is None:
            return self
        return replace(self, quota=max(self.quota, sum(queue.rows_left for queue in queues) // self.turns))

    def choose(self, queues: Sequence[Queue], previous: int | None) -> tuple[int, int]:
        oldest, *others = sorted(queues, key=lambda queue: (queue.next_time_us or 0, queue.input))
        return oldest.input, max(self.quota, oldest.rows_until(others[0].next_time_us) if others else 0)


@dataclass(frozen=True, slots=True)
class ConsumptionRate:
    """The input first whose rows give the fewest results: its buffer is freed soonest."""

    quota: int | None = None
    name: str = "consumption_rate"
    needs_selectivities: bool = True
    selectivities: Declared | None = None
    inputs: tuple[str, ...] = field(
        default=(), compare=False, repr=False
    )  # their names, known once the join is planned

    def __post_init__(self) -> None:
        check_quota(self.quota)
        check_declared(self.selectivities)

    def for_inputs(self, names: Sequence[str]) -> ConsumptionRate:
        """The same for inputs of these names."""
        check_complete(self.selectivities, names, per_row=True)
        return replace(self, inputs=tuple(names))

    def choose(self, queues: Sequence[Queue], previous: int | None) -> tuple[int, int]:
        return _whole_buffers(queues, previous, self.quota, lambda queue: queue.results_per_row)


@dataclass(frozen=True, slots=True)
class InitialOutput:
    """The input first whose buffer is expected to give the most results now (equation 1)."""

    quota: int | None = None
    name: str = "initial_output"
    needs_selectivities: bool = True
    selectivities: Declared | None = None
    inputs: tuple[str, ...] = field(
        default=(), compare=False, repr=False
    )  # their names, known once the join is planned

    def __post_init__(self) -> None:
        check_quota(self.quota)
        check_declared(self.selectivities)

    def for_inputs(self, names: Sequence[str]) -> InitialOutput:
        """The same for inputs of these names."""
        check_complete(self.selectivities, names, per_row=False)
        return replace(self, inputs=tuple(names))

    def choose(self, queues: Sequence[Queue], previous: int | None) -> tuple[int, int]:
        return _whole_buffers(queues, previous, self.quota, _least_output)


def _least_output(queue: Queue) -> float | None:
    return None if queue.expected_output is None else -queue.expected_output


@dataclass(frozen=True, slots=True)
class OutputRate:
    """The input first each row of which is expected to give the most results now."""

    quota: int | None = None
    name: str = "output_rate"
    needs_selectivities: bool = True
    selectivities: Declared | None = None
    inputs: tuple[str, ...] = field(
        default=(), compare=False, repr=False
    )  # their names, known once the join is planned

    def __post_init__(self) -> None:
        check_quota(self.quota)
        check_declared(self.selectivities)

    def for_inputs(self, names: Sequence[str]) -> OutputRate:
        """The same for inputs of these names."""
        check_complete(self.selectivities, names, per_row=False)
        return replace(self, inputs=tuple(names))

    def choose(self, queues: Sequence[Queue], previous: int | None) -> tuple[int, int]:
        return _whole_buffers(queues, previous, self.quota, _lowest_rate)


def _lowest_rate(queue: Queue) -> float | None:
    output = _least_output(queue)
    return None if output is None else output / max(queue.rows_left, 1)


@dataclass(frozen=True, slots=True)
class InOrder:
    """Whole buffers in a given order, `quota` rows at a time."""

    order: tuple[int, ...]
    quota: int | None = None
    name: str = "in_order"

    def choose(self, queues: Sequence[Queue], previous: int | None) -> tuple[int, int]:
        return _whole_buffers(queues, previous, self.quota, lambda queue: self.order.index(queue.input))


_MOST_ORDERED = 4  # inputs whose every order is looked at: 24 orders


@dataclass(frozen=True, slots=True)
class Adaptive:
    """For each batch the order of whole buffers that is expected to need the fewest lookups: of all orders,
    or with more than four inputs of those that the other policies take.

    Taking turns row by row is never expected to need fewer. Of each two inputs, some rows of the one then
    come after some of the other and some before; the best order takes the cheaper way for all of them.
    """

    quota: int | None = None
    name: str = "adaptive"
    needs_selectivities: bool = True
    selectivities: Declared | None = None
    inputs: tuple[str, ...] = field(
        default=(), compare=False, repr=False
    )  # their names, known once the join is planned

    def __post_init__(self) -> None:
        check_quota(self.quota)
        check_declared(self.selectivities)

    def for_inputs(self, names: Sequence[str]) -> Adaptive:
        """The same for inputs of these names."""
        check_complete(self.selectivities, names, per_row=False)
        return replace(self, inputs=tuple(names))

    def choose(self, queues: Sequence[Queue], previous: int | None) -> tuple[int, int]:
        return self.for_batch(queues).choose(queues, previous)

    def for_batch(self, queues: Sequence[Queue]) -> Driver:
        """What is done with this batch."""
        if any(queue.expected_output is None for queue in queues):
            return RoundRobin(self.quota)
        costs = _Costs(queues)
        orders = [tuple(queue.input for queue in each) for each in _orders(queues)]
        return InOrder(min(orders, key=costs.of_order), self.quota)


def _orders(queues: Sequence[Queue]) -> Iterable[Sequence[Queue]]:
    if len(queues) <= _MOST_ORDERED:
        return permutations(queues)
    ranks: tuple[Callable[[Queue], float | None], ...] = (
        lambda queue: queue.input,
        lambda queue: queue.results_per_row,
        _least_output,
        _lowest_rate,
    )
    return [sorted(queues, key=lambda queue: rank(queue) or 0.0) for rank in ranks]


class _Costs:
    """Lookups that a batch is expected to need, by the order in which its buffers are worked through."""

    def __init__(self, queues: Sequence[Queue]) -> None:
        self._queues = {queue.input: queue for queue in queues}
        self._known: dict[tuple[int, frozenset[int]], float] = {}

    def of_order(self, order: Sequence[int]) -> float:
        return sum(self._of(driver, frozenset(order[:i])) for i, driver in enumerate(order))

    def _of(self, driver: int, done: frozenset[int]) -> float:
        """Of one buffer, when some others are worked through already."""
        if (driver, done) not in self._known:
            added = {other: float(self._queues[other].rows_left) for other in done}
            queue = self._queues[driver]
            self._known[driver, done] = queue.expected_lookups(queue.rows_left, added)
        return self._known[driver, done]
