"""Bugs planted in the library, to see that the simulation finds them.

Each makes a context manager that patches the library for a while; none of it is in the library
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from streamjoin.columnar import hash_index
from streamjoin.columnar.window import span_of
from streamjoin.join import admission, arrival_order, intake, probe, row_intake
from streamjoin.join import deferred as deferral
from streamjoin.join import operator as stream_join
from streamjoin.join.arrival_order import ClusterFollower, OrderFollower
from streamjoin.join.arrivals import Arrivals
from streamjoin.join.eviction import Eviction
from streamjoin.join.frontier import WindowEviction
from streamjoin.join.group_by import GroupBy, Partials
from streamjoin.join.group_spec import Grouping
from streamjoin.join.matches import Matches
from streamjoin.join.operator import StreamJoin
from streamjoin.join.outputs import FinishedKeys, Results
from streamjoin.join.partial_punctuations import PartialPunctuations
from streamjoin.join.persistence import snapshot
from streamjoin.join.predicate import Predicate
from streamjoin.join.probe import Probe
from streamjoin.join.queues import InputQueue
from streamjoin.join.scheduled_punctuations import ScheduledPunctuations
from streamjoin.join.waiting_pool import WaitingPools
from streamjoin.join.watermarks import END_OF_TIME, NO_WATERMARK, Watermarks
from streamjoin.state import closed_keys, run
from streamjoin.state import closed_ranges as ranges
from streamjoin.state import sorted_runs as side
from streamjoin.state.closed_ranges import ClosedRanges
from streamjoin.state.memory import MemoryManager
from streamjoin.state.run import Hit, Run
from streamjoin.state.sorted_runs import KeySet, MarkedRows, SortedRuns

Plant = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Bug:
    name: str
    plant: Plant


BUGS: list[Bug] = []


def bug(make: Callable[[], AbstractContextManager[Any]]) -> Plant:
    BUGS.append(Bug(make.__name__, make))
    return make


# Purging


@bug
def purge_when_one_input_is_closed() -> Any:
    def useless(self: Eviction, i: int, batch: Any, rows: Any, closed: Any) -> Any:
        return np.logical_or.reduce([closed[other][: len(rows)] for other in self.state.others(i)])

    return patch.object(Eviction, "_useless", useless)


@bug
def invalidated_at_the_bound() -> Any:
    """A row is evicted when the watermark reaches its window's end, not when it is past it."""
    good = Eviction.invalidate

    def invalidate(self: Eviction, i: int, start_us: int, stop_us: int, touched: list[Any]) -> Any:
        return good(self, i, start_us, stop_us + 1, touched)

    return patch.object(Eviction, "invalidate", invalidate)


@bug
def stale_rows_are_stored() -> Any:
    return patch.object(
        StreamJoin, "_past_window", lambda self, i, other, rows: np.zeros(len(rows), np.bool_)
    )


@bug
def expired_at_the_bound() -> Any:
    """A row is evicted when the watermark reaches the end of its ttl, not when it is past it."""
    good = Eviction._expire

    def expire(self: Eviction, i: int, before_us: int, touched: list[Any]) -> Any:
        return good(self, i, before_us + 1, touched)

    return patch.object(Eviction, "_expire", expire)


@bug
def rows_that_come_too_old_are_stored() -> Any:
    return patch.object(StreamJoin, "_too_old", lambda self, i, rows: np.zeros(len(rows), np.bool_))


@bug
def what_expires_finishes_no_key() -> Any:
    good = Eviction._expire

    def expire(self: Eviction, i: int, before_us: int, touched: list[Any]) -> Any:
        return good(self, i, before_us, [])

    return patch.object(Eviction, "_expire", expire)


# Forgetting closed keys


@bug
def closed_keys_are_never_forgotten() -> Any:
    return patch.object(Eviction, "forget_closed", lambda self: None)


