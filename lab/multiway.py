"""Joins of many streams in one operator: driver policies beside the paper, and Spark beside its own chain.

Policies, without Spark: Tables 4 and 5 of the paper on driver inputs, six data sets, two periods, in single
tuples at 1/100 of the size (2 repeats, as a step of one tuple is slow) and in whole buffers at full size (5
repeats, the paper has 10) (`driver_runs`); other seeds in each, two cases at a time in two processes. Spark:
joins of three and five streams (`multiway_spark`). Every answer is checked before a number is reported.

Where the paper's gain in time does not appear, `why` says so in numbers: time is lookups times time per
lookup, and a policy can only change the order within a batch, so it decides about no other pairs than those
whose tuples come in one batch.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any, TypeAlias

from lab.experiment import Claim, Experiment, Progress, Result, Statement
from lab.generators.driver_sets import DRIVER_SETS, PERIODS, SetName
from lab.kept import each
from lab.multiway_spark import Load, five_way, three_way
from lab.papers.driver_printed import AT_HALF, AVERAGE_TIME, RUNNING_TIME, printed
from lab.papers.driver_runs import BASE, BUFFERS, FIXED, GRID, POLICIES, TUPLES, Case, Form, Found, Part
from lab.papers.driver_runs import case as run_case
from streamjoin.plot import Bars, Chart, Panels, Picture

SEED = 1
_ISSUE = "issue 6"
_PART: Part = "all"
SHOWN: tuple[SetName, ...] = ("I", "V", "VI")  # in the picture of produced results

INITIAL = Statement(
    "initial-output",
    "lookups of initial output size by those of timestamp: the worst data set, period and form",
    _ISSUE,
    "<=",
    1.02,
    "times",
)
ADAPTIVE = Statement(
    "adaptive",
    "lookups of adaptive by those of the best fixed policy: the worst data set, period and form",
    _ISSUE,
    "<=",
    1.05,
    "times",
)
GAIN = {
    (form.name, period): Statement(
        f"gain-{form.name.replace(' ', '-')}-{period}",
        f"CPU time of initial output size by timestamp's, {form.name}, period {period}: mean of the sets",
        "the paper, Table 4",
        "<=",
        AVERAGE_TIME[period],
        "times",
    )
    for form in (TUPLES, BUFFERS)
    for period in PERIODS
}


@dataclass(frozen=True)
class Plan:
    """Which forms, and how many seeds of each."""

    forms: Mapping[Form, int]
    sets: Sequence[SetName] = tuple(DRIVER_SETS)
    periods: Sequence[str] = tuple(PERIODS)
    workers: int = 2
    timed: bool = True  # whether times say something at these sizes

    def cases(self) -> list[Case]:
        """Those that take longest first, repeat by repeat."""
        return [
            Case(form, name, period, SEED + repeat)
            for form, repeats in self.forms.items()
            for repeat in range(repeats)
            for name in self.sets
            for period in self.periods
        ]


FULL = Plan({TUPLES: 2, BUFFERS: 5})  # a repeat takes about 5 and 3 minutes
QUICK = Plan({replace(TUPLES, scale=0.002): 1, replace(BUFFERS, scale=0.1): 1}, timed=False)

Runs: TypeAlias = list[Found]  # one of each seed
Key: TypeAlias = tuple[str, str, str]  # form, set, period


def policies(plan: Plan, step: Callable[[str], None]) -> dict[Key, Runs]:
    """All cases, two at a time."""
    found: dict[Key, Runs] = {}
    cases = plan.cases()
    for number, (what, runs) in enumerate(zip(cases, each(cases, run_case, plan.workers), strict=True), 1):
        step(f"{what}: {number} of {len(cases)} cases done")
        found.setdefault((what.form.name, what.name, what.period), []).append(runs)
    return found


# Tables


def lookups_by(runs: Runs, policy: str, others: Sequence[str]) -> float:
    """Mean lookups of a policy, by the fewest of some others."""
    means = {one: mean(each.policies[one].probes[_PART] for each in runs) for one in (policy, *others)}
    return means[policy] / min(means[one] for one in others)


def time_by(runs: Runs, policy: str, part: Part = _PART) -> float:
    """Median CPU time of a policy by that of timestamp."""
    return median(each.policies[policy].cpu_s[part] for each in runs) / median(
        each.policies[BASE].cpu_s[part] for each in runs
    )


def tables(found: Mapping[Key, Runs]) -> dict[str, Any]:
    """Tables 4 and 5: form, set, period, policy."""
    made: dict[str, Any] = {}
    for (form, name, period), runs in found.items():
        place = made.setdefault(form, {}).setdefault(name, {})
        place[period] = {policy: _row(runs, policy, name, period) for policy in runs[0].policies}
    return made


def _row(runs: Runs, policy: str, name: str, period: str) -> dict[str, Any]:
    ones = [each.policies[policy] for each in runs]
    times = [each.policies[policy].cpu_s[_PART] / each.policies[BASE].cpu_s[_PART] for each in runs]
    lookups = [lookups_by([each], policy, (BASE,)) for each in runs]
    return {
        "repeats": len(runs),
        "probes": mean(one.probes[_PART] for one in ones),
        "intermediate": mean(one.intermediate[_PART] for one in ones),
        "turns": mean(one.turns[_PART] for one in ones),
        "cpu_s": median(one.cpu_s[_PART] for one in ones),
        "probes_by_timestamp": lookups_by(runs, policy, (BASE,)),
        "probes_low_high": [min(lookups), max(lookups)],
        "time_by_timestamp": time_by(runs, policy),
        "time_low_high": [min(times), max(times)],
        "time_first_half": time_by(runs, policy, "first half"),
        "time_second_half": time_by(runs, policy, "second half"),
        "time_in_paper": 1.0 if policy == BASE else printed(RUNNING_TIME, name, policy, period),
        "produced_at_half": mean(one.at_half() for one in ones),
        "produced_at_half_first_half": mean(one.at_half("first half") for one in ones),
        "produced_at_half_second_half": mean(one.at_half("second half") for one in ones),
        "produced_in_paper": printed(AT_HALF, name, policy, period),
    }


# Claims


def claims(found: Mapping[Key, Runs], plan: Plan) -> list[Claim]:
    """What the tables say."""
    initial = {key: lookups_by(runs, "initial_output", (BASE,)) for key, runs in found.items()}
    adaptive = {key: lookups_by(runs, "adaptive", FIXED) for key, runs in found.items()}
    return [
        _worst(INITIAL, initial),
        _worst(ADAPTIVE, adaptive),
        *(
            _gain(found, form, period)
            if plan.timed
            else GAIN[form.name, period].open("needs the full sizes and repeats: run without --quick")
            for form in plan.forms
            for period in plan.periods
        ),
    ]


def _worst(says: Statement, ratios: Mapping[Key, float]) -> Claim:
    worst = max(ratios, key=lambda key: ratios[key])
    form, name, period = worst
    claim = says.measured([ratios[worst]])
    why = f"of {len(ratios)} the worst is set {name}, period {period}, {form}"
    return replace(claim, low=min(ratios.values()), runs=len(ratios), why=why)


def _gain(found: Mapping[Key, Runs], form: Form, period: str) -> Claim:
    """The paper's gain in time, and what it is made of here."""
    chosen = {key: runs for key, runs in found.items() if key[0] == form.name and key[2] == period}
    ratios = [time_by(runs, "initial_output") for runs in chosen.values()]
    claim = GAIN[form.name, period].measured([mean(ratios)])
    lookups = mean(lookups_by(runs, "initial_output", (BASE,)) for runs in chosen.values())
    steps = mean(_steps_by(runs, "initial_output") for runs in chosen.values())
    pairs = mean(each.in_one_batch for runs in chosen.values() for each in runs)
    each_lookup = mean(ratios) / lookups
    why = (
        f"{pairs:.1%} of the pairs meet in one batch, and a policy orders no others: lookups are "
        f"{lookups:.3f} of timestamp's; steps are {steps:.2f} of its, CPU time for a lookup {each_lookup:.2f}"
    )
    return replace(claim, low=min(ratios), high=max(ratios), runs=len(ratios), why=why)


