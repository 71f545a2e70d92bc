"""SemiStreamJoin: a stream joined with master data that fits in no memory (MESHJOIN, SSBJ and beyond).

Stream tuples first meet the *cache*: a value in it has all its master rows there, or is known to have none,
and its tuples are answered at once. All others wait, in chunks, until the pieces they need were read, each
piece once for all tuples that wait: in an endless cycle over the pieces, or by looking up their keys where
that costs less (`reading`, `paper_reading`).

What is cached follows the cache inequality (Theorem 2 of the SSBJ paper): a value with m master rows and n
tuples waiting is cheaper in the cache when n * stream tuple > sf * m * master row, in bytes. Worked number:
20 bytes a tuple, 120 a row, one row: cached from 7 waiting tuples on. Every ten cycles values leave that no
longer pay, by their tuples per cycle since they came. That is what serves a rate with the least memory. Where
the limit leaves more, other values fill the cache too, for fewer tuples then wait; when memory gets short
those leave first, and of a full cache the least often met.

Each reading of the master data is of one version; a chunk finishes with the version it began with. Memory is
counted in bytes (`Division`) and kept within the limit by reading more pieces before more tuples wait.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import numpy as np
import pyarrow as pa

from streamjoin.columnar.assemble import assemble, pad
from streamjoin.columnar.batch import NO_TIME, Batch, Ints, Mask, concat
from streamjoin.columnar.match import bounded_slices, expand
from streamjoin.enrich.cache import Floats, TableCache, Values
from streamjoin.enrich.paper_scan import PaperReading
from streamjoin.enrich.scan import OrderedReading, Reading
from streamjoin.enrich.spec import Division, EnrichCounters, EnrichSpec, Master
from streamjoin.errors import InvalidJoin
from streamjoin.state.run import Hit, Run
from streamjoin.state.sorted_runs import CompactionPolicy, RunNames, SortedRuns

__all__ = ["Division", "EnrichCounters", "EnrichJoin", "EnrichSpec", "Master"]

_EVICTION_CYCLES = 10
_EVICTION_STEPS = 50  # of a full cache, at least: it is written anew
_COUNTED_EVERY = 8
_CACHE_SHARE = 0.9  # of the memory beside a piece: the rest is for what waits within a batch
_WAITING_SHARE = 0.02  # of the memory stays for what waits, whatever pays
_SHRINK_TO = 0.8  # of that, when the least met values leave to make room
_MERGING = CompactionPolicy(
    fanout=8, run_bytes=8 << 20, tombstone_share=0.02
)  # what was evicted frees its memory


class EnrichJoin:
    """One such join, or one hash bucket of it, at work."""

    def __init__(self, spec: EnrichSpec, master: Master) -> None:
        self.spec = spec
        self.names = RunNames()
        self.cache = TableCache(spec.master, self.names, _MERGING)
        self.room = SortedRuns("room", spec.stream, self.names, _MERGING)
        self.counts = EnrichCounters()
        self.clock = 0  # pieces passed
        self.steps = 0  # batches
        self.shrunk_at = (0, 0)  # clock and steps when values last left a full cache
        self.latest_us: int | None = None
        self.tuple_bytes = spec.waiting_bytes(20)
        self.looks_up = False  # whether what waited last was looked up
        self.short_at: int | None = None  # when memory was last short
        self.waited_bytes = (0, 0)  # the most that waited in the last cycle and in this one
        self.readings: list[Reading] = []
        self._coming: list[tuple[Batch, Batch, Ints, Ints]] = []
        self._returning: list[Batch] = []
        self.use(master)

    @property
    def newest(self) -> Reading:
        return self.readings[-1]

    def new_run(self, tag: str, rows: Batch) -> Run:
        """Sorted rows under a name of their own."""
        run = Run(self.names.next(tag), rows)
        self.names.memory_manager.admit(run)
        return run

    # What comes in

    def use(self, master: Master) -> None:
        """Another version: tuples that come from now on are joined with it."""
        if self.readings and master.version == self.newest.master.version:
            return
        self._check_memory(master)
        paper = self.spec.access == "paper" or master.starts is None
        self.readings.append((PaperReading if paper else OrderedReading)(master, self._progress()))
        self.cache.clear()
        if self.room.live_rows:
            self._returning.append(self.room.live())
            self.room.tiers = []
        self._forget_old_versions()

    def process(self, rows: Batch) -> Iterator[pa.RecordBatch]:
        """Stream tuples of one batch, or of a part of one."""
        self.counts.rows += len(rows)
        yield from self._retry()
        yield from self._take_in(rows)

    def step(self) -> Iterator[pa.RecordBatch]:
        """The end of a batch: what is due is read, so that no tuple waits longer than `cycle_batches`."""
        self.steps += 1
        yield from self._retry()
        for reading in list(self.readings):
            share = -(-reading.pieces // self.spec.cycle_batches)
            if isinstance(reading, OrderedReading) and reading.chunks:
                ahead = [(reading.position + i) % reading.pieces for i in range(share)]
                due = sum(reading.master.piece_bytes[piece] for piece in ahead)
                self.looks_up = not self.is_cheaper_whole(
                    reading.distinct_waiting(), due, reading.master, reading.pieces
                )
                if self.looks_up:
                    yield from reading.answer_all(self)
                    self._into_cache()
            yield from self._read(reading, share)
        self._forget_old_versions()
        yield from self._retry()
        if self.spec.cycle_batches == 1 and self.waiting:  # a version came while they waited
            yield from self.step()

    def read(self, pieces: int) -> Iterator[pa.RecordBatch]:
        """The next pieces of the cycle."""
        self.steps += 1
        yield from self._retry()
        for reading in list(self.readings):
            yield from self._read(reading, pieces)
        self._forget_old_versions()
        yield from self._retry()

    def advance(self, latest_us: int) -> Iterator[pa.RecordBatch]:
        """Event time has got so far: who waited long enough for a master row leaves without."""
        self.latest_us = latest_us if self.latest_us is None else max(self.latest_us, latest_us)
        progress = self._progress()
        if self.spec.wait_us is None or progress is None:
            return
        for run in list(self.room.runs):
            rows = run.live_between(-(1 << 63) + 1, progress - self.spec.wait_us)
            if len(rows):
                run.delete(rows)
                yield from self.leave(run.batch, rows, self.newest.master.version)
        self.room.drop_tombstoned()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Read on until nothing waits; the waiting room stays."""
        while self.waiting:
            yield from self._retry()
            for reading in list(self.readings):
                while reading.chunks:
                    yield from self._read(reading, 1)
            self._forget_old_versions()

    # What is asked for

    @property
    def waiting(self) -> int:
        return sum(reading.waiting for reading in self.readings) + sum(map(len, self._returning))

    @property
    def in_room(self) -> int:
        return self.room.live_rows

    def division(self) -> Division:
        """How the memory is divided now."""
        entering = [batch for rows, absent, *_ in self._coming for batch in (rows, absent)]
        coming = sum(batch.nbytes + 8 * len(batch) for batch in entering)
        collected = sum(one.switching_bytes for one in self.readings if isinstance(one, PaperReading))
        return Division(
            max((max(reading.master.piece_bytes, default=0) for reading in self.readings), default=0),
            round(self.spec.fudge * self.cache.nbytes),
            round(sum(reading.waiting for reading in self.readings) * self.tuple_bytes),
            round(self.spec.fudge * coming) + collected,
        )

    def is_cheaper_whole(self, keys: int, nbytes: int, master: Master, pieces: int = 1) -> bool:
        """Whether reading so many bytes costs less than finding the rows of so many keys in some pieces."""
        if self.spec.access in ("scan", "lookup"):
            return self.spec.access == "scan"
        return master.costs.read(nbytes) <= master.costs.find(keys, pieces)

    def _free_bytes(self) -> int:
        return self.spec.memory_bytes - self.division().total

    def _check_memory(self, master: Master) -> None:
        least = 2 * max(master.piece_bytes, default=0)
        if self.spec.memory_bytes < least:
            raise InvalidJoin(
                f"memory={self.spec.memory_bytes:,} bytes is too small: a piece of the master data and as "
                f"much for what waits need {least:,}; give that, or stage smaller pieces"
            )

    def _forget_old_versions(self) -> None:
        self.readings = [one for one in self.readings[:-1] if one.chunks] + self.readings[-1:]

    def _progress(self) -> int | None:
        return None if self.latest_us is None else self.latest_us - self.spec.lateness_us

    # Tuples

    def _retry(self) -> Iterator[pa.RecordBatch]:
        """Tuples that return from the waiting room meet the newest version."""
        while self._returning:
            rows = self._returning.pop()
            self.counts.retried += len(rows)
            yield from self._take_in(rows)

    def _take_in(self, rows: Batch) -> Iterator[pa.RecordBatch]:
        by_key = rows.sorted()
        missed = yield from self._cache_phase(by_key)
        if self.newest.pieces == 0:
            yield from self.unmatched(missed, np.arange(len(missed)), self.newest)
        else:
            yield from self._wait(missed)

    def _cache_phase(self, tuples: Batch) -> Generator[pa.RecordBatch, None, Batch]:
        """Answer what the cache knows; returns the other tuples."""
        every = 1 if isinstance(self.newest, PaperReading) else _COUNTED_EVERY
        found = self.cache.look_up(tuples, every if self.steps % every == 0 else 0)
        if not found.known.any():
            return tuples
        version = self.newest.master.version
        known = found.known.copy()
        self.counts.hits += int(tuples.groups.count[known].sum())
        for hit in found.hits:
            known[hit.probe] = False  # those that stay have no master rows
            yield from self.pairs(tuples, hit, version)
        of_rows = tuples.groups.of_rows()
        if known.any():
            yield from self.unmatched(tuples, np.flatnonzero(known[of_rows]), self.newest)
        return tuples.where(~found.known[of_rows])

    def _wait(self, rows: Batch) -> Iterator[pa.RecordBatch]:
        """Tuples that need a piece; where memory is short, others finish first."""
        if len(rows):
            each = self.spec.waiting_bytes(rows.nbytes / len(rows))
            self.tuple_bytes = max(each, self.tuple_bytes) if self.waiting else each
        while len(rows):
            count = min(len(rows), max(int(self._free_bytes() // self.tuple_bytes), 0))
            if count == 0 and self.waiting:
                yield from self._make_room()
                continue
            count = max(count, 1)
            some, rows = rows.slice(0, count), rows.slice(count, len(rows) - count)
            self.newest.add(self.new_run("waiting", some))
        self.waited_bytes = self.waited_bytes[0], max(self.waited_bytes[1], self.division().waiting)

    def _make_room(self) -> Iterator[pa.RecordBatch]:
        """Memory is short: read on, or look up all that wait if that costs less."""
        was_short, self.short_at = self.is_short, self.clock
        if not was_short and self._evict_what_does_not_pay():
            return
        reading = next(one for one in self.readings if one.chunks)
        before = self.counts.pieces_read
        if isinstance(reading, OrderedReading) and not self.is_cheaper_whole(
            reading.waiting, sum(reading.master.piece_bytes), reading.master, reading.pieces
        ):
            yield from reading.answer_all(self)
            self._into_cache()
        else:
            yield from self._read(reading, 1)
        self.counts.pieces_forced += self.counts.pieces_read - before

    def pairs(self, tuples: Batch, hit: Hit, version: str) -> Iterator[pa.RecordBatch]:
        """Results of sorted tuples with the rows that a probe for their keys found, in frames."""
        groups, master = tuples.groups, hit.run.batch
        key, mine = expand(groups.start[hit.probe], groups.count[hit.probe])
        start, count = hit.start[key], hit.count[key]
        for cut in bounded_slices(count, limit=self.spec.frame_rows):
            parent, theirs = expand(start[cut], count[cut])
            self.counts.results += len(theirs)
            told = [pa.repeat(version, len(theirs))] if self.spec.tells_version else []
            yield assemble([(tuples, mine[cut][parent]), (master, theirs)], self.spec.output, told)

    def unmatched(self, tuples: Batch, rows: Ints, reading: Reading) -> Iterator[pa.RecordBatch]:
        """Tuples that have no master row in a version: they leave, or wait for a row that comes late."""
        if len(rows) == 0:
            return
        if self.spec.wait_us is not None:
            progress = self._progress()
            if reading is not self.newest:  # a version came while they waited: it may have their row
                came = self.newest.began_us
                again = _still(tuples.time[rows], self.spec.wait_us, came)
                self._returning += [tuples.take(rows[again])] if again.any() else []
                rows = rows[~again]
            stays = _still(tuples.time[rows], self.spec.wait_us, progress)
            self.room.append(tuples.take(rows[stays]).sorted())
            rows = rows[~stays]
        yield from self.leave(tuples, rows, reading.master.version)

    def leave(self, tuples: Batch, rows: Ints, version: str) -> Iterator[pa.RecordBatch]:
        """Without a master row: padded in a left join."""
        self.counts.unmatched += len(rows)
        if not self.spec.preserves or len(rows) == 0:
            return
        self.counts.results += len(rows)
        padded = pad((tuples, rows), len(self.spec.stream.key_types), self.spec.output)
        if self.spec.tells_version:
            last = padded.num_columns - 1
            padded = padded.set_column(last, self.spec.output.field(last), pa.repeat(version, len(rows)))
        yield padded

    # Master data

    def _read(self, reading: Reading, pieces: int) -> Iterator[pa.RecordBatch]:
        """The next pieces, as far as it is of use; where nothing waits they are only passed."""
        for _ in range(pieces if reading.pieces else 0):
            self.clock += reading is self.newest
            yield from reading.visit(self)
        self._into_cache()

    # What is cached

    def worth_caching(self, waiting: Ints, master_rows: Ints, *, waits: float, scanned: bool) -> Mask:
        """Which values enter the cache, by tuples a cycle and master rows: the best within the memory."""
        cost = self.cache_cost(master_rows)
        pays: Mask = waits * waiting * self.tuple_bytes > self.spec.switching_factor * cost
        strict = scanned and self.is_short
        worth: Mask = pays.copy() if strict else np.ones(len(waiting), np.bool_)
        if not worth.any():
            return worth
        place = max(self.tuple_bytes, _WAITING_SHARE * self.spec.memory_bytes)  # for tuples that come
        free = spare = self._free_bytes() - int(place)
        if not strict:
            limit = self._cache_limit() - self.spec.fudge * self.cache.nbytes
            if limit < cost[worth].sum() and self.may_shrink:
                self._shrink()
                limit = self._cache_limit() - self.spec.fudge * self.cache.nbytes
            spare = min(free, int(limit) - self.division().switching)
        if cost[worth].sum() > spare:
            order = np.argsort(-(waiting / cost), kind="stable")  # those that pay are first
            order = order[worth[order]]
            room = np.where(pays[order], free, spare)
            worth[order[np.cumsum(cost[order]) > room]] = False
        return worth

    def cache_cost(self, master_rows: Ints) -> Floats:
        """What values with so many rows each take in the cache, in bytes."""
        each = self.newest.master.row_bytes + 8.0
        cost: Floats = self.spec.fudge * np.where(master_rows > 0, master_rows * each, self.cache.value_bytes)
        return cost

    def _cache_limit(self) -> float:
        """So much the cache may take where memory is not short: what waits keeps its place."""
        beside = self.division().piece + max(self.waited_bytes)
        return max(_CACHE_SHARE * (self.spec.memory_bytes - beside), 0.0)

    @property
    def may_shrink(self) -> bool:
        cycles, steps = self.shrunk_at
        long_ago = self.clock - cycles >= _EVICTION_CYCLES * self.newest.pieces
        return long_ago and self.steps - steps >= _EVICTION_STEPS

    @property
    def is_short(self) -> bool:
        """Whether memory was short lately; then only what pays is cached, as in the paper always."""
        if isinstance(self.newest, PaperReading) or not self.spec.fills:
            return True
        lately = _EVICTION_CYCLES * self.newest.pieces
        return self.short_at is not None and self.clock - self.short_at <= lately

    def take_into_cache(self, rows: Batch, absent: Batch, met: tuple[Ints, Ints]) -> None:
        """Values with all their rows, and values known to have none; `met`: tuples of each row's value."""
        if len(rows) or len(absent):
            self._coming.append((rows, absent, *met))

    def _into_cache(self) -> None:
        """What was found worth it enters, all at once."""
        if not self._coming:
            return
        rows, absent, met, met_absent = zip(*self._coming, strict=True)
        self._coming = []
        since = self.clock - max(self.newest.pieces // (self.spec.cycle_batches if self.looks_up else 1), 1)
        self.counts.admitted += self.cache.add(
            concat(self.spec.master, rows),
            concat(self.spec.master.keys_only, absent),
            (np.concatenate(met), np.concatenate(met_absent)),
            max(since, 0),
        )

    def end_cycle(self, cycle: int, *, waits: float) -> None:
        """Every ten cycles values leave that do not pay."""
        self._into_cache()
        self.waited_bytes = self.waited_bytes[1], 0
        if cycle % _EVICTION_CYCLES == 0 and self.is_short and not self.looks_up:
            self._evict_what_does_not_pay(waits=waits)

    def _evict_what_does_not_pay(self, *, waits: float = 0.5) -> int:
        """Values leave whose tuples would take less memory waiting; counting begins again."""
        if not self.spec.caches:
            return 0

        def pays(values: Values) -> Mask:
            cycles = np.maximum(values.age / max(self.newest.pieces, 1), 1)
            waiting = values.met / cycles * waits * self.tuple_bytes
            kept: Mask = (self.cache_cost(values.rows) < self.spec.switching_factor * waiting) | (
                values.age < self.newest.pieces
            )
            return kept

        gone = self.cache.evict(self.clock, pays)
        self.cache.fade(self.clock, forget=True)
        self.counts.evicted += gone
        return gone

    def _shrink(self) -> None:
        """The values met least often for their bytes leave until there is room for others."""
        target = _SHRINK_TO * self._cache_limit()

        def best(values: Values) -> Mask:
            usual = values.age.mean() if len(values.age) else 0.0
            cost = self.cache_cost(values.rows)
            order = np.argsort(-values.met / (values.age + usual + 1) / cost, kind="stable")
            kept: Mask = np.zeros(len(order), np.bool_)
            kept[order[np.cumsum(cost[order]) <= target]] = True
            return kept

        self.counts.evicted += self.cache.evict(self.clock, best)
        self.cache.fade(self.clock, forget=False)
        self.shrunk_at = self.clock, self.steps


def _still(times: Ints, wait_us: int, progress: int | None) -> Mask:
    """Which tuples may wait on: event time has not passed theirs by more than the wait; those have one."""
    waits: Mask = (times != NO_TIME) & (times + wait_us >= (NO_TIME if progress is None else progress))
    return waits