@bug
def closed_keys_are_forgotten_at_the_bound() -> Any:
    """A key is forgotten when the watermarks reach what its tuples could match, not when they are past it."""
    good = KeySet.forget_before

    def forget_before(self: KeySet, stop_us: int, may_go: Any) -> None:
        good(self, min(stop_us, END_OF_TIME - 1) + 1, may_go)

    return patch.object(KeySet, "forget_before", forget_before)


@bug
def closed_keys_are_forgotten_by_the_other_inputs_alone() -> Any:
    """A key is forgotten though the watermark of its own input is not past the time of its punctuation."""

    def settled(self: Watermarks, number: int) -> int:
        others = [m for m in range(len(self.own)) if m != number and not self.ended[m]]
        spans = {m: self._inputs[number].reach_to(m) or 0 for m in others}
        return min((self.current[m] - spans[m] for m in others), default=END_OF_TIME)

    return patch.object(Watermarks, "settled", settled)


@bug
def closed_keys_are_forgotten_inside_the_window() -> Any:
    """A key is forgotten when all watermarks are past the time of its punctuation."""

    def settled(self: Watermarks, number: int) -> int:
        pairs = zip(self.current, self.ended, strict=True)
        return min((at for at, ended in pairs if not ended), default=END_OF_TIME)

    return patch.object(Watermarks, "settled", settled)


@bug
def rows_of_this_batch_do_not_date_a_punctuation() -> Any:
    """A closed key gets the time that its input had reached in finished batches."""
    good = Watermarks.saw

    def saw(self: Watermarks, number: int, latest_us: int) -> None:
        good(self, number, latest_us)
        self.reached[number] = max(self.reached[number], latest_us)

    @contextmanager
    def late() -> Iterator[None]:
        with (
            patch.object(Watermarks, "begin", lambda self, number, latest_us: None),
            patch.object(Watermarks, "saw", saw),
        ):
            yield

    return late()


# Probing


@bug
def window_bound_is_exclusive() -> Any:
    def exclusive(time: Any, window_us: Any) -> Any:
        return span_of(time, None if window_us is None else window_us - 1)

    return patch.object(probe, "span_of", exclusive)


@bug
def collision_not_verified() -> Any:
    return patch.object(run, "equal_at", lambda left, rows, right, others: np.ones(len(rows), np.bool_))


@bug
def index_stops_at_the_start_of_a_cell() -> Any:
    def first(self: Any, cell: Any, _: Any) -> Any:
        return self.starts[cell.view(np.int64)].astype(np.int64)

    return patch.object(hash_index.HashIndex, "_lower_bound", first)


@bug
def index_finds_one_row_of_a_key() -> Any:
    of_rows = property(lambda self: hash_index.HashIndex.of(self.batch.hash))
    return patch.object(run.Run, "_index", of_rows)


@bug
def tombstoned_rows_are_gathered() -> Any:
    good = probe._gathered

    def gathered(hits: list[Hit], groups: int, layout: Any) -> Any:
        return good([replace(hit, run=Run(hit.run.name, hit.run.batch)) for hit in hits], groups, layout)

    return patch.object(probe, "_gathered", gathered)


@bug
def tombstoned_rows_are_probed() -> Any:
    good = Probe._sources

    def sources(self: Probe, other: int, *, gather: bool) -> Any:
        found = good(self, other, gather=gather)
        return [replace(source, live=None) for source in found]

    return patch.object(Probe, "_sources", sources)


@bug
def last_frame_is_lost() -> Any:
    good = probe.bounded_slices

    def slices(count: Any, *, limit: int) -> Iterator[slice]:
        found = list(good(count, limit=limit))
        return iter(found[:-1] if len(found) > 1 else found)

    return patch.object(probe, "bounded_slices", slices)


# Join types


@bug
def matched_flags_are_lost_in_compaction() -> Any:
    good = side._compacted

    def parts(*given: Any) -> Any:
        return (part._replace(matched=None) for part in good(*given))

    return patch.object(side, "_compacted", parts)


@bug
def a_tuple_that_matched_on_arrival_is_padded() -> Any:
    good = SortedRuns.append
    return patch.object(
        SortedRuns, "append", lambda self, rows, matched=None, **named: good(self, rows, **named)
    )


