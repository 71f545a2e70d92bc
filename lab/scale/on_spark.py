"""The figures of the scale experiment that need Spark: a hot key, buckets, and 50 million tuples.

What is measured stands in `spark_runs`. Costs: about 1.5 s a micro-batch of 550,000 rows on 2 quiet cores.
"""

from __future__ import annotations

from statistics import median

import numpy as np

from lab.experiment import Statement
from lab.report.figures import Context, Figure, Table
from lab.scale import text
from lab.scale.local import Point, anywhere, grown, per_tenfold, with_hot_key
from lab.scale.spark_runs import (
    QueryProfile,
    at_size,
    follow,
    hottest_task,
    near_empty,
    open_session,
)
from lab.scale.text import FULL_ONLY, ISSUE, SEED, explained, slope
from lab.spark_joins.two_streams import write_batches
from streamjoin.plot import Chart

_HOT, _HOT_BUCKETS = 1 / 3, 8
_ROWS = 220_000
_LARGE_ROWS = 550_000
_BUCKETS = (1, 2, 4, 8, 16, 32)
_LOADS = {"keys alike": 0.0, "a third is one key": _HOT}

SHARE = Statement(
    "scale-hot-task",
    "on Spark, 8 buckets: the longest task of the join by the median one, with a hot key",
    ISSUE,
    "<=",
    round((_HOT + (1 - _HOT) / _HOT_BUCKETS) / ((1 - _HOT) / _HOT_BUCKETS), 3),
    "times",
)


def hot(context: Context) -> list[Figure]:
    """One key with a third of all tuples, the operator alone and on Spark."""
    lines = {name: _grown_alone(context, share, SEED) for name, share in _LOADS.items()}
    again = [_grown_alone(context, _HOT, SEED + number) for number in (1, 2)]
    seen = {}
    spark = open_session()
    try:
        for name, share in _LOADS.items():
            context.step(f"{_HOT_BUCKETS} buckets on Spark: {name}")
            rows = with_hot_key(anywhere(6, SEED, _ROWS), share, SEED)
            data = write_batches(context.folder / f"hot-{share:.2f}", rows)
            seen[name] = follow(spark, data, buckets=_HOT_BUCKETS, partitions=_HOT_BUCKETS)
    finally:
        spark.stop()
    tasks = {name: hottest_task(one, 4) for name, one in seen.items()}
    skewed = "a third is one key"
    claims = [
        explained(
            slope("scale-hot-cpu", "the operator alone with a hot key, 5 million tuples by 0.5").measured(
                [per_tenfold(each)[0] for each in (lines[skewed], *again)]
            )
        ),
        SHARE.measured(tasks[skewed]),
    ]
    times = {
        name: ([p.size for p in points], [p.median_ms for p in points]) for name, points in lines.items()
    }
    chart = Chart(
        "Time of a batch of 100,000 rows, the operator alone", "tuples held", "CPU ms", times, log=True
    )
    table = Table(
        ["on Spark, 8 buckets", "longest task by the median one", "micro-batch, ms"],
        [[name, median(each), median(seen[name].trigger_ms[-4:])] for name, each in tasks.items()],
    )
    series = {
        "local": {name: [point.to_json() for point in points] for name, points in lines.items()},
        "spark": {name: one.to_json() for name, one in seen.items()},
    }
    return [Figure("scale-hot", *text.HOT, claims, [chart], table, series=series)]


def _grown_alone(context: Context, share: float, seed: int) -> list[Point]:
    return grown(with_hot_key(anywhere(50, seed), share, seed), (500_000, 5_000_000), context.step)


