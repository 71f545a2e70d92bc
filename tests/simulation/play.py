"""A script carried out by the library: declarations become streams, rows become Arrow tables.

`Player` does one operation at a time and hands back what the library gave, in the order in which
the operator emitted it: results and propagated keys are told apart only there.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import streamjoin as sj
from streamjoin.columnar.keys import hash_keys
from streamjoin.declare.stream import Stream
from streamjoin.join.outputs import FinishedKeys, FinishedPatterns, Output, Results
from streamjoin.join.persistence.snapshot import json_parts
from streamjoin.join.strategies.spill import SpillAbove
from streamjoin.local.join import LocalRun
from streamjoin.plan.planner import Plan
from streamjoin.punctuation import Empty, Enumeration
from streamjoin.punctuation import pattern as as_pattern
from streamjoin.state.sorted_runs import CompactionPolicy
from tests.simulation.script import (
    Advance,
    Between,
    Control,
    End,
    Eq,
    Finish,
    In,
    Input,
    Nothing,
    Operation,
    Pattern,
    Punctuate,
    Push,
    Restart,
    Row,
    Script,
    Settings,
    Star,
    instant,
    rank,
    unit_of,
)

TYPES: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint32": pa.uint32(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "large_string": pa.large_string(),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
    "binary": pa.binary(),
    "date": pa.date32(),
    "seconds": pa.timestamp("s"),
    "millis": pa.timestamp("ms"),
    "micros": pa.timestamp("us"),
    "nanos": pa.timestamp("ns"),
    "utc": pa.timestamp("us", "UTC"),
    "berlin": pa.timestamp("ms", "Europe/Berlin"),
    "decimal2": pa.decimal128(10, 2),
    "decimal4": pa.decimal128(12, 4),
}
NAMES = ("left", "right", "third", "fourth", "fifth", "sixth")
PURGES = {
    "few": sj.PurgeEvery(2),
    "idle": sj.PurgeEvery(when_idle=True),
    "memory": sj.PurgeEvery(memory=200),
    "none": sj.NoPurge(),
}
_IDS = pc.bit_wise_xor(pc.field("left_id"), pc.field("right_id"))
_WHERE = pc.not_equal(pc.bit_wise_and(_IDS, pc.scalar(3)), pc.scalar(0))  # as `passes` says


def key_names(number: int, width: int) -> list[str]:
    """Key columns have other names on every second input: they are matched by position."""
    return [f"{'kj'[number % 2]}{i}" for i in range(width)]


def _stream(number: int, declared: Input, settings: Settings) -> Stream:
    keys = key_names(number, len(declared.types))
    columns = [("x", TYPES[declared.x]), *zip(keys, map(TYPES.get, declared.types), strict=True)]
    if declared.time is not None:
        columns.append(("t", TYPES[declared.time]))
    columns.append(("id", pa.int64()))
    if declared.punctuation is not None:
        columns.append(("flag", pa.bool_()))
    sequence = ["part", "off"][2 - declared.sequence :]
    columns += [(name, pa.int64()) for name in sequence]

    def duration(units: int | None) -> Any:
        return None if units is None else units * unit_of(settings)

    arrival = None
    if declared.clustered is not None:
        arrival = sj.clustered(slack=declared.clustered)
    elif declared.ordered is not None:
        arrival = sj.ordered(descending=declared.descending, slack=declared.ordered)
    source: Any = None
    if declared.punctuation == "marked":
        source = sj.marked("flag", null_is_wildcard=declared.wildcard, partitions=declared.partitions)
    elif declared.punctuation == "closing":
        source = sj.closing("flag")
    elif declared.control:
        source = sj.control(_control_schema(keys, declared), time="over")
    return sj.stream(
        pa.schema(columns),
        name=NAMES[number],
        key=keys,
        time=None if declared.time is None else "t",
        window=duration(declared.window),
        lateness=duration(declared.lateness),
        idle=duration(declared.idle),
        unique=declared.unique,
        arrival=arrival,
        sequence=sequence or None,
        punctuation=source,
        on_violation=declared.on_violation,  # type: ignore[arg-type]
        ttl=duration(declared.ttl),
    )


class Followed:
    """A driver, and what it has chosen: the model follows it, it does not check it."""

    def __init__(self, driver: Any, chosen: list[tuple[int, int]]) -> None:
        self.driver, self.chosen = driver, chosen

    def choose(self, *seen: Any) -> tuple[int, int]:
        self.chosen.append(self.driver.choose(*seen))
        return self.chosen[-1]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.driver, name)
        return (lambda queues: Followed(found(queues), self.chosen)) if name == "for_batch" else found


def driver(settings: Settings) -> Any:
    """The driver of a script."""
    kinds = {
        "round_robin": sj.RoundRobin,
        "random": sj.RandomInput,
        "priority": sj.Priority,
        "clusters": sj.FollowClusters,
        "timestamp": sj.Timestamp,
        "consumption_rate": sj.ConsumptionRate,
        "initial_output": sj.InitialOutput,
        "output_rate": sj.OutputRate,
        "adaptive": sj.Adaptive,
    }
    kind = kinds[settings.driver]
    return kind() if kind is sj.Timestamp and settings.quota is None else kind(settings.quota)


def _control_schema(keys: list[str], declared: Input) -> pa.Schema:
    """Columns of a control source; lists of dictionaries are nothing that Arrow makes from Python."""
    columns: list[tuple[str, pa.DataType]] = [("over", TYPES[declared.time or "micros"])]
    for name, type_, form in zip(keys, declared.types, declared.control, strict=True):
        dtype = pa.string() if type_ == "dictionary" else TYPES[type_]
        if form == "range":
            columns += [(f"{name}_from", dtype), (f"{name}_to", dtype)]
        else:
            columns.append((name, pa.list_(dtype) if form == "list" else dtype))
    return pa.schema(columns)


def _purge(settings: Settings) -> Any:
    """The purge strategy; MJoin's own one is to wait, which the model does not know."""
    if settings.purge != "immediate":
        return PURGES[settings.purge]
    return "immediate" if settings.operator == "mjoin_1np" else None