@bug
def null_keys_do_not_leave_padded() -> Any:
    good = admission.admit

    def admitted(*given: Any, **named: Any) -> Any:
        given[2].__dict__["unkeyed"] = None
        return good(*given, **named)

    return patch.object(stream_join, "admit", admitted)


@bug
def a_key_is_propagated_while_padded_rows_may_follow() -> Any:
    good = Eviction.purge

    def purge(self: Eviction, keys: Any, new: Any = None) -> Any:
        propagate = self._propagate_keys

        def early(keys: Any, finished: Any, closed_by_all: Any) -> Any:
            return propagate(keys, finished | np.ones(len(finished), np.bool_), closed_by_all)

        with patch.object(self, "_propagate_keys", early):
            yield from good(self, keys, new)

    return patch.object(Eviction, "purge", purge)


@bug
def a_semi_join_keeps_matched_tuples() -> Any:
    def stored(self: Matches, other: int) -> Any:
        for run_, rows in Matches_stored(self, other):
            yield Run(run_.name, run_.batch, run_.tombstones), rows

    Matches_stored = Matches.stored  # noqa: N806
    return patch.object(Matches, "stored", stored)


@bug
def the_condition_is_tested_on_every_other_row() -> Any:
    good = Predicate.passing

    def passing(self: Predicate, rows: Any) -> Any:
        found = set(good(self, rows).tolist())
        return np.array([i for i in range(rows.num_rows) if i in found or i % 2], np.int64)

    return patch.object(Predicate, "passing", passing)


# Groups


@bug
def groups_without_tuples_are_not_found_by_ranges() -> Any:
    good = Eviction._key_sides

    def without_groups(self: Eviction) -> Any:
        return (side for side in good(self) if side.tag != "g")

    return patch.object(Eviction, "_key_sides", without_groups)


@bug
def results_that_are_not_put_away_yet_are_not_final() -> Any:
    return patch.object(GroupBy, "keyed", lambda self: self._keyed)


@bug
def groups_leave_without_being_forgotten() -> Any:
    def take_out(self: Partials, runs: Any) -> Any:
        parts = [run_.batch.take(rows) for run_, rows in runs]
        return self._grouping.combine(side.concat(self.layout, parts).sorted())

    return patch.object(Partials, "take_out", take_out)


@bug
def the_first_partial_row_of_a_group_wins() -> Any:
    return patch.object(Grouping, "combine", lambda self, rows: rows.take(rows.groups.start))


@bug
def a_group_leaves_after_its_punctuation() -> Any:
    def over(self: GroupBy, outputs: Any) -> Any:
        for output in outputs:
            if isinstance(output, Results):
                self.absorb(output)
                continue
            yield output
            if isinstance(output, FinishedKeys):
                yield from self.finish(output.keys)

    return patch.object(GroupBy, "over", over)


@bug
def groups_without_a_key_leave_at_once() -> Any:
    good = GroupBy.end_batch

    def process(self: StreamJoin, arrivals: Any) -> Any:
        if self.groups is None:
            yield from self._work(arrivals)
            return
        yield from self.groups.over(self._work(arrivals))
        yield from self.groups.finish_unkeyed()
        good(self.groups)

    return patch.object(StreamJoin, "process", process)


@bug
def a_snapshot_has_no_groups() -> Any:
    good = snapshot.store

    def store(join: StreamJoin, save: Any) -> Any:
        manifest = good(join, save)
        return replace(manifest, tiers={tag: tiers for tag, tiers in manifest.tiers.items() if tag[0] != "g"})

    return patch.object(snapshot, "store", store)


# Scheduling


@bug
def rows_that_wait_are_forgotten() -> Any:
    return patch.object(WaitingPools, "wait", lambda self, i, rest: None)


@bug
def an_awaited_punctuation_acts_before_its_rows() -> Any:
    def turn(self: StreamJoin, i: int, retrieved: Any) -> Any:
        yield from self.eviction.close(i, retrieved.keys, retrieved.patterns)
        yield from self._join(i, retrieved.rows)

    return patch.object(StreamJoin, "_turn", turn)


