"""Arrival orders as implicit punctuations: which keys clustered or ordered arrival closes, per partition.

Clustered with slack k: after a tuple of key v, v may come back within the next k + 1 tuples of its
partition; once that many have passed without it, v is closed. Ordered with slack k: a tuple may be
smaller than one before it in its partition only if it comes within the next k tuples; so a
partition closes everything below the greatest of all but its last k tuples, and the input what
every partition seen so far has closed. Worked number, slack 0: keys 3 3 4 close 3, in both cases;
if the last key of a second partition is 2, the ordered input closes only keys below 2.

The work is split in two, since rows of a partition go to many hash buckets and positions must be
counted in tuples (offsets may have gaps). The map side (`with_share_summaries`) sees a share of each
partition in the order of its offsets: it gives each row its rank in the share, and each partition a
`ShareSummary`, which goes to every bucket. A follower in each bucket's join adds its state: the last few
keys of the bucket, or the last few values of each partition and the greatest before them. So all buckets
agree, and cutting a partition into shares or batches changes nothing.

Cost of b rows: sorting them once on the map side and once in the bucket; the state is at most slack + 1
keys or values per partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin.columnar.batch import Batch, Ints, Layout, Mask, concat
from streamjoin.declare.arrival import Arrival
from streamjoin.errors import BadInput
from streamjoin.join.arrivals import Arrivals, Positions, ShareSummary
from streamjoin.punctuation import Range
from streamjoin.state.closed_keys import KeyPatterns
from streamjoin.state.closed_ranges import codes

_LOWEST = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Implied:
    """The punctuations that a batch implies, and its rows that violate earlier ones (`behind`)."""

    behind: Mask
    keys: Batch
    patterns: tuple[KeyPatterns, ...]


# The map side


def with_share_summaries(arrival: Arrival, arrived: Arrivals, at: Positions) -> Arrivals:
    """The same rows, each with its rank in its partition's share, and the summary of each share.

    Ordered: also which rows are behind what came before them in the share alone.
    """
    size = len(arrived.rows)
    order = _by_offset(at)
    partition = at.partition[order]
    changes = np.flatnonzero(partition[1:] != partition[:-1]) + 1
    start = np.concatenate(([0], changes)) if size else changes
    count = np.diff(start, append=size)
    rank = np.empty(size, np.int64)
    rank[order] = np.arange(size) - np.repeat(start, count)
    coded = _ordered_codes(arrived.rows.keys[0], arrival) if arrival.closes_ranges else None
    behind: Mask | None = None if coded is None else np.zeros(size, np.bool_)
    summaries = []
    for first, length in zip(start.tolist(), count.tolist(), strict=True):
        rows = order[first : first + length]
        ends = int(at.offset[rows[0]]), int(at.offset[rows[-1]])
        summary = ShareSummary(int(partition[first]), *ends, length)
        if coded is not None and behind is not None:
            behind[rows], chosen, widest = _in_share(coded[rows], arrival.slack)
            values = arrived.rows.keys[0].take(pa.array(rows[chosen]))
            summary = replace(summary, values=values, widest=widest)
        summaries.append(summary)
    return replace(arrived, rank=rank, behind=behind, summaries=tuple(summaries))


def _by_offset(at: Positions) -> Ints:
    """The rows by partition, then offset."""
    partition, offset = at.partition, at.offset
    same = partition[1:] == partition[:-1]
    if np.all((partition[1:] > partition[:-1]) | (same & (offset[1:] >= offset[:-1]))):
        return np.arange(len(offset))
    return np.lexsort((offset, partition))


def _ordered_codes(values: Any, arrival: Arrival) -> Ints:
    """Whole numbers in the order of the values; the other way round where the order descends."""
    coded = codes(values)
    if isinstance(coded, list):  # as objects: numpy's own byte strings lose their trailing zeros
        objects = np.empty(len(coded), dtype=object)
        objects[:] = coded
        _, coded = np.unique(objects, return_inverse=True)
    numbers: Ints = ~coded if arrival.descending else coded
    return numbers


def _in_share(coded: Ints, slack: int) -> tuple[Mask, Ints, int]:
    """One partition's values in their order: which are behind, which go into the summary, the widest slack.

    Into the summary: the greatest of all but the last `slack`, then those. Slack is counted in tuples.
    """
    size = len(coded)
    reach = np.maximum.accumulate(coded)
    behind: Mask = np.zeros(size, np.bool_)
    behind[1 + slack :] = coded[1 + slack :] < reach[: max(size - 1 - slack, 0)]
    settled = max(size - slack, 0)
    greatest = np.array([np.argmax(coded[:settled])] if settled else [], np.int64)
    chosen = np.concatenate([greatest, np.arange(settled, size)])
    late = np.flatnonzero(coded < reach)
    widest = int((late - np.searchsorted(reach, coded[late], side="right")).max()) if len(late) else 0
    return behind, chosen, widest


# The bucket


class _Shares:
    """The share summaries of one batch by partition and offset; each comes after the one before it."""

    def __init__(self, summaries: Sequence[ShareSummary], stream: str) -> None:
        self.summaries = sorted(summaries, key=lambda summary: (summary.partition, summary.first))
        for one, other in zip(self.summaries, self.summaries[1:], strict=False):
            if one.partition == other.partition and one.last >= other.first:
                raise BadInput(
                    f"stream {stream!r}, source partition with hash {one.partition}: offsets {one.first} to "
                    f"{one.last} and {other.first} to {other.last} of one batch came through different "
                    "tasks, so their order of arrival is lost; do not repartition the stream before the join"
                )
        self._partition = np.array([summary.partition for summary in self.summaries], np.int64)
        self._first = np.array([summary.first for summary in self.summaries], np.int64)
        sizes = np.array([summary.size for summary in self.summaries], np.int64)
        self._known, start = np.unique(self._partition, return_index=True)
        self._total = np.add.reduceat(sizes, start) if len(start) else sizes
        before = np.cumsum(sizes) - sizes
        self.before = before - np.repeat(before[start], np.diff(start, append=len(sizes)))

    def of_rows(self, at: Positions) -> Ints:
        """The number of each row's share."""
        of_partition = np.searchsorted(self._known, at.partition)
        if len(self._known) == len(self.summaries):
            return of_partition
        firsts, width = np.unique(self._first), len(self.summaries) + 1
        begins = np.searchsorted(self._known, self._partition) * width
        begins += np.searchsorted(firsts, self._first, side="right")
        stands = of_partition * width + np.searchsorted(firsts, at.offset, side="right")
        return np.searchsorted(begins, stands, side="right") - 1

    def passed(self, partition: Ints) -> Ints:
        """How many tuples of each of these partitions are in the batch."""
        at = np.searchsorted(self._known, partition)
        at = np.minimum(at, len(self._known) - 1)
        return np.where(self._known[at] == partition, self._total[at], 0)


