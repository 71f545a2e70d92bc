"""Stream join operator: a join of n >= 2 streams on a common key, with bounded state.

Rules, for input i with stored tuples S_i, window W_i and watermark P_i:

- a result has one tuple per input, equal keys, and (latest time) - t_i <= W_i for every i;
- a tuple of S_i is *useless* when for every other input m: m is closed for its key, or
  P_m > t + W_i. Tested on arrival after probing, on punctuations and on watermarks;
- a tuple of S_i is *expired* when P_i > t + ttl_i, useless or not: it is lost, and counted;
- a key is *spent* when every input is closed for it, or some input is closed for it and stores no
  tuple of it that is not useless: nothing of it will match any more. Its tuples are purged,
  later arrivals are dropped;
- a key is *finished* when it is spent and every preserved input is closed for it. It is propagated
  once; no result for it ever follows;
- where every input has a window, a key that i closed at its time c is *forgotten* when P_i > c and
  P_m > c + W_i for every other m: what comes then is a new key.

A tuple of a preserved input (outer and anti joins) that matched nothing leaves padded with nulls
when it is evicted: useless, or its key spent.

Punctuations act after the rows before them on their own input; watermarks act after the whole batch, and
after them the punctuations that were scheduled for them; windows may evict while it is at work (`frontier`).
Every public step leaves a state that can be stored and restored. Nothing here knows how it is
run: rows and punctuations come in as `Arrivals`, results go out as `Output` elements.

The operator schedules and probes; `Eviction` evicts; both work on one `OperatorState`.

Cost of a batch of b rows against n rows of state: b log n to probe, b amortised log(n / b) for
compaction; a punctuation touches the rows of its key, a range the keys of the runs.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace

import numpy as np

from streamjoin.columnar.batch import Batch, Ints, Mask
from streamjoin.join.admission import Violation, admit
from streamjoin.join.arrival_order import Implied
from streamjoin.join.arrivals import Arrivals, Positions
from streamjoin.join.eviction import Eviction, NewlyClosed
from streamjoin.join.frontier import WindowEviction
from streamjoin.join.matches import Matches
from streamjoin.join.operator_state import OperatorState
from streamjoin.join.outputs import FinishedPatterns, Output, Results, StateSize
from streamjoin.join.pending_removal import come_again, pending_keys, remove_purged
from streamjoin.join.probe import Find, Probe
from streamjoin.join.propagation import forward
from streamjoin.join.queues import InputQueue, Standing
from streamjoin.join.result_rows import passing
from streamjoin.join.spec import JoinSpec
from streamjoin.join.statistics.forecast import Outlook
from streamjoin.join.statistics.monitor import Seen
from streamjoin.join.strategies.declared import DriverStatistics
from streamjoin.join.strategies.driver import Driver
from streamjoin.join.strategies.purge import NoPurge
from streamjoin.join.waiting_pool import Retrieved, WaitingPools
from streamjoin.state.run import Hit


class StreamJoin:
    """One join, or one hash bucket of it, at work."""

    def __init__(self, spec: JoinSpec) -> None:
        self.spec = spec
        self.state = state = OperatorState(spec)
        self.eviction = Eviction(state)
        self.window_eviction = WindowEviction(self.eviction)
        # objects of the state, which are never replaced
        self.names, self.sides, self.closed_keys = state.names, state.sides, state.closed_keys
        self.groups, self.followers, self.calibration = state.groups, state.followers, state.calibration
        self.counters, self.deferred = state.counters.inputs, state.deferred
        self.selectivities = state.selectivities
        self.driver_statistics = DriverStatistics.of(spec.strategies.driver, state.selectivities)
        self.pools = WaitingPools()  # empty between batches
        self.turns = 0  # how often an input was chosen; not part of the state

    @property
    def watermarks(self) -> list[int]:
        """The watermark of each input."""
        return self.state.watermarks.current

    @property
    def results(self) -> int:
        return self.state.counters.results

    @property
    def propagated_keys(self) -> int:
        return self.state.counters.propagated_keys

    @property
    def fallbacks(self) -> int:
        return self.state.counters.fallbacks

    def state_size(self) -> StateSize:
        """What the state is made of now."""
        return self.state.size()

    def seen(self) -> list[Seen]:
        """What the monitor has seen of each input."""
        return [
            monitor.seen(0 if follower is None else follower.widest_slack)
            for monitor, follower in zip(self.state.monitors, self.followers, strict=True)
        ]

    def outlook(self) -> list[Outlook]:
        """Tuples of each input, measured beside predicted."""
        return self.calibration.outlook([side.live_rows for side in self.sides])

    def process(self, arrivals: dict[int, Arrivals]) -> Iterator[Output]:
        """Work through one batch; must be exhausted before anything else is asked."""
        if self.groups is None:
            yield from self._work(arrivals)
            return
        wide: list[Output] = []  # may speak of null keys, whose groups are final after the others
        for output in self.groups.over(self._work(arrivals)):
            if isinstance(output, FinishedPatterns):
                wide.append(output)
            else:
                yield output
        if all(self.closed_keys[i].ended for i in self.spec.how.preserved):
            yield from self.groups.finish_unkeyed()
        yield from wide
        self.groups.end_batch()

    def _work(self, arrivals: dict[int, Arrivals]) -> Iterator[Output]:
        self.state.counters.step += 1
        self.names.begin(self.state.counters.step)
        if come_again(self.state, arrivals.values()):
            remove_purged(self.state)
        coming = sum(2 * arrived.rows.nbytes for arrived in arrivals.values())
        yield from self._purge_before_spilling(coming)
        self.names.memory_manager.shrink(coming)
        if self.deferred.active and not self.spec.defers:
            yield from self._join_deferred(blocked=True)
            self.deferred.stop(self.sides)
        for i, arrived in arrivals.items():
            self.state.watermarks.begin(i, arrived.latest_us)
        queues: list[InputQueue] = []
        rows = [counters.rows for counters in self.counters]
        known = self.driver_statistics
        standing = Standing(self.sides, known.selectivities, self.results, rows, known.per_row)
        implied: dict[int, Implied] = {}
        for i, arrived in sorted(arrivals.items()):
            yield from self._admit(i, self._follow(i, arrived, implied), queues, standing)
        driver = self._driver(queues)
        previous = None
        yield from self.window_eviction.begin(queues, arrivals)
        while waiting := [queue for queue in queues if not queue.done]:
            previous, quota = driver.choose(waiting, previous)
            queue = next(queue for queue in waiting if queue.input == previous)
            self.turns += 1
            yield from self._purge_before_spilling(2 * queue.rows.nbytes)
            yield from self._turn(previous, Retrieved(*queue.take(quota)))
            yield from self.window_eviction.advance()
        self.window_eviction.end()
        for i in self.pools.inputs():
            yield from self._work_off(i, self.pools.with_waiting(i, self._nothing(i)))
        for i, closed in implied.items():
            yield from self.eviction.close(i, closed.keys, closed.patterns)
        yield from self.eviction.advance_watermarks(arrivals)
        yield from self.eviction.apply_scheduled()
        yield from self._join_deferred(blocked=not any(len(arrived.rows) for arrived in arrivals.values()))
        blocked = not any(arrived.brings for arrived in arrivals.values())
        now = all(self.state.watermarks.ended) or (self.spec.purges_whole and blocked)
        yield from self.eviction.purge_due(idle=True, ended=now)
        yield from self._purge_before_spilling(0)
        yield from self.eviction.settle()
        self.eviction.forget_closed()
        yield from self.eviction.propagate_ranges()
        if self.spec.feeds_join:
            yield from forward(self.state)
        for side in self.sides:
            side.drop_tombstoned()
        if self.spec.monitored:
            self.state.calibrate(arrivals)
        self.selectivities.end_batch()
        self.names.memory_manager.shrink()

    def _purge_before_spilling(self, spare_bytes: int) -> Iterator[Output]:
        """Memory is full and punctuations wait: purge before runs are spilled (MJoin's third trigger)."""
        manager = self.names.memory_manager
        if isinstance(self.spec.strategies.purge, NoPurge) or not pending_keys(self.state):
            return
        if manager.limit_bytes is not None and manager.resident_bytes + spare_bytes > manager.limit_bytes:
            yield from self.eviction.purge_due(idle=False, ended=True)
            for side in self.sides:
                side.drop_tombstoned()

    def _driver(self, queues: Sequence[InputQueue]) -> Driver:
        """The driver of this batch; a batch in which it lacks the selectivities it needs is counted."""
        driver = self.spec.strategies.driver
        if (
            getattr(driver, "needs_selectivities", False)
            and len(queues) > 1
            and not self.driver_statistics.known
        ):
            self.state.counters.fallbacks += 1
        for_batch = getattr(driver, "for_batch", None)
        return driver if for_batch is None or not queues else for_batch(queues)

    def _follow(self, i: int, arrived: Arrivals, implied: dict[int, Implied]) -> Arrivals:
        """Find rows that violate the declared order of arrival; what it closes acts after the whole batch."""
        following = self.followers[i]
        found = None if following is None else following.follow(arrived)
        if found is None:
            return arrived
        implied[i] = found
        return replace(arrived, behind=found.behind)

    def _admit(
        self, i: int, arrived: Arrivals, queues: list[InputQueue], standing: Standing
    ) -> Iterator[Output]:
        counters = self.counters[i]
        counters.punctuations += len(arrived.keys) + len(arrived.patterns) + len(arrived.scheduled_patterns)
        counters.punctuations += 0 if arrived.scheduled is None else len(arrived.scheduled)
        if self.spec.monitored:
            self.state.monitors[i].see(arrived.rows, arrived.order)
        spec = self.spec.inputs[i]
        if not spec.uses_punctuations:
            arrived = arrived.without_punctuations()
        late_before = self.state.watermarks.current[i] if self.spec.windowed else None
        admitted = admit(i, spec, arrived, self.closed_keys[i], late_before=late_before)
        counters.rows += len(arrived.rows) + arrived.null_keys
        counters.null_keys += arrived.null_keys
        counters.control_rows_with_data += arrived.control_rows_with_data
        self.state.scheduled[i].add(arrived.scheduled, arrived.scheduled_patterns)
        self.state.forwarded[i].add(arrived.forwarded)
        for violation in admitted.violations:
            setattr(counters, violation.reason, getattr(counters, violation.reason) + len(violation.rows))
            yield violation
        if arrived.unkeyed is not None and i in self.spec.how.preserved:
            if self.closed_keys[i].ended and len(arrived.unkeyed):
                counters.after_punctuation += len(arrived.unkeyed)
                yield Violation(i, "after_punctuation", arrived.unkeyed, kept=False)
            else:
                yield from self.eviction.pad_unmatched(i, arrived.unkeyed, np.arange(len(arrived.unkeyed)))
        keys, keys_at = self.state.partial_punctuations[i].fulfilled(*self._not_closed_yet(i, arrived))
        patterns, patterns_at = self.state.partial_punctuations[i].fulfilled_patterns(
            arrived.patterns, arrived.patterns_at, self.closed_keys[i]
        )
        rows = admitted.rows
        if admitted.at is None and getattr(self.spec.strategies.driver, "by_time", False):
            rows = rows.take(np.argsort(rows.time, kind="stable"))
        queue = InputQueue(
            i,
            rows,
            admitted.at,
            keys,
            keys_at,
            patterns,
            patterns_at,
            spec.unique,
            spec.arrival is not None,
            self.sides[i].live_rows,
            standing,
        )
        if not queue.done:
            queues.append(queue)

    def _not_closed_yet(self, i: int, arrived: Arrivals) -> tuple[Batch, Positions | None]:
        """The punctuated keys; where each must come from several partitions, only those still open."""
        keys, at = arrived.keys, arrived.keys_at
        if self.spec.inputs[i].partitions == 1 or at is None or self.closed_keys[i].empty:
            return keys, at
        order = keys.sort_order()
        by_key = keys.take(order)
        still = order[~np.repeat(self.closed_keys[i].closed(by_key), by_key.groups.count)]
        return keys.take(still), at.take(still)

    def _turn(self, i: int, retrieved: Retrieved) -> Iterator[Output]:
        """Rows of input i and the punctuations behind them; rows that others wait for come first, and the
        rest waits until nothing is urgent.
        """
        order = self.spec.strategies.order
        candidates = self.pools.with_waiting(i, retrieved)
        urgent = order.urgent(lambda: self._awaited(i, candidates.rows))
        if urgent is None:
            yield from self._join(i, candidates.rows)
            yield from self.eviction.close(i, candidates.keys, candidates.patterns)
            return
        new = len(candidates.rows) - len(retrieved.rows)
        self.counters[i].reordered += int(np.count_nonzero(~urgent[new:]))
        rest = yield from self._urgent_first(i, candidates, urgent)
        self.pools.wait(i, rest)

    def _urgent_first(self, i: int, retrieved: Retrieved, urgent: Mask) -> Generator[Output, None, Retrieved]:
        """Join the urgent rows, close the keys that others wait for; returns the rest."""
        awaited = self._awaited(i, retrieved.keys)
        yield from self._join(i, retrieved.rows.where(urgent))
        yield from self.eviction.close(i, retrieved.keys.where(awaited), ())
        return Retrieved(retrieved.rows.where(~urgent), retrieved.keys.where(~awaited), retrieved.patterns)

    def _work_off(self, i: int, waiting: Retrieved) -> Iterator[Output]:
        """The queues are empty: what waited of input i is joined, urgent rows first."""
        urgent = self.spec.strategies.order.urgent(lambda: self._awaited(i, waiting.rows))
        if urgent is not None:
            waiting = yield from self._urgent_first(i, waiting, urgent)
        yield from self._join(i, waiting.rows)
        yield from self.eviction.close(i, waiting.keys, waiting.patterns)

    def _nothing(self, i: int) -> Retrieved:
        layout = self.spec.inputs[i].layout
        return Retrieved(layout.empty(), layout.keys_only.empty())

    def _awaited(self, i: int, rows: Batch) -> Mask:
        """For each row: has a punctuation closed its key on another input, but not yet on this one?"""
        awaited: Mask = np.zeros(len(rows), np.bool_)
        order = rows.sort_order()
        by_key = rows.take(order)
        group = by_key.groups.of_rows()
        for other in self.state.others(i):
            if not self.closed_keys[other].empty:
                awaited[order] |= self.closed_keys[other].closed_by_punctuation(by_key)[group]
        return awaited

    # Rows

    def _join(self, i: int, arrived: Batch) -> Iterator[Output]:
        """Probe with rows of input i, then keep those that can still join."""
        if len(arrived) == 0:
            return
        rows = arrived.sorted()
        failing = None if self.spec.where is None else self.spec.where.failing(i, rows)
        if failing is not None and failing.any():
            yield from self._join_passing(i, rows.where(~failing))
            yield from self._filter_out(i, rows.where(failing))
        else:
            yield from self._join_passing(i, rows)

    def _drop_finished(self, i: int, rows: Batch) -> Generator[Output, None, Batch]:
        """Rows of finished keys match nothing: they are not looked up (PWJoin section 4.4)."""
        finished = self.state.propagated.contains(rows)
        if not finished.any():
            return rows
        over = finished[rows.groups.of_rows()]
        self.counters[i].not_stored += int(np.count_nonzero(over))
        yield from self._pass_over(i, rows.where(over))
        return rows.where(~over)

    def _filter_out(self, i: int, rows: Batch) -> Iterator[Output]:
        """Rows of input i that match nothing by a condition on it alone are not stored."""
        self.counters[i].filtered += len(rows)
        yield from self._pass_over(i, rows)

    def _pass_over(self, i: int, rows: Batch) -> Iterator[Output]:
        """Sorted rows of input i that match nothing and are not stored."""
        if self.spec.monitored:
            self.calibration.came(i, rows.hash, np.zeros(len(rows), np.bool_))
        if i in self.spec.how.preserved:
            yield from self.eviction.pad_unmatched(i, rows, np.arange(len(rows)))
        if self.spec.inputs[i].unique:
            yield from self.eviction.purge(rows.distinct_keys(), NewlyClosed(i, self.closed_keys[i].see))

    def _join_passing(self, i: int, rows: Batch) -> Iterator[Output]:
        """As `_join`, for sorted rows that passed the conditions on their input alone."""
        rows = yield from self._drop_finished(i, rows)
        if len(rows) == 0:
            return
        turn = self.deferred.begin_turn()
        probe = self._probe(i, rows)
        matches = Matches(probe)
        yield from self._results(probe, matches)
        stored = self._worth_keeping(i, rows, probe)
        if self.spec.how.forgets_matched and i == 0:
            stored &= ~matches.driving
        expired = stored & self._too_old(i, rows)
        stored = self._keep_for_deferred(i, rows, stored & ~expired)
        expired &= ~stored
        if self.spec.monitored:
            self.calibration.came(i, rows.hash, stored)
        kept = rows.where(stored)
        self.counters[i].stored += len(kept)
        self.counters[i].expired += (lost := int(np.count_nonzero(expired)))
        self.counters[i].not_stored += len(rows) - len(kept) - lost
        if i in self.spec.how.preserved:
            yield from self.eviction.pad_unmatched(i, rows, np.flatnonzero(~stored & ~matches.driving))
        flags = matches.driving[stored] if matches.driving.any() else None
        self.sides[i].append(kept, flags, turn=turn)
        if self.spec.inputs[i].unique:
            yield from self._close_seen(i, rows, stored, probe)

    def _probe(self, i: int, rows: Batch) -> Probe:
        """What the others store of the keys of sorted rows, visited in the order of the probe strategy."""
        others = self.state.others(i)
        sizes = [side.live_rows for side in self.sides]
        runs = {other: self.sides[other].in_memory_first(never_spilled=self.spec.defers) for other in others}

        def find(other: int, keys: Batch) -> list[Hit]:
            return self.sides[other].match(keys, runs[other])

        windows = tuple(spec.window_us for spec in self.spec.inputs)
        probe = Probe(i, rows, windows, self.spec.frame_rows, self.spec.how.tracked)
        sequence = self.spec.strategies.probe.sequence(i, others, sizes, self.selectivities)
        probe.visit(sequence, find, all_keys=len(others) == 1 or bool(self.spec.how.tracked))
        self.counters[i].probes += probe.lookups
        self.counters[i].intermediate += probe.intermediate
        self._measure(probe, sizes, find)
        return probe

    def _measure(self, probe: Probe, sizes: Sequence[int], find: Find) -> None:
        """Learn from some keys how often tuples of the inputs meet."""
        groups = probe.rows.groups
        step = self.selectivities.every(len(groups))
        keys = np.arange((self.turns * 7) % step, len(groups), step)
        if len(keys) == 0:
            return
        unread = self.spec.memory_share is not None  # then looking for a sample may read runs again
        counts = {
            other: probe.look_up(other, keys, find)
            for other in probe.sequence
            if not (unread and probe.not_looked_up(other).any())
        }
        self.selectivities.learn(probe.driver, groups.count[keys], counts, sizes)

    def _keep_for_deferred(self, i: int, rows: Batch, stored: Mask) -> Mask:
        """Rows that may match spilled rows stay until those matches are made."""
        deferred = self.deferred.defer(rows, [self.sides[other] for other in self.state.others(i)])
        if deferred is None:
            return stored
        self.state.pending_purge.add(rows.where(deferred & ~stored).distinct_keys())
        return stored | deferred

    def _join_deferred(self, *, blocked: bool) -> Iterator[Output]:
        """Make deferred matches: of one slice while the inputs are blocked, all when they have ended."""
        whole = all(self.state.watermarks.ended) or not self.spec.defers
        if not self.deferred.active or not (whole or blocked):
            return
        windows = tuple(spec.window_us for spec in self.spec.inputs)
        slices = self.deferred.slices(only_largest=not whole)
        for number in slices:
            for frame in self.deferred.frames(number, self.sides, windows, self.spec.frame_rows):
                chosen, rows = passing(self.spec, frame)
                if rows.num_rows:
                    self.state.counters.results += rows.num_rows
                    yield Results(rows, chosen)
            self.deferred.complete(number)
        if slices:
            yield from self.eviction.evict_delayed()

    def _results(self, probe: Probe, matches: Matches) -> Iterator[Output]:
        """What the rows of a probe give, noting which tuples have matched."""
        others = self.state.others(probe.driver)
        how = self.spec.how
        tested = self.spec.where is not None and self.spec.where.joined is not None
        if how.forgets_matched and not tested and not self.spec.windowed:
            matches.note_keys(others[0])
        else:
            for frame in probe.frames():
                chosen, rows = passing(self.spec, frame)
                matches.note(chosen)
                if how.combinations and rows.num_rows:
                    self.state.counters.results += rows.num_rows
                    yield Results(rows, chosen)
        if how.forgets_matched:
            yield from self._evict_matched(probe, matches)

    def _evict_matched(self, probe: Probe, matches: Matches) -> Iterator[Output]:
        """Evict left tuples that have matched: as results of a semi join, silently of an anti join."""
        if probe.driver == 0:
            if self.spec.how.first_match:
                yield from self.eviction.emit_alone(0, probe.rows, np.flatnonzero(matches.driving))
            return
        touched = []
        for run, rows in matches.stored(0):
            if self.spec.how.first_match:
                yield from self.eviction.emit_alone(0, run.batch, rows)
            self.calibration.lives[0].evicted(np.sort(run.batch.hash[rows]))
            self.counters[0].purged += run.delete(rows)
            if len(rows) and not self.closed_keys[0].empty:
                keys = run.batch.only_keys().take(rows).distinct_keys()
                touched.append(keys.where(self.closed_keys[0].closed(keys)))
        yield from self.eviction.purge_touched(touched)

    def _worth_keeping(self, i: int, rows: Batch, probe: Probe) -> Mask:
        """Which rows may still join something that comes later."""
        useless: Mask = np.ones(len(rows), np.bool_)
        over: Mask = np.zeros(len(rows.groups), np.bool_)
        group: Ints | None = None
        for other in self.state.others(i):
            passed = self._past_window(i, other, rows)
            if not self.closed_keys[other].empty:
                closed = self.closed_keys[other].closed(rows)
                if closed.any():
                    over |= closed & ~self._present(probe, other, closed)
                    group = rows.groups.of_rows() if group is None else group
                    passed = passed | closed[group]
            useless &= passed
        if self.spec.inputs[i].on_violation == "keep" and not self.closed_keys[i].empty:
            over |= self.closed_keys[i].closed(rows) & ~self.sides[i].present(rows)
        if over.any():
            useless |= over[rows.groups.of_rows()]
        return ~useless

    def _present(self, probe: Probe, other: int, asked: Mask) -> Mask:
        """For the keys of a probe that are asked for, whether `other` stores a live row of them."""
        found = probe.present(other)
        missing = asked & probe.not_looked_up(other)
        if missing.any():
            found[missing] = self.sides[other].present(probe.keys(np.flatnonzero(missing)))
        return found

    def _past_window(self, i: int, other: int, rows: Batch) -> Mask:
        """Rows of input i for which every coming row of `other` lies outside the window."""
        span = self.spec.inputs[i].span_to(other)
        if span is None:
            return np.zeros(len(rows), np.bool_)
        past: Mask = rows.bound < self.state.watermarks.passed[other] - span
        return past

    def _too_old(self, i: int, rows: Batch) -> Mask:
        """Rows of input i that come when their ttl is over."""
        ttl = self.spec.inputs[i].ttl_us
        if ttl is None:
            return np.zeros(len(rows), np.bool_)
        old: Mask = rows.time < self.state.watermarks.current[i] - ttl
        return old

    def _close_seen(self, i: int, rows: Batch, stored: Mask, probe: Probe) -> Iterator[Output]:
        """A unique input is closed for a key by its first tuple."""
        touched: Mask = np.zeros(len(rows.groups), np.bool_)
        touched[rows.groups.of_rows()[~stored]] = True
        for other in self.state.others(i):
            touched |= self._present(probe, other, ~touched)
        keys = rows.distinct_keys()
        if self.deferred.active:
            touched |= self.deferred.has_deferred(keys.hash)
        self.closed_keys[i].see(keys.where(~touched))
        yield from self.eviction.purge(keys.where(touched), NewlyClosed(i, self.closed_keys[i].see))
