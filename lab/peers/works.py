"""The basic works, with the answer of the batch join over them: two-way, interval, three-way, lookup, scan.

Rows a batch (a file of each input), the same in the quick and the full form:

    two-way    50,000 of `one` (k, va), unique keys, and 500,000 of `many` (k, vb) of the keys of their batch
    interval   a fifth of that, with times over 60 s; a row of `many` is 0 to 15 s younger than its partner
    three-way  50,000 of `s1`, 200,000 each of `s2` and `s3`, of the keys of their batch: 800,000 results
    lookup     500,000 of `stream` (id, k), Zipf 1 over the 100,000 rows of `master` (k, m)
    scan       any of these, all columns read and nothing joined

Cost: about a second for a million rows, most of it for the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from lab.contenders.protocol import Answer, Check, Work, write_input

SEED = 23
KEYS = 50_000
INTERVAL_KEYS = 10_000  # Flink on RocksDB takes 0.1 ms of CPU a row
FAN_OUT = 10
STRETCH_MS = 60_000
SPAN_MS = 10_000
MASTER_ROWS = 100_000
_EPOCH_MS = 1_700_000_000_000
SCAN = Check(("n",), "n")


@dataclass(frozen=True)
class Checked:
    """A work, and the columns of its result that its answer is made of."""

    work: Work
    check: Check


def two_way(folder: Path, batches: int) -> Checked:
    """One to ten; nothing says when a key is over."""
    random = np.random.default_rng(SEED)
    firsts = range(0, batches * KEYS, KEYS)
    many = [random.integers(first, first + KEYS, KEYS * FAN_OUT) for first in firsts]
    ones = (np.arange(first, first + KEYS) for first in firsts)
    k = np.concatenate(many)
    inputs = {
        "one": (pa.table({"k": key, "va": key * 2}) for key in ones),
        "many": (pa.table({"k": key, "vb": key * 3}) for key in many),
    }
    result = pa.table({"k": k, "va": k * 2, "vb": k * 3})
    says = f"{KEYS:,} rows and {KEYS * FAN_OUT:,} that belong to them, a batch"
    return _written("two-way", says, folder, inputs, Check(("va", "vb"), "k"), result)


def interval(folder: Path, batches: int) -> Checked:
    """One to ten, of which those count that are at most ten seconds younger."""
    random = np.random.default_rng(SEED + 1)
    keys = batches * INTERVAL_KEYS
    one = np.sort(random.integers(0, batches * STRETCH_MS, keys))
    k = random.integers(0, keys, keys * FAN_OUT)
    late = random.integers(0, SPAN_MS * 3 // 2, len(k))
    order = np.argsort(one[k] + late, kind="stable")
    k, late = k[order], late[order]
    tables = {
        "one": pa.table({"k": np.arange(keys), "va": np.arange(keys) * 2, "t": one + _EPOCH_MS}),
        "many": pa.table({"k": k, "vb": k * 3, "t": one[k] + late + _EPOCH_MS}),
    }
    inputs = {name: _by_time(table, batches) for name, table in tables.items()}
    inside = k[late <= SPAN_MS]
    result = pa.table({"k": inside, "va": inside * 2, "vb": inside * 3})
    says = f"{INTERVAL_KEYS:,} rows and {INTERVAL_KEYS * FAN_OUT:,} that belong to them, a batch"
    return _written("interval", says, folder, inputs, Check(("va", "vb"), "k"), result)


def _by_time(table: pa.Table, batches: int) -> Iterator[pa.Table]:
    """Rows in the order of time, cut at the stretches; what is later than the last is in the last."""
    ends = np.searchsorted(table["t"].to_numpy(), _EPOCH_MS + STRETCH_MS * np.arange(1, batches))
    cuts = [0, *ends.tolist(), len(table)]
    return (table.slice(a, b - a) for a, b in pairwise(cuts))


def three_way(folder: Path, batches: int) -> Checked:
    """One, four and four rows of a key."""
    random = np.random.default_rng(SEED + 2)
    fans = {"s1": 1, "s2": 4, "s3": 4}
    inputs: dict[str, list[pa.Table]] = {name: [] for name in fans}
    answers = []
    check = Check(("v1", "v2", "v3"), "k")
    for first in range(0, batches * KEYS, KEYS):
        rows = {}
        for i, (name, fan) in enumerate(fans.items(), 1):
            key = np.arange(first, first + KEYS)
            key = key if fan == 1 else random.choice(key, KEYS * fan)
            rows[name] = pa.table({"k": key, f"v{i}": random.integers(0, 1_000_000, len(key))})
            inputs[name].append(rows[name])
        joined = rows["s1"].join(rows["s2"], "k", join_type="inner").join(rows["s3"], "k", join_type="inner")
        answers.append(check.answer(joined))
    whole = Answer(*(sum(each) for each in zip(*((a.rows, a.sum, a.mix) for a in answers), strict=True)))
    says = f"{KEYS:,} keys a batch with one, four and four rows"
    return _written("three-way", says, folder, inputs, check, whole)


def lookup(folder: Path, batches: int) -> Checked:
    """A stream with a row of a table each; some values are asked for often."""
    random = np.random.default_rng(SEED + 3)
    rows = batches * KEYS * FAN_OUT
    chance = 1 / np.arange(1, MASTER_ROWS + 1)
    k = np.searchsorted(np.cumsum(chance / chance.sum()), random.random(rows)).clip(max=MASTER_ROWS - 1)
    m = random.integers(0, 1_000_000, MASTER_ROWS)
    stream = pa.table({"id": np.arange(rows), "k": k})
    size = KEYS * FAN_OUT
    inputs = {
        "stream": (stream.slice(i * size, size) for i in range(batches)),
        "master": [pa.table({"k": np.arange(MASTER_ROWS), "m": m})],
    }
    result = stream.append_column("m", pa.array(m[k]))
    says = f"{size:,} rows a batch, Zipf 1, with one of {MASTER_ROWS:,} rows of a table each"
    made = _written("lookup", says, folder, inputs, Check(("id", "m"), "k"), result)
    return replace(made, work=replace(made.work, rows=rows))  # the table's rows are no stream


def scan_of(work: Work) -> Checked:
    """The same files, read and not joined; marked rows are left out, as Flink's tables do."""
    answers = []
    for name, columns in work.inputs.items():
        kinds = {"BIGINT": pa.int64(), "STRING": pa.string(), "BOOLEAN": pa.bool_()}
        rows = csv.read_csv(
            work.folder / f"{name}.csv",
            csv.ReadOptions(column_names=list(columns)),
            convert_options=csv.ConvertOptions(
                column_types={column: kinds[kind] for column, kind in columns.items()}
            ),
        )
        rows = rows.filter(pc.invert(rows["is_end"])) if "is_end" in columns else rows
        numbers = [rows[column].fill_null(0) for column, kind in columns.items() if kind == "BIGINT"]
        total: Any = sum((each.to_numpy() for each in numbers), np.zeros(len(rows), np.int64))
        answers.append(SCAN.answer(pa.table({"n": total % 1_000_003})))
    whole = Answer(*(sum(each) for each in zip(*((a.rows, a.sum, a.mix) for a in answers), strict=True)))
    says = f"the files of {work.name}, all columns, no join"
    return Checked(replace(work, name=f"{work.name}, scan", says=says, answer=whole), SCAN)


def scan_sql(columns: Mapping[str, str]) -> str:
    """One number of a row, from all its numbers; Spark and Flink both read it."""
    numbers = [f"COALESCE(`{column}`, 0)" for column, kind in columns.items() if kind == "BIGINT"]
    return f"CAST(MOD({' + '.join(numbers)}, 1000003) AS BIGINT)"


def _written(
    name: str,
    says: str,
    folder: Path,
    inputs: Mapping[str, Any],
    check: Check,
    result: pa.Table | Answer,
) -> Checked:
    written = {side: write_input(folder, side, batches) for side, batches in inputs.items()}
    columns = {side: types for side, (types, _) in written.items()}
    answer = result if isinstance(result, Answer) else check.answer(result)
    return Checked(Work(name, says, folder, columns, sum(n for _, n in written.values()), answer), check)