def state(context: Context) -> list[Figure]:
    """To 50 million tuples, whole micro-batches."""
    batches = 30 if context.quick else 91
    context.step(f"writing {batches} micro-batches")
    data = write_batches(context.folder / "spark-state", anywhere(batches, SEED, _LARGE_ROWS))
    context.step(f"{batches} micro-batches of {_LARGE_ROWS:,} rows on Spark")
    few = write_batches(context.folder / "spark-warm", anywhere(8, SEED, _LARGE_ROWS))
    spark = open_session()
    try:
        follow(spark, few, buckets=2, partitions=2)  # the JVM compiles what is used often
        seen = follow(spark, data, buckets=2, partitions=2)
    finally:
        spark.stop()
    places = [number * _LARGE_ROWS for number in ((3, 30) if context.quick else (3, 9, 30, 90))]
    times = {place: at_size(seen, place) for place in places}
    first = slope("scale-spark-16", "on Spark, 16.5 million tuples by 1.65")
    last = slope("scale-spark-50", "on Spark, 50 million tuples by 5")
    claims = [
        first.measured([times[places[-1 if context.quick else 2]] / times[places[0]]]),
        last.open(FULL_ONLY) if context.quick else last.measured([times[places[3]] / times[places[1]]]),
    ]
    millions = [rows / 1e6 for rows in seen.state_rows][1:]
    chart = Chart(
        "A micro-batch of 550,000 rows on Spark",
        "million tuples held",
        "ms",
        {
            "the whole micro-batch": (millions, seen.trigger_ms[1:]),
            "of it the join, summed over two buckets side by side": (millions, seen.inside_ms[1:]),
        },
    )
    tuple_bytes = seen.state_bytes[-1] / seen.state_rows[-1]
    table = Table(
        ["tuples held", "micro-batch, ms", "state, MB"],
        [[place, time, place * tuple_bytes / 1e6] for place, time in times.items()],
    )
    return [Figure("scale-spark", *text.SPARK, claims, [chart], table, series={"seen": seen.to_json()})]


def buckets(context: Context) -> list[Figure]:
    """1 to 32 buckets, and tasks for them."""
    tried = [(count, 2) for count in ((2, 8, 32) if context.quick else _BUCKETS)]
    tried += [(32, partitions) for partitions in ((32,) if context.quick else (8, 32))]
    full, empty = (3, 3) if context.quick else (5, 5)
    data = write_batches(context.folder / "buckets", [*anywhere(full, SEED, _ROWS), *near_empty(empty)])
    spark = open_session()
    try:
        context.step("warming")
        follow(spark, data, buckets=2, partitions=2)
        seen = []
        for count, partitions in tried:
            context.step(f"{count} buckets in {partitions} tasks")
            seen.append(follow(spark, data, buckets=count, partitions=partitions))
    finally:
        spark.stop()
    return [_of_buckets(seen, full)]


def _of_buckets(seen: list[QueryProfile], full: int) -> Figure:
    in_two = [one for one in seen if one.partitions == 2]
    counts = [float(one.buckets) for one in in_two]
    busy = [float(median(one.trigger_ms[1:full])) for one in in_two]
    idle = [float(median(one.trigger_ms[full:])) for one in in_two]
    per_bucket = float(np.polyfit(counts, idle, 1)[0])
    both = counts.index(2)  # a single bucket leaves one of the two tasks without work
    factor = float((busy[-1] / busy[both]) ** (1 / np.log10(counts[-1] / 2)))
    lines = {"220,000 rows": (counts, busy), "20 rows": (counts, idle)}
    columns = [
        "buckets",
        "tasks",
        "220,000 rows, ms",
        "20 rows, ms",
        "state bytes a tuple",
        "shuffle bytes a row",
    ]
    rows = [
        [
            one.buckets,
            one.partitions,
            median(one.trigger_ms[1:full]),
            median(one.trigger_ms[full:]),
            one.state_bytes[full - 1] / one.state_rows[full - 1],
            sum(one.shuffle_bytes[1:full]) / sum(one.rows[1:full]),
        ]
        for one in seen
    ]
    return Figure(
        "scale-buckets",
        *text.BUCKETS,
        [slope("scale-buckets-32", "on Spark, 32 buckets by 2").measured([factor])],
        [Chart("Time of a micro-batch", "buckets, in two tasks", "ms", lines)],
        Table(columns, rows),
        [f"A bucket without rows costs {per_bucket:.1f} ms of a micro-batch (slope of the line of 20 rows)."],
        {"seen": [one.to_json() for one in seen], "full": full, "per_bucket_ms": per_bucket},
    )
