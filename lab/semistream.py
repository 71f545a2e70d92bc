"""Semi-stream joins: a stream with master data that fits in no memory, beside MESHJOIN and beside Spark.

Without Spark (`semistream_local`): service rate with the same memory, memory for the same rate, the cost
model, Theorem 3 and a shift of the hot values. On Spark (`semistream_spark`): beside its stream-static join,
with 10 and 40 million rows of master data. The latency of a result stands beside every rate in `series`.
Data is written below a temporary folder: up to 11 GB in the full form.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

from lab.experiment import Claim, Experiment, Progress, Result, Statement
from lab.semistream_local import (
    DISKS,
    FORMS,
    MESHJOIN,
    OURS,
    SEED,
    SKEWS,
    SSBJ,
    Bench,
    ByMemory,
    Compared,
    Predicted,
    Shift,
    Sizes,
    becomes_main_memory,
    compare,
    costs,
    least_memory,
    other_memories,
    predicted,
    shifted,
    told,
)
from lab.semistream_spark import STATEMENTS, Enrichment, enrichment
from streamjoin.plot import Bars, Chart, Picture

FULL = Sizes(), Enrichment()
QUICK = (
    Sizes(rows=500_000, segments=50, repeats=2, shift_rows=200_000),
    Enrichment(rounds=((10, 1),), batches=24, spark_batches=8),
)
_ISSUE = "issue 7"

RATE = {
    (1.0, "as it is"): Statement(
        "rate-skew-1",
        "skew 1, the same memory (10 %): service rate in multiples of MESHJOIN's",
        "SSBJ paper, figure 5(c): 7 to 8; issue 7",
        ">=",
        6,
        "times",
        8,
    ),
    (1.0, "100 MB/s"): Statement(
        "rate-skew-1-slow",
        "the same, read at 100 MB/s",
        "SSBJ paper, figure 5(c); issue 7",
        ">=",
        6,
        "times",
        8,
    ),
    (0.0, "as it is"): Statement(
        "rate-skew-0", "skew 0: service rate in multiples of MESHJOIN's", _ISSUE, ">=", 1, "times"
    ),
    (0.0, "100 MB/s"): Statement("rate-skew-0-slow", "the same, read at 100 MB/s", _ISSUE, ">=", 1, "times"),
}
PAPER_FORM = {
    "as it is": Statement(
        "paper-form",
        "SSBJ in the paper's form, skew 1: service rate in multiples of MESHJOIN's",
        "SSBJ paper, figure 5(c)",
        ">=",
        1,
        "times",
        8,
    ),
    "100 MB/s": Statement(
        "paper-form-slow",
        "SSBJ in the paper's form, skew 1, read at 100 MB/s: the same",
        "SSBJ paper, figure 5(c)",
        ">=",
        1,
        "times",
        8,
    ),
}
MEMORY = {
    (memory, disk): Statement(
        f"memory-{memory:.0%}".replace("%", "") + ("" if disk == "as it is" else "-slow"),
        f"skew 1, the service rate of MESHJOIN with {memory:.0%} of the master data as memory"
        + ("" if disk == "as it is" else f", read at {disk}")
        + ": the least measured memory for it, by MESHJOIN's",
        "SSBJ paper, figure 4: 1/7 to 1/5; issue 7",
        "<=",
        0.2,
        "times",
    )
    for memory in (Sizes.larger, Sizes.memory)
    for disk in DISKS
}
MODEL = {
    skew: Statement(
        f"model-skew-{skew:g}",
        f"skew {skew:g}: how far a turn's CPU time is off the cost model, the worst of three forms",
        "SSBJ paper, figure 6(c, d); issue 7",
        "<=",
        0.2,
        "share",
    )
    for skew in SKEWS
}
WHOLE = Statement(
    "theorem-3",
    "at a high rate, with memory for all: reads from disk in a cycle once all is cached",
    "SSBJ paper, Theorem 3; issue 7",
    "==",
    0,
    "reads",
)
SHIFT = Statement(
    "shift",
    "after a shift of the hot values: cycles until the hit rate is within 20 % of its old value",
    _ISSUE,
    "<=",
    15,
    "cycles",
)


def _rate_claims(found: dict[float, Compared]) -> list[Claim]:
    claims = [says.measured(found[skew].ratios(disk, OURS, MESHJOIN)) for (skew, disk), says in RATE.items()]
    return claims + [
        says.measured(found[1.0].ratios(disk, SSBJ, MESHJOIN)) for disk, says in PAPER_FORM.items()
    ]


def _memory_claims(sizes: Sizes, found: Compared, others: dict[str, ByMemory]) -> list[Claim]:
    claims = []
    for (memory, disk), says in MEMORY.items():
        share = least_memory(sizes, found, others, disk, memory)
        if share is None:
            claims.append(replace(says.open("no measured memory gave that rate"), holds=False))
        else:
            claims.append(says.measured([round(share, 6)]))
    return claims


def _model_claims(found: dict[str, dict[float, Predicted]]) -> list[Claim]:
    claims = []
    for skew, says in MODEL.items():
        off = {name: by_skew[skew].off for name, by_skew in found.items()}
        worst = max(off, key=lambda name: off[name])
        claim = says.measured([off[worst]])
        claims.append(replace(claim, low=min(off.values()), runs=len(off), why=f"the worst is {worst}"))
    return claims


def _shift_claim(found: Shift) -> Claim:
    back = found.cycles_until_back()
    if back is None:
        return replace(SHIFT.open("not within 20 cycles"), holds=False)
    return SHIFT.measured([back])


def local(
    home: Path, sizes: Sizes, progress: Progress
) -> tuple[list[Claim], dict[str, Any], dict[str, Picture]]:
    """All without Spark."""
    bench = Bench(home)
    found = {skew: compare(bench, sizes, skew, progress.step) for skew in SKEWS}
    others = other_memories(bench, sizes, progress.step)
    models: dict[str, dict[float, Predicted]] = {}
    fitted = {}
    for form in FORMS:
        progress.step(f"calibrating the cost model of {form.says}")
        w = max(one.loops[form.name].w for one in found.values())
        fitted[form.name] = costs(bench, sizes, form, w)
        models[form.name] = {skew: predicted(found[skew], form, fitted[form.name]) for skew in SKEWS}
    whole, moved = {}, {}
    for form in (SSBJ, OURS):
        progress.step(f"Theorem 3 and a shift: {form.says}")
        whole[form.name] = becomes_main_memory(bench, sizes, form)
        moved[form.name] = shifted(bench, sizes, form)
    claims = [
        *_rate_claims(found),
        *_memory_claims(sizes, found[1.0], others),
        *_model_claims(models),
        WHOLE.measured([whole[OURS.name][-1]]),
        _shift_claim(moved[OURS.name]),
    ]
    rates = {
        f"skew {skew:g}": {
            disk: {name: told(some) for name, some in by_form.items()} for disk, by_form in one.rates.items()
        }
        for skew, one in found.items()
    }
    series = {
        "sizes": asdict(sizes),
        "rates": rates,
        "other_memories": {
            name: {
                f"{memory:g}": {disk: told(some) for disk, some in by_disk.items()}
                for memory, by_disk in by_memory.items()
            }
            for name, by_memory in others.items()
        },
        "cost_model": {
            name: {"costs": asdict(fitted[name])}
            | {f"skew {skew:g}": asdict(one) for skew, one in by.items()}
            for name, by in models.items()
        },
        "theorem_3_reads": whole,
        "shift_hit_rates": {name: one.hit_rates for name, one in moved.items()},
    }
    return claims, series, _charts(found, moved)


def _charts(found: dict[float, Compared], moved: dict[str, Shift]) -> dict[str, Picture]:
    groups = [f"skew {skew:g}, disk {disk}" for skew in SKEWS for disk in DISKS]
    base = {
        (skew, disk): median(one.rate for one in found[skew].rates[disk][MESHJOIN.name])
        for skew in SKEWS
        for disk in DISKS
    }
    bars = {
        form.says: [
            median(one.rate for one in found[skew].rates[disk][form.name]) / base[skew, disk]
            for skew in SKEWS
            for disk in DISKS
        ]
        for form in FORMS
    }
    says = {form.name: form.says for form in FORMS}
    lines = {
        says[name]: ([float(i - one.at) for i in range(len(one.hit_rates))], [100 * h for h in one.hit_rates])
        for name, one in moved.items()
    }
    return {
        "rates": Bars("Service rate with the same memory", "by MESHJOIN's", groups, bars),
        "shift": Chart("Other values become hot at 0", "cycles", "% of tuples answered by the cache", lines),
    }


def run(quick: bool, progress: Progress) -> Result:  # noqa: FBT001  # the interface of an experiment
    """The whole experiment."""
    sizes, load = QUICK if quick else FULL
    progress.total(sizes.steps + load.steps)
    with tempfile.TemporaryDirectory(prefix="streamjoin-lab-") as folder:
        claims, series, charts = local(Path(folder), sizes, progress)
    with tempfile.TemporaryDirectory(prefix="streamjoin-lab-") as folder:
        on_spark, spark_series = enrichment(Path(folder), load, progress.step)
    measured = {claim.id for claim in on_spark}
    why = "needs 40 million rows of master data: run without --quick"
    on_spark += [says.open(why) for both in STATEMENTS.values() for says in both if says.id not in measured]
    return Result("semistream", SEED, [*claims, *on_spark], 15, series | spark_series, charts)


def experiments() -> Iterator[Experiment]:
    """What this file adds to the lab."""
    yield Experiment(
        "semistream", "a stream with master data that fits in no memory, beside MESHJOIN and Spark", run
    )
