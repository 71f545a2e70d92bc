"""Spill strategy: how much of a join's state may be in memory, and when the rest is joined (XJoin's stages).

    stage         joins                                          when
    in memory     arriving rows with the runs in memory          as they arrive
    memory-disk   rows that came since with spilled runs         the inputs are blocked
    cleanup       whatever matches are still deferred            the inputs have ended

With `defer` the second and third wait as in the paper: results come as soon as memory alone can
give them, the others when nothing else is to be done. Without it all stages of a batch finish
inside it: arriving rows probe the runs in memory first, then each spilled one in turn.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol

from streamjoin.errors import InvalidJoin
from streamjoin.state.memory import FLUSH

SMALLEST_SHARE = 1 << 20  # bytes of a bucket: below, runs are so small that their number costs more
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_SIZE = re.compile(r"\s*(\d{1,18}(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", re.IGNORECASE)


class Spill(Protocol):
    """How much of the state may be in memory, which runs are spilled first, and whether
    matches with them are deferred.
    """

    @property
    def name(self) -> str: ...
    @property
    def limit_bytes(self) -> int | None: ...
    @property
    def flush(self) -> str: ...
    @property
    def defer(self) -> bool: ...


def size_bytes(given: Any, *, what: str = "memory") -> int:
    """A size in bytes: a whole number, or text with a unit; 1 MB is 1,048,576 bytes, as in Spark.

    >>> size_bytes("1.5 MB")
    1572864
    """
    if isinstance(given, int) and not isinstance(given, bool) and given > 0:
        return given
    found = _SIZE.fullmatch(given) if isinstance(given, str) else None
    size = 0 if found is None else int(float(found[1]) * (1 << _UNITS[found[2].lower()]))
    if size <= 0:
        raise InvalidJoin(f'{what}={given!r}; give a size such as "256 MB" or a number of bytes')
    return size


@dataclass(frozen=True, slots=True)
class KeepInMemory:
    """All state stays in memory."""

    name: str = "none"
    limit_bytes: int | None = None
    flush: str = "largest"
    defer: bool = False


@dataclass(frozen=True, slots=True, init=False)
class SpillAbove:
    """At most `limit` of the state in memory, divided over the buckets.

    `flush`: which runs are spilled first, the "largest" or the "oldest". `defer`: whether matches with
    spilled rows may wait until the inputs are blocked (in local runs of inner joins).
    """

    limit_bytes: int
    flush: str
    defer: bool
    name: str

    def __init__(self, limit: Any, *, flush: str = "largest", defer: bool = False) -> None:
        if flush not in tuple(FLUSH):
            raise InvalidJoin(f"SpillAbove(flush={flush!r}); give one of {', '.join(FLUSH)}")
        if not isinstance(defer, bool):
            raise InvalidJoin(f"SpillAbove(defer={defer!r}); give True or False")
        object.__setattr__(self, "limit_bytes", size_bytes(limit))
        object.__setattr__(self, "flush", flush)
        object.__setattr__(self, "defer", defer)
        object.__setattr__(self, "name", "spill")


def check_share(limit_bytes: int | None, buckets: int) -> None:
    """Refuse a limit that leaves a bucket too little to work with."""
    if limit_bytes is not None and limit_bytes < SMALLEST_SHARE * buckets:
        raise InvalidJoin(
            f"memory={limit_bytes:,} bytes is below the minimum of {SMALLEST_SHARE * buckets:,}: "
            f"{SMALLEST_SHARE:,} for each of {buckets} bucket{'s'[: buckets > 1]}; give more memory or fewer "
            "buckets"
        )
