"""The cost model of a semi-stream join (section 3.2 of the SSBJ paper), calibrated on the running machine.

One turn of the loop takes in w tuples, of which w_N are answered by the cache and w_S wait, and reads one
segment: b of the |R| rows of the table, so a cycle has k = |R| / b turns. In bytes (equation 1), with v_S
and v_R for a tuple and a row, v_P a pointer, f the fudge factor, and h_R the rows in the cache:

    M = b v_R + h_R f v_R + waits * w_S * k * (v_P + f v_S)

In seconds (equation 2):

    c_loop = c_IO * bytes of the segment + c_0 + c_K * k + c_H * searched + c_B * b
             + w_N (c_S + c_H + c_O) + w_S (c_E + c_S + c_A + c_O)

and the service rate is w / c_loop (equation 3). Some terms are of this operator, which works on arrays. A
turn costs c_0, however little it does. What waits came in k chunks, and each costs c_K a turn. As in the
paper a segment meets all of them (`waits` = 1), and `searched` keys are looked for in one index over all:
the b rows of the segment, or the keys that wait where these are fewer. In order a tuple needs one segment
only, so it waits half a cycle on average (`waits` = 0.5), and nothing is searched for but what leaves.

Costs are fitted to turns of the real operator, by least squares of relative errors without negative costs.
What cannot be told apart by watching turns is one number: `hit` is c_S + c_H + c_O, `waited` is c_E + c_S +
c_A + c_O. The share of hits is given, or follows from a Zipf exponent: a value is in the cache when its
expected tuples a cycle take more memory waiting than its rows in the cache (Theorem 2), or when by chance it
had so many in a cycle since values were last evicted.

Worked number: 1 million rows of 132 bytes in 100 segments, tuples of 42 bytes with all that is around them, w
= 6,000 of which a quarter waits, in order: 1.3 MB for the segment and 0.5 * 1,500 * 100 * 42 = 3.2 MB
waiting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from streamjoin.columnar.batch import Batch
from streamjoin.enrich.operator import EnrichJoin, EnrichSpec, StagedRows
from streamjoin.errors import InvalidJoin

Floats: TypeAlias = npt.NDArray[np.float64]
Clock: TypeAlias = Callable[[], float]  # seconds: of the wall, or of the processor

_GRID = 2_000  # ranks at which a Zipf distribution is looked at
_MOST_ROWS = 9  # of a value; beyond, the Poisson distribution has nothing left
_STEPS = 60  # of a bisection
_LARGEST_W = 1e9
_CYCLES = 3  # to warm up, and to count
_SEGMENTS_TIMED = 16
_EVICTION_CYCLES = 10
_TURN_S, _BYTE_S = 1e-3, 1e-9  # of a turn and a byte, before anything was measured


@dataclass(frozen=True, slots=True)
class LoopTurns:
    """Some turns of the loop as they were seen; numbers are of one turn on average."""

    seconds: float
    chunks: float  # k
    segment_rows: float  # b
    read_bytes: float
    hits: float  # w_N
    waited: float  # w_S
    searched: float = 0.0

    def features(self) -> Floats:
        return np.array([1.0, self.chunks, self.searched, self.segment_rows, self.hits, self.waited])


@dataclass(frozen=True, slots=True)
class LoopCosts:
    """Seconds: for a byte read, a turn, and each chunk, searched key, row, hit and waiting tuple of one."""

    read_byte: float  # c_IO
    turn: float
    chunk: float  # c_K
    search: float  # c_H
    row: float  # c_B
    hit: float  # c_S + c_H + c_O
    waited: float  # c_E + c_S + c_A + c_O

    def seconds(self, turns: LoopTurns) -> float:
        """c_loop."""
        each = np.array([self.turn, self.chunk, self.search, self.row, self.hit, self.waited])
        return float(self.read_byte * turns.read_bytes + each @ turns.features())

    @classmethod
    def fit(cls, seen: Sequence[LoopTurns], read_byte: float) -> LoopCosts:
        """The costs that explain what was seen, with reading as it was timed alone."""
        seconds = np.array([max(one.seconds - read_byte * one.read_bytes, 0.0) for one in seen])
        weight = 1 / np.array([one.seconds for one in seen])
        found = _least_squares(np.array([one.features() for one in seen]) * weight[:, None], seconds * weight)
        return cls(read_byte, *found.tolist())


def _least_squares(features: Floats, wanted: Floats) -> Floats:
    """Non-negative: of the columns that came out below zero the worst is left out, until none does."""
    scale = np.maximum(np.abs(features).max(axis=0), 1e-30)
    used = np.flatnonzero(np.abs(features).max(axis=0) > 0)
    found = np.zeros(features.shape[1])
    while len(used):
        best, *_ = np.linalg.lstsq(features[:, used] / scale[used], wanted, rcond=None)
        if best.min() >= 0:
            found[used] = best / scale[used]
            return found
        used = np.delete(used, best.argmin())
    return found


@dataclass(frozen=True)
class EnrichLoad:
    """A table, a stream, and how they are joined: what the costs depend on."""

    rows: int
    row_bytes: float
    tuple_bytes: float  # of one that waits, with its pointer and the fudge factor
    segments: int = 100
    skew: float = 0.0
    ordered: bool = True
    caches: bool = True
    fudge: float = 1.2
    value_bytes: float = 24.0  # of a value in the cache that has no rows

    @classmethod
    def of(cls, spec: EnrichSpec, table: StagedRows, *, tuple_bytes: float, skew: float = 0.0) -> EnrichLoad:
        """The load of a join with tuples of that many bytes."""
        return cls(
            table.rows,
            table.row_bytes,
            spec.waiting_bytes(tuple_bytes),
            len(table.segment_bytes),
            skew,
            ordered=spec.access != "paper" and table.starts is not None,
            caches=spec.caches,
            fudge=spec.fudge,
        )

    @property
    def segment_bytes(self) -> float:
        return self.rows * self.row_bytes / self.segments

    @property
    def waits(self) -> float:
        """Which share of a cycle a tuple waits on average."""
        return 0.5 if self.ordered else 1.0

    @cached_property
    def _values(self) -> tuple[Floats, Floats]:
        """How many values there are around each rank of a grid, and the probability of one of them."""
        edges = np.unique(np.geomspace(1, self.rows + 1, _GRID).astype(np.int64)).astype(np.float64)
        count = np.diff(edges)
        weight = np.sqrt(edges[:-1] * np.maximum(edges[1:] - 1, edges[:-1])) ** -self.skew
        return count, weight / (count @ weight)

    def cached(self, w: float) -> tuple[float, float]:
        """The share of hits and the bytes of the cache, where w tuples are taken a turn.

        Values have 0, 1, 2… rows as if those were spread at random: a Poisson distribution with mean 1.
        """
        if not self.caches:
            return 0.0, 0.0
        count, probability = self._values
        tuples = probability * w * self.segments  # of a value in a cycle, on average
        hits = nbytes = 0.0
        share = np.exp(-1.0)
        for rows in range(_MOST_ROWS):
            share = share / max(rows, 1)
            cost = self.fudge * (rows * (self.row_bytes + 8) if rows else self.value_bytes)
            there = share * count * _cached(tuples, cost / (self.waits * self.tuple_bytes))
            hits += float(there @ probability)
            nbytes += cost * float(there.sum())
        return hits, nbytes

    def distinct(self, draws: float) -> float:
        """How many values so many tuples have."""
        count, probability = self._values
        return float(count @ -np.expm1(-probability * draws))

    def memory(self, w: float) -> float:
        """Bytes that the join needs to take w tuples a turn (equation 1)."""
        hits, cache = self.cached(w)
        return self.segment_bytes + cache + self.waits * (1 - hits) * w * self.segments * self.tuple_bytes

    def fitting(self, memory: float) -> float:
        """The most tuples a turn for which so many bytes are enough."""
        least = self.memory(1.0)
        if memory < least:
            raise InvalidJoin(
                f"memory={memory:,.0f} bytes is too small: one tuple a turn needs {least:,.0f}; give that, "
                f"or stage smaller segments"
            )
        return _largest(lambda w: self.memory(w) <= memory)

    def turns(self, w: float, hit_rate: float | None = None) -> LoopTurns:
        """A turn that takes w tuples; the share of hits as it was measured, or as the skew says."""
        hits = self.cached(w)[0] if hit_rate is None else hit_rate
        b, waited = self.rows / self.segments, (1 - hits) * w
        keys = min(self.distinct(w * self.segments), waited * self.segments)
        searched = 0.0 if self.ordered else min(keys, b)
        return LoopTurns(0.0, self.segments, b, self.segment_bytes, hits * w, waited, searched)


def _cached(tuples: Floats, paying: float) -> Floats:
    """The chance to find values in the cache that have so many tuples a cycle, and pay from a number on.

    Below it a value comes in by chance: with a Poisson distribution its cycle has at least as many with
    probability q. It is there after j cycles with 1 - (1 - q)^j, until values are evicted after ten.
    """
    term, fewer = np.exp(-tuples), np.zeros_like(tuples)
    for n in range(int(paying) + 1):
        fewer += term
        term = term * tuples / (n + 1)
    missed = np.clip(fewer, 0.0, 1.0)
    by_chance = 1 - np.mean([missed**j for j in range(_EVICTION_CYCLES)], axis=0)
    return np.where(tuples > paying, 1.0, by_chance)


@dataclass(frozen=True, slots=True)
class ServiceForecast:
    """What a join can do: tuples a second with so many bytes, and what that is made of."""

    rate: float
    memory: float
    w: float
    hit_rate: float
    loop_s: float
    mean_wait_s: float  # of a tuple that waits
    longest_wait_s: float


@dataclass(frozen=True)
class EnrichCostModel:
    """Calibrated costs and a load: memory from rate and rate from memory."""

    costs: LoopCosts
    load: EnrichLoad

    def loop_seconds(self, w: float, hit_rate: float | None = None) -> float:
        """c_loop for w tuples."""
        return self.costs.seconds(self.load.turns(w, hit_rate))

    def at(self, w: float) -> ServiceForecast:
        """All about a loop that takes w tuples a turn."""
        loop = self.loop_seconds(w)
        cycle = loop * self.load.segments
        hits = self.load.cached(w)[0]
        return ServiceForecast(w / loop, self.load.memory(w), w, hits, loop, self.load.waits * cycle, cycle)

    def rate_for(self, memory: float) -> ServiceForecast:
        """The most tuples a second with so many bytes."""
        return self.at(self.load.fitting(memory))

    def memory_for(self, rate: float) -> ServiceForecast:
        """The least bytes for so many tuples a second."""
        highest = self.at(_LARGEST_W).rate
        if rate > highest:
            raise InvalidJoin(
                f"{rate:,.0f} tuples a second are more than one bucket can take on this machine "
                f"({highest:,.0f}); give the join more buckets"
            )
        return self.at(_largest(lambda w: w / self.loop_seconds(w) <= rate))


def best_segment_bytes(memory: float, turn_s: float = _TURN_S, byte_s: float = _BYTE_S) -> int:
    """The segments with which a memory serves the highest rate (figure 6(b) of the paper).

    With segments of S bytes of a table of R, M - S bytes are left for tuples that wait R / S turns, so a turn
    takes in w ~ (M - S) S of them and costs c_0 + c_1 S: c_0 a turn, c_1 for a byte that is read and matched.
    Their quotient is greatest where c_1 S^2 + 2 c_0 S = c_0 M, whatever the table, the tuples and the share
    of hits. Worked number: 8 MB, 1 ms and 1 ns: 2.1 MB.

    >>> round(best_segment_bytes(8 << 20) / 1e6, 1)
    2.1
    """
    return int((math.sqrt(turn_s**2 + turn_s * byte_s * memory) - turn_s) / byte_s)


def _largest(holds: Callable[[float], bool]) -> float:
    """The greatest w for which something holds that holds up to some w."""
    low, high = 1.0, _LARGEST_W
    for _ in range(_STEPS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


# Watching the operator


def watch(
    join: EnrichJoin, draw: Callable[[int], Batch], w: int, turns: int, clock: Clock = perf_counter
) -> LoopTurns:
    """Some turns of a loop that reads a segment a batch, timed; new tuples are drawn outside of the time."""
    parts = [draw(w) for _ in range(turns)]
    before = replace(join.counts)
    began = clock()
    for part in parts:
        for _ in join.process(part):
            pass
        for _ in join.step():
            pass
    seconds = clock() - began
    hits = (join.counts.hits - before.hits) / turns
    read = (join.counts.bytes_read - before.bytes_read) / turns
    table = join.newest.table
    seen = EnrichLoad.of(join.spec, table, tuple_bytes=0.0)
    keys = float(np.mean([len(part.sorted().groups) for part in parts]))
    waited = w - hits
    b = table.rows / seen.segments
    searched = 0.0 if seen.ordered else min(seen.segments * keys, seen.segments * waited, b)
    return LoopTurns(seconds / turns, seen.segments, b, read, hits, waited, searched)


def read_byte_seconds(table: StagedRows, clock: Clock = perf_counter) -> float:
    """c_IO: seconds to read a byte, the median of some segments."""
    times = []
    for segment in range(min(_SEGMENTS_TIMED, len(table.segment_bytes))):
        began = clock()
        table.read(segment)
        times.append((clock() - began) / table.segment_bytes[segment])
    return float(np.median(times))


def calibrate(
    spec: EnrichSpec,
    tables: Sequence[StagedRows],
    draws: Sequence[Callable[[int], Batch]],
    ws: Sequence[int],
    clock: Clock = perf_counter,
) -> LoopCosts:
    """The costs on this machine, from a short run of the real operator.

    Over each table (of different numbers of segments) with each kind of tuples (of different skew), each w is
    taken for some cycles to warm up and as many to count: three, so that every state of moving values into
    the cache is seen, or one without a cache. `spec` needs memory for the largest w. What hits and what waits
    can be told apart only where the share of hits differs.
    """
    seen = []
    for table in tables:
        segments = len(table.segment_bytes)
        turns = segments * (_CYCLES if spec.caches else 1)
        for draw in draws:
            join = EnrichJoin(replace(spec, cycle_batches=segments), table)
            for w in ws:
                watch(join, draw, w, turns)
                seen.append(watch(join, draw, w, turns, clock))
    return LoopCosts.fit(seen, float(np.median([read_byte_seconds(one, clock) for one in tables])))
