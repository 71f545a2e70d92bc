"""Local run of an enrichment: a stream with its tables in this process, without a JVM.

Each call is one batch: its rows probe the cache, then the segments that are due are read. Worked case:
with `cycle_batches=3` a row that is pushed is answered by that push or one of the two calls after it.
Several tables are several joins, one after another in each call.

A version of the table is staged in a folder when the run begins, and when `refresh` finds another
one; it is removed when neither the run nor its last snapshot uses it. So a folder belongs to one run.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from streamjoin.columnar.keys import hash_keys
from streamjoin.declare.table import Table
from streamjoin.enrich.operator import EnrichJoin
from streamjoin.enrich.progress_bar import progress_bar
from streamjoin.enrich.segments import StagedVersion, VersionStore
from streamjoin.enrich.snapshot import from_bytes, to_bytes
from streamjoin.enrich.spec import END_OF_TIME
from streamjoin.enrich.staging import StagingOptions, stage
from streamjoin.enrich.tables.files import table_source
from streamjoin.errors import BadInput, InvalidJoin, StateFormatError
from streamjoin.join.arrivals import Arrivals
from streamjoin.join.intake import Hash, Intake
from streamjoin.plan.cost import Rate
from streamjoin.plan.enrich.calibration import loop_costs
from streamjoin.plan.enrich.explain import ExpectedRate, TableContent, explained
from streamjoin.plan.enrich.planner import EmptyTable, EnrichPlan
from streamjoin.state.codec import decode, encode

_RUN = b"SJSR"


@dataclass(frozen=True, slots=True)
class TableState:
    """State size of one join of a run: tuples that wait for a segment, tuples in the waiting room, rows in
    the cache, bytes by use, and the versions in use, oldest first.
    """

    waiting: int
    waiting_room: int
    cache_rows: int
    cache_bytes: int
    waiting_bytes: int
    segment_bytes: int
    switching_bytes: int
    memory_bytes: int
    versions: tuple[str, ...]


class EnrichRun:
    """A stream and its tables at work. Results come back from each call.

    >>> import pyarrow as pa
    >>> import streamjoin as sj
    >>> orders = sj.stream(pa.schema({"id": pa.int64()}), name="orders", key="id")
    >>> rows = pa.table({"id": [1, 2], "city": ["Rome", "Oslo"]})
    >>> run = sj.enrich(orders, sj.table(rows, name="customers", key="id", memory="64 MB")).local()
    >>> run.push("orders", pa.table({"id": [2, 9]})).to_pylist()
    [{'id': 2, 'city': 'Oslo'}]
    >>> run.waiting, run.counters()["unmatched"]
    (0, 1)
    >>> moved = pa.table({"id": [2, 9], "city": ["Bergen", "Kyiv"]})
    >>> run.refresh(sj.table(moved, name="customers", key="id", memory="64 MB")).num_rows
    0
    >>> run.push("orders", pa.table({"id": [2, 9]})).column("city").to_pylist()
    ['Bergen', 'Kyiv']
    """

    def __init__(
        self,
        plan: EnrichPlan,
        *,
        folder: str | Path | None = None,
        snapshot: bytes | None = None,
        hash_function: Hash = hash_keys,
        segment_bytes: int | None = None,
    ) -> None:
        self.plan = plan
        if folder is None:
            folder = tempfile.mkdtemp(prefix="streamjoin-tables-")
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        states: list[Any] = [None for _ in plan.chain]
        if snapshot is not None:
            header, states = decode(_RUN, snapshot)
            names = [one.table.name for one in plan.chain]
            if header["tables"] != names:
                raise StateFormatError(
                    f"this snapshot is of a join with {', '.join(header['tables'])}, not with "
                    f"{', '.join(names)}; go on with the declarations it began with"
                )
        self._unfinished = False
        self._steps = [
            _EnrichStep(one, Path(folder), state, hash_function, segment_bytes)
            for one, state in zip(plan.chain, states, strict=True)
        ]
        self._warn_of_empty(self._steps, stacklevel=4)

    # Input

    def push(self, stream: str, rows: pa.Table | pa.RecordBatch) -> pa.Table:
        """One batch with rows of the stream."""
        name = self.plan.stream.name
        if stream != name:
            raise InvalidJoin(f"this join has no stream {stream!r}; push rows of {name}")
        return self._batch(rows)

    def tick(self) -> pa.Table:
        """A batch without rows: the scan goes on for rows that wait."""
        return self._batch(self._nothing())

    def refresh(self, *tables: Table) -> pa.Table:
        """Look at the sources again; where one has a new version it is staged, and used from now on.

        Returns result rows, as `push` does: a refresh is a batch without new rows. Rows that wait finish with
        the version they began with; those in the waiting room are tried with the new one, and leave where it
        has their key. A table declared anew, by its name, says where else to look or which label it has.
        """
        self._refuse_unfinished()
        anew = {table.name: table for table in tables}
        unknown = anew.keys() - {step.plan.table.name for step in self._steps}
        if unknown:
            known = ", ".join(step.plan.table.name for step in self._steps)
            raise InvalidJoin(f"this join has no table {', '.join(sorted(unknown))}; refresh one of {known}")
        new = [step for step in self._steps if step.refresh(anew.get(step.plan.table.name))]
        self._warn_of_empty(new, stacklevel=3)
        below = None
        for step in self._steps:
            below = step.plan = replace(step.plan, below=below)
        self.plan = step.plan
        return self.tick()

    def _warn_of_empty(self, steps: Iterable[_EnrichStep], *, stacklevel: int) -> None:
        for step in steps:
            if step.version.rows == 0:
                warnings.warn(
                    f"table {step.plan.table.name!r}, version {step.version.id}, has no rows with a key: "
                    f"no row of {step.plan.stream.name} finds a match; check the source, and refresh() when "
                    "it is filled",
                    EmptyTable,
                    stacklevel=stacklevel,
                )

    def finish(self) -> pa.Table:
        """End of the stream: all waiting rows are answered, and those in the waiting room leave."""
        return self._batch(self._nothing(), last=True)

    def _batch(self, rows: pa.Table | pa.RecordBatch, *, last: bool = False) -> pa.Table:
        """One batch through all joins; one that is refused changes nothing."""
        self._refuse_unfinished()
        arrivals = self._steps[0].read(rows)
        self._unfinished = True
        for step, following in zip(self._steps, [*self._steps[1:], None], strict=True):
            results = step.batch(arrivals, last=last)
            if following is not None:
                arrivals = following.read(results)
        self._unfinished = False
        return results

    def _refuse_unfinished(self) -> None:
        if self._unfinished:
            raise BadInput("the last batch of this run failed before its end; go on from a snapshot")

    def _nothing(self) -> pa.Table:
        return self.plan.chain[0].stream.schema.empty_table()

    # Figures

    @property
    def waiting(self) -> int:
        """Rows that wait for a segment of the table."""
        return sum(step.join.waiting for step in self._steps)

    @property
    def in_waiting_room(self) -> int:
        """Rows without a match that wait for a table row that comes late."""
        return sum(step.join.in_waiting_room for step in self._steps)

    def state(self) -> Mapping[str, TableState]:
        """The state size now, by table."""
        return {step.plan.table.name: step.state() for step in self._steps}

    def counters(self) -> dict[str, int]:
        """Everything counted so far; of lower joins as `<join>_<counter>`."""
        *below, last = self._steps
        found = {f"{step.plan.name}_{name}": n for step in below for name, n in step.counters().items()}
        return {**found, **last.counters()}

    def versions(self) -> dict[str, StagedVersion]:
        """The newest version of each table."""
        return {step.plan.table.name: step.version for step in self._steps}

    def explain(
        self,
        *,
        rates: Mapping[str, Rate | float] | None = None,
        format: Literal["text", "json"] = "text",  # noqa: A002  # as Spark's own explain calls it
    ) -> str:
        """As `Enriched.explain`, with the figures of the versions that are staged."""
        contents = {
            step.plan.table.name: content_of(step.plan.table.source, step.version) for step in self._steps
        }
        return explained(self.plan, contents, format, expected(self.plan, rates))

    def snapshot(self) -> bytes:
        """The run as bytes; `joined.local(folder=…, snapshot=…)` goes on from them, in the same folder."""
        self._refuse_unfinished()
        header = {"tables": [step.plan.table.name for step in self._steps]}
        return encode(_RUN, header, [step.snapshot() for step in self._steps])


def is_frame(source: Any) -> bool:
    """Whether it is a Spark DataFrame."""
    return any(kind.__module__.startswith("pyspark.") for kind in type(source).__mro__)


def content_of(source: Any, version: StagedVersion | None = None) -> TableContent:
    """What is known of the table before it is read, and where it is staged already, of that."""
    if is_frame(source):
        return TableContent("a Spark DataFrame", version=version)
    table = table_source(source)
    return TableContent(table.describe(), table.rows(), version, table.fingerprint() is not None)


def expected(plan: EnrichPlan, rates: Mapping[str, Rate | float] | None) -> ExpectedRate | None:
    """The stream's rate as a user gives it, and the costs of a turn, which are measured first."""
    if rates is None:
        return None
    name = plan.stream.name
    given: Any = rates
    if not isinstance(given, Mapping) or set(given) != {name}:
        raise InvalidJoin(f"rates={rates!r}; give the rows per second of {name}, as in {{{name!r}: 1000}}")
    rate = rates[name]
    return ExpectedRate(rate if isinstance(rate, Rate) else Rate(rate), loop_costs(plan.options.operator))


