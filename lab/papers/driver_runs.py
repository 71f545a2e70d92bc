"""One data set of the driver paper, worked through by every policy: probes, intermediate tuples, CPU time.

A *form* says how: `TUPLES` at 1/100 of the paper's size, a step of one tuple; `BUFFERS` at full size, whole
buffers where the policy says so and steps of 1,000 tuples where inputs take turns. A *case* is a form, a data
set, a period and a seed; its policies take each batch one after another in this process, in an order that
rotates, so what else the machine does hits all alike; each answer is compared with a batch join before
anything of the case is returned. The paper's protocol: the first 20 % of the batches do not count, the two
halves of the rest are also told apart. Times are CPU seconds of this process.

Produced share: at which share of the timestamp policy's time for a batch, which share of the batch's results
was there; the mean over the batches. Worked number: timestamp took 2 s for a batch of 10 results, another
policy had 8 of them after 1 s: its share at 0.5 is 0.8. Cost: set I in single tuples takes some 10 s for each
policy, in whole buffers 2 s.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lab.generators.driver_sets import DRIVER_SCHEMA, DRIVER_SETS, PERIODS, STREAMS, SetName
from streamjoin.api.join import join, stream
from streamjoin.errors import InvariantBroken
from streamjoin.join.strategies.driver import (
    Adaptive,
    ConsumptionRate,
    Driver,
    InitialOutput,
    OutputRate,
    Queue,
    RoundRobin,
    Timestamp,
)
from streamjoin.local.join import LocalRun
from streamjoin.plan.bounds import UnboundedState

Floats: TypeAlias = npt.NDArray[np.float64]
RunHalf: TypeAlias = Literal["all", "first half", "second half"]

BASE = "timestamp"
FIXED = (BASE, "round_robin", "consumption_rate", "initial_output", "output_rate")
POLICIES = (*FIXED, "adaptive")
GRID: Floats = np.linspace(0, 1.2, 61)  # shares of the timestamp policy's time
_WARMING = 0.2  # of the batches


@dataclass(frozen=True)
class OneByOne:
    """Timestamp in steps of one tuple, also where several of an input come before the next of another."""

    name: str = "timestamp"

    def choose(self, queues: Sequence[Queue], previous: int | None) -> tuple[int, int]:
        return min(queues, key=lambda queue: (queue.next_time_us or 0, queue.input)).input, 1


@dataclass(frozen=True)
class StepSize:
    """How much data, how many rows of a buffer in a step (None: all), and where inputs take turns."""

    name: str
    scale: float
    of_buffer: int | None
    of_turn: int

    def driver(self, policy: str) -> Driver:
        """A policy with the steps of this form."""
        if policy == "timestamp":
            return OneByOne() if self.of_turn == 1 else Timestamp(self.of_turn)
        if policy == "round_robin":
            return RoundRobin(self.of_turn)
        return _OF_BUFFERS[policy](self.of_buffer)


_OF_BUFFERS: dict[str, Callable[[int | None], Driver]] = {
    "consumption_rate": ConsumptionRate,
    "initial_output": InitialOutput,
    "output_rate": OutputRate,
    "adaptive": Adaptive,
}
TUPLES = StepSize("single tuples", 0.01, 1, 1)
BUFFERS = StepSize("whole buffers", 1.0, None, 1_000)


@dataclass(frozen=True)
class DriverCase:
    """What one seed does to all policies."""

    form: StepSize
    name: SetName
    period: str
    seed: int

    def __str__(self) -> str:
        return f"set {self.name}, period {self.period}, {self.form.name}"


@dataclass(frozen=True)
class PolicyRun:
    """What a policy did in each batch; `curve` has the CPU time and the results so far of each yield."""

    probes: Floats
    intermediate: Floats
    cpu_s: Floats
    turns: Floats
    curves: list[tuple[Floats, Floats]]
    consumed: Sequence[tuple[Floats, Floats]] = ()  # the same with the tuples worked through so far


@dataclass(frozen=True)
class PolicySummary:
    """What a policy did in the batches that count, by part of the run."""

    probes: dict[RunHalf, float]
    intermediate: dict[RunHalf, float]
    cpu_s: dict[RunHalf, float]
    turns: dict[RunHalf, float]
    produced: dict[RunHalf, list[float]]  # the share of the results at each place of GRID
    consumed: dict[RunHalf, list[float]] = field(default_factory=dict)  # of the tuples, where it was seen

    def at(self, share: float, part: RunHalf = "all") -> float:
        """The share of the results at this share of the timestamp policy's time."""
        return self.produced[part][int(np.argmin(np.abs(GRID - share)))]

    def at_half(self, part: RunHalf = "all") -> float:
        """The share of the results at half of the timestamp policy's time."""
        return self.at(0.5, part)