def plan(script: Script) -> Plan:
    """The planned join, with the script's settings put in."""
    settings = script.settings
    streams = [_stream(i, declared, settings) for i, declared in enumerate(script.inputs)]
    joined = sj.join(
        *streams,
        how=settings.how,
        where=_WHERE if settings.where else None,
        driver=driver(settings),
        order=settings.order,
        probe=settings.probe,
        operator=settings.operator,
        purge=_purge(settings),
        propagate=settings.propagate,
    )
    if settings.group:
        ids = {f"ids{i}": (name, "collect") for i, name in enumerate(id_names(script))}
        joined = joined.group_by(*joined.plan.spec.key_names).agg(n=("*", "count"), **ids)
    planned = joined.plan
    compaction = CompactionPolicy(
        settings.fanout, settings.run_bytes, settings.tombstone_share, settings.smallest_class_rows
    )
    chosen = planned.spec.strategies
    followed = dataclasses.replace(chosen, driver=Followed(chosen.driver, []))
    spec = dataclasses.replace(
        planned.spec,
        compaction=compaction,
        frame_rows=settings.frame_rows,
        strategies=followed,
        evicts_within=settings.within,
    )
    if settings.memory is not None:
        spill = SpillAbove(settings.memory, defer=settings.defer)
        spec = dataclasses.replace(spec, strategies=dataclasses.replace(spec.strategies, spill=spill))
    return dataclasses.replace(planned, spec=spec)


def id_names(script: Script) -> list[str]:
    """The result columns with the ids of its components; of some joins only the left's leave."""
    if script.settings.forgets_matched:
        return ["id"]
    return [f"{name}_id" for name in NAMES[: len(script.inputs)]]


def table(stream: Stream, rows: Iterable[Row], settings: Settings) -> pa.Table:
    """Rows as a user would push them."""
    rows = list(rows)
    columns: dict[str, list[Any]] = {
        "x": [row.x for row in rows],
        "t": [None if row.t is None else instant(settings, row.t) for row in rows],
        "id": [row.id for row in rows],
        "flag": [row.flag for row in rows],
        "part": [row.partition for row in rows],
        "off": [row.offset for row in rows],
    }
    for i, name in enumerate(stream.key):
        columns[name] = [row.key[i] for row in rows]
    arrays = [pa.array(columns[field.name], field.type) for field in stream.schema]
    return pa.table(arrays, schema=stream.schema)


def weak_hash(keys: Any) -> Any:
    """A hash with four values, so that keys collide all the time."""
    return hash_keys(keys) & 3


@cache
def hash_function(weak: bool) -> Callable[[Any], Any]:
    return weak_hash if weak else hash_keys


