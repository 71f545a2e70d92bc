"""Rows per second on Spark: this library beside Spark's own join on its heap and RocksDB stores.

550,000 rows a micro-batch, 1-to-10 inner join, nothing purged, 12 batches; rows divided by the
summed trigger time of the last 6, the median over rounds of whole runs. Each contender has its
own JVM, their order rotates, and a contender whose answer differs from the batch join's reports
no time. Beside it: state that stays flat where keys and punctuations are declared, a batch at
10 million rows of state against one at 1 million (also after a pause that stops idle workers),
and string keys with 100-byte payloads.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lab.contender import Engine, Task
from lab.experiment import Claim, Experiment, Progress, Result, Statement
from streamjoin.errors import InvariantBroken
from streamjoin.plot import Chart

SEED = 11
ROWS = 550_000
BATCHES = 12
COUNTED = 6
FAN_OUT = 10
ENGINES: tuple[Engine, ...] = ("streamjoin", "spark-rocksdb", "spark-heap")
_ISSUE = "issue 3"

VERSUS_ROCKSDB = Statement(
    "rocksdb", "rows/s in multiples of Spark's own join on RocksDB", _ISSUE, ">=", 5, "times", 10
)
VERSUS_HEAP = Statement(
    "heap", "rows/s in multiples of Spark's own join on its heap store", _ISSUE, ">=", 2, "times", 5
)
STRINGS = Statement(
    "strings",
    "string keys, 100-byte payload: rows/s in multiples of Spark on RocksDB",
    _ISSUE,
    ">=",
    2,
    "times",
)
FLAT = Statement(
    "flat",
    "unique key and punctuations: largest state over the last half by the smallest",
    _ISSUE,
    "<=",
    1.2,
    "times",
)
SPARK_GROWS = Statement(
    "spark-grows", "the same input: Spark's state at the end by that at half", _ISSUE, ">=", 1.5, "times"
)
LARGE = Statement(
    "large", "a batch at 10 million rows of state by one at 1 million", _ISSUE, "<=", 1.5, "times"
)
PAUSE = Statement("pause", "the same after a pause of more than a minute", _ISSUE, "<=", 1.5, "times")


@dataclass(frozen=True)
class Data:
    """One prepared input on disk and the sums its batch join gives."""

    folder: Path
    answer: dict[str, int]


def prepare(
    folder: Path,
    batches: int,
    *,
    strings: bool = False,
    punctuated: bool = False,
    rows: int = ROWS,
    all_keys: bool = False,
) -> Data:
    """Write both streams, a file per batch, and the sums over their join.

    Rows of the many side have a key of their own batch, or with `all_keys` of any batch so far.
    """
    random = np.random.default_rng(SEED)
    answer = {"rows": 0, "sum": 0, "mix": 0}
    for side in ("one", "many"):
        (folder / side).mkdir(parents=True)
    keys = rows // (FAN_OUT + 1)
    for i in range(batches):
        one = np.arange(i * keys, (i + 1) * keys)
        many = random.integers(0 if all_keys else i * keys, (i + 1) * keys, keys * FAN_OUT)
        va, vb = one * 2, many * 3
        left, right = _columns(one, va, strings=strings), _columns(many, vb, strings=strings)
        tables = {
            "one": pa.table({"k": left[0], "va": left[1]}),
            "many": pa.table({"k": right[0], "vb": right[1]}),
        }
        if punctuated:
            tables["many"] = _with_ends(tables["many"], pa.array(one - keys if i else one[:0]))
        for side, table in tables.items():
            pq.write_table(table, folder / side / f"{i:03}.parquet")
        sums = _sums(many, strings=strings)
        answer = {name: answer[name] + sums[name] for name in answer}
    return Data(folder, answer)


def _columns(keys: Any, values: Any, *, strings: bool) -> tuple[pa.Array, pa.Array]:
    if not strings:
        return pa.array(keys), pa.array(values)
    payload = pa.array([f"{value:0100d}" for value in values.tolist()])
    return pa.array([f"key-{key:012d}" for key in keys.tolist()]), payload


def _with_ends(table: pa.Table, keys: pa.Array) -> pa.Table:
    """The rows, then a punctuation for every key of the batch before."""
    rows = table.append_column("is_end", pa.array(np.zeros(len(table), np.bool_)))
    ends = pa.table(
        [keys, pa.nulls(len(keys), pa.int64()), pa.array(np.ones(len(keys), np.bool_))], rows.schema.names
    )
    return pa.concat_tables([rows, ends])


def _sums(many: Any, *, strings: bool) -> dict[str, int]:
    """What the contenders' `answer` must add up to: every row of the many side finds its one."""
    if strings:
        va, vb, key = (np.full(len(many), length) for length in (100, 100, 16))
    else:
        va, vb, key = many * 2, many * 3, many
    mixed = ((va * 31 + vb * 17) % 1_000_003) * (key % 1_009)
    return {"rows": len(many), "sum": int((va + vb).sum()), "mix": int(mixed.sum())}


