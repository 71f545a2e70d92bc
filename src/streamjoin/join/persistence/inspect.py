"""Why a state is still needed, and what would let it go; found out from the state alone.

By the rules of `stream_join`: a tuple of input i with key k and time t is held because some other input m
is open for k and its progress is not past t + W_i. So each held tuple waits for certain inputs, and tuples
that wait for the same ones are counted together, with a few of their keys and the first and last time at
which their windows end. Where several inputs are waited for, one that holds no tuple of k is `enough`: if
it closes k, the key is spent. A remembered promise waits for the other inputs to close its key too.

Worked number: auctions 180 and 181 are held, bid has closed neither, 180 came at 10:00 and 181 at 11:00
with a window of 12 hours: 2 tuples, open bid, windows that end from 22:00 to 23:00.

Cost: the live rows of a bucket are sorted once and looked up in the promises of the other inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from streamjoin.columnar.batch import Batch, Ints, Mask
from streamjoin.join.operator import StreamJoin
from streamjoin.join.persistence.snapshot import sides_of
from streamjoin.join.propagated_keys import punctuations_of
from streamjoin.state.sorted_runs import SortedRuns

EXAMPLES = 3
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Kept:
    """So many things of one kind that wait for the same.

    `open` are the inputs waited for, `enough` those of them whose promise alone would do, `past_us` the
    first and the last event time that would do, `keys` a few of their keys.
    """

    what: str
    count: int
    open: tuple[str, ...] = ()
    enough: tuple[str, ...] = ()
    past_us: Span | None = None
    keys: tuple[str, ...] = ()

    def and_also(self, other: Kept) -> Kept:
        """Both together, of two buckets."""
        return replace(
            self,
            count=self.count + other.count,
            past_us=_around(self.past_us, other.past_us),
            keys=(*self.keys, *other.keys)[:EXAMPLES],
        )


@dataclass(frozen=True, slots=True)
class InputHeld:
    """What is held of one input: its tuples, what it has promised, and for each why."""

    name: str
    tuples: int
    tombstones: int
    nbytes: int
    runs: int
    closed_keys: int
    closed_key_bytes: int
    ended: bool
    times_us: Span | None
    unmatched: int | None  # of a preserved input: tuples that leave padded if nothing comes
    kept: tuple[Kept, ...]

    def and_also(self, other: InputHeld) -> InputHeld:
        """Both together, of two buckets."""
        merged: dict[tuple[object, ...], Kept] = {}
        for one in (*self.kept, *other.kept):
            same = one.what, one.open, one.enough
            merged[same] = merged[same].and_also(one) if same in merged else one
        return replace(
            self,
            tuples=self.tuples + other.tuples,
            tombstones=self.tombstones + other.tombstones,
            nbytes=self.nbytes + other.nbytes,
            runs=self.runs + other.runs,
            closed_keys=self.closed_keys + other.closed_keys,
            closed_key_bytes=self.closed_key_bytes + other.closed_key_bytes,
            times_us=_around(self.times_us, other.times_us),
            unmatched=None if self.unmatched is None else self.unmatched + (other.unmatched or 0),
            kept=tuple(sorted(merged.values(), key=lambda one: (one.what != "tuples", -one.count))),
        )


@dataclass(frozen=True, slots=True)
class JoinHeld:
    """What a join, or a bucket of it, holds: by input; beside them what belongs to no input."""

    inputs: tuple[InputHeld, ...]
    propagated: tuple[Kept, ...]
    waiting: int  # keys whose promises are not carried out yet
    other_rows: dict[str, int]  # of sides that are none of these, by tag

    def and_also(self, other: JoinHeld) -> JoinHeld:
        """Both together, of two buckets."""
        merged: dict[tuple[str, ...], Kept] = {}
        for one in (*self.propagated, *other.propagated):
            merged[one.open] = merged[one.open].and_also(one) if one.open in merged else one
        tags = {**self.other_rows, **other.other_rows}
        return JoinHeld(
            tuple(a.and_also(b) for a, b in zip(self.inputs, other.inputs, strict=True)),
            tuple(merged.values()),
            self.waiting + other.waiting,
            {tag: self.other_rows.get(tag, 0) + other.other_rows.get(tag, 0) for tag in tags},
        )


def held(join: StreamJoin) -> JoinHeld:
    """Everything a join holds, and why."""
    known = {side.tag for i in range(len(join.sides)) for side in (join.sides[i], *_promise_sides(join, i))}
    return JoinHeld(
        tuple(_input(join, i) for i in range(len(join.sides))),
        tuple(_by_openness(join, "propagated", join.propagated.side.live(), range(len(join.sides)))),
        sum(map(len, join.unsettled)),
        {
            side.tag: side.live_rows
            for side in sides_of(join)
            if side.tag not in known and side.tag != join.propagated.side.tag
        },
    )


def _promise_sides(join: StreamJoin, i: int) -> list[SortedRuns]:
    singly = [key_set.side for key_set in join.closed_keys[i].key_sets]
    return [*singly, join.partial_punctuations[i].side, join.scheduled[i].side]


def _input(join: StreamJoin, i: int) -> InputHeld:
    side, closed_keys = join.sides[i], join.closed_keys[i]
    rows = side.live()
    timed = len(rows) > 0 and rows.layout.timed
    unmatched = None
    if i in join.spec.how.preserved:
        unmatched = sum(len(run.unmatched(np.flatnonzero(run.live_mask()))) for run in side.runs)
    return InputHeld(
        join.spec.inputs[i].name,
        len(rows),
        side.tombstoned_rows,
        side.nbytes,
        sum(1 for _ in side.runs),
        len(closed_keys)
        + len(join.partial_punctuations[i])
        + len(join.scheduled[i])
        + len(join.forwarded[i]),
        sum(each.nbytes for each in _promise_sides(join, i)),
        closed_keys.ended,
        (int(rows.time.min()), int(rows.time.max())) if timed else None,
        unmatched,
        (*_tuples(join, i, rows), *_closed_keys(join, i)),
    )


def _tuples(join: StreamJoin, i: int, rows: Batch) -> Iterator[Kept]:
    """The tuples of input i by the inputs they wait for."""
    if len(rows) == 0:
        return
    group, span = rows.groups.of_rows(), join.spec.inputs[i].span_us
    others = [m for m in range(len(join.sides)) if m != i]
    waits, enough = [], []
    for m in others:
        open_: Mask = ~join.closed_keys[m].closed(rows)[group]
        if span is not None:
            open_ &= rows.bound >= join.watermarks[m] - span
        waits.append(open_)
        enough.append(open_ & ~join.sides[m].present(rows)[group])
    names = [join.spec.inputs[m].name for m in others]
    for code, chosen in _alike([*waits, *enough]):
        open_names = _named(names, code[: len(others)])
        ends = rows.bound[chosen] + span if span is not None and open_names else None
        yield Kept(
            "tuples",
            len(chosen),
            open_names,
            _named(names, code[len(others) :]) if len(open_names) > 1 else (),
            None if ends is None else (int(ends.min()), int(ends.max())),
            _examples(rows, chosen),
        )


def _closed_keys(join: StreamJoin, i: int) -> Iterator[Kept]:
    """What input i has promised, by what would let it be forgotten."""
    closed_keys = join.closed_keys[i]
    others = [m for m in range(len(join.sides)) if m != i]
    yield from _by_openness(join, "promised keys", closed_keys.constants.side.live(), others)
    yield from _by_openness(join, "unique keys seen", closed_keys.seen.side.live(), others)
    wide = {"ranges": closed_keys.ranges or (), "patterns": closed_keys.patterns}
    for what, found in wide.items():
        if len(found):
            yield Kept(what, len(found))
    if len(join.forwarded[i]):
        yield Kept("carried promises", len(join.forwarded[i]))
    partial_punctuations, scheduled = join.partial_punctuations[i], join.scheduled[i]
    if len(partial_punctuations):
        rows = partial_punctuations.side.live()
        yield Kept(
            "partial_punctuations", len(partial_punctuations), keys=_examples(rows, np.arange(len(rows)))
        )
    if len(scheduled):
        rows = scheduled.side.live()
        times = [*rows.time.tolist(), *(time_us for time_us, _ in scheduled.patterns)]
        examples = _examples(rows, np.arange(len(rows)))
        yield Kept("waiting promises", len(scheduled), past_us=(min(times), max(times)), keys=examples)


def _by_openness(join: StreamJoin, what: str, keys: Batch, inputs: Iterable[int]) -> Iterator[Kept]:
    """Distinct keys by which of the inputs are open for them."""
    if len(keys) == 0:
        return
    asked = list(inputs)
    names = [join.spec.inputs[m].name for m in asked]
    for code, chosen in _alike([~join.closed_keys[m].closed(keys) for m in asked]):
        yield Kept(what, len(chosen), _named(names, code), keys=_examples(keys, chosen))


def _alike(masks: Sequence[Mask]) -> Iterator[tuple[list[bool], Ints]]:
    """The rows that have the same answers in all masks: the answers, and which rows."""
    together = np.stack(masks)
    codes, which = np.unique(together, axis=1, return_inverse=True)
    for number in range(codes.shape[1]):
        yield codes[:, number].tolist(), np.flatnonzero(which.reshape(-1) == number)


def _named(names: Sequence[str], chosen: Sequence[bool]) -> tuple[str, ...]:
    return tuple(name for name, is_ in zip(names, chosen, strict=True) if is_)


def _examples(rows: Batch, chosen: Ints) -> tuple[str, ...]:
    """The text of the first few distinct keys."""
    keys = rows.only_keys().take(chosen).distinct_keys()
    few = keys.slice(0, min(EXAMPLES, len(keys)))
    return tuple(one.text()[1:-1] for one in punctuations_of(few.keys))


def _around(one: Span | None, other: Span | None) -> Span | None:
    """The span around both."""
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])
