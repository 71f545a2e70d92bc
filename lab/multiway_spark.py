"""Joins of three and five streams on Spark, beside Spark's own chain of stream-stream joins on RocksDB.

500,000 rows a micro-batch over all inputs, on a common long key, nothing purged; rows by the trigger time of
the last half of the batches. Each contender has its own JVM, their order rotates, and a contender whose
answer differs from the batch join's reports nothing. A key has `fan_out` rows on every input, all in one
batch. Worked number for the state: with three inputs and a fan-out of 4 a key has 12 rows; the chain holds
4 + 4 for its first join, 16 results of it and 4 for its second: 28, and 12 / 28 = 0.43.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lab.chain_contender import MIX, ChainTask
from lab.contender import Engine
from lab.experiment import Claim, Statement
from lab.planner import late_rate
from lab.throughput import Data, measured
from streamjoin.errors import InvariantBroken

SEED = 6
ROWS = 500_000
_ISSUE = "issue 6"
_ENGINES: tuple[Engine, ...] = ("streamjoin", "spark-rocksdb")

FASTER = Statement(
    "three-way",
    "3-way join on Spark: rows/s in multiples of Spark's own chain of two joins on RocksDB",
    _ISSUE,
    ">=",
    4,
    "times",
    8,
)
STATE = Statement(
    "state",
    "3-way join with a fan-out of 4: state rows by those of Spark's own chain, at the end",
    _ISSUE,
    "<=",
    0.45,
    "times",
)
FIVE = Statement(
    "five-way",
    "5-way join: state rows by the sum of the inputs' live tuples, the most of any batch",
    _ISSUE,
    "==",
    1,
    "times",
)


@dataclass(frozen=True)
class Load:
    """How much the Spark part does."""

    rows: int = ROWS
    batches: int = 6
    rounds: int = 3
    state_batches: int = 2


def prepare(folder: Path, inputs: int, fan_out: int, batches: int, rows: int) -> Data:
    """Write the streams, a file per batch, and the sums over their join."""
    random = np.random.default_rng(SEED)
    keys = rows // (inputs * fan_out)
    answer = {"rows": 0, "sum": 0, "mix": 0}
    for i in range(1, inputs + 1):
        (folder / f"s{i}").mkdir(parents=True)
    for batch in range(batches):
        key = np.arange(batch * keys, (batch + 1) * keys)
        # the value of row r of a key on input i
        values = [np.array([key * (i + 2) + row for row in range(fan_out)]).T for i in range(inputs)]
        for i, value in enumerate(values, 1):
            order = random.permutation(value.size)
            table = pa.table({"k": np.repeat(key, fan_out)[order], f"v{i}": value.ravel()[order]})
            pq.write_table(table, folder / f"s{i}" / f"{batch:03}.parquet")
        answer = {name: answer[name] + each for name, each in _sums(key, values).items()}
    return Data(folder, answer)


def _sums(key: Any, values: list[Any]) -> dict[str, int]:
    """What the contenders' `answer` must add up to: every combination of a key's rows."""
    plain = weighted = np.zeros((len(key), 1), np.int64)
    for value, weight in zip(values, MIX, strict=False):
        plain, weighted = (
            (sums[:, :, None] + times * value[:, None, :]).reshape(len(key), -1)
            for sums, times in ((plain, 1), (weighted, weight))
        )
    mixed = (weighted % 1_000_003) * (key % 1_009)[:, None]
    return {"rows": plain.size, "sum": int(plain.sum()), "mix": int(mixed.sum())}


def three_way(home: Path, load: Load, step: Callable[[str], None]) -> tuple[list[Claim], dict[str, Any]]:
    """Rows per second and state rows, in turn."""
    found = _rounds(
        prepare(home / "three", 3, 1, load.batches, load.rows), load.rounds, step, "one row a key"
    )
    ratios = [
        late_rate(ours) / late_rate(theirs)
        for ours, theirs in zip(found["streamjoin"], found["spark-rocksdb"], strict=True)
    ]
    fanned = _rounds(prepare(home / "fan", 3, 4, load.state_batches, load.rows), 1, step, "four rows a key")
    held = {engine: ones[0]["state_rows"][-1] for engine, ones in fanned.items()}
    claims = [
        FASTER.measured(ratios),
        STATE.measured([held["streamjoin"] / held["spark-rocksdb"]]),
    ]
    series = {
        "rows_per_s": {engine: [late_rate(one) for one in ones] for engine, ones in found.items()},
        "cpu_s": {engine: [one["cpu_s"] for one in ones] for engine, ones in found.items()},
        "trigger_ms": {engine: [one["trigger_ms"] for one in ones] for engine, ones in found.items()},
        "state_rows": {engine: ones[0]["state_rows"] for engine, ones in found.items()},
        "fan_out_4": {
            engine: {name: ones[0][name] for name in ("state_rows", "trigger_ms", "cpu_s")}
            for engine, ones in fanned.items()
        },
    }
    return claims, {"three_way": series}


def _rounds(
    data: Data, rounds: int, step: Callable[[str], None], says: str
) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {engine: [] for engine in _ENGINES}
    for turn in range(rounds):
        for engine in _ENGINES[:: 1 if turn % 2 == 0 else -1]:
            step(f"3-way join, {says}, {engine}, round {turn + 1} of {rounds}")
            found[engine].append(_measured(ChainTask(engine, str(data.folder)), data))
    return found


def five_way(home: Path, load: Load, step: Callable[[str], None]) -> tuple[list[Claim], dict[str, Any]]:
    """State rows beside the rows read, all of which are live: nothing intermediate is stored."""
    step("5-way join")
    data = prepare(home / "five", 5, 2, load.state_batches, load.rows)
    found = _measured(ChainTask("streamjoin", str(data.folder), inputs=5), data)
    live = np.cumsum(found["input_rows"])
    ratios = (np.array(found["state_rows"]) / live).tolist()
    if len(ratios) != load.state_batches:
        raise InvariantBroken(f"the 5-way join ran {len(ratios)} batches, not {load.state_batches}")
    series = {"live_tuples": live.tolist(), "state_rows": found["state_rows"]}
    return [FIVE.measured([max(ratios, key=lambda each: abs(each - 1))])], {"five_way": series}


def _measured(task: ChainTask, data: Data) -> dict[str, Any]:
    return measured(task, data, "lab.chain_contender")
