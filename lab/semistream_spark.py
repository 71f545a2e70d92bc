"""A stream enriched on Spark: this library beside Spark's own stream-static join.

Master rows of 120 bytes that do not compress, Zipf 1, 100,000 stream rows a micro-batch, memory 10 % of the
master data, `cycle_batches` 10. Rows by the trigger time of the last half of the batches that bring rows; CPU
seconds of the whole process tree over the same batches, by rows; staging apart. Each contender has its own
JVM, their order rotates, and a contender whose answer differs from the batch join's reports nothing.

The batch join's sums are made while the files are written: of each part of the master data the rows whose
value is in the stream are kept, with the checksum of their padding. Worked number: 40 million rows and 2
million tuples keep about 0.9 million rows. Cost: about 1.5 µs a row of master data.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lab.experiment import Claim, Statement
from lab.semistream_contender import EnrichEngine, EnrichTask
from streamjoin.columnar.batch import Ints
from streamjoin.columnar.match import expand
from streamjoin.demo.generators.zipf import ZipfStreams
from streamjoin.errors import InvariantBroken

SEED = 7
_ISSUE = "issue 7"
_ENGINES: tuple[EnrichEngine, ...] = ("streamjoin", "spark")
_FILE_ROWS = 500_000
_MIB = 1 << 20


def _statements(millions: int, rate: float, cpu: float) -> tuple[Statement, Statement]:
    beside = f"{millions} million master rows on Spark"
    return (
        Statement(
            f"spark-{millions}-rate",
            f"{beside}: rows/s in multiples of its stream-static join",
            _ISSUE,
            ">=",
            rate,
            "times",
        ),
        Statement(
            f"spark-{millions}-cpu",
            f"{beside}: CPU seconds by those of its stream-static join",
            _ISSUE,
            "<=",
            round(cpu, 3),
            "times",
        ),
    )


STATEMENTS = {10: _statements(10, 1.5, 1 / 3), 40: _statements(40, 5, 1 / 6)}
WORKERS = Statement(
    "workers",
    "resident memory of a Python worker above an idle one, beyond the join's limit; the most of all runs",
    _ISSUE,
    "<=",
    64,
    "MiB",
)


@dataclass(frozen=True)
class Enrichment:
    """How much the Spark part does."""

    rounds: tuple[tuple[int, int], ...] = ((10, 1), (40, 1))  # millions of master rows, and rounds
    batch_rows: int = 100_000
    batches: int = 30  # three cycles
    spark_batches: int = 12  # all its batches cost the same
    scale: float = 1.0  # of the master rows, for a trial

    @property
    def steps(self) -> int:
        return sum(1 + len(_ENGINES) * rounds for _, rounds in self.rounds)

    def rows(self, millions: int) -> int:
        return round(millions * 1_000_000 * self.scale)


@dataclass(frozen=True)
class Prepared:
    """One input on disk and the sums its batch join gives."""

    folder: Path
    answers: dict[str, dict[str, int]]  # by the folder of the stream


def prepare(folder: Path, streams: ZipfStreams, batches: dict[str, int], batch_rows: int) -> Prepared:
    """Write both sides, the stream in several lengths; master rows that have a tuple give the sums."""
    for side in ("table", *batches):
        (folder / side).mkdir(parents=True)
    longest = max(batches.values())
    for i in range(longest):
        for side in (side for side, count in batches.items() if i < count):
            file = folder / side / f"{i:04}.parquet"
            pq.write_table(streams.tuples(i * batch_rows, batch_rows), file)
    stream = streams.tuples(0, longest * batch_rows)
    wanted = np.zeros(streams.rows + 1, np.bool_)
    wanted[stream["k"].to_numpy()] = True
    kept = []
    for i, first in enumerate(range(0, streams.rows, _FILE_ROWS)):
        rows = streams.table_rows(first, min(_FILE_ROWS, streams.rows - first))
        pq.write_table(rows, folder / "table" / f"{i:04}.parquet", use_dictionary=False)
        kept.append(_with_checksums(rows.filter(pa.array(wanted[rows["k"].to_numpy()]))))
    rows = pa.concat_tables(kept)
    return Prepared(
        folder,
        {side: sums(stream.slice(0, count * batch_rows), rows) for side, count in batches.items()},
    )


def _with_checksums(rows: pa.Table) -> pa.Table:
    check = np.fromiter(map(crc32, rows["pad"].to_pylist()), np.int64, len(rows))
    return pa.table({"k": rows["k"], "m": rows["m"], "check": check})


def sums(stream: pa.Table, table: pa.Table) -> dict[str, int]:
    """What the contenders' `answer` must add up to."""
    table = table.sort_by("k")
    keys: Ints = table["k"].to_numpy()
    key = stream["k"].to_numpy()
    first = np.searchsorted(keys, key, side="left")
    tuple_, row = expand(first, np.searchsorted(keys, key, side="right") - first)
    id_, extra = stream["id"].to_numpy()[tuple_], stream["x"].to_numpy().astype(np.int64)[tuple_]
    m, check = table["m"].to_numpy()[row], table["check"].to_numpy()[row]
    mixed = ((id_ * 31 + m * 17 + check) % 1_000_003) * (key[tuple_] % 1_009)
    return {"rows": len(row), "sum": int((id_ + m + extra).sum()), "mix": int(mixed.sum())}


