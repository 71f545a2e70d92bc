"""The local runtime of the stream join: drives one operator in this process, without a JVM.

Each call is one batch: its rows are joined, then its punctuations take effect, then the watermarks advance.
The state can be taken as bytes after any call (`snapshot`), and a new run can go on from them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from streamjoin.columnar.batch import Batch
from streamjoin.columnar.keys import hash_keys
from streamjoin.declare.stream import Control
from streamjoin.errors import BadInput, InvalidJoin
from streamjoin.join.admission import Violation
from streamjoin.join.arrivals import Arrivals
from streamjoin.join.control_intake import ControlIntake
from streamjoin.join.intake import Hash, Intake
from streamjoin.join.operator import StreamJoin
from streamjoin.join.outputs import (
    FinishedKeys,
    FinishedPatterns,
    Forwarded,
    Output,
    OutputWatermark,
    Results,
)
from streamjoin.join.persistence.snapshot import from_bytes, sides_of, to_bytes
from streamjoin.join.propagated_keys import punctuations_of
from streamjoin.plan.advice import advice
from streamjoin.plan.bounds import UnboundedState, warning_text
from streamjoin.plan.group_by import never_final
from streamjoin.plan.planner import Plan
from streamjoin.punctuation import ANY, Punctuation, pattern
from streamjoin.state.closed_keys import KeyPatterns
from streamjoin.state.codec import batch_bytes, decode, decode_batch, encode
from streamjoin.state.stores import SpillFolder

_RUN = b"SJLR"


@dataclass(frozen=True, slots=True)
class StateForecast:
    """The state size that the cost model predicts for now, from what was measured up to eight steps before:
    tuples by input, closed keys, and bytes of all runs.
    """

    rows: Mapping[str, float]
    closed_keys: float
    nbytes: float


@dataclass(frozen=True, slots=True)
class StateSummary:
    """The state size of a run.

    `rows`: live tuples by input. `closed_keys`: keys and punctuations it stores. `deferred`: closed keys
    whose purge is deferred, and rows with deferred matches. `nbytes`: bytes of all runs; `resident_bytes`: of
    those in memory. `groups`: partial rows of groups that are not final yet.

    >>> StateSummary({"news": 0, "access": 0}, closed_keys=0, deferred=0, nbytes=0, resident_bytes=0).empty
    True
    """

    rows: Mapping[str, int]
    closed_keys: int
    deferred: int
    nbytes: int
    resident_bytes: int
    groups: int = 0

    @property
    def empty(self) -> bool:
        """Whether there is no tuple, closed key, deferred work or group."""
        return not any(self.rows.values()) and self.closed_keys == self.deferred == self.groups == 0


class LocalRun:
    """A running stream join. Each call returns its results; punctuations, violations and state are asked for.

    Made by `joined.local()`.

    >>> import pyarrow as pa
    >>> import streamjoin as sj
    >>> news = sj.stream(pa.schema({"sno": pa.int64()}), name="news", key="sno", unique=True)
    >>> columns = pa.schema({"sno": pa.int64(), "ip": pa.string(), "is_end": pa.bool_()})
    >>> access = sj.stream(columns, name="access", key="sno", punctuation=sj.marked("is_end"))
    >>> run = sj.join(news, access).local()
    >>> run.push("news", pa.table({"sno": [79]})).num_rows
    0
    >>> rows = pa.table({"sno": [79, 79], "ip": ["x", None], "is_end": [False, True]})
    >>> run.push("access", rows).to_pylist(), [one.text() for one in run.punctuations()]
    ([{'sno': 79, 'ip': 'x'}], ['<79>'])
    >>> run.state().empty
    True
    """

    def __init__(self, plan: Plan, *, snapshot: bytes | None = None, hash_function: Hash = hash_keys) -> None:
        self.plan = plan
        self._names = [stream.name for stream in plan.streams]
        self._intakes = [
            Intake(stream, spec.layout, hash_function, number in plan.spec.how.preserved, plan.spec.monitored)
            for number, (stream, spec) in enumerate(zip(plan.streams, plan.spec.inputs, strict=True))
        ]
        self._controls = {
            stream.name: ControlIntake(stream, stream.punctuation, spec.layout, hash_function)
            for stream, spec in zip(plan.streams, plan.spec.inputs, strict=True)
            if isinstance(stream.punctuation, Control)
        }
        self._finished: list[Batch] = []
        self._finished_patterns: list[KeyPatterns] = []  # taken at once by the next join of a chain
        self._forwarded: list[pa.RecordBatch] = []  # likewise
        self._watermark: int | None = None
        self._violations: list[Violation] = []
        self._unfinished = False
        self._spilled = None if plan.spec.memory_share is None else SpillFolder()
        if isinstance(plan.options.where, str):
            raise InvalidJoin(
                f"where={plan.options.where!r} is SQL, which needs Spark; give a pyarrow expression such as "
                'pc.field("price") > 10'
            )
        if snapshot is None:
            text = warning_text(plan.bounds)
            if text is not None:
                warnings.warn(text, UnboundedState, stacklevel=3)
            if (text := never_final(plan)) is not None:
                warnings.warn(text, UnboundedState, stacklevel=3)
            self.join = StreamJoin(plan.spec)
            self.join.names.memory_manager.run_store = self._spilled
        else:
            self._restore(snapshot)

    # Input

    def push(self, stream: str, rows: pa.Table | pa.RecordBatch) -> pa.Table:
        """One batch with rows of one input, in their order of arrival; returns the results."""
        return self.step({stream: rows})

    def step(self, rows: Mapping[str, pa.Table | pa.RecordBatch]) -> pa.Table:
        """One batch with rows of several inputs; the driver strategy decides who goes first."""
        return self._process(self._read_batch(rows))

    def produce(self, rows: Mapping[str, pa.Table | pa.RecordBatch]) -> Iterator[pa.Table]:
        """As `step`, but the results come in small tables as soon as they are made.

        The batch ends when the last one was taken; no other call is possible before.
        """
        self._refuse_unfinished()
        arrivals = self._read_batch(rows)
        self._unfinished = True
        return self._produced(arrivals)

    def _read_batch(self, rows: Mapping[str, pa.Table | pa.RecordBatch]) -> dict[int, Any]:
        """The arrivals of a batch; a batch that is refused changes nothing."""
        if not isinstance(rows, Mapping):
            raise BadInput(f"a batch is a {type(rows).__name__}; give a mapping of stream names to tables")
        intakes = self._all_intakes()
        arrived = [intake.arrived for intake in intakes]
        try:
            return self._read(rows)
        except Exception:
            for intake, before in zip(intakes, arrived, strict=True):
                intake.arrived = before
            raise

    def _all_intakes(self) -> list[Intake]:
        return self._intakes

    def _all_names(self) -> list[str]:
        return self._names

    def _read(self, rows: Mapping[str, Any]) -> dict[int, Arrivals]:
        return {
            (i := self._number(stream)): self._intakes[i].arrivals(table) for stream, table in rows.items()
        }

    def punctuate(self, stream: str, punctuation: Punctuation | None = None, /, **patterns: Any) -> pa.Table:
        """A punctuation: no more rows of `stream` whose key matches will come.

        A value, a list, `sj.between(low, high)` or `sj.ANY` for every key column; or a
        `Punctuation` over all columns, which closes keys only if all others are wildcards.
        """
        i = self._number(stream)
        keys = self.plan.streams[i].speaks_of
        if punctuation is not None:
            given = self._intakes[i].key_patterns(punctuation)
            if given is None:
                return self._process({})
        elif set(patterns) != set(keys):
            raise BadInput(
                f"a punctuation of {stream!r} names {', '.join(patterns) or 'nothing'}; "
                f"name every key column ({', '.join(keys)}), sj.ANY where any value is meant"
            )
        else:
            given = [pattern(patterns[name]) for name in keys]
        return self._process({i: self._intakes[i].said(given)})

    def control(self, stream: str, punctuations: pa.Table | pa.RecordBatch) -> pa.Table:
        """Rows of the control source of `stream`; each takes effect when the watermark passes its time."""
        i = self._number(stream)
        if stream not in self._controls:
            raise InvalidJoin(
                f"stream {stream!r} has no control source; declare punctuation=sj.control(schema, time=…)"
            )
        return self._process({i: self._controls[stream].arrivals(punctuations)})

    def advance(self, stream: str, time: datetime) -> pa.Table:
        """Advance the watermark of `stream`: no row with an event time before `time` will come."""
        i = self._number(stream)
        declared = self.plan.streams[i]
        if declared.time is None:
            raise InvalidJoin(f"stream {stream!r} has no event time; add time= to use advance")
        if not isinstance(time, date):  # a datetime is one too
            raise BadInput(f"advance({stream!r}, {time!r}): give a datetime")
        zone = getattr(declared.type_of(declared.time), "tz", None)
        try:
            micros = pa.scalar(time, pa.timestamp("us", zone)).value
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as error:
            raise BadInput(f"advance({stream!r}, {time!r}): give a datetime") from error
        nothing = Arrivals.nothing(self.plan.spec.inputs[i].layout)
        return self._process({i: replace(nothing, watermark_us=micros)})

    def idle(self) -> pa.Table:
        """A batch without rows, while the inputs are blocked: works off some of the deferred matches."""
        return self._process({})

    def end(self, stream: str) -> pa.Table:
        """No more rows of `stream` at all."""
        return self._process({self._number(stream): self._end(self._number(stream))})

    def finish(self) -> pa.Table:
        """No more rows of any input."""
        return self._process({i: self._end(i) for i in range(len(self._names))})

    def _end(self, i: int) -> Arrivals:
        everything = tuple(ANY for _ in self.plan.spec.key_types)
        return replace(Arrivals.nothing(self.plan.spec.inputs[i].layout), patterns=(everything,))

    # Queries

    def punctuations(self) -> list[Punctuation]:
        """Punctuations on the key columns emitted since last asked, in the order of emission."""
        found = [one for keys in self._finished for one in punctuations_of(keys.keys)]
        self._finished = []
        return found

    def violations(self) -> list[dict[str, Any]]:
        """Rows that violate a declaration, since last asked: stream, reason, kept, and the row."""
        result = []
        for violation in self._violations:
            spec = self.plan.spec.inputs[violation.input]
            columns = [*violation.rows.keys, *violation.rows.payload]
            said = {"stream": spec.name, "reason": violation.reason, "kept": violation.kept}
            result += [
                {**said, "row": dict(zip(spec.columns, row, strict=True))}
                for row in zip(*(column.to_pylist() for column in columns), strict=True)
            ]
        self._violations = []
        return result

    def state(self) -> StateSummary:
        """The state size now."""
        rows = {name: side.live_rows for name, side in zip(self._names, self.join.sides, strict=True)}
        size = self.join.held()
        return StateSummary(
            rows, size.closed_keys, size.deferred, size.nbytes, size.resident_bytes, size.groups
        )

    def counters(self) -> dict[str, int]:
        """Counters since the start: `<input>_<counter>`, and the join's own; see docs/metrics.md."""
        found = {}
        for name, counters in zip(self._names, self.join.counters, strict=True):
            for field in counters.__dataclass_fields__:
                found[f"{name}_{field}"] = getattr(counters, field)
        join = self.join
        totals = {
            "results": join.results,
            "propagated_keys": join.propagated_keys,
            "driver_fallbacks": join.fallbacks,
        }
        return {**found, **totals}

    def forecast(self) -> StateForecast:
        """The state size that the cost model predicts for now; `state()` is the measured one."""
        model = self.join.calibration
        rows = dict(zip(self._names, model.predicted(), strict=True))
        return StateForecast(rows, model.predicted_closed_keys(), model.predicted_bytes())

    def advice(self) -> list[str]:
        """Sentences on declarations that the data violates, declarations that it would satisfy, and a state
        that is not as predicted.
        """
        figures = {
            f"{name}_{field}": value
            for name, seen, ahead in zip(self._names, self.join.seen(), self.join.outlook(), strict=True)
            for field, value in {**asdict(seen), **asdict(ahead)}.items()
        }
        return advice(self.plan.streams, {**self.counters(), **figures})

    def keys_of(self, stream: str, columns: list[pa.Array]) -> Batch:
        """Many keys at once in the operator's columnar form, one array per key column."""
        return self._intakes[self._number(stream)].key_batch(columns)

    def snapshot(self) -> bytes:
        """The whole run as bytes; give them to `joined.local(snapshot=…)` to go on."""
        self._refuse_unfinished()
        parts: list[Any] = [to_bytes(self.join)]
        parts += [batch_bytes(keys.data) for keys in self._finished]
        parts += [batch_bytes(violation.rows.data) for violation in self._violations]
        header = {
            "arrived": [intake.arrived for intake in self._intakes],
            "finished": len(self._finished),
            "violations": [[one.input, one.reason, one.kept] for one in self._violations],
        }
        return encode(_RUN, header, parts)

    def _restore(self, snapshot: bytes) -> None:
        header, (state, *parts) = decode(_RUN, snapshot)
        self.join = from_bytes(self.plan.spec, bytes(state), self._spilled)
        batches = iter([decode_batch(part) for part in parts])
        for intake, arrived in zip(self._intakes, header["arrived"], strict=True):
            intake.arrived = arrived
        keys_only = self.plan.spec.inputs[0].layout.keys_only
        self._finished = [Batch(keys_only, next(batches)) for _ in range(header["finished"])]
        self._violations = [
            Violation(i, reason, Batch(self.plan.spec.inputs[i].layout, next(batches)), kept)
            for i, reason, kept in header["violations"]
        ]

    # Internals

    def _number(self, stream: str) -> int:
        if stream not in self._names:
            raise InvalidJoin(f"this join has no input {stream!r}; its inputs are {', '.join(self._names)}")
        return self._names.index(stream)

    def _process(self, arrivals: dict[int, Any]) -> pa.Table:
        self._refuse_unfinished()
        self._unfinished = True
        return self._whole(self._produced(arrivals))

    def _whole(self, parts: Iterable[pa.Table]) -> pa.Table:
        return pa.concat_tables([self.plan.spec.emits.empty_table(), *parts])

    def _produced(self, arrivals: dict[int, Any]) -> Iterator[pa.Table]:
        """Process one batch; results as they are made."""
        for rows in self._sorted_out(self.join.process(arrivals)):
            yield pa.Table.from_batches([rows], self.plan.spec.emits)
        self._unfinished = False
        if self._spilled is not None:
            runs = (run for side in sides_of(self.join) for run in side.runs)
            self._spilled.files.keep_only({run.stored_as for run in runs})

    def _refuse_unfinished(self) -> None:
        if self._unfinished:
            raise BadInput(
                "the last batch of this run was not finished: it failed, or not every table of produce() was "
                "taken; go on from a snapshot"
            )

    def _sorted_out(self, outputs: Iterable[Output]) -> Iterator[pa.RecordBatch]:
        for output in outputs:
            if isinstance(output, Results):
                yield output.rows
            elif isinstance(output, FinishedKeys):
                self._finished.append(output.keys)
            elif isinstance(output, FinishedPatterns):
                self._finished_patterns += output.patterns
            elif isinstance(output, Forwarded):
                self._forwarded.append(output.punctuations)
            elif isinstance(output, OutputWatermark):
                self._watermark = output.time_us
            else:
                self._violations.append(output)
