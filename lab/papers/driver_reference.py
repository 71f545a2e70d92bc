"""The data sets of the driver paper worked through by the reference engine: the paper's own loops.

As `driver_runs`, with the same case, the same protocol and the same answer to compare with, but the join is
`lab.reference.driver`: hash tables and buffers in plain Python, tuple by tuple, selectivities given. In full
every set has the paper's size.

One contender more, `CHOSEN_BEFORE`, takes timestamp's order from a list that was made before: what it needs
less than timestamp is the cost of choosing, what it needs more than another policy is that of the order.
Cost: a case of 3 million tuples takes 60 s and 4 GB, one of 1.1 million 20 s.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import combinations
from math import prod
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from lab.generators.driver_sets import DRIVER_SETS, PERIODS, STREAMS, units
from lab.papers.driver_runs import (
    BASE,
    FIXED,
    CaseResult,
    DriverCase,
    PolicyRun,
    StepSize,
    batch_join,
    checksum_of,
    in_one_batch,
    plus,
    summaries,
)
from lab.reference.collector import without_collector
from lab.reference.driver import DriverJoin, Selectivities
from lab.reference.elements import Row
from streamjoin.errors import InvariantBroken

Counts: TypeAlias = dict[int, int]
Rows: TypeAlias = Sequence[Sequence[Row]]  # of each input

REFERENCE = StepSize("reference engine", 1.0, 1, 1)
REFERENCE_QUICK = StepSize("reference engine", 0.1, 1, 1)
CHOSEN_BEFORE = f"{BASE}, chosen before"
_SAMPLES = 60  # of a batch


def reference_case(what: DriverCase) -> CaseResult:
    """All policies on the same batches; each answer is the batch join's, or this raises."""
    streams = DRIVER_SETS[what.name].streams(scale=what.form.scale, seed=what.seed)
    batches = list(streams.batches(PERIODS[what.period]))
    wanted = batch_join(streams.tables)
    known = selectivities(streams.tables)
    at_work = {policy: _Working(DriverJoin(known, policy)) for policy in FIXED}
    at_work[CHOSEN_BEFORE] = _Working(DriverJoin(known, BASE), chosen_before=True)
    names = list(at_work)
    with without_collector():
        for number, batch in enumerate(batches, what.seed):
            turn = number % len(names)
            rows = rows_of(batch)
            for policy in (*names[turn:], *names[:turn]):
                at_work[policy].take(rows)
    for policy, one in at_work.items():
        if one.answer != wanted:
            raise InvariantBroken(
                f"the reference engine with {policy} on {what.name} gave {one.answer}, the batch join "
                f"{wanted}; nothing is reported"
            )
    return CaseResult(summaries({name: one.worked() for name, one in at_work.items()}), in_one_batch(batches))


def selectivities(tables: Mapping[str, pa.Table]) -> Selectivities:
    """As the paper's Table 2 has them, from the whole data."""
    counts = [_counts(tables[name]) for name in STREAMS]
    sizes = [len(tables[name]) for name in STREAMS]
    pair = {
        (i, j): sum(count * counts[j].get(key, 0) for key, count in counts[i].items()) / (sizes[i] * sizes[j])
        for i, j in combinations(range(len(STREAMS)), 2)
    }
    results = sum(prod(count.get(key, 0) for count in counts) for key in counts[0])
    return Selectivities(pair, results / prod(sizes), [results / n for n in sizes])


def _counts(table: pa.Table) -> Counts:
    keys, counts = np.unique(table["k"].to_numpy(), return_counts=True)
    return dict(zip(keys.tolist(), counts.tolist(), strict=True))


def rows_of(batch: Mapping[str, pa.Table]) -> Rows:
    """A batch as the reference engine takes it."""
    made = []
    for i, name in enumerate(STREAMS):
        table = batch[name]
        columns = (table["k"].to_numpy().tolist(), units(table["t"]).tolist(), table["v"].to_numpy().tolist())
        made.append([Row(i, *each) for each in zip(*columns, strict=True)])
    return made


class _Working:
    """A policy's run, batch by batch; `answer` has the rows and the checksum of all results so far."""

    def __init__(self, join: DriverJoin, *, chosen_before: bool = False) -> None:
        self.join, self.answer, self._chosen_before = join, (0, 0), chosen_before
        self._counted = [(0, 0, 0)]
        self._curves: list[tuple[list[float], list[float], list[float]]] = []

    def take(self, batch: Rows) -> None:
        """One batch: when which results were there, and how much of the input was consumed."""
        at, results, consumed = [0.0], [0.0], [0.0]
        done, size = self.join.work.inserted, sum(map(len, batch))
        made = self.join.output.rows
        order = self.join.order_of(batch) if self._chosen_before else None

        def sampled() -> None:
            at.append(time.process_time() - began)
            results.append(float(len(made)))
            consumed.append(float(self.join.work.inserted - done))

        began = time.process_time()
        self.join.process(batch, sampled, max(size // _SAMPLES, 1), order)
        sampled()
        self._curves.append((at, results, consumed))
        work = self.join.work
        self._counted.append((work.probes, 0, work.switches))
        numbers = np.array([[row.number for row in sorted(result)] for result in made], np.int64)
        self.answer = plus(self.answer, checksum_of(list(numbers.reshape(-1, len(STREAMS)).T)))
        made.clear()

    def worked(self) -> PolicyRun:
        """What was done."""
        probes, intermediate, switches = np.diff(np.array(self._counted, np.float64), axis=0).T
        at, results, consumed = ([np.array(curve[i]) for curve in self._curves] for i in range(3))
        cpu_s = np.array([each[-1] for each in at])
        curves = list(zip(at, results, strict=True))
        used = list(zip(at, consumed, strict=True))
        return PolicyRun(probes, intermediate, cpu_s, switches, curves, used)
