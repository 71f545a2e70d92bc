"""Tables 4 and 5 of the paper on driver inputs, made of cases: each figure beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, median
from typing import Any, TypeAlias

from lab.papers.driver_printed import AT_HALF, RUNNING_TIME, printed
from lab.papers.driver_runs import BASE, CaseResult, RunHalf

SEED = 1
_PART: RunHalf = "all"
Runs: TypeAlias = Sequence[CaseResult]  # one of each seed
Key: TypeAlias = tuple[str, str, str]  # form, set, period


def lookups_by(runs: Runs, policy: str, others: Sequence[str]) -> float:
    """Mean lookups of a policy, by the fewest of some others."""
    means = {one: mean(each.policies[one].probes[_PART] for each in runs) for one in (policy, *others)}
    return means[policy] / min(means[one] for one in others)


def time_by(runs: Runs, policy: str, part: RunHalf = _PART) -> float:
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
