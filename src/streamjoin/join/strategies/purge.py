"""Purge strategy: when punctuations are applied to the state (MJoin section 5.2).

Immediate purging keeps the least state and propagates finished keys earliest; batch purging waits
for one of its triggers: so many keys have been closed, the state is larger than it may be, or
the inputs have nothing left (the end of a batch). When an input ends, nothing waits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from streamjoin.declare.checks import check_flag, check_number
from streamjoin.errors import InvalidJoin


@dataclass(frozen=True, slots=True)
class PendingKeys:
    """Keys that are closed and not purged yet: how many, whether no rows are left, the size of the state."""

    keys: int
    idle: bool
    state_bytes: Callable[[], int]


class Purge(Protocol):
    """Says whether pending keys are purged now."""

    @property
    def name(self) -> str: ...
    def due(self, pending: PendingKeys) -> bool: ...


@dataclass(frozen=True, slots=True)
class PurgeImmediately:
    """Each punctuation is applied as soon as it acts."""

    name: str = "immediate"

    def due(self, pending: PendingKeys) -> bool:
        return pending.keys > 0


@dataclass(frozen=True, slots=True)
class PurgeEvery:
    """In batches: when `keys` have been closed, above `memory` bytes, or `when_idle`."""

    keys: int | None = None
    memory: int | None = None
    when_idle: bool = False
    name: str = "batch"

    def __post_init__(self) -> None:
        given: dict[str, Any] = {"keys": self.keys, "memory": self.memory}
        for what, value in given.items():
            if value is not None:
                check_number(value, f"PurgeEvery: {what}")
        check_flag(self.when_idle, "PurgeEvery: when_idle")
        if self.keys is None and self.memory is None and not self.when_idle:
            raise InvalidJoin(
                "PurgeEvery() would never purge; give keys=, memory= or when_idle=True, or purge='none'"
            )

    def due(self, pending: PendingKeys) -> bool:
        return (
            (self.keys is not None and pending.keys >= self.keys)
            or (self.when_idle and pending.idle)
            or (self.memory is not None and pending.state_bytes() > self.memory)
        )


@dataclass(frozen=True, slots=True)
class NoPurge:
    """Punctuations purge nothing; rows that can match nothing more are still not stored."""

    name: str = "none"

    def due(self, pending: PendingKeys) -> bool:
        return False
