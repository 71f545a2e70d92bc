"""A setting of the SSBJ paper's figures: MESHJOIN, SSBJ as in the paper, and this library's form, in turn.

All forms of a setting join the same stream with the same master data and the same memory, in one process
(`ssbj_loop`); every loop's results are compared with a batch join's before anything is returned. The
time of a turn is the processor's, and on top what a disk of 100 MB/s takes for the bytes read (a key that is
looked up counts as a page of 4 KiB): so it depends neither on what else the machine does nor on what its page
cache holds. Worked number: a segment of 2.6 MB takes 26 ms of the disk; if 5,000 tuples came in that turn and
the processor took 24 ms, the service rate is 100,000 tuples a second.

Pieces are 1/50 of the master data, or 40 % of the memory where that is less. Cost: the paper's form takes
time by the square of the number of segments; a setting of a million rows 10 to 60 s of one core.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from lab.papers.ssbj_bench import MESHJOIN, OURS, SLOW, SSBJ, Bench, JoinVariant, Sizes, costs, spec_of
from lab.papers.ssbj_data import streams
from lab.papers.ssbj_loop import ClosedLoop, LoopMeasurement
from lab.papers.ssbj_tables import stream_layout
from streamjoin.enrich.cost import LoopCosts

ROWS = 1_000_000
FORMS: dict[str, JoinVariant] = {  # beyond the tenth cycle, in which values leave the cache that do not pay
    MESHJOIN.name: replace(MESHJOIN, shares=(0.97,)),
    SSBJ.name: replace(SSBJ, shares=(*[0.5] * 3, *[0.75] * 3, *[0.93] * 3)),
    OURS.name: replace(OURS, access="scan", shares=(0.92,) * 11),
}
LABELS = {
    MESHJOIN.name: "MESHJOIN",
    SSBJ.name: "SSBJ as in the paper",
    OURS.name: "this library (SSBJ in order)",
}
ALL, PAIR = tuple(FORMS), (MESHJOIN.name, OURS.name)


def segments_for(memory: float) -> int:
    """How many segments a memory (a share of the master data) is given."""
    return max(50, round(2.5 / memory))


@dataclass(frozen=True)
class SsbjSetting:
    """What is joined, with how much memory, by whom."""

    memory: float  # of the master data
    forms: tuple[str, ...] = ALL
    rows: int = ROWS
    skew: float = 1.0
    data: str = "zipf"
    segments: int = 0  # 0: as the memory asks for
    switching: float = 1.0
    repeats: int = 2

    def __str__(self) -> str:
        return (
            f"{self.data}, {self.rows:,} rows, skew {self.skew:g}, memory {self.memory:.1%}, "
            f"{self.cut} segments, switching factor {self.switching:g}"
        )

    @property
    def cut(self) -> int:
        return self.segments or segments_for(self.memory)


@dataclass(frozen=True)
class TimedCycles:
    """Some whole cycles of a form, and how long the disk took for them."""

    stretch: LoopMeasurement
    disk_s: float
    forced: int  # segments read since the start because memory was short

    @property
    def loop_s(self) -> float:
        return (self.stretch.cpu_s + self.disk_s) / self.stretch.turns

    @property
    def rate(self) -> float:
        """Tuples a second."""
        return self.stretch.w / self.loop_s


Run = dict[str, list[TimedCycles]]  # by form, one for each repeat


def run(setting: SsbjSetting) -> Run:
    """All forms of a setting; each answer is the batch join's, or this raises."""
    found: Run = {name: [] for name in setting.forms}
    with tempfile.TemporaryDirectory(prefix="streamjoin-lab-") as folder:
        bench = Bench(Path(folder), partial(streams, setting.data))
        loops = {name: _loop(bench, setting, FORMS[name]) for name in setting.forms}
        for repeat in range(setting.repeats):
            turn = repeat % len(loops)
            for name in (*setting.forms[turn:], *setting.forms[:turn]):
                found[name].append(_measure(loops[name], FORMS[name]))
        for loop in loops.values():
            loop.check()
    return found


def _loop(bench: Bench, setting: SsbjSetting, form: JoinVariant) -> ClosedLoop:
    disk = bench.table(form, setting.rows, setting.cut)
    disk.bytes_per_s, disk.waits = SLOW, False
    answers = bench.batch_join(setting.rows, setting.skew)
    memory = int(setting.memory * sum(disk.segment_bytes))
    spec = spec_of(form, memory, stream_layout(answers.streams.stream_schema))
    loop = ClosedLoop.of(form.says, replace(spec, switching_factor=setting.switching), disk, answers)
    loop.warm_by_use(form.shares)
    return loop


def _measure(loop: ClosedLoop, form: JoinVariant) -> TimedCycles:
    disk: Any = loop.join.newest.table
    loop.adapt(form.shares[-1])
    before = disk.seconds
    stretch = loop.run(form.cycles * loop.segments)
    return TimedCycles(stretch, disk.seconds - before, loop.join.counts.segments_forced)


def rate(found: Run, form: str) -> float:
    """The median service rate."""
    return median(one.rate for one in found[form])


def ratios(found: Run, form: str, other: str = MESHJOIN.name) -> list[float]:
    """Service rates of a form by another's, of each repeat."""
    return [ours.rate / theirs.rate for ours, theirs in zip(found[form], found[other], strict=True)]


def hit_rate(found: Run, form: str) -> float:
    """The share of tuples that the cache answered."""
    return median(one.stretch.hit_rate for one in found[form])


@dataclass(frozen=True)
class LoopCalibration:
    """The costs of a form, fitted to a quarter of the rows."""

    form: str
    w: int
    rows: int = ROWS
    segments: int = 50

    def __str__(self) -> str:
        return f"calibrating the cost model of {LABELS[self.form]}"


def calibrated(what: LoopCalibration) -> LoopCosts:
    """The costs on this machine, files in the page cache: the disk's time is added by the model's user."""
    with tempfile.TemporaryDirectory(prefix="streamjoin-lab-") as folder:
        return costs(
            Bench(Path(folder)), Sizes(rows=what.rows, segments=what.segments), FORMS[what.form], what.w
        )


def series_of(found: Sequence[TimedCycles]) -> dict[str, Any]:
    """What stands behind a point of a picture."""
    return {
        "tuples_per_s": [one.rate for one in found],
        "cpu_s_per_turn": [one.stretch.cpu_s / one.stretch.turns for one in found],
        "disk_s_per_turn": [one.disk_s / one.stretch.turns for one in found],
        "w": found[-1].stretch.w,
        "hit_rate": [one.stretch.hit_rate for one in found],
        "segments_forced": found[-1].forced,
        "memory": found[-1].stretch.memory,
    }
