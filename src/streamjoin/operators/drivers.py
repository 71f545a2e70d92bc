"""Stream scheduling: which input gives the next rows of a batch, and how many.

MJoin section 4.1: random and alternating treat inputs alike; priority-driven scheduling reads the
unique or smaller input first, so that the other's rows find their partner and need not be stored.
Section 5.4: with clustered arrival, a cluster is followed to its end.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streamjoin.errors import InvalidJoin
from streamjoin.operators.strategies import Queue


def check_quota(quota: Any) -> None:
    """A quota is a number of rows, or None for all that are there."""
    if quota is not None and (not isinstance(quota, int) or isinstance(quota, bool) or quota < 1):
        raise InvalidJoin(f"a quota of {quota!r} rows would never finish; give 1 or more")


def _rows(queue: Queue, quota: int | None) -> int:
    return queue.rows_left if quota is None else quota


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

    def choose(self, queues: Sequence[Queue], previous: int | None) -> tuple[int, int]:
        standing = [(queue.input, queue.rows_left) for queue in queues]
        chosen = random.Random(f"{self.seed} {standing}").choice(list(queues))
        return chosen.input, _rows(chosen, self.quota)


@dataclass(frozen=True, slots=True)
class Priority:
    """Unique inputs first, then the smaller; after its `quota` of rows it is the next one's turn."""

    quota: int | None = None
    name: str = "priority"

    def __post_init__(self) -> None:
        check_quota(self.quota)

    def choose(self, queues: Sequence[Queue], previous: int | None) -> tuple[int, int]:
        ranked = sorted(queues, key=lambda queue: (not queue.unique, queue.live_rows, queue.input))
        inputs = [queue.input for queue in ranked]
        turn = inputs.index(previous) + 1 if previous in inputs else 0
        chosen = ranked[turn % len(ranked)]
        return chosen.input, _rows(chosen, self.quota)


@dataclass(frozen=True, slots=True)
class FollowClusters:
    """As `Priority`, but a cluster that was begun is read to its end before another input's turn."""

    quota: int | None = None
    name: str = "follow_clusters"

    def __post_init__(self) -> None:
        check_quota(self.quota)

    def choose(self, queues: Sequence[Queue], previous: int | None) -> tuple[int, int]:
        for queue in queues:
            if queue.input == previous and queue.cluster_left:
                return queue.input, queue.cluster_left
        return Priority(self.quota).choose(queues, previous)
