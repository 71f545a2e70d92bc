"""Reads `where=`: what the join tests on joined rows, what on the rows of one input when they arrive, what
conditions on event times say of eviction, and what only Spark can test.

A condition is a pyarrow expression or SQL text over the columns of a joined row, or a list of such. SQL text
becomes an expression (`sql_expression`), so it runs wherever expressions run. Spark filters the rows that
leave an inner join by text that cannot be translated; anywhere else such text is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamjoin.declare.stream import Stream
from streamjoin.errors import InvalidJoin
from streamjoin.join.predicate import Predicate, Where
from streamjoin.plan.output import Columns
from streamjoin.plan.where.expression_tree import Node, Tree, tree_of
from streamjoin.plan.where.sql_expression import translated
from streamjoin.plan.where.sql_text import NotTranslated
from streamjoin.plan.where.time_ranges import Ranges, no_ranges, time_ranges

_GIVE = 'give a pyarrow expression such as pc.field("price") > 10'


@dataclass(frozen=True)
class JoinedColumns:
    """The columns of a joined row: `own` has the numbers of each input's own, the key is of all."""

    schema: pa.Schema
    keys: int
    own: tuple[range, ...]
    qualified: Mapping[tuple[str, str], str]  # the column of `input.column`
    times: Mapping[str, int]  # columns with an event time by which tuples may be evicted: of which input
    own_keys: bool = False  # the columns of each input begin with its key

    def of_input(self, number: int) -> pa.Schema:
        """The columns that the tuples of one input have."""
        return pa.schema([self.schema.field(i) for i in (*range(self.keys), *self.own[number])])


@dataclass(frozen=True)
class Conditions:
    """What `where=` asks of a join. `on_spark` is SQL that only Spark can test, on rows that leave."""

    where: Where | None
    ranges_us: Ranges
    on_spark: str | None = None


def joined_columns(
    streams: Sequence[Columns],
    joined: pa.Schema,
    qualified: Mapping[tuple[str, str], str],
    *,
    by_time: bool = False,
    own_keys: bool = False,
) -> JoinedColumns:
    """The columns of a joined row of these inputs: the key, then each one's own, as far as they are in it.

    `by_time`: whether conditions on event times may evict tuples; all inputs are streams then.
    """
    keys = len(streams[0].key)
    own, first = [], keys
    named: dict[tuple[str, str], str] = {}
    times: dict[str, int] = {}
    for number, stream in enumerate(streams):
        stop = min(first + len(stream.payload) + (keys if own_keys else 0), len(joined))
        own.append(range(first, stop))
        names = [*(() if own_keys else joined.names[:keys]), *joined.names[first:stop]]
        columns = dict(zip((*stream.key, *stream.payload), names, strict=False))
        named |= {(stream.name, column): name for column, name in columns.items()}
        if (
            by_time
            and isinstance(stream, Stream)
            and stream.time in stream.payload
            and stream.time in columns
            and _has_watermark(stream, [one for one in streams if isinstance(one, Stream)])
        ):
            times[columns[stream.time]] = number
        first = stop
    return JoinedColumns(joined, keys, tuple(own), named | dict(qualified), times, own_keys)


def _has_watermark(stream: Stream, streams: Sequence[Stream]) -> bool:
    """Whether rows before its watermark are late, in times whose differences are those that conditions see:
    all are instants, or none is.
    """
    if stream.lateness_us is None or stream.stamps:
        return False
    types = [one.type_of(one.time) for one in streams if one.time is not None]
    types += [one.control.type_of(one.control.time) for one in streams if one.control is not None]
    return all(map(pa.types.is_timestamp, types)) and len({dtype.tz is None for dtype in types}) == 1


def read_conditions(given: Any, columns: JoinedColumns, *, spark_may_filter: bool) -> Conditions:
    """Split the conditions of a join; refused where one cannot be tested."""
    nothing = no_ranges(len(columns.own))
    if given is None:
        return Conditions(None, nothing)
    listed = list(given) if isinstance(given, list | tuple) else [given]
    tested, left = [], []
    for one in listed:
        if not isinstance(one, str):
            tested.append(one)
            continue
        try:
            tested.append(translated(one, columns.schema, columns.qualified))
        except NotTranslated as reason:
            if not spark_may_filter:
                raise _refusal(one, str(reason), columns.schema) from reason
            left.append(one)
    if not listed or not all(isinstance(one, pc.Expression) for one in tested):
        raise InvalidJoin(f"where={given!r}; {_GIVE}, SQL text, or a list of them")
    on_spark = " AND ".join(f"({one})" for one in left) if left else None
    if not tested:
        return Conditions(None, nothing, on_spark)
    says = " and ".join(str(one) for one in listed if one not in left) if left else _said(listed)
    whole = Predicate(reduce(lambda a, b: a & b, tested), columns.schema)
    return _split(whole, says, columns, on_spark)


def _said(listed: Sequence[Any]) -> str:
    return str(listed[0]) if len(listed) == 1 else " and ".join(f"({one})" for one in listed)


def _refusal(text: str, reason: str, columns: pa.Schema) -> InvalidJoin:
    return InvalidJoin(
        f"where={text!r}: {reason}; {_GIVE} over {', '.join(columns.names)}, or simpler SQL: comparison, "
        "arithmetic, and, or, not, in, between, like, is null, cast, interval"
    )


def _split(whole: Predicate, says: str, columns: JoinedColumns, on_spark: str | None) -> Conditions:
    tree = tree_of(whole.expression)
    inputs = range(len(columns.own))
    if tree is None:
        where = Where(whole, says, tuple(None for _ in inputs), whole, columns.own_keys, ())
        return Conditions(where, no_ranges(len(inputs)), on_spark)
    parts = list(tree.root.conjuncts())
    names = [set(columns.of_input(i).names) for i in inputs]
    alone: list[list[Node]] = [[] for _ in inputs]
    rest = []
    for part in parts:
        of = [i for i in inputs if set(part.columns()) <= names[i]]
        for i in of:
            alone[i].append(part)
        if not of:
            rest.append(part)
    where = Where(
        whole,
        says,
        tuple(_predicate(tree, alone[i], columns.of_input(i)) for i in inputs),
        _predicate(tree, rest, columns.schema),
        columns.own_keys,
        tuple(sorted(set(tree.root.columns()))),
    )
    return Conditions(where, time_ranges(parts, columns.times, columns.schema, len(inputs)), on_spark)


def _predicate(tree: Tree, parts: Sequence[Node], schema: pa.Schema) -> Predicate | None:
    if not parts:
        return None
    return Predicate(reduce(lambda a, b: a & b, map(tree.part, parts)), schema)
