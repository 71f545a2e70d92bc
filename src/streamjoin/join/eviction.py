"""State eviction by punctuation, watermark and ttl; emits unmatched outer rows.

A collaborator of the operator (`operator`, where the rules are stated): which tuples are useless, which
keys are spent and which finished. Every way in which a stored tuple can be evicted is here, so that a
tuple of a preserved input that matched nothing leaves padded, whichever way it is evicted:

    purged       its key is closed on every other input, or spent
    invalidated  the watermarks of the other inputs are past its window
    expired      the watermark of its own input is past its ttl

Cost: a punctuation touches the rows of its key, a range the keys it covers; a watermark touches the
rows between the old bound and the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from streamjoin.columnar.assemble import pad
from streamjoin.columnar.batch import Batch, Ints, Mask, concat
from streamjoin.join.arrivals import Arrivals
from streamjoin.join.operator_state import OperatorState
from streamjoin.join.outputs import FinishedKeys, FinishedPatterns, Output, Results
from streamjoin.join.pending_purge import PendingPurge
from streamjoin.join.pending_removal import pending_keys, removal_may_wait, remove_purged
from streamjoin.join.result_rows import shown
from streamjoin.join.strategies.purge import NoPurge, PendingKeys
from streamjoin.join.watermarks import END_OF_TIME, NO_WATERMARK
from streamjoin.state.closed_keys import KeyPatterns, matching_keys
from streamjoin.state.run import Run
from streamjoin.state.sorted_runs import SortedRuns


@dataclass(frozen=True, slots=True)
class NewlyClosed:
    """An input that closes keys just now, and how it remembers those that others keep open."""

    input: int
    remember: Callable[[Batch], None]


class Eviction:
    """Applies punctuations and watermarks to the state that it shares with the operator."""

    def __init__(self, state: OperatorState) -> None:
        self.state, self.spec = state, state.spec
        self.sides, self.closed_keys = state.sides, state.closed_keys
        self.counters, self.watermarks = state.counters.inputs, state.watermarks
        self.pending_purge, self.deferred = state.pending_purge, state.deferred
        self.touched = PendingPurge(self.pending_purge.layout)  # until the batch ends; none between batches
        self.expired_to = [NO_WATERMARK] * len(self.sides)  # not part of the state: a ttl may change

    # Punctuations

    def close(self, i: int, keys: Batch, patterns: Sequence[KeyPatterns]) -> Iterator[Output]:
        """A punctuation: no more tuples with these keys will come on input i."""
        if len(keys) == 0 and not patterns:
            return
        distinct = self._not_closed_by_all(keys.sorted().distinct_keys())
        if not patterns and not self.pending_purge and self._purge_is_due(len(distinct), idle=False):
            yield from self.purge(distinct, NewlyClosed(i, self.closed_keys[i].close_keys))
            return
        if patterns:
            remove_purged(self.state)
        touched = [distinct]
        for pattern in patterns:
            self.closed_keys[i].close_pattern(pattern)
            self.state.range_propagation.closed(i, pattern)
            self.watermarks.ended[i] = self.closed_keys[i].ended
            self.state.partial_punctuations[i].forget_matching(pattern)
            for side in self._key_sides():
                touched += [batch.only_keys() for batch in matching_keys(side, pattern)]
        self.closed_keys[i].close_keys(distinct)
        self.state.partial_punctuations[i].forget(distinct)
        ended = self.watermarks.ended[i]  # then nothing is gained by waiting
        if any(map(len, touched)) and (ended or not isinstance(self.spec.strategies.purge, NoPurge)):
            self.pending_purge.add(concat(distinct.layout, touched))
        yield from self.purge_due(idle=False, ended=ended)

    def _not_closed_by_all(self, keys: Batch) -> Batch:
        """Without the keys that ranges and patterns of all inputs cover: they are finished already."""
        if len(keys) == 0 or not all(closed_keys.wide for closed_keys in self.closed_keys):
            return keys
        covered = [closed_keys.covered_widely(keys) for closed_keys in self.closed_keys]
        return keys.where(~np.logical_and.reduce(covered))

    def _purge_is_due(self, keys: int, *, idle: bool) -> bool:
        if keys == 0:
            return False
        return self.spec.strategies.purge.due(PendingKeys(keys, idle, lambda: self.state.nbytes))

    def _key_sides(self) -> Iterator[SortedRuns]:
        yield from self.sides
        for closed_keys in self.closed_keys:
            for key_set in closed_keys.key_sets:
                yield key_set.side
        yield self.state.propagated.side
        if self.state.groups is not None:
            yield self.state.groups.keyed()

    def purge_due(self, *, idle: bool, ended: bool = False) -> Iterator[Output]:
        """Purge the pending keys where the strategy says so, or an input has ended."""
        waiting = pending_keys(self.state)
        if waiting and (ended or self._purge_is_due(waiting, idle=idle)):
            yield from self.purge(self.pending_purge.take())
            remove_purged(self.state)

    def settle(self) -> Iterator[Output]:
        """A batch ends: what pending keys have to propagate leaves now; only removing tuples may wait."""
        if len(self.pending_purge) == 0 or isinstance(self.spec.strategies.purge, NoPurge):
            return
        if not self.spec.purges_whole:
            yield from self.purge(self.pending_purge.take(), remove=not removal_may_wait(self.state))

    def purge(self, keys: Batch, new: NewlyClosed | None = None, *, remove: bool = True) -> Iterator[Output]:
        """Apply the punctuations for these distinct keys: purge tuples, finish and propagate keys, forget
        closed keys.

        With a `new` punctuation for all of them, only what must be remembered of it is stored. Without
        `remove`, tuples that need not leave padded stay in the runs for now (`pending_removal`).
        """
        keys = self._without_deferred(keys, new)
        if len(keys) == 0:
            return
        everyone: Mask = np.ones(len(keys), np.bool_)
        closed = [
            everyone if new is not None and new.input == i else closed_keys.closed(keys)
            for i, closed_keys in enumerate(self.closed_keys)
        ]
        stored = []
        for i, side in enumerate(self.sides):
            doomed = np.logical_and.reduce([closed[other] for other in self.state.others(i)])
            yield from self._purge_tuples(i, keys, doomed, remove=remove)
            rest = np.flatnonzero(~doomed)
            still = keys if len(rest) == len(keys) else keys.take(rest)
            yield from self._purge_useless(i, still, [mask[rest] for mask in closed])
            there: Mask = np.zeros(len(keys), np.bool_)
            there[rest] = side.present(still)
            stored.append(there)
        closed_by_all = np.logical_and.reduce(closed)
        spent = closed_by_all | np.logical_or.reduce(
            [mask & ~there for mask, there in zip(closed, stored, strict=True)]
        )
        for i, there in enumerate(stored):
            yield from self._purge_tuples(i, keys, spent & there, remove=remove)
        for waiting in (self.pending_purge, self.touched):
            if waiting and closed_by_all.any():
                waiting.discard(keys.where(closed_by_all))
        finished = np.logical_and.reduce([spent, *(closed[i] for i in self.spec.how.preserved)])
        if new is not None:
            new.remember(keys.where(~closed_by_all))
            self.state.partial_punctuations[new.input].forget(keys)
        if finished.any():
            yield from self._propagate_keys(keys, finished, closed_by_all)

    def purge_touched(self, touched: Sequence[Batch]) -> Iterator[Output]:
        """As `purge`, for keys of several runs that may repeat."""
        if any(map(len, touched)):
            yield from self.purge(concat(touched[0].layout, touched).sorted().distinct_keys())

    def _without_deferred(self, keys: Batch, new: NewlyClosed | None) -> Batch:
        """Keys with deferred matches wait until those are made; returns the others."""
        if not self.deferred.active or len(keys) == 0:
            return keys
        deferred = self.deferred.has_deferred(keys.hash)
        if not deferred.any():
            return keys
        waiting = keys.where(deferred)
        if new is not None:
            new.remember(waiting)
            self.state.partial_punctuations[new.input].forget(waiting)
        self.pending_purge.add(waiting)
        return keys.where(~deferred)

    def _purge_tuples(self, i: int, keys: Batch, chosen: Mask, *, remove: bool) -> Iterator[Output]:
        """Purge all tuples of the chosen keys on input i."""
        if not chosen.any() or not self.sides[i].tiers:
            return
        self.state.calibration.lives[i].evicted(keys.hash, chosen)
        if not remove and i not in self.spec.how.preserved:
            self.state.pending_removal[i].add(keys.where(chosen))
            return
        for hit in self.sides[i].match(keys.where(chosen)):
            if i in self.spec.how.preserved:
                yield from self._emit_unmatched(i, hit.run, hit.live()[1])
            self.counters[i].purged += hit.run.delete_groups(hit.start, hit.count)

    def _purge_useless(self, i: int, keys: Batch, closed: Sequence[Mask]) -> Iterator[Output]:
        """Purge tuples that some inputs have closed, while the watermarks of all others are past them;
        that takes a window and a third input.
        """
        spans = [self.spec.inputs[i].span_to(other) for other in self.state.others(i)]
        if len(self.sides) == 2 or all(span is None for span in spans):
            return
        for hit in self.sides[i].match(keys):
            position, rows = hit.live()
            group = hit.probe[position]
            useless = rows[self._useless(i, hit.run.batch, rows, [mask[group] for mask in closed])]
            yield from self._emit_unmatched(i, hit.run, useless)
            self.state.calibration.lives[i].evicted(np.sort(hit.run.batch.hash[useless]))
            self.counters[i].purged += hit.run.delete(useless)

    # Results

    def _emit_unmatched(self, i: int, run: Run, rows: Ints) -> Iterator[Output]:
        """Live tuples of input i are about to be evicted: those that matched nothing are results."""
        if i in self.spec.how.preserved:
            yield from self.pad_unmatched(i, run.batch, run.unmatched(rows))

    def pad_unmatched(self, i: int, batch: Batch, rows: Ints) -> Iterator[Output]:
        """Tuples of a preserved input that matched nothing."""
        self.counters[i].padded += len(rows)
        yield from self.emit_alone(i, batch, rows)

    def emit_alone(self, i: int, batch: Batch, rows: Ints) -> Iterator[Output]:
        """Tuples of one input as results, nulls in the columns of the others."""
        first, output = self.spec.first_column(i), self.spec.output
        for start in range(0, len(rows), self.spec.frame_rows):
            some = rows[start : start + self.spec.frame_rows]
            self.state.counters.results += len(some)
            padded = pad((batch, some), first, output, own_keys=self.spec.own_keys)
            yield Results(shown(self.spec, padded), [(batch, some)])

    def _propagate_keys(self, keys: Batch, finished: Mask, closed_by_all: Mask) -> Iterator[Output]:
        """Propagate finished keys, each once; forget punctuations that no row can violate any more.

        Those that some input may still bring are remembered, propagated or not: their rows are dropped.
        """
        news = finished & ~self.state.propagated.contains(keys)
        if news.any() and self.spec.propagate:
            self.state.counters.propagated_keys += int(news.sum())
            yield FinishedKeys(keys.where(news))
        self.state.propagated.append(keys.where(news & ~closed_by_all))
        if closed_by_all.any():
            over = keys.where(closed_by_all)
            for i, closed_keys in enumerate(self.closed_keys):
                closed_keys.forget(over)
                self.state.partial_punctuations[i].forget(over)
                self.state.scheduled[i].forget(over)
            self.state.propagated.remove(over)

    def forget_closed(self) -> None:
        """A batch ends: forget closed and propagated keys of which watermarks have settled everything.

        A key that input i closed when it had reached the time c is forgotten when the watermark of i is past
        c, and that of every other input past c and all that a tuple of i could match: none is stored, and no
        row that breaks nothing brings a result of it. Worked number: closed at 100 with a window of 10, it is
        forgotten when the watermarks are past 100 and 110. What comes then is a new key.
        """
        if not self.spec.forgets_closed_keys:
            return
        settled = [self.watermarks.settled(i) for i in range(len(self.sides))]
        forgotten: list[Batch] = []
        for i, closed_keys in enumerate(self.closed_keys):
            closed_keys.forget_before(settled[i], partial(self._forgettable, i, forgotten))
        if any(map(len, forgotten)):  # a row of a key that nobody has closed any more is a new key's
            keys = concat(self.pending_purge.layout, forgotten).sorted().distinct_keys()
            self.state.propagated.remove(keys.where(self._closed_by_none(keys)))
        self.state.propagated.forget_before(min(settled), self._closed_by_none)

    def _forgettable(self, i: int, forgotten: list[Batch], keys: Batch) -> Mask:
        """Of keys that input i has closed: those without a stored tuple there that do not wait for a purge.

        Kept violations and deferred matches may still have tuples; a key is finished when these are evicted.
        """
        free = ~self.sides[i].present(keys) & ~self.pending_purge.among(keys)
        forgotten.append(keys.where(free))
        return free

    def _closed_by_none(self, keys: Batch) -> Mask:
        """Which keys no input remembers to have closed; while one does, they are not propagated again."""
        remembered: Mask = np.logical_or.reduce([one.remembers(keys) for one in self.closed_keys])
        return ~remembered

    def propagate_ranges(self) -> Iterator[Output]:
        """Propagate finished ranges and patterns, and the end; their keys that wait are purged before."""
        propagation = self.state.range_propagation
        propagation.update(self.closed_keys)
        if not propagation.unsent or self.deferred.waiting:
            return  # while matches are deferred, results of any range may still follow
        yield from self.purge(self.pending_purge.take_matching(propagation.unsent))
        yield FinishedPatterns(propagation.take())

    # Time

    def advance_watermarks(self, arrivals: dict[int, Arrivals]) -> Iterator[Output]:
        """Watermarks after a batch: invalidate the tuples whose window every coming row misses."""
        for i, arrived in arrivals.items():
            if arrived.latest_us is not None:
                self.watermarks.saw(i, arrived.latest_us)
            if arrived.watermark_us is not None:
                self.watermarks.reach(i, arrived.watermark_us)
        before, now = self.watermarks.advance(), self.watermarks.current
        touched = [self.touched.take()] if self.touched else []
        for i, spec in enumerate(self.spec.inputs):
            for other in self.state.others(i):
                span = spec.span_to(other)
                if span is not None and now[other] > before[other]:
                    yield from self.invalidate(i, before[other] - span, now[other] - span, touched)
        for i, spec in enumerate(self.spec.inputs):
            if spec.ttl_us is not None:
                yield from self._expire(i, now[i] - spec.ttl_us, touched)
        yield from self.purge_touched(touched)

    def evict_delayed(self) -> Iterator[Output]:
        """Invalidate and expire what deferred matches have kept until now."""
        touched: list[Batch] = []
        for i, spec in enumerate(self.spec.inputs):
            for other in self.state.others(i):
                span = spec.span_to(other)
                if span is not None:
                    stop_us = self.watermarks.current[other] - span
                    yield from self.invalidate(i, NO_WATERMARK - span, stop_us, touched)
            if spec.ttl_us is not None:
                self.expired_to[i] = NO_WATERMARK
                yield from self._expire(i, self.watermarks.current[i] - spec.ttl_us, touched)
        yield from self.purge_touched(touched)

    def apply_scheduled(self) -> Iterator[Output]:
        """Apply the scheduled punctuations whose time their input's watermark is past.

        One of them may end its input, and that advance an idle one; so until none is due.
        """
        acted = True
        while acted:
            acted = False
            for i, scheduled in enumerate(self.state.scheduled):
                if scheduled.empty:
                    continue
                keys, patterns = scheduled.due(
                    END_OF_TIME if self.watermarks.ended[i] else self.watermarks.current[i]
                )
                if len(keys) or patterns:
                    acted = True
                    yield from self.close(i, keys, patterns)
            if acted:
                yield from self.advance_watermarks({})

    def invalidate(self, i: int, start_us: int, stop_us: int, touched: list[Batch]) -> Iterator[Output]:
        """Evict useless rows of input i with start <= bound < stop; adds the keys that may finish by it."""
        for run in self.sides[i].runs:
            rows = self._not_deferred(run, run.live_between(start_us, stop_us))
            if len(rows) == 0:
                continue
            # with two inputs, the watermark of the one other input is past all of them
            useless = rows if len(self.sides) == 2 else self._useless_by_any_means(i, run.batch, rows)
            self.counters[i].invalidated += yield from self._evict(i, run, useless, touched)

    def _not_deferred(self, run: Run, rows: Ints) -> Ints:
        """The rows of the run without deferred matches."""
        if not self.deferred.active or len(rows) == 0:
            return rows
        return rows[~self.deferred.has_deferred(run.batch.hash[rows])]

    def _expire(self, i: int, before_us: int, touched: list[Batch]) -> Iterator[Output]:
        """Evict rows of input i whose ttl is over, useless or not; as `invalidate` otherwise."""
        start_us, self.expired_to[i] = self.expired_to[i], max(self.expired_to[i], before_us)
        for run in self.sides[i].runs if before_us > start_us else ():
            rows = self._not_deferred(run, run.live_between(start_us, before_us))
            if len(rows):
                self.counters[i].expired += yield from self._evict(i, run, rows, touched)

    def _evict(self, i: int, run: Run, rows: Ints, touched: list[Batch]) -> Generator[Output, None, int]:
        """Watermarks are past these rows of input i; adds the keys that may finish by it."""
        yield from self._emit_unmatched(i, run, rows)
        if len(rows) and not self.closed_keys[i].empty:
            keys = run.batch.only_keys().take(np.sort(rows)).distinct_keys()
            touched.append(keys.where(self.closed_keys[i].closed(keys)))
        return run.delete(rows)

    def _useless_by_any_means(self, i: int, batch: Batch, rows: Ints) -> Ints:
        rows = np.sort(rows)
        keys = batch.only_keys().take(rows)
        group = keys.groups.of_rows()
        nobody: Mask = np.zeros(len(rows), np.bool_)
        closed = [
            nobody if closed_keys.empty or m == i else closed_keys.closed(keys)[group]
            for m, closed_keys in enumerate(self.closed_keys)
        ]
        return rows[self._useless(i, batch, rows, closed)]

    def _useless(self, i: int, batch: Batch, rows: Ints, closed: Sequence[Mask]) -> Mask:
        """Which rows of a run of input i nothing can join with, given who is closed for each."""
        useless: Mask = np.ones(len(rows), np.bool_)
        for other in self.state.others(i):
            passed = closed[other]
            if (span := self.spec.inputs[i].span_to(other)) is not None:
                passed = passed | (batch.bound[rows] < self.watermarks.passed[other] - span)
            useless &= passed
        return useless
