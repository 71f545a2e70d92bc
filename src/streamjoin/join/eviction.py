"""Letting go: promises, purging, event time, and what leaves when a tuple does.

The second half of the operator (the first is `stream_join`): which tuples are useless, which keys are
spent and which finished, by the rules stated there. Every way in which a stored tuple can go is
here, so that a tuple of a preserved input that matched nothing leaves padded, whichever way it goes.

Cost: a promise touches the rows of its key, a range the keys it covers; progress touches the rows
between the old bound and the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from streamjoin.columnar.assemble import pad
from streamjoin.columnar.batch import NO_TIME, Batch, Ints, Mask, concat
from streamjoin.join.arrival_order import follower
from streamjoin.join.arrivals import Arrivals
from streamjoin.join.deferred import DeferredMatches
from streamjoin.join.forwarded import ForwardedPunctuations
from streamjoin.join.group_by import GroupBy
from streamjoin.join.outputs import Counters, FinishedKeys, FinishedPatterns, Output, Results, StateSize
from streamjoin.join.partial_punctuations import PartialPunctuations
from streamjoin.join.propagation import RangePropagation
from streamjoin.join.scheduled_punctuations import Scheduled
from streamjoin.join.spec import JoinSpec
from streamjoin.join.statistics.forecast import Calibration, Outlook, Size
from streamjoin.join.statistics.monitor import Monitor, Seen
from streamjoin.join.statistics.selectivity import Selectivities
from streamjoin.join.strategies.protocols import Waiting
from streamjoin.join.strategies.purge import NoPurge
from streamjoin.join.watermarks import END_OF_TIME, NO_WATERMARK, OwnWatermarks
from streamjoin.state.closed_keys import ClosedKeys, KeyPatterns, matching_keys
from streamjoin.state.memory import MemoryManager
from streamjoin.state.run import Run, match
from streamjoin.state.sorted_runs import KeySet, RunNames, SortedRuns


@dataclass(frozen=True, slots=True)
class NewlyClosed:
    """An input that closes keys just now, and how it remembers those that others keep open."""

    input: int
    remember: Callable[[Batch], None]


class Eviction:
    """State of a join, or of one hash bucket of it, and when it is let go of."""

    def __init__(self, spec: JoinSpec) -> None:
        self.spec = spec
        self.names = RunNames(memory_manager=MemoryManager(spec.memory_share, spec.strategies.spill.flush))
        count = range(len(spec.inputs))
        self.sides = [SortedRuns(f"s{i}", spec.inputs[i].layout, self.names, spec.compaction) for i in count]
        self.closed_keys = [
            ClosedKeys(f"p{i}", spec.inputs[i].layout, self.names, spec.compaction) for i in count
        ]
        self.partial_punctuations = [
            PartialPunctuations(f"q{i}", spec.inputs[i].layout, self.names, spec.inputs[i].partitions)
            for i in count
        ]
        self.scheduled = [
            Scheduled(f"w{i}", spec.inputs[i].layout, self.names, spec.compaction) for i in count
        ]
        self.followers = [follower(one.arrival, one.layout, one.name) for one in spec.inputs]
        self.monitors = [Monitor() for _ in count]
        self.calibration = Calibration(spec)
        self.propagated = KeySet("a", spec.inputs[0].layout, self.names, spec.compaction)
        self.groups = None if spec.grouping is None else GroupBy(spec.grouping, self.names, spec.compaction)
        only_end = not spec.propagate or isinstance(spec.strategies.purge, NoPurge)
        self.range_propagation = (
            RangePropagation(spec.key_types, only_end=only_end) if spec.feeds_join else None
        )
        self.forwarded = [ForwardedPunctuations(one) for one in spec.inputs]
        self.unsettled: list[Batch] = []
        self.deferred = DeferredMatches() if spec.defers else None
        self.own_watermarks = OwnWatermarks(spec.inputs)
        self.watermarks = self.own_watermarks.of_all()
        self.expired_to = [NO_WATERMARK] * len(spec.inputs)  # not part of the state: a ttl may change
        self.counters = [Counters() for _ in count]
        self.measured = Selectivities(len(spec.inputs))
        self.results = 0
        self.fallbacks = 0  # batches in which the driver did not know what it needs
        self.propagated_keys = 0
        self.turns = 0  # how often an input was chosen; not part of the state
        self.step = 0

    def held(self) -> StateSize:
        """What the state is made of now."""
        partials = (
            sum(map(len, self.partial_punctuations))
            + sum(map(len, self.scheduled))
            + sum(map(len, self.forwarded))
        )
        closed_keys = sum(map(len, self.closed_keys)) + partials + len(self.propagated)
        rows = sum(side.live_rows for side in self.sides)
        memory_manager = self.names.memory_manager
        resident = self.nbytes if memory_manager.limit_bytes is None else memory_manager.resident_bytes
        waiting = sum(map(len, self.unsettled)) + (
            0 if self.deferred is None else int(self.deferred.owed.sum())
        )
        groups = 0 if self.groups is None else len(self.groups)
        return StateSize(rows, self.nbytes, closed_keys, waiting, resident, groups)

    @property
    def nbytes(self) -> int:
        """Bytes of all runs, dead rows included."""
        waiting = [
            *(each.side for each in self.partial_punctuations),
            *(each.side for each in self.scheduled),
        ]
        groups: tuple[SortedRuns, ...] = () if self.groups is None else self.groups.sides
        tuples = sum(side.nbytes for side in (*self.sides, *waiting, *groups))
        return (
            tuples + sum(closed_keys.nbytes for closed_keys in self.closed_keys) + self.propagated.side.nbytes
        )

    def seen(self) -> list[Seen]:
        """What the monitor has seen of each input."""
        return [
            monitor.seen(0 if follower is None else follower.widest_slack)
            for monitor, follower in zip(self.monitors, self.followers, strict=True)
        ]

    def outlook(self) -> list[Outlook]:
        """Tuples of each input, measured beside predicted."""
        return self.calibration.outlook([side.live_rows for side in self.sides])

    def _calibrate(self, arrivals: dict[int, Arrivals]) -> None:
        """The step ends: measure, and make a new forecast where one is due."""
        earliest = None
        if self.calibration.begin is None and self.calibration.timed:
            times = [one.rows.time[one.rows.time != NO_TIME] for one in arrivals.values()]
            earliest = min((float(some.min()) for some in times if len(some)), default=None)
        if self.calibration.tick(self.own_watermarks, self.watermarks, earliest):
            sizes = [Size(side.live_rows, side.nbytes) for side in self.sides]
            held = self.held()
            self.calibration.plan_term(
                sizes, held.closed_keys, held.nbytes - sum(one.nbytes for one in sizes)
            )

    def _others(self, i: int) -> list[int]:
        return [other for other in range(len(self.sides)) if other != i]

    # Promises

    def _close(self, i: int, keys: Batch, patterns: Sequence[KeyPatterns]) -> Iterator[Output]:
        """Input i promises that no more tuples with these keys will come."""
        if len(keys) == 0 and not patterns:
            return
        distinct = self._not_over_yet(keys.sorted().distinct_keys())
        if not patterns and not self.unsettled and self._purge_is_due(len(distinct), idle=False):
            yield from self._settle(distinct, NewlyClosed(i, self.closed_keys[i].close_keys))
            return
        touched = [distinct]
        if self.range_propagation is not None:
            self.range_propagation.stale |= bool(patterns)
        for pattern in patterns:
            self.closed_keys[i].close_pattern(pattern)
            self.own_watermarks.ended[i] = self.closed_keys[i].ended
            self.partial_punctuations[i].forget_matching(pattern)
            for side in self._all_key_sides():
                touched += [batch.only_keys() for batch in matching_keys(side, pattern)]
        self.closed_keys[i].close_keys(distinct)
        self.partial_punctuations[i].forget(distinct)
        ended = self.own_watermarks.ended[i]  # then nothing is gained by waiting
        if any(map(len, touched)) and (ended or not isinstance(self.spec.strategies.purge, NoPurge)):
            self.unsettled.append(concat(distinct.layout, touched))
        yield from self._settle_due(idle=False, ended=ended)

    def _not_over_yet(self, keys: Batch) -> Batch:
        """Without those that wide promises of all inputs cover: they are over, and nothing is new of them."""
        if len(keys) == 0 or not all(closed_keys.wide for closed_keys in self.closed_keys):
            return keys
        over = np.logical_and.reduce([closed_keys.covered_widely(keys) for closed_keys in self.closed_keys])
        return keys.where(~over)

    def _purge_is_due(self, keys: int, *, idle: bool) -> bool:
        if keys == 0:
            return False
        return self.spec.strategies.purge.due(Waiting(keys, idle, lambda: self.nbytes))

    def _all_key_sides(self) -> Iterator[SortedRuns]:
        yield from self.sides
        for closed_keys in self.closed_keys:
            for key_set in closed_keys.key_sets:
                yield key_set.side
        yield self.propagated.side
        if self.groups is not None:
            yield self.groups.keyed()

    def _settle_due(self, *, idle: bool, ended: bool = False) -> Iterator[Output]:
        waiting = sum(map(len, self.unsettled))
        if waiting and (ended or self._purge_is_due(waiting, idle=idle)):
            keys = concat(self.unsettled[0].layout, self.unsettled).sorted().distinct_keys()
            self.unsettled = []
            yield from self._settle(keys)

    def _settle(self, keys: Batch, new: NewlyClosed | None = None) -> Iterator[Output]:
        """Carry out what the promises say of these distinct keys: purge, finish, announce, forget.

        With a `new` promise for all of them, only what must be remembered of it is.
        """
        keys = self._put_off(keys, new)
        if len(keys) == 0:
            return
        everyone: Mask = np.ones(len(keys), np.bool_)
        closed = [
            everyone if new is not None and new.input == i else closed_keys.closed(keys)
            for i, closed_keys in enumerate(self.closed_keys)
        ]
        held = []
        for i, side in enumerate(self.sides):
            doomed = np.logical_and.reduce([closed[other] for other in self._others(i)])
            yield from self._forget_tuples(i, keys, doomed)
            rest = np.flatnonzero(~doomed)
            still = keys if len(rest) == len(keys) else keys.take(rest)
            yield from self._forget_useless(i, still, [mask[rest] for mask in closed])
            there: Mask = np.zeros(len(keys), np.bool_)
            there[rest] = side.present(still)
            held.append(there)
        closed_by_all = np.logical_and.reduce(closed)
        spent = closed_by_all | np.logical_or.reduce(
            [mask & ~there for mask, there in zip(closed, held, strict=True)]
        )
        for i, there in enumerate(held):
            yield from self._forget_tuples(i, keys, spent & there)
        if self.unsettled and closed_by_all.any():
            over = keys.where(closed_by_all)
            self.unsettled = [_without(batch, over) for batch in self.unsettled]
        finished = np.logical_and.reduce([spent, *(closed[i] for i in self.spec.how.preserved)])
        if new is not None:
            new.remember(keys.where(~closed_by_all))
            self.partial_punctuations[new.input].forget(keys)
        if finished.any():
            yield from self._propagate(keys, finished, closed_by_all)

    def _settle_touched(self, touched: Sequence[Batch]) -> Iterator[Output]:
        """As `_settle`, for keys of several runs that may repeat."""
        if any(map(len, touched)):
            yield from self._settle(concat(touched[0].layout, touched).sorted().distinct_keys())

    def _put_off(self, keys: Batch, new: NewlyClosed | None) -> Batch:
        """Keys of which pairs are owed wait until those are given; returns the others."""
        if self.deferred is None or len(keys) == 0:
            return keys
        owed = self.deferred.has_deferred(keys.hash)
        if not owed.any():
            return keys
        waiting = keys.where(owed)
        if new is not None:
            new.remember(waiting)
            self.partial_punctuations[new.input].forget(waiting)
        self.unsettled.append(waiting)
        return keys.where(~owed)

    def _forget_tuples(self, i: int, keys: Batch, chosen: Mask) -> Iterator[Output]:
        """Let go of everything input i holds of the chosen keys."""
        if not chosen.any():
            return
        self.calibration.lives[i].gone(keys.hash, chosen)
        for hit in self.sides[i].match(keys.where(chosen)):
            if i in self.spec.how.preserved:
                yield from self._release(i, hit.run, hit.live()[1])
            self.counters[i].purged += hit.run.delete_groups(hit.start, hit.count)

    def _forget_useless(self, i: int, keys: Batch, closed: Sequence[Mask]) -> Iterator[Output]:
        """Let go of tuples that some inputs have closed and all others have passed by; that takes a
        window and a third input.
        """
        if len(self.sides) == 2 or self.spec.inputs[i].span_us is None:
            return
        for hit in self.sides[i].match(keys):
            position, rows = hit.live()
            group = hit.probe[position]
            useless = rows[self._useless(i, hit.run.batch, rows, [mask[group] for mask in closed])]
            yield from self._release(i, hit.run, useless)
            self.calibration.lives[i].gone(np.sort(hit.run.batch.hash[useless]))
            self.counters[i].purged += hit.run.delete(useless)

    # What leaves

    def _release(self, i: int, run: Run, rows: Ints) -> Iterator[Output]:
        """Live tuples of input i are about to go: those that matched nothing are results."""
        if i in self.spec.how.preserved:
            yield from self._padded(i, run.batch, run.unmatched(rows))

    def _padded(self, i: int, batch: Batch, rows: Ints) -> Iterator[Output]:
        """Tuples of a preserved input that matched nothing."""
        self.counters[i].padded += len(rows)
        yield from self._alone(i, batch, rows)

    def _alone(self, i: int, batch: Batch, rows: Ints) -> Iterator[Output]:
        """Tuples of one input as results, nulls in the columns of the others."""
        first, output = self.spec.first_column(i), self.spec.output
        for start in range(0, len(rows), self.spec.frame_rows):
            some = rows[start : start + self.spec.frame_rows]
            self.results += len(some)
            yield Results(pad((batch, some), first, output), [(batch, some)])

    def _propagate(self, keys: Batch, finished: Mask, closed_by_all: Mask) -> Iterator[Output]:
        """Tell of finished keys once; forget promises that nobody can break any more."""
        if self.spec.propagate:
            news = finished & ~self.propagated.contains(keys)
            if news.any():
                self.propagated_keys += int(news.sum())
                yield FinishedKeys(keys.where(news))
            self.propagated.side.append(keys.where(news & ~closed_by_all))
        if closed_by_all.any():
            over = keys.where(closed_by_all)
            for i, closed_keys in enumerate(self.closed_keys):
                closed_keys.forget(over)
                self.partial_punctuations[i].forget(over)
                self.scheduled[i].forget(over)
            self.propagated.remove(over)

    def _propagate_patterns(self) -> Iterator[Output]:
        """Tell the join that follows of ranges and patterns that are over, and of the end."""
        if self.range_propagation is not None:
            self.range_propagation.look(self.closed_keys)
            if self.deferred is not None and self.deferred.owed.any():
                return  # results of any range may still follow
            told = self.range_propagation.take(self.unsettled)
            if told:
                yield FinishedPatterns(told)

    # Time

    def _advance(self, arrivals: dict[int, Arrivals]) -> Iterator[Output]:
        """Progress after a batch: invalidate what every coming row is too late for."""
        for i, arrived in arrivals.items():
            if arrived.latest_us is not None:
                self.own_watermarks.saw(i, arrived.latest_us)
            if arrived.watermark_us is not None:
                self.own_watermarks.reach(i, arrived.watermark_us)
        # never backwards, though an input that ends may have carried an idle one forward
        before, self.watermarks = (
            self.watermarks,
            list(map(max, self.watermarks, self.own_watermarks.of_all())),
        )
        touched: list[Batch] = []
        for i, spec in enumerate(self.spec.inputs):
            if spec.span_us is None:
                continue
            for other in self._others(i):
                if self.watermarks[other] > before[other]:
                    start, stop = before[other] - spec.span_us, self.watermarks[other] - spec.span_us
                    yield from self._invalidate(i, start, stop, touched)
        for i, spec in enumerate(self.spec.inputs):
            if spec.ttl_us is not None:
                yield from self._expire(i, self.watermarks[i] - spec.ttl_us, touched)
        yield from self._settle_touched(touched)

    def _catch_up(self) -> Iterator[Output]:
        """What progress should have invalidated before now, but pairs of it were owed."""
        touched: list[Batch] = []
        for i, spec in enumerate(self.spec.inputs):
            if spec.span_us is not None:
                for other in self._others(i):
                    stop_us = self.watermarks[other] - spec.span_us
                    yield from self._invalidate(i, NO_WATERMARK - spec.span_us, stop_us, touched)
            if spec.ttl_us is not None:
                self.expired_to[i] = NO_WATERMARK
                yield from self._expire(i, self.watermarks[i] - spec.ttl_us, touched)
        yield from self._settle_touched(touched)

    def _keep_schedules(self) -> Iterator[Output]:
        """Carry out the promises that waited until their input's progress is past their time.

        One of them may end its input, and that carry an idle one on; so until none is left.
        """
        acted = True
        while acted:
            acted = False
            for i, scheduled in enumerate(self.scheduled):
                if scheduled.empty:
                    continue
                keys, patterns = scheduled.due(
                    END_OF_TIME if self.own_watermarks.ended[i] else self.watermarks[i]
                )
                if len(keys) or patterns:
                    acted = True
                    yield from self._close(i, keys, patterns)
            if acted:
                yield from self._advance({})

    def _invalidate(self, i: int, start_us: int, stop_us: int, touched: list[Batch]) -> Iterator[Output]:
        """Drop useless rows of input i with start <= bound < stop; adds the keys that it may finish."""
        for run in self.sides[i].runs:
            rows = self._not_owing(run, run.live_between(start_us, stop_us))
            if len(rows) == 0:
                continue
            # with two inputs, the one other input has passed them all by
            gone = rows if len(self.sides) == 2 else self._useless_by_any_means(i, run.batch, rows)
            self.counters[i].invalidated += yield from self._leave(i, run, gone, touched)

    def _not_owing(self, run: Run, rows: Ints) -> Ints:
        """Those of the rows of which no pair is owed."""
        if self.deferred is None or len(rows) == 0:
            return rows
        return rows[~self.deferred.has_deferred(run.batch.hash[rows])]

    def _expire(self, i: int, before_us: int, touched: list[Batch]) -> Iterator[Output]:
        """Drop rows of input i whose time to live is over, useless or not; as `_invalidate` otherwise."""
        start_us, self.expired_to[i] = self.expired_to[i], max(self.expired_to[i], before_us)
        for run in self.sides[i].runs if before_us > start_us else ():
            rows = self._not_owing(run, run.live_between(start_us, before_us))
            if len(rows):
                self.counters[i].expired += yield from self._leave(i, run, rows, touched)

    def _leave(self, i: int, run: Run, gone: Ints, touched: list[Batch]) -> Generator[Output, None, int]:
        """Rows of input i go, as event time is past them; adds the keys that it may finish."""
        yield from self._release(i, run, gone)
        if len(gone) and not self.closed_keys[i].empty:
            keys = run.batch.only_keys().take(np.sort(gone)).distinct_keys()
            touched.append(keys.where(self.closed_keys[i].closed(keys)))
        return run.delete(gone)

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
        span = self.spec.inputs[i].span_us
        for other in self._others(i):
            gone = closed[other]
            if span is not None:
                gone = gone | (batch.bound[rows] < self.watermarks[other] - span)
            useless &= gone
        return useless


def _without(keys: Batch, over: Batch) -> Batch:
    """The keys that are not among others (sorted)."""
    by_key = keys.sorted()
    hit = match(by_key, Run("over", over))
    left: Mask = np.ones(len(by_key.groups), np.bool_)
    left[hit.probe] = False
    return by_key.where(left[by_key.groups.of_rows()])
