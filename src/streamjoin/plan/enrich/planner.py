"""Planner of enrichments: from a stream and its tables to semi-stream joins, one for each table.

All errors of the declarations are found here, before any data is staged. Several
tables on the stream's key are joined one after another: the results of the first are the stream of the
second. Columns and key types are those that one join of all of them would have.

Worked case: orders(id, name) with customers(id, name) and ratings(id, stars): the first join gives id,
orders_name, customers_name, the second adds stars.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from streamjoin.columnar.batch import Layout
from streamjoin.columnar.types import common_type, plain
from streamjoin.declare.stream import Stream
from streamjoin.declare.table import Table
from streamjoin.enrich.cost import best_segment_bytes
from streamjoin.enrich.segments import SEGMENT_BYTES, StagedForm, StagedVersion
from streamjoin.enrich.spec import EnrichSpec
from streamjoin.errors import InvalidJoin
from streamjoin.join.predicate import Where
from streamjoin.plan.output import Columns, free_names, joined_schema
from streamjoin.plan.planner import JoinOptions, check_options
from streamjoin.plan.where.conditions import joined_columns, read_conditions

ENRICH_PRESETS = {
    "ssbj": "SSBJ: the segments are read in cycles for all rows that wait; frequent values are cached",
    "meshjoin": "MESHJOIN: the segments are read in cycles for all rows that wait; nothing is cached",
}
_SMALLEST_SEGMENT = 16 << 10
_ACCESS = ("auto", "scan", "lookup")

# What a stream may declare for other joins and an enrichment does not use: the default, and what to do.
_OF_STREAM: dict[str, tuple[Any, str]] = {
    "window": (None, "a table row has no time; leave it out"),
    "idle": (None, "no stream row waits for another stream; leave it out"),
    "ttl": (None, "memory= of the table bounds the state; leave it out"),
    "unique": (False, "no stream row is kept once it is answered; leave it out"),
    "arrival": (None, "no stream row is kept once it is answered; leave it out"),
    "sequence": ((), "the order of rows is not used; leave it out, or drop the column"),
    "punctuation": (None, "no stream row is kept once it is answered; leave it out"),
    "on_violation": ("drop", "without punctuations nothing is violated; leave it out"),
}


class EmptyTable(UserWarning):
    """Warning: a table has no row with a key, so nothing matches: right, but hardly what was meant.

    >>> import warnings
    >>> import pyarrow as pa
    >>> import streamjoin as sj
    >>> orders = sj.stream(pa.schema({"id": pa.int64()}), name="orders", key="id")
    >>> empty = sj.table(pa.table({"id": pa.array([], pa.int64())}), name="none", key="id", memory="1 MB")
    >>> with warnings.catch_warnings(record=True) as found:
    ...     warnings.simplefilter("always")
    ...     run = sj.enrich(orders, empty).local()
    >>> found[0].category.__name__
    'EmptyTable'
    """


@dataclass(frozen=True)
class EnrichOptions:
    """What the user said of the enrichment itself; None means: the planner chooses."""

    name: Any = "enrich"
    operator: str | None = None  # a preset
    buckets: Any = None
    where: Any = None  # a condition; of several tables by their names
    access: Any = "auto"
    switching_factor: Any = 1.0


@dataclass(frozen=True)
class EnrichPlan:
    """One stream and one table, ready to run.

    `stream` is as the operator takes it: without event time where nothing waits by it. `spec` has the
    memory of the whole join. `below` is the join whose results are the stream, where there is one.
    """

    stream: Stream
    table: Table
    options: EnrichOptions
    spec: EnrichSpec
    below: EnrichPlan | None = None

    @property
    def name(self) -> str:
        return str(self.options.name)

    @property
    def chain(self) -> tuple[EnrichPlan, ...]:
        """This join and those below it, in the order in which a row passes them."""
        return (*(() if self.below is None else self.below.chain), self)

    def for_bucket(self, version: StagedVersion) -> EnrichSpec:
        """What one of a version's buckets does, with its share of the memory.

        Refused where the memory is too small for the version's segments.
        """
        buckets, least = version.form.buckets, self.least_memory(version)
        if self.spec.memory_bytes < least:
            raise InvalidJoin(
                f"table {self.table.name!r}: memory={self.spec.memory_bytes:,} bytes is too small: it needs"
                f" {least:,}, twice its largest segment of {version.largest_segment:,} for each of {buckets} "
                f"bucket{'s'[: buckets > 1]}; give that or more"
            )
        return replace(self.spec, memory_bytes=self.spec.memory_bytes // buckets)

    @staticmethod
    def least_memory(version: StagedVersion) -> int:
        """What the join needs at least: in each bucket a segment, and as much for what waits."""
        return 2 * version.largest_segment * version.form.buckets

    def form(self, buckets: int, hash_name: str) -> StagedForm:
        """The form in which its table is staged."""
        return StagedForm(self.table.key, self.table.payload, self.spec.table, hash_name, buckets)

    def with_table(self, anew: Table) -> EnrichPlan:
        """The same join with its table declared anew: another place or label of the same table."""
        kept = ("key", "payload", "emits_version", "how", "memory_bytes", "cycle_batches", "wait_us")
        said, known = ([getattr(one, name) for name in kept] for one in (anew, self.table))
        if said != known:
            raise InvalidJoin(
                f"table {anew.name!r} is declared with another key, columns or options than in this join; "
                "change only its source or version, or begin another join"
            )
        return replace(self, table=anew)

    def segment_bytes(self, buckets: int) -> int:
        """How large the segments of the table are made: the cost model's choice for a bucket's share of the
        memory, at most a quarter of it.

        Worked number: 64 MB over 8 buckets are 8 MB each, and segments of 2 MB.
        """
        share = self.spec.memory_bytes // buckets
        return max(min(SEGMENT_BYTES, best_segment_bytes(share), share // 4), _SMALLEST_SEGMENT)


def plan_enrich(stream: Stream, tables: Sequence[Table], options: EnrichOptions) -> EnrichPlan:
    """Check an enrichment of one stream with one or more tables and choose how it runs."""
    check_options(JoinOptions(name=options.name, buckets=options.buckets))
    if options.operator is not None and options.operator not in tuple(ENRICH_PRESETS):
        raise InvalidJoin(
            f"operator={options.operator!r} joins no table; give one of {', '.join(ENRICH_PRESETS)}, or "
            "leave it out"
        )
    _check_knobs(options)
    _check_inputs(stream, tables)
    _check_stream(stream)
    _check_widths(stream, tables)
    sides: list[Stream | Table] = [stream, *tables]
    key_types = tuple(
        common_type(
            [one.name for one in sides],
            [one.key[i] for one in sides],
            [one.type_of(one.key[i]) for one in sides],
        )
        for i in range(len(stream.key))
    )
    outputs = _outputs(stream, tables, key_types)
    conditions = _conditions(tables, options.where)
    called = dict(_called(stream, outputs[0], 0))
    plans: list[EnrichPlan] = []
    known = [*stream.key, *stream.payload]  # where the columns come from
    for number, table in enumerate(tables):
        last = number == len(tables) - 1
        named = options if last else replace(options, name=f"{options.name}_{table.name}")
        fed = stream if number == 0 else _passed_on(stream, outputs[0], outputs[number])
        below = plans[-1] if plans else None
        called |= _called(table, outputs[number + 1], len(outputs[number]))
        where = _where(conditions.get(table.name), fed, table, outputs[number + 1], called)
        plan = _plan_one(_timed(fed, table), table, named, outputs[number + 1], below, where)
        time = stream.time if plan.spec.stream.timed else None
        plans.append(replace(plan, spec=replace(plan.spec, stream_columns=tuple(known), time=time)))
        known += [f"{table.name}.{name}" for name in outputs[number + 1].names[len(known) :]]
    return plans[-1]


def _conditions(tables: Sequence[Table], given: Any) -> Mapping[str, Any]:
    """The condition of each table that has one, by its name."""
    if given is None:
        return {}
    names = [table.name for table in tables]
    if not isinstance(given, Mapping):
        if len(tables) == 1:
            return {names[0]: given}
        raise InvalidJoin(
            f"where={given!r} does not say of which table it is; give the condition of each by its name, as "
            f"in where={{{names[0]!r}: …}}"
        )
    unknown = [name for name in given if name not in names]
    if unknown or not given:
        said = ", ".join(map(repr, unknown)) or "no table"
        raise InvalidJoin(f"where= names {said}; give conditions of {', '.join(names)}")
    return given


def _called(side: Columns, output: pa.Schema, first: int) -> dict[tuple[str, str], str]:
    """What each column of an input is called in a result, its own from `first` on."""
    names = [*output.names[: len(side.key)], *output.names[max(first, len(side.key)) :]]
    columns = (*side.key, *side.payload)
    return {(side.name, column): name for column, name in zip(columns, names, strict=False)}


def _where(
    given: Any, stream: Stream, table: Table, output: pa.Schema, called: Mapping[tuple[str, str], str]
) -> Where | None:
    """What a match is beside equal keys, over the columns of a result but the version."""
    schema = pa.schema(list(output)[: len(output) - table.emits_version])
    columns = joined_columns([stream, table], schema, called)
    return read_conditions(given, columns, spark_may_filter=False).where


def _plan_one(
    stream: Stream,
    table: Table,
    options: EnrichOptions,
    output: pa.Schema,
    below: EnrichPlan | None,
    where: Where | None,
) -> EnrichPlan:
    key_types = tuple(output.types[: len(stream.key)])
    spec = EnrichSpec(
        Layout(key_types, stream.time is not None, _types(stream)),
        Layout(key_types, payload_types=_types(table)),
        output,
        table.memory_bytes,
        preserves=table.how == "left",
        caches=options.operator != "meshjoin",
        access=options.access if options.operator is None else "paper",
        switching_factor=float(options.switching_factor),
        cycle_batches=table.cycle_batches,
        wait_us=table.wait_us,
        lateness_us=stream.lateness_us or 0,
        emits_version=table.emits_version,
        where=where,
        table_columns=(*table.key, *table.payload),
    )
    return EnrichPlan(stream, table, options, spec, below)


def _check_knobs(options: EnrichOptions) -> None:
    """Refuse what says nothing to the operator, or nothing at all."""
    if options.access not in _ACCESS:
        raise InvalidJoin(f"access={options.access!r}; give one of {', '.join(map(repr, _ACCESS))}")
    if options.access != "auto" and options.operator is not None:
        raise InvalidJoin(
            f"access={options.access!r} says nothing to operator={options.operator!r}, which scans as its "
            "paper does; leave one of them out"
        )
    factor: Any = options.switching_factor
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < math.inf:
        raise InvalidJoin(f"switching_factor={factor!r}; give a number above 0, such as 1")
    if factor != 1 and options.operator == "meshjoin":
        raise InvalidJoin(
            "switching_factor= says nothing to operator='meshjoin', which caches nothing; leave it out"
        )


def _types(side: Columns) -> tuple[pa.DataType, ...]:
    return tuple(plain(side.type_of(name)) for name in side.payload)


def _check_inputs(stream: Any, tables: Sequence[Any]) -> None:
    """Whether the first is a stream, the others are tables, and each has its own name."""
    if isinstance(stream, Table):
        raise InvalidJoin(f"{stream.name} is a table; give the stream first: sj.enrich(stream, *tables)")
    for given, wanted in ((stream, Stream), *((table, Table) for table in tables)):
        if not isinstance(given, Stream | Table):
            said = repr(given) if isinstance(given, str) else f"a {type(given).__name__}"
            what = wanted.__name__.lower()
            raise InvalidJoin(f"{said} is no {what}; wrap it with sj.{what}(…)")
    if not tables:
        raise InvalidJoin(f"{stream.name} is enriched with nothing; add a table with sj.table(…)")
    streams = [one.name for one in (stream, *tables) if isinstance(one, Stream)]
    if len(streams) > 1:
        raise InvalidJoin(
            f"{' and '.join(streams)} are streams: join them first with sj.join(…), and give the result's "
            "dataframe() as the one stream that is enriched"
        )
    names = [one.name for one in (stream, *tables)]
    if len(set(names)) != len(names):
        raise InvalidJoin(f"two inputs have the same name ({', '.join(names)}); give each its own name")


def _check_stream(stream: Stream) -> None:
    """Refuse what a stream declares for other joins."""
    if stream.upstream is not None:
        raise InvalidJoin(
            f"stream {stream.name!r} is the join {stream.upstream.join!r}; to enrich it give its results: "
            "sj.stream(joined.dataframe(), …), or locally its schema, and push what it gives"
        )
    for what, (silent, instead) in _OF_STREAM.items():
        field = f"{what}_us" if what in ("window", "idle", "ttl") else what
        if _says_something(getattr(stream, field), silent):
            raise InvalidJoin(f"stream {stream.name!r}: {what}= says nothing to sj.enrich; {instead}")


def _says_something(given: Any, silent: Any) -> bool:
    """Whether a value is another than the silent one; some, such as expressions, cannot be compared."""
    return given is not silent and (silent is None or given != silent)


def _check_widths(stream: Stream, tables: Sequence[Table]) -> None:
    sides: list[Stream | Table] = [stream, *tables]
    if len({len(side.key) for side in sides}) > 1:
        listed = "; ".join(f"{side.name}: {', '.join(side.key)}" for side in sides)
        raise InvalidJoin(f"inputs have keys of different width ({listed}); name as many columns each")


def _outputs(stream: Stream, tables: Sequence[Table], key_types: Sequence[pa.DataType]) -> list[pa.Schema]:
    """The columns before the first join and after each."""
    whole = list(joined_schema([stream, *tables], key_types))
    at = len(stream.key) + len(stream.payload)
    fields = whole[:at]
    found = [pa.schema(fields)]
    for table in tables:
        fields = [*fields, *whole[at : at + len(table.payload)]]
        at += len(table.payload)
        if table.emits_version:
            taken = [field.name for field in (*whole, *fields)]
            fields.append(pa.field(*free_names([f"{table.name}_version"], taken), pa.string()))
        found.append(pa.schema(fields))
    return found


def _passed_on(stream: Stream, named: pa.Schema, output: pa.Schema) -> Stream:
    """The results of a join as the stream of the next; `named` are the stream's own columns."""
    columns = (*stream.key, *stream.payload)
    time = named.names[columns.index(stream.time)] if stream.time in columns else None
    lateness_us = None if time is None else stream.lateness_us
    return replace(stream, schema=output, columns=None, time=time, lateness_us=lateness_us, source=None)


def _timed(stream: Stream, table: Table) -> Stream:
    """The stream with its event time where rows wait by it, without it where none does."""
    if table.wait_us is None:
        return replace(stream, time=None, lateness_us=None)
    if stream.time is None:
        raise InvalidJoin(
            f"table {table.name!r}: wait= counts on the event time of {stream.name}; add time= to it, and "
            "the time column to its columns= where they are chosen"
        )
    return stream
