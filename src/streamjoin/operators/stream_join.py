"""The one operator: a join of n >= 2 streams on a common key that knows when to let go.

Rules (design section 4), for input i with state S_i, window W_i, progress P_i:

- a result has one tuple per input, equal keys, and (latest time) - t_i <= W_i for every i;
- a tuple of S_i is *useless* when for every other input m: m is closed for its key, or
  P_m > t + W_i. Tested on arrival after probing, on promises and on progress;
- a key is *spent* when every input is closed for it, or some input is closed for it and holds no
  tuple of it that is not useless: nothing of it will match any more. Its tuples are forgotten,
  later arrivals are dropped;
- a key is *finished* when it is spent and every preserved input is closed for it. It is announced
  once; no result for it ever follows.

A tuple of a preserved input (outer and anti joins) that matched nothing leaves padded with nulls
when it is let go of: useless, or its key spent.

Promises act after the rows before them on their own input; progress acts after the whole batch, and
after it the promises that waited for it.
Every public step leaves a state that can be stored and restored. Nothing here knows how it is
run: rows and promises come in as `Arrivals`, results go out as `Output` elements.

Cost of a batch of b rows against n rows of state: b log n to probe, b amortised log(n / b) to
merge; a promise touches the rows of its key, a range the keys of the runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from streamjoin.batch import Batch, Ints, Mask, concat
from streamjoin.kernels.assemble import Component, assemble, pad
from streamjoin.operators.admission import Violation, admit
from streamjoin.operators.arrival_order import Implied, follower
from streamjoin.operators.arrivals import Arrivals, Positions
from streamjoin.operators.matches import Matches
from streamjoin.operators.monitor import Monitor, Seen
from streamjoin.operators.pledges import Pledges
from streamjoin.operators.probe import Probe
from streamjoin.operators.progress import END_OF_TIME, Progress
from streamjoin.operators.purging import NoPurge
from streamjoin.operators.queues import InputQueue
from streamjoin.operators.scheduled import Scheduled
from streamjoin.operators.spec import JoinSpec
from streamjoin.operators.strategies import Waiting
from streamjoin.state.promises import KeyPatterns, Promises, is_everything, matching_keys
from streamjoin.state.run import Run
from streamjoin.state.side import KeySet, RunNames, Side


@dataclass(slots=True)
class Counters:
    """What happened on one input, in rows unless the name says otherwise."""

    rows: int = 0
    null_keys: int = 0
    stored: int = 0
    dropped: int = 0
    purged: int = 0
    invalidated: int = 0
    punctuations: int = 0
    null_time: int = 0
    late: int = 0
    duplicate_key: int = 0
    after_promise: int = 0
    probes: int = 0
    padded: int = 0
    waited: int = 0


@dataclass(frozen=True, slots=True)
class Results:
    """Joined rows in the join's output columns."""

    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Finished:
    """Keys for which no result follows any more."""

    keys: Batch


@dataclass(frozen=True, slots=True)
class Held:
    """Live tuples, bytes of all runs, promises remembered, keys whose promises wait."""

    rows: int
    nbytes: int
    promises: int
    waiting: int


Output: TypeAlias = Results | Finished | Violation
_NO_COLUMNS = pa.RecordBatch.from_arrays([], [])


@dataclass(frozen=True, slots=True)
class NewPromise:
    """An input that closes keys just now, and how it remembers those that others keep open."""

    input: int
    remember: Callable[[Batch], None]


