"""The joins that the SSBJ paper's figures compare, and their tables on disk: MESHJOIN, SSBJ, and ours.

All of them join the same stream with the same table, with the same memory, in a closed loop (`ssbj_loop`).
The tables are written when they are first needed. The cost model is calibrated on a quarter of the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import process_time
from typing import Any

from lab.papers.ssbj_loop import TUPLE_BYTES, BatchJoin, ClosedLoop, tuples
from lab.papers.ssbj_tables import (
    STREAM,
    TABLE,
    Disk,
    FileTable,
    TableAndStream,
    output_of,
    staged,
)
from streamjoin.columnar.batch import Batch, Layout
from streamjoin.demo.generators.zipf import ZipfStreams
from streamjoin.enrich.cost import EnrichLoad, LoopCosts, calibrate, read_byte_seconds
from streamjoin.enrich.operator import EnrichSpec
from streamjoin.enrich.spec import Access

SEED = 5
SLOW = 100e6  # bytes a second
SKEWS = (0.0, 1.0)


@dataclass(frozen=True)
class JoinVariant:
    """A way to join: how it reads, whether it caches, and how its memory is filled in the beginning."""

    name: str
    says: str
    access: Access
    caches: bool
    shares: tuple[float, ...]  # of the memory, a cycle each
    cycles: int  # of a measurement


MESHJOIN = JoinVariant("meshjoin", "MESHJOIN", "paper", caches=False, shares=(0.97, 0.97), cycles=1)
SSBJ = JoinVariant(
    "ssbj",
    "SSBJ, as in the paper",
    "paper",
    caches=True,
    shares=(*[0.5] * 3, *[0.75] * 3, *[0.9] * 6),
    cycles=3,
)
OURS = JoinVariant(
    "streamjoin", "SSBJ, in order", "auto", caches=True, shares=(0.5, 0.5, *[0.92] * 6), cycles=2
)
FORMS = (MESHJOIN, SSBJ, OURS)


@dataclass(frozen=True)
class Sizes:
    """How large a table is, and in how many segments it is read."""

    rows: int
    segments: int


def zipf(rows: int, skew: float) -> TableAndStream:
    """The synthetic data of the paper."""
    return ZipfStreams(seed=SEED, rows=rows, skew=skew)


@dataclass
class Bench:
    """Master data on disk, made when it is first needed, and its batch joins."""

    home: Path
    make: Callable[[int, float], TableAndStream] = zipf
    _tables: dict[tuple[bool, int, int], Any] = field(default_factory=dict)
    _joins: dict[tuple[int, float], BatchJoin] = field(default_factory=dict)

    def table(self, form: JoinVariant, rows: int, segments: int) -> Disk:
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

    def loop(self, form: JoinVariant, rows: int, segments: int, *, skew: float, memory: float) -> ClosedLoop:
        """A join of a form, its memory filled."""
        disk = self.table(form, rows, segments)
        spec = spec_of(form, int(memory * sum(disk.segment_bytes)))
        loop = ClosedLoop.of(form.says, spec, disk, self.batch_join(rows, skew))
        loop.warm(form.shares)
        return loop


def spec_of(form: JoinVariant, memory_bytes: int, stream: Layout = STREAM) -> EnrichSpec:
    """A form's join with so much memory."""
    output = output_of(stream)
    return EnrichSpec(
        stream, TABLE, output, memory_bytes, caches=form.caches, access=form.access, fills=False
    )


# The cost model


def costs(bench: Bench, sizes: Sizes, form: JoinVariant, w: int) -> LoopCosts:
    """Calibrated on a quarter of the rows, with other tuples: w and a third of it, in few and many segments.

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
