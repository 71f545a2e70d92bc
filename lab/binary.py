"""What knowledge is worth in a join of two streams: the numbers behind windows, punctuations, goals.

PWJoin beside the window join on the papers' streams, in this process: its cost where punctuations
are absent or say nothing, and the tuples it holds. A one-to-many join with punctuations and the
goal `memory` beside an oracle that knows which tuples are still needed. Outer joins on Spark
beside Spark's own. Every answer is checked before a number is reported.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lab.contender import Engine, Task
from lab.experiment import Claim, Experiment, Progress, Result, Statement
from lab.generators.patterns import PATTERN_SCHEMA, StreamPattern, punctuated
from lab.throughput import Data, measured, rate
from streamjoin.api.join import join, stream
from streamjoin.declare.marked import marked
from streamjoin.errors import InvariantBroken
from streamjoin.local.join import LocalRun
from streamjoin.plan.bounds import UnboundedState
from streamjoin.plot import Chart

SEED = 4
RUNS = 15
WINDOWS_S = (1, 5, 15)
PATTERN = punctuated("asc", 100, 40)  # punct-asc-100-40
_ISSUE = "issue 4"
Ints = npt.NDArray[np.int64]

NO_PUNCTUATIONS = Statement(
    "no-punctuations", "CPU time of PWJoin by the window join, no punctuations", _ISSUE, "<=", 1.05, "times"
)
IRRELEVANT = Statement(
    "irrelevant", "CPU time of PWJoin by the window join, only irrelevant ones", _ISSUE, "<=", 1.08, "times"
)
MONITOR = Statement(
    "monitor", "CPU time with the constraint monitor by that without it", _ISSUE, "<=", 1.03, "times"
)
FEWER = {
    window: Statement(
        f"fewer-{window}",
        f"tuples PWJoin holds by the window join, window {window} s",
        _ISSUE,
        "<",
        1,
        "times",
    )
    for window in WINDOWS_S
}
GROWS = Statement(
    "saving-grows",
    "the least growth of the saving from one window to the next",
    _ISSUE,
    ">",
    0,
    "of the tuples",
)
NEEDED = Statement(
    "memory",
    "goal memory, 10 million tuples: rows held less 1,000 by rows needed, the worst batch",
    _ISSUE,
    "<=",
    1.2,
    "times",
)
OUTER = {
    how: Statement(
        f"outer-{how}", f"{how} outer join: rows/s in multiples of Spark on RocksDB", _ISSUE, ">=", 3, "times"
    )
    for how in ("left", "full")
}


# PWJoin and the window join


@dataclass(frozen=True)
class Streams:
    """Two streams cut into batches by event time, and the answer of their window join."""

    batches: list[dict[str, pa.Table]]
    pairs: int


def streams(
    pattern: StreamPattern,
    rows: int,
    window_s: float,
    step_s: float,
    *,
    other: StreamPattern | None = None,
    seed: int = SEED,
) -> Streams:
    """Two streams of one pattern (or one of each), and how many pairs are no more than a window apart."""
    tables = {
        name: one.table(rows=rows, seed=seed + i)
        for i, (name, one) in enumerate((("a", pattern), ("b", other or pattern)))
    }
    times = {name: table["t"].cast(pa.int64()).to_numpy() for name, table in tables.items()}
    begin, end = min(t[0] for t in times.values()), max(t[-1] for t in times.values())
    cuts = np.arange(begin + int(step_s * 1e6), end, int(step_s * 1e6))
    ends = {name: [0, *np.searchsorted(t, cuts).tolist(), len(t)] for name, t in times.items()}
    batches = [
        {
            name: table.slice(ends[name][i], ends[name][i + 1] - ends[name][i])
            for name, table in tables.items()
        }
        for i in range(len(cuts) + 1)
    ]
    return Streams(batches, _pairs(tables["a"], tables["b"], window_s))


def _pairs(left: pa.Table, right: pa.Table, window_s: float) -> int:
    """Pairs of one key whose times are at most a window apart: the batch join, counted."""
    sides = []
    for table in (left, right):
        rows = table.filter(pc.invert(table["is_end"]))
        key, when = rows["k"].to_numpy(), rows["t"].cast(pa.int64()).to_numpy()
        sides.append((key, when))
    (left_key, left_time), (right_key, right_time) = sides
    order = np.lexsort((right_time, right_key))
    base = min(left_time.min(), right_time.min())
    width = int(max(left_time.max(), right_time.max()) - base + 4 * window_s * 1e6)
    place = right_key[order] * width + (right_time[order] - base)  # one ascending line for all keys
    here = left_key * width + (left_time - base)
    window = int(window_s * 1e6)
    low = np.maximum(here - window, left_key * width)
    first = np.searchsorted(place, low, side="left")
    last = np.searchsorted(place, here + window, side="right")
    return int((last - first).sum())


def local(operator: str, window_s: float, *, monitored: bool = True) -> LocalRun:
    """The join of two such streams, by one of the papers' operators."""
    declared: dict[str, Any] = {
        "key": "k",
        "time": "t",
        "window": f"{window_s} seconds",
        "lateness": "0 seconds",
        "punctuation": marked("is_end"),
        "columns": ["v"],
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnboundedState)
        a, b = (stream(PATTERN_SCHEMA, name=name, **declared) for name in ("a", "b"))
        plan = join(a, b, operator=operator).plan
        return LocalRun(replace(plan, spec=replace(plan.spec, monitored=monitored)))