# Runs


def _without_last(part: MarkedRows) -> MarkedRows:
    return part.between(0, part.rows.slice(0, len(part.rows) - 1))


@bug
def compaction_loses_a_row() -> Any:
    good = side._compacted

    def parts(runs: Any, layout: Any, run_bytes: int) -> Iterator[Any]:
        for part in good(runs, layout, run_bytes):
            yield _without_last(part) if len(part[0]) > 2 else part

    return patch.object(side, "_compacted", parts)


@bug
def compaction_resurrects_tombstoned_rows() -> Any:
    good = side._compacted

    def parts(runs: Any, layout: Any, run_bytes: int) -> Iterator[Any]:
        return good([Run(each.name, each.batch) for each in runs], layout, run_bytes)

    return patch.object(side, "_compacted", parts)


# Punctuations


@bug
def range_bound_off_by_one() -> Any:
    return patch.object(ranges, "_successor", lambda code: code)


@bug
def ranges_swallow_the_gap() -> Any:
    good = ClosedRanges._insert

    def insert(self: ClosedRanges, low: Any, high: Any) -> None:
        if self.low and high is not None and self.high[-1] is not None:
            low, high = min(low, self.low[0]), max(high, self.high[-1])
        good(self, low, high)

    return patch.object(ClosedRanges, "_insert", insert)


@bug
def punctuation_closes_the_next_input() -> Any:
    good = Eviction.close

    def close(self: Eviction, i: int, keys: Any, patterns: Any) -> Any:
        return good(self, (i + 1) % len(self.sides), keys, patterns)

    return patch.object(Eviction, "close", close)


@bug
def any_pattern_covers_any_other() -> Any:
    return patch.object(closed_keys, "covers", lambda wide, narrow: True)


@bug
def propagated_keys_are_not_remembered() -> Any:
    good = SortedRuns.append

    def append(self: SortedRuns, rows: Any, matched: Any = None) -> None:
        if self.tag != "a":
            good(self, rows, matched)

    return patch.object(SortedRuns, "append", append)


@bug
def finished_keys_are_forgotten_though_still_open() -> Any:
    good = Eviction._propagate_keys

    def propagate(self: Eviction, keys: Any, finished: Any, closed_by_all: Any) -> Any:
        return good(self, keys, finished, finished)

    return patch.object(Eviction, "_propagate_keys", propagate)


@bug
def partial_punctuations_act_at_once() -> Any:
    return patch.object(PartialPunctuations, "fulfilled", lambda self, keys, at: (keys, at))


@bug
def punctuations_act_before_their_rows() -> Any:
    return patch.object(InputQueue, "_due", lambda self, at, count: np.zeros(count, np.int64))


@bug
def scheduled_punctuations_act_at_their_time() -> Any:
    """Not only once the watermark is past it."""
    good = ScheduledPunctuations.due
    return patch.object(ScheduledPunctuations, "due", lambda self, before_us: good(self, before_us + 1))


@bug
def an_ended_input_keeps_its_scheduled_punctuations() -> Any:
    good = ScheduledPunctuations.due

    def due(self: ScheduledPunctuations, before_us: int) -> Any:
        return good(self, NO_WATERMARK if before_us == END_OF_TIME else before_us)

    return patch.object(ScheduledPunctuations, "due", due)


@bug
def scheduled_punctuations_outlive_their_key() -> Any:
    return patch.object(ScheduledPunctuations, "forget", lambda self, keys: None)


# Admission


@bug
def late_bound_off_by_one() -> Any:
    good = admission.admit

    def admit(*given: Any, late_before: int | None) -> Any:
        return good(*given, late_before=None if late_before is None else late_before + 1)

    return patch.object(stream_join, "admit", admit)


@bug
def unique_tie_broken_the_other_way() -> Any:
    good = admission._first

    def first(rows: Any, members: Any, at: Any) -> int:
        wrong = [member for member in members.tolist() if member != good(rows, members, at)]
        return int(wrong[0])

    return patch.object(admission, "_first", first)


