"""Pairs of streams for what a join stores: the papers' patterns, and one to many with punctuations.

Each comes in batches, with the answer of its batch join (or the tuples still needed after each batch).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lab.generators.patterns import PATTERN_SCHEMA, StreamPattern
from streamjoin.api.join import join, stream
from streamjoin.declare.marked import marked
from streamjoin.local.join import LocalRun
from streamjoin.plan.bounds import UnboundedState

SEED = 4
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PatternBatches:
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
) -> PatternBatches:
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
    return PatternBatches(batches, _pairs(tables["a"], tables["b"], window_s))


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
        is_end = np.repeat([False, True], [len(here), len(ended)])
        rows = {
            "one": pa.table({"k": one, "va": one}),
            "many": pa.table(
                {
                    "k": np.concatenate([here, ended]),
                    "vb": pa.array(np.concatenate([here, ended]), mask=is_end),
                    "is_end": is_end,
                }
            ),
        }
        alive = keys * (b + 1) - keys * max(b - 3, 0)
        yield rows, alive + int(np.count_nonzero(born[here] > b))