def cpu_seconds(operator: str, data: Streams, window_s: float, *, monitored: bool = True) -> float:
    """CPU seconds of one run; its answer is counted first."""
    run, found = local(operator, window_s, monitored=monitored), 0
    started = time.process_time()
    for batch in data.batches:
        found += len(run.step(batch))
    spent = time.process_time() - started
    if found != data.pairs:
        raise InvariantBroken(
            f"{operator} gave {found} pairs, the batch join {data.pairs}; no time is reported"
        )
    return spent


def cost(progress: Progress, *, quick: bool) -> tuple[list[Claim], dict[str, Any]]:
    """CPU time of PWJoin by that of the window join, run by run, order rotated."""
    window_s, rows, runs = 5.0, 400_000, 5 if quick else RUNS
    fast = replace(PATTERN, gap="50 microseconds")  # so a batch of a second has 40,000 tuples
    plain = streams(replace(fast, punctuations=False), rows, window_s, 1.0)
    useless = streams(replace(fast, irrelevant=1.0), rows, window_s, 1.0)
    contenders = [
        ("wjoin", plain, True),
        ("pwjoin", plain, True),
        ("pwjoin", useless, True),
        ("wjoin", plain, False),
    ]
    seconds: list[list[float]] = [[], [], [], []]
    for turn in range(runs + 1):
        progress.step(f"PWJoin beside the window join, round {turn + 1} of {runs + 1}")
        for i in range(4):
            at = (turn + i) % 4
            operator, data, monitored = contenders[at]
            spent = cpu_seconds(operator, data, window_s, monitored=monitored)
            if turn:  # the first round warms up
                seconds[at].append(spent)
    window, bare, irrelevant, unmonitored = seconds
    claims = [
        _ratio(NO_PUNCTUATIONS, bare, window, quick=quick),
        _ratio(IRRELEVANT, irrelevant, window, quick=quick),
        _ratio(MONITOR, window, unmonitored, quick=quick),
    ]
    names = ("wjoin", "pwjoin", "pwjoin, irrelevant punctuations", "wjoin, not monitored")
    return claims, {"cpu_s": dict(zip(names, seconds, strict=True))}


def _ratio(says: Statement, ours: list[float], theirs: list[float], *, quick: bool) -> Claim:
    """The ratio of the medians, with the spread of the ratios round by round."""
    if quick:
        return says.open(f"needs {RUNS} interleaved runs: run without --quick")
    each = [a / b for a, b in zip(ours, theirs, strict=True)]
    claim = says.measured([median(ours) / median(theirs)])
    return replace(claim, low=min(each), high=max(each), runs=len(each))


def held(progress: Progress) -> tuple[list[Claim], dict[str, Any], Chart]:
    """Tuples held over time by both, for windows of several lengths."""
    claims, curves, saving = [], {}, []
    for window_s in WINDOWS_S:
        data = streams(replace(PATTERN, gap="1 millisecond"), 60_000, window_s, 0.5)
        means = {}
        for operator in ("wjoin", "pwjoin"):
            progress.step(f"tuples held by {operator}, window {window_s} s")
            run, found, tuples = local(operator, window_s), 0, []
            for batch in data.batches:
                found += len(run.step(batch))
                tuples.append(sum(run.state().rows.values()))
            if found != data.pairs:
                raise InvariantBroken(f"{operator} gave {found} pairs, the batch join {data.pairs}")
            means[operator] = mean(tuples)
            label = {"wjoin": "window join", "pwjoin": "PWJoin"}[operator]
            curves[f"{label}, {window_s} s"] = ([0.5 * i for i in range(len(tuples))], tuples)
        claims.append(FEWER[window_s].measured([means["pwjoin"] / means["wjoin"]]))
        saving.append(1 - means["pwjoin"] / means["wjoin"])
    claims.append(GROWS.measured([min(b - a for a, b in pairwise(saving))]))
    chart = Chart("Tuples held, punct-asc-100-40", "seconds of event time", "tuples", curves)
    return claims, {"saving": dict(zip(map(str, WINDOWS_S), saving, strict=True)), "held": curves}, chart


