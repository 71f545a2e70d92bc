"""The experiment `state`: what a join stores, beside what is predicted and what is needed; without Spark.

- Prediction: what the cost model says a join stores beside what it stores, on the papers' patterns
  (`predicted`).
- The goal `memory` on a one-to-many join with punctuations, beside an oracle that knows which tuples are
  still needed; and what the constraint monitor costs.
- The cache of a join with a table (`table_cache`).

Every answer is checked before a number is reported.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from lab.experiment import Claim, Experiment, Result, Statement, StepReporter
from lab.generators.patterns import punctuated
from lab.papers.ssbj_bench import OURS, SSBJ, Bench, Sizes
from lab.state_model.predicted import CASES, SMALL, PredictionCase, PredictionRun, compare
from lab.state_model.table_cache import WHOLE, becomes_main_memory, shift_claim, shifted
from lab.state_model.two_streams import SEED, PatternBatches, local, one_to_many, streams
from streamjoin.api.join import join, stream
from streamjoin.declare.marked import marked
from streamjoin.errors import InvariantBroken
from streamjoin.plot import Chart

RUNS = 15
_ISSUE = "issue 5"

PREDICTION = Statement(
    "prediction",
    "predicted tuples by measured ones, less 1: the worst of the papers' patterns (forecasts at most 8 "
    "batches ahead; means over the middle 80 % of a run; random order in batches of 0.25 s)",
    _ISSUE,
    "<=",
    0.15,
    "of the tuples",
)
MONITOR = Statement(
    "monitor", "CPU time with the constraint monitor by that without it", "issue 4", "<=", 1.03, "times"
)
NEEDED = Statement(
    "memory",
    "goal memory, 10 million tuples: rows held less 1,000 by rows needed, the worst batch",
    "issue 4",
    "<=",
    1.2,
    "times",
)


# Prediction


def prediction(
    seeds: range, step: Callable[[str], None], cases: Mapping[str, Callable[[int], PredictionCase]] = CASES
) -> tuple[list[Claim], dict[str, Any], dict[str, Chart]]:
    """Every pattern with every seed; the claim is about the worst of them."""
    runs: dict[str, list[PredictionRun]] = {}
    for name, make in {**cases, **SMALL}.items():
        step(f"predicted: {name}")
        runs[name] = [compare(name, make(seed)) for seed in seeds]
    errors = [abs(one.error) for name in cases for one in runs[name]]
    claim = replace(PREDICTION.measured([max(errors)]), low=min(errors), runs=len(errors))
    series = {
        "predicted": {
            name: {
                "claimed": name in cases,
                "errors": [one.error for one in ones],
                **ones[0].to_json(),
            }
            for name, ones in runs.items()
        }
    }
    return [claim], series, prediction_charts({name: ones[0] for name, ones in runs.items()})


SHOWN = {  # the lines of the picture, by short names
    "punct-asc": "punct-asc-100-40, window 5 s, PWJoin",
    "ordered": "one to many, ordered",
    "news": "news, random",
}
PRINTED = "punct-asc-100-40, spread 20, window 5 s"


def prediction_charts(runs: Mapping[str, PredictionRun]) -> dict[str, Chart]:
    """Predicted and measured over the run, and the printed formula beside both."""
    charts, lines = {}, {}
    for label, name in SHOWN.items():
        if name in runs:
            lines[f"{label}, held"] = _over_run(runs[name].measured)
            lines[f"{label}, predicted"] = _over_run(runs[name].predicted)
    if lines:
        charts["predicted"] = Chart("Tuples held, and predicted", "% of the run", "tuples", lines)
    if PRINTED in runs:
        one = runs[PRINTED]
        three = {"held": one.measured, "our model": one.predicted, "equation 1 as printed": one.printed}
        title = "punct-asc-100-40, window 5 s, keys end within 20 segments"
        charts["equation-1"] = Chart(
            title, "% of the run", "tuples", {label: _over_run(line) for label, line in three.items()}
        )
    return charts


def _over_run(line: Any) -> tuple[list[float], list[float]]:
    return np.linspace(0, 100, len(line)).tolist(), [float(each) for each in line]


# What the monitor costs


def monitor(step: Callable[[str], None], *, quick: bool) -> tuple[list[Claim], dict[str, Any]]:
    """CPU time of the window join with its monitor by that without, run by run, order rotated."""
    window_s, runs = 5.0, 5 if quick else RUNS
    pattern = replace(punctuated("asc", 100, 40), gap="50 microseconds", punctuations=False)
    data = streams(pattern, 400_000, window_s, 1.0)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(runs + 1):
        step(f"the window join with and without its monitor, round {turn + 1} of {runs + 1}")
        for monitored in (True, False)[:: 1 if turn % 2 == 0 else -1]:
            spent = _cpu_seconds(data, window_s, monitored=monitored)
            if turn:  # the first round warms up
                seconds[monitored].append(spent)
    series = {"cpu_s": {"monitored": seconds[True], "not monitored": seconds[False]}}
    if quick:
        return [MONITOR.open(f"needs {RUNS} interleaved runs: run without --quick")], series
    each = [a / b for a, b in zip(*seconds.values(), strict=True)]
    claim = MONITOR.measured([median(seconds[True]) / median(seconds[False])])
    return [replace(claim, low=min(each), high=max(each), runs=len(each))], series


def _cpu_seconds(data: PatternBatches, window_s: float, *, monitored: bool) -> float:
    """CPU seconds of one run; its answer is counted first."""
    run, found = local("wjoin", window_s, monitored=monitored), 0
    started = time.process_time()
    for batch in data.batches:
        found += len(run.step(batch))
    spent = time.process_time() - started
    if found != data.pairs:
        raise InvariantBroken(f"{found} pairs, the batch join {data.pairs}; no time is reported")
    return spent


# The goal memory


def needed(step: Callable[[str], None], *, quick: bool) -> tuple[list[Claim], dict[str, Any]]:
    """Rows physically held with the goal memory, by those an oracle says are needed."""
    batches, keys, fan_out = (20 if quick else 100), 9_090, 10
    step(f"goal memory over {batches * keys * (fan_out + 1):,} tuples")
    one = pa.schema({"k": pa.int64(), "va": pa.int64()})
    many = pa.schema({"k": pa.int64(), "vb": pa.int64(), "is_end": pa.bool_()})
    run = join(
        stream(one, name="one", key="k", unique=True),
        stream(many, name="many", key="k", punctuation=marked("is_end")),
        goal="memory",
    ).local()
    ratios, rows_held, rows_needed, found, expected = [], [], [], 0, 0
    for rows, oracle in one_to_many(batches, keys, fan_out):
        result = run.step(rows)
        found += len(result)
        data = rows["many"]["k"].to_numpy()[~rows["many"]["is_end"].to_numpy()]
        expected += int(np.count_nonzero(data < batches * keys))  # their partners come before the end
        physical = sum(len(run_) for side in run.join.sides for run_ in side.runs)
        rows_held.append(physical)
        rows_needed.append(oracle)
        ratios.append((physical - 1000) / oracle)
    if run.violations() or found != expected:
        raise InvariantBroken(
            f"{found} results, the batch join has {expected}; or a stream broke its punctuations"
        )
    series = {"rows_held": rows_held, "rows_needed": rows_needed}
    if quick:
        return [NEEDED.open("needs 10 million tuples: run without --quick")], series
    return [replace(NEEDED.measured([max(ratios)]), low=min(ratios), high=max(ratios))], series


# The cache of a join with a table


def table_cache(step: Callable[[str], None]) -> tuple[list[Claim], dict[str, Any], dict[str, Chart]]:
    """Theorem 3 and a shift of the hot values, for SSBJ as in the paper and for this library's form."""
    whole, moved = {}, {}
    with tempfile.TemporaryDirectory(prefix="streamjoin-lab-") as folder:
        bench = Bench(Path(folder))
        for form in (SSBJ, OURS):
            step(f"Theorem 3 and a shift: {form.says}")
            whole[form.name] = becomes_main_memory(bench, form, rows=10_000)
            moved[form.name] = shifted(bench, form, Sizes(rows=200_000, segments=50))
    claims = [WHOLE.measured([whole[OURS.name][-1]]), shift_claim(moved[OURS.name])]
    lines = {
        name: ([float(i - one.at) for i in range(len(one.hit_rates))], [100 * h for h in one.hit_rates])
        for name, one in moved.items()
    }
    chart = Chart("Other values become hot at 0", "cycles", "% of tuples answered by the cache", lines)
    series = {"theorem_3_reads": whole, "shift_hit_rates": {n: one.hit_rates for n, one in moved.items()}}
    return claims, series, {"shift": chart}


def run(quick: bool, progress: StepReporter) -> Result:  # noqa: FBT001  # the interface of an experiment
    """The whole experiment."""
    seeds = range(SEED, SEED + (1 if quick else 3))
    progress.total(len(CASES) + len(SMALL) + (6 if quick else RUNS + 1) + 1 + 2)
    claims, series, charts = prediction(seeds, progress.step)
    for part in (monitor, needed):
        more, numbers = part(progress.step, quick=quick)
        claims += more
        series |= numbers
    more, numbers, shift = table_cache(progress.step)
    return Result("state", SEED, [*claims, *more], 4, {**series, **numbers}, {**charts, **shift})


def experiments() -> Iterator[Experiment]:
    """What this file adds to the lab."""
    yield Experiment("state", "what a join stores, beside what is predicted and what is needed", run)
