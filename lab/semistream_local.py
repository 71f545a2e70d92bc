"""MESHJOIN, SSBJ in the paper's form and this library's form in the same closed loop, without Spark.

All three join the same stream with the same master data, with the same memory: 10 % of the master data, just
full. Rates are taken in turn over whole cycles, once with files as they are (they fit the page cache) and
once read as from a disk of 100 MB/s. Every loop's results since its start are compared with the batch join's
before a rate of it is reported.

The paper has 10^8 rows; here there are 2 million in the full form, in 100 pieces as well. Worked number: 264
MB of master data, 26 MB of memory, of which a piece takes 2.6 and 560,000 waiting tuples the rest: MESHJOIN
takes 5,600 tuples for each piece it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np

from lab.semistream_loop import TUPLE_BYTES, BatchJoin, Loop, Stretch, tuples
from lab.semistream_masters import (
    STREAM,
    TABLE,
    Disk,
    FileTable,
    Streams,
    output_of,
    staged,
)
from streamjoin.columnar.batch import Batch, Layout
from streamjoin.demo.generators.zipf import ZipfStreams
from streamjoin.enrich.cost import EnrichCostModel, EnrichLoad, LoopCosts, calibrate, read_byte_seconds
from streamjoin.enrich.operator import EnrichSpec
from streamjoin.enrich.spec import Access

SEED = 5
SLOW = 100e6  # bytes a second
DISKS: dict[str, float | None] = {"as it is": None, "100 MB/s": SLOW}
SKEWS = (0.0, 1.0)

Step = Callable[[str], None]


@dataclass(frozen=True)
class Form:
    """A way to join: how it reads, whether it caches, and how its memory is filled in the beginning."""

    name: str
    says: str
    access: Access
    caches: bool
    shares: tuple[float, ...]  # of the memory, a cycle each
    cycles: int  # of a measurement


MESHJOIN = Form("meshjoin", "MESHJOIN", "paper", caches=False, shares=(0.97, 0.97), cycles=1)
SSBJ = Form(
    "ssbj",
    "SSBJ, as in the paper",
    "paper",
    caches=True,
    shares=(*[0.5] * 3, *[0.75] * 3, *[0.9] * 6),
    cycles=3,
)
OURS = Form("streamjoin", "SSBJ, in order", "auto", caches=True, shares=(0.5, 0.5, *[0.92] * 6), cycles=2)
FORMS = (MESHJOIN, SSBJ, OURS)


@dataclass(frozen=True)
class Sizes:
    """How much the local part does."""

    rows: int = 2_000_000
    segments: int = 100
    memory: float = 0.1  # of the master data
    smaller: tuple[float, ...] = (0.05, 0.03, 0.02)  # memories of this library's form
    larger: float = 0.5  # a memory of MESHJOIN
    repeats: int = 2
    shift_rows: int = 500_000
    whole_rows: int = 10_000  # of Theorem 3

    @property
    def steps(self) -> int:
        loops = len(SKEWS) * len(FORMS)
        return loops * (1 + self.repeats * len(DISKS)) + len(self.smaller) + 1 + len(FORMS) + 2


def zipf(rows: int, skew: float) -> Streams:
    """The synthetic data of the paper."""
    return ZipfStreams(seed=SEED, rows=rows, skew=skew)


@dataclass
class Bench:
    """Master data on disk, made when it is first needed, and its batch joins."""

    home: Path
    make: Callable[[int, float], Streams] = zipf
    _tables: dict[tuple[bool, int, int], Any] = field(default_factory=dict)
    _joins: dict[tuple[int, float], BatchJoin] = field(default_factory=dict)

    def table(self, form: Form, rows: int, segments: int) -> Disk:
        """The master data of a form, with a speed of its own."""
        paper = form.access == "paper"
        key = (paper, rows, segments)
        if key not in self._tables:
            folder = self.home / f"{'paper' if paper else 'staged'}-{rows}-{segments}"
            write = FileTable.write if paper else staged
            self._tables[key] = write(folder, self.make(rows, 0.0), segments)
        return Disk(self._tables[key])

    def batch_join(self, rows: int, skew: float) -> BatchJoin:
        if (rows, skew) not in self._joins:
            self._joins[rows, skew] = BatchJoin(self.make(rows, skew))
        return self._joins[rows, skew]

    def loop(self, form: Form, rows: int, segments: int, *, skew: float, memory: float) -> Loop:
        """A join of a form, its memory filled."""
        disk = self.table(form, rows, segments)
        spec = spec_of(form, int(memory * sum(disk.segment_bytes)))
        loop = Loop.of(form.says, spec, disk, self.batch_join(rows, skew))
        loop.warm(form.shares)
        return loop


def spec_of(form: Form, memory_bytes: int, stream: Layout = STREAM) -> EnrichSpec:
    """A form's join with so much memory."""
    output = output_of(stream)
    return EnrichSpec(
        stream, TABLE, output, memory_bytes, caches=form.caches, access=form.access, fills=False
    )


