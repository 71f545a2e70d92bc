"""The cache of a join with a table, in a closed loop: when all rows fit, and after a shift of hot values.

Theorem 3 of the SSBJ paper: with memory for all rows and ever more tuples nothing is read in the end. A
shift: from some cycle on other values are hot, and the share of hits comes back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lab.experiment import Claim, Statement
from lab.papers.ssbj_bench import Bench, JoinVariant, Sizes, spec_of
from lab.papers.ssbj_loop import ClosedLoop

WHOLE = Statement(
    "theorem-3",
    "at a high rate, with memory for all: reads from disk in a cycle once all is cached",
    "SSBJ paper, Theorem 3; issue 7",
    "==",
    0,
    "reads",
)
SHIFT = Statement(
    "shift",
    "after a shift of the hot values: cycles until the hit rate is within 20 % of its old value",
    "issue 7",
    "<=",
    15,
    "cycles",
)


def becomes_main_memory(bench: Bench, form: JoinVariant, rows: int, cycles: int = 40) -> list[int]:
    """Theorem 3: reads (segments, or keys) in each cycle, with memory for all rows and ever more tuples."""
    segments = 10
    disk = bench.table(form, rows, segments)
    spec = spec_of(form, 2 * sum(disk.segment_bytes))
    loop = ClosedLoop.of(form.says, spec, disk, bench.batch_join(rows, 0.0))
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


def shifted(bench: Bench, form: JoinVariant, sizes: Sizes, memory: float = 0.1) -> Shift:
    """Skew 1; 20 cycles after the hot values have moved."""
    loop = bench.loop(form, sizes.rows, sizes.segments, skew=1.0, memory=memory)
    hit_rates = [loop.run(loop.segments).hit_rate for _ in range(3)]
    loop.streams = replace(loop.streams, shift_at=loop.taken)
    hit_rates += [loop.run(loop.segments).hit_rate for _ in range(20)]
    loop.check()
    return Shift(hit_rates, 3)


def shift_claim(found: Shift) -> Claim:
    """What does not come back does not hold."""
    back = found.cycles_until_back()
    if back is None:
        return replace(SHIFT.open("not within 20 cycles"), holds=False)
    return SHIFT.measured([back])
