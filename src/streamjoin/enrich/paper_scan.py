"""The scan of the SSBJ paper (and of MESHJOIN): rows of a value may be in any segment, so a tuple meets all.

Moving a value into the cache takes three cycles (Algorithm 1, lines 3 to 13 and 28 to 36; where the printed
pseudocode is not right, this is what it must mean):

- *counting*: of the values that wait at its beginning, how many table rows each has; at its end it is
  decided once which of them move;
- *switching*: their table rows are collected from the segments, all of them;
- *phasing out*: they are in the cache, complete; tuples that waited before finish on disk.

A value without table rows is known to have none when its chunk has met every segment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamjoin.columnar.batch import Batch, Ints, Mask, concat
from streamjoin.columnar.match import expand
from streamjoin.enrich.scan import Scan, WaitingChunk
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

    @property
    def busy(self) -> bool:
        """Whether some tuple or some moving value needs the next segment."""
        return bool(self.chunks) or (self.state == SWITCHING and self.candidates is not None)

    @property
    def switching_bytes(self) -> int:
        return max(sum(run.nbytes for run in self.switching), self.reserved_bytes)

    def visit(self, join: EnrichJoin) -> Iterator[pa.RecordBatch]:
        if not self.busy:
            self._move_on(join)
            return
        segment = self.table.read(self.position)
        join.counts.segments_read += 1
        join.counts.bytes_read += segment.nbytes
        for chunk in self.chunks:
            hit = match(chunk.rows, Run("segment", segment))
            if len(hit.probe):
                groups = chunk.rows.groups
                chunk.run.mark_matched(expand(groups.start[hit.probe], groups.count[hit.probe])[1])
                yield from join.pairs(chunk.rows, hit, self.table.version)
            chunk.segments_left -= 1
        if self.position == 0 and self.state == COUNTING:
            self._begin_counting(join)
        self._count_or_collect(join, segment)
        self._move_on(join)
        done = [chunk for chunk in self.chunks if chunk.segments_left == 0]
        self.chunks = [chunk for chunk in self.chunks if chunk.segments_left]
        self.waiting -= sum(len(chunk.rows) for chunk in done)
        for chunk in done:
            alone = np.flatnonzero(~_matched(chunk))
            self._remember_absent(join, chunk, alone)
            yield from join.unmatched(chunk.rows, alone, self)

    def end_of_cycle(self, join: EnrichJoin) -> None:
        if self is not join.newest or not join.spec.caches:
            return
        if self.state == COUNTING and self.candidates is not None:
            self._decide(join)
        elif self.state == SWITCHING and self.candidates is not None:
            rows = concat(join.spec.table, [run.batch for run in self.switching]).sorted()
            met = self._met(join, rows)[rows.groups.of_rows()]
            join.take_into_cache(rows, self.candidates.batch.slice(0, 0), (met, _NONE))
            self.candidates, self.switching, self.reserved_bytes = None, [], 0
        self.state = _NEXT[self.state]
        join.end_cycle(self.cycle, waits=1.0)

    def _begin_counting(self, join: EnrichJoin) -> None:
        waiting = [chunk.rows.only_keys() for chunk in self.chunks]
        keys = concat(join.spec.stream.keys_only, waiting).sorted().distinct_keys()
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

    def _decide(self, join: EnrichJoin) -> None:
        """Which of the counted values move: those that take less memory in the cache than waiting."""
        if self.candidates is None:
            return
        waiting = self._met(join, self.candidates.batch)
        worth = join.worth_caching(waiting, self.rows_of, waits=1.0, scanned=True) & (self.rows_of > 0)
        keys = self.candidates.batch.where(worth)
        self.reserved_bytes = int(join.cache_cost(self.rows_of[worth]).sum())
        self.candidates = join.new_run("candidates", keys) if len(keys) else None

    def _met(self, join: EnrichJoin, rows: Batch) -> Ints:
        """For each key of sorted rows, the tuples of it that wait."""
        keys = Run("keys", rows.distinct_keys())
        waiting = np.zeros(len(keys), np.int64)
        for chunk in self.chunks if len(keys) else ():
            hit = match(chunk.rows, keys)
            waiting[hit.start] += chunk.rows.groups.count[hit.probe]
        return waiting

    def _remember_absent(self, join: EnrichJoin, chunk: WaitingChunk, alone: Ints) -> None:
        if not join.spec.caches or self is not join.newest or len(alone) == 0:
            return
        tuples = chunk.rows.take(alone)
        count = tuples.groups.count
        worth = join.worth_caching(count, np.zeros(len(count), np.int64), waits=1.0, scanned=True)
        absent = tuples.distinct_keys().where(worth)
        join.take_into_cache(join.spec.table.empty(), absent, (_NONE, count[worth]))


_NONE: Ints = np.empty(0, np.int64)


def _matched(chunk: WaitingChunk) -> Mask:
    return np.zeros(len(chunk.rows), np.bool_) if chunk.run.matched is None else chunk.run.matched
