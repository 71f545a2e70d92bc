"""What a join gives, holds and counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from streamjoin.columnar.assemble import Component
from streamjoin.columnar.batch import Batch
from streamjoin.join.admission import Violation
from streamjoin.state.closed_keys import KeyPatterns


@dataclass(slots=True)
class Counters:
    """What happened on one input, in rows unless the name says otherwise."""

    rows: int = 0
    null_keys: int = 0
    stored: int = 0
    dropped: int = 0
    purged: int = 0
    invalidated: int = 0
    expired: int = 0  # let go of by the ttl: lost
    punctuations: int = 0
    null_time: int = 0
    late: int = 0
    duplicate_key: int = 0
    after_punctuation: int = 0
    probes: int = 0  # lookups: of each row in the first other input, of each partial result in the next
    intermediate: int = 0  # combinations of its rows with some, not all others
    padded: int = 0
    reordered: int = 0  # processed after rows of their batch that another input waits for


@dataclass(frozen=True, slots=True)
class Results:
    """Joined rows in the join's output columns, and the tuples that they are made of."""

    rows: pa.RecordBatch
    components: Sequence[Component] = ()


@dataclass(frozen=True, slots=True)
class FinishedKeys:
    """Keys for which no result follows any more."""

    keys: Batch


@dataclass(frozen=True, slots=True)
class FinishedPatterns:
    """Ranges, patterns or all keys for which no result follows; only for a join that feeds another."""

    patterns: tuple[KeyPatterns, ...]


@dataclass(frozen=True, slots=True)
class Forwarded:
    """Values of output columns with which no result follows, row by row; null is any value."""

    punctuations: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class OutputWatermark:
    """No result of a later batch has a time before this; only for a join that stamps its results."""

    time_us: int


@dataclass(frozen=True, slots=True)
class StateSize:
    """Live tuples, bytes of all runs, promises remembered, keys whose promises wait, bytes in memory,
    and the partial rows of groups that are not final yet.
    """

    rows: int
    nbytes: int
    closed_keys: int
    deferred: int
    resident_bytes: int
    groups: int = 0


Output: TypeAlias = Results | FinishedKeys | FinishedPatterns | Forwarded | OutputWatermark | Violation
