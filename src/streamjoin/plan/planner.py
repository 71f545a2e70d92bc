"""Planner: from declared streams to the specification of an operator with strategies, with reasons.

Everything that can be wrong with a join as written is found here, before any data flows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from streamjoin.columnar.batch import Layout
from streamjoin.columnar.types import common_type, keeps_apart, plain
from streamjoin.declare.arrival import Arrival
from streamjoin.declare.checks import check_flag, check_number
from streamjoin.declare.stream import Stream
from streamjoin.errors import InvalidJoin
from streamjoin.join.join_type import INNER, JoinType, join_type
from streamjoin.join.spec import InputSpec, JoinSpec, within_memory
from streamjoin.join.strategies import Strategies
from streamjoin.join.strategies.driver import (
    Adaptive,
    ConsumptionRate,
    FollowClusters,
    InitialOutput,
    OutputRate,
    Priority,
    RandomInput,
    RoundRobin,
    Timestamp,
)
from streamjoin.join.strategies.order import Sequential, ValueOriented
from streamjoin.join.strategies.probe import FewestRowsFirst, MostSelectiveFirst
from streamjoin.join.strategies.purge import NoPurge, PurgeEvery, PurgeImmediately
from streamjoin.join.strategies.spill import KeepInMemory, SpillAbove, check_share
from streamjoin.plan.bounds import Bound, check, closes_keys, warning_text
from streamjoin.plan.chain import check_chain, check_window_above
from streamjoin.plan.origins import origin, origins
from streamjoin.plan.output import joined_schema
from streamjoin.plan.presets import as_known, preset
from streamjoin.plan.where.conditions import Conditions, joined_columns, read_conditions
from streamjoin.state.sorted_runs import CompactionPolicy

GOALS = ("throughput", "memory", "punctuation")
_STRATEGIES: dict[str, dict[str, Any]] = {
    "driver": {
        "round_robin": RoundRobin,
        "random": RandomInput,
        "priority": Priority,
        "follow_clusters": FollowClusters,
        "timestamp": Timestamp,
        "consumption_rate": ConsumptionRate,
        "initial_output": InitialOutput,
        "output_rate": OutputRate,
        "adaptive": Adaptive,
    },
    "order": {"sequential": Sequential, "value_oriented": ValueOriented},
    "purge": {
        "immediate": PurgeImmediately,
        "batch": lambda: PurgeEvery(1000, when_idle=True),
        "idle": lambda: PurgeEvery(when_idle=True),
        "none": NoPurge,
    },
    "probe": {"most_selective": MostSelectiveFirst, "fewest_rows": FewestRowsFirst},
}
_OUTPUTS = {"keys": ("once", "each"), "names": ("short", "qualified")}
_VERBS = {"driver": "choose", "order": "urgent", "purge": "due", "probe": "sequence"}
_IN_WORDS: dict[type, str] = {
    RoundRobin: "each input in turn",
    Priority: "the unique or smaller input first, so many rows at a time",
    Timestamp: "tuples in the order of their event times",
    FollowClusters: "an input goes on while its cluster of one key lasts",
    Sequential: "rows as they came",
    ValueOriented: "keys that another input has closed first",
    PurgeImmediately: "punctuations are applied at once",
    NoPurge: "punctuations purge nothing",
}
_MJOIN_KEYS = 100  # unpurged punctuations at most, as in the experiments of the paper
_FEW_ROWS = 100  # at a time in the order of event time, where memory counts more than time
_TURNS = 64  # of a batch at most in that order: what is stored beyond the windows is a 64th of its rows
_MEMORY_TOMBSTONE_SHARE = 0.15  # of a run before compaction: 1 / (1 - 0.15) = 1.18 times its live rows


@dataclass(frozen=True)
class JoinOptions:
    """The keywords of the join itself; None means: the planner chooses."""

    name: Any = "join"
    how: str = "inner"
    where: Any = None
    goal: str = "throughput"
    operator: str | None = None
    driver: Any = None
    order: Any = None
    purge: Any = None
    probe: Any = None
    memory: Any = None
    propagate: bool = True
    buckets: Any = None
    strict: bool = False
    keys: str = "once"
    names: str = "short"
    null_safe: bool = False
    zoned: bool = False  # some event time of a larger join is an instant: all are read as instants


@dataclass(frozen=True)
class OperatorColumns:
    """The result columns of a join that is one operator of a join without one common key."""

    names: tuple[str, ...]  # of key, then payloads
    stamps: tuple[str, ...] = ()
    shown: tuple[str, ...] | None = None
    qualified: Mapping[tuple[str, str], str] = field(default_factory=dict)  # the column of `input.column`


@dataclass(frozen=True)
class Plan:
    """A join ready to run: its operator's specification, why it is so, and what bounds its state."""

    streams: tuple[Stream, ...]
    options: JoinOptions
    spec: JoinSpec
    reasons: tuple[tuple[str, str], ...]
    bounds: tuple[Bound, ...]
    filter_on_spark: str | None = None  # SQL that only Spark can test, on rows that leave
    steps: tuple[str, ...] = ()  # of a join of several operators: which, in which order, and why


