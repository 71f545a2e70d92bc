"""SSBJ, semi-stream balanced join, by its Algorithm 1; numbers in brackets are its lines.

MESHJOIN behind a cache of master data. A stream tuple whose value is cached is answered at once [15-23]; the
others wait for one cycle of R [24-41]. In a cycle of three R-cycles values move into the cache: in the first
their tuples of R are counted [28-29], in the second those for which mdisk > sf · mcache are loaded into the
switching buffer [30-36], at the start of the third they enter the cache [9-13]. Every tenth R-cycle evicts
values whose frequency no longer pays [42-51].

Worked number (figure 3, equal sizes): value 30 has 3 waiting tuples and 2 tuples of R: 3 > 2, it moves. Value
10 has 3 and 4: it stays.

Where the lines as printed would answer wrongly or never act, the text beside them decides:

- A value moves with all its tuples of R or not at all. Whether it is in H_S when a tuple of R passes may
  change within a cycle, so the values that wait at the start of the counting cycle are the candidates, all
  their tuples are counted, and [33] decides once for each, at its first tuple of the switching cycle.
- A value without tuples of R never meets [26]. The text says it is stored "with no master data tuple": it
  enters when its count is 0 and it still has waiting tuples. `absent=False` leaves it out.
- [42] is in the inner loop, which would count anew in every step and evict all in the second: here it is at
  the start of the tenth R-cycle.
- The count of [45] runs for ten R-cycles only for values that were cached that long; it is divided by the
  R-cycles it ran.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lab.reference.elements import Output, Row, Work
from lab.reference.meshjoin import Disk, Waiting


@dataclass(frozen=True)
class Sizes:
    """Bytes of a stream tuple, a tuple of R and a pointer (Table 2), the fudge factor, and all memory."""

    stream: int = 20
    relation: int = 120
    pointer: int = 4
    fudge: float = 1.0
    memory: int | None = None  # M; None: as much as comes


@dataclass(slots=True)
class Cached:
    """A value of H_R: its tuples of R, how often it came, and since which R-cycle that is counted."""

    rows: list[Row]
    since: int
    came: int = 0


@dataclass
class Migration:
    """What is on its way into the cache."""

    counts: dict[int, int] = field(default_factory=dict)  # s_count, of the candidates
    chosen: dict[int, bool] = field(default_factory=dict)  # as [33] decided
    buffer: dict[int, list[Row]] = field(default_factory=dict)  # sB


class SSBJ:
    """`step` takes stream tuples and reads one partition; results are (stream tuple, tuple of R)."""

    def __init__(
        self,
        relation: Sequence[Row],
        *,
        partition: int,
        sizes: Sizes | None = None,
        switching_factor: float = 1.0,
        absent: bool = True,
        page: int = 100,
    ) -> None:
        self.work, self.output = Work(), Output()
        self.sizes = sizes or Sizes()
        self.disk = Disk(relation, partition, self.work, page)
        self.waiting = Waiting()
        self.cache: dict[int, Cached] = {}
        self.cached_rows = self.hits = self.cycle = 0
        self._factor, self._absent = switching_factor, absent
        self._moving = Migration()
        self.chunk = self._adapted()

    def step(self, stream: Iterator[Row], most: int | None = None) -> int:
        """One iteration; reads up to `most` tuples, or until the chunk for the disk phase is full.

        Gives how many tuples it read.
        """
        if self.disk.begins:
            self._new_cycle()
        read, missed = self._cache_phase(stream, most)
        self.waiting.add(missed)
        for row in self.disk.read():
            self._disk_phase(row)
        if len(self.waiting.queue) == len(self.disk.partitions):
            self.waiting.expire()
        return read

    def finish(self) -> None:
        """Steps without stream tuples until none waits."""
        while self.waiting.rows:
            self.step(iter(()))

    @property
    def bytes(self) -> float:
        """Of both hash tables and the queue."""
        sizes = self.sizes
        waiting = self.waiting.rows * (sizes.fudge * sizes.stream + sizes.pointer)
        return waiting + self.cached_rows * sizes.relation * sizes.fudge

    # The state machine [3-14]

    def _new_cycle(self) -> None:
        self.cycle += 1
        state = self.cycle % 3
        if state == 1:
            self._moving = Migration(counts=dict.fromkeys(self.waiting.table, 0))
        elif state == 2:
            self._choose_absent()
        else:
            self._to_cache()
        if self.cycle % 10 == 0:
            self._evict()

    def _choose_absent(self) -> None:
        if self._absent:
            for value, count in self._moving.counts.items():
                if count == 0 and value in self.waiting.table:
                    self._moving.buffer[value] = []

    def _to_cache(self) -> None:
        for value, rows in self._moving.buffer.items():
            self.cache[value] = Cached(rows, self.cycle)
            self.cached_rows += len(rows)
        self._moving = Migration()
        self.chunk = self._adapted()

    def _adapted(self) -> int | None:
        """w_S such that both hash tables, the queue and the disk buffer take M: equation 1."""
        sizes = self.sizes
        if sizes.memory is None:
            return None
        buffer = len(self.disk.partitions[0]) * sizes.relation
        left = sizes.memory - buffer - self.cached_rows * sizes.relation * sizes.fudge
        each = len(self.disk.partitions) * (sizes.pointer + sizes.fudge * sizes.stream)
        return max(int(left / each), 1)

    def _evict(self) -> None:
        """[42-51]"""
        for value, cached in list(self.cache.items()):
            ran = self.cycle - cached.since
            if ran == 0:
                continue
            in_cache = len(cached.rows) * self.sizes.relation
            on_disk = cached.came / ran * self.sizes.stream
            if in_cache >= self._factor * on_disk:
                del self.cache[value]
                self.cached_rows -= len(cached.rows)
            cached.came, cached.since = 0, self.cycle

    # The two phases

    def _cache_phase(self, stream: Iterator[Row], most: int | None) -> tuple[int, list[Row]]:
        """[15-23]"""
        read, missed = 0, list[Row]()
        while (most is None or read < most) and (self.chunk is None or len(missed) < self.chunk):
            row = next(stream, None)
            if row is None:
                break
            read += 1
            self.work.probes += 1
            cached = self.cache.get(row.key)
            if cached is None:
                missed.append(row)
            else:
                self.hits += 1
                cached.came += 1
                self.output.rows += [(row, master) for master in cached.rows]
        return read, missed

    def _disk_phase(self, row: Row) -> None:
        """[25-38]"""
        self.work.probes += 1
        waiting = self.waiting.table.get(row.key)
        if waiting is not None:
            self.output.rows += [(one, row) for one in waiting]
        state = self.cycle % 3
        if state == 1 and row.key in self._moving.counts:
            self._moving.counts[row.key] += 1
        elif state == 2 and row.key in self._moving.counts and self._pays(row.key):
            self._moving.buffer.setdefault(row.key, []).append(row)

    def _pays(self, value: int) -> bool:
        """[31-33], once a cycle for each value."""
        chosen = self._moving.chosen
        if value not in chosen:
            on_disk = len(self.waiting.table.get(value, ())) * self.sizes.stream
            in_cache = self._moving.counts[value] * self.sizes.relation
            chosen[value] = on_disk > self._factor * in_cache
        return chosen[value]