class _Watched(LocalRun):
    """A run that remembers the order of what its operator emitted in the last call."""

    emitted: list[Output]

    def _sorted_out(self, outputs: Iterable[Output]) -> list[pa.RecordBatch]:
        self.emitted = list(outputs)
        return super()._sorted_out(self.emitted)


@dataclass
class Emitted:
    """What one operation gave. Events are ("row", key, ids, xs), ("over", key) or, of a range or a pattern,
    ("wide", punctuation), as emitted; of a join that is grouped ("group", key, count, ids of each component)
    in place of rows."""

    events: list[tuple[Any, ...]] = field(default_factory=list)
    violations: list[tuple[int, str, bool, int]] = field(default_factory=list)
    restored_as_it_was: bool = True
    turns: list[tuple[int, int]] = field(default_factory=list)  # which input, and how many rows at most


class Player:
    """The library at work on one script."""

    def __init__(self, script: Script) -> None:
        self.script, self.settings = script, script.settings
        self.plan = plan(script)
        self.keys = len(script.inputs[0].types)
        names = self.plan.spec.output.names
        self.ids = [names.index(name) for name in id_names(script)]
        self.xs = [names.index(name.removesuffix("id") + "x") for name in id_names(script)]
        self.run = self._start(None)

    def _start(self, snapshot: bytes | None) -> _Watched:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", sj.UnboundedState)
            return _Watched(
                self.plan, snapshot=snapshot, hash_function=hash_function(self.settings.weak_hash)
            )

    def do(self, operation: Operation) -> Emitted:
        """Carry out one operation."""
        run = self.run
        run.emitted = []
        driver = self.plan.spec.strategies.driver
        assert isinstance(driver, Followed)
        driver.chosen.clear()
        emitted = Emitted(turns=driver.chosen)
        if isinstance(operation, Push):
            tables = {
                NAMES[i]: table(self.plan.streams[i], rows, self.settings)
                for i, rows in operation.rows.items()
            }
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", sj.DataInControlRow)  # every row has an id
                if len(tables) == 1:
                    run.push(*tables.popitem())
                else:
                    run.step(tables)
        elif isinstance(operation, Punctuate):
            self._punctuate(operation)
        elif isinstance(operation, Control):
            run.control(NAMES[operation.input], self._control_table(operation))
        elif isinstance(operation, Advance):
            run.advance(NAMES[operation.input], instant(self.settings, operation.t))
        elif isinstance(operation, End):
            run.end(NAMES[operation.input])
        elif isinstance(operation, Finish):
            run.finish()
        else:
            assert isinstance(operation, Restart)
            snapshot = run.snapshot()
            self.run = self._start(snapshot)
            emitted.restored_as_it_was = _known(self.run) == _known(run)
        self._collect(run, emitted)
        return emitted

    def _punctuate(self, operation: Punctuate) -> None:
        stream = self.plan.streams[operation.input]
        given = operation.patterns
        if operation.form != "key":  # scripts speak of the widened types; an input's own are as good
            types = self.script.inputs[operation.input].types
            given = tuple(own(pattern, dtype) for pattern, dtype in zip(given, types, strict=True))
        patterns = dict(zip(stream.key, map(library_pattern, given), strict=True))
        if operation.form == "key":
            self.run.punctuate(stream.name, **patterns)
            return
        whole = dict.fromkeys(stream.schema.names, as_pattern(sj.ANY))
        whole |= {name: as_pattern(given) for name, given in patterns.items()}
        if operation.form == "partial":
            whole["id"] = as_pattern(1)
        self.run.punctuate(stream.name, sj.Punctuation(tuple(whole.values())))

    def _control_table(self, operation: Control) -> pa.Table:
        stream = self.plan.streams[operation.input]
        declared = self.script.inputs[operation.input]
        assert isinstance(stream.punctuation, sj.declare.stream.Control)
        rows = []
        for patterns, t in operation.punctuations:
            row: dict[str, Any] = {"over": instant(self.settings, t)}
            for name, dtype, pattern in zip(stream.key, declared.types, patterns, strict=True):
                given = own(pattern, dtype)
                if isinstance(given, Between):
                    row |= {f"{name}_from": given.low, f"{name}_to": given.high}
                elif not isinstance(given, Star):
                    row[name] = given.value if isinstance(given, Eq) else list(given.values)  # type: ignore[union-attr]
            rows.append(row)
        return pa.Table.from_pylist(rows, schema=stream.punctuation.columns)

    def _collect(self, run: _Watched, emitted: Emitted) -> None:
        for output in run.emitted:
            if isinstance(output, Results):
                columns = [column.to_pylist() for column in output.rows.columns]
                for row in zip(*columns, strict=True):
                    if self.settings.group:
                        count, *lists = row[self.keys :]
                        emitted.events.append(("group", normal(row[: self.keys]), count, lists))
                        continue
                    ids, xs = tuple(row[i] for i in self.ids), tuple(row[i] for i in self.xs)
                    emitted.events.append(("row", normal(row[: self.keys]), ids, xs))
            elif isinstance(output, FinishedKeys):
                for key in zip(*(column.to_pylist() for column in output.keys.keys), strict=True):
                    emitted.events.append(("over", normal(key)))
            elif isinstance(output, FinishedPatterns):
                emitted.events += [("wide", sj.Punctuation(patterns)) for patterns in output.patterns]
        run.punctuations()
        for violation in run.violations():
            number = NAMES.index(violation["stream"])
            row = violation["row"]
            emitted.violations.append((number, violation["reason"], violation["kept"], row["id"]))

    def live_ids(self, number: int) -> list[int]:
        """The ids of the rows an input holds, ascending."""
        payload = self.plan.streams[number].payload.index("id")
        parts = [
            run.batch.payload[payload].to_numpy()[run.live_mask()] for run in self.run.join.sides[number].runs
        ]
        return sorted(np.concatenate(parts).tolist()) if parts else []

    def groups(self) -> set[tuple[Any, ...]]:
        """The keys with groups that are not final yet."""
        if self.run.join.groups is None:
            return set()
        found = set()
        for side in self.run.join.groups.sides:
            columns = [column.to_pylist() for column in side.live().keys]
            found |= {normal(key) for key in zip(*columns, strict=True)}
        return found

    def remembered(self, number: int) -> tuple[int, int, int, int]:
        """Single keys that an input has closed, seen and partially closed; its scheduled punctuations."""
        state = self.run.join.state
        closed_keys = state.closed_keys[number]
        known = len(closed_keys.constants), len(closed_keys.seen), len(state.partial_punctuations[number])
        return *known, len(state.scheduled[number])


