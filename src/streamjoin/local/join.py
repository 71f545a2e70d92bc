"""The local runtime of the stream join: drives one operator in this process, without a JVM.

Each call is one batch: its rows are joined, then its punctuations take effect, then the watermarks advance.
The state can be taken as bytes after any call (`snapshot`), and a new run can go on from them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from datetime import date, datetime
from itertools import combinations
from typing import Any

import pyarrow as pa

from streamjoin.columnar.batch import Batch
from streamjoin.columnar.keys import hash_keys
from streamjoin.errors import BadInput, InvalidJoin
from streamjoin.join.admission import Violation
from streamjoin.join.arrivals import Arrivals
from streamjoin.join.intake import Hash, Intake
from streamjoin.join.notices import DataInControlRow, Notices, about_control_rows
from streamjoin.join.operator import StreamJoin
from streamjoin.join.outputs import (
    FinishedKeys,
    FinishedPatterns,
    Forwarded,
    Output,
    OutputWatermark,
    Results,
)
from streamjoin.join.persistence.restart import moved
from streamjoin.join.persistence.snapshot import from_bytes, to_bytes
from streamjoin.join.propagation import punctuations_of
from streamjoin.join.scheduled_intake import ScheduledIntake
from streamjoin.local.statistics import Gatherer
from streamjoin.local.summaries import ExpectedOutput, Selectivity, StateForecast, StateSummary
from streamjoin.plan.advice import advice
from streamjoin.plan.bounds import UnboundedState, warning_text
from streamjoin.plan.group_by import never_final
from streamjoin.plan.planner import Plan
from streamjoin.punctuation import ANY, NULL, Punctuation, pattern
from streamjoin.state.closed_keys import KeyPatterns
from streamjoin.state.codec import batch_bytes, decode, decode_batch, encode, in_layout
from streamjoin.state.stores import SpillFolder

_RUN = b"SJLR"
Wide = tuple[KeyPatterns, ...]  # ranges and patterns that were propagated together


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
            stream.name: ScheduledIntake(stream, stream.control, spec.layout, hash_function)
            for stream, spec in zip(plan.streams, plan.spec.inputs, strict=True)
            if stream.control is not None
        }
        self._finished: list[Batch | Wide] = []
        self._forwarded: list[pa.RecordBatch] = []  # taken at once by the next join of a chain
        self._watermark: int | None = None
        self._violations: list[Violation] = []
        self._notices = Notices()
        self._unfinished = False
        self._gatherer: Gatherer | None = None
        self._spilled = None if plan.spec.memory_share is None else SpillFolder()
        if plan.filter_on_spark is not None:
            raise InvalidJoin(
                f"where={plan.filter_on_spark!r} can be tested by Spark only; give a pyarrow expression "
                'such as pc.field("price") > 10, or simpler SQL'
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
        found = {
            (i := self._number(stream)): self._intakes[i].arrivals(table) for stream, table in rows.items()
        }
        for i, arrived in found.items():
            source, name = self.plan.streams[i].punctuation, self._names[i]
            if source is not None and arrived.control_rows_with_data and self._notices.first(name):
                warnings.warn(about_control_rows(name, source), DataInControlRow, stacklevel=5)
        return found

    def punctuate(self, stream: str, punctuation: Punctuation | None = None, /, **patterns: Any) -> pa.Table:
        """A punctuation: no more rows of `stream` whose key matches will come.

        A value, a list, `sj.between(low, high)` or `sj.ANY` for every key column, where keys are null-safe
        also None; or a `Punctuation` over all columns, which closes keys only if all others are wildcards.
        """
        i = self._number(stream)
        keys = self.plan.streams[i].punctuated_columns
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
            null_safe = self.plan.spec.null_safe
            values = [patterns[name] for name in keys]
            given = [NULL if null_safe and value is None else pattern(value) for value in values]
        return self._process({i: self._intakes[i].from_patterns(given)})

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
        """Punctuations on the key columns emitted since last asked, in the order of emission.

        Of single keys that the join has known, and of ranges and patterns that every input has closed.
        """
        found = [
            one
            for said in self._finished
            for one in (punctuations_of(said.keys) if isinstance(said, Batch) else map(Punctuation, said))
        ]
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
        size = self.join.state_size()
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

    def selectivities(self) -> list[Selectivity]:
        """The share of the combinations of each two or more inputs that join, as measured lately and as
        declared at the driver.
        """
        measured, declared = self.join.selectivities, self.join.driver_statistics.selectivities
        numbers = range(len(self._names))
        sets = [each for size in numbers[2:] for each in combinations(numbers, size)] + [tuple(numbers)]
        return [
            Selectivity(
                tuple(self._names[i] for i in each),
                measured.of(each),
                None if declared is measured else declared.of(each),
            )
            for each in sets
        ]

    def expected_output(self, rows: Mapping[str, int]) -> dict[str, ExpectedOutput]:
        """Equation 1 of the paper on the adaptive driver: the results that a buffer of so many `rows` of each
        input would give now, |buffer| x selectivity of the join x stored tuples of all others.

        >>> import pyarrow as pa
        >>> import streamjoin as sj
        >>> a, b = (sj.stream(pa.schema({"k": pa.int64()}), name=n, key="k", unique=True) for n in "ab")
        >>> run = sj.join(a, b, driver=sj.InitialOutput(selectivities={("a", "b"): 0.01})).local()
        >>> run.push("a", pa.table({"k": list(range(200))})).num_rows
        0
        >>> run.expected_output({"a": 10, "b": 30})["b"].declared  # 30 x 0.01 x 200
        60.0
        """
        sizes = [side.live_rows for side in self.join.sides]
        measured, declared = self.join.selectivities, self.join.driver_statistics.selectivities
        return {
            name: ExpectedOutput(
                measured.output(self._number(name), count, sizes),
                None if declared is measured else declared.output(self._number(name), count, sizes),
            )
            for name, count in rows.items()
        }

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

    def gather(self, *, every: int = 1) -> Gatherer:
        """Sample state and counters now and after every so many steps, from now on: a table and a picture.

        >>> import pyarrow as pa
        >>> import streamjoin as sj
        >>> a, b = (sj.stream(pa.schema({"k": pa.int64()}), name=n, key="k", unique=True) for n in "ab")
        >>> run = sj.join(a, b).local()
        >>> statistics = run.gather(every=2)
        >>> for key in range(4):
        ...     _ = run.push("a", pa.table({"k": [key]}))
        >>> statistics.table().select(["step", "a_state_rows", "results"]).to_pylist()[1:]
        [{'step': 2, 'a_state_rows': 2, 'results': 0}, {'step': 4, 'a_state_rows': 4, 'results': 0}]
        """
        self._gatherer = Gatherer(every)
        self._gatherer.sample(self.state(), self.counters())
        return self._gatherer

    def snapshot(self) -> bytes:
        """The whole run as bytes; give them to `joined.local(snapshot=…)` to go on."""
        self._refuse_unfinished()
        parts: list[Any] = [to_bytes(self.join)]
        parts += [batch_bytes(said.data) for said in self._finished if isinstance(said, Batch)]
        parts += [batch_bytes(violation.rows.data) for violation in self._violations]
        header = {
            "columns": self.plan.spec.identity()["columns"],
            "arrived": [intake.arrived for intake in self._intakes],
            "finished": [None if isinstance(said, Batch) else _texts(said) for said in self._finished],
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
        types = keys_only.key_types
        self._finished = [
            in_layout(next(batches), keys_only)
            if texts is None
            else tuple(Punctuation.parse(text, types).patterns for text in texts)
            for texts in header["finished"]
        ]
        now = self.plan.spec.identity()["columns"]
        places = [moved(header["columns"][name], now[name]) for name in self._names]
        self._violations = [
            Violation(i, reason, in_layout(next(batches), self.plan.spec.inputs[i].layout, places[i]), kept)
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
        for rows in self._sorted_out(self._notices.watched(self.plan.spec, self.join.process(arrivals))):
            yield pa.Table.from_batches([rows], self.plan.spec.emits)
        self._unfinished = False
        if self._spilled is not None:
            runs = (run for side in self.join.state.sorted_runs() for run in side.runs)
            self._spilled.files.keep_only({run.stored_as for run in runs})
        if self._gatherer is not None and self._gatherer.due():
            self._gatherer.sample(self.state(), self.counters())

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
                self._finished.append(output.patterns)
            elif isinstance(output, Forwarded):
                self._forwarded.append(output.punctuations)
            elif isinstance(output, OutputWatermark):
                self._watermark = output.time_us
            else:
                self._violations.append(output)


def _texts(wide: Wide) -> list[str]:
    return [Punctuation(patterns).text() for patterns in wide]
