"""A cluster on paper, from costs measured on one machine: the time of a micro-batch, and what is full first.

    python -m lab.scale.model out/scale.json      # the tables of docs/scaling.md

R rows a second, a micro-batch every T seconds, S = executors · cores slots, B buckets in min(B, S) tasks, N
tuples held:

    fixed   = batch + driver · tasks + task · tasks / S + bucket · B / S
    load    = R · (map / S + join · g(N / B) / tasks + (shuffle / net + state / store) / executors)
    T_batch = fixed + load · T

with g(n) = slope ** log10(n / n0), the measured growth of a bucket's time with its tuples. A job keeps up
when T_batch <= T; the shortest such T is fixed / (1 - load). Worked number: fixed 0.5 s and a load of 0.5
give micro-batches of 1 s.

Assumes keys spread evenly; `hot_rows` is how many rows a second of one key one core can take.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log10
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Costs:
    """Of a join on a long key with a long payload, half of its rows with a result each, as measured."""

    batch_s: float  # a micro-batch without rows, two buckets in two tasks: planning, logs, scheduling
    driver_s: float  # each further task: time that nothing else of the micro-batch can use
    task_s: float  # each further task, with its state store: of a core
    bucket_s: float  # each further bucket in the same tasks, of a core
    map_s: float  # of a core, a row: scan, convert, pack
    join_s: float  # of a core, a row: load, join, emit, store, commit, and the JVM around it
    slope: float  # of join_s, per tenfold of a bucket's tuples
    tuples0: float  # a bucket's tuples where join_s was measured
    shuffle_bytes: float  # a row
    state_bytes: float  # a tuple


@dataclass(frozen=True)
class Cluster:
    """What is asked of it."""

    rows_per_s: float
    tuples: float
    executors: int = 100
    cores: int = 4  # of an executor
    buckets: int = 800
    net: float = 1e9 / 8 * 10  # bytes a second in and out of an executor: 10 Gbit/s
    store: float = 200e6  # bytes a second an executor writes to the checkpoint's storage

    @property
    def slots(self) -> int:
        return self.executors * self.cores


@dataclass(frozen=True)
class PredictedBatch:
    """What comes out, in seconds of a second of input (`load`) or of a micro-batch."""

    fixed_s: float
    loads: Mapping[str, float]
    state_bytes_executor: float
    hot_rows: float

    @property
    def load(self) -> float:
        return sum(self.loads.values())

    @property
    def keeps_up_s(self) -> float | None:
        """The shortest micro-batch that ends before the next begins; None: there is none."""
        return self.fixed_s / (1 - self.load) if self.load < 1 else None


def predicted(costs: Costs, asked: Cluster) -> PredictedBatch:
    """The model."""
    grown = costs.slope ** log10(max(asked.tuples / asked.buckets, 1) / costs.tuples0)
    join = costs.join_s * max(grown, 1)
    tasks = min(asked.buckets, asked.slots)
    spread = costs.task_s * tasks / asked.slots + costs.bucket_s * asked.buckets / asked.slots
    fixed = costs.batch_s + costs.driver_s * tasks + spread
    moved = asked.rows_per_s / asked.executors
    loads = {
        "scan and pack": asked.rows_per_s * costs.map_s / asked.slots,
        "join": asked.rows_per_s * join / tasks,
        "shuffle": moved * costs.shuffle_bytes / asked.net,
        "state written": moved * costs.state_bytes / asked.store,
    }
    return PredictedBatch(fixed, loads, asked.tuples * costs.state_bytes / asked.executors, 1 / join)


def costs_of(series: Mapping[str, Any]) -> Costs:
    """From the series of `python -m lab run scale`."""
    seen, swept = series["scale-spark"]["seen"], series["scale-buckets"]
    late = slice(len(seen["rows"]) // 2, None)
    rows = sum(seen["rows"][late])
    held = np.array(seen["state_rows"][1:]) / seen["buckets"]
    joined = [sum(tasks) / 1000 / n for tasks, n in zip(seen["join_task_ms"], seen["rows"], strict=True)]
    slope = 10 ** float(np.polyfit(np.log10(held), np.log10(joined[1:]), 1)[0])
    idle = {(one["buckets"], one["partitions"]): _idle(one, swept["full"]) for one in swept["seen"]}
    (few, few_work), (many, many_work) = idle[32, 2], idle[32, 32]
    task = max(many_work - few_work, 0) / 30
    return Costs(
        batch_s=idle[2, 2][0],
        driver_s=max((many - few) / 30 - task / 2, 0),  # tasks ran two at a time
        task_s=task,
        bucket_s=max(swept["per_bucket_ms"], 0) / 1000 * 2,  # and so did buckets
        map_s=sum(seen["map_ms"][late]) / 1000 / rows,
        join_s=median(joined[late]),
        slope=slope,
        tuples0=float(median(held[late])),
        shuffle_bytes=sum(seen["shuffle_bytes"][late]) / rows,
        state_bytes=seen["state_bytes"][-1] / seen["state_rows"][-1],
    )


def _idle(one: Mapping[str, Any], full: int) -> tuple[float, float]:
    """A micro-batch with hardly a row: its seconds, and those of its join tasks together."""
    tasks = median(sum(each) for each in one["join_task_ms"][full:])
    return median(one["trigger_ms"][full:]) / 1000, tasks / 1000


EXAMPLES = (
    Cluster(200_000, 5e8),
    Cluster(2_000_000, 5e9),
    Cluster(2_000_000, 5e9, buckets=400),
    Cluster(2_000_000, 5e9, buckets=3200),
    Cluster(20_000_000, 5e9),
    Cluster(2_000_000, 5e9, executors=10, buckets=80),
)


def constants(costs: Costs) -> list[str]:
    """Each cost, as a table in Markdown."""
    lines = {
        "a micro-batch without rows, 2 buckets": (f"{costs.batch_s:.2f} s", "buckets, 20 rows"),
        "each further task, of the driver": (_ms(costs.driver_s), "buckets, 32 in 32 tasks by 32 in 2"),
        "each further task with its state store, of a core": (_ms(costs.task_s), "buckets, the same"),
        "each further bucket, of a core": (_ms(costs.bucket_s), "buckets, slope of 20 rows"),
        "scan, convert and pack a row, of a core": (f"{1e6 * costs.map_s:.2f} µs", "spark, map_ms"),
        "join a row, of a core": (f"{1e6 * costs.join_s:.2f} µs", "spark, join_task_ms"),
        "the same, per tenfold of a bucket's tuples": (f"x {costs.slope:.2f}", "spark, fitted"),
        "tuples of a bucket where that was measured": (f"{costs.tuples0:,.0f}", "spark, state_rows"),
        "shuffled, a row": (f"{costs.shuffle_bytes:.1f} bytes", "spark, shuffle_bytes"),
        "held, a tuple": (f"{costs.state_bytes:.1f} bytes", "spark, state_bytes"),
    }
    rows = [(what, cost, f"scale-{where}") for what, (cost, where) in lines.items()]
    return _markdown(("what", "cost", "measured in"), rows)


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms"


def worked(costs: Costs, examples: Sequence[Cluster] = EXAMPLES) -> list[str]:
    """What the model says of some clusters, as a table in Markdown."""
    lines = []
    for asked in examples:
        found = predicted(costs, asked)
        name, most = max(found.loads.items(), key=lambda each: each[1])
        shortest = found.keeps_up_s
        lines.append(
            (
                f"{asked.executors} of {asked.cores}",
                f"{asked.buckets:,}",
                f"{asked.rows_per_s:,.0f}",
                f"{asked.tuples / 1e9:g} billion",
                f"{found.fixed_s:.1f} s",
                f"{100 * found.load:.0f} %",
                "cannot keep up" if shortest is None else f"{shortest:.1f} s",
                f"{name}, {100 * most:.0f} %",
                f"{found.state_bytes_executor / 1e9:.1f} GB",
                f"{found.hot_rows:,.0f}",
            )
        )
    columns = (
        "executors, cores",
        "buckets",
        "rows/s",
        "tuples held",
        "fixed",
        "load",
        "shortest micro-batch",
    )
    return _markdown((*columns, "most of it", "state an executor", "rows/s of one key"), lines)


def _markdown(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(line)} |" for line in (columns, ["---"] * len(columns), *lines)]


if __name__ == "__main__":
    measured = costs_of(json.loads(Path(sys.argv[1]).read_text())["series"])
    print("\n".join([*constants(measured), "", *worked(measured)]))
