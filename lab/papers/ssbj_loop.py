"""The closed loop of a semi-stream join, without Spark: w tuples, a segment of master data, and again.

One turn of the loop is the paper's: w tuples meet the cache or wait, then one segment is read for all that
wait. So many tuples are taken that the memory is just full, as equation 1 says; where it is not enough after
all, the join reads more than one segment in a turn. The service rate is tuples by seconds over whole cycles.
Only the join's own calls are timed: tuples are drawn before, and results are checked after. The latency of a
result is counted in turns from its tuple's to its own.

Every result is summed up (rows, numbers, and tuple number times the first eight bytes of the row's padding,
modulo 2^64) and compared with the same sums of a batch join, over all turns since the start.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lab.papers.ssbj_tables import TableAndStream, stream_layout
from streamjoin.columnar.batch import Batch, Ints
from streamjoin.columnar.keys import hash_keys
from streamjoin.enrich.cost import EnrichLoad
from streamjoin.enrich.operator import EnrichJoin, EnrichSpec, StagedRows
from streamjoin.errors import InvariantBroken

Words = npt.NDArray[np.uint64]
TUPLE_BYTES = 28  # hash, key, number and four bytes more


def tuples(streams: TableAndStream, first: int, count: int) -> Batch:
    """Some tuples as the operator takes them."""
    table = streams.tuples(first, count).combine_chunks()
    key, *others = (table.column(i).combine_chunks() for i in range(3))
    return stream_layout(streams.stream_schema).batch([pa.array(hash_keys([key])), key, *others])


@dataclass
class Sums:
    """Rows, sum of tuple and row numbers, and of products with the padding, modulo 2^64."""

    rows: int = 0
    plain: int = 0
    mixed: int = 0

    def add(self, rows: int, plain: int, mixed: int) -> None:
        self.rows += rows
        self.plain += plain
        self.mixed = (self.mixed + mixed) % (1 << 64)

    def add_results(self, frame: pa.RecordBatch) -> None:
        id_, m = frame.column(1).to_numpy(), frame.column(3).to_numpy()
        mixed = (id_.astype(np.uint64) * first_words(frame.column(4))).sum(dtype=np.uint64)
        self.add(len(id_), int(id_.sum() + m.sum()), int(mixed))


def first_words(pad: Any) -> Words:
    """The first eight bytes of binaries of one width."""
    width = len(pad[0].as_py()) if len(pad) else 8
    start = pad.offset * width
    values = np.frombuffer(pad.buffers()[2], np.uint8)[start : start + width * len(pad)]
    return np.ascontiguousarray(values.reshape(len(pad), width)[:, :8]).view("<u8").ravel()


@dataclass(frozen=True)
class BatchJoin:
    """What all results of some tuples add up to, from sums over the rows of each value."""

    streams: TableAndStream

    @cached_property
    def _by_value(self) -> tuple[Ints, Ints, Words]:
        values = self.streams.rows + 1
        rows, numbers, words = np.zeros(values, np.int64), np.zeros(values, np.int64), np.zeros(values, "<u8")
        for part in self.streams.table():
            key = part["k"].to_numpy()
            np.add.at(rows, key, 1)
            np.add.at(numbers, key, part["m"].to_numpy())
            np.add.at(words, key, first_words(part["pad"].combine_chunks()))
        return rows, numbers, words

    def add(self, sums: Sums, batch: Batch) -> None:
        """The sums of these tuples' results on top."""
        rows, numbers, words = self._by_value
        key, id_ = batch.keys[0].to_numpy(), batch.payload[0].to_numpy()
        plain = int((id_ * rows[key]).sum() + numbers[key].sum())
        sums.add(int(rows[key].sum()), plain, int((id_.astype(np.uint64) * words[key]).sum(dtype=np.uint64)))


@dataclass(frozen=True)
class LoopMeasurement:
    """What some turns of the loop took and gave."""

    w: int
    turns: int
    seconds: float
    cpu_s: float
    results: int
    mean_age: float  # of a result, in turns
    worst_age: int
    hits: int  # tuples that the cache answered
    segments_read: int
    keys_found: int
    bytes_read: int
    memory: dict[str, int]  # as the join counts it, and what its chunks hold

    @property
    def rate(self) -> float:
        """Tuples by second."""
        return self.w * self.turns / self.seconds

    @property
    def loop_s(self) -> float:
        return self.seconds / self.turns

    @property
    def hit_rate(self) -> float:
        return self.hits / (self.w * self.turns)


