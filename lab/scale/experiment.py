"""Scale on one machine: what a batch takes and holds as state, open keys, a hot key and buckets grow.

The operator alone is measured here, in CPU seconds; whole micro-batches on Spark in `on_spark`. A slope
is a factor per tenfold: the time of a batch at 10 n by that at n. `model` makes the costs of a larger
cluster of the numbers on Spark (docs/scaling.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from lab.experiment import Claim
from lab.report.figures import Context, Figure, ReportedExperiment, ReportPart, Table
from lab.scale import on_spark, text
from lab.scale.local import ROWS, Point, anywhere, grown, open_keys, per_tenfold
from lab.scale.text import FULL_ONLY, SEED, explained, slope
from streamjoin.plot import Chart

_SIZES = (500_000, 5_000_000, 50_000_000)
_KEYS = (10_000, 100_000, 1_000_000)
_BATCH = f"Time of a batch of {ROWS:,} rows"


def state(context: Context) -> list[Figure]:
    """To 50 million tuples."""
    sizes = _SIZES[:2] if context.quick else _SIZES
    early = [grown(anywhere(50, SEED + i), _SIZES[:2], context.step) for i in (1, 2)]
    points = grown(anywhere(sizes[-1] // ROWS, SEED), sizes, context.step)
    first = slope("scale-state-5", "the operator alone, 5 million tuples by 0.5")
    last = slope("scale-state-50", "the operator alone, 50 million tuples by 5")
    claims = [
        first.measured([per_tenfold(each)[0] for each in (points, *early)]),
        last.open(FULL_ONLY) if context.quick else last.measured(per_tenfold(points)[1:]),
    ]
    return [_figure("scale-state", text.STATE, claims, "tuples held", points)]


def keys(context: Context) -> list[Figure]:
    """To a million open keys."""
    rounds: list[list[Point]] = []
    for number in range(1 if context.quick else 3):
        context.step(f"10,000, 100,000 and 1,000,000 open keys, round {number + 1}")
        rounds.append([open_keys(count, 20, SEED + number) for count in _KEYS])
    claims = [
        slope(f"scale-keys-{more}", f"{more:,} open keys by {fewer:,}").measured(
            [per_tenfold(each)[number] for each in rounds]
        )
        for number, (fewer, more) in enumerate(pairwise(_KEYS))
    ]
    return [_figure("scale-keys", text.KEYS, claims, "keys open", rounds[0])]


def _figure(name: str, text: text.Text, claims: Sequence[Claim], x: str, points: list[Point]) -> Figure:
    sizes = [point.size for point in points]
    held = {
        "state": (sizes, [point.state_bytes / 1e6 for point in points]),
        "the process grew by": (sizes, [max(point.resident_bytes / 1e6, 1) for point in points]),
    }
    columns = [x, "CPU ms a batch, mean", "median", "state, MB", "the process grew by, MB"]
    rows = [
        [point.size, point.mean_ms, point.median_ms, point.state_bytes / 1e6, point.resident_bytes / 1e6]
        for point in points
    ]
    times = {
        "mean, with merging": (sizes, [point.mean_ms for point in points]),
        "median": (sizes, [point.median_ms for point in points]),
    }
    return Figure(
        name,
        *text,
        [explained(claim) for claim in claims],
        [Chart(_BATCH, x, "CPU ms", times, log=True), Chart("Memory", x, "MB", held, log=True)],
        Table(columns, rows),
        series={"points": [point.to_json() for point in points], "per_tenfold": per_tenfold(points)},
    )


def parts() -> Sequence[ReportPart]:
    """The smallest first; on Spark last."""
    return [
        ReportPart("scale-keys", "a million open keys", (10, 30), keys),
        ReportPart("scale-state", "the operator alone to 50 million tuples", (15, 70), state),
        ReportPart("scale-hot", "one key with a third of all tuples", (50, 60), on_spark.hot),
        ReportPart("scale-buckets", "1 to 32 buckets on Spark", (60, 120), on_spark.buckets),
        ReportPart("scale-spark", "50 million tuples on Spark", (70, 220), on_spark.state),
    ]


def experiments() -> Iterator[ReportedExperiment]:
    """What this file adds to the lab."""
    yield ReportedExperiment(
        "scale",
        "time per batch and memory as state, open keys, a hot key and buckets grow",
        "StreamJoin at scale, on one machine",
        "Everything grows tenfold and tenfold again: tuples held, keys open, one key's share, buckets. The "
        "numbers of Spark are the constants of docs/scaling.md, which goes on to 100 executors.",
        {"scale": "Scale on one machine"},
        parts,
        6,
        SEED,
        "The issue asks",
    )