def plan_join(
    streams: Sequence[Stream], options: JoinOptions, columns: OperatorColumns | None = None
) -> Plan:
    """Check the join and choose how it runs; one operator of several gets the `columns` it emits."""
    check_options(options)
    check_streams(streams)
    how = join_type(options.how, len(streams))
    streams = _as_joined(streams, options, how)
    _check_widths(streams)
    check_chain(streams, options.name)
    check_times(streams)
    if options.operator is not None:
        streams = as_known(streams, options.operator)
    width = len(streams[0].key)
    key_types = tuple(
        common_type(
            [s.name for s in streams], [s.key[i] for s in streams], [s.type_of(s.key[i]) for s in streams]
        )
        for i in range(width)
    )
    for stream in streams:
        _check_kept_apart(stream, streams, key_types)
        if stream.punctuation is not None:
            stream.punctuation.check_key_types(stream, key_types)
    timed = any(stream.window_us is not None for stream in streams)
    inputs = tuple(_input_spec(stream, key_types, timed=timed) for stream in streams)
    seen = streams if how.combinations or options.where is not None else streams[:1]
    asked = {"own_keys": options.keys == "each", "qualified": options.names == "qualified"}
    joined = (
        joined_schema(seen, key_types, **asked)
        if columns is None
        else stamped_schema(streams, key_types, columns)
    )
    conditions = _conditions(streams, options, joined, columns)
    inputs = _with_ranges(inputs, conditions)
    within = _evicts_within(inputs, options)
    strategies, reasons = _choose_strategies(streams, options, within=within)
    _check_driver(streams, strategies.driver)
    compaction = CompactionPolicy(
        tombstone_share=_MEMORY_TOMBSTONE_SHARE if options.goal == "memory" else 0.5
    )
    spec = JoinSpec(
        options.name,
        inputs,
        joined if how.combinations else joined_schema(streams[:1], key_types, **asked),
        how,
        conditions.where,
        strategies,
        compaction,
        propagate=options.propagate,
        null_safe=options.null_safe,
        own_keys=options.keys == "each",
        filter=conditions.on_spark,
        zone=_zone(streams, key_types),
        stamps=() if columns is None else columns.stamps,
        evicts_within=within,
        purges_whole=options.operator in ("mjoin_1np", "mjoin_1nc"),
        remembers_closed_keys=options.operator == "pwjoin",
        shown=None if columns is None else columns.shown,
    )
    purges = not isinstance(strategies.purge, NoPurge)
    bounds = check(streams, conditions.ranges_us, purges=purges, forgets=spec.forgets_closed_keys)
    growing = warning_text(bounds) if options.strict else None
    if growing is not None:
        raise InvalidJoin(f"{growing}. Or leave strict=True out, to be warned only")
    return Plan(
        tuple(streams),
        options,
        within_memory(spec),
        tuple(reasons),
        tuple(bounds),
        conditions.on_spark,
    )


def _check_kept_apart(stream: Stream, streams: Sequence[Stream], key_types: Sequence[pa.DataType]) -> None:
    """Refuse what is declared of keys where widening makes one key of two."""
    closing = closes_keys(stream)
    for i, (column, dtype) in enumerate(zip(stream.key, key_types, strict=True)):
        own = plain(stream.type_of(column))
        if closing is None or keeps_apart(own, dtype):
            continue
        others = ", ".join(
            f"{one.name}.{one.key[i]}" for one in streams if plain(one.type_of(one.key[i])) != own
        )
        raise InvalidJoin(
            f"{stream.name}.{column} is {own} and compared as {dtype} with {others}, as Spark does; two "
            f"of its keys may be one there, and {closing} would close both; cast {stream.name}.{column} "
            f"to {dtype} if that is meant, or {others} to {own}"
        )


