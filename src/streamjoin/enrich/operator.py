"""Semi-stream join: a stream with a table that fits in no memory (MESHJOIN, SSBJ, and index lookups).

Stream tuples first probe the *cache*: a value in it has all its table rows there, or is known to have none,
and its tuples are answered at once. All others wait, in chunks, until the segments they need were read, each
segment once for all tuples that wait: by a scan in an endless cycle over the segments, or by looking up their
keys where that costs less (`scan`, `paper_scan`).

Admission to the cache follows the cache inequality (Theorem 2 of the SSBJ paper): a value with m table rows
and n waiting tuples is cheaper in the cache when n * tuple bytes > sf * m * row bytes. Worked number: 20
bytes a tuple, 120 a row, one row: cached from 7 waiting tuples on. In each cycle a tenth of the values is
looked at, and those are evicted that no longer pay, by their tuples per cycle since they were admitted. That
serves a rate with the least memory.
Where the limit leaves more, other values fill the cache too, so that fewer tuples wait; when memory gets
short they are evicted first, and of a full cache the least frequently met.

Invariant: each scan reads one version of the table, and a chunk finishes with the version it began with.
Memory is counted in bytes (`MemoryDivision`) and stays within the limit: more segments are read before more
tuples wait.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import numpy as np
import pyarrow as pa

from streamjoin.columnar.assemble import assemble, pad
from streamjoin.columnar.batch import NO_TIME, Batch, Ints, Mask, concat
from streamjoin.columnar.match import bounded_slices, expand
from streamjoin.enrich.admission import CacheAdmission
from streamjoin.enrich.cache import TableCache
from streamjoin.enrich.paper_scan import PaperScan
from streamjoin.enrich.scan import OrderedScan, Scan
from streamjoin.enrich.spec import EnrichCounters, EnrichSpec, MemoryDivision, StagedRows
from streamjoin.errors import InvalidJoin
from streamjoin.state.run import Hit, Run
from streamjoin.state.sorted_runs import CompactionPolicy, RunNames, SortedRuns

__all__ = ["EnrichCounters", "EnrichJoin", "EnrichSpec", "MemoryDivision", "StagedRows"]

_COUNTED_EVERY = 8
_STREAM, _TABLE = 0, 1  # as the condition numbers its inputs
# Few tombstones are allowed: compaction frees the memory of evicted values.
_COMPACTION = CompactionPolicy(fanout=8, run_bytes=8 << 20, tombstone_share=0.02)


class EnrichJoin:
    """The running operator: the whole join, or one hash bucket of it."""

    def __init__(self, spec: EnrichSpec, table: StagedRows) -> None:
        self.spec = spec
        self.names = RunNames()
        self.cache = TableCache(spec.table, self.names, _COMPACTION)
        self.waiting_room = SortedRuns("waiting_room", spec.stream, self.names, _COMPACTION)
        self.counts = EnrichCounters()
        self.clock = 0  # segments scanned or skipped
        self.steps = 0  # batches
        self.latest_us: int | None = None
        self.tuple_bytes = spec.waiting_bytes(20)
        self.looks_up = False  # whether the last waiting keys were looked up, not scanned for
        self.scans: list[Scan] = []
        self.admission = CacheAdmission(self)
        self._retried: list[Batch] = []
        self.use(table)

    @property
    def newest(self) -> Scan:
        return self.scans[-1]

    def new_run(self, tag: str, rows: Batch) -> Run:
        """Sorted rows under a name of their own."""
        run = Run(self.names.next(tag), rows)
        self.names.memory_manager.admit(run)
        return run

    # Input

    def use(self, table: StagedRows) -> None:
        """Switch to another version: tuples that come from now on are joined with it."""
        if self.scans and table.version == self.newest.table.version:
            return
        self._check_memory(table)
        paper = self.spec.access == "paper" or table.starts is None
        self.scans.append((PaperScan if paper else OrderedScan)(table, self._watermark()))
        self.cache.clear()
        if self.waiting_room.live_rows:
            self._retried.append(self.waiting_room.live())
            self.waiting_room.tiers = []
        self._forget_old_versions()

    def process(self, rows: Batch) -> Iterator[pa.RecordBatch]:
        """Stream tuples of one batch, or of a part of one."""
        self.counts.rows += len(rows)
        yield from self._retry()
        yield from self._take_in(rows)

    def step(self) -> Iterator[pa.RecordBatch]:
        """End a batch: read the segments that are due, so that no tuple waits longer than `cycle_batches`."""
        self.steps += 1
        yield from self._retry()
        for scan in list(self.scans):
            share = -(-scan.segments // self.spec.cycle_batches)
            if isinstance(scan, OrderedScan) and scan.chunks and scan.segments:
                ahead = [(scan.position + i) % scan.segments for i in range(share)]
                due = sum(scan.table.segment_bytes[segment] for segment in ahead)
                self.looks_up = not self.is_cheaper_whole(
                    scan.distinct_waiting(), due, scan.table, scan.segments
                )
                if self.looks_up:
                    yield from scan.answer_all(self)
                    self.admission.flush()
            yield from self._read(scan, share)
        self._forget_old_versions()
        yield from self._retry()
        if self.spec.cycle_batches == 1 and self.waiting:  # a version came while they waited
            yield from self.step()

    def read(self, segments: int) -> Iterator[pa.RecordBatch]:
        """Read the next segments of the cycle."""
        self.steps += 1
        yield from self._retry()
        for scan in list(self.scans):
            yield from self._read(scan, segments)
        self._forget_old_versions()
        yield from self._retry()

    def advance(self, latest_us: int) -> Iterator[pa.RecordBatch]:
        """Advance the watermark: tuples that waited long enough for a table row leave without one."""
        self.latest_us = latest_us if self.latest_us is None else max(self.latest_us, latest_us)
        watermark = self._watermark()
        if self.spec.wait_us is None or watermark is None:
            return
        for run in list(self.waiting_room.runs):
            rows = run.live_between(-(1 << 63) + 1, watermark - self.spec.wait_us)
            if len(rows):
                run.delete(rows)
                yield from self.leave(run.batch, rows, self.newest.table.version)
        self.waiting_room.drop_tombstoned()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Read on until no tuple waits for a segment; the waiting room stays."""
        while self.waiting:
            yield from self._retry()
            for scan in list(self.scans):
                while scan.chunks:
                    yield from self._read(scan, 1)
            self._forget_old_versions()

    # Figures

    @property
    def waiting(self) -> int:
        return sum(scan.waiting for scan in self.scans) + sum(map(len, self._retried))

    @property
    def in_waiting_room(self) -> int:
        return self.waiting_room.live_rows

    def division(self) -> MemoryDivision:
        """How the memory is used now."""
        collected = sum(one.switching_bytes for one in self.scans if isinstance(one, PaperScan))
        return MemoryDivision(
            max((max(scan.table.segment_bytes, default=0) for scan in self.scans), default=0),
            round(self.spec.fudge * self.cache.nbytes),
            round(sum(scan.waiting for scan in self.scans) * self.tuple_bytes),
            round(self.spec.fudge * self.admission.entering_bytes) + collected,
        )

    def is_cheaper_whole(self, keys: int, nbytes: int, table: StagedRows, segments: int = 1) -> bool:
        """Whether reading so many bytes costs less than finding the rows of so many keys in some segments."""
        if self.spec.access in ("scan", "lookup"):
            return self.spec.access == "scan"
        return table.costs.read(nbytes) <= table.costs.find(keys, segments)

    def free_bytes(self) -> int:
        """What new tuples may take: not what moving values will need."""
        coming = sum(one.coming_bytes for one in self.scans if isinstance(one, PaperScan))
        return self.spec.memory_bytes - self.division().total - coming

    def _check_memory(self, table: StagedRows) -> None:
        least = 2 * max(table.segment_bytes, default=0)
        if self.spec.memory_bytes < least:
            raise InvalidJoin(
                f"memory={self.spec.memory_bytes:,} bytes is too small: a segment of the table and as "
                f"much for what waits need {least:,}; give that, or stage smaller segments"
            )

    def _forget_old_versions(self) -> None:
        self.scans = [one for one in self.scans[:-1] if one.chunks] + self.scans[-1:]

    def _watermark(self) -> int | None:
        return None if self.latest_us is None else self.latest_us - self.spec.lateness_us

    # Tuples

    def _retry(self) -> Iterator[pa.RecordBatch]:
        """Tuples that return from the waiting room meet the newest version."""
        while self._retried:
            rows = self._retried.pop()
            self.counts.retried += len(rows)
            yield from self._take_in(rows)

    def _take_in(self, rows: Batch) -> Iterator[pa.RecordBatch]:
        failing = None if self.spec.where is None else self.spec.where.failing(_STREAM, rows)
        if failing is not None and failing.any():  # no row of any version matches them
            yield from self.leave(rows, np.flatnonzero(failing), self.newest.table.version)
            rows = rows.where(~failing)
        by_key = rows.sorted()
        missed = yield from self._cache_phase(by_key)
        if self.newest.segments == 0:
            yield from self.unmatched(missed, np.arange(len(missed)), self.newest)
        else:
            yield from self._wait(missed)

    def _cache_phase(self, tuples: Batch) -> Generator[pa.RecordBatch, None, Batch]:
        """Answer tuples whose value is cached; returns the others."""
        every = 1 if isinstance(self.newest, PaperScan) else _COUNTED_EVERY
        found = self.cache.look_up(tuples, every if self.steps % every == 0 else 0)
        if not found.known.any():
            return tuples
        version = self.newest.table.version
        known = found.known.copy()
        self.counts.hits += int(tuples.groups.count[known].sum())
        of_rows = tuples.groups.of_rows()
        alone: Mask = known[of_rows]
        for hit in found.hits:
            matched = yield from self.pairs(tuples, hit, version)
            alone[matched] = False
        if alone.any():
            yield from self.unmatched(tuples, np.flatnonzero(alone), self.newest)
        return tuples.where(~found.known[of_rows])

    def _wait(self, rows: Batch) -> Iterator[pa.RecordBatch]:
        """Let tuples wait for their segments; where memory is short, earlier ones finish first."""
        if len(rows):
            each = self.spec.waiting_bytes(rows.nbytes / len(rows))
            self.tuple_bytes = max(each, self.tuple_bytes) if self.waiting else each
        while len(rows):
            count = min(len(rows), max(int(self.free_bytes() // self.tuple_bytes), 0))
            if count == 0 and self.waiting:
                yield from self._make_room()
                continue
            count = max(count, 1)
            some, rows = rows.slice(0, count), rows.slice(count, len(rows) - count)
            self.newest.add(self.new_run("waiting", some))
        before, most = self.admission.waited_bytes
        self.admission.waited_bytes = before, max(most, self.division().waiting)

    def _make_room(self) -> Iterator[pa.RecordBatch]:
        """Free memory: read the next segment, or look up all waiting keys if that costs less."""
        was_short, self.admission.short_at = self.admission.is_short, self.clock
        if not was_short and self.admission.evict_what_does_not_pay():
            return
        scan = next(one for one in self.scans if one.chunks)
        before = self.counts.segments_read
        if isinstance(scan, OrderedScan) and not self.is_cheaper_whole(
            scan.waiting, sum(scan.table.segment_bytes), scan.table, scan.segments
        ):
            yield from scan.answer_all(self)
            self.admission.flush()
        else:
            yield from self._read(scan, 1)
        self.counts.segments_forced += self.counts.segments_read - before

    def candidates(self, rows: Batch) -> Batch:
        """Of rows of the table those that can match."""
        failing = None if self.spec.where is None else self.spec.where.failing(_TABLE, rows)
        return rows if failing is None or not failing.any() else rows.where(~failing)

    def pairs(self, tuples: Batch, hit: Hit, version: str) -> Generator[pa.RecordBatch, None, Ints]:
        """Results of sorted tuples with the rows that a probe for their keys found, in frames; returns the
        tuples that have any.
        """
        groups, table = tuples.groups, hit.run.batch
        rest = None if self.spec.where is None else self.spec.where.joined
        matched = []
        key, mine = expand(groups.start[hit.probe], groups.count[hit.probe])
        start, count = hit.start[key], hit.count[key]
        for cut in bounded_slices(count, limit=self.spec.frame_rows):
            parent, theirs = expand(start[cut], count[cut])
            joined = [(tuples, mine[cut][parent]), (table, theirs)]
            if rest is not None:
                passing = rest.passing(assemble(joined, rest.joined))
                joined = [(batch, rows[passing]) for batch, rows in joined]
                matched.append(joined[0][1])
            results = len(joined[0][1])
            self.counts.results += results
            versions = [pa.repeat(version, results)] if self.spec.emits_version else []
            yield assemble(joined, self.spec.output, versions)
        return mine if rest is None else np.concatenate([np.empty(0, np.int64), *matched])

    def unmatched(self, tuples: Batch, rows: Ints, scan: Scan) -> Iterator[pa.RecordBatch]:
        """Tuples that have no table row in a version: they leave, or wait for a row that comes late."""
        if len(rows) == 0:
            return
        if self.spec.wait_us is not None:
            watermark = self._watermark()
            if scan is not self.newest:  # a version came while they waited: it may have their row
                came = self.newest.began_us
                again = _still(tuples.time[rows], self.spec.wait_us, came)
                self._retried += [tuples.take(rows[again])] if again.any() else []
                rows = rows[~again]
            stays = _still(tuples.time[rows], self.spec.wait_us, watermark)
            self.waiting_room.append(tuples.take(rows[stays]).sorted())
            rows = rows[~stays]
        yield from self.leave(tuples, rows, scan.table.version)

    def leave(self, tuples: Batch, rows: Ints, version: str) -> Iterator[pa.RecordBatch]:
        """Emit tuples without a table row: padded in a left join, else only counted."""
        self.counts.unmatched += len(rows)
        if not self.spec.preserves or len(rows) == 0:
            return
        self.counts.results += len(rows)
        padded = pad((tuples, rows), len(self.spec.stream.key_types), self.spec.output)
        if self.spec.emits_version:
            last = padded.num_columns - 1
            padded = padded.set_column(last, self.spec.output.field(last), pa.repeat(version, len(rows)))
        yield padded

    # The table

    def _read(self, scan: Scan, segments: int) -> Iterator[pa.RecordBatch]:
        """Scan the next segments; those that no tuple waits for are skipped."""
        if isinstance(scan, OrderedScan) and scan.chunks and not scan.segments:  # it was rebucketed
            tuples = concat(self.spec.stream, scan.unanswered())
            scan.chunks, scan.waiting = [], 0
            yield from self.unmatched(tuples, np.arange(len(tuples)), scan)
        for _ in range(segments if scan.segments else 0):
            self.clock += scan is self.newest
            yield from scan.visit(self)
        self.admission.flush()


def _still(times: Ints, wait_us: int, watermark: int | None) -> Mask:
    """Which tuples may wait on: they have a time, and the watermark is not past it by more than the wait."""
    waits: Mask = (times != NO_TIME) & (times + wait_us >= (NO_TIME if watermark is None else watermark))
    return waits
