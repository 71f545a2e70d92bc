"""The join that explains itself, fits its memory, and feeds what comes after it, in numbers.

Three parts. Prediction, in this process: what the cost model says a join holds beside what it holds, on
the papers' patterns (`predicted`). Memory, on Spark: a join whose state is ten times its memory limit
beside the same join without a limit; resident memory is that of Spark's Python workers, sampled, less
that of an idle one; rows by the trigger time of the last half of the batches, order rotated. Final
counts, on Spark: when the count of an auction leaves, beside Spark's own (`final_counts`). Every answer
is checked before a number is reported.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from lab.contender import Task
from lab.experiment import Claim, Experiment, Progress, Result, Statement
from lab.final_counts import Comparison, compare
from lab.predicted import CASES, SMALL, Case, Watched, watch
from lab.throughput import measured, prepare
from streamjoin.demo.generators.auction import AuctionStreams
from streamjoin.plot import Chart
from streamjoin.spark.session import session

SEED = 4
_ISSUE = "issue 5"
_MB = 1 << 20

PREDICTION = Statement(
    "prediction",
    "predicted tuples by measured ones, less 1: the worst of the papers' patterns (forecasts at most 8 "
    "batches ahead; means over the middle 80 % of a run; random order in batches of 0.25 s)",
    _ISSUE,
    "<=",
    0.15,
    "of the tuples",
)
TEN_TIMES = Statement("ten-times", "state by the memory limit, at the end", _ISSUE, ">=", 10, "times")
WITHIN = Statement(
    "within",
    "resident memory of a worker above an idle one and the limit, the most of any round",
    _ISSUE,
    "<=",
    64,
    "MB",
)
A_THIRD = Statement("a-third", "rows/s with the limit by those without", _ISSUE, ">=", 1 / 3, "times")
ON_TIME = Statement(
    "on-time",
    "final counts that leave in another batch than the one in which they become final",
    _ISSUE,
    "==",
    0,
    "counts",
)
SPARK_BATCHES = Statement(
    "spark-batches",
    "Spark's watermark aggregation: median batches from final to emitted",
    _ISSUE,
    ">",
    0,
    "batches",
)
SPARK_HOURS = Statement(
    "spark-hours",
    "Spark's watermark aggregation: median hours of event time from final to emitted",
    _ISSUE,
    ">",
    0,
    "hours",
)


# Prediction


def prediction(
    seeds: range, step: Callable[[str], None], cases: Mapping[str, Callable[[int], Case]] = CASES
) -> tuple[list[Claim], dict[str, Any], dict[str, Chart]]:
    """Every pattern with every seed; the claim is about the worst of them."""
    runs: dict[str, list[Watched]] = {}
    for name, make in {**cases, **SMALL}.items():
        step(f"predicted: {name}")
        runs[name] = [watch(name, make(seed)) for seed in seeds]
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


def prediction_charts(runs: Mapping[str, Watched]) -> dict[str, Chart]:
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


# Memory


@dataclass(frozen=True)
class Load:
    """How much the memory part does; a limit of a tenth of the state at the end."""

    rows: int
    batches: int
    limit_mb: int
    rounds: int


FULL = Load(110_000, 40, 54, 3)
QUICK = Load(110_000, 20, 27, 1)


def memory(
    home: Path, load: Load, step: Callable[[str], None]
) -> tuple[list[Claim], dict[str, Any], dict[str, Chart]]:
    """The same join with and without a limit, in turn."""
    step(f"writing {load.rows * load.batches:,} rows")
    data = prepare(home / "memory", load.batches, strings=True, rows=load.rows, all_keys=True)
    limits = {"unlimited": None, "limited": f"{load.limit_mb} MB"}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in limits}
    for turn in range(load.rounds):
        for name in list(limits)[:: 1 if turn % 2 == 0 else -1]:
            step(f"memory {limits[name] or 'without a limit'}, round {turn + 1} of {load.rounds}")
            task = Task("streamjoin", str(data.folder), "string", "string", memory=limits[name], watched=True)
            found[name].append(measured(task, data))
    beyond = [_above_idle(one) / _MB - load.limit_mb for one in found["limited"]]
    ratios = [late_rate(a) / late_rate(b) for a, b in zip(found["limited"], found["unlimited"], strict=True)]
    claims = [
        TEN_TIMES.measured([one["state_bytes"][-1] / _MB / load.limit_mb for one in found["limited"]]),
        replace(WITHIN.measured([max(beyond)]), low=min(beyond), runs=len(beyond)),
        A_THIRD.measured(ratios),
    ]
    series = {
        "limit_mb": load.limit_mb,
        "rows_per_s": {name: [late_rate(one) for one in ones] for name, ones in found.items()},
        "cpu_s": {name: [one["cpu_s"] for one in ones] for name, ones in found.items()},
        "worker_mb_above_idle": {
            name: [_above_idle(one) / _MB for one in ones] for name, ones in found.items()
        },
        "state_mb": [each / _MB for each in found["limited"][0]["state_bytes"]],
        "resident_mb": [each / _MB for each in found["limited"][0]["resident_bytes"]],
        "trigger_ms": {
            name: [median(each) for each in zip(*(one["trigger_ms"] for one in ones), strict=True)]
            for name, ones in found.items()
        },
    }
    return claims, {"memory": series}, {"memory": memory_chart(series, load)}


def late_rate(found: Mapping[str, Any]) -> float:
    """Rows per second of trigger time over the last half of the batches."""
    half = len(found["trigger_ms"]) // 2
    return float(1000 * sum(found["input_rows"][half:]) / sum(found["trigger_ms"][half:]))


def _above_idle(found: Mapping[str, Any]) -> int:
    return int(found["worker_bytes"]["peak"] - found["worker_bytes"]["idle"])


def memory_chart(series: Mapping[str, Any], load: Load) -> Chart:
    """The state grows, what is loaded of it does not."""
    rows = [load.rows * (i + 1) for i in range(load.batches)]
    return Chart(
        f"State and memory, limit {load.limit_mb} MB",
        "rows read",
        "MB",
        {
            "state": (rows, series["state_mb"]),
            "of it in memory, limited": (rows, series["resident_mb"]),
        },
    )


# Final counts


def counts_claims(found: Comparison) -> list[Claim]:
    """What the comparison of final counts says."""
    hours, batches = found.delay_hours, found.delay_batches
    return [
        ON_TIME.measured([found.elsewhere]),
        _median_of(SPARK_BATCHES, batches),
        _median_of(SPARK_HOURS, hours),
    ]


def _median_of(says: Statement, delays: Any) -> Claim:
    """One run: the median over its counts, with their spread."""
    return replace(says.measured(delays.tolist()), runs=1)


def final_counts(
    home: Path, streams: AuctionStreams, batch_hours: float, step: Callable[[str], None]
) -> tuple[list[Claim], dict[str, Any], dict[str, Chart]]:
    """Both queries on a session of their own."""
    spark = session(cores=2, memory="2g", name="final counts", log=home / "spark.log")
    try:
        folder = home / "auction"
        folder.mkdir()
        found = compare(spark, streams, batch_hours, folder, step)
    finally:
        spark.stop()
    return counts_claims(found), {"final_counts": found.series()}, {"final": found.chart()}


def run(quick: bool, progress: Progress) -> Result:  # noqa: FBT001  # the interface of an experiment
    """The whole experiment."""
    load = QUICK if quick else FULL
    seeds = range(SEED, SEED + (1 if quick else 3))
    hours, batch_hours = (36.0, 1.5) if quick else (72.0, 1.0)
    progress.total(len(CASES) + len(SMALL) + 1 + 2 * load.rounds + 2)
    auctions = AuctionStreams(seed=SEED, items=round(hours * 80), hours=hours)
    with tempfile.TemporaryDirectory(prefix="streamjoin-lab-") as folder:
        home = Path(folder)
        parts = [
            prediction(seeds, progress.step),
            memory(home, load, progress.step),
            final_counts(home, auctions, batch_hours, progress.step),
        ]
    claims = [claim for part, _, _ in parts for claim in part]
    series = {name: value for _, part, _ in parts for name, value in part.items()}
    charts = {name: chart for _, _, part in parts for name, chart in part.items()}
    return Result("planner", SEED, claims, 7, series, charts)


def experiments() -> Iterator[Experiment]:
    """What this file adds to the lab."""
    yield Experiment("planner", "predicted state, memory limits, and counts the moment they are final", run)