class ClusterFollower:
    """Keys of this bucket that may still come back, at most slack + 1 per partition.

    Each with its partition, and the tuples of that partition that have passed since (its age).
    """

    def __init__(self, arrival: Arrival, layout: Layout, stream: str) -> None:
        self.slack = arrival.slack
        self.stream = stream
        self.recent = Layout(layout.key_types, payload_types=(pa.int64(), pa.int64())).empty()
        self.widest_slack = 0  # the most tuples that were seen between two of one key

    def follow(self, arrived: Arrivals) -> Implied | None:
        """The next rows of the input; None where there were none, in any bucket."""
        if not arrived.summaries or arrived.rank is None or arrived.rows_at is None:
            return None
        shares = _Shares(arrived.summaries, self.stream)
        rows, forwarded = arrived.rows, len(self.recent)
        own_partition, age = (column.to_numpy() for column in self.recent.payload)
        position = np.concatenate([-1 - age, shares.before[shares.of_rows(arrived.rows_at)] + arrived.rank])
        partition = np.concatenate([own_partition, arrived.rows_at.partition])
        both = concat(rows.layout.keys_only, [self.recent.only_keys(), rows.only_keys()])
        order = both.sort_order()
        by_key = both.take(order)
        group = by_key.groups.of_rows()
        within = np.lexsort((position[order], partition[order], group))
        group, source = group[within], order[within]
        position, partition = position[source], partition[source]
        # a line is what one key has in one partition, in its order
        same_line = (group[1:] == group[:-1]) & (partition[1:] == partition[:-1])
        start = np.flatnonzero(np.concatenate(([True], ~same_line))) if len(group) else group
        between = np.where(same_line, position[1:] - position[:-1] - 1, 0)
        self.widest_slack = max(self.widest_slack, int(between.max(initial=0)))
        reopened = np.concatenate(([False], between > self.slack))[: len(group)]
        # once a key has come back too late, all its later tuples of this batch are violations too
        after = np.maximum.accumulate(np.where(reopened, np.arange(len(group)), -1))
        late = after >= np.repeat(start, np.diff(start, append=len(group)))
        behind: Mask = np.zeros(len(rows), np.bool_)
        behind[source[late & (source >= forwarded)] - forwarded] = True
        on_time = np.where(late, _LOWEST, position)
        last = np.maximum.reduceat(on_time, start) if len(start) else on_time
        age = shares.passed(partition[start]) - 1 - last
        closed = age > self.slack
        keys = both.take(source[start])
        still = np.flatnonzero(~closed)
        payload = [pa.array(partition[start][still]), pa.array(age[still])]
        self.recent = self.recent.layout.batch([*keys.take(still).data.columns, *payload])
        return Implied(behind, keys.where(closed), ())

    def state(self) -> pa.RecordBatch:
        return self.recent.data

    def restore(self, state: pa.RecordBatch) -> None:
        self.recent = Batch(self.recent.layout, state)