@dataclass
class ClosedLoop:
    """One join at work in a closed loop."""

    name: str
    join: EnrichJoin
    streams: Any  # Zipf streams, or others where w follows from what waits
    batch_join: BatchJoin
    w: int
    segments: int
    taken: int = 0
    turns: int = 0
    found: Sums = field(default_factory=Sums)
    wanted: Sums = field(default_factory=Sums)
    first_of_turn: list[int] = field(default_factory=list)
    forced: int = 0  # segments read for want of memory, when w was last adapted
    least: int = 1  # tuples a turn, however much is cached: what does not pay leaves in the tenth cycle only

    @classmethod
    def of(cls, name: str, spec: EnrichSpec, table: StagedRows, batch_join: BatchJoin) -> ClosedLoop:
        segments = len(table.segment_bytes)
        join = EnrichJoin(replace(spec, cycle_batches=segments), table)
        return cls(name, join, batch_join.streams, batch_join, 1, segments)

    def run(self, turns: int) -> LoopMeasurement:
        """Some turns with the present w."""
        batch = tuples(self.streams, self.taken, self.w * turns)
        self.batch_join.add(self.wanted, batch)
        before = replace(self.join.counts)
        frames: list[tuple[int, pa.RecordBatch]] = []
        parts = [batch.slice(i * self.w, self.w) for i in range(turns)]
        cpu, began = time.process_time(), time.perf_counter()
        for i, part in enumerate(parts):
            frames += [(self.turns + i, frame) for frame in self.join.process(part)]
            frames += [(self.turns + i, frame) for frame in self.join.step()]
        seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu
        self.first_of_turn += [self.taken + i * self.w for i in range(turns)]
        self.taken += len(batch)
        self.turns += turns
        ages = [self._ages(number, frame) for number, frame in frames]
        results = sum(len(frame) for _, frame in frames)
        division = self.join.division()
        return LoopMeasurement(
            self.w,
            turns,
            seconds,
            cpu_s,
            results,
            sum(float(age.sum()) for age in ages) / max(results, 1),
            max((int(age.max()) for age in ages if len(age)), default=0),
            self.join.counts.hits - before.hits,
            self.join.counts.segments_read - before.segments_read,
            self.join.counts.keys_found - before.keys_found,
            self.join.counts.bytes_read - before.bytes_read,
            {part: getattr(division, part) for part in ("segment", "cache", "waiting", "switching")}
            | {"chunks_held": self._chunk_bytes()},
        )

    def _chunk_bytes(self) -> int:
        """What the chunks really hold: rows, answered ones that are still there too, and the index over
        their keys (24 bytes each) where there is one.
        """
        chunks = [chunk.rows for scan in self.join.scans for chunk in scan.chunks]
        return sum(rows.nbytes + (24 * len(rows.groups) if rows.grouped else 0) for rows in chunks)

    def _ages(self, turn_number: int, frame: pa.RecordBatch) -> Ints:
        self.found.add_results(frame)
        came = np.searchsorted(self.first_of_turn, frame.column(1).to_numpy(), side="right") - 1
        ages: Ints = turn_number - came
        return ages

    def fill(self, share: float) -> None:
        """Take as many tuples a turn as fill this share of the memory (equation 1 of the cost model)."""
        spec, table = self.join.spec, self.join.newest.table
        load = EnrichLoad.of(spec, table, tuple_bytes=TUPLE_BYTES, skew=self.streams.skew)
        self.w = max(int(load.fitting(share * spec.memory_bytes)), 1)

    def adapt(self, share: float) -> None:
        """Take as many tuples a turn as fill this share of the memory, by what is cached and what waits now
        (line 11 of the paper's algorithm); with nothing there, as if all tuples waited for a whole cycle, and
        never fewer than that.
        """
        spec, division = self.join.spec, self.join.division()
        room = share * spec.memory_bytes - division.segment - division.cache - division.switching
        if self.turns == 0:
            one = tuples(self.streams, 0, 1_000).nbytes / 1_000
            self.w = self.least = max(int(room / (self.segments * spec.waiting_bytes(one))), 1)
        else:
            change = room / max(division.waiting, self.join.tuple_bytes)
            forced, self.forced = (
                self.join.counts.segments_forced - self.forced,
                self.join.counts.segments_forced,
            )
            if forced > 0.05 * self.segments:  # it was more than full
                change = min(change, 0.9)
            self.w = max(int(self.w * min(max(change, 0.5), 2.0)), self.least)

    def warm_by_use(self, shares: Sequence[float]) -> None:
        """As `warm`, for data whose share of hits nobody can tell before."""
        for share in shares:
            self.adapt(share)
            self.run(self.segments)

    def warm(self, shares: Sequence[float]) -> None:
        """A cycle for each share of the memory, so that values can move into the cache before it is full."""
        for share in shares:
            self.fill(share)
            self.run(self.segments)

    def check(self) -> None:
        """Let nothing wait, and compare all results since the start with the batch join's."""
        for frame in self.join.finish():
            self.found.add_results(frame)
        if self.found != self.wanted:
            raise InvariantBroken(
                f"{self.name} gave {self.found}, the batch join {self.wanted}; nothing is reported"
            )
