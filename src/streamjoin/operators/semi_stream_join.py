"""SemiStreamJoin: a stream joined with master data that fits in no memory (MESHJOIN and SSBJ).

Master data is read piece by piece in an endless cycle. Stream tuples first meet the *cache*: a value in it
has all its master rows there, or is known to have none, and its tuples are answered at once. All other
tuples wait, in chunks, until they have met every piece: one cycle. So each piece is read once for all tuples
that wait.

What is cached follows the cache inequality (Theorem 2 of the SSBJ paper): a value with m master rows and n
tuples waiting is cheaper in the cache when n * stream tuple > sf * m * master row, in bytes. Worked number:
20 bytes a tuple, 120 a row, one row: cached from 7 waiting tuples on. Moving a value takes three cycles:

- *counting*: of the values that wait at its beginning, how many master rows each has; at its end it is
  decided once which of them move;
- *switching*: their master rows are collected from the pieces;
- *phasing out*: they are in the cache, complete; tuples that waited before finish on disk.

A value without master rows is known to have none when its chunk has met every piece; it costs its own bytes.
Every ten cycles values leave the cache that no longer pay, by their tuples per cycle since they came.

Each reading of the master data is of one version; a chunk finishes with the version it began with. Memory is
counted in bytes (`Division`) and kept within the limit by reading more pieces before more tuples wait.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from streamjoin.batch import Batch, Ints, Layout, Mask, concat
from streamjoin.errors import InvalidJoin
from streamjoin.kernels.assemble import assemble, pad
from streamjoin.kernels.match import bounded_slices, expand
from streamjoin.operators.master_cache import MasterCache
from streamjoin.state.run import Run, match

COUNTING, SWITCHING, PHASING_OUT = "counting", "switching", "phasing out"
_NEXT = {COUNTING: SWITCHING, SWITCHING: PHASING_OUT, PHASING_OUT: COUNTING}
_EVICTION_CYCLES = 10


class Master(Protocol):
    """One version of the master data (a bucket's share of it), in pieces sorted by hash."""

    @property
    def version(self) -> str: ...
    @property
    def piece_bytes(self) -> tuple[int, ...]: ...
    @property
    def row_bytes(self) -> float: ...
    def read(self, piece: int) -> Batch: ...


@dataclass(frozen=True)
class SemiSpec:
    """A stream and master data on a common key."""

    stream: Layout
    master: Layout
    output: pa.Schema
    memory_bytes: int
    preserves: bool = False  # a left join: tuples without a master row leave padded
    caches: bool = True  # False: MESHJOIN
    access: str = "auto"  # auto | scan | lookup | paper
    cycle_batches: int = 1
    wait_us: int | None = None  # waiting room; then the stream's layout is timed
    lateness_us: int = 0
    tells_version: bool = False  # the last output column is the version's id
    switching_factor: float = 1.0
    pointer_bytes: int = 8
    fudge: float = 1.2  # what a sorted or hashed table takes beyond its rows
    frame_rows: int = 1 << 16


@dataclass(frozen=True, slots=True)
class Division:
    """How the memory is divided, in bytes."""

    piece: int
    cache: int
    waiting: int
    switching: int

    @property
    def total(self) -> int:
        return self.piece + self.cache + self.waiting + self.switching


@dataclass
class Chunk:
    """Tuples that came together and wait together; sorted."""

    rows: Batch
    matched: Mask
    pieces_left: int


@dataclass
class Reading:
    """A version of the master data being read in cycles, and the tuples that wait for it."""

    master: Master
    position: int = 0
    cycle: int = 0
    state: str = COUNTING
    chunks: list[Chunk] = field(default_factory=list)
    candidates: Batch | None = None
    rows_of: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    switching: list[Batch] = field(default_factory=list)

    @property
    def waiting(self) -> int:
        return sum(len(chunk.rows) for chunk in self.chunks)

    @property
    def busy(self) -> bool:
        """Whether reading on is of use."""
        return bool(self.chunks) or (self.state == SWITCHING and self.candidates is not None)


class SemiStreamJoin:
    """One such join, or one hash bucket of it, at work."""

    def __init__(self, spec: SemiSpec, master: Master) -> None:
        self.spec = spec
        self.cache = MasterCache(spec.master)
        self.readings = [Reading(master)]
        self.pieces_read = self.bytes_read = self.cached_tuples = self.tuples = 0
        self._check_memory(master)

    def use(self, master: Master) -> None:
        """Another version: tuples that come from now on are joined with it."""
        if master.version != self.readings[-1].master.version:
            self._check_memory(master)
            self.readings.append(Reading(master))
            self.cache = MasterCache(self.spec.master)

    def process(self, rows: Batch, steps: int) -> Iterator[pa.RecordBatch]:
        """Stream tuples of one batch, and `steps` pieces of master data for those that wait."""
        self.tuples += len(rows)
        missed = yield from self._cache_phase(rows)
        yield from self._wait(missed)
        for reading in list(self.readings):
            for _ in range(steps):
                if reading.busy:
                    yield from self._read_piece(reading)
        self._forget_old_versions()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Read on until nothing waits."""
        for reading in self.readings:
            while reading.chunks:
                yield from self._read_piece(reading)
        self._forget_old_versions()

    @property
    def waiting(self) -> int:
        return sum(reading.waiting for reading in self.readings)

    def division(self) -> Division:
        """How the memory is divided now."""
        return Division(
            max((max(reading.master.piece_bytes, default=0) for reading in self.readings), default=0),
            round(self.spec.fudge * self.cache.nbytes),
            sum(self._waiting_bytes(chunk.rows) for reading in self.readings for chunk in reading.chunks),
            sum(batch.nbytes for reading in self.readings for batch in reading.switching),
        )

    def _waiting_bytes(self, rows: Batch) -> int:
        return round(self.spec.fudge * rows.nbytes) + self.spec.pointer_bytes * len(rows)

    def _check_memory(self, master: Master) -> None:
        least = 2 * max(master.piece_bytes, default=0)
        if self.spec.memory_bytes < least:
            raise InvalidJoin(
                f"memory={self.spec.memory_bytes:,} bytes is too small: a piece of the master data and as "
                f"much for what waits need {least:,}; give that, or stage smaller pieces"
            )

    def _forget_old_versions(self) -> None:
        self.readings = [one for one in self.readings[:-1] if one.chunks] + self.readings[-1:]

    # Tuples

    def _cache_phase(self, rows: Batch) -> Generator[pa.RecordBatch, None, Batch]:
        """Answer what the cache knows; returns the other tuples."""
        by_key = rows.sorted()
        known = self.cache.look_up(by_key)
        if not known.any():
            return by_key
        hits = by_key.where(known[by_key.groups.of_rows()])
        self.cached_tuples += len(hits)
        matched: Mask = np.zeros(len(hits), np.bool_)
        yield from self._pairs(hits, self.cache.rows, matched)
        yield from self._padded(hits, matched)
        return by_key.where(~known[by_key.groups.of_rows()])

    def _wait(self, rows: Batch) -> Iterator[pa.RecordBatch]:
        """Tuples that must meet every piece; where memory is short, others finish first."""
        reading = self.readings[-1]
        pieces = len(reading.master.piece_bytes)
        if pieces == 0:
            yield from self._padded(rows, np.zeros(len(rows), np.bool_))
            return
        while len(rows):
            room = self.spec.memory_bytes - self.division().total
            each = self._waiting_bytes(rows) / len(rows)
            count = min(len(rows), max(int(room // each), 0))
            if count == 0 and self.waiting:
                yield from self._read_piece(next(one for one in self.readings if one.chunks))
                continue
            some, rows = rows.slice(0, max(count, 1)), rows.slice(max(count, 1), len(rows) - max(count, 1))
            reading.chunks.append(Chunk(some, np.zeros(len(some), np.bool_), pieces))

    # Master data

    def _read_piece(self, reading: Reading) -> Iterator[pa.RecordBatch]:
        """The next piece meets everything that waits; who has met all pieces leaves."""
        piece = reading.master.read(reading.position)
        self.pieces_read += 1
        self.bytes_read += piece.nbytes
        for chunk in reading.chunks:
            yield from self._pairs(chunk.rows, piece, chunk.matched)
            chunk.pieces_left -= 1
        if reading.position == 0 and reading.state == COUNTING:
            self._begin_counting(reading)
        self._count_or_collect(reading, piece)
        reading.position += 1
        if reading.position == len(reading.master.piece_bytes):
            reading.position = 0
            self._end_cycle(reading)
        for chunk in [chunk for chunk in reading.chunks if chunk.pieces_left == 0]:
            yield from self._padded(chunk.rows, chunk.matched)
            self._cache_absent(reading, chunk)
        reading.chunks = [chunk for chunk in reading.chunks if chunk.pieces_left]

    def _pairs(self, tuples: Batch, master: Batch, matched: Mask) -> Iterator[pa.RecordBatch]:
        """Results of sorted tuples with sorted master rows, in frames; notes which tuples matched."""
        hit = match(master, Run("waiting", tuples))
        theirs = master.groups
        key, rows = expand(theirs.start[hit.probe], theirs.count[hit.probe])
        start, count = hit.start[key], hit.count[key]
        for cut in bounded_slices(count, limit=self.spec.frame_rows):
            parent, child = expand(start[cut], count[cut])
            matched[child] = True
            yield assemble([(tuples, child), (master, rows[cut][parent])], self.spec.output)

    def _padded(self, rows: Batch, matched: Mask) -> Iterator[pa.RecordBatch]:
        alone = np.flatnonzero(~matched)
        if self.spec.preserves and len(alone):
            first = len(self.spec.stream.key_types)
            yield pad((rows, alone), first, self.spec.output)

    # What is cached

    def _count_or_collect(self, reading: Reading, piece: Batch) -> None:
        if reading.candidates is None or reading.state == PHASING_OUT:
            return
        hit = match(piece, Run("candidates", reading.candidates))
        if reading.state == COUNTING:
            reading.rows_of[hit.start] += piece.groups.count[hit.probe]
        elif len(hit.probe):
            rows = expand(piece.groups.start[hit.probe], piece.groups.count[hit.probe])[1]
            reading.switching.append(piece.take(rows))

    def _end_cycle(self, reading: Reading) -> None:
        reading.cycle += 1
        if reading is not self.readings[-1] or not self.spec.caches:
            return
        if reading.state == COUNTING and reading.candidates is not None:
            reading.candidates = self._worth_caching(reading)
        elif reading.state == SWITCHING:
            if reading.candidates is not None:
                self.cache.add(reading.candidates, concat(self.spec.master, reading.switching).sorted())
            reading.candidates, reading.switching = None, []
        reading.state = _NEXT[reading.state]
        self.cache.end_cycle()
        if reading.cycle % _EVICTION_CYCLES == 0:
            factor = self.spec.switching_factor
            self.cache.evict(reading.master.row_bytes, factor, self._tuple_bytes(reading))

    def _begin_counting(self, reading: Reading) -> None:
        waiting = [chunk.rows.only_keys() for chunk in reading.chunks]
        keys = concat(self.spec.stream.keys_only, waiting).sorted().distinct_keys()
        reading.candidates = keys if len(keys) else None
        reading.rows_of = np.zeros(len(keys), np.int64)

    def _tuple_bytes(self, reading: Reading) -> float:
        """Memory that a tuple takes while it waits."""
        rows = sum(len(chunk.rows) for chunk in reading.chunks)
        if rows == 0:
            return float(self.spec.pointer_bytes)
        return sum(self._waiting_bytes(chunk.rows) for chunk in reading.chunks) / rows

    def _worth_caching(self, reading: Reading) -> Batch | None:
        """The counted values that take less memory in the cache than waiting, the best first within it."""
        keys = reading.candidates
        if keys is None:
            return None
        waiting = np.zeros(len(keys), np.int64)
        for chunk in reading.chunks:
            hit = match(chunk.rows, Run("candidates", keys))
            waiting[hit.start] += chunk.rows.groups.count[hit.probe]
        disk = waiting * self._tuple_bytes(reading)
        cache = self.spec.fudge * (reading.rows_of * reading.master.row_bytes + self.cache.value_bytes)
        gains = disk - self.spec.switching_factor * cache
        order = np.argsort(-gains, kind="stable")
        order = order[(gains[order] > 0) & (reading.rows_of[order] > 0)]
        room = self.spec.memory_bytes - self.division().total
        chosen = order[np.cumsum(cache[order]) <= room]
        return keys.take(np.sort(chosen)) if len(chosen) else None

    def _cache_absent(self, reading: Reading, chunk: Chunk) -> None:
        """Values of a chunk that has met every piece and found none of theirs."""
        if not self.spec.caches or reading is not self.readings[-1] or chunk.matched.all():
            return
        absent = chunk.rows.where(~chunk.matched).sorted()
        pays = self.spec.switching_factor * self.spec.fudge * self.cache.value_bytes
        waiting = absent.groups.count * self._tuple_bytes(reading)
        if self.spec.memory_bytes > self.division().total:
            self.cache.add(absent.distinct_keys().where(waiting > pays), self.spec.master.empty())