class OrderFollower:
    """For each partition its last `slack` values, and the greatest before them; the same in every bucket.

    Where the order descends, smallest stands for greatest in all of this.
    """

    def __init__(self, arrival: Arrival, layout: Layout, stream: str) -> None:
        self.arrival = arrival
        self.stream = stream
        self.values = pa.array([], layout.key_types[0])
        self.lines: dict[int, _Line] = {}  # by partition, as indices of `values`
        self.widest_slack = 0  # the most places that a tuple was seen to come too late

    def follow(self, arrived: Arrivals) -> Implied | None:
        """The next rows of the input; None where there were none, in any bucket."""
        if not arrived.summaries or arrived.rank is None or arrived.rows_at is None:
            return None
        shares = _Shares(arrived.summaries, self.stream)
        summarized = [summary.values for summary in shares.summaries]
        values = pa.concat_arrays([self.values, *summarized, arrived.rows.keys[0]])
        coded = _ordered_codes(values, self.arrival)
        closed_before = self._bound(coded)
        bars = []
        at = len(self.values)
        for summary in shares.summaries:
            line = self.lines.get(summary.partition, _NOTHING)
            bars.append(line.bars(coded))
            new = np.arange(at, at + len(summary.values))
            self.lines[summary.partition] = line.followed_by(new, coded, self.arrival.slack)
            self.widest_slack = max(self.widest_slack, summary.widest)
            at += len(summary.values)
        behind = self._behind_carried(coded[at:], shares.of_rows(arrived.rows_at), arrived.rank, bars)
        if arrived.behind is not None:
            behind = behind | arrived.behind
        bound = self._bound(coded)
        patterns: tuple[KeyPatterns, ...] = ()
        if bound is not None and (closed_before is None or coded[bound] > coded[closed_before]):
            patterns = ((self._closed_below(values[bound].as_py()),),)
        self._keep(values)
        return Implied(behind, arrived.rows.layout.keys_only.empty(), patterns)

    def _behind_carried(self, coded: Ints, share: Ints, rank: Ints, bars: list[Ints]) -> Mask:
        """Rows that are smaller than what stands more than `slack` tuples before them, in earlier shares."""
        lengths = np.array([len(bar) for bar in bars], np.int64)
        start = np.cumsum(lengths) - lengths
        flat, forwarded = np.concatenate(bars), (lengths - 1)[share]
        counts = np.clip(forwarded - self.arrival.slack + rank, 0, forwarded)
        behind: Mask = coded < flat[start[share] + counts]
        late = np.flatnonzero(coded < flat[start[share] + forwarded])
        for one in np.unique(share[late]):
            rows = late[share[late] == one]
            places = rank[rows] + lengths[one] - np.searchsorted(bars[one], coded[rows], side="right")
            self.widest_slack = max(self.widest_slack, int(places.max()))
        return behind

    def _bound(self, coded: Ints) -> int | None:
        """The value below which every partition has closed, as an index; None where one has not begun to."""
        limits = [line.limit for line in self.lines.values()]
        if not limits or None in limits:
            return None
        return min((limit for limit in limits if limit is not None), key=lambda limit: int(coded[limit]))

    def _keep(self, values: Any) -> None:
        """Drop all values but those of the lines."""
        kept: list[Ints] = []
        at = 0
        for partition, line in self.lines.items():
            kept.append(np.concatenate([line.limits, line.recent]))
            first = at + len(line.limits)
            at = first + len(line.recent)
            limit = None if line.limit is None else first - 1
            self.lines[partition] = _Line(limit, np.arange(first, at))
        self.values = values.take(pa.array(np.concatenate(kept)))

    def _closed_below(self, value: Any) -> Range:
        if self.arrival.descending:
            return Range(value, None, False, False)
        return Range(None, value, False, False)

    def state(self) -> pa.RecordBatch:
        """One row per value: its partition, whether it is the limit, the value."""
        partition = np.empty(len(self.values), np.int64)
        is_limit = np.zeros(len(self.values), np.bool_)
        for number, line in self.lines.items():
            partition[line.recent] = partition[line.limits] = number
            is_limit[line.limits] = True
        columns = [pa.array(partition), pa.array(is_limit), self.values]
        return pa.RecordBatch.from_arrays(columns, ["partition", "limit", "value"])

    def restore(self, state: pa.RecordBatch) -> None:
        self.values = state.column(2)
        partition = state.column(0).to_numpy()
        is_limit = state.column(1).to_numpy(zero_copy_only=False)
        self.lines = {}
        for number in dict.fromkeys(partition.tolist()):
            own = partition == number
            limit = np.flatnonzero(own & is_limit).tolist()
            self.lines[number] = _Line(limit[0] if limit else None, np.flatnonzero(own & ~is_limit))


