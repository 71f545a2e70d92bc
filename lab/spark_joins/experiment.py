"""The experiment `spark-joins`: cases on Spark that neither the peers nor the guard measure.

- String keys with 100-byte payloads, and outer joins within a time, beside Spark's own join on RocksDB.
- A batch after a pause in which Spark stops idle Python workers, by one before it.
- Three and five streams: state rows beside Spark's chain of two joins, and beside the inputs' live tuples.
- A join whose state is ten times its memory limit, beside the same join without a limit; resident memory is
  that of Spark's Python workers, sampled, less that of an idle one.
- A stream with a table of 10 and 40 million rows of 120 bytes that do not compress, Zipf 1, memory 10 % of
  the table, `cycle_batches` 10, beside Spark's stream-static join.

Rates are rows by the trigger time of the last half of the batches. Each contender has its own JVM, their
order changes with the round, and a contender whose answer differs from the batch join's reports nothing.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from lab.contenders.protocol import Failed, Measured, Work, run_contender
from lab.contenders.spark_contender import Engine, SparkQuery
from lab.experiment import Claim, Experiment, Result, Statement, StepReporter
from lab.spark_joins import chain, enrichment, two_streams
from lab.spark_joins.chain import Chain
from lab.spark_joins.enrichment import Enrichment
from lab.spark_joins.two_streams import TwoStreams
from streamjoin.demo.generators.zipf import ZipfStreams
from streamjoin.errors import InvariantBroken

ROWS = 550_000
_TIMEOUT_S = 1_800.0
_MIB = 1 << 20
_BOTH: tuple[Engine, ...] = ("streamjoin", "spark-rocksdb")
Step = Callable[[str], None]
Found = tuple[list[Claim], dict[str, Any]]

STRINGS = Statement(
    "strings",
    "string keys, 100-byte payload: rows/s in multiples of Spark on RocksDB",
    "issue 3", ">=", 2, "times",
)  # fmt: skip
PAUSE = Statement(
    "pause",
    "a batch at 10 million rows of state after a pause of more than a minute by one at 1 million",
    "issue 3", "<=", 1.5, "times",
)  # fmt: skip
OUTER = {
    how: Statement(
        f"outer-{how}",
        f"{how} outer join: rows/s in multiples of Spark on RocksDB",
        "issue 4", ">=", 3, "times",
    )
    for how in ("left", "full")
}  # fmt: skip
TEN_TIMES = Statement("ten-times", "state by the memory limit, at the end", "issue 5", ">=", 10, "times")
WITHIN = Statement(
    "within",
    "resident memory of a worker above an idle one and the limit, the most of any round",
    "issue 5", "<=", 64, "MB",
)  # fmt: skip
A_THIRD = Statement("a-third", "rows/s with the limit by those without", "issue 5", ">=", 1 / 3, "times")
STATE = Statement(
    "state",
    "3-way join with a fan-out of 4: state rows by those of Spark's own chain, at the end",
    "issue 6", "<=", 0.45, "times",
)  # fmt: skip
FIVE = Statement(
    "five-way",
    "5-way join: state rows by the sum of the inputs' live tuples, the most of any batch",
    "issue 6", "==", 1, "times",
)  # fmt: skip


def _enriched(millions: int, rate: float, cpu: float) -> tuple[Statement, Statement]:
    beside = f"{millions} million table rows on Spark"
    return (
        Statement(
            f"spark-{millions}-rate",
            f"{beside}: rows/s in multiples of its stream-static join",
            "issue 7", ">=", rate, "times",
        ),
        Statement(
            f"spark-{millions}-cpu",
            f"{beside}: CPU seconds by those of its stream-static join",
            "issue 7", "<=", round(cpu, 3), "times",
        ),
    )  # fmt: skip


ENRICHED = {10: _enriched(10, 1.5, 1 / 3), 40: _enriched(40, 5, 1 / 6)}
WORKERS = Statement(
    "workers",
    "resident memory of a Python worker above an idle one, beyond the join's limit; the most of all runs",
    "issue 7", "<=", 64, "MiB",
)  # fmt: skip


@dataclass(frozen=True)
class Load:
    """How much is done."""

    rounds: int = 3
    string_batches: int = 12
    outer_batches: int = 8
    outer: tuple[str, ...] = ("left", "full")
    memory_batches: int = 40
    limit_mb: int = 54  # a tenth of the state at the end
    tables: tuple[int, ...] = (10, 40)  # millions of rows
    stream_batches: int = 30  # three cycles
    spark_stream_batches: int = 12  # all its batches cost the same


FULL = Load()
QUICK = Load(1, 6, 4, ("left",), 20, 27, (10,), 24, 8)
_FULL_ONLY = "needs the full form: run without --quick"


def measured(query: SparkQuery, work: Work) -> Measured:
    """Run one contender in its own process; its answer is checked before anything is returned."""
    found = run_contender(query.command(), query.engine, work, _TIMEOUT_S)
    if isinstance(found, Failed):
        raise InvariantBroken(f"{found.engine}: {found.why}; no time is reported")
    return found


def late_rate(found: Measured) -> float:
    """Rows per second of trigger time over the last half of the batches that bring rows."""
    part = enrichment.counted(found)
    return float(1000 * sum(found.extra["input_rows"][part]) / sum(found.extra["trigger_ms"][part]))


def rounds(
    contenders: dict[str, tuple[SparkQuery, Work]], count: int, what: str, step: Step
) -> dict[str, list[Measured]]:
    """All contenders in turn, so many times."""
    found: dict[str, list[Measured]] = {name: [] for name in contenders}
    for turn in range(count):
        for name in list(contenders)[:: 1 if turn % 2 == 0 else -1]:
            step(f"{what}, {name}, round {turn + 1} of {count}")
            found[name].append(measured(*contenders[name]))
    return found


def _ratios(ours: Sequence[Measured], theirs: Sequence[Measured], of: Any = late_rate) -> list[float]:
    return [of(a) / of(b) for a, b in zip(ours, theirs, strict=True)]


def _series(found: dict[str, list[Measured]]) -> dict[str, Any]:
    return {
        name: {
            "rows_per_s": [late_rate(one) for one in ones],
            "cpu_s": [one.cpu_s for one in ones],
            "trigger_ms": [one.extra["trigger_ms"] for one in ones],
            "state_rows": [rows for _, rows, _ in ones[0].state],
        }
        for name, ones in found.items()
    }


def strings(home: Path, load: Load, step: Step) -> Found:
    """String keys beside Spark's own join."""
    work = two_streams.prepare(home / "strings", load.string_batches, rows=ROWS, strings=True)
    of: dict[str, tuple[SparkQuery, Work]] = {
        engine: (TwoStreams(engine, str(work.folder), "string", "string"), work) for engine in _BOTH
    }
    found = rounds(of, load.rounds, "string keys", step)
    return [STRINGS.measured(_ratios(*(found[engine] for engine in _BOTH)))], {"strings": _series(found)}