def check_options(options: JoinOptions) -> None:
    """Refuse keywords of the join that cannot be meant."""
    if options.goal not in GOALS:
        raise InvalidJoin(f"goal={options.goal!r}; give one of {', '.join(GOALS)}")
    if options.buckets is not None:
        check_number(options.buckets, "buckets")
    if not isinstance(options.strict, bool):
        raise InvalidJoin(
            f"strict={options.strict!r}; give True to refuse a join whose state is not bounded, or False"
        )
    for what, choices in _OUTPUTS.items():
        if getattr(options, what) not in choices:
            raise InvalidJoin(f"{what}={getattr(options, what)!r}; give {' or '.join(map(repr, choices))}")
    if not isinstance(options.null_safe, bool):
        raise InvalidJoin(
            f"null_safe={options.null_safe!r}; give True where null keys equal each other, or False"
        )
    check_flag(options.propagate, "propagate")
    if not isinstance(options.name, str) or not options.name.isidentifier():
        raise InvalidJoin(f"name={options.name!r}; give a name of letters, digits and _")


def _as_joined(streams: Sequence[Stream], options: JoinOptions, how: JoinType) -> Sequence[Stream]:
    """The inputs in the order in which the operator takes them, and what the join says of their keys."""
    if how.reversed:
        streams = streams[::-1]
    if not options.null_safe:
        return streams
    ordered = [stream.name for stream in streams if stream.arrival is not None]
    if ordered:
        raise InvalidJoin(
            f"null_safe=True joins null keys, and arrival= on {', '.join(ordered)} says nothing of them; "
            "leave out one of them"
        )
    return [replace(stream, null_safe=True) for stream in streams]


def stamped_schema(
    streams: Sequence[Stream], key_types: Sequence[pa.DataType], columns: OperatorColumns
) -> pa.Schema:
    """The columns of an operator's results under the names that the larger join gives them."""
    types = [*key_types, *(plain(one.type_of(name)) for one in streams for name in one.payload)]
    names = (*columns.names, *columns.stamps)
    return pa.schema(zip(names, [*types, *(pa.int64() for _ in columns.stamps)], strict=True))


def _conditions(
    streams: Sequence[Stream], options: JoinOptions, joined: pa.Schema, columns: OperatorColumns | None
) -> Conditions:
    """What `where=` asks, over the columns of a joined row."""
    by_time = options.operator is None or "window" in preset(options.operator).knows
    qualified = {} if columns is None else columns.qualified
    own_keys = options.keys == "each"
    found = joined_columns(streams, joined, qualified, by_time=by_time, own_keys=own_keys)
    on_spark = any(stream.source is not None for stream in streams)
    inner = join_type(options.how, len(streams)) is INNER
    return read_conditions(options.where, found, spark_may_filter=on_spark and inner)


def _with_ranges(inputs: tuple[InputSpec, ...], conditions: Conditions) -> tuple[InputSpec, ...]:
    return tuple(
        replace(one, ranges_us=ranges) if any(each is not None for each in ranges) else one
        for one, ranges in zip(inputs, conditions.ranges_us, strict=True)
    )


def check_streams(streams: Sequence[Stream]) -> None:
    """Whether they can be inputs of one join."""
    if len(streams) < 2:
        raise InvalidJoin(
            f"a join needs at least two inputs, this one has {len(streams)}; add another stream"
        )
    for stream in streams:
        if not isinstance(stream, Stream):
            given = repr(stream) if isinstance(stream, str) else f"a {type(stream).__name__}"
            raise InvalidJoin(f"{given} is not a stream; wrap it with sj.stream(…, name=…, key=…)")
        if stream.arrival is not None:
            _check_arrival(stream, stream.arrival)
    names = [stream.name for stream in streams]
    if len(set(names)) != len(names):
        raise InvalidJoin(
            f"two inputs have the same name ({', '.join(names)}); give each stream its own name, also "
            "where a source is joined with itself: declare it once for each name"
        )


def _check_arrival(stream: Stream, arrival: Arrival) -> None:
    partitions = 1 if stream.punctuation is None else stream.punctuation.partitions
    if partitions > 1:
        raise InvalidJoin(
            f"stream {stream.name!r}: arrival= means that a key's tuples come through one partition, "
            f"marked(partitions={partitions}) that they come through several; leave out one of them"
        )
    arrival.check(stream)


def _check_widths(streams: Sequence[Stream]) -> None:
    widths = {len(stream.key) for stream in streams}
    if len(widths) > 1:
        listed = "; ".join(f"{stream.name}: {', '.join(stream.key)}" for stream in streams)
        raise InvalidJoin(f"inputs have keys of different width ({listed}); name as many columns each")


