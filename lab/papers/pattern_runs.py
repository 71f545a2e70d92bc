"""Joins of the PWJoin paper's streams at work: results, tuples held and punctuations out, batch by batch.

Two streams a and b (`lab.generators.patterns`), cut into batches by event time, go through a join with
windows, punctuations, both or neither. Every answer is compared with that of a batch join: the number of
pairs, and the sum of the products of their tuple numbers. A pair is a result when the keys are
equal and the later one is at most the earlier one's window behind it.

Worked number: a = {(k 1, 0 s)}, b = {(k 1, 3 s), (k 1, 9 s)}, windows of 5 s: one pair; with a window of 10 s
on a: two. Times are CPU seconds of this process. Cost: in single tuples some 0.5 ms a tuple; in batches of
20,000 tuples the results cost most, 25 million of them 1.5 s.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lab.experiment import Claim, Statement
from lab.generators.patterns import PATTERN_SCHEMA, punctuated
from lab.papers.driver_runs import OneByOne
from streamjoin.api.join import join, stream
from streamjoin.declare.marked import marked
from streamjoin.errors import InvariantBroken
from streamjoin.local.join import LocalRun
from streamjoin.plan.bounds import UnboundedState

Ints: TypeAlias = npt.NDArray[np.int64]
Batch: TypeAlias = Mapping[str, pa.Table]
Window: TypeAlias = float | None  # seconds; None: without end

_SEQUENCE = pa.field("seq", pa.int64())
_FOREVER_S = 1e6

WINDOWS_S = (1, 5, 15)
PATTERN = punctuated("asc", 100, 40)  # punct-asc-100-40


@dataclass(frozen=True)
class PairSum:
    """How many pairs, and a sum over them that does not depend on their order."""

    rows: int
    mix: int

    def plus(self, rows: pa.Table) -> PairSum:
        left, right = (rows[f"{name}_v"].to_numpy().astype(np.uint64) for name in "ab")
        return PairSum(self.rows + len(rows), (self.mix + int((left * right).sum())) % (1 << 64))


@dataclass(frozen=True)
class StreamPair:
    """Two streams, cut into batches by event time."""

    batches: Sequence[Batch]
    seconds: Sequence[float]  # the event time at the end of each batch, since the first tuple
    whole: Batch


def cut(a: pa.Table, b: pa.Table, step_s: float) -> StreamPair:
    """Both streams in steps of event time; what is in one step is one batch."""
    tables = {
        name: table.append_column(_SEQUENCE, pa.array(np.arange(len(table))))
        for name, table in (("a", a), ("b", b))
    }
    times = {name: table["t"].cast(pa.int64()).to_numpy() for name, table in tables.items()}
    begin, end = min(t[0] for t in times.values()), max(t[-1] for t in times.values())
    step = int(step_s * 1e6)
    cuts = np.arange(begin + step, end + step, step)
    ends = {name: [0, *np.searchsorted(t, cuts, side="right").tolist()] for name, t in times.items()}
    batches = [
        {name: tables[name].slice(ends[name][i], ends[name][i + 1] - ends[name][i]) for name in tables}
        for i in range(len(cuts))
    ]
    return StreamPair(batches, ((cuts - begin) / 1e6).tolist(), tables)


def answer(data: StreamPair, window_a: Window, window_b: Window) -> PairSum:
    """The batch join, counted and summed without making its pairs."""
    (left_key, left_time, left), (right_key, right_time, right) = (_tuples(data.whole[name]) for name in "ab")
    ahead, back = (int((_FOREVER_S if w is None else w) * 1e6) for w in (window_a, window_b))
    base = min(left_time.min(), right_time.min())
    width = int(max(left_time.max(), right_time.max()) - base) + 1
    order = np.lexsort((right_time, right_key))
    place = right_key[order] * width + (right_time[order] - base)  # one ascending line for all keys
    offset, line = left_time - base, left_key * width
    first = np.searchsorted(place, line + np.maximum(offset - back, 0), side="left")
    last = np.searchsorted(place, line + np.minimum(offset + ahead, width - 1), side="right")
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(right[order].astype(np.uint64))])
    mix = int((left.astype(np.uint64) * (sums[last] - sums[first])).sum())
    return PairSum(int((last - first).sum()), mix)


def _tuples(table: pa.Table) -> tuple[Ints, Ints, Ints]:
    rows = table.filter(pc.invert(table["is_end"]))
    return rows["k"].to_numpy(), rows["t"].cast(pa.int64()).to_numpy(), rows["v"].to_numpy()


def local(operator: str, window_a: Window, window_b: Window, *, single: bool = False) -> LocalRun:
    """The join by one of the papers' operators; `single`: a step takes one tuple, the oldest."""
    options: dict[str, Any] = {"driver": OneByOne()} if single else {}
    inputs = []
    for name, window in (("a", window_a), ("b", window_b)):
        declared: dict[str, Any] = {} if window is None else {"window": f"{window} seconds"}
        inputs.append(
            stream(
                PATTERN_SCHEMA.append(_SEQUENCE),
                name=name,
                key="k",
                time="t",
                lateness="0 seconds",
                punctuation=marked("is_end"),
                sequence="seq",
                columns=["v"],
                **declared,
            )
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnboundedState)  # that PJoin's state may grow is part of it
        return join(*inputs, operator=operator, **options).local()


