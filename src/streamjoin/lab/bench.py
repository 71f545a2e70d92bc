"""The operator alone, without Spark: is it fast enough, and does it stay so as the state grows?

A 1-to-10 join on a long key in batches of 100,000 rows, nothing purged, to 10 million rows of
state; then 100,000 keys purged by punctuations against 1 million rows. CPU seconds of one thread,
medians over repeats; the answer of every run is checked by its count and a checksum before a
time is reported. Run by `make bench`; writes `out/bench-operator.json`.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin.api import join, stream
from streamjoin.errors import InvariantBroken
from streamjoin.local import LocalRun
from streamjoin.operators.arrivals import Arrivals
from streamjoin.plan.safety import UnboundedState

BATCH_ROWS = 100_000
FAN_OUT = 10
REPEATS = 3
_KEYS = BATCH_ROWS // (FAN_OUT + 1)


def one_to_ten() -> LocalRun:
    """A join of which nothing is known."""
    one, many = pa.schema({"k": pa.int64(), "va": pa.int64()}), pa.schema({"k": pa.int64(), "vb": pa.int64()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnboundedState)
        return join(stream(one, name="one", key="k"), stream(many, name="many", key="k")).local()


def batches(count: int, seed: int) -> Iterator[dict[str, pa.Table]]:
    """Each batch brings new keys on the one side and about ten rows of each on the other."""
    random = np.random.default_rng(seed)
    for i in range(count):
        one = np.arange(i * _KEYS, (i + 1) * _KEYS)
        many = random.integers(i * _KEYS, (i + 1) * _KEYS, BATCH_ROWS - _KEYS)
        yield {"one": pa.table({"k": one, "va": one * 2}), "many": pa.table({"k": many, "vb": many * 3})}


def grow(batch_count: int, seed: int) -> list[float]:
    """CPU seconds of each batch while the state grows to `batch_count` batches; answer checked."""
    run, seconds = one_to_ten(), []
    for batch in batches(batch_count, seed):
        started = time.process_time()
        found = run.step(batch)
        seconds.append(time.process_time() - started)
        many = batch["many"]
        if len(found) != len(many) or pc.sum(found["va"]).as_py() != 2 * pc.sum(many["k"]).as_py():
            raise InvariantBroken("the benchmark's join gave a wrong answer; no time is reported")
    return seconds


def purge(seed: int) -> tuple[float, float]:
    """CPU seconds to join 100,000 rows and to purge 100,000 keys, both against 1 million rows."""
    keys, random = BATCH_ROWS, np.random.default_rng(seed)
    run = one_to_ten()
    ones = random.permutation(keys)
    for part in np.array_split(ones, 10):
        many = random.integers(0, keys, 90_000)
        run.step({"one": pa.table({"k": part, "va": part}), "many": pa.table({"k": many, "vb": many})})
    rows = random.integers(0, keys, BATCH_ROWS)
    started = time.process_time()
    found = run.push("many", pa.table({"k": rows, "vb": rows}))
    joining = time.process_time() - started
    layout = run.plan.spec.inputs[1].layout
    promised = run.keys_of("many", [pa.array(random.permutation(keys))])
    started = time.process_time()
    for _ in run.join.process({1: replace(Arrivals.nothing(layout), keys=promised)}):
        pass
    purging = time.process_time() - started
    if len(found) != BATCH_ROWS or run.state().rows["one"] != 0:
        raise InvariantBroken("the benchmark's purge left tuples behind; no time is reported")
    return joining, purging


def measure(seed: int = 0) -> dict[str, Any]:
    """All numbers, with what they must be."""
    grown, small, large = [], [], []
    for repeat in range(REPEATS):
        seconds = grow(100, seed + repeat)
        grown.append(len(seconds) * BATCH_ROWS / sum(seconds))
        small.append(median(seconds[8:18]))
        large.append(median(seconds[-10:]))
        print(f"  round {repeat + 1} of {REPEATS}: {grown[-1]:,.0f} rows/s", file=sys.stderr)
    pairs = [purge(seed + repeat) for repeat in range(2 * REPEATS + 1)]
    claims = [
        _claim(
            "rows per CPU second, growing to 10 million rows of state, merging included", grown, ">=", 1.5e6
        ),
        _claim(
            "a batch at 10 million rows of state, in batches at 1 million",
            [b / a for a, b in zip(small, large, strict=True)],
            "<=",
            1.5,
        ),
        _claim("purging 100,000 keys, in joins of 100,000 rows", [p / j for j, p in pairs], "<", 1.0),
    ]
    versions = {"python": platform.python_version(), "numpy": np.__version__, "pyarrow": pa.__version__}
    machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "system": platform.system()}
    return {
        "experiment": "operator",
        "seed": seed,
        "machine": machine,
        "versions": versions,
        "claims": claims,
    }


def _claim(says: str, runs: list[float], op: str, target: float) -> dict[str, Any]:
    measured = median(runs)
    holds = {"<=": measured <= target, "<": measured < target, ">=": measured >= target}[op]
    spread = {"low": min(runs), "high": max(runs), "runs": len(runs)}
    return {"says": says, "op": op, "target": target, "measured": measured, **spread, "holds": holds}


def main() -> None:
    """Measure, print, write JSON."""
    print("The operator alone, one thread (about a minute) ...", file=sys.stderr)
    result = measure()
    path = Path("out/bench-operator.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")
    for claim in result["claims"]:
        word = "holds" if claim["holds"] else "DOES NOT HOLD"
        shown = f"{claim['measured']:,.2f} ({claim['low']:,.2f} to {claim['high']:,.2f})"
        print(f"{word:14} {claim['says']}: {shown}, wanted {claim['op']} {claim['target']:,}")
    print(f"Written: {path}")


if __name__ == "__main__":
    main()
