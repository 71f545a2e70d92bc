"""The scan of the SSBJ paper (and of MESHJOIN): rows of a value may be in any segment, so a tuple meets all.

Moving a value into the cache takes three cycles (Algorithm 1, lines 3 to 13 and 28 to 36; where the printed
pseudocode is not right, this is what it must mean):

- *counting*: of the values that wait at its beginning, how many table rows each has; at its end it is
  decided once which of them move, those without any among them;
- *switching*: their table rows are collected from the segments, all of them, in the switching buffer;
- *phasing out*: they are in the cache, complete; tuples that waited before finish on disk.

Moving a value that pays frees more than it takes, but only later. So the buffer has a bound of its own, not
that of the bytes that are free when it is decided; what it will need is kept from new tuples, and segments
are read earlier for those that wait until there is room.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamjoin.columnar.batch import Batch, Ints, Layout, Mask, concat
from streamjoin.columnar.match import expand
from streamjoin.enrich.scan import Scan, WaitingChunk
from streamjoin.enrich.waiting_index import WaitingIndex
from streamjoin.state.run import Run, match

if TYPE_CHECKING:
    from streamjoin.enrich.operator import EnrichJoin

COUNTING, SWITCHING, PHASING_OUT = "counting", "switching", "phasing out"
_NEXT = {COUNTING: SWITCHING, SWITCHING: PHASING_OUT, PHASING_OUT: COUNTING}


@dataclass
class PaperScan(Scan):
    """Segments in any order; the state machine that moves values into the cache."""

    state: str = COUNTING
    candidates: Run | None = None  # their keys
    rows_of: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    switching: list[Run] = field(default_factory=list)
    reserved_bytes: int = 0  # for the rows of what moves
    _index: WaitingIndex | None = field(default=None, repr=False)

    def add(self, run: Run) -> None:
        index = self.index(run.layout)
        super().add(run)
        index.add(run.batch)

    def index(self, layout: Layout) -> WaitingIndex:
        """The index over what waits; it is no part of a snapshot."""
        if self._index is None:
            self._index = WaitingIndex(layout)
            for chunk in self.chunks:
                self._index.add(chunk.rows)
        return self._index

    @property
    def busy(self) -> bool:
        """Whether some tuple or some moving value needs the next segment."""
        return bool(self.chunks) or (self.state == SWITCHING and self.candidates is not None)

    @property
    def switching_bytes(self) -> int:
        """What the switching buffer holds."""
        return sum(run.nbytes for run in self.switching)

    @property
    def coming_bytes(self) -> int:
        """What it will hold beyond that."""
        return max(self.reserved_bytes - self.switching_bytes, 0)

    def visit(self, join: EnrichJoin) -> Iterator[pa.RecordBatch]:
        if not self.busy:
            self._move_on(join)
            return
        segment = self.table.read(self.position)
        join.counts.segments_read += 1
        join.counts.bytes_read += segment.nbytes
        segment = join.candidates(segment)
        index = self.index(join.spec.stream)
        tuples, numbers = index.find(segment)
        if len(tuples):
            hit = match(tuples, Run("segment", segment))
            matched = yield from join.pairs(tuples, hit, self.table.version)
            for chunk, rows in index.by_chunk(numbers[matched]):
                self.chunks[chunk].run.mark_matched(rows)
        for one in self.chunks:
            one.segments_left -= 1
        if self.position == 0 and self.state == COUNTING:
            self._begin_counting(join)
        self._count_or_collect(join, segment)
        self._move_on(join)
        while self.chunks and self.chunks[0].segments_left == 0:
            done = self.chunks.pop(0)
            index.drop_oldest()
            self.waiting -= len(done.rows)
            yield from join.unmatched(done.rows, np.flatnonzero(~_matched(done)), self)

    def end_of_cycle(self, join: EnrichJoin) -> None:
        if self is not join.newest or not join.spec.caches:
            return
        if self.state == COUNTING and self.candidates is not None:
            self._decide(join)
        elif self.state == SWITCHING and self.candidates is not None:
            rows = concat(join.spec.table, [run.batch for run in self.switching]).sorted()
            waiting = self._met(join, self.candidates.batch)
            hit = match(rows, self.candidates)
            absent: Mask = np.ones(len(waiting), np.bool_)
            absent[hit.start] = False
            met = waiting[hit.start][rows.groups.of_rows()]
            join.admission.take(rows, self.candidates.batch.where(absent), (met, waiting[absent]))
            self.candidates, self.switching, self.reserved_bytes = None, [], 0
        self.state = _NEXT[self.state]
        join.admission.end_cycle(self.cycle, waits=1.0)

    def _begin_counting(self, join: EnrichJoin) -> None:
        keys = self.index(join.spec.stream).keys()
        self.candidates = join.new_run("candidates", keys) if len(keys) else None
        self.rows_of = np.zeros(len(keys), np.int64)

    def _count_or_collect(self, join: EnrichJoin, segment: Batch) -> None:
        if self.candidates is None or self.state == PHASING_OUT:
            return
        hit = match(segment, self.candidates)
        if self.state == COUNTING:
            self.rows_of[hit.start] += segment.groups.count[hit.probe]
        elif len(hit.probe):
            rows = expand(segment.groups.start[hit.probe], segment.groups.count[hit.probe])[1]
            self.switching.append(join.new_run("switching", segment.take(rows)))
            if join.division().total > join.spec.memory_bytes:  # fewer left than were to make room: not now
                self.candidates, self.switching, self.reserved_bytes = None, [], 0

    def _decide(self, join: EnrichJoin) -> None:
        """Which of the counted values move: those that take less memory in the cache than waiting."""
        if self.candidates is None:
            return
        counted = self.candidates.batch
        moves = join.admission.worth(
            self._met(join, counted),
            self.rows_of,
            waits=1.0,
            scanned=True,
            buffer_bytes=join.admission.switching_buffer_bytes(),
        )
        self.reserved_bytes = int(join.admission.cost(self.rows_of[moves]).sum())
        self.candidates = join.new_run("candidates", counted.where(moves)) if moves.any() else None

    def _met(self, join: EnrichJoin, rows: Batch) -> Ints:
        """For each key of sorted rows, the tuples of it that wait."""
        return self.index(join.spec.stream).count(Run("keys", rows.distinct_keys()))


def _matched(chunk: WaitingChunk) -> Mask:
    return np.zeros(len(chunk.rows), np.bool_) if chunk.run.matched is None else chunk.run.matched
