"""The one operator: a join of n >= 2 streams on a common key that knows when to let go.

Rules (design section 4), for input i with state S_i, window W_i, progress P_i:

- a result has one tuple per input, equal keys, and (latest time) - t_i <= W_i for every i;
- a tuple of S_i is *useless* when for every other input m: m is closed for its key, or
  P_m > t + W_i. Tested on arrival after probing, on promises and on progress;
- a key is *finished* when every input is closed for it, or some input is closed for it and holds
  no tuple of it that is not useless. It is announced once, its tuples are forgotten, later
  arrivals are dropped; no result for it ever follows.

Promises act after the rows before them on their own input; progress acts after the whole batch.
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
from streamjoin.kernels.assemble import assemble
from streamjoin.operators.admission import Violation, admit
from streamjoin.operators.arrival_order import Implied, follower
from streamjoin.operators.arrivals import Arrivals, Positions
from streamjoin.operators.pledges import Pledges
from streamjoin.operators.probe import Probe
from streamjoin.operators.progress import Progress
from streamjoin.operators.queues import InputQueue
from streamjoin.operators.spec import JoinSpec
from streamjoin.state.promises import KeyPatterns, Promises, matching_keys
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
        self.followers = [follower(one.arrival, one.layout, one.name) for one in spec.inputs]
        self.announced = KeySet("a", spec.inputs[0].layout, self.names, spec.merging)
        self.unsettled: list[Batch] = []
        self.progress = Progress(spec.inputs)
        self.reached = self.progress.of_all()
        self.counters = [Counters() for _ in count]
        self.results = 0
        self.announcements = 0
        self.step = 0

    def held(self) -> Held:
        """What the state is made of now."""
        promises = sum(map(len, self.promises)) + sum(map(len, self.pledges)) + len(self.announced)
        rows = sum(side.live_rows for side in self.sides)
        return Held(rows, self.nbytes, promises, sum(map(len, self.unsettled)))

    @property
    def nbytes(self) -> int:
        """Bytes of all runs, dead rows included."""
        tuples = sum(side.nbytes for side in self.sides) + sum(
            pledges.side.nbytes for pledges in self.pledges
        )
        return tuples + sum(promises.nbytes for promises in self.promises) + self.announced.side.nbytes

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
            rows, keys, patterns = queue.take(quota)
            yield from self._join(previous, rows)
            yield from self._close(previous, keys, patterns)
        for i, closed in implied.items():
            yield from self._close(i, closed.keys, closed.patterns)
        yield from self._advance(arrivals)
        yield from self._settle_due(batch_ends=True)
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
        late_before = self.reached[i] if self.spec.windowed else None
        admitted = admit(i, self.spec.inputs[i], arrived, self.promises[i], late_before=late_before)
        counters = self.counters[i]
        counters.rows += len(arrived.rows) + arrived.null_keys
        counters.null_keys += arrived.null_keys
        counters.punctuations += len(arrived.keys) + len(arrived.patterns)
        for violation in admitted.violations:
            setattr(counters, violation.reason, getattr(counters, violation.reason) + len(violation.rows))
            yield violation
        keys, keys_at = self.pledges[i].fulfilled(*self._not_closed_yet(i, arrived))
        patterns, patterns_at = self.pledges[i].fulfilled_patterns(
            arrived.patterns, arrived.patterns_at, self.promises[i]
        )
        rows = self.spec.strategies.order.arrange(admitted.rows)
        queue = InputQueue(i, rows, admitted.at, keys, keys_at, patterns, patterns_at)
        if not queue.done:
            queues.append(queue)

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
        )
        live = [side.live_rows for side in self.sides]
        for frame in probe.frames(self.spec.strategies.probe.sequence(others, live)):
            self.results += len(frame[0][1])
            yield Results(assemble(frame, self.spec.output))
        self.counters[i].probes += len(rows) * len(others)
        stored = self._worth_keeping(i, rows, probe)
        kept = rows.where(stored)
        self.counters[i].stored += len(kept)
        self.counters[i].dropped += len(rows) - len(kept)
        self.sides[i].append(kept)
        if self.spec.inputs[i].unique:
            yield from self._close_seen(i, rows, stored, probe)

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
        if not patterns and not self.unsettled and self._purge_is_due(len(distinct), batch_ends=False):
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
        if any(map(len, touched)):
            self.unsettled.append(concat(distinct.layout, touched))
        yield from self._settle_due(batch_ends=False)

    def _purge_is_due(self, waiting: int, *, batch_ends: bool) -> bool:
        return waiting > 0 and self.spec.strategies.purge.due(waiting, batch_ends=batch_ends)

    def _all_key_sides(self) -> Iterator[Side]:
        yield from self.sides
        for promises in self.promises:
            for key_set in promises.key_sets:
                yield key_set.side
        yield self.announced.side

    def _settle_due(self, *, batch_ends: bool) -> Iterator[Output]:
        if self._purge_is_due(sum(map(len, self.unsettled)), batch_ends=batch_ends):
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
        for i in range(len(self.sides)):
            doomed = np.logical_and.reduce([closed[other] for other in self._others(i)])
            self._forget_tuples(i, keys.where(doomed))
            rest = np.flatnonzero(~doomed)
            present: Mask = np.zeros(len(keys), np.bool_)
            present[rest] = self._still_held(i, keys.take(rest), [mask[rest] for mask in closed])
            held.append(present)
        closed_by_all = np.logical_and.reduce(closed)
        finished = closed_by_all | np.logical_or.reduce(
            [mask & ~present for mask, present in zip(closed, held, strict=True)]
        )
        for i, present in enumerate(held):
            self._forget_tuples(i, keys.where(finished & present))
        if new is not None:
            new.remember(keys.where(~closed_by_all))
            self.pledges[new.input].forget(keys)
        if finished.any():
            yield from self._announce(keys, finished, closed_by_all)

    def _forget_tuples(self, i: int, keys: Batch) -> None:
        """Let go of everything input i holds of these keys."""
        for hit in self.sides[i].match(keys):
            self.counters[i].purged += hit.run.kill_stretches(hit.start, hit.count)

    def _still_held(self, i: int, keys: Batch, closed: Sequence[Mask]) -> Mask:
        """For each key, whether input i holds a tuple of it that is not useless.

        Tuples that some inputs have closed and all others have passed by go now; that takes a
        window and a third input.
        """
        if len(self.sides) > 2 and self.spec.inputs[i].window_us is not None:
            for hit in self.sides[i].match(keys):
                position, rows = hit.live()
                group = hit.probe[position]
                useless = self._useless(i, hit.run.batch, rows, [mask[group] for mask in closed])
                self.counters[i].purged += hit.run.kill(rows[useless])
        return self.sides[i].present(keys)

    def _announce(self, keys: Batch, finished: Mask, closed_by_all: Mask) -> Iterator[Output]:
        """Tell of finished keys once; forget promises that nobody can break any more."""
        if self.spec.propagate:
            news = finished & ~self.announced.contains(keys)
            if news.any():
                self.announcements += int(news.sum())
                yield Finished(keys.where(news))
            self.announced.add(keys.where(news & ~closed_by_all))
        if closed_by_all.any():
            over = keys.where(closed_by_all)
            for promises, pledges in zip(self.promises, self.pledges, strict=True):
                promises.forget(over)
                pledges.forget(over)
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
                    touched += self._invalidate(i, start, stop)
        if touched:
            yield from self._settle(concat(touched[0].layout, touched).sorted().distinct_keys())

    def _invalidate(self, i: int, start_us: int, stop_us: int) -> Iterator[Batch]:
        """Drop useless rows of input i with start <= time < stop; gives the keys that it may finish."""
        for run in self.sides[i].runs:
            rows = run.live_between(start_us, stop_us)
            if len(rows) == 0:
                continue
            # with two inputs, the one other input has passed them all by
            gone = rows if len(self.sides) == 2 else self._useless_by_any_means(i, run.batch, rows)
            self.counters[i].invalidated += run.kill(gone)
            if len(gone) and not self.promises[i].empty:
                keys = run.batch.only_keys().take(np.sort(gone)).distinct_keys()
                yield keys.where(self.promises[i].closed(keys))

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