class _EnrichStep:
    """One join of a run, and the versions of its table."""

    def __init__(
        self,
        plan: EnrichPlan,
        folder: Path,
        state: Any,
        hash_function: Hash,
        segment_bytes: int | None,
    ) -> None:
        self.plan = plan
        self._hash = hash_function
        self._segment_bytes = segment_bytes or plan.segment_bytes(1)
        self._intake = Intake(plan.stream, plan.spec.stream, hash_function, plan.spec.preserves, False)
        self._store = VersionStore(folder / plan.name / plan.table.name, plan.table.name)
        self._null_keys = 0
        self._kept: set[str] = set()  # versions that the last snapshot needs
        if state is None:
            self.version = self._look(plan)
            self.join = EnrichJoin(plan.for_bucket(self.version), self.version.bucket(0))
        else:
            self._restore(state)
            self.refresh(None)
        self._remove_unused()

    # Batches

    def read(self, rows: pa.Table | pa.RecordBatch) -> Arrivals:
        return self._intake.arrivals(rows)

    def batch(self, arrivals: Arrivals, *, last: bool) -> pa.Table:
        """Results of a batch; of the last one also of all that wait."""
        results = list(self._results(arrivals))
        if last:
            results += [*self.join.finish(), *self.join.advance(END_OF_TIME)]
        self._remove_unused()
        return pa.Table.from_batches(results, self.plan.spec.output)

    def _results(self, arrivals: Arrivals) -> Iterator[pa.RecordBatch]:
        yield from self.join.process(arrivals.rows)
        self._null_keys += arrivals.null_keys
        self.join.counts.rows += arrivals.null_keys
        if arrivals.unkeyed is not None:
            every = np.arange(len(arrivals.unkeyed))
            yield from self.join.leave(arrivals.unkeyed, every, self.version.id)
        if arrivals.latest_us is not None:
            yield from self.join.advance(arrivals.latest_us)
        yield from self.join.step()

    # Versions

    def refresh(self, anew: Table | None) -> bool:
        """Use the version that the source has now, and say whether it is new; what cannot be used changes
        nothing.
        """
        plan = self.plan if anew is None else self.plan.with_table(anew)
        version = self._look(plan)
        plan.for_bucket(version)  # refused where its segments are too large
        is_new = version.id != self.join.newest.table.version
        self.join.use(version.bucket(0))
        self.plan, self.version = plan, version
        return is_new

    def _look(self, plan: EnrichPlan) -> StagedVersion:
        """The source's present version, staged where it is not yet."""
        table = plan.table
        source = table_source(table.source)
        label = table.version or source.fingerprint() or "1"
        form = plan.form(1, self._hash.__name__)
        version = self._store.find(label, form)
        if version is None:
            with progress_bar(f"staging {table.name}") as progress:
                how = StagingOptions(self._hash, self._segment_bytes, progress=progress)
                version = stage(source, form, self._store, label, how)
        return version

    @property
    def in_use(self) -> tuple[str, ...]:
        """The versions that some row still needs, oldest first, and the newest."""
        return tuple(scan.table.version for scan in self.join.scans)

    def _remove_unused(self) -> None:
        needed = {*self.in_use, *self._kept}
        for version in self._store.versions():
            if version not in needed:
                self._store.remove(version)

    # Figures

    def state(self) -> TableState:
        join, division = self.join, self.join.division()
        return TableState(
            join.waiting,
            join.in_waiting_room,
            len(join.cache),
            division.cache,
            division.waiting,
            division.segment,
            division.switching,
            self.plan.spec.memory_bytes,
            self.in_use,
        )

    def counters(self) -> dict[str, int]:
        counted = asdict(self.join.counts)
        stream, table = self.plan.stream.name, self.plan.table.name
        return {
            f"{stream}_rows": counted.pop("rows"),
            f"{stream}_null_keys": self._null_keys,
            f"{table}_rows": self.version.rows,
            f"{table}_null_keys": self.version.null_keys,
            **counted,
        }

    def snapshot(self) -> bytes:
        self._kept = set(self.in_use)
        header = {"version": self.version.id, "null keys": self._null_keys}
        return encode(_RUN, header, [to_bytes(self.join)])

    def _restore(self, value: Any) -> None:
        header, [state] = decode(_RUN, value)
        self._null_keys = header["null keys"]
        spec = self.plan.for_bucket(self._store.open(header["version"]))
        self.join = from_bytes(spec, bytes(state), lambda version: self._store.open(version).bucket(0))
        self._kept = set(self.in_use)
