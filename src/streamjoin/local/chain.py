"""The local runtime of a chain of joins: some inputs of a join are joins themselves.

A tree of runs, one for each join. Rows of a stream go to the join it is an input of; the results and
punctuations of that join are propagated to the one above it in the same step, up to the top. Worked case:
`top = sj.join(ab, c)` with `ab` a stream of `sj.join(a, b)`: `run.push("a", rows)` is one batch of the lower
join, whose results are one batch of `ab` in the upper one.

Within a step, results of a key come before its punctuation, and a punctuation takes effect after the rows of
its step, so no result violates one. Each join of the tree costs what it costs alone.
"""

# The runs of one tree use each other's private members.
# ruff: noqa: SLF001

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

import pyarrow as pa

from streamjoin.columnar.batch import Batch, concat
from streamjoin.columnar.keys import cast_by_position, hash_keys
from streamjoin.declare.upstream import UpstreamJoin
from streamjoin.errors import BadInput, InvalidJoin
from streamjoin.join.arrivals import Arrivals
from streamjoin.join.intake import Hash, Intake
from streamjoin.local.join import LocalRun
from streamjoin.local.summaries import StateSummary
from streamjoin.plan.planner import Plan
from streamjoin.punctuation import ANY, Punctuation
from streamjoin.state.closed_keys import KeyPatterns, is_everything
from streamjoin.state.codec import decode, encode

_CHAIN = b"SJLC"


def run_class(plan: Plan) -> type[LocalRun]:
    """The class that runs a plan in this process."""
    return LocalRun if all(stream.upstream is None for stream in plan.streams) else ChainRun