def check_times(streams: Sequence[Stream]) -> None:
    """Whether a window can be tested: it needs an event time and a lateness on every input."""
    windows = [stream for stream in streams if stream.window_us is not None]
    if not windows:
        return
    for stream in streams:
        if stream.time is None:
            raise InvalidJoin(
                f"{windows[0].name} has a window, so every input needs an event time: "
                f"add time= to {stream.name}"
            )
        upstream = stream.upstream
        if upstream is not None and upstream.time is not None:
            check_window_above(stream, upstream, windows[0].name)
        if stream.lateness_us is None:
            raise InvalidJoin(
                f"{windows[0].name} has a window, so every input needs a lateness: "
                f'add lateness="0 seconds" (or how late its rows may be) to {stream.name}'
            )


def _check_driver(streams: Sequence[Stream], driver: Any) -> None:
    without = [stream.name for stream in streams if stream.time is None]
    if isinstance(driver, Timestamp) and without:
        raise InvalidJoin(
            f"driver={driver.name!r} takes rows in the order of their event times: add time= to "
            f"{', '.join(without)}, or choose another driver"
        )


def _input_spec(stream: Stream, key_types: tuple[Any, ...], *, timed: bool) -> InputSpec:
    payload_types = tuple(plain(stream.type_of(name)) for name in stream.payload)
    partitions = 1 if stream.punctuation is None else stream.punctuation.partitions
    return InputSpec(
        stream.name,
        Layout(key_types, timed or stream.time is not None, payload_types, until=len(stream.stamps) == 2),
        (*stream.key, *stream.payload),
        window_us=stream.window_us,
        lateness_us=stream.lateness_us or 0,
        sent_watermark=bool(stream.stamps) or _is_sent_watermark(stream),
        idle_us=stream.idle_us,
        unique=stream.unique,
        partitions=partitions if stream.upstream is None else stream.upstream.buckets,
        on_violation=stream.on_violation,
        ttl_us=stream.ttl_us,
        arrival=stream.arrival,
        partitioned=stream.arrival is not None and len(stream.sequence) == 2,
        uses_punctuations=stream.uses_punctuations,
        closes=closes_keys(stream),
        forwarded=tuple(stream.payload.index(name) for name in stream.forwarded),
        later=tuple(
            tuple((*stream.key, *stream.forwarded).index(name) for name in names)
            for names in stream.later_keys
        ),
        origins=origins(stream),
        fed_by=None if stream.upstream is None else stream.upstream.join,
        time=None if stream.time is None else "stamps" if stream.stamps else origin(stream, stream.time),
    )


def _is_sent_watermark(stream: Stream) -> bool:
    time = None if stream.upstream is None else stream.upstream.time
    return time is not None and time.watermark


def _evicts_within(inputs: Sequence[InputSpec], options: JoinOptions) -> bool:
    """Whether windows evict while a batch is at work: where memory is what counts, and in PWJoin."""
    windowed = any(one.span_to(m) is not None for i, one in enumerate(inputs) for m in _others(inputs, i))
    return windowed and (
        options.operator == "pwjoin" or options.goal == "memory" or options.memory is not None
    )


def _others(inputs: Sequence[InputSpec], i: int) -> list[int]:
    return [m for m in range(len(inputs)) if m != i]


def _zone(streams: Sequence[Stream], key_types: Sequence[pa.DataType]) -> str | None:
    """The zone in which some times become instants: local event times beside instants, dates as keys."""
    times = [one.type_of(one.time) for one in streams if one.time is not None and not one.stamps]
    times += [one.control.type_of(one.control.time) for one in streams if one.control is not None]
    keys = [
        (plain(one.type_of(name)), wide)
        for one in streams
        for name, wide in zip(one.key, key_types, strict=True)
    ]
    zones = [dtype.tz for dtype in times if pa.types.is_timestamp(dtype) and dtype.tz is not None]
    local = len(zones) not in (0, len(times))
    zones = zones if local else []
    zones += [
        wide.tz for own, wide in keys if pa.types.is_date(own) and pa.types.is_timestamp(wide) and wide.tz
    ]
    return zones[0] if zones else None


