"""When promises are carried out on the state (MJoin section 5.2).

Immediate purging keeps the least state and announces finished keys earliest; batch purging waits
for one of its triggers: so many keys have been promised, the state is larger than it may be, or
the inputs have nothing left (the end of a batch). When an input ends, nothing waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamjoin.errors import InvalidJoin
from streamjoin.join.strategies.protocols import Waiting


@dataclass(frozen=True, slots=True)
class PurgeImmediately:
    """Each promise is carried out as soon as it acts."""

    name: str = "immediate"

    def due(self, waiting: Waiting) -> bool:
        return waiting.keys > 0


@dataclass(frozen=True, slots=True)
class PurgeEvery:
    """In batches: when `keys` have been promised, above `memory` bytes, or `when_idle`."""

    keys: int | None = None
    memory: int | None = None
    when_idle: bool = False
    name: str = "batch"

    def __post_init__(self) -> None:
        given: dict[str, Any] = {"keys": self.keys, "memory": self.memory}
        for what, value in given.items():
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise InvalidJoin(f"PurgeEvery({what}={value!r}); give a whole number of 1 or more")
        if self.keys is None and self.memory is None and not self.when_idle:
            raise InvalidJoin(
                "PurgeEvery() would never purge; give keys=, memory= or when_idle=True, or purge='none'"
            )

    def due(self, waiting: Waiting) -> bool:
        return (
            (self.keys is not None and waiting.keys >= self.keys)
            or (self.when_idle and waiting.idle)
            or (self.memory is not None and waiting.held_bytes() > self.memory)
        )


@dataclass(frozen=True, slots=True)
class NoPurge:
    """Promises let nothing go; rows that can match nothing more are still not stored."""

    name: str = "none"

    def due(self, waiting: Waiting) -> bool:
        return False
