"""Cache admission and eviction of a semi-stream join, by the cache inequality of the SSBJ paper (Theorem 2).

A value with m table rows and n waiting tuples pays when n * tuple bytes > sf * m * row bytes. Where memory
was short lately only values that pay are admitted, and those that no longer pay are evicted, a tenth of the
values being looked at in each cycle: all at once would make the memory in use a sawtooth.
Else all values that fit are admitted, and of a full cache the least frequently met are evicted, rarely: that
rewrites its runs. Admitted values are collected and added at once, so that a batch makes few runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import proxy

import numpy as np

from streamjoin.columnar.batch import Batch, Ints, Mask, concat
from streamjoin.enrich.cache import CachedValues, Floats
from streamjoin.enrich.paper_scan import PaperScan

if TYPE_CHECKING:
    from streamjoin.enrich.operator import EnrichJoin

_EVICTION_CYCLES = 10  # within so many each value is looked at, a tenth in each cycle
_ABSENT_TUPLES = 3  # a value without table rows is remembered from so many waiting tuples on
_SWITCHING_SHARE = 0.1  # of the memory is the most that the switching buffer holds
_EVICTION_STEPS = 50  # batches between evictions from a full cache, at least: each rewrites its runs
_CACHE_SHARE = 0.9  # of the memory beside a segment: the rest is for tuples that wait within a batch
_WAITING_SHARE = 0.02  # of the memory is kept for waiting tuples, whatever pays
_SHRINK_TO = 0.8  # of the cache limit, when the least frequent values are evicted


class CacheAdmission:
    """Which values enter and leave the cache of a join."""

    def __init__(self, join: EnrichJoin) -> None:
        self.join: EnrichJoin = proxy(join)  # no cycle: a join that is dropped frees its memory at once
        self.shrunk_at = (0, 0)  # clock and steps at the last eviction from a full cache
        self.short_at: int | None = None  # when memory was last short
        self.waited_bytes = (0, 0)  # the most bytes of waiting tuples, in the last cycle and in this one
        self._entering: list[tuple[Batch, Batch, Ints, Ints]] = []

    @property
    def entering_bytes(self) -> int:
        """Of admitted values that are not in the cache yet."""
        entering = [batch for rows, absent, *_ in self._entering for batch in (rows, absent)]
        return sum(batch.nbytes + 8 * len(batch) for batch in entering)

    def worth(
        self, waiting: Ints, table_rows: Ints, *, waits: float, scanned: bool, buffer_bytes: int = 0
    ) -> Mask:
        """Which values are admitted, by their tuples a cycle and table rows: the best within the memory, or
        within the switching buffer where that is more.
        """
        cost = self.cost(table_rows)
        pays: Mask = waits * waiting * self.join.tuple_bytes > self.join.spec.switching_factor * cost
        pays &= (table_rows > 0) | (waiting >= _ABSENT_TUPLES)
        strict = scanned and self.is_short
        worth: Mask = pays.copy() if strict else np.ones(len(waiting), np.bool_)
        if not worth.any():
            return worth
        place = max(self.join.tuple_bytes, _WAITING_SHARE * self.join.spec.memory_bytes)  # for new tuples
        free = spare = max(self.join.free_bytes() - int(place), buffer_bytes)
        if not strict:
            limit = self._cache_limit() - self.join.spec.fudge * self.join.cache.nbytes
            if limit < cost[worth].sum() and self.may_shrink:
                self._shrink()
                limit = self._cache_limit() - self.join.spec.fudge * self.join.cache.nbytes
            spare = min(free, int(limit) - self.join.division().switching)
        if cost[worth].sum() > spare:
            order = np.argsort(-(waiting / cost), kind="stable")  # those that pay are first
            order = order[worth[order]]
            budget = np.where(pays[order], free, spare)
            worth[order[np.cumsum(cost[order]) > budget]] = False
        return worth

    def switching_buffer_bytes(self) -> int:
        """How much may move at once, free or not: what waits for it leaves, and makes room."""
        division, memory = self.join.division(), self.join.spec.memory_bytes
        kept = division.segment + division.cache + int(_WAITING_SHARE * memory)
        return max(min(int(_SWITCHING_SHARE * memory), memory - kept), 0)

    def cost(self, table_rows: Ints) -> Floats:
        """What values with so many rows each take in the cache, in bytes."""
        each = self.join.newest.table.row_bytes + 8.0
        cost: Floats = self.join.spec.fudge * np.where(
            table_rows > 0, table_rows * each, self.join.cache.value_bytes
        )
        return cost

    def _cache_limit(self) -> float:
        """The most bytes of the cache where memory is not short: waiting tuples keep their share."""
        beside = self.join.division().segment + max(self.waited_bytes)
        return max(_CACHE_SHARE * (self.join.spec.memory_bytes - beside), 0.0)

    @property
    def may_shrink(self) -> bool:
        cycles, steps = self.shrunk_at
        long_ago = self.join.clock - cycles >= _EVICTION_CYCLES * self.join.newest.segments
        return long_ago and self.join.steps - steps >= _EVICTION_STEPS

    @property
    def is_short(self) -> bool:
        """Whether memory was short lately; then only values that pay are cached, as in the paper always."""
        if isinstance(self.join.newest, PaperScan) or not self.join.spec.fills:
            return True
        lately = _EVICTION_CYCLES * self.join.newest.segments
        return self.short_at is not None and self.join.clock - self.short_at <= lately

    def take(self, rows: Batch, absent: Batch, met: tuple[Ints, Ints]) -> None:
        """Admit values with all their rows, and values without any; `met`: tuples of each row's value."""
        if len(rows) or len(absent):
            self._entering.append((rows, absent, *met))

    def flush(self) -> None:
        """Add all admitted values at once."""
        if not self._entering:
            return
        rows, absent, met, met_absent = zip(*self._entering, strict=True)
        self._entering = []
        since = self.join.clock - max(
            self.join.newest.segments // (self.join.spec.cycle_batches if self.join.looks_up else 1), 1
        )
        self.join.counts.admitted += self.join.cache.add(
            concat(self.join.spec.table, rows),
            concat(self.join.spec.table.keys_only, absent),
            (np.concatenate(met), np.concatenate(met_absent)),
            max(since, 0),
        )

    def end_cycle(self, cycle: int, *, waits: float) -> None:
        """Evict the values that do not pay, of the tenth whose turn it is."""
        self.flush()
        self.waited_bytes = self.waited_bytes[1], 0
        if self.is_short and not self.join.looks_up:
            self.evict_what_does_not_pay(waits=waits, part=cycle % _EVICTION_CYCLES)

    def evict_what_does_not_pay(self, *, waits: float = 0.5, part: int | None = None) -> int:
        """Evict values whose tuples would take less memory waiting, all or those of one part; of these
        counting begins again.
        """
        if not self.join.spec.caches:
            return 0

        def of_part(hashes: Ints) -> Mask:
            chosen: Mask = (
                np.ones(len(hashes), np.bool_) if part is None else hashes % _EVICTION_CYCLES == part
            )
            return chosen

        def pays(values: CachedValues) -> Mask:
            cycles = np.maximum(values.age / max(self.join.newest.segments, 1), 1)
            waiting = values.met / cycles * waits * self.join.tuple_bytes
            kept: Mask = (self.cost(values.rows) < self.join.spec.switching_factor * waiting) | (
                values.age < self.join.newest.segments
            )
            return kept | ~of_part(values.hash)

        evicted = self.join.cache.evict(self.join.clock, pays)
        self.join.cache.begin_counting(self.join.clock, of_part)
        self.join.counts.evicted += evicted
        return evicted

    def _shrink(self) -> None:
        """Evict the values met least often for their bytes, until the cache is well below its limit."""
        target = _SHRINK_TO * self._cache_limit()

        def best(values: CachedValues) -> Mask:
            usual = values.age.mean() if len(values.age) else 0.0
            cost = self.cost(values.rows)
            order = np.argsort(-values.met / (values.age + usual + 1) / cost, kind="stable")
            kept: Mask = np.zeros(len(order), np.bool_)
            kept[order[np.cumsum(cost[order]) <= target]] = True
            return kept

        self.join.counts.evicted += self.join.cache.evict(self.join.clock, best)
        self.join.cache.decay(self.join.clock)
        self.shrunk_at = self.join.clock, self.join.steps
