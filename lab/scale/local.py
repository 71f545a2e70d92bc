"""How the operator's work grows with what it holds, in this process: CPU seconds per batch, and bytes.

Three loads, 100,000 rows a batch, every answer checked:

- `grown`: nothing is ever evicted; a row finds its one partner anywhere in the whole state.
- `open_keys`: a key is opened by one tuple, has rows on the other input, and ends by a punctuation; so many
  keys are open at any time, each of them a tuple held and a key remembered.
- `with_hot_key`: as `grown`, and one key has a third of all tuples, all on one input; of the other it has one
  tuple, so the result has as many rows as the data.

A batch has as many different keys at every size: what grows is the state alone. Time per batch is the median
over a stretch; the mean, in which merging runs takes part, stands beside it. Slopes are factors per tenfold:
the time at 10 n by that at n. Worked number: 20 ms at 0.5 and 30 ms at 5 million is 1.5. Cost: about a minute
for 50 million tuples, and 4 GB.
"""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import mean, median
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin.api.join import join, stream
from streamjoin.columnar.batch import Ints
from streamjoin.declare.marked import marked
from streamjoin.errors import InvariantBroken
from streamjoin.local.join import LocalRun
from streamjoin.plan.bounds import UnboundedState

ROWS = 100_000
_ROWS_A_KEY = 8
_KEYS = ROWS // (_ROWS_A_KEY + 2)  # with a row that opens it and one that ends it
_ONE = pa.schema({"k": pa.int64(), "va": pa.int64()})
_MANY = pa.schema({"k": pa.int64(), "vb": pa.int64()})
Batch = dict[str, pa.Table]


@dataclass(frozen=True)
class Point:
    """Batches of one size of the state."""

    size: int  # tuples held, or keys open
    mean_ms: float
    median_ms: float
    state_bytes: int
    resident_bytes: int  # of this process, above what it had before the run

    def to_json(self) -> dict[str, float]:
        return asdict(self)


def per_tenfold(points: Sequence[Point]) -> list[float]:
    """The time of each point by that of the one before it, as if the state had grown exactly tenfold."""
    return [
        float((b.median_ms / a.median_ms) ** (1 / np.log10(b.size / a.size))) for a, b in pairwise(points)
    ]


def undeclared() -> LocalRun:
    """A join of which nothing is known."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnboundedState)
        return join(stream(_ONE, name="one", key="k"), stream(_MANY, name="many", key="k")).local()


def opened_and_ended() -> LocalRun:
    """One input has one tuple of a key, the other says when a key is over."""
    many = _MANY.append(pa.field("is_end", pa.bool_()))
    one = stream(_ONE, name="one", key="k", unique=True)
    return join(one, stream(many, name="many", key="k", punctuation=marked("is_end"))).local()


@dataclass
class Clock:
    """CPU milliseconds of steps whose answers were right."""

    run: LocalRun
    before_bytes: int

    @classmethod
    def of(cls, run: LocalRun) -> Clock:
        gc.collect()  # what an earlier run left is not this one's
        pa.default_memory_pool().release_unused()
        return cls(run, psutil.Process().memory_info().rss)

    def step(self, batch: Batch, rows: int, total: int) -> float:
        """One batch; it must give so many rows, whose `va` add up to `total`."""
        started = time.process_time()
        found = self.run.step(batch)
        passed = 1000 * (time.process_time() - started)
        if len(found) != rows or (pc.sum(found["va"]).as_py() or 0) != total:
            raise InvariantBroken("a join of the scale experiment gave a wrong answer; no time is reported")
        return passed

    def point(self, size: int, times: Sequence[float]) -> Point:
        resident = psutil.Process().memory_info().rss - self.before_bytes
        return Point(size, mean(times), median(times), self.run.state().nbytes, resident)


def grown(batches: Iterable[Batch], sizes: Sequence[int], step: Callable[[str], None]) -> list[Point]:
    """The state grows to each size in turn; a point is about the batches of its last half."""
    clock, times, points = Clock.of(undeclared()), [], []
    for number, batch in enumerate(batches, start=1):
        many = batch["many"]["k"]
        times.append(clock.step(batch, len(many), 2 * pc.sum(many).as_py()))
        held = number * ROWS
        if number % 50 == 0:
            step(f"{held / 1e6:.0f} million tuples held: {mean(times[-50:]):.0f} CPU ms a batch")
        if held in sizes:
            points.append(clock.point(held, times[number // 2 :]))
    return points


def anywhere(count: int, seed: int, rows: int = ROWS) -> Iterator[Batch]:
    """Half of a batch are new keys on the one side, half rows of different keys, new or old, on the other."""
    random = np.random.default_rng(seed)
    half = rows // 2
    for number in range(count):
        one = np.arange(number * half, (number + 1) * half)
        many = spread(random, (number + 1) * half, half)
        yield {"one": pa.table({"k": one, "va": one * 2}), "many": pa.table({"k": many, "vb": many * 3})}


def spread(random: np.random.Generator, keys: int, count: int) -> Ints:
    """So many different numbers below `keys`, from everywhere: one of each stretch of equal length."""
    chosen = ((np.arange(count) + random.random(count)) * (keys / count)).astype(np.int64)
    random.shuffle(chosen)
    return chosen


def open_keys(keys: int, batches: int, seed: int) -> Point:
    """So many keys stay open: a batch opens 10,000, has 8 rows of 10,000 open ones, and ends the oldest."""
    random = np.random.default_rng(seed)
    clock, times = Clock.of(opened_and_ended()), []
    for first in range(0, keys, 100_000):
        clock.step(_opening(np.arange(first, min(first + 100_000, keys))), 0, 0)
    for number in range(batches):
        first = number * _KEYS
        opened = np.arange(first + keys, first + keys + _KEYS)
        rows = np.repeat(first + _KEYS + spread(random, keys, _KEYS), _ROWS_A_KEY)
        is_end = np.arange(ROWS - _KEYS) >= len(rows)
        many = {
            "k": np.concatenate([rows, np.arange(first, first + _KEYS)]),
            "vb": pa.array(np.concatenate([rows * 3, np.zeros(_KEYS, np.int64)]), mask=is_end),
            "is_end": is_end,
        }
        batch = {**_opening(opened), "many": pa.table(many)}
        times.append(clock.step(batch, len(rows), int(2 * rows.sum())))
    held = clock.run.state()
    if held.rows != {"one": keys, "many": 0} or held.closed_keys != keys:
        raise InvariantBroken(f"with {keys:,} open keys the join holds {held}; no time is reported")
    return clock.point(keys, times)


def _opening(keys: Any) -> Batch:
    return {"one": pa.table({"k": keys, "va": keys * 2})}


def with_hot_key(batches: Iterable[Batch], share: float, seed: int) -> Iterator[Batch]:
    """The same, with key 0 in `share` of all tuples."""
    random = np.random.default_rng(seed + 1)
    for batch in batches:
        keys = batch["many"]["k"].to_numpy().copy()
        rows = len(keys) + len(batch["one"])
        keys[random.random(len(keys)) < share * rows / len(keys)] = 0
        yield {**batch, "many": pa.table({"k": keys, "vb": keys * 3})}
