"""Specification of a stream join: inputs with physical layouts, output columns,
strategies. Made by the planner from the user's declarations; the operator never sees a `Stream`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from streamjoin.columnar.batch import Layout
from streamjoin.declare.arrival import Arrival
from streamjoin.declare.stream import OnViolation
from streamjoin.join.group_spec import Grouping
from streamjoin.join.join_type import INNER, JoinType
from streamjoin.join.predicate import Predicate
from streamjoin.join.strategies import Strategies
from streamjoin.join.strategies.driver import RoundRobin
from streamjoin.join.strategies.order import Sequential
from streamjoin.join.strategies.probe import MostSelectiveFirst
from streamjoin.join.strategies.purge import PurgeImmediately
from streamjoin.join.strategies.spill import KeepInMemory
from streamjoin.state.sorted_runs import CompactionPolicy

DEFAULT_STRATEGIES = Strategies(
    RoundRobin(), Sequential(), PurgeImmediately(), MostSelectiveFirst(), KeepInMemory()
)


@dataclass(frozen=True)
class InputSpec:
    """One input of the operator. `columns` are the names of key, then payload, as declared."""

    name: str
    layout: Layout
    columns: tuple[str, ...]
    window_us: int | None = None
    lateness_us: int = 0
    idle_us: int | None = None
    unique: bool = False
    partitions: int = 1
    on_violation: OnViolation = "drop"
    ttl_us: int | None = None  # of last resort: older tuples expire, whatever they could join
    arrival: Arrival | None = None
    partitioned: bool = False  # the order of arrival holds within each source partition
    uses_punctuations: bool = True  # False for operators that know no punctuations
    closes: str | None = None  # what closes keys on it, in words
    forwarded: tuple[int, ...] = ()  # payload columns of which punctuations are forwarded to a later operator
    later: tuple[tuple[int, ...], ...] = ()  # keys there, as numbers of columns: key, then forwarded

    @property
    def span_us(self) -> int | None:
        """A row is useless to another input once its `bound` is before that one's watermark less this."""
        return 0 if self.window_us is not None and self.layout.until else self.window_us

    @property
    def arrival_text(self) -> str:
        return f"{self.arrival!r} in each partition" if self.partitioned else repr(self.arrival)


@dataclass(frozen=True)
class JoinSpec:
    """A join of n >= 2 inputs on a common key."""

    name: str
    inputs: tuple[InputSpec, ...]
    output: pa.Schema
    how: JoinType = INNER
    where: Predicate | None = None
    strategies: Strategies = DEFAULT_STRATEGIES
    compaction: CompactionPolicy = field(default_factory=CompactionPolicy)
    propagate: bool = True
    buckets: int = 1
    may_defer: bool = True  # False where nobody waits for the end: all work of a batch finishes inside it
    hash: str = "local"  # who computes the key's hash: stored hashes are only good for that one
    frame_rows: int = 1 << 16  # results leave in pieces of this size, as they are made
    grouping: Grouping | None = None  # final rows of groups leave, not the joined rows
    feeds_join: bool = False  # a join follows: ranges and the end are propagated too
    monitored: bool = True  # False only to measure what the constraint monitor costs
    stamps: tuple[
        str, ...
    ] = ()  # last columns of the output: L, and where a window counts D (`columnar.window`)
    shown: tuple[str, ...] | None = None  # the columns that leave, where they are not those of the output

    @property
    def windowed(self) -> bool:
        """Whether event time decides which rows join; only then can a row be late."""
        return len(self.stamps) == 2 or any(spec.window_us is not None for spec in self.inputs)

    @property
    def memory_share(self) -> int | None:
        """The bytes of state that a bucket may have in memory; None: all of it.

        Of its part of the limit a quarter is left for the batch at work.
        """
        limit = self.strategies.spill.limit_bytes
        return None if limit is None else 3 * limit // (4 * self.buckets)

    @property
    def defers(self) -> bool:
        """Whether matches with spilled rows may be deferred; only inner joins emit nothing else by then."""
        spill = self.strategies.spill
        return self.may_defer and spill.defer and spill.limit_bytes is not None and self.how == INNER

    @property
    def key_types(self) -> tuple[pa.DataType, ...]:
        return self.inputs[0].layout.key_types

    @property
    def key_names(self) -> list[str]:
        return list(self.output.names[: len(self.key_types)])

    @property
    def emits(self) -> pa.Schema:
        """The columns of what leaves."""
        if self.grouping is not None:
            return self.grouping.output
        return self.output if self.shown is None else pa.schema([self.output.field(n) for n in self.shown])

    def first_column(self, number: int) -> int:
        """Where the output columns of one input begin, beside the key."""
        return len(self.key_types) + sum(len(spec.layout.payload_types) for spec in self.inputs[:number])

    def payload_names(self, number: int) -> list[str]:
        """The output names of one input's columns beside the key; none where they do not leave."""
        first = self.first_column(number)
        return list(self.output.names[first : first + len(self.inputs[number].layout.payload_types)])

    def identity(self) -> dict[str, Any]:
        """What must not change between a stop and a restart."""
        where = {} if self.where is None else {"where": self.where.text}
        grouping = {} if self.grouping is None else {"grouping": self.grouping.text}
        feeds = {"feeds a join": True} if self.feeds_join else {}
        stamps = {"stamps": list(self.stamps)} if self.stamps else {}
        return {
            "how": self.how.name,
            **where,
            **grouping,
            **feeds,
            **stamps,
            "buckets": self.buckets,
            "hash": self.hash,
            "inputs": [spec.name for spec in self.inputs],
            "key types": [str(dtype) for dtype in self.key_types],
            "columns": {
                spec.name: [
                    f"{name}: {dtype}"
                    for name, dtype in zip(
                        spec.columns, (*spec.layout.key_types, *spec.layout.payload_types), strict=True
                    )
                ]
                for spec in self.inputs
            },
            "times": [spec.name for spec in self.inputs if spec.layout.timed],
            "windows (us)": {spec.name: spec.window_us for spec in self.inputs},
            "arrival": {spec.name: spec.arrival_text for spec in self.inputs if spec.arrival is not None},
            "unique": [spec.name for spec in self.inputs if spec.unique],
        }


def within_memory(spec: JoinSpec) -> JoinSpec:
    """The same join with runs and frames that fit its share of memory several times."""
    share = spec.memory_share
    if share is None:
        return spec
    compaction = replace(spec.compaction, run_bytes=min(spec.compaction.run_bytes, max(share // 8, 1 << 16)))
    return replace(spec, compaction=compaction, frame_rows=min(spec.frame_rows, 1 << 14))