class ChainRun(LocalRun):
    """A running chain of joins; the same calls as a `LocalRun`, for the streams of all of them.

    Results and punctuations are those of the uppermost join. Violations, state and advice are those of
    all. Counters too: `<input>_<counter>` of every input, `<join>_results`, `<join>_propagated_keys` and
    `<join>_driver_fallbacks` of each lower join.

    >>> import pyarrow as pa
    >>> import streamjoin as sj
    >>> a, b, c = (sj.stream(pa.schema({"k": pa.int64()}), name=n, key="k", unique=True) for n in "abc")
    >>> ab = sj.stream(sj.join(a, b, name="lower"), name="ab", key="k", unique=True)
    >>> run = sj.join(ab, c).local()
    >>> [run.push(name, pa.table({"k": [1]})).num_rows for name in "abc"]
    [0, 0, 1]
    """

    def __init__(self, plan: Plan, *, snapshot: bytes | None = None, hash_function: Hash = hash_keys) -> None:
        inner = {i: stream.upstream for i, stream in enumerate(plan.streams) if stream.upstream is not None}
        parts: list[Any] = [None] * (1 + len(inner))
        if snapshot is not None:
            parts = [bytes(part) for part in decode(_CHAIN, snapshot)[1]]
        self._inner: dict[int, UpstreamJoin] = inner
        self._below: dict[int, LocalRun] = {
            i: run_class(each.plan)(each.plan, snapshot=part, hash_function=hash_function)
            for (i, each), part in zip(inner.items(), parts[1:], strict=True)
        }
        super().__init__(plan, snapshot=parts[0], hash_function=hash_function)

    # Input

    def _read(self, rows: Mapping[str, Any]) -> dict[int, Any]:
        """Arrivals by input; where the input is a join, those of its own inputs."""
        found: dict[int, Any] = {}
        shares: dict[int, dict[str, Any]] = {}
        for stream, table in rows.items():
            i = self._over(stream)
            if i is None:
                found |= super()._read({stream: table})
            elif self._names[i] == stream:
                raise BadInput(
                    f"{stream} is the result of join {self._inner[i].join}: push rows of its inputs, "
                    f"{', '.join(self._below[i]._all_names())}"
                )
            else:
                shares.setdefault(i, {})[stream] = table
        return found | {i: self._below[i]._read(share) for i, share in shares.items()}

    def _produced(self, arrivals: dict[int, Any]) -> Iterator[pa.Table]:
        """Lower joins first; their outputs are a batch of this one."""
        return super()._produced(
            {
                i: self._propagated(i, self._below[i]._process(each)) if isinstance(each, dict) else each
                for i, each in arrivals.items()
            }
        )

    def punctuate(self, stream: str, punctuation: Punctuation | None = None, /, **patterns: Any) -> pa.Table:
        """As `LocalRun.punctuate`, for any stream of the tree."""
        given = () if punctuation is None else (punctuation,)
        return self._call("punctuate", stream, *given, **patterns)

    def control(self, stream: str, punctuations: pa.Table | pa.RecordBatch) -> pa.Table:
        """As `LocalRun.control`, for any stream of the tree."""
        return self._call("control", stream, punctuations)

    def advance(self, stream: str, time: datetime) -> pa.Table:
        """As `LocalRun.advance`, for any stream of the tree."""
        return self._call("advance", stream, time)

    def idle(self) -> pa.Table:
        """As `LocalRun.idle`, for all joins of the tree."""
        return self._process({i: self._propagated(i, below.idle()) for i, below in self._below.items()})

    def end(self, stream: str) -> pa.Table:
        """As `LocalRun.end`, for any stream of the tree."""
        return self._call("end", stream)

    def finish(self) -> pa.Table:
        """No more rows of any input."""
        own = {i: self._end(i) for i in range(len(self._names)) if i not in self._below}
        propagated = {i: self._propagated(i, below.finish()) for i, below in self._below.items()}
        return self._process(own | propagated)

    def _call(self, what: str, stream: str, *given: Any, **named: Any) -> pa.Table:
        i = self._over(stream)
        if i is None or self._names[i] == stream:
            result: pa.Table = getattr(super(), what)(stream, *given, **named)
            return result
        return self._process({i: self._propagated(i, getattr(self._below[i], what)(stream, *given, **named))})

    def _propagated(self, i: int, table: pa.Table) -> Arrivals:
        """Results and punctuations of a lower join as arrivals of the input they are."""
        below, intake, key_positions = self._below[i], self._intakes[i], self._inner[i].key_positions
        said, forwarded = below._finished, below._forwarded
        below._finished, below._forwarded = [], []
        finished = [one for one in said if isinstance(one, Batch)]
        wide = [patterns for one in said if not isinstance(one, Batch) for patterns in one]
        found = replace(intake.arrivals(table), watermark_us=below._watermark)
        if forwarded:
            tables = map(_as_table, forwarded)
            found = intake.with_propagated(pa.concat_tables(tables, promote_options="default"), found)
        if key_positions is None:
            everything: KeyPatterns = tuple(ANY for _ in self.plan.spec.key_types)
            ends = [everything for each in wide if is_everything(each)]
            return replace(found, patterns=(*found.patterns, *ends))
        types = self.plan.spec.key_types
        keys = [
            intake.key_batch(
                [cast_by_position(keys.keys[p], dtype) for p, dtype in zip(key_positions, types, strict=True)]
            )
            for keys in finished
        ]
        patterns = tuple(intake.in_key_types([each[place] for place in key_positions]) for each in wide)
        return replace(
            found, keys=concat(found.keys.layout, [found.keys, *keys]), patterns=(*found.patterns, *patterns)
        )

    # Queries

    def violations(self) -> list[dict[str, Any]]:
        """Rows that violate a declaration, of every join."""
        return [*(one for below in self._below.values() for one in below.violations()), *super().violations()]

    def state(self) -> StateSummary:
        """The state size of all joins together."""
        sizes = [super().state(), *(below.state() for below in self._below.values())]
        rows = {name: count for each in sizes[::-1] for name, count in each.rows.items()}
        counted = [field.name for field in fields(StateSummary)[1:]]
        return StateSummary(rows, *(sum(getattr(each, what) for each in sizes) for what in counted))

    def counters(self) -> dict[str, int]:
        """Counters since the start, of every join."""
        found: dict[str, int] = {}
        for i, below in self._below.items():
            for name, count in below.counters().items():
                own = name in ("results", "propagated_keys", "driver_fallbacks")
                found[f"{self._inner[i].join}_{name}" if own else name] = count
        return {**found, **super().counters()}

    def advice(self) -> list[str]:
        """As `LocalRun.advice`, for every join."""
        return [*(one for below in self._below.values() for one in below.advice()), *super().advice()]

    def keys_of(self, stream: str, columns: list[pa.Array]) -> Batch:
        """As `LocalRun.keys_of`, for any stream of the tree."""
        i = self._over(stream)
        if i is None or self._names[i] == stream:
            return super().keys_of(stream, columns)
        return self._below[i].keys_of(stream, columns)

    def snapshot(self) -> bytes:
        """The whole tree as bytes."""
        parts = [super().snapshot(), *(below.snapshot() for below in self._below.values())]
        return encode(_CHAIN, {"joins": [each.join for each in self._inner.values()]}, parts)

    # Internals

    def _all_intakes(self) -> list[Intake]:
        return [*self._intakes, *(one for below in self._below.values() for one in below._all_intakes())]

    def _all_names(self) -> list[str]:
        """The streams of the tree that rows can be pushed to."""
        own = [name for i, name in enumerate(self._names) if i not in self._below]
        return [*(name for below in self._below.values() for name in below._all_names()), *own]

    def _over(self, stream: str) -> int | None:
        """The input that is a lower join, or has the stream below it; None for a stream of this join."""
        for i, below in self._below.items():
            if stream == self._names[i] or stream in _names_in(below):
                return i
        if stream not in self._names:
            raise InvalidJoin(
                f"this join has no input {stream!r}; its inputs are {', '.join(self._all_names())}"
            )
        return None


def _as_table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


def _names_in(run: LocalRun) -> set[str]:
    """Every stream of a run and of the joins below it."""
    below = run._below.values() if isinstance(run, ChainRun) else ()
    return {*run._names, *(name for each in below for name in _names_in(each))}
