"""The elements of a join's output stream, and the size of its state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from streamjoin.columnar.assemble import Component
from streamjoin.columnar.batch import Batch
from streamjoin.join.admission import Violation
from streamjoin.state.closed_keys import KeyPatterns


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
    """Ranges, patterns or all keys for which no result follows in a later batch; each bucket says so."""

    patterns: tuple[KeyPatterns, ...]


@dataclass(frozen=True, slots=True)
class Forwarded:
    """Values of output columns with which no result follows, row by row; null is any value."""

    punctuations: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class OutputWatermark:
    """No result of a later batch has a time before this; only for a join that another goes by."""

    time_us: int


@dataclass(frozen=True, slots=True)
class StateSize:
    """Live tuples, bytes of all runs, punctuations and closed keys stored, keys and rows that wait for a
    purge or for deferred matches, bytes in memory, and the partial rows of groups that are not final yet.
    """

    rows: int
    nbytes: int
    closed_keys: int
    deferred: int
    resident_bytes: int
    groups: int = 0


Output: TypeAlias = Results | FinishedKeys | FinishedPatterns | Forwarded | OutputWatermark | Violation
