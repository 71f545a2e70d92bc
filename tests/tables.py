"""Tables as text, and runs that are told as stories.

A table is a header and rows of words: `"sno title\\n79 Cashless"`. A dash is a null. A number under a
timestamp column is seconds after the epoch, so a story can say "at 10, at 14" and mean it.

A `Story` is a `LocalRun` that takes such text and gives sorted tuples, so that a test reads as a
table with time in it. It can be told in several ways (`WAYS`): straight through; stopped and restored
before every step; with one hash for all keys; with runs of a few bytes; with all runs outside memory.
What happens must be the same.

    >>> rows(table(pa.schema({"sno": pa.int64(), "title": pa.string()}), "sno title\\n79 Cashless"))
    [(79, 'Cashless')]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.columnar.batch import Batch, Layout
from streamjoin.columnar.keys import hash_keys
from streamjoin.local.chain import run_class
from streamjoin.plan.chain import all_streams
from streamjoin.plan.planner import Plan
from streamjoin.state.sorted_runs import CompactionPolicy

NOTHING: list[Any] = []
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# For stories that are about something else than the bound of their state.
unbounded_is_meant = pytest.mark.filterwarnings("ignore::streamjoin.UnboundedState")


class _Empty:
    """Equal to the state of a run that holds nothing."""

    def __eq__(self, other: object) -> bool:
        return bool(getattr(other, "empty", False))

    def __repr__(self) -> str:
        return "EMPTY"


EMPTY = _Empty()


# ---------------------------------------------------------------- text to Arrow and back


def at(seconds: float, zone: str | None = None) -> datetime:
    """The time a story calls by its second."""
    moment = EPOCH + timedelta(seconds=seconds)
    return moment if zone else moment.replace(tzinfo=None)


def _value(word: str, dtype: pa.DataType) -> Any:
    if word == "-":
        return None
    if pa.types.is_list(dtype):
        return [_value(each, dtype.value_type) for each in word.strip("{}").split(",") if each]
    if pa.types.is_boolean(dtype):
        return {"true": True, "false": False}[word]
    if pa.types.is_timestamp(dtype):
        return at(float(word), dtype.tz)
    readers = {
        pa.types.is_integer: int,
        pa.types.is_floating: float,
        pa.types.is_date: date.fromisoformat,
        pa.types.is_decimal: Decimal,
        pa.types.is_binary: str.encode,
    }
    return next((read for holds, read in readers.items() if holds(dtype)), str)(word)


def table(schema: pa.Schema, text: str) -> pa.Table:
    """The rows under the header; columns of the schema that the header leaves out are null."""
    head, *lines = [line.split() for line in text.strip().splitlines() if line.strip()]
    assert all(len(line) == len(head) for line in lines), f"a row has another width than {head}"
    words = {name: [line[i] for line in lines] for i, name in enumerate(head)}
    unknown = set(words) - set(schema.names)
    assert not unknown, f"no such column: {unknown}"
    columns = [
        pa.array([_value(word, field.type) for word in words.get(field.name, ["-"] * len(lines))], field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def rows(result: pa.Table | pa.RecordBatch) -> list[tuple[Any, ...]]:
    """All rows as tuples, sorted; times as seconds."""
    columns = [[_plain(value) for value in column.to_pylist()] for column in result.columns]
    return sorted(zip(*columns, strict=True), key=_sortable)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        seconds = (value.replace(tzinfo=value.tzinfo or UTC) - EPOCH) / timedelta(seconds=1)
        return int(seconds) if seconds == int(seconds) else seconds
    return value


def _sortable(row: tuple[Any, ...]) -> list[Any]:
    return [(value is not None, type(value).__name__, _ordered(value)) for value in row]


def _ordered(value: Any) -> Any:
    return value if isinstance(value, int | float | str | bytes | Decimal | date) else repr(value)


# ---------------------------------------------------------------- declarations


def schema(columns: str) -> pa.Schema:
    """`"k x t:time name:str ids:list"`: whole numbers where nothing else is said."""
    kinds = {
        "int": pa.int64(),
        "str": pa.string(),
        "time": pa.timestamp("us"),
        "bool": pa.bool_(),
        "float": pa.float64(),
        "list": pa.list_(pa.int64()),
    }
    return pa.schema(
        {name: kinds[kind or "int"] for name, _, kind in (word.partition(":") for word in columns.split())}
    )


def stream(name: str, columns: str, /, **declared: Any) -> sj.declare.stream.Stream:
    """A stream over `schema(columns)`; its key is the first column unless told."""
    declared.setdefault("key", columns.split(maxsplit=1)[0].partition(":")[0])
    return sj.stream(schema(columns), name=name, **declared)


# ---------------------------------------------------------------- stories


def one_hash(keys: Sequence[Any]) -> Any:
    """Every key collides with every other. Texts do not: they name the partitions of a sequence."""
    if pa.types.is_string(keys[0].type):
        return hash_keys(keys)
    return np.full(len(keys[0]), 7, np.int64)


WAYS = ("straight", "restarted", "one hash", "tiny runs", "cut in rows", "spilled")
_TINY = CompactionPolicy(fanout=2, run_bytes=24, tombstone_share=0.0, smallest_class_rows=1)


def with_memory(plan: Plan, spill: sj.SpillAbove) -> Plan:
    """The same plan with a memory limit, also one that a user could not give."""
    strategies = replace(plan.spec.strategies, spill=spill)
    return replace(plan, spec=replace(plan.spec, strategies=strategies))


class Story:
    """A local run told in text; `way` is one of `WAYS`."""

    def __init__(self, joined: sj.Joined, way: str = "straight", snapshot: bytes | None = None) -> None:
        self._plan = joined.plan
        if way == "tiny runs":
            spec = replace(joined.plan.spec, compaction=_TINY, frame_rows=1)
            self._plan = replace(joined.plan, spec=spec)
        if way == "spilled":
            self._plan = with_memory(joined.plan, sj.SpillAbove(1))
        self._way = way
        self._hash = one_hash if way == "one hash" else hash_keys
        self._start = run_class(self._plan)
        self.run = self._start(self._plan, snapshot=snapshot, hash_function=self._hash)
        self._streams = {stream.name: stream for stream in all_streams(self._plan.streams)}
        self._schemas = {name: stream.schema for name, stream in self._streams.items()}
        sources = {name: stream.punctuation for name, stream in self._streams.items()}
        self._controls = {
            name: source.columns
            for name, source in sources.items()
            if isinstance(source, sj.declare.stream.Control)
        }
        self._punctuations: list[str] = []
        self._violations: list[tuple[Any, ...]] = []

    def _tell(self, call: str, *arguments: Any, **named: Any) -> list[tuple[Any, ...]]:
        if self._way == "restarted":
            self.run = self._start(self._plan, snapshot=self.run.snapshot(), hash_function=self._hash)
        result = rows(getattr(self.run, call)(*arguments, **named))
        self._punctuations += [punctuation.text() for punctuation in self.run.punctuations()]
        self._violations += [
            (found["stream"], found["reason"], *map(_plain, found["row"].values()))
            for found in self.run.violations()
        ]
        return result

    def push(self, stream: str, text: str) -> list[tuple[Any, ...]]:
        """Rows of one input; the new results."""
        whole = table(self._schemas[stream], text)
        if self._way == "cut in rows" and self._may_be_cut(stream):
            found = []
            for i in range(len(whole)):
                found += self._tell("push", stream, whole.slice(i, 1))
            return sorted(found, key=_sortable)
        return self._tell("push", stream, whole)

    def _may_be_cut(self, stream: str) -> bool:
        """Where neither time nor a tie within the batch decides, rows may come one by one."""
        declared = self._streams[stream]
        return declared.time is None and not declared.unique and declared.punctuation is None

    def step(self, **texts: str) -> list[tuple[Any, ...]]:
        """One batch with rows of several inputs."""
        return self._tell("step", {name: table(self._schemas[name], text) for name, text in texts.items()})

    def punctuate(self, stream: str, punctuation: Any = None, /, **patterns: Any) -> list[tuple[Any, ...]]:
        given = () if punctuation is None else (punctuation,)
        return self._tell("punctuate", stream, *given, **patterns)

    def control(self, stream: str, text: str) -> list[tuple[Any, ...]]:
        """Punctuations of one input's control source; a list is written `{1,2}`."""
        return self._tell("control", stream, table(self._controls[stream], text))

    def advance(self, stream: str, seconds: float) -> list[tuple[Any, ...]]:
        """No row of the stream before this second will come."""
        return self._tell("advance", stream, at(seconds))

    def end(self, stream: str) -> list[tuple[Any, ...]]:
        return self._tell("end", stream)

    def finish(self) -> list[tuple[Any, ...]]:
        return self._tell("finish")

    def punctuations(self) -> list[str]:
        """Text forms of what was announced since last asked, sorted."""
        found, self._punctuations = sorted(self._punctuations), []
        return found

    def violations(self) -> list[tuple[Any, ...]]:
        """(stream, reason, the row's values…) since last asked, sorted."""
        found, self._violations = sorted(self._violations, key=_sortable), []
        return found

    def state(self) -> Any:
        return self.run.state()

    def held(self) -> Mapping[str, int]:
        """Live tuples by input."""
        return dict(self.run.state().rows)

    def count(self, counter: str) -> int:
        """One counter, such as `news_not_stored`."""
        return self.run.counters()[counter]


# ---------------------------------------------------------------- rows as the state holds them


def batch(
    keys: Sequence[Any],
    *,
    times: Sequence[int] | None = None,
    payload: Sequence[Any] | None = None,
    hash_function: Any = hash_keys,
) -> Batch:
    """Rows of one key column (whole numbers or texts) in the physical layout, as they come."""
    key = pa.array(keys, pa.string() if keys and isinstance(keys[0], str) else pa.int64())
    columns = [pa.array(hash_function([key]))]
    if times is not None:
        columns.append(pa.array(times, pa.int64()))
    columns.append(key)
    types: tuple[pa.DataType, ...] = ()
    if payload is not None:
        columns.append(pa.array(payload))
        types = (columns[-1].type,)
    return Layout((key.type,), times is not None, types).batch(columns)


def sorted_batch(keys: Sequence[Any], **given: Any) -> Batch:
    """As `batch`, sorted by key hash: what a run is made of."""
    return batch(keys, **given).sorted()


def by_key(groups: Batch, answers: Any) -> dict[Any, Any]:
    """Answers per group of a sorted batch, by the key they speak of."""
    return dict(zip(groups.distinct_keys().keys[0].to_pylist(), answers.tolist(), strict=True))