def _choose_strategies(
    streams: Sequence[Stream], options: JoinOptions, *, within: bool
) -> tuple[Strategies, list[tuple[str, str]]]:
    """Each strategy and why: as asked, else as the preset has it, else as the goal wants it."""
    wanted = _for_goal(streams, options.goal)
    if options.operator is not None:
        chosen_preset = preset(options.operator)
        for seam in ("driver", "order", "purge"):
            strategy = getattr(chosen_preset, seam)
            if isinstance(strategy, Timestamp) and any(stream.time is None for stream in streams):
                continue  # without event times there is no order of them
            wanted[seam] = strategy, f"as {options.operator} does: {_IN_WORDS[type(strategy)]}"
        if options.operator == "mjoin_1np" and options.goal == "throughput":
            says = f"every {_MJOIN_KEYS} punctuations, across batches; what they propagate waits too"
            wanted["purge"] = PurgeEvery(_MJOIN_KEYS), f"as {options.operator} does for throughput: {says}"
    if within and _works_by_time(streams, options):
        wanted["driver"] = _by_time(options)
    chosen: dict[str, Any] = {}
    why = []
    for seam in _STRATEGIES:
        asked = getattr(options, seam)
        chosen[seam], reason = wanted[seam] if asked is None else (_asked_for(seam, asked), "as you asked")
        if getattr(chosen[seam], "selectivities", None):
            reason += "; by the selectivities you declared"
        elif getattr(chosen[seam], "needs_selectivities", False):
            reason += "; until selectivities are measured, each input in turn"
        why.append((f"{seam}: {chosen[seam].name}", reason))
    for_inputs = getattr(chosen["driver"], "for_inputs", None)
    if for_inputs is not None:
        chosen["driver"] = for_inputs([stream.name for stream in streams])
    spill, way, reason = _spill(options)
    why.append((f"memory: {way}", reason))
    return Strategies(**chosen, spill=spill), why


def _works_by_time(streams: Sequence[Stream], options: JoinOptions) -> bool:
    """Whether rows are taken in the order of event time: where all inputs have windows, and no preset says
    otherwise.
    """
    if any(stream.time is None or stream.on_violation == "keep" for stream in streams):
        return False
    return options.operator is None and all(stream.window_us is not None for stream in streams)


def _by_time(options: JoinOptions) -> tuple[Timestamp, str]:
    """Rows in the order of their times, so that windows evict while a batch is at work."""
    says = "in the order of event time: windows evict while a batch is at work"
    if options.goal != "memory":
        return Timestamp(turns=_TURNS), f"rows {says}"
    return Timestamp(_FEW_ROWS, turns=_TURNS), f"few rows at a time, {says}"


def _spill(options: JoinOptions) -> tuple[KeepInMemory | SpillAbove, str, str]:
    """What part of the state is in memory, in words, and why."""
    given = options.memory
    if given is None:
        return KeepInMemory(), "all state", "no limit was given"
    spill = given if isinstance(given, SpillAbove) else SpillAbove(given, defer=options.operator == "xjoin")
    check_share(spill.limit_bytes, options.buckets or 1)
    way = f"{spill.limit_bytes / (1 << 20):g} MB, the {spill.flush} runs are spilled first"
    if spill.defer and options.how == "inner":
        return spill, way, "spilled runs are joined when inputs are blocked; on Spark within each batch"
    return spill, way, "spilled runs are read one by one in every batch: the answer stays exact"


def _for_goal(streams: Sequence[Stream], goal: str) -> dict[str, tuple[Any, str]]:
    driver: tuple[Any, str]
    if any(stream.unique for stream in streams):
        driver = (
            Priority(),
            "the unique input first: rows of the others meet their partner and are not stored",
        )
    elif goal == "memory":
        driver = Priority(), "the smaller input first: less is stored before its partners come"
    elif len(streams) > 2:
        driver = Adaptive(), "the order of buffers that needs the fewest lookups, as measured while it runs"
    else:
        driver = RoundRobin(), "whole buffers in the declared order: one probe per input and batch"
    order: tuple[Any, str] = Sequential(), "rows as they came: nothing asks for another order"
    if goal == "punctuation":
        order = ValueOriented(), "keys that another input has closed first: they finish earlier"
    at_once = "punctuations are applied at once: least state, earliest propagation"
    selective = "the input first that leaves the fewest partial results, as measured while it runs"
    return {
        "driver": driver,
        "order": order,
        "purge": (PurgeImmediately(), at_once),
        "probe": (MostSelectiveFirst(), selective),
    }


def _asked_for(seam: str, asked: Any) -> Any:
    known = _STRATEGIES[seam]
    if isinstance(asked, str):
        if asked not in known:
            raise InvalidJoin(f"{seam}={asked!r} is not known; give one of {', '.join(known)}")
        return known[asked]()
    if isinstance(asked, type) or not callable(getattr(asked, _VERBS[seam], None)):
        raise InvalidJoin(
            f"{seam}={asked!r} is no {seam} strategy; give one of {', '.join(known)}, "
            f"or an object with a method {_VERBS[seam]}"
        )
    return asked
