"""State inspection: what a join stores, and what each entry waits for; found out from the state alone.

By the rules of `operator`: a tuple of input i with key k and time t is stored because some other input m
is open for k and its watermark is not past t + W_i. So each tuple waits for certain inputs, and tuples
that wait for the same ones are counted together, with a few of their keys and the first and last time at
which their windows end. Where several inputs are waited for, one that stores no tuple of k is `enough`: if
it closes k, the key is spent. A closed key waits for the other inputs to close it too.

Punctuations and groups are read from the state's components (`state.component`), whichever there are.

Worked number: auctions 180 and 181 are stored, bid has closed neither, 180 came at 10:00 and 181 at 11:00
with a window of 12 hours: 2 tuples, open bid, windows that end from 22:00 to 23:00.

Cost: the live rows of a bucket are sorted once and looked up in the closed keys of the other inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from streamjoin.columnar.batch import Batch, Ints, Mask
from streamjoin.join.operator import StreamJoin
from streamjoin.join.pending_removal import pending_keys
from streamjoin.join.propagation import punctuations_of
from streamjoin.state.component import Contents, StateComponent, TimeSpan

EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class StateEntries:
    """Entries of one kind that wait for the same.

    `open` are the inputs waited for, `enough` those of them whose punctuation alone would do, `past_us` the
    first and the last watermark that would do, `keys` a few of their keys.
    """

    what: str
    count: int
    open: tuple[str, ...] = ()
    enough: tuple[str, ...] = ()
    past_us: TimeSpan | None = None
    keys: tuple[str, ...] = ()

    def and_also(self, other: StateEntries) -> StateEntries:
        """Both together, of two buckets."""
        return replace(
            self,
            count=self.count + other.count,
            past_us=_around(self.past_us, other.past_us),
            keys=(*self.keys, *other.keys)[:EXAMPLES],
        )


@dataclass(frozen=True, slots=True)
class InputState:
    """The state of one input: its tuples, its closed keys, and what each waits for."""

    name: str
    tuples: int
    tombstones: int
    nbytes: int
    runs: int
    closed_keys: int
    closed_key_bytes: int
    ended: bool
    times_us: TimeSpan | None
    unmatched: int | None  # of a preserved input: tuples that leave padded if nothing comes
    entries: tuple[StateEntries, ...]

    def and_also(self, other: InputState) -> InputState:
        """Both together, of two buckets."""
        merged: dict[tuple[object, ...], StateEntries] = {}
        for one in (*self.entries, *other.entries):
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
            entries=tuple(sorted(merged.values(), key=lambda one: (one.what != "tuples", -one.count))),
        )


@dataclass(frozen=True, slots=True)
class InspectedState:
    """The state of a join, or of a bucket of it: by input; beside them what belongs to no input."""

    inputs: tuple[InputState, ...]
    propagated: tuple[StateEntries, ...]
    waiting: int  # keys that are closed and not purged yet
    other_rows: dict[str, int]  # of sorted runs that are none of these, by tag

    def and_also(self, other: InspectedState) -> InspectedState:
        """Both together, of two buckets."""
        merged: dict[tuple[str, ...], StateEntries] = {}
        for one in (*self.propagated, *other.propagated):
            merged[one.open] = merged[one.open].and_also(one) if one.open in merged else one
        tags = {**self.other_rows, **other.other_rows}
        return InspectedState(
            tuple(a.and_also(b) for a, b in zip(self.inputs, other.inputs, strict=True)),
            tuple(merged.values()),
            self.waiting + other.waiting,
            {tag: self.other_rows.get(tag, 0) + other.other_rows.get(tag, 0) for tag in tags},
        )


def inspect(join: StreamJoin) -> InspectedState:
    """Everything a join stores, and what it waits for."""
    components = join.state.components()
    others = [one for one in components if one.holds not in ("tuples", "punctuations")]
    propagated = [one for one in components if one.holds == "punctuations" and one.input is None]
    return InspectedState(
        tuple(_input(join, i, components) for i in range(len(join.sides))),
        tuple(entry for one in propagated for entry in _entries(join, one)),
        pending_keys(join.state),
        {side.tag: side.live_rows for one in others for side in one.sorted_runs()},
    )


def _input(join: StreamJoin, i: int, components: Sequence[StateComponent]) -> InputState:
    side = join.sides[i]
    punctuations = [one for one in components if one.holds == "punctuations" and one.input == i]
    rows = side.live()
    timed = len(rows) > 0 and rows.layout.timed
    unmatched = None
    if i in join.spec.how.preserved:
        unmatched = sum(len(run.unmatched(np.flatnonzero(run.live_mask()))) for run in side.runs)
    return InputState(
        join.spec.inputs[i].name,
        len(rows),
        side.tombstoned_rows,
        side.nbytes,
        sum(1 for _ in side.runs),
        sum(one.state_rows for one in punctuations),
        sum(each.nbytes for one in punctuations for each in one.sorted_runs()),
        join.closed_keys[i].ended,
        (int(rows.time.min()), int(rows.time.max())) if timed else None,
        unmatched,
        (*_tuples(join, i, rows), *(entry for one in punctuations for entry in _entries(join, one))),
    )


def _tuples(join: StreamJoin, i: int, rows: Batch) -> Iterator[StateEntries]:
    """The tuples of input i by the inputs they wait for."""
    if len(rows) == 0:
        return
    group, spec = rows.groups.of_rows(), join.spec.inputs[i]
    others = [m for m in range(len(join.sides)) if m != i]
    waits, enough = [], []
    for m in others:
        open_: Mask = ~join.closed_keys[m].closed(rows)[group]
        if (span := spec.span_to(m)) is not None:
            open_ &= rows.bound >= join.watermarks[m] - span
        waits.append(open_)
        enough.append(open_ & ~join.sides[m].present(rows)[group])
    names = [join.spec.inputs[m].name for m in others]
    for code, chosen in _alike([*waits, *enough]):
        open_names = _named(names, code[: len(others)])
        spans = [spec.span_to(m) for m, open_ in zip(others, code, strict=False) if open_]
        known = [span for span in spans if span is not None]
        ends = rows.bound[chosen] + max(known) if known else None
        yield StateEntries(
            "tuples",
            len(chosen),
            open_names,
            _named(names, code[len(others) :]) if len(open_names) > 1 else (),
            None if ends is None else (int(ends.min()), int(ends.max())),
            _examples(rows, chosen),
        )


def _entries(join: StreamJoin, component: StateComponent) -> Iterator[StateEntries]:
    """What a component stores, by what it waits for."""
    inputs = [m for m in range(len(join.sides)) if m != component.input]
    for found in component.contents():
        if found.waits and found.keys is not None:
            yield from _by_openness(join, found.what, found.keys, inputs)
        else:
            yield StateEntries(found.what, found.count, past_us=found.past_us, keys=_some_keys(found))


def _some_keys(found: Contents) -> tuple[str, ...]:
    return () if found.keys is None else _examples(found.keys, np.arange(len(found.keys)))


def _by_openness(join: StreamJoin, what: str, keys: Batch, inputs: Sequence[int]) -> Iterator[StateEntries]:
    """Distinct keys by which of the inputs are open for them."""
    names = [join.spec.inputs[m].name for m in inputs]
    for code, chosen in _alike([~join.closed_keys[m].closed(keys) for m in inputs]):
        yield StateEntries(what, len(chosen), _named(names, code), keys=_examples(keys, chosen))


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


def _around(one: TimeSpan | None, other: TimeSpan | None) -> TimeSpan | None:
    """The span around both."""
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])