@bug
def rows_after_their_own_punctuation_are_admitted() -> Any:
    return patch.object(Arrivals, "after_own_punctuation", lambda self: np.zeros(len(self.rows), np.bool_))


@bug
def null_keys_match() -> Any:
    return patch.object(row_intake, "valid", lambda keys: np.ones(len(keys[0]), np.bool_))


@bug
def two_zeros_and_many_nans() -> Any:
    """Keys are not brought to one form before they are hashed."""
    return patch.object(intake, "canonical", lambda array: array)


@bug
def cluster_slack_off_by_one() -> Any:
    good = ClusterFollower.__init__

    def init(self: ClusterFollower, *given: Any) -> None:
        good(self, *given)
        self.slack += 1

    return patch.object(ClusterFollower, "__init__", init)


@bug
def ages_do_not_grow_between_batches() -> Any:
    good = ClusterFollower.follow

    def follow(self: ClusterFollower, arrived: Arrivals) -> Any:
        found = good(self, arrived)
        zeros = pa.array(np.zeros(len(self.recent), np.int64))
        self.recent = self.recent.layout.batch([*self.recent.data.columns[:-1], zeros])
        return found

    return patch.object(ClusterFollower, "follow", follow)


@bug
def other_partitions_let_keys_grow_old() -> Any:
    def passed(self: Any, partition: Any) -> Any:
        return np.full(len(partition), sum(one.size for one in self.summaries))

    return patch.object(arrival_order._Shares, "passed", passed)


@bug
def order_forgets_the_last_values_of_a_batch() -> Any:
    good = OrderFollower._keep

    def keep(self: OrderFollower, values: Any) -> None:
        self.lines = {
            number: arrival_order._Line(line.limit, line.recent[:0]) for number, line in self.lines.items()
        }
        good(self, values)

    return patch.object(OrderFollower, "_keep", keep)


@bug
def the_fastest_partition_closes_for_all() -> Any:
    def bound(self: OrderFollower, coded: Any) -> Any:
        limits = [line.limit for line in self.lines.values()]
        return None if None in limits else max(limits, key=lambda limit: coded[limit], default=None)

    return patch.object(OrderFollower, "_bound", bound)


@bug
def a_partition_without_a_bound_holds_nobody_back() -> Any:
    def bound(self: OrderFollower, coded: Any) -> Any:
        limits = [line.limit for line in self.lines.values() if line.limit is not None]
        return min(limits, key=lambda limit: coded[limit], default=None)

    return patch.object(OrderFollower, "_bound", bound)


# Time


@bug
def idle_is_ignored() -> Any:
    return patch.object(Watermarks, "of_all", lambda self: list(self.own))


@bug
def lateness_is_ignored() -> Any:
    return patch.object(Watermarks, "saw", Watermarks.reach)


# Snapshots


def _forgetting(forget: Callable[[StreamJoin], None]) -> Any:
    good = snapshot.restore

    def restore(*given: Any) -> StreamJoin:
        join = good(*given)
        forget(join)
        return join

    return patch.object(snapshot, "restore", restore)


@bug
def snapshot_forgets_ranges() -> Any:
    def forget(join: StreamJoin) -> None:
        for each in join.closed_keys:
            each.ranges = None if each.ranges is None else ClosedRanges(each.ranges.dtype)

    return _forgetting(forget)


@bug
def snapshot_forgets_scheduled_keys() -> Any:
    def forget(join: StreamJoin) -> None:
        for each in join.state.scheduled:
            each.side.tiers = []

    return _forgetting(forget)


@bug
def snapshot_forgets_scheduled_patterns() -> Any:
    def forget(join: StreamJoin) -> None:
        for each in join.state.scheduled:
            each.patterns = []

    return _forgetting(forget)


@bug
def snapshot_forgets_watermarks() -> Any:
    def forget(join: StreamJoin) -> None:
        join.state.watermarks.current = [NO_WATERMARK] * len(join.watermarks)

    return _forgetting(forget)