def pause(home: Path, load: Load, step: Step) -> Found:
    """Time per batch to 10 million rows of state, in one query, with a pause before the last batch."""
    if load == QUICK:
        return [PAUSE.open(_FULL_ONLY)], {}
    step("10 million rows of state, with a pause of 75 seconds")
    work = two_streams.prepare(home / "pause", 20, rows=ROWS)
    found = measured(TwoStreams("streamjoin", str(work.folder), pause_before_last_s=75.0), work)
    times = found.extra["trigger_ms"]
    return [PAUSE.measured([times[-1] / median(times[2:5])])], {"pause_trigger_ms": times}


def outer(home: Path, load: Load, step: Step) -> Found:
    """Outer joins beside Spark's own."""
    works = two_streams.prepare_outer(home / "outer", load.outer_batches)
    claims, series = [], {}
    for how in load.outer:
        of: dict[str, tuple[SparkQuery, Work]] = {
            engine: (
                TwoStreams(engine, str(works[how].folder), how=how, step_s=two_streams.OUTER_STEP_S),
                works[how],
            )
            for engine in _BOTH
        }
        found = rounds(of, load.rounds, f"{how} outer join", step)
        claims.append(OUTER[how].measured(_ratios(found["streamjoin"], found["spark-rocksdb"], _outer_rate)))
        series[how] = _series(found)
    claims += [says.open(_FULL_ONLY) for how, says in OUTER.items() if how not in series]
    return claims, {"outer": series}