def measured(task: Task, data: Data, contender: str = "lab.contender") -> dict[str, Any]:
    """Run one contender in its own process; its answer is checked before anything is returned."""
    command = [sys.executable, "-m", contender, task.argument()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    if done.returncode != 0:
        raise InvariantBroken(f"{task.engine} failed: {done.stderr.strip()[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    if found["answer"] != data.answer:
        raise InvariantBroken(
            f"{task.engine} answered {found['answer']}, the batch join {data.answer}; no time is reported"
        )
    return found


def rate(found: dict[str, Any]) -> float:
    """Rows per second of trigger time over the last batches."""
    return float(1000 * sum(found["input_rows"][-COUNTED:]) / sum(found["trigger_ms"][-COUNTED:]))


def _rounds(
    data: Data, rounds: int, progress: Progress, *, strings: bool = False
) -> dict[str, list[dict[str, Any]]]:
    engines = [engine for engine in ENGINES if not (strings and engine == "spark-heap")]
    found: dict[str, list[dict[str, Any]]] = {engine: [] for engine in engines}
    kind = "string" if strings else "long"
    for turn in range(rounds):
        for engine in engines[turn % len(engines) :] + engines[: turn % len(engines)]:
            progress.step(f"{engine}, {kind} keys, round {turn + 1} of {rounds}")
            found[engine].append(measured(Task(engine, str(data.folder), kind, kind), data))
    return found


def _ratios(found: dict[str, list[dict[str, Any]]], other: str) -> list[float]:
    return [rate(a) / rate(b) for a, b in zip(found["streamjoin"], found[other], strict=True)]


def run(quick: bool, progress: Progress) -> Result:  # noqa: FBT001  # the interface of an experiment
    """The whole experiment."""
    rounds = 1 if quick else 3
    progress.total(rounds * (len(ENGINES) + 2) + 3)
    with tempfile.TemporaryDirectory(prefix="streamjoin-lab-") as folder:
        home = Path(folder)
        longs = _rounds(prepare(home / "longs", BATCHES), rounds, progress)
        claims = [VERSUS_ROCKSDB.measured(_ratios(longs, "spark-rocksdb"))]
        claims.append(VERSUS_HEAP.measured(_ratios(longs, "spark-heap")))
        texts = _rounds(prepare(home / "strings", BATCHES, strings=True), rounds, progress, strings=True)
        claims.append(STRINGS.measured(_ratios(texts, "spark-rocksdb")))
        flat, flat_series = _flat(home, progress)
        large, large_series = _large(home, progress, quick=quick)
    series = {
        "rows_per_s": {engine: [rate(one) for one in ones] for engine, ones in longs.items()},
        "rows_per_s_strings": {engine: [rate(one) for one in ones] for engine, ones in texts.items()},
        "cpu_s": {engine: [one["cpu_s"] for one in ones] for engine, ones in longs.items()},
        "trigger_ms": {engine: [one["trigger_ms"] for one in ones] for engine, ones in longs.items()},
        "where_the_time_goes_ms": _where(longs["streamjoin"]),
        **flat_series,
        **large_series,
    }
    chart = Chart(
        "Tuples in the state, the same input",
        "rows read",
        "tuples held",
        {label: tuple(curve) for label, curve in flat_series["state"].items()},
    )
    return Result("throughput", SEED, [*claims, *flat, *large], 5, series, {"state": chart})


def _flat(home: Path, progress: Progress) -> tuple[list[Claim], dict[str, Any]]:
    data = prepare(home / "flat", BATCHES, punctuated=True)
    curves: dict[str, list[list[float]]] = {}
    labels: dict[Engine, str] = {
        "streamjoin": "this library, keys and punctuations declared",
        "spark-rocksdb": "Spark's own join",
    }
    for engine, label in labels.items():
        progress.step(f"{engine}, unique key and punctuations")
        found = measured(Task(engine, str(data.folder), punctuated=True), data)
        rows = np.cumsum(found["input_rows"]).tolist()
        curves[label] = [rows, found["state_rows"]]
    ours, spark = (curve[1] for curve in curves.values())
    half = ours[len(ours) // 2 :]
    claims = [
        FLAT.measured([max(*half, 1) / max(min(half), 1)]),
        SPARK_GROWS.measured([spark[-1] / max(spark[len(spark) // 2 - 1], 1)]),
    ]
    return claims, {"state": curves}


def _large(home: Path, progress: Progress, *, quick: bool) -> tuple[list[Claim], dict[str, Any]]:
    """Time per batch from 1 to 10 million rows of state, in one query, with a pause before the last."""
    if quick:
        why = "needs 20 batches and a pause of more than a minute: run without --quick"
        progress.step("10 million rows of state: only in the full form")
        return [LARGE.open(why), PAUSE.open(why)], {}
    data = prepare(home / "large", 20)
    progress.step("10 million rows of state, with a pause of 75 seconds")
    found = measured(Task("streamjoin", str(data.folder), pause_before_last_s=75.0), data)
    times = found["trigger_ms"]
    small = median(times[2:5])
    claims = [LARGE.measured([median(times[-4:-1]) / small]), PAUSE.measured([times[-1] / small])]
    return claims, {"large_trigger_ms": times}


def _where(runs: list[dict[str, Any]]) -> dict[str, float]:
    """The median milliseconds of each part of a micro-batch.

    As Spark reports them; inside addBatch, summed over tasks of which two work side by side: the map
    tasks that scan, convert and pack, of which their shuffle write; on the stateful side load, join,
    emit, store and the state store's commit. What is left of addBatch is scheduling and the result
    rows in the JVM.
    """
    batches = []
    for one in runs:
        stages = one["map_stages"][-len(one["trigger_ms"]) :]
        for i in range(-COUNTED, 0):
            inside = {name[:-3]: value / 1000 for name, value in one["parts_us"][i].items()}
            inside["scan and pack"] = stages[i]["run_ms"]
            inside["shuffle write"] = stages[i]["shuffle_write_ms"]
            inside["commit"] = one["commit_ms"][i]
            parts = {f"addBatch.{name}": value for name, value in inside.items()}
            batches.append({**one["duration_ms"][i], **parts})
    names = sorted({part for batch in batches for part in batch})
    return {name: median(batch.get(name, 0) for batch in batches) for name in names}


def experiments() -> Iterator[Experiment]:
    """What this file adds to the lab."""
    yield Experiment("throughput", "rows/s on Spark beside Spark's own join, and flat state", run)
