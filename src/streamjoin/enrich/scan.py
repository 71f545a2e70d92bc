"""A scan: one version of a table read in cycles over its segments, and the stream tuples that wait for it.

The two kinds of scan differ in what a tuple waits for:

- *ordered* (this file): segments are ranges of hashes, so a tuple needs one segment. It leaves when that
  segment is read, after half a cycle on average; then it is also known how many tuples of its value came in
  one cycle (n) and how many table rows it has (m), so the cache inequality is decided at once, with all rows
  at hand. As tuples wait half a cycle, the inequality counts n / 2 of them. Worked number: 20 tuples a cycle
  of 32 bytes, one row of 120: 320 > 144, cached.
- *as in the paper* (`paper_scan`): any segment may hold a row of any value; a tuple meets all.

Cost: a segment is read whole, or only the rows of the keys that wait for it are found, whichever costs less.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamjoin.columnar.batch import Batch, Ints, Mask, concat
from streamjoin.columnar.match import expand
from streamjoin.enrich.spec import StagedRows
from streamjoin.state.run import Run, match

if TYPE_CHECKING:
    from streamjoin.enrich.operator import EnrichJoin


@dataclass
class WaitingChunk:
    """Tuples that came together, sorted, and how many segments are ahead of them."""

    run: Run
    segments_left: int
    cuts: Ints | None = None  # where each segment's share begins, once that is known

    @property
    def rows(self) -> Batch:
        return self.run.batch

    @cached_property
    def keys(self) -> int:
        """How many keys there are, by their hashes; an index over them would take memory while they wait."""
        values = self.rows.hash
        return int(np.count_nonzero(values[1:] != values[:-1])) + 1


@dataclass
class Scan(ABC):
    """The position in the cycle, and the tuples that wait."""

    table: StagedRows
    began_us: int | None = None  # the watermark when this version came
    position: int = 0
    cycle: int = 0
    chunks: list[WaitingChunk] = field(default_factory=list)
    waiting: int = 0  # tuples that are not answered yet

    def add(self, run: Run) -> None:
        """Let sorted tuples wait."""
        self.chunks.append(WaitingChunk(run, self.segments))
        self.waiting += len(run)

    @property
    def segments(self) -> int:
        return len(self.table.segment_bytes)

    @abstractmethod
    def visit(self, join: EnrichJoin) -> Iterator[pa.RecordBatch]:
        """Join the segment at the position with the tuples that wait for it, and move on."""

    @abstractmethod
    def end_of_cycle(self, join: EnrichJoin) -> None:
        """Called after the last segment of a cycle."""

    def _move_on(self, join: EnrichJoin) -> None:
        self.position += 1
        if self.position >= self.segments:
            self.position = 0
            self.cycle += 1
            self.end_of_cycle(join)


@dataclass
class OrderedScan(Scan):
    """Segments are ranges of hashes: each tuple waits for one."""

    def visit(self, join: EnrichJoin) -> Iterator[pa.RecordBatch]:
        parts = [self._part(chunk, self.position) for chunk in self.chunks]
        tuples = concat(join.spec.stream, parts)
        self.waiting -= len(tuples)  # their memory is free for values that enter the cache
        if len(tuples):
            yield from self._meet(join, self.position, tuples.sorted(in_runs=True))
        for chunk in self.chunks:
            chunk.segments_left -= 1
        self._move_on(join)
        self._drop_answered(join)

    def answer_all(self, join: EnrichJoin) -> Iterator[pa.RecordBatch]:
        """Answer all waiting tuples now, segment by segment; the position stays."""
        tuples = concat(join.spec.stream, self.unanswered()).sorted(in_runs=True)
        self.chunks, self.waiting = [], 0
        cuts = self._cuts(tuples)
        for segment in np.flatnonzero(np.diff(cuts)).tolist():
            yield from self._meet(
                join, segment, tuples.slice(cuts[segment], cuts[segment + 1] - cuts[segment])
            )

    def unanswered(self) -> list[Batch]:
        """The tuples whose segment is still ahead."""
        if not self.segments:
            return [chunk.rows for chunk in self.chunks]
        return [
            chunk.rows.slice(start, stop - start)
            for chunk in self.chunks
            for start, stop in self._ahead(chunk)
        ]

    def distinct_waiting(self) -> int:
        """An upper bound of the distinct keys that wait."""
        return sum(chunk.keys for chunk in self.chunks)

    def _cuts(self, rows: Batch) -> Ints:
        """Where each segment's share of sorted rows begins, and where the last one's ends."""
        starts = self.table.starts
        inner = np.searchsorted(rows.hash, starts[1:]) if starts is not None else np.empty(0, np.int64)
        return np.concatenate(([0], inner, [len(rows)])).astype(np.int64)

    def _cuts_of(self, chunk: WaitingChunk) -> Ints:
        if chunk.cuts is None:
            chunk.cuts = self._cuts(chunk.rows)
        return chunk.cuts

    def _ahead(self, chunk: WaitingChunk) -> list[tuple[int, int]]:
        """The ranges of a chunk whose segments are still ahead."""
        cuts, last = self._cuts_of(chunk), self.position + chunk.segments_left
        if last <= self.segments:
            return [(int(cuts[self.position]), int(cuts[last]))]
        return [(0, int(cuts[last - self.segments])), (int(cuts[self.position]), int(cuts[-1]))]

    def _part(self, chunk: WaitingChunk, segment: int) -> Batch:
        cuts = self._cuts_of(chunk)
        return chunk.rows.slice(int(cuts[segment]), int(cuts[segment + 1] - cuts[segment]))

    def _drop_answered(self, join: EnrichJoin) -> None:
        """Drop chunks that have met all their segments; copy the rest of one that is a third answered."""
        kept = []
        for chunk in self.chunks:
            ahead = self._ahead(chunk) if chunk.segments_left else []
            rows = sum(stop - start for start, stop in ahead)
            if rows and 3 * rows < 2 * len(chunk.rows):
                rest = np.concatenate([np.arange(start, stop) for start, stop in ahead])
                kept.append(WaitingChunk(join.new_run("waiting", chunk.rows.take(rest)), chunk.segments_left))
            elif rows:
                kept.append(chunk)
        self.chunks = kept

    def _meet(self, join: EnrichJoin, segment: int, tuples: Batch) -> Iterator[pa.RecordBatch]:
        """Join sorted tuples with the one segment that may have rows of theirs; admit values to the cache."""
        whole = join.is_cheaper_whole(len(tuples.groups), self.table.segment_bytes[segment], self.table)
        if whole:
            rows = self.table.read(segment)
            join.counts.segments_read += 1
        else:
            rows = self.table.find(segment, tuples.distinct_keys())
            join.counts.keys_found += len(tuples.groups)
        join.counts.bytes_read += rows.nbytes
        rows = join.candidates(rows)
        hit = match(tuples, Run("segment", rows)) if len(rows) else None
        found = np.zeros(len(tuples.groups), np.int64)
        alone: Mask = np.ones(len(tuples), np.bool_)
        if hit is not None:
            found[hit.probe] = hit.count
            matched = yield from join.pairs(tuples, hit, self.table.version)
            alone[matched] = False
        yield from join.unmatched(tuples, np.flatnonzero(alone), self)
        if self is join.newest and join.spec.caches:
            worth = join.admission.worth(tuples.groups.count, found, waits=0.5, scanned=whole)
            count = tuples.groups.count
            present, met = np.zeros(0, np.int64), np.zeros(0, np.int64)
            if hit is not None:
                chosen = worth[hit.probe]
                value, present = expand(hit.start[chosen], hit.count[chosen])
                met = count[hit.probe][chosen][value]
            absent = worth & (found == 0)
            join.admission.take(
                rows.take(present), tuples.distinct_keys().where(absent), (met, count[absent])
            )

    def end_of_cycle(self, join: EnrichJoin) -> None:
        if self is join.newest:
            join.admission.end_cycle(self.cycle, waits=0.5)
