"""A statement of the paper on driver inputs, and how it is measured.

It is about some data sets, periods and policies: a number of each, and the mean (or the worst) of them. It is
measured for each form apart, with a value for each repeat; where a case was not run it is open. What the
paper says of its own operator, tuple by tuple, the reference engine decides, and the product in steps of
single tuples stands beside it; whole buffers are the product's alone. Where a statement does not hold, `why`
says what was counted: lookups, choosing, and which pairs a policy can order at all. Worked number: CPU time
of initial output size on set V by timestamp's is 0.35 and 0.26 in the two periods; "0.5 at least once" looks
at the lower one, 0.26.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import mean
from typing import TypeAlias

import numpy as np

from lab.experiment import Claim, Op, Statement
from lab.generators.driver_sets import PERIODS
from lab.papers.driver_reference import CHOSEN_BEFORE, REFERENCE
from lab.papers.driver_runs import BUFFERS, GRID, TUPLES, CaseResult, StepSize

Key: TypeAlias = tuple[str, str, str]  # form, set, period
Cases: TypeAlias = Mapping[Key, Sequence[CaseResult]]  # one of each seed
Value: TypeAlias = Callable[[CaseResult, str], float]
Over: TypeAlias = Callable[[Sequence[float]], float]

BOTH = tuple(PERIODS)
SOURCES = {
    "driver-6": "Driver inputs, figure 6",
    "driver-7": "Driver inputs, figure 7",
    "driver-8": "Driver inputs, figure 8",
    "driver-table-4": "Driver inputs, Table 4",
    "driver-table-5": "Driver inputs, Table 5",
}
_NOT_SEEN = [float("nan")] * len(GRID)
SUFFIX = {TUPLES.name: "-tuples", BUFFERS.name: ""}


def time(found: CaseResult, policy: str) -> float:
    """CPU time by timestamp's."""
    return found.time(policy)


def lookups(found: CaseResult, policy: str) -> float:
    """Lookups by timestamp's."""
    return found.lookups(policy)


def produced(share: float) -> Value:
    """The share of the results at a share of timestamp's time."""
    return lambda found, policy: found.policies[policy].at(share)


def consumed(share: float) -> Value:
    """The share of a batch's tuples worked through at a share of timestamp's time; nan where not seen."""
    place = int(np.argmin(np.abs(GRID - share)))
    return lambda found, policy: found.policies[policy].consumed.get("all", _NOT_SEEN)[place]


def beside(value: Value, others: Sequence[str]) -> Value:
    """A policy's number by the least of some others."""
    return lambda found, policy: value(found, policy) / min(value(found, each) for each in others)


def off_one(values: Sequence[float]) -> float:
    """How far the mean is from 1."""
    return abs(mean(values) - 1)


@dataclass(frozen=True)
class PaperStatement:
    """A statement of the paper: over these sets, periods and policies, in multiples of timestamp's."""

    figure: str
    name: str
    says: str
    op: Op
    target: float
    value: Value
    sets: Sequence[str]
    policies: Sequence[str]
    periods: Sequence[str] = BOTH
    over: Over = mean
    unit: str = "times"
    average: bool = False  # an average of the paper: of all its cases, or not at all

    def claim(self, cases: Cases, form: StepSize) -> Claim:
        """As measured in one form; tuple by tuple: by the reference engine, the product beside it."""
        if form.name == TUPLES.name:
            return self._measured(cases, form, REFERENCE).beside(self._measured(cases, form, form))
        return self._measured(cases, form, form)

    def _measured(self, cases: Cases, form: StepSize, engine: StepSize) -> Claim:
        statement = Statement(
            f"{self.figure}{SUFFIX[form.name]}-{self.name}",
            f"{self.says} ({'tuple by tuple' if form.name == TUPLES.name else form.name})",
            SOURCES[self.figure],
            self.op,
            self.target,
            self.unit,
        )
        keys = [(engine.name, *each) for each in product(self.sets, self.periods)]
        there = [key for key in keys if key in cases]
        if not there or (self.average and len(there) < len(keys)):
            return statement.open("needs more data sets or periods: run without --quick")
        repeats = min(len(cases[key]) for key in there)
        chosen = [[cases[key][repeat] for key in there] for repeat in range(repeats)]
        claim = statement.decided(
            [
                self.over([self.value(found, one) for found in some for one in self.policies])
                for some in chosen
            ]
        )
        told = [] if claim.holds else [self._why(chosen, engine)]
        told += [claim.why] if claim.why else []
        if len(there) < len(keys):
            told.append("measured on " + ", ".join(f"{name} {period}" for _, name, period in there) + " only")
        return replace(claim, why="; ".join(told) or None)

    def _why(self, chosen: Sequence[Sequence[CaseResult]], engine: StepSize) -> str:
        """What a policy can change, and what it did change, in numbers."""
        all_found = [found for some in chosen for found in some]
        counted = {
            what: mean(value(found, one) for found in all_found for one in self.policies)
            for what, value in (("lookups", lookups), ("steps", CaseResult.steps), ("time", time))
        }
        pairs = mean(found.in_one_batch for found in all_found)
        told = (
            f"{pairs:.1%} of the pairs have both tuples in one batch, and a policy orders no others: lookups "
            f"are {counted['lookups']:.3f}, CPU time {counted['time']:.2f} of timestamp's"
        )
        if engine.name == REFERENCE.name:
            return told + "; " + (self._choosing(all_found) if self.unit == "times" else self._early(counted))
        if engine.name == TUPLES.name:
            return f"{told}; a step on arrays costs the same whichever input its one tuple is of"
        return (
            f"{told}, steps {counted['steps']:.2f}; a step costs mostly the same however many tuples it has, "
            f"so time follows the steps"
        )

    def _choosing(self, found: Sequence[CaseResult]) -> str:
        """Where the time of the reference engine goes."""
        rest = mean(one.time(CHOSEN_BEFORE) for one in found)
        return (
            f"timestamp's own order taken from a list needs {rest:.2f} of its time: the rest is choosing an "
            f"input for every tuple"
        )

    def _early(self, counted: Mapping[str, float]) -> str:
        """How much of the work is done by then."""
        half = min(0.5 / counted["time"], 1.0)
        return (
            f"after half of timestamp's time {half:.0%} of the tuples are worked through, and where each "
            f"buffer gives its share of the results evenly, as here, about as many results are there: more "
            f"needs a lower running time than the paper's own Table 4 has"
        )