def measured(task: EnrichTask, data: Prepared) -> dict[str, Any]:
    """Run one contender in its own process; its answer is checked before anything is returned."""
    command = [sys.executable, "-m", "lab.semistream_contender", task.argument()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    if done.returncode != 0:
        raise InvariantBroken(f"{task.engine} failed: {done.stderr.strip()[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    wanted = data.answers[task.stream]
    if found["answer"] != wanted:
        raise InvariantBroken(
            f"{task.engine} answered {found['answer']}, the batch join {wanted}; no time is reported"
        )
    return found


def _counted(found: dict[str, Any]) -> slice:
    """The last half of the batches that bring rows."""
    last = max(i for i, rows in enumerate(found["input_rows"]) if rows) + 1
    return slice(last // 2, last)


def rate(found: dict[str, Any]) -> float:
    """Rows by second of trigger time."""
    counted = _counted(found)
    return float(1000 * sum(found["input_rows"][counted]) / sum(found["trigger_ms"][counted]))


def cpu(found: dict[str, Any]) -> float:
    """CPU seconds of the same batches, for a million rows."""
    counted = _counted(found)
    seconds = found["cpu_s"][counted.stop - 1] - found["cpu_s"][counted.start - 1]
    return float(1e6 * seconds / sum(found["input_rows"][counted]))


def latency(found: dict[str, Any]) -> dict[str, float]:
    """From the batch that brought a tuple to the one that gave its result: mean and worst."""
    counted = _counted(found)
    results = [each for each in found["latency"][counted] if each["rows"]]
    rows = sum(each["rows"] for each in results)
    mean = sum(each["rows"] * each["mean"] for each in results) / max(rows, 1)
    worst = max(each["worst"] for each in results)
    batch_s = sum(found["trigger_ms"][counted]) / 1000 / (counted.stop - counted.start)
    return {
        "mean_batches": mean,
        "worst_batches": worst,
        "mean_s": (mean + 1) * batch_s,
        "worst_s": (worst + 1) * batch_s,
    }


def enrichment(
    home: Path, load: Enrichment, step: Callable[[str], None]
) -> tuple[list[Claim], dict[str, Any]]:
    """All sizes; the files of one are removed before the next is written."""
    claims: list[Claim] = []
    series: dict[str, Any] = {}
    beyond: list[float] = []
    for millions, rounds in load.rounds:
        step(f"{millions} million master rows: writing")
        streams = ZipfStreams(seed=SEED, rows=load.rows(millions), skew=1.0)
        folder = home / f"{millions}"
        batches = {"streamjoin": load.batches, "spark": load.spark_batches}
        data = prepare(folder, streams, batches, load.batch_rows)
        limit = streams.rows * streams.row_bytes // 10
        found = _rounds(data, load, limit, rounds, step)
        shutil.rmtree(folder)
        ratios = _pairs(found)
        faster, cheaper = STATEMENTS[millions]
        claims.append(faster.measured([rate(ours) / rate(theirs) for ours, theirs in ratios]))
        claims.append(cheaper.measured([cpu(ours) / cpu(theirs) for ours, theirs in ratios]))
        beyond += [_beyond(ours, limit) for ours, _ in ratios]
        series[f"spark_{millions}_million"] = _series(found, limit)
    most = WORKERS.measured([max(beyond)])
    return [*claims, replace(most, low=min(beyond), runs=len(beyond))], series


def _rounds(
    data: Prepared, load: Enrichment, limit: int, rounds: int, step: Callable[[str], None]
) -> dict[EnrichEngine, list[dict[str, Any]]]:
    found: dict[EnrichEngine, list[dict[str, Any]]] = {engine: [] for engine in _ENGINES}
    for number in range(rounds):
        for engine in _ENGINES[:: 1 if number % 2 == 0 else -1]:
            step(f"{data.folder.name} million master rows, {engine}, round {number + 1} of {rounds}")
            task = EnrichTask(engine, str(data.folder), load.batch_rows, limit, stream=engine)
            found[engine].append(measured(task, data))
    return found


def _pairs(found: dict[EnrichEngine, list[dict[str, Any]]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return list(zip(found["streamjoin"], found["spark"], strict=True))


def _beyond(found: dict[str, Any], limit: int) -> float:
    workers = found["worker_bytes"]
    return float((workers["peak"] - workers["idle"] - limit) / _MIB)


def _series(found: dict[EnrichEngine, list[dict[str, Any]]], limit: int) -> dict[str, Any]:
    return {
        "memory_limit": limit,
        **{
            engine: {
                "rows_per_s": [rate(one) for one in ones],
                "cpu_s_per_million_rows": [cpu(one) for one in ones],
                "latency": [latency(one) for one in ones],
                "trigger_ms": [one["trigger_ms"] for one in ones],
                "staging_s": [one["staging_s"] for one in ones],
                "worker_bytes": [one["worker_bytes"] for one in ones],
                "gauges": ones[-1]["gauges"],
            }
            for engine, ones in found.items()
        },
    }