Rates = dict[str, dict[str, list[Stretch]]]  # by disk and form


@dataclass
class Compared:
    """The forms at one skew: their loops, and what was measured."""

    skew: float
    loops: dict[str, Loop]
    rates: Rates

    def ratios(self, disk: str, form: Form, other: Form) -> list[float]:
        both = (self.rates[disk][one.name] for one in (form, other))
        return [ours.rate / theirs.rate for ours, theirs in zip(*both, strict=True)]


def compare(bench: Bench, sizes: Sizes, skew: float, step: Step) -> Compared:
    """All forms with the same memory, in turn."""
    loops = {}
    for form in FORMS:
        step(f"skew {skew:g}: filling the memory of {form.says}")
        loops[form.name] = bench.loop(form, sizes.rows, sizes.segments, skew=skew, memory=sizes.memory)
    rates: Rates = {disk: {form.name: [] for form in FORMS} for disk in DISKS}
    for repeat in range(sizes.repeats):
        for disk, speed in DISKS.items():
            for form in (*FORMS[repeat % 3 :], *FORMS[: repeat % 3]):
                step(f"skew {skew:g}: {form.says}, disk {disk}, round {repeat + 1} of {sizes.repeats}")
                rates[disk][form.name].append(measure(loops[form.name], speed, form.cycles))
    for loop in loops.values():
        loop.check()
    return Compared(skew, loops, rates)


def measure(loop: Loop, speed: float | None, cycles: int) -> Stretch:
    """Some cycles, read at a speed."""
    disk: Any = loop.join.newest.table
    disk.bytes_per_s = speed
    return loop.run(cycles * loop.segments)


ByMemory = dict[float, dict[str, list[Stretch]]]  # by share of the master data, and by disk


def other_memories(bench: Bench, sizes: Sizes, step: Step) -> dict[str, ByMemory]:
    """At skew 1: this library's form with less memory (a piece takes a quarter), MESHJOIN with more."""
    found: dict[str, ByMemory] = {OURS.name: {}, MESHJOIN.name: {}}
    for form, memory in [*((OURS, memory) for memory in sizes.smaller), (MESHJOIN, sizes.larger)]:
        step(f"{form.says} with {memory:.0%} of the master data as memory")
        segments = max(sizes.segments, round(4 / memory))
        loop = bench.loop(form, sizes.rows, segments, skew=1.0, memory=memory)
        found[form.name][memory] = {
            disk: [measure(loop, speed, form.cycles) for _ in range(min(sizes.repeats, 2))]
            for disk, speed in DISKS.items()
        }
        loop.check()
    return found


def least_memory(
    sizes: Sizes, at_full: Compared, others: Mapping[str, ByMemory], disk: str, memory: float
) -> float | None:
    """At the rate that MESHJOIN has with a memory: the least measured one of this library's form, by that."""
    rates = {
        form.name: {sizes.memory: median(one.rate for one in at_full.rates[disk][form.name])}
        | {share: median(one.rate for one in some[disk]) for share, some in others[form.name].items()}
        for form in (MESHJOIN, OURS)
    }
    wanted = rates[MESHJOIN.name][memory]
    enough = [share for share, rate in rates[OURS.name].items() if rate >= wanted]
    return min(enough) / memory if enough else None


# The cost model