# The goal memory


def one_to_many(
    batches: int, keys: int, fan_out: int, seed: int = SEED
) -> Iterator[tuple[dict[str, pa.Table], int]]:
    """Batches of a one-to-many join with punctuations, each with the tuples still needed after it.

    Key k is born in batch b = k // keys; its tuples of the many side come in batches b - 1 to b + 3,
    its punctuation in batch b + 4. Needed are tuples of the one side whose key is not punctuated,
    and tuples of the many side whose partner has not come.
    """
    random = np.random.default_rng(seed)
    total = (batches + 2) * keys
    born = np.arange(total) // keys
    many = np.repeat(np.arange(total), fan_out)
    comes = np.maximum(born[many] + random.integers(-1, 4, len(many)), 0)
    order = np.argsort(comes, kind="stable")
    many, ends = many[order], np.searchsorted(comes[order], np.arange(batches + 1))
    for b in range(batches):
        here = random.permutation(many[ends[b] : ends[b + 1]])
        ended = np.arange(max(b - 4, 0) * keys, max(b - 3, 0) * keys)
        one = random.permutation(np.arange(b * keys, (b + 1) * keys))
        rows = {
            "one": pa.table({"k": one, "va": one}),
            "many": pa.table(
                {
                    "k": np.concatenate([here, ended]),
                    "vb": np.concatenate([here, ended]),
                    "is_end": np.repeat([False, True], [len(here), len(ended)]),
                }
            ),
        }
        alive = keys * (b + 1) - keys * max(b - 3, 0)
        yield rows, alive + int(np.count_nonzero(born[here] > b))


def needed(progress: Progress, *, quick: bool) -> tuple[list[Claim], dict[str, Any]]:
    """Rows physically held with the goal memory, by those an oracle says are needed."""
    batches, keys, fan_out = (20 if quick else 100), 9_090, 10
    progress.step(f"goal memory over {batches * keys * (fan_out + 1):,} tuples")
    one = pa.schema({"k": pa.int64(), "va": pa.int64()})
    many = pa.schema({"k": pa.int64(), "vb": pa.int64(), "is_end": pa.bool_()})
    run = join(
        stream(one, name="one", key="k", unique=True),
        stream(many, name="many", key="k", punctuation=marked("is_end")),
        goal="memory",
    ).local()
    ratios, rows_held, rows_needed, found, wanted = [], [], [], 0, 0
    for rows, oracle in one_to_many(batches, keys, fan_out):
        result = run.step(rows)
        found += len(result)
        data = rows["many"]["k"].to_numpy()[~rows["many"]["is_end"].to_numpy()]
        wanted += int(np.count_nonzero(data < batches * keys))  # their partners come before the end
        physical = sum(len(run_) for side in run.join.sides for run_ in side.runs)
        rows_held.append(physical)
        rows_needed.append(oracle)
        ratios.append((physical - 1000) / oracle)
    if run.violations() or found != wanted:
        raise InvariantBroken(f"{found} results, the batch join has {wanted}; or a stream broke its promises")
    series = {"rows_held": rows_held, "rows_needed": rows_needed}
    if quick:
        return [NEEDED.open("needs 10 million tuples: run without --quick")], series
    return [replace(NEEDED.measured([max(ratios)]), low=min(ratios), high=max(ratios))], series


# Outer joins on Spark

_ROWS, _BATCHES, _KEYS_A_BATCH, _FAN_OUT = 550_000, 8, 50_000, 10
_MATCHED = 0.8  # of the keys of either side
_STEP_S = 10  # event time between two batches


