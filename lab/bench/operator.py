"""The operator alone, without Spark: is it fast enough, and does it stay so as the state grows?

A 1-to-10 join on a long key in batches of 100,000 rows, nothing purged, to 10 million rows of
state; then 100,000 keys purged by punctuations against 1 million rows. CPU seconds of one thread,
medians over repeats; the answer of every run is checked by its count and a checksum before a
time is reported. Part of `make bench`, about a minute.

The fixed reference, so that runs can be compared: numpy sorts 100,000 numbers and searches them in a
sorted million, in turn with the operator.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lab.experiment import Claim, Statement
from streamjoin.api.join import join, stream
from streamjoin.errors import InvariantBroken
from streamjoin.join.arrivals import Arrivals
from streamjoin.local.join import LocalRun
from streamjoin.plan.bounds import UnboundedState

BATCH_ROWS = 100_000
FAN_OUT = 10
REPEATS = 3
_KEYS = BATCH_ROWS // (FAN_OUT + 1)
_SEARCHES = 20
_ISSUE = "issue 2"

FAST = Statement(
    "operator",
    "rows per CPU second, growing to 10 million rows of state, merging included",
    _ISSUE,
    ">=",
    1.5e6,
    "rows/s",
)
STEADY = Statement(
    "steady", "a batch at 10 million rows of state, in batches at 1 million", _ISSUE, "<=", 1.5, "times"
)
PURGING = Statement("purge", "purging 100,000 keys, in joins of 100,000 rows", _ISSUE, "<", 1.0, "times")


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
    punctuated = run.keys_of("many", [pa.array(random.permutation(keys))])
    started = time.process_time()
    for _ in run.join.process({1: replace(Arrivals.nothing(layout), keys=punctuated)}):
        pass
    purging = time.process_time() - started
    if len(found) != BATCH_ROWS or run.state().rows["one"] != 0:
        raise InvariantBroken("the benchmark's purge left tuples behind; no time is reported")
    return joining, purging


def reference() -> float:
    """Rows a CPU second that numpy sorts and finds: nothing that this library could change."""
    random = np.random.default_rng(0)
    there, rows = np.sort(random.integers(0, 1 << 62, 1_000_000)), random.integers(0, 1 << 62, BATCH_ROWS)
    started = time.process_time()
    for _ in range(_SEARCHES):
        np.searchsorted(there, np.sort(rows))
    return _SEARCHES * BATCH_ROWS / (time.process_time() - started)


@dataclass(frozen=True)
class OperatorNumbers:
    """The claims, and by name what was measured with its ratio to the reference in each round."""

    claims: list[Claim]
    ratios: dict[str, tuple[str, list[float]]]


def measure(step: Callable[[str], None], seed: int = 0) -> OperatorNumbers:
    """All numbers, with what they must be."""
    grown, small, large, references = [], [], [], []
    pairs: list[tuple[float, float]] = []
    for repeat in range(REPEATS):
        step(f"the operator alone, round {repeat + 1} of {REPEATS}")
        before = reference()
        seconds = grow(100, seed + repeat)
        grown.append(len(seconds) * BATCH_ROWS / sum(seconds))
        small.append(median(seconds[8:18]))
        large.append(median(seconds[-10:]))
        pairs += [purge(seed + 3 * repeat + i) for i in range(3)]
        references.append((before + reference()) / 2)
    claims = [
        FAST.measured(grown),
        STEADY.measured([b / a for a, b in zip(small, large, strict=True)]),
        PURGING.measured([p / j for j, p in pairs]),
    ]
    purged = [BATCH_ROWS / median(p for _, p in pairs[3 * i : 3 * i + 3]) for i in range(REPEATS)]
    rates = {
        "operator": ("the operator alone, to 10 million rows of state", grown),
        "purge": ("100,000 keys purged of 1 million rows", purged),
    }
    return OperatorNumbers(
        claims,
        {
            name: (says, [ours / fixed for ours, fixed in zip(runs, references, strict=True)])
            for name, (says, runs) in rates.items()
        },
    )