@dataclass(frozen=True)
class CaseResult:
    """What a case found: the policies, and the share of all pairs of two streams that meet in one batch."""

    policies: dict[str, PolicySummary]
    in_one_batch: float

    def time(self, policy: str, part: RunHalf = "all") -> float:
        """CPU time of a policy by that of timestamp."""
        return self.policies[policy].cpu_s[part] / self.policies[BASE].cpu_s[part]

    def lookups(self, policy: str) -> float:
        """Lookups of a policy by those of timestamp."""
        return self.policies[policy].probes["all"] / self.policies[BASE].probes["all"]

    def steps(self, policy: str) -> float:
        """Steps of a policy by those of timestamp."""
        return self.policies[policy].turns["all"] / self.policies[BASE].turns["all"]


def local(driver: Driver) -> LocalRun:
    """The join of the three streams."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnboundedState)
        inputs = [stream(DRIVER_SCHEMA, name=name, key="k", time="t") for name in STREAMS]
        return join(*inputs, driver=driver).local()


def case(what: DriverCase, policies: Sequence[str] = POLICIES) -> CaseResult:
    """All policies on the same batches; each answer is the batch join's, or this raises."""
    streams = DRIVER_SETS[what.name].streams(scale=what.form.scale, seed=what.seed)
    batches = list(streams.batches(PERIODS[what.period]))
    wanted = batch_join(streams.tables)
    at_work = {policy: Working(local(what.form.driver(policy))) for policy in policies}
    for number, batch in enumerate(batches, what.seed):
        turn = number % len(policies)
        for policy in (*policies[turn:], *policies[:turn]):
            at_work[policy].take(batch)
    for policy, one in at_work.items():
        if one.answer != wanted:
            raise InvariantBroken(
                f"{policy} on {what.name} gave {one.answer}, the batch join {wanted}; nothing is reported"
            )
    worked = {policy: one.worked() for policy, one in at_work.items()}
    return CaseResult(summaries(worked), in_one_batch(batches))


def in_one_batch(batches: Sequence[Mapping[str, pa.Table]]) -> float:
    """The share of the pairs of equal keys whose tuples come in one batch: only these can a policy order."""
    here = sum(_pairs(batch) for batch in batches)
    return here / _pairs({name: pa.concat_tables([batch[name] for batch in batches]) for name in STREAMS})


def _pairs(tables: Mapping[str, pa.Table]) -> int:
    """The sizes of the joins of two, summed."""
    pairs = 0
    counted = [np.unique(table["k"].to_numpy(), return_counts=True) for table in tables.values()]
    for (keys, counts), (other_keys, other_counts) in combinations(counted, 2):
        _, left, right = np.intersect1d(keys, other_keys, assume_unique=True, return_indices=True)
        pairs += int((counts[left] * other_counts[right]).sum())
    return pairs