def _outer_rate(found: Measured) -> float:
    """As `late_rate`, of the batches with data; those that only move event time do not count."""
    pairs = zip(found.extra["input_rows"], found.extra["trigger_ms"], strict=True)
    full = [(rows, ms) for rows, ms in pairs if rows > two_streams.KEYS_A_BATCH]
    late = full[len(full) // 2 :]
    return float(1000 * sum(rows for rows, _ in late) / sum(ms for _, ms in late))


def state(home: Path, _: Load, step: Step) -> Found:
    """State rows of three streams beside the chain's, and of five beside their live tuples."""
    three = chain.prepare(home / "three", 3, 4, 2, ROWS)
    of: dict[str, tuple[SparkQuery, Work]] = {e: (Chain(e, str(three.folder)), three) for e in _BOTH}
    found = rounds(of, 1, "3-way join, four rows a key", step)
    ours, theirs = (found[engine][0].state[-1][1] or 0 for engine in _BOTH)
    step("5-way join")
    five = chain.prepare(home / "five", 5, 2, 2, ROWS)
    one = measured(Chain("streamjoin", str(five.folder), inputs=5), five)
    live = np.cumsum(one.extra["input_rows"])
    shares = (np.array([rows for _, rows, _ in one.state]) / live).tolist()
    claims = [
        STATE.measured([ours / theirs]),
        FIVE.measured([max(shares, key=lambda each: abs(each - 1))]),
    ]
    return claims, {"three_way": _series(found), "five_way_state_by_live": shares}


def memory(home: Path, load: Load, step: Step) -> Found:
    """The same join with and without a limit, in turn."""
    work = two_streams.prepare(
        home / "memory", load.memory_batches, rows=110_000, strings=True, all_keys=True
    )
    limits = {"unlimited": None, "limited": f"{load.limit_mb} MB"}
    of: dict[str, tuple[SparkQuery, Work]] = {
        name: (
            TwoStreams("streamjoin", str(work.folder), "string", "string", memory=limit, watched=True),
            work,
        )
        for name, limit in limits.items()
    }
    found = rounds(of, load.rounds, "memory limit", step)
    beyond = [_above_idle(one) / _MIB - load.limit_mb for one in found["limited"]]
    sizes = [(one.state[-1][2] or 0) / _MIB / load.limit_mb for one in found["limited"]]
    claims = [
        TEN_TIMES.measured(sizes),
        replace(WITHIN.measured([max(beyond)]), low=min(beyond), runs=len(beyond)),
        A_THIRD.measured(_ratios(found["limited"], found["unlimited"])),
    ]
    resident = [each.get("resident_bytes", 0) / _MIB for each in found["limited"][0].extra["gauges"]]
    series = _series(found) | {"limit_mb": load.limit_mb, "resident_mb": resident}
    return claims, {"memory": series}


def _above_idle(found: Measured) -> int:
    return int(found.extra["worker_bytes"]["peak"] - found.extra["worker_bytes"]["idle"])


def large_tables(home: Path, load: Load, step: Step) -> Found:
    """All sizes; the files of one are removed before the next is written."""
    claims: list[Claim] = []
    series: dict[str, Any] = {}
    beyond: list[float] = []
    for millions in load.tables:
        step(f"{millions} million table rows: writing")
        streams = ZipfStreams(seed=enrichment.SEED, rows=millions * 1_000_000, skew=1.0)
        folder, limit = home / f"{millions}", millions * 1_000_000 * streams.row_bytes // 10
        batches = {"streamjoin": load.stream_batches, "spark-rocksdb": load.spark_stream_batches}
        works = enrichment.prepare(folder, streams, batches, 100_000)
        of: dict[str, tuple[SparkQuery, Work]] = {
            e: (Enrichment(e, str(folder), 100_000, limit, stream=e), works[e]) for e in _BOTH
        }
        found = rounds(of, 1, f"{millions} million table rows", step)
        shutil.rmtree(folder)
        ours, theirs = (found[engine] for engine in _BOTH)
        faster, cheaper = ENRICHED[millions]
        claims.append(faster.measured(_ratios(ours, theirs)))
        claims.append(cheaper.measured(_ratios(ours, theirs, of=enrichment.cpu)))
        beyond += [(_above_idle(one) - limit) / _MIB for one in ours]
        series[f"table_{millions}_million"] = {
            engine: enrichment.summary(ones, late_rate) for engine, ones in found.items()
        }
    claims += [
        says.open(_FULL_ONLY) for size in ENRICHED if size not in load.tables for says in ENRICHED[size]
    ]
    most = replace(WORKERS.measured([max(beyond)]), low=min(beyond), runs=len(beyond))
    return [*claims, most], series


def run(quick: bool, progress: StepReporter) -> Result:  # noqa: FBT001  # the interface of an experiment
    """The whole experiment."""
    load = QUICK if quick else FULL
    pairs = 2 + len(load.outer)  # strings, memory, outer joins
    progress.total(2 * load.rounds * pairs + 3 + (not quick) + 3 * len(load.tables))
    claims: list[Claim] = []
    series: dict[str, Any] = {}
    for part in (strings, pause, outer, state, memory, large_tables):
        with tempfile.TemporaryDirectory(prefix="streamjoin-lab-") as folder:
            found, numbers = part(Path(folder), load, progress.step)
        claims += found
        series |= numbers
    return Result("spark-joins", two_streams.SEED, claims, 11, series)


def experiments() -> Iterator[Experiment]:
    """What this file adds to the lab."""
    yield Experiment(
        "spark-joins", "on Spark: string keys, outer joins, memory limits, large tables, a pause", run
    )