@bug
def snapshot_forgets_tombstones() -> Any:
    good = snapshot.run_of
    return patch.object(
        snapshot, "run_of", lambda entry, *where: good(replace(entry, tombstones=None), *where)
    )


@bug
def snapshot_forgets_the_order_of_arrival() -> Any:
    nothing = {"restore": lambda self, state: None}
    return _both(patch.multiple(ClusterFollower, **nothing), patch.multiple(OrderFollower, **nothing))


class _both:  # noqa: N801 - reads as a word
    """Two patches as one."""

    def __init__(self, *patches: Any) -> None:
        self.patches = patches

    def __enter__(self) -> None:
        for each in self.patches:
            each.start()

    def __exit__(self, *_: object) -> None:
        for each in self.patches:
            each.stop()


@bug
def snapshot_loses_the_newest_tier() -> Any:
    def forget(join: StreamJoin) -> None:
        for each in join.sides:
            each.tiers = each.tiers[:-1] if len(each.tiers) > 1 else each.tiers

    return _forgetting(forget)


# The order of work


@bug
def a_punctuation_overtakes_the_rows_that_wait() -> Any:
    def urgent_first(self: StreamJoin, i: int, retrieved: Any, urgent: Any) -> Any:
        yield from self._join(i, retrieved.rows.where(urgent))
        yield from self.eviction.close(i, retrieved.keys, retrieved.patterns)
        return replace(
            retrieved, rows=retrieved.rows.where(~urgent), keys=retrieved.keys.slice(0, 0), patterns=()
        )

    return patch.object(StreamJoin, "_urgent_first", urgent_first)


# Ranges


@bug
def a_range_that_one_input_has_closed_is_propagated() -> Any:
    return patch.object(ClosedRanges, "intersect", lambda self, other: self.copy())


@bug
def a_range_that_has_grown_is_not_propagated_again() -> Any:
    good = ClosedRanges.beyond

    def beyond(self: ClosedRanges, smaller: ClosedRanges) -> ClosedRanges:
        return good(self, smaller) if not smaller else ClosedRanges(self.dtype)

    return patch.object(ClosedRanges, "beyond", beyond)


# Memory


@bug
def fetched_rows_are_cut_short() -> Any:
    good = MemoryManager.fetch

    def fetch(self: MemoryManager, run_: Run) -> Any:
        batch = good(self, run_)
        run_.loaded = batch.slice(0, max(len(batch) - 1, 1))
        return run_.loaded

    return patch.object(MemoryManager, "fetch", fetch)


# Deferred matches: only conforming streams show these, see `tests.join.test_properties`


def matches_that_were_made_are_made_again() -> Any:
    def missed(probe_: Probe, frame: Any, arrived: Any) -> Any:
        return np.ones(len(frame[0][1]), np.bool_)

    return patch.object(deferral, "_missed", missed)


def a_purge_does_not_wait_for_deferred_matches() -> Any:
    return patch.object(Eviction, "_without_deferred", lambda self, keys, new: keys)


def a_watermark_does_not_wait_for_deferred_matches() -> Any:
    return patch.object(Eviction, "_not_deferred", lambda self, run_, rows: rows)


def rows_with_deferred_matches_are_dropped() -> Any:
    return patch.object(StreamJoin, "_keep_for_deferred", lambda self, i, rows, stored: stored)


@bug
def windows_forget_the_rows_that_are_left() -> Any:
    """Inside a batch, tuples are evicted by the watermark after it, whatever rows are left."""
    return patch.object(InputQueue, "earliest_left_us", property(lambda self: END_OF_TIME))


@bug
def windows_forget_the_batches_to_come() -> Any:
    """Inside a batch, tuples are evicted by the rows that are left, whatever the next batch may bring."""
    return patch.object(
        WindowEviction, "_at_least_after", lambda self, arrivals: [END_OF_TIME] * len(self.spec.inputs)
    )


@bug
def a_row_of_a_finished_key_does_not_close_it() -> Any:
    """A unique row of a finished key is dropped, and its input stays open for the key."""
    return patch.object(StreamJoin, "_pass_over", lambda self, i, rows: iter(()))