class StreamJoin:
    """State and rules of one join, or of one hash bucket of it."""

    def __init__(self, spec: JoinSpec) -> None:
        self.spec = spec
        self.names = RunNames()
        count = range(len(spec.inputs))
        self.sides = [Side(f"s{i}", spec.inputs[i].layout, self.names, spec.merging) for i in count]
        self.promises = [Promises(f"p{i}", spec.inputs[i].layout, self.names, spec.merging) for i in count]
        self.pledges = [
            Pledges(f"q{i}", spec.inputs[i].layout, self.names, spec.inputs[i].partitions) for i in count
        ]
        self.scheduled = [Scheduled(f"w{i}", spec.inputs[i].layout, self.names, spec.merging) for i in count]
        self.followers = [follower(one.arrival, one.layout, one.name) for one in spec.inputs]
        self.monitors = [Monitor() for _ in count]
        self.announced = KeySet("a", spec.inputs[0].layout, self.names, spec.merging)
        self.unsettled: list[Batch] = []
        self.progress = Progress(spec.inputs)
        self.reached = self.progress.of_all()
        self.counters = [Counters() for _ in count]
        self.results = 0
        self.announcements = 0
        self.turns = 0  # how often an input was chosen; not part of the state
        self.step = 0

    def held(self) -> Held:
        """What the state is made of now."""
        waiting = sum(map(len, self.pledges)) + sum(map(len, self.scheduled))
        promises = sum(map(len, self.promises)) + waiting + len(self.announced)
        rows = sum(side.live_rows for side in self.sides)
        return Held(rows, self.nbytes, promises, sum(map(len, self.unsettled)))

    @property
    def nbytes(self) -> int:
        """Bytes of all runs, dead rows included."""
        waiting = [*(each.side for each in self.pledges), *(each.side for each in self.scheduled)]
        tuples = sum(side.nbytes for side in (*self.sides, *waiting))
        return tuples + sum(promises.nbytes for promises in self.promises) + self.announced.side.nbytes

    def seen(self) -> list[Seen]:
        """What the monitor has seen of each input."""
        return [
            monitor.seen(0 if follower is None else follower.widest_slack)
            for monitor, follower in zip(self.monitors, self.followers, strict=True)
        ]

    # One batch

    def process(self, arrivals: dict[int, Arrivals]) -> Iterator[Output]:
        """Work through one batch; must be exhausted before anything else is asked."""
        self.step += 1
        self.names.begin(self.step)
        queues: list[InputQueue] = []
        implied: dict[int, Implied] = {}
        for i, arrived in sorted(arrivals.items()):
            yield from self._admit(i, self._follow(i, arrived, implied), queues)
        previous = None
        while waiting := [queue for queue in queues if not queue.done]:
            previous, quota = self.spec.strategies.driver.choose(waiting, previous)
            queue = next(queue for queue in waiting if queue.input == previous)
            self.turns += 1
            yield from self._turn(previous, *queue.take(quota))
        for i, closed in implied.items():
            yield from self._close(i, closed.keys, closed.patterns)
        yield from self._advance(arrivals)
        yield from self._keep_schedules()
        yield from self._settle_due(idle=True)
        for side in self.sides:
            side.drop_dead()
        self.spec.strategies.spill.relieve(sum(side.nbytes for side in self.sides))

    def _follow(self, i: int, arrived: Arrivals, implied: dict[int, Implied]) -> Arrivals:
        """Who breaks the declared order of arrival; what it implies acts after the whole batch."""
        following = self.followers[i]
        found = None if following is None else following.follow(arrived)
        if found is None:
            return arrived
        implied[i] = found
        return replace(arrived, behind=found.behind)

    def _admit(self, i: int, arrived: Arrivals, queues: list[InputQueue]) -> Iterator[Output]:
        counters = self.counters[i]
        counters.punctuations += len(arrived.keys) + len(arrived.patterns) + len(arrived.scheduled_patterns)
        counters.punctuations += 0 if arrived.scheduled is None else len(arrived.scheduled)
        if self.spec.monitored:
            self.monitors[i].see(arrived.rows, arrived.order)
        spec = self.spec.inputs[i]
        if not spec.heeds_promises:
            arrived = arrived.without_promises()
        late_before = self.reached[i] if self.spec.windowed else None
        admitted = admit(i, spec, arrived, self.promises[i], late_before=late_before)
        counters.rows += len(arrived.rows) + arrived.null_keys
        counters.null_keys += arrived.null_keys
        self.scheduled[i].add(arrived.scheduled, arrived.scheduled_patterns)
        for violation in admitted.violations:
            setattr(counters, violation.reason, getattr(counters, violation.reason) + len(violation.rows))
            yield violation
        if arrived.unkeyed is not None and i in self.spec.how.preserved:
            yield from self._padded(i, arrived.unkeyed, np.arange(len(arrived.unkeyed)))
        keys, keys_at = self.pledges[i].fulfilled(*self._not_closed_yet(i, arrived))
        patterns, patterns_at = self.pledges[i].fulfilled_patterns(
            arrived.patterns, arrived.patterns_at, self.promises[i]
        )
        queue = InputQueue(
            i,
            admitted.rows,
            admitted.at,
            keys,
            keys_at,
            patterns,
            patterns_at,
            spec.unique,
            spec.arrival is not None,
            self.sides[i].live_rows,
        )
        if not queue.done:
            queues.append(queue)

    def _turn(self, i: int, rows: Batch, keys: Batch, patterns: Sequence[KeyPatterns]) -> Iterator[Output]:
        """Rows of input i and the promises behind them; rows that others wait for come first."""
        urgent = self.spec.strategies.order.urgent(lambda: self._awaited(i, rows))
        if urgent is not None:
            self.counters[i].waited += int(np.count_nonzero(~urgent))
            awaited = self._awaited(i, keys)
            yield from self._join(i, rows.where(urgent))
            yield from self._close(i, keys.where(awaited), ())
            rows, keys = rows.where(~urgent), keys.where(~awaited)
        yield from self._join(i, rows)
        yield from self._close(i, keys, patterns)

    def _awaited(self, i: int, rows: Batch) -> Mask:
        """For each row: has another input promised its key, but not yet this one?"""
        awaited: Mask = np.zeros(len(rows), np.bool_)
        order = rows.sort_order()
        by_key = rows.take(order)
        group = by_key.groups.of_rows()
        for other in self._others(i):
            if not self.promises[other].empty:
                awaited[order] |= self.promises[other].closed_by_promise(by_key)[group]
        return awaited

    def _not_closed_yet(self, i: int, arrived: Arrivals) -> tuple[Batch, Positions | None]:
        """The promised keys; where each must come from several partitions, only those still open."""
        keys, at = arrived.keys, arrived.keys_at
        if self.spec.inputs[i].partitions == 1 or at is None or self.promises[i].empty:
            return keys, at
        order = keys.sort_order()
        by_key = keys.take(order)
        still = order[~np.repeat(self.promises[i].closed(by_key), by_key.groups.count)]
        return keys.take(still), at.take(still)

    # Rows

    def _join(self, i: int, arrived: Batch) -> Iterator[Output]:
        """Probe with rows of input i, then keep those that can still join."""
        if len(arrived) == 0:
            return
        rows = arrived.sorted()
        others = self._others(i)
        probe = Probe(
            i,
            rows,
            {other: self.sides[other].match(rows) for other in others},
            tuple(spec.window_us for spec in self.spec.inputs),
            self.spec.frame_rows,
            self.spec.how.tracked,
        )
        matches = Matches(probe)
        yield from self._results(probe, matches)
        self.counters[i].probes += len(rows) * len(others)
        stored = self._worth_keeping(i, rows, probe)
        if self.spec.how.forgets_matched and i == 0:
            stored &= ~matches.driving
        kept = rows.where(stored)
        self.counters[i].stored += len(kept)
        self.counters[i].dropped += len(rows) - len(kept)
        if i in self.spec.how.preserved:
            yield from self._padded(i, rows, np.flatnonzero(~stored & ~matches.driving))
        flags = matches.driving[stored] if matches.driving.any() else None
        self.sides[i].append(kept, flags)
        if self.spec.inputs[i].unique:
            yield from self._close_seen(i, rows, stored, probe)

    def _results(self, probe: Probe, matches: Matches) -> Iterator[Output]:
        """What the rows of a probe give, noting which tuples have matched."""
        others = self._others(probe.driver)
        how = self.spec.how
        if how.forgets_matched and self.spec.where is None and not self.spec.windowed:
            matches.note_keys(others[0])
        else:
            live = [side.live_rows for side in self.sides]
            for frame in probe.frames(self.spec.strategies.probe.sequence(others, live)):
                passing, rows = self._passing(frame)
                matches.note(passing)
                if how.combinations and rows.num_rows:
                    self.results += rows.num_rows
                    yield Results(rows)
        if how.forgets_matched:
            yield from self._forget_matched(probe, matches)

    def _passing(self, frame: list[Component]) -> tuple[list[Component], pa.RecordBatch]:
        """The combinations for which the join's condition holds."""
        where = self.spec.where
        if where is None:
            return frame, assemble(frame, self.spec.output) if self.spec.how.combinations else _NO_COLUMNS
        rows = assemble(frame, where.joined)
        passing = where.passing(rows)
        if len(passing) == rows.num_rows:
            return frame, rows
        return [(batch, numbers[passing]) for batch, numbers in frame], rows.take(pa.array(passing))

    def _forget_matched(self, probe: Probe, matches: Matches) -> Iterator[Output]:
        """Left tuples that have matched leave: as results of a semi join, silently of an anti join."""
        if probe.driver == 0:
            if self.spec.how.first_match:
                yield from self._alone(0, probe.rows, np.flatnonzero(matches.driving))
            return
        touched = []
        for run, rows in matches.stored(0):
            if self.spec.how.first_match:
                yield from self._alone(0, run.batch, rows)
            self.counters[0].purged += run.kill(rows)
            if len(rows) and not self.promises[0].empty:
                keys = run.batch.only_keys().take(rows).distinct_keys()
                touched.append(keys.where(self.promises[0].closed(keys)))
        if any(map(len, touched)):
            yield from self._settle(concat(touched[0].layout, touched).sorted().distinct_keys())

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
            yield Results(pad((batch, some), first, output))

    def _worth_keeping(self, i: int, rows: Batch, probe: Probe) -> Mask:
        """Which rows may still join something that comes later."""
        useless: Mask = np.ones(len(rows), np.bool_)
        over: Mask = np.zeros(len(rows.groups), np.bool_)
        group: Ints | None = None
        for other in self._others(i):
            gone = self._past_window(i, other, rows)
            if not self.promises[other].empty:
                closed = self.promises[other].closed(rows)
                if closed.any():
                    over |= closed & ~probe.present(other)
                    group = rows.groups.of_rows() if group is None else group
                    gone = gone | closed[group]
            useless &= gone
        if self.spec.inputs[i].on_violation == "keep" and not self.promises[i].empty:
            over |= self.promises[i].closed(rows) & ~self.sides[i].present(rows)
        if over.any():
            useless |= over[rows.groups.of_rows()]
        return ~useless

    def _past_window(self, i: int, other: int, rows: Batch) -> Mask:
        """Rows of input i for which every coming row of `other` lies outside the window."""
        window = self.spec.inputs[i].window_us
        if window is None:
            return np.zeros(len(rows), np.bool_)
        past: Mask = rows.time < self.reached[other] - window
        return past

    def _close_seen(self, i: int, rows: Batch, stored: Mask, probe: Probe) -> Iterator[Output]:
        """A unique input is closed for a key by its first tuple."""
        touched: Mask = np.zeros(len(rows.groups), np.bool_)
        touched[rows.groups.of_rows()[~stored]] = True
        for other in self._others(i):
            touched |= probe.present(other)
        keys = rows.distinct_keys()
        self.promises[i].see(keys.where(~touched))
        yield from self._settle(keys.where(touched), NewPromise(i, self.promises[i].see))

    # Promises

    def _close(self, i: int, keys: Batch, patterns: Sequence[KeyPatterns]) -> Iterator[Output]:
        """Input i promises that no more tuples with these keys will come."""
        if len(keys) == 0 and not patterns:
            return
        distinct = keys.sorted().distinct_keys()
        if not patterns and not self.unsettled and self._purge_is_due(len(distinct), idle=False):
            yield from self._settle(distinct, NewPromise(i, self.promises[i].close_keys))
            return
        touched = [distinct]
        for pattern in patterns:
            self.promises[i].close_pattern(pattern)
            self.progress.ended[i] = self.promises[i].ended
            self.pledges[i].forget_matching(pattern)
            for side in self._all_key_sides():
                touched += [batch.only_keys() for batch in matching_keys(side, pattern)]
        self.promises[i].close_keys(distinct)
        self.pledges[i].forget(distinct)
        ended = any(map(is_everything, patterns))  # then nothing is gained by waiting
        if any(map(len, touched)) and (ended or not isinstance(self.spec.strategies.purge, NoPurge)):
            self.unsettled.append(concat(distinct.layout, touched))
        yield from self._settle_due(idle=False, ended=ended)

    def _purge_is_due(self, keys: int, *, idle: bool) -> bool:
        if keys == 0:
            return False
        return self.spec.strategies.purge.due(Waiting(keys, idle, lambda: self.nbytes))

    def _all_key_sides(self) -> Iterator[Side]:
        yield from self.sides
        for promises in self.promises:
            for key_set in promises.key_sets:
                yield key_set.side
        yield self.announced.side

    def _settle_due(self, *, idle: bool, ended: bool = False) -> Iterator[Output]:
        waiting = sum(map(len, self.unsettled))
        if waiting and (ended or self._purge_is_due(waiting, idle=idle)):
            keys = concat(self.unsettled[0].layout, self.unsettled).sorted().distinct_keys()
            self.unsettled = []
            yield from self._settle(keys)

    def _settle(self, keys: Batch, new: NewPromise | None = None) -> Iterator[Output]:
        """Carry out what the promises say of these distinct keys: purge, finish, announce, forget.

        With a `new` promise for all of them, only what must be remembered of it is.
        """
        if len(keys) == 0:
            return
        everyone: Mask = np.ones(len(keys), np.bool_)
        closed = [
            everyone if new is not None and new.input == i else promises.closed(keys)
            for i, promises in enumerate(self.promises)
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
        finished = np.logical_and.reduce([spent, *(closed[i] for i in self.spec.how.preserved)])
        if new is not None:
            new.remember(keys.where(~closed_by_all))
            self.pledges[new.input].forget(keys)
        if finished.any():
            yield from self._announce(keys, finished, closed_by_all)

    def _forget_tuples(self, i: int, keys: Batch, chosen: Mask) -> Iterator[Output]:
        """Let go of everything input i holds of the chosen keys."""
        if not chosen.any():
            return
        for hit in self.sides[i].match(keys.where(chosen)):
            if i in self.spec.how.preserved:
                yield from self._release(i, hit.run, hit.live()[1])
            self.counters[i].purged += hit.run.kill_stretches(hit.start, hit.count)

    def _forget_useless(self, i: int, keys: Batch, closed: Sequence[Mask]) -> Iterator[Output]:
        """Let go of tuples that some inputs have closed and all others have passed by; that takes a
        window and a third input.
        """
        if len(self.sides) == 2 or self.spec.inputs[i].window_us is None:
            return
        for hit in self.sides[i].match(keys):
            position, rows = hit.live()
            group = hit.probe[position]
            useless = rows[self._useless(i, hit.run.batch, rows, [mask[group] for mask in closed])]
            yield from self._release(i, hit.run, useless)
            self.counters[i].purged += hit.run.kill(useless)

    def _release(self, i: int, run: Run, rows: Ints) -> Iterator[Output]:
        """Live tuples of input i are about to go: those that matched nothing are results."""
        if i in self.spec.how.preserved:
            yield from self._padded(i, run.batch, run.unmatched(rows))

    def _announce(self, keys: Batch, finished: Mask, closed_by_all: Mask) -> Iterator[Output]:
        """Tell of finished keys once; forget promises that nobody can break any more."""
        if self.spec.propagate:
            news = finished & ~self.announced.contains(keys)
            if news.any():
                self.announcements += int(news.sum())
                yield Finished(keys.where(news))
            self.announced.side.append(keys.where(news & ~closed_by_all))
        if closed_by_all.any():
            over = keys.where(closed_by_all)
            for i, promises in enumerate(self.promises):
                promises.forget(over)
                self.pledges[i].forget(over)
                self.scheduled[i].forget(over)
            self.announced.remove(over)

    def _useless(self, i: int, batch: Batch, rows: Ints, closed: Sequence[Mask]) -> Mask:
        """Which rows of a run of input i nothing can join with, given who is closed for each."""
        useless: Mask = np.ones(len(rows), np.bool_)
        window = self.spec.inputs[i].window_us
        for other in self._others(i):
            gone = closed[other]
            if window is not None:
                gone = gone | (batch.time[rows] < self.reached[other] - window)
            useless &= gone
        return useless

    # Time

    def _advance(self, arrivals: dict[int, Arrivals]) -> Iterator[Output]:
        """Progress after a batch: invalidate what every coming row is too late for."""
        for i, arrived in arrivals.items():
            if arrived.latest_us is not None:
                self.progress.saw(i, arrived.latest_us)
            if arrived.progress_us is not None:
                self.progress.reach(i, arrived.progress_us)
        # never backwards, though an input that ends may have carried an idle one forward
        before, self.reached = self.reached, list(map(max, self.reached, self.progress.of_all()))
        touched: list[Batch] = []
        for i, spec in enumerate(self.spec.inputs):
            if spec.window_us is None:
                continue
            for other in self._others(i):
                if self.reached[other] > before[other]:
                    start, stop = before[other] - spec.window_us, self.reached[other] - spec.window_us
                    yield from self._invalidate(i, start, stop, touched)
        if touched:
            yield from self._settle(concat(touched[0].layout, touched).sorted().distinct_keys())

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
                keys, patterns = scheduled.due(END_OF_TIME if self.progress.ended[i] else self.reached[i])
                if len(keys) or patterns:
                    acted = True
                    yield from self._close(i, keys, patterns)
            if acted:
                yield from self._advance({})

    def _invalidate(self, i: int, start_us: int, stop_us: int, touched: list[Batch]) -> Iterator[Output]:
        """Drop useless rows of input i with start <= time < stop; adds the keys that it may finish."""
        for run in self.sides[i].runs:
            rows = run.live_between(start_us, stop_us)
            if len(rows) == 0:
                continue
            # with two inputs, the one other input has passed them all by
            gone = rows if len(self.sides) == 2 else self._useless_by_any_means(i, run.batch, rows)
            yield from self._release(i, run, gone)
            self.counters[i].invalidated += run.kill(gone)
            if len(gone) and not self.promises[i].empty:
                keys = run.batch.only_keys().take(np.sort(gone)).distinct_keys()
                touched.append(keys.where(self.promises[i].closed(keys)))

    def _useless_by_any_means(self, i: int, batch: Batch, rows: Ints) -> Ints:
        rows = np.sort(rows)
        keys = batch.only_keys().take(rows)
        group = keys.groups.of_rows()
        nobody: Mask = np.zeros(len(rows), np.bool_)
        closed = [
            nobody if promises.empty or m == i else promises.closed(keys)[group]
            for m, promises in enumerate(self.promises)
        ]
        return rows[self._useless(i, batch, rows, closed)]

    def _others(self, i: int) -> list[int]:
        return [other for other in range(len(self.sides)) if other != i]