@dataclass(frozen=True)
class ObservedBatches:
    """What was seen of a run after each batch."""

    results: Sequence[int]
    cpu_s: Sequence[float]
    held: Mapping[str, Sequence[int]]
    punctuations: Sequence[int]

    @property
    def tuples(self) -> list[int]:
        """Tuples held of both streams."""
        return [a + b for a, b in zip(self.held["a"], self.held["b"], strict=True)]


def observe(run: LocalRun, batches: Iterable[Batch], wanted: PairSum) -> ObservedBatches:
    """All batches through a run; raises unless the answer is the batch join's."""
    found, spent = PairSum(0, 0), 0.0
    results, cpu_s, punctuations = [], [], []
    held: dict[str, list[int]] = {"a": [], "b": []}
    for batch in batches:
        began = time.process_time()
        rows = run.step(batch)
        spent += time.process_time() - began
        found = found.plus(rows)
        results.append(found.rows)
        cpu_s.append(spent)
        punctuations.append(run.join.propagated_keys)
        for name, count in run.state().rows.items():
            held[name].append(count)
    if found != wanted:
        raise InvariantBroken(
            f"a join of two patterns gave {found}, the batch join {wanted}; nothing is reported. Please "
            "report this with the command you ran"
        )
    return ObservedBatches(results, cpu_s, held, punctuations)


@dataclass(frozen=True)
class Contender:
    """An operator on some streams."""

    operator: str
    data: StreamPair
    window: Window
    single: bool = False

    def warm_up(self) -> None:
        """Some batches first."""
        run = local(self.operator, self.window, self.window, single=self.single)
        for batch in self.data.batches[:3]:
            run.step(batch)

    def run(self) -> ObservedBatches:
        wanted = answer(self.data, self.window, self.window)
        return observe(
            local(self.operator, self.window, self.window, single=self.single), self.data.batches, wanted
        )


class Runs(Protocol):
    """A contender, of the product or of the reference engine."""

    def warm_up(self) -> None: ...
    def run(self) -> ObservedBatches: ...


def rounds(
    contenders: Mapping[str, Runs], count: int, step: Callable[[str], None]
) -> dict[str, list[ObservedBatches]]:
    """Each contender so many times, the order rotated; some batches first warm up."""
    for one in contenders.values():
        one.warm_up()
    found: dict[str, list[ObservedBatches]] = {name: [] for name in contenders}
    names = list(contenders)
    for turn in range(count):
        shift = turn % len(names)
        for name in (*names[shift:], *names[:shift]):
            step(f"{name}, round {turn + 1} of {count}")
            found[name].append(contenders[name].run())
    return found


def time_ratio(says: Statement, ours: Sequence[ObservedBatches], theirs: Sequence[ObservedBatches]) -> Claim:
    """CPU time of whole runs by theirs: the ratio of the medians, with the spread of the rounds.

    Undecided where the rounds lie on both sides of the bound.
    """
    each = [a.cpu_s[-1] / b.cpu_s[-1] for a, b in zip(ours, theirs, strict=True)]
    whole = [median(run.cpu_s[-1] for run in runs) for runs in (ours, theirs)]
    return replace(says.decided(each), measured=whole[0] / whole[1])
