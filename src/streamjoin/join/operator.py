"""The one operator: a join of n >= 2 streams on a common key that knows when to let go.

Rules (design section 4), for input i with state S_i, window W_i, progress P_i:

- a result has one tuple per input, equal keys, and (latest time) - t_i <= W_i for every i;
- a tuple of S_i is *useless* when for every other input m: m is closed for its key, or
  P_m > t + W_i. Tested on arrival after probing, on promises and on progress;
- a tuple of S_i is *expired* when P_i > t + ttl_i, useless or not: it is lost, and counted;
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

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from streamjoin.columnar.assemble import Component, assemble
from streamjoin.columnar.batch import Batch, Ints, Mask
from streamjoin.columnar.window import latest_and_until
from streamjoin.join.admission import Violation, admit
from streamjoin.join.arrival_order import Implied
from streamjoin.join.arrivals import Arrivals, Positions
from streamjoin.join.eviction import Eviction, NewlyClosed
from streamjoin.join.forwarding import forward
from streamjoin.join.matches import Matches
from streamjoin.join.outputs import Output, Results
from streamjoin.join.probe import Find, Probe
from streamjoin.join.queues import InputQueue, Standing
from streamjoin.join.strategies.protocols import Driver
from streamjoin.state.closed_keys import KeyPatterns
from streamjoin.state.run import Hit

_NO_COLUMNS = pa.RecordBatch.from_arrays([], [])


class StreamJoin(Eviction):
    """One join, or one hash bucket of it, at work."""

    def process(self, arrivals: dict[int, Arrivals]) -> Iterator[Output]:
        """Work through one batch; must be exhausted before anything else is asked."""
        if self.groups is None:
            yield from self._work(arrivals)
            return
        yield from self.groups.over(self._work(arrivals))
        if all(self.closed_keys[i].ended for i in self.spec.how.preserved):
            yield from self.groups.finish_unkeyed()
        self.groups.end_batch()

    def _work(self, arrivals: dict[int, Arrivals]) -> Iterator[Output]:
        self.step += 1
        self.names.begin(self.step)
        self.names.memory_manager.shrink(sum(2 * arrived.rows.nbytes for arrived in arrivals.values()))
        if not self.spec.defers:
            yield from self._defer_no_more()
        queues: list[InputQueue] = []
        standing = Standing(
            self.sides, self.measured, self.results, [counters.rows for counters in self.counters]
        )
        implied: dict[int, Implied] = {}
        for i, arrived in sorted(arrivals.items()):
            yield from self._admit(i, self._follow(i, arrived, implied), queues, standing)
        driver = self._driver(queues)
        previous = None
        while waiting := [queue for queue in queues if not queue.done]:
            previous, quota = driver.choose(waiting, previous)
            queue = next(queue for queue in waiting if queue.input == previous)
            self.turns += 1
            yield from self._turn(previous, *queue.take(quota))
        for i, closed in implied.items():
            yield from self._close(i, closed.keys, closed.patterns)
        yield from self._advance(arrivals)
        yield from self._keep_schedules()
        yield from self._work_off(blocked=not any(len(arrived.rows) for arrived in arrivals.values()))
        yield from self._settle_due(idle=True, ended=all(self.own_watermarks.ended))
        yield from self._propagate_patterns()
        if self.spec.feeds_join:
            yield from forward(self)
        for side in self.sides:
            side.drop_tombstoned()
        if self.spec.monitored:
            self._calibrate(arrivals)
        self.measured.end_batch()
        self.names.memory_manager.shrink()

    def _driver(self, queues: Sequence[InputQueue]) -> Driver:
        """Who chooses in this batch; counted is where what it needs to know is not known yet."""
        driver = self.spec.strategies.driver
        if getattr(driver, "needs_selectivities", False) and len(queues) > 1 and not self.measured.known:
            self.fallbacks += 1
        for_batch = getattr(driver, "for_batch", None)
        return driver if for_batch is None or not queues else for_batch(queues)

    def _follow(self, i: int, arrived: Arrivals, implied: dict[int, Implied]) -> Arrivals:
        """Who breaks the declared order of arrival; what it implies acts after the whole batch."""
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
            self.monitors[i].see(arrived.rows, arrived.order)
        spec = self.spec.inputs[i]
        if not spec.uses_punctuations:
            arrived = arrived.without_punctuations()
        late_before = self.watermarks[i] if self.spec.windowed else None
        admitted = admit(i, spec, arrived, self.closed_keys[i], late_before=late_before)
        counters.rows += len(arrived.rows) + arrived.null_keys
        counters.null_keys += arrived.null_keys
        self.scheduled[i].add(arrived.scheduled, arrived.scheduled_patterns)
        self.forwarded[i].add(arrived.forwarded)
        for violation in admitted.violations:
            setattr(counters, violation.reason, getattr(counters, violation.reason) + len(violation.rows))
            yield violation
        if arrived.unkeyed is not None and i in self.spec.how.preserved:
            if self.closed_keys[i].ended and len(arrived.unkeyed):
                counters.after_punctuation += len(arrived.unkeyed)
                yield Violation(i, "after_punctuation", arrived.unkeyed, kept=False)
            else:
                yield from self._padded(i, arrived.unkeyed, np.arange(len(arrived.unkeyed)))
        keys, keys_at = self.partial_punctuations[i].fulfilled(*self._not_closed_yet(i, arrived))
        patterns, patterns_at = self.partial_punctuations[i].fulfilled_patterns(
            arrived.patterns, arrived.patterns_at, self.closed_keys[i]
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
            standing,
        )
        if not queue.done:
            queues.append(queue)

    def _not_closed_yet(self, i: int, arrived: Arrivals) -> tuple[Batch, Positions | None]:
        """The promised keys; where each must come from several partitions, only those still open."""
        keys, at = arrived.keys, arrived.keys_at
        if self.spec.inputs[i].partitions == 1 or at is None or self.closed_keys[i].empty:
            return keys, at
        order = keys.sort_order()
        by_key = keys.take(order)
        still = order[~np.repeat(self.closed_keys[i].closed(by_key), by_key.groups.count)]
        return keys.take(still), at.take(still)

    def _turn(self, i: int, rows: Batch, keys: Batch, patterns: Sequence[KeyPatterns]) -> Iterator[Output]:
        """Rows of input i and the promises behind them; rows that others wait for come first."""
        urgent = self.spec.strategies.order.urgent(lambda: self._awaited(i, rows))
        if urgent is not None:
            self.counters[i].reordered += int(np.count_nonzero(~urgent))
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
            if not self.closed_keys[other].empty:
                awaited[order] |= self.closed_keys[other].closed_by_punctuation(by_key)[group]
        return awaited

    # Rows

    def _join(self, i: int, arrived: Batch) -> Iterator[Output]:
        """Probe with rows of input i, then keep those that can still join."""
        if len(arrived) == 0:
            return
        rows = arrived.sorted()
        if self.deferred is not None:
            self.deferred.turn += 1
            self.names.memory_manager.turn = self.deferred.turn  # a run that leaves from now on was seen
        probe = self._probe(i, rows)
        matches = Matches(probe)
        yield from self._results(probe, matches)
        stored = self._worth_keeping(i, rows, probe)
        if self.spec.how.forgets_matched and i == 0:
            stored &= ~matches.driving
        expired = stored & self._too_old(i, rows)
        stored = self._with_debts(i, rows, stored & ~expired)
        expired &= ~stored
        if self.spec.monitored:
            self.calibration.came(i, rows.hash, stored)
        kept = rows.where(stored)
        self.counters[i].stored += len(kept)
        self.counters[i].expired += (lost := int(np.count_nonzero(expired)))
        self.counters[i].dropped += len(rows) - len(kept) - lost
        if i in self.spec.how.preserved:
            yield from self._padded(i, rows, np.flatnonzero(~stored & ~matches.driving))
        flags = matches.driving[stored] if matches.driving.any() else None
        self.sides[i].append(kept, flags, turn=None if self.deferred is None else self.deferred.turn)
        if self.spec.inputs[i].unique:
            yield from self._close_seen(i, rows, stored, probe)

    def _probe(self, i: int, rows: Batch) -> Probe:
        """What the others hold of the keys of sorted rows; visited in the order that the strategy says."""
        others = self._others(i)
        sizes = [side.live_rows for side in self.sides]
        runs = {other: self.sides[other].in_memory_first(stayed=self.spec.defers) for other in others}

        def find(other: int, keys: Batch) -> list[Hit]:
            return self.sides[other].match(keys, runs[other])

        windows = tuple(spec.window_us for spec in self.spec.inputs)
        probe = Probe(i, rows, windows, self.spec.frame_rows, self.spec.how.tracked)
        sequence = self.spec.strategies.probe.sequence(i, others, sizes, self.measured)
        probe.visit(sequence, find, all_keys=len(others) == 1 or bool(self.spec.how.tracked))
        self.counters[i].probes += probe.lookups
        self.counters[i].intermediate += probe.intermediate
        self._measure(probe, sizes, find)
        return probe

    def _measure(self, probe: Probe, sizes: Sequence[int], find: Find) -> None:
        """Learn from some keys how often tuples of the inputs meet."""
        groups = probe.rows.groups
        step = self.measured.every(len(groups))
        keys = np.arange((self.turns * 7) % step, len(groups), step)
        if len(keys) == 0:
            return
        unread = self.spec.memory_share is not None  # then looking for a sample may read runs again
        counts = {
            other: probe.look_up(other, keys, find)
            for other in probe.sequence
            if not (unread and probe.not_looked_up(other).any())
        }
        self.measured.learn(probe.driver, groups.count[keys], counts, sizes)

    def _with_debts(self, i: int, rows: Batch, stored: Mask) -> Mask:
        """Rows that may have partners outside memory stay until those pairs are given."""
        if self.deferred is None:
            return stored
        owing = self.deferred.owing(rows, [self.sides[other] for other in self._others(i)])
        if not owing.any():
            return stored
        self.deferred.incur(rows.where(owing))
        if (owing & ~stored).any():
            self.unsettled.append(rows.where(owing & ~stored).distinct_keys())
        return stored | owing

    def _work_off(self, *, blocked: bool) -> Iterator[Output]:
        """Give pairs that are owed: one part while inputs are blocked, all when they have ended."""
        whole = all(self.own_watermarks.ended) or not self.spec.defers
        if self.deferred is None or not (whole or blocked):
            return
        windows = tuple(spec.window_us for spec in self.spec.inputs)
        parts = self.deferred.parts(only_largest=not whole)
        for part in parts:
            for frame in self.deferred.frames(part, self.sides, windows, self.spec.frame_rows):
                passing, rows = self._passing(frame)
                if rows.num_rows:
                    self.results += rows.num_rows
                    yield Results(rows, passing)
            self.deferred.settle(part)
        if parts:
            yield from self._catch_up()

    def _defer_no_more(self) -> Iterator[Output]:
        """A state in which joining waited goes on in a join that does not wait: nothing stays owed."""
        if self.deferred is None:
            return
        yield from self._work_off(blocked=True)
        self.deferred = None
        for run in (run for side in self.sides for run in side.runs):
            run.arrived = run.left = None

    def _results(self, probe: Probe, matches: Matches) -> Iterator[Output]:
        """What the rows of a probe give, noting which tuples have matched."""
        others = self._others(probe.driver)
        how = self.spec.how
        if how.forgets_matched and self.spec.where is None and not self.spec.windowed:
            matches.note_keys(others[0])
        else:
            for frame in probe.frames():
                passing, rows = self._passing(frame)
                matches.note(passing)
                if how.combinations and rows.num_rows:
                    self.results += rows.num_rows
                    yield Results(rows, passing)
        if how.forgets_matched:
            yield from self._forget_matched(probe, matches)

    def _passing(self, frame: list[Component]) -> tuple[list[Component], pa.RecordBatch]:
        """The combinations for which the join's condition holds."""
        where = self.spec.where
        if where is None:
            return frame, self._assembled(frame) if self.spec.how.combinations else _NO_COLUMNS
        rows = assemble(frame, where.joined)
        passing = where.passing(rows)
        if len(passing) == rows.num_rows:
            return frame, self._shown(rows)
        chosen = [(batch, numbers[passing]) for batch, numbers in frame]
        return chosen, self._shown(rows.take(pa.array(passing)))

    def _assembled(self, frame: list[Component]) -> pa.RecordBatch:
        """Result rows, with their stamps where a join that follows goes by them."""
        if not self.spec.stamps:
            return self._shown(assemble(frame, self.spec.output))
        declared = [spec.window_us for spec in self.spec.inputs]
        times = [of.time[at] if of.layout.timed else None for of, at in frame]
        windows = [of.windows(at, window) for (of, at), window in zip(frame, declared, strict=True)]
        stamps = latest_and_until(times, windows, len(frame[0][1]))
        return assemble(frame, self.spec.output, stamps[: len(self.spec.stamps)])

    def _shown(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The columns that leave."""
        shown = self.spec.shown
        return rows if shown is None or self.spec.grouping is not None else rows.select(list(shown))

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
            self.calibration.lives[0].gone(np.sort(run.batch.hash[rows]))
            self.counters[0].purged += run.delete(rows)
            if len(rows) and not self.closed_keys[0].empty:
                keys = run.batch.only_keys().take(rows).distinct_keys()
                touched.append(keys.where(self.closed_keys[0].closed(keys)))
        yield from self._settle_touched(touched)

    def _worth_keeping(self, i: int, rows: Batch, probe: Probe) -> Mask:
        """Which rows may still join something that comes later."""
        useless: Mask = np.ones(len(rows), np.bool_)
        over: Mask = np.zeros(len(rows.groups), np.bool_)
        group: Ints | None = None
        for other in self._others(i):
            gone = self._past_window(i, other, rows)
            if not self.closed_keys[other].empty:
                closed = self.closed_keys[other].closed(rows)
                if closed.any():
                    over |= closed & ~self._present(probe, other, closed)
                    group = rows.groups.of_rows() if group is None else group
                    gone = gone | closed[group]
            useless &= gone
        if self.spec.inputs[i].on_violation == "keep" and not self.closed_keys[i].empty:
            over |= self.closed_keys[i].closed(rows) & ~self.sides[i].present(rows)
        if over.any():
            useless |= over[rows.groups.of_rows()]
        return ~useless

    def _present(self, probe: Probe, other: int, asked: Mask) -> Mask:
        """For the keys of a probe that are asked for, whether `other` holds a live row of them."""
        found = probe.present(other)
        missing = asked & probe.not_looked_up(other)
        if missing.any():
            found[missing] = self.sides[other].present(probe.keys(np.flatnonzero(missing)))
        return found

    def _past_window(self, i: int, other: int, rows: Batch) -> Mask:
        """Rows of input i for which every coming row of `other` lies outside the window."""
        span = self.spec.inputs[i].span_us
        if span is None:
            return np.zeros(len(rows), np.bool_)
        past: Mask = rows.bound < self.watermarks[other] - span
        return past

    def _too_old(self, i: int, rows: Batch) -> Mask:
        """Rows of input i that come when their time to live is over."""
        ttl = self.spec.inputs[i].ttl_us
        if ttl is None:
            return np.zeros(len(rows), np.bool_)
        old: Mask = rows.time < self.watermarks[i] - ttl
        return old

    def _close_seen(self, i: int, rows: Batch, stored: Mask, probe: Probe) -> Iterator[Output]:
        """A unique input is closed for a key by its first tuple."""
        touched: Mask = np.zeros(len(rows.groups), np.bool_)
        touched[rows.groups.of_rows()[~stored]] = True
        for other in self._others(i):
            touched |= self._present(probe, other, ~touched)
        keys = rows.distinct_keys()
        if self.deferred is not None:
            touched |= self.deferred.has_deferred(keys.hash)
        self.closed_keys[i].see(keys.where(~touched))
        yield from self._settle(keys.where(touched), NewlyClosed(i, self.closed_keys[i].see))