def _steps_by(runs: Runs, policy: str) -> float:
    return mean(each.policies[policy].turns[_PART] / each.policies[BASE].turns[_PART] for each in runs)


# Pictures


def produced(found: Mapping[Key, Runs], form: str) -> dict[str, Chart]:
    """Produced results against time for some sets, in the longer period."""
    return {name: _produced(name, found[form, name, "1M"]) for name in SHOWN if (form, name, "1M") in found}


def charts(found: Mapping[Key, Runs], form: str) -> dict[str, Picture]:
    """Produced results against time, and CPU time of all sets in the longer period."""
    panels = list(produced(found, form).values())
    times = {(one, name): runs for (one, name, period), runs in found.items() if period == "1M"}
    bars = {
        one: Bars(
            f"CPU time, period 1M, {one}",
            "by timestamp's",
            [f"set {name}" for shown, name in times if shown == one],
            {
                _label(policy): [time_by(runs, policy) for (shown, _), runs in times.items() if shown == one]
                for policy in POLICIES
            },
        )
        for one in dict.fromkeys(shown for shown, _ in times)
    }
    return {"produced": Panels(panels), **{f"time-{one.split()[-1]}": bar for one, bar in bars.items()}}


def _produced(name: str, runs: Runs) -> Chart:
    lines = {}
    for policy in POLICIES:
        shares = [
            mean(each) for each in zip(*(run.policies[policy].produced[_PART] for run in runs), strict=True)
        ]
        lines[_label(policy)] = ([100 * float(x) for x in GRID], [100 * share for share in shares])
    return Chart(f"Set {name}", "% of timestamp's time for a batch", "% of the batch's results", lines)


def _label(policy: str) -> str:
    return policy.replace("_", " ")


def run(quick: bool, progress: Progress) -> Result:  # noqa: FBT001  # the interface of an experiment
    """The whole experiment."""
    plan, load = (QUICK, Load(batches=4, rounds=1)) if quick else (FULL, Load())
    progress.total(len(plan.cases()) + 2 * load.rounds + 3)
    with tempfile.TemporaryDirectory(prefix="streamjoin-lab-") as folder:
        home = Path(folder)
        parts = [five_way(home, load, progress.step), three_way(home, load, progress.step)]
    found = policies(plan, progress.step)
    series = {name: value for _, part in parts for name, value in part.items()}
    series |= {
        "scales": {form.name: form.scale for form in plan.forms},
        "tables": tables(found),
        "produced": {name: chart.lines for name, chart in produced(found, TUPLES.name).items()},
    }
    made = [*claims(found, plan), *(claim for part, _ in parts for claim in part)]
    return Result("multiway", SEED, made, 5, series, charts(found, TUPLES.name))


def experiments() -> Iterator[Experiment]:
    """What this file adds to the lab."""
    yield Experiment(
        "multiway", "driver policies beside the paper, and joins of 3 and 5 streams on Spark", run
    )
