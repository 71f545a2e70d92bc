"""What the reference algorithms read, write and count.

A stream is a sequence of rows and punctuations (`End`); `End(1, 79)` says that no row of input 1 with key 79
follows. An algorithm appends each result to `Output.rows`, one row of each input, and each key it propagates
to `Output.ends`. `Work` counts what the papers count; CPU time is the caller's to
take.

Worked number: a row that meets a bucket of 5 rows, 2 of them with its key, is 1 probe, 5 rows scanned, 5
comparisons and 2 results.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import merge
from typing import NamedTuple, TypeAlias


class Row(NamedTuple):
    """A tuple of a stream; `number` tells it apart from others of its input."""

    input: int
    key: int
    time: int
    number: int


class End(NamedTuple):
    """A punctuation on one value of the join attribute."""

    input: int
    key: int


Element: TypeAlias = Row | End
Result: TypeAlias = tuple[Row, ...]


@dataclass(slots=True)
class Work:
    """Counts of one run."""

    probes: int = 0  # lookups in a hash table, an I-Node index or a bucket
    scanned: int = 0  # rows looked at, in probes and in purges
    comparisons: int = 0  # of two join values
    inserted: int = 0  # rows put into the state
    dropped: int = 0  # rows that never entered it: on-the-fly dropping
    purged: int = 0  # by punctuations
    invalidated: int = 0  # by windows
    waited: int = 0  # rows that went through the waiting pool
    switches: int = 0  # another input drives
    pages_read: int = 0
    pages_written: int = 0


@dataclass(slots=True)
class Output:
    """The output queue."""

    rows: list[Result] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)


def by_time(*streams: Iterable[Row]) -> list[Row]:
    """Streams that are each in order of time, as one: the order in which tuples arrive."""
    return list(merge(*streams, key=lambda row: (row.time, row.input)))