def prepare(folder: Path) -> dict[str, Data]:
    """Two streams with times, a fifth of the keys of each without a partner, and the sums of their joins."""
    random = np.random.default_rng(SEED)
    sums = {how: {"rows": 0, "sum": 0, "mix": 0} for how in ("left", "full")}
    for side in ("one", "many"):
        (folder / side).mkdir(parents=True)
    for i in range(_BATCHES + 2):
        last = i >= _BATCHES  # batches that only move event time on, with keys below 0, which do not count
        keys = np.arange(i * _KEYS_A_BATCH, (i + 1) * _KEYS_A_BATCH)
        one = np.array([-1 - i]) if last else keys[random.random(len(keys)) < _MATCHED]
        many = (
            np.array([-101 - i])
            if last
            else random.choice(keys[: int(len(keys) * _MATCHED)], _KEYS_A_BATCH * _FAN_OUT)
        )
        start = (i + (10 if last else 0)) * _STEP_S * 1_000_000
        when_one = start + np.sort(random.integers(0, 1_000_000, len(one)))
        when_many = start + 1_000_000 + np.sort(random.integers(0, 4_000_000, len(many)))
        _write(folder / "one" / f"{i:03}.parquet", when_one, k=one, va=one * 2)
        _write(folder / "many" / f"{i:03}.parquet", when_many, k=many, vb=many * 3)
        if not last:
            for how, found in sums.items():
                for name, value in _outer_sums(one, many, how).items():
                    found[name] += value
    return {how: Data(folder, found) for how, found in sums.items()}


def _write(path: Path, when: Ints, **columns: Ints) -> None:
    pq.write_table(pa.table({**columns, "t": pa.array(when, pa.timestamp("us", "UTC"))}), path)


def _outer_sums(one: Ints, many: Ints, how: str) -> dict[str, int]:
    """Rows and sums of the outer join; a padded value counts as -1."""
    partner = np.isin(many, one)
    rows = [(many[partner], many[partner] * 2, many[partner] * 3)]
    alone = one[~np.isin(one, many)]
    rows.append((alone, alone * 2, np.full(len(alone), -1)))
    if how == "full":
        orphan = many[~partner]
        rows.append((orphan, np.full(len(orphan), -1), orphan * 3))
    key, va, vb = (np.concatenate(part) for part in zip(*rows, strict=True))
    mixed = ((va * 31 + vb * 17) % 1_000_003) * (key % 1_009)
    return {"rows": len(key), "sum": int((va + vb).sum()), "mix": int(mixed.sum())}


def outer(home: Path, progress: Progress, *, quick: bool) -> tuple[list[Claim], dict[str, Any]]:
    """Rows per second of outer joins beside Spark's own, whole runs, order rotated."""
    data = prepare(home / "outer")
    engines: tuple[Engine, ...] = ("streamjoin", "spark-rocksdb")
    claims, series = [], {}
    for how in ("left",) if quick else ("left", "full"):
        rates: dict[str, list[float]] = {engine: [] for engine in engines}
        rounds = 1 if quick else 3
        for turn in range(rounds):
            for engine in engines[:: 1 if turn % 2 == 0 else -1]:
                progress.step(f"{how} outer join, {engine}, round {turn + 1} of {rounds}")
                task = Task(engine, str(data[how].folder), how=how, step_s=_STEP_S)
                found = measured(task, data[how])
                rates[engine].append(rate(_without_last(found)))
        each = [a / b for a, b in zip(rates["streamjoin"], rates["spark-rocksdb"], strict=True)]
        claims.append(OUTER[how].measured(each))
        series[how] = rates
    claims += [OUTER[how].open("only in the full form") for how in OUTER if how not in series]
    return claims, {"outer_rows_per_s": series}


def _without_last(found: dict[str, Any]) -> dict[str, Any]:
    """The batches with data; those that only move event time do not count."""
    full = [i for i, rows in enumerate(found["input_rows"]) if rows > _KEYS_A_BATCH]
    return {name: [found[name][i] for i in full] for name in ("input_rows", "trigger_ms")}


def run(quick: bool, progress: Progress) -> Result:  # noqa: FBT001  # the interface of an experiment
    """The whole experiment."""
    progress.total((6 if quick else RUNS + 1) + 6 + 1 + (2 if quick else 12))
    claims, series = cost(progress, quick=quick)
    more, tuples, chart = held(progress)
    claims += more
    series |= tuples
    more, rows = needed(progress, quick=quick)
    claims += more
    series |= rows
    with tempfile.TemporaryDirectory(prefix="streamjoin-lab-") as folder:
        more, rates = outer(Path(folder), progress, quick=quick)
    return Result("binary", SEED, [*claims, *more], 9, {**series, **rates}, {"held": chart})


def experiments() -> Iterator[Experiment]:
    """What this file adds to the lab."""
    yield Experiment("binary", "what windows, punctuations, goals and outer joins cost and save", run)