def _known(run: LocalRun) -> list[Any]:
    """What a restored run must know again, beside its rows (which are checked after every operation)."""
    followers = [follower for follower in run.join.followers if follower is not None]
    followed = [(repr(each.state().to_pylist()), each.widest_slack) for each in followers]
    counted = [intake.arrived for intake in run._intakes]
    parts = {name: part for name, part in json_parts(run.join).items() if "arrival_order" not in name}
    summary = run.state()
    return [parts, followed, counted, summary.rows, summary.closed_keys, summary.deferred, summary.groups]


def normal(key: Iterable[Any]) -> tuple[Any, ...]:
    """A key as the model has it."""
    return tuple(map(rank, key))


def speaks_of(punctuation: sj.Punctuation, key: Iterable[Any]) -> bool:
    """Whether a punctuation of the library matches a key of the model."""
    return punctuation.matches([{-1: None, 0: value, 1: float("nan")}[kind] for kind, value in key])


def own(pattern: Pattern, dtype: str) -> Pattern:
    """The same pattern with values as an input's own type has them; scripts speak of the widened one."""

    def value(given: Any) -> Any:
        if given is None:
            return None
        if "int" in dtype:
            return int(given)
        return given.date() if dtype == "date" and isinstance(given, datetime) else given

    if isinstance(pattern, Eq):
        return Eq(value(pattern.value))
    if isinstance(pattern, In):
        return In(tuple(map(value, pattern.values)))
    if isinstance(pattern, Between):
        return pattern._replace(low=value(pattern.low), high=value(pattern.high))
    return pattern


def library_pattern(pattern: Pattern) -> Any:
    """What a user gives for a pattern: a value, a list, between, ANY."""
    if isinstance(pattern, Eq):
        return pattern.value
    if isinstance(pattern, In):
        return Enumeration(pattern.values)
    if isinstance(pattern, Between):
        closed = {"low_closed": pattern.low_closed, "high_closed": pattern.high_closed}
        return sj.between(pattern.low, pattern.high, **closed)
    return Empty() if isinstance(pattern, Nothing) else sj.ANY