def costs(bench: Bench, sizes: Sizes, form: Form, w: int) -> LoopCosts:
    """Calibrated on a quarter of the rows, with other tuples: w and a third of it, in few and many pieces.

    In seconds of the processor, as files are in the page cache; twice, of which the cheaper counts: what else
    the machine does can only add to it.
    """
    rows = sizes.rows // 4
    tables = [bench.table(form, rows, segments) for segments in (sizes.segments // 4, sizes.segments)]
    draws = [_drawn(ZipfStreams(seed=SEED + 1, rows=rows, skew=skew)) for skew in SKEWS]
    spec = spec_of(form, 1 << 33)
    spec = spec if form.access == "paper" else replace(spec, access="scan")
    ws = [max(w // 3, 1), w]
    turn = EnrichLoad.of(spec, tables[-1], tuple_bytes=TUPLE_BYTES, skew=1.0).turns(w)
    found = [calibrate(spec, tables, draws, ws, process_time) for _ in range(2)]
    real = bench.table(form, sizes.rows, sizes.segments)
    cheapest = min(found, key=lambda one: one.seconds(turn))
    return replace(cheapest, read_byte=read_byte_seconds(real, process_time))


def _drawn(streams: ZipfStreams) -> Callable[[int], Batch]:
    taken = 0

    def draw(count: int) -> Batch:
        nonlocal taken
        taken += count
        return tuples(streams, taken - count, count)

    return draw


@dataclass(frozen=True)
class Predicted:
    """A loop beside the model: with the share of hits as measured, and by the skew alone."""

    w: int
    hit_rate: float
    measured_s: float
    model_s: float
    forecast: dict[str, float]

    @property
    def off(self) -> float:
        return abs(self.measured_s / self.model_s - 1)


def predicted(found: Compared, form: Form, fitted: LoopCosts) -> Predicted:
    """What the model says of what was measured, files as they are."""
    loop, stretches = found.loops[form.name], found.rates["as it is"][form.name]
    spec, table = loop.join.spec, loop.join.newest.table
    load = EnrichLoad.of(spec, table, tuple_bytes=TUPLE_BYTES, skew=found.skew)
    model = EnrichCostModel(fitted, load)
    hits = float(np.mean([one.hit_rate for one in stretches]))
    forecast = model.rate_for(spec.memory_bytes)
    return Predicted(
        loop.w,
        hits,
        min(one.cpu_s / one.turns for one in stretches),
        model.loop_seconds(loop.w, hits),
        {name: float(getattr(forecast, name)) for name in forecast.__slots__},
    )


# Adaptation


def becomes_main_memory(bench: Bench, sizes: Sizes, form: Form, cycles: int = 40) -> list[int]:
    """Theorem 3: reads (pieces, or keys) in each cycle, with memory for all rows and ever more tuples."""
    rows, segments = sizes.whole_rows, 10
    disk = bench.table(form, rows, segments)
    spec = spec_of(form, 2 * sum(disk.segment_bytes))
    loop = Loop.of(form.says, spec, disk, bench.batch_join(rows, 0.0))
    loop.fill(0.5)
    read: list[int] = []
    while len(read) < cycles and (not read or read[-1]):
        cycle = loop.run(segments)
        read.append(cycle.segments_read + cycle.keys_found)
        loop.w = min(loop.w * 5 // 4, 200 * rows // segments)
    loop.check()
    return read


@dataclass(frozen=True)
class Shift:
    """The share of hits in each cycle; from cycle `at` on other values are hot."""

    hit_rates: list[float]
    at: int

    @property
    def old(self) -> float:
        return float(np.mean(self.hit_rates[self.at - 3 : self.at]))

    def cycles_until_back(self) -> int | None:
        """How many cycles after the shift the share of hits is within 20 % of its old value."""
        after = self.hit_rates[self.at :]
        return next((i for i, one in enumerate(after, 1) if one >= 0.8 * self.old), None)


def shifted(bench: Bench, sizes: Sizes, form: Form) -> Shift:
    """Skew 1, 10 % of the master data as memory; 20 cycles after the hot values have moved."""
    loop = bench.loop(form, sizes.shift_rows, sizes.segments, skew=1.0, memory=sizes.memory)
    hit_rates = [loop.run(loop.segments).hit_rate for _ in range(3)]
    loop.streams = replace(loop.streams, shift_at=loop.taken)
    hit_rates += [loop.run(loop.segments).hit_rate for _ in range(20)]
    loop.check()
    return Shift(hit_rates, 3)


def told(stretches: Sequence[Stretch]) -> dict[str, Any]:
    """Rates of one setting, with the latency of a result beside them."""
    loop_s = median(one.loop_s for one in stretches)
    mean_age = float(np.mean([one.mean_age for one in stretches]))
    worst = max(one.worst_age for one in stretches)
    return {
        "tuples_per_s": [one.rate for one in stretches],
        "cpu_s": [one.cpu_s for one in stretches],
        "w": stretches[-1].w,
        "loop_s": loop_s,
        "hit_rate": float(np.mean([one.hit_rate for one in stretches])),
        "latency_turns": {"mean": mean_age, "worst": worst},
        "latency_s": {"mean": (mean_age + 1) * loop_s, "worst": (worst + 1) * loop_s},
        "segments_read_per_turn": sum(one.segments_read for one in stretches)
        / sum(one.turns for one in stretches),
        "memory": stretches[-1].memory,
    }
