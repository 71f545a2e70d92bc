"""A version of the master data being read in cycles, and the stream tuples that wait for it.

The two ways to read differ in what a tuple waits for:

- *in order* (this file): pieces are ranges of hashes, so a tuple needs one piece. It leaves when that piece
  is read, after half a cycle on average; then it is also known how many tuples of its value came in one
  cycle (n) and how many master rows it has (m), so the cache inequality is decided at once, with all rows at
  hand. As tuples wait half a cycle, the inequality counts n / 2 of them. Worked number: 20 tuples a cycle of
  32 bytes, one row of 120: 320 > 144, cached.
- *as in the paper* (`paper_reading`): any piece may hold a row of any value; a tuple meets all.

A piece is read whole, or only the rows of the keys that wait for it are found, whichever costs less.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamjoin.columnar.batch import Batch, Ints, concat
from streamjoin.columnar.match import expand
from streamjoin.enrich.spec import Master
from streamjoin.state.run import Run, match

if TYPE_CHECKING:
    from streamjoin.enrich.operator import EnrichJoin


@dataclass
class Chunk:
    """Tuples that came together, sorted, and how many pieces are ahead of them."""

    run: Run
    pieces_left: int
    cuts: Ints | None = None  # where each piece's share begins, once that is known

    @property
    def rows(self) -> Batch:
        return self.run.batch

    @cached_property
    def keys(self) -> int:
        """How many keys there are, by their hashes; an index over them would take memory while they wait."""
        values = self.rows.hash
        return int(np.count_nonzero(values[1:] != values[:-1])) + 1


@dataclass
class Reading(ABC):
    """Where the cycle stands, and who waits."""

    master: Master
    began_us: int | None = None  # how far event time had got when this version came
    position: int = 0
    cycle: int = 0
    chunks: list[Chunk] = field(default_factory=list)
    waiting: int = 0  # tuples that are not answered yet

    def add(self, run: Run) -> None:
        """Sorted tuples wait from now on."""
        self.chunks.append(Chunk(run, self.pieces))
        self.waiting += len(run)

    @property
    def pieces(self) -> int:
        return len(self.master.piece_bytes)

    @abstractmethod
    def visit(self, join: EnrichJoin) -> Iterator[pa.RecordBatch]:
        """The piece at the position meets who waits for it, and the position moves on."""

    @abstractmethod
    def end_of_cycle(self, join: EnrichJoin) -> None:
        """Every piece was passed once more."""

    def _move_on(self, join: EnrichJoin) -> None:
        self.position += 1
        if self.position >= self.pieces:
            self.position = 0
            self.cycle += 1
            self.end_of_cycle(join)


@dataclass
class OrderedReading(Reading):
    """Pieces are ranges of hashes: each tuple waits for one."""

    def visit(self, join: EnrichJoin) -> Iterator[pa.RecordBatch]:
        parts = [self._part(chunk, self.position) for chunk in self.chunks]
        tuples = concat(join.spec.stream, parts)
        self.waiting -= len(tuples)  # their place is free for values that move into the cache
        if len(tuples):
            yield from self._meet(join, self.position, tuples.sorted(in_runs=True))
        for chunk in self.chunks:
            chunk.pieces_left -= 1
        self._move_on(join)
        self._let_go_of_answered(join)

    def answer_all(self, join: EnrichJoin) -> Iterator[pa.RecordBatch]:
        """All that wait are answered now, piece by piece; the position stays."""
        parts = [
            chunk.rows.slice(start, stop - start)
            for chunk in self.chunks
            for start, stop in self._ahead(chunk)
        ]
        tuples = concat(join.spec.stream, parts).sorted(in_runs=True)
        self.chunks, self.waiting = [], 0
        cuts = self._cuts(tuples)
        for piece in np.flatnonzero(np.diff(cuts)).tolist():
            yield from self._meet(join, piece, tuples.slice(cuts[piece], cuts[piece + 1] - cuts[piece]))

    def distinct_waiting(self) -> int:
        """At most so many keys wait."""
        return sum(chunk.keys for chunk in self.chunks)

    def _cuts(self, rows: Batch) -> Ints:
        """Where each piece's share of sorted rows begins, and where the last one's ends."""
        starts = self.master.starts
        inner = np.searchsorted(rows.hash, starts[1:]) if starts is not None else np.empty(0, np.int64)
        return np.concatenate(([0], inner, [len(rows)])).astype(np.int64)

    def _cuts_of(self, chunk: Chunk) -> Ints:
        if chunk.cuts is None:
            chunk.cuts = self._cuts(chunk.rows)
        return chunk.cuts

    def _ahead(self, chunk: Chunk) -> list[tuple[int, int]]:
        """The stretches of a chunk whose pieces are still ahead."""
        cuts, last = self._cuts_of(chunk), self.position + chunk.pieces_left
        if last <= self.pieces:
            return [(int(cuts[self.position]), int(cuts[last]))]
        return [(0, int(cuts[last - self.pieces])), (int(cuts[self.position]), int(cuts[-1]))]

    def _part(self, chunk: Chunk, piece: int) -> Batch:
        cuts = self._cuts_of(chunk)
        return chunk.rows.slice(int(cuts[piece]), int(cuts[piece + 1] - cuts[piece]))

    def _let_go_of_answered(self, join: EnrichJoin) -> None:
        """Chunks that have met all their pieces go; of one of which a third is answered the rest stays."""
        kept = []
        for chunk in self.chunks:
            ahead = self._ahead(chunk) if chunk.pieces_left else []
            rows = sum(stop - start for start, stop in ahead)
            if rows and 3 * rows < 2 * len(chunk.rows):
                rest = np.concatenate([np.arange(start, stop) for start, stop in ahead])
                kept.append(Chunk(join.new_run("waiting", chunk.rows.take(rest)), chunk.pieces_left))
            elif rows:
                kept.append(chunk)
        self.chunks = kept

    def _meet(self, join: EnrichJoin, piece: int, tuples: Batch) -> Iterator[pa.RecordBatch]:
        """Sorted tuples with the piece that has all rows of theirs, if there are any."""
        whole = join.is_cheaper_whole(len(tuples.groups), self.master.piece_bytes[piece], self.master)
        if whole:
            rows = self.master.read(piece)
            join.counts.pieces_read += 1
        else:
            rows = self.master.find(piece, tuples.distinct_keys())
            join.counts.keys_found += len(tuples.groups)
        join.counts.bytes_read += rows.nbytes
        hit = match(tuples, Run("piece", rows)) if len(rows) else None
        found = np.zeros(len(tuples.groups), np.int64)
        if hit is not None:
            found[hit.probe] = hit.count
            yield from join.pairs(tuples, hit, self.master.version)
        alone = np.flatnonzero((found == 0)[tuples.groups.of_rows()])
        yield from join.unmatched(tuples, alone, self)
        if self is join.newest and join.spec.caches:
            worth = join.worth_caching(tuples.groups.count, found, waits=0.5, scanned=whole)
            count = tuples.groups.count
            present, met = np.zeros(0, np.int64), np.zeros(0, np.int64)
            if hit is not None:
                chosen = worth[hit.probe]
                value, present = expand(hit.start[chosen], hit.count[chosen])
                met = count[hit.probe][chosen][value]
            absent = worth & (found == 0)
            join.take_into_cache(
                rows.take(present), tuples.distinct_keys().where(absent), (met, count[absent])
            )

    def end_of_cycle(self, join: EnrichJoin) -> None:
        if self is join.newest:
            join.end_cycle(self.cycle, waits=0.5)
