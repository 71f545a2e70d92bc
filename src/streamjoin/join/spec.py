"""Specification of a stream join: inputs with physical layouts, output columns,
strategies. Made by the planner from the user's declarations; the operator never sees a `Stream`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from streamjoin.columnar.batch import Layout
from streamjoin.columnar.types import in_one_zone, stored_type, zone_text
from streamjoin.declare.arrival import Arrival
from streamjoin.declare.stream import OnViolation
from streamjoin.join.group_spec import Grouping
from streamjoin.join.join_type import INNER, JoinType
from streamjoin.join.predicate import Where
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
    # By other input, from conditions on two event times: it matches only rows of that one whose time is at
    # most so much later than its own. Negative: earlier.
    ranges_us: tuple[int | None, ...] = ()
    lateness_us: int = 0
    idle_us: int | None = None
    unique: bool = False
    sent_watermark: bool = False  # an upstream join sends its watermark; its rows do not advance it
    partitions: int = 1
    on_violation: OnViolation = "drop"
    ttl_us: int | None = None  # of last resort: older tuples expire, whatever they could join
    arrival: Arrival | None = None
    partitioned: bool = False  # the order of arrival holds within each source partition
    uses_punctuations: bool = True  # False for operators that know no punctuations
    closes: str | None = None  # what closes keys on it, in words
    forwarded: tuple[int, ...] = ()  # payload columns of which punctuations are forwarded to a later operator
    later: tuple[tuple[int, ...], ...] = ()  # keys there, as numbers of columns: key, then forwarded
    origins: tuple[str, ...] = ()  # where `columns` come from, if they are those of another join
    time: str | None = None  # the column with its event time
    fed_by: str | None = None  # the join whose results it brings

    @property
    def span_us(self) -> int | None:
        """A row is useless to another input once its `bound` is before that one's watermark less this."""
        return 0 if self.window_us is not None and self.layout.until else self.window_us

    def span_to(self, other: int) -> int | None:
        """As `span_us`, for one other input: what a window or a condition on event times says."""
        spans = [self.span_us, self.ranges_us[other] if self.ranges_us else None]
        return min((span for span in spans if span is not None), default=None)

    def reach_to(self, other: int) -> int | None:
        """A tuple of this input matches no row of `other` that is later than its own time by more than this.

        A result of another join has at most the least window below it left.
        """
        return self.window_us if self.layout.until else self.span_to(other)

    @property
    def stored_columns(self) -> tuple[str, ...]:
        """The names by which a restart knows the columns: those of their own streams."""
        return self.origins or self.columns

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
    where: Where | None = None
    strategies: Strategies = DEFAULT_STRATEGIES
    compaction: CompactionPolicy = field(default_factory=CompactionPolicy)
    propagate: bool = True
    buckets: int = 1
    may_defer: bool = True  # False where nobody waits for the end: all work of a batch finishes inside it
    hash: str = "local"  # who computes the key's hash: stored hashes are only good for that one
    frame_rows: int = 1 << 16  # results leave in pieces of this size, as they are made
    grouping: Grouping | None = None  # final rows of groups leave, not the joined rows
    feeds_join: bool = False  # a join follows: ranges and the end are propagated too
    timed_by: int | None = None  # that join goes by the event time of this input, and is sent its watermark
    monitored: bool = True  # False only to measure what the constraint monitor costs
    stamps: tuple[
        str, ...
    ] = ()  # last columns of the output: L, and where a window counts D (`columnar.window`)
    null_safe: bool = False  # null keys equal each other
    own_keys: bool = (
        False  # the columns of each input in the output begin with its key: null where it is missing
    )
    purges_whole: bool = False  # as MJoin: what a purge would propagate waits with it
    remembers_closed_keys: bool = False  # as PWJoin: until every input has closed them
    evicts_within: bool = False  # windows evict while a batch is at work, not only after it (`frontier`)
    filter: str | None = None  # SQL that is tested on the rows that leave, by Spark
    zone: str | None = None  # in which dates and local times are read, where some are instants
    shown: tuple[str, ...] | None = None  # the columns that leave, where they are not those of the output

    @property
    def windowed(self) -> bool:
        """Whether event time decides which rows join; only then can a row be late."""
        return len(self.stamps) == 2 or any(
            spec.window_us is not None or any(each is not None for each in spec.ranges_us)
            for spec in self.inputs
        )

    @property
    def forgets_closed_keys(self) -> bool:
        """Whether watermarks let closed keys go."""
        return self.times_closed_keys and not self.remembers_closed_keys

    @property
    def times_closed_keys(self) -> bool:
        """Whether closed keys are stored with their time: rows of every input match for a limited time only.

        Not where several inputs are preserved: a key is finished only when all of them have closed it.
        """
        pairs = ((i, m) for i in range(len(self.inputs)) for m in range(len(self.inputs)) if i != m)
        return len(self.how.preserved) < 2 and all(self.inputs[i].reach_to(m) is not None for i, m in pairs)

    @property
    def invalidates_within(self) -> bool:
        """Whether windows evict while a batch is at work. Not where rows that violate a declaration take
        part: what these find must not depend on turns; nor where rows may wait beyond their turn.
        """
        in_turn = isinstance(self.strategies.order, Sequential)
        return self.evicts_within and in_turn and all(one.on_violation != "keep" for one in self.inputs)

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
        """Where the output columns of one input begin, beside the key of all."""
        widths = [len(spec.layout.payload_types) for spec in self.inputs[:number]]
        return len(self.key_types) + sum(widths) + number * self._own_key_columns

    @property
    def _own_key_columns(self) -> int:
        return len(self.key_types) if self.own_keys else 0

    def payload_names(self, number: int) -> list[str]:
        """The output names of one input's columns beside the key; none where they do not leave."""
        first = self.first_column(number) + self._own_key_columns
        return list(self.output.names[first : first + len(self.inputs[number].layout.payload_types)])

    def identity(self) -> dict[str, Any]:
        """What a restart is compared by (`persistence.restart`)."""
        width = len(self.key_types)
        optional = {
            "where": None if self.where is None else in_one_zone(self.where.whole.text),
            "filter": self.filter,
            "grouping": None if self.grouping is None else self.grouping.text,
            "feeds a join": self.feeds_join or None,
            "stamps": len(self.stamps) or None,
            "null-safe": self.null_safe or None,
            "zone": None if self.zone is None else zone_text(self.zone),
            "ranges (us)": {one.name: list(one.ranges_us) for one in self.inputs if one.ranges_us} or None,
        }
        return {
            "how": self.how.name,
            **{what: said for what, said in optional.items() if said is not None},
            "buckets": self.buckets,
            "hash": self.hash,
            "inputs": [one.name for one in self.inputs],
            "key": {one.name: list(one.stored_columns[:width]) for one in self.inputs},
            "key types": [stored_type(dtype) for dtype in self.key_types],
            "times": {one.name: one.time for one in self.inputs if one.layout.timed},
            "windows (us)": {one.name: one.window_us for one in self.inputs},
            "arrival": {one.name: one.arrival_text for one in self.inputs if one.arrival is not None},
            "unique": [one.name for one in self.inputs if one.unique],
            "columns": {
                one.name: {
                    name: stored_type(dtype)
                    for name, dtype in zip(one.stored_columns[width:], one.layout.payload_types, strict=True)
                }
                for one in self.inputs
            },
            "used": self._used_columns(),
        }

    def _used_columns(self) -> dict[str, list[str]]:
        """The columns of each input that `where` and `grouping` name."""
        named: set[str] = set()
        names = self.output.names
        if self.where is not None:
            names = self.where.whole.joined.names
            named |= set(self.where.columns)
        if self.grouping is not None:
            named |= {*self.grouping.columns}
            named |= {column for one in self.grouping.aggregates for column in (one.column, one.by) if column}
        width, found = len(self.key_types), {}
        for number, one in enumerate(self.inputs):
            first = self.first_column(number) + self._own_key_columns
            found[one.name] = [
                origin
                for shown, origin in zip(names[first:], one.stored_columns[width:], strict=False)
                if shown in named
            ]
        return found


def within_memory(spec: JoinSpec) -> JoinSpec:
    """The same join with runs and frames that fit its share of memory several times."""
    share = spec.memory_share
    if share is None:
        return spec
    compaction = replace(spec.compaction, run_bytes=min(spec.compaction.run_bytes, max(share // 8, 1 << 16)))
    return replace(spec, compaction=compaction, frame_rows=min(spec.frame_rows, 1 << 14))