@dataclass(frozen=True, slots=True)
class _Line:
    """The state of one partition, as indices of values."""

    limit: int | None
    recent: Ints

    @property
    def limits(self) -> Ints:
        """The limit as none or one."""
        return np.array([] if self.limit is None else [self.limit], np.int64)

    def bars(self, coded: Ints) -> Ints:
        """The limit, then the greatest of it and the first 1, 2… recent values; ascending."""
        limit = _LOWEST if self.limit is None else int(coded[self.limit])
        return np.maximum.accumulate(np.concatenate([np.array([limit], np.int64), coded[self.recent]]))

    def followed_by(self, new: Ints, coded: Ints, slack: int) -> _Line:
        """After more values; of a long share only those of its summary are needed."""
        sequence = np.concatenate([self.recent, new])
        cut = max(len(sequence) - slack, 0)
        settled = np.concatenate([self.limits, sequence[:cut]])
        limit = int(settled[np.argmax(coded[settled])]) if len(settled) else None
        return _Line(limit, sequence[cut:])


_NOTHING = _Line(None, np.empty(0, np.int64))
Follower = ClusterFollower | OrderFollower


def follower(arrival: Arrival | None, layout: Layout, stream: str) -> Follower | None:
    """The tracker of an input in a join; None where no order of arrival is declared."""
    if arrival is None:
        return None
    if arrival.closes_ranges:
        return OrderFollower(arrival, layout, stream)
    return ClusterFollower(arrival, layout, stream)