class Working:
    """A policy's run, batch by batch; `answer` has the rows and the checksum of all results so far."""

    def __init__(self, run: LocalRun) -> None:
        self.run, self.answer = run, (0, 0)
        self._counted, self._curves = [_counted(run)], list[tuple[Floats, Floats]]()

    def take(self, batch: Mapping[str, pa.Table]) -> None:
        """One batch: when which results were there."""
        tables, at, rows = [], [0.0], [0]
        began = time.process_time()
        for table in self.run.produce(batch):
            at.append(time.process_time() - began)
            rows.append(rows[-1] + len(table))
            tables.append(table)
        at.append(time.process_time() - began)
        rows.append(rows[-1])
        self._curves.append((np.array(at), np.array(rows, np.float64)))
        self._counted.append(_counted(self.run))
        self.answer = plus(self.answer, *(checksum(table) for table in tables))

    def worked(self) -> PolicyRun:
        """What was done."""
        probes, intermediate, turns = np.diff(np.array(self._counted, np.float64), axis=0).T
        cpu_s = np.array([at[-1] for at, _ in self._curves])
        return PolicyRun(probes, intermediate, cpu_s, turns, self._curves)


def _counted(run: LocalRun) -> tuple[int, int, int]:
    found = run.counters()
    probes, intermediate = (sum(found[f"{name}_{what}"] for name in STREAMS) for what in _COUNTERS)
    return probes, intermediate, run.join.turns


_COUNTERS = ("probes", "intermediate")


# The answer


def batch_join(tables: Mapping[str, pa.Table]) -> tuple[int, int]:
    """Rows and checksum of the join of whole tables, by Arrow."""
    first, *others = (
        table.select(["k", "v"]).rename_columns(["k", f"{name}_v"]) for name, table in tables.items()
    )
    for other in others:
        first = first.join(other, "k", join_type="inner")
    return checksum(first)


def checksum(rows: pa.Table) -> tuple[int, int]:
    """How many rows, and a sum over them that does not depend on their order."""
    return checksum_of([rows[f"{name}_v"].to_numpy() for name in STREAMS])


def checksum_of(numbers: Sequence[npt.NDArray[np.int64]]) -> tuple[int, int]:
    """The same of the tuples' numbers, a column for each stream."""
    mixed = np.zeros(len(numbers[0]), np.uint64)
    for column in numbers:
        mixed = (mixed + column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return len(mixed), int(mixed.sum())


def plus(*parts: tuple[int, int]) -> tuple[int, int]:
    """The answer of all parts."""
    rows, sums = zip(*parts, strict=True)
    return sum(rows), sum(sums) % (1 << 64)


# What counts


def parts(batches: int) -> dict[RunHalf, slice]:
    """The batches that count, and their halves.

    >>> parts(10)
    {'all': slice(2, 10, None), 'first half': slice(2, 6, None), 'second half': slice(6, 10, None)}
    """
    start = round(batches * _WARMING)
    middle = (start + batches) // 2
    return {
        "all": slice(start, batches),
        "first half": slice(start, middle),
        "second half": slice(middle, batches),
    }


def summaries(worked: Mapping[str, PolicyRun]) -> dict[str, PolicySummary]:
    """What counts of each policy, beside timestamp's time."""
    return {policy: _summary(run, worked[BASE]) for policy, run in worked.items()}


def _summary(worked: PolicyRun, base: PolicyRun) -> PolicySummary:
    cuts = parts(len(worked.curves))

    def shares(curves: Sequence[tuple[Floats, Floats]]) -> dict[RunHalf, list[float]]:
        each = np.array([_share(*curve, spent) for curve, spent in zip(curves, base.cpu_s, strict=True)])
        return {part: np.nanmean(each[cut], axis=0).tolist() for part, cut in cuts.items()}

    def sums(each: Floats) -> dict[RunHalf, float]:
        return {part: float(each[cut].sum()) for part, cut in cuts.items()}

    return PolicySummary(
        sums(worked.probes),
        sums(worked.intermediate),
        sums(worked.cpu_s),
        sums(worked.turns),
        shares(worked.curves),
        shares(worked.consumed) if worked.consumed else {},
    )


def _share(at: Floats, rows: Floats, spent: float) -> Floats:
    """The share of a batch's results at each place of the grid; nan for a batch without results."""
    if rows[-1] == 0:
        return np.full(len(GRID), np.nan)
    there = np.searchsorted(at, GRID * spent, side="right") - 1
    share: Floats = rows[there] / rows[-1]
    return share
