"""Probing: rows of one input against the state of the others, as frames of matched row numbers.

The rows of the driving input visit the others one after another, in a given sequence; a key that one of
them does not store is not looked up in those that follow. What is found is counted by key before anything
is multiplied out, so a row that ends nowhere makes no partial result, and partial results are only row
numbers. Frames hold at most about `frame_rows` results and leave as they are made.

With windows, a partial result may go on with the tuples of a key whose times lie in a range, which is
searched where a key has many: worked number, a partial result with times 10 and 14 and windows of 5 each
goes on with the times 9 to 15 of an input whose window is 5.

Cost: a lookup per key and run (`columnar.hash_index`); per result one gather for each input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from streamjoin.columnar.assemble import Component
from streamjoin.columnar.batch import Batch, Ints, Layout, Mask, concat
from streamjoin.columnar.match import bounded_slices, expand
from streamjoin.columnar.window import Span, TimeOrder, span_of
from streamjoin.state.run import Hit, Run
from streamjoin.state.sorted_runs import present

_FEW = 0.5  # the share of keys left below which only those are looked up
_MANY = 4  # pairs to try for each tuple, from which on times are searched
Floats = npt.NDArray[np.float64]
Find = Callable[[int, Batch], list[Hit]]


@dataclass(frozen=True, slots=True)
class Source:
    """Stored rows that a probe may take: of its key number `keys[i]` the rows from `start[i]` on, `count[i]`
    of them, or those that stand in this range of `order`.
    """

    batch: Batch
    keys: Ints  # ascending
    start: Ints
    count: Ints
    live: Mask | None = None  # None: all rows of `batch` are live
    order: Ints | None = None

    @property
    def times(self) -> Ints:
        return self.batch.time if self.order is None else self.batch.time[self.order]


@dataclass(frozen=True, slots=True)
class KeyRanges:
    """Partial results by key: those of key number k are `count[k]`, from `start[k]` on."""

    start: Ints
    count: Ints

    @classmethod
    def of(cls, key: Ints, keys: int) -> KeyRanges:
        """The key of each partial result ascends."""
        count = np.bincount(key, minlength=keys)
        return cls(np.cumsum(count) - count, count)


@dataclass
class Probe:
    """Rows of a driving input (sorted), what each other input stores of their keys, and windows."""

    driver: int
    rows: Batch
    windows_us: tuple[int | None, ...]
    frame_rows: int
    tracked: tuple[int, ...] = ()  # inputs whose components stay rows of their runs
    hits: dict[int, list[Hit]] = field(default_factory=dict)
    sequence: list[int] = field(default_factory=list)  # of those that were visited
    lookups: int = 0
    intermediate: int = 0  # combinations of some, not all inputs
    _looked: dict[int, Mask | None] = field(default_factory=dict)  # keys that were; None: all
    _counts: dict[int, Ints] = field(default_factory=dict)  # rows of each key that an input stores
    _found: Floats = field(init=False)  # combinations by key of the inputs visited: may be huge
    _visited: dict[int, Run] = field(default_factory=dict)  # by the id of rows that are in a frame now

    def __post_init__(self) -> None:
        self._found = self.rows.groups.count.astype(np.float64)

    def visit(self, sequence: Sequence[int], find: Find, *, all_keys: bool) -> None:
        """Look the keys up in the others, one after another; all of them in each, where asked."""
        for other in sequence:
            self.lookups += int(self._found.sum())
            left = np.flatnonzero(self._found)
            if all_keys or len(left) > _FEW * len(self._found):
                self._enter(other, find(other, self.rows), None)
            else:
                looked: Mask = np.zeros(len(self._found), np.bool_)
                looked[left] = True
                hits = [
                    Hit(hit.run, left[hit.probe], hit.start, hit.count)
                    for hit in (find(other, self.keys(left)) if len(left) else [])
                ]
                self._enter(other, hits, looked)
            if other != sequence[-1]:
                self.intermediate += int(self._found.sum())

    def _enter(self, other: int, hits: list[Hit], looked: Mask | None) -> None:
        self.hits[other], self._looked[other] = hits, looked
        self._counts[other] = stored = _stored_rows(hits, len(self._found))
        self._found = self._found * stored
        self.sequence.append(other)

    def look_up(self, other: int, keys: Ints, find: Find) -> Ints:
        """How many rows of some keys an input stores, whether they were looked up or not."""
        looked = self._looked[other]
        stored = self._counts[other][keys]
        missing = np.empty(0, np.int64) if looked is None else np.flatnonzero(~looked[keys])
        if len(missing):
            stored = stored.copy()
            stored[missing] = _stored_rows(find(other, self.keys(keys[missing])), len(missing))
        return stored

    def keys(self, numbers: Ints) -> Batch:
        """Some of the keys, by the number of their group."""
        return self.rows.only_keys().take(self.rows.groups.start[numbers])

    def run_of(self, batch: Batch) -> Run:
        """The run of a tracked input whose rows a frame at hand is made of."""
        return self._visited[id(batch)]

    def present(self, other: int) -> Mask:
        """For each key that was looked up, whether `other` stores a live row of it."""
        return present(self.hits[other], len(self.rows.groups))

    def not_looked_up(self, other: int) -> Mask:
        """The keys of which `present` says nothing."""
        looked = self._looked[other]
        return np.zeros(len(self.rows.groups), np.bool_) if looked is None else ~looked

    def frames(self) -> Iterator[list[Component]]:
        """Results as one component per input."""
        in_all = self._found > 0
        if not in_all.any():
            return
        group = self.rows.groups.of_rows()
        start = np.arange(len(self.rows)) if in_all.all() else np.flatnonzero(in_all[group])
        own = self.rows.windows(start, self.windows_us[self.driver])
        span = span_of(self.rows.time[start], own) if self._windowed else None
        first = {self.driver: (self.rows, start)}
        for frame in self._extend(first, group[start], span, self.sequence):
            yield [frame[i] for i in sorted(frame)]

    @property
    def _windowed(self) -> bool:
        return any(window is not None for window in self.windows_us)

    def _extend(
        self, frame: dict[int, Component], group: Ints, span: Span | None, remaining: Sequence[int]
    ) -> Iterator[dict[int, Component]]:
        if not remaining:
            yield frame
            return
        other, rest = remaining[0], remaining[1:]
        ranges = KeyRanges.of(group, len(self._found))
        for source in self._sources(other, gather=bool(rest) and other not in self.tracked):
            for parent, child, grown_span in self._pairs(source, ranges, span, self.windows_us[other]):
                grown = {i: (batch, rows[parent]) for i, (batch, rows) in frame.items()}
                grown[other] = (source.batch, child)
                yield from self._extend(grown, group[parent], grown_span, rest)

    def _pairs(
        self, source: Source, partial: KeyRanges, span: Span | None, window_us: int | None
    ) -> Iterator[tuple[Ints, Ints, Span | None]]:
        """Partial results and stored rows that go together, in frames."""
        key, parents = expand(partial.start[source.keys], partial.count[source.keys])
        start, count = source.start[key], source.count[key]
        order: TimeOrder | None = None
        if span is not None and count.sum() > _MANY * (len(parents) + source.count.sum()):
            order = TimeOrder.of(source.times, source.start, source.count)
        if order is not None and span is not None:
            start, count = order.between(key, span.at(parents), window_us)
            some = np.flatnonzero(count)
            start, count, parents = start[some], count[some], parents[some]
        for cut in bounded_slices(count, limit=self.frame_rows):
            parent, child = expand(start[cut], count[cut])
            parent = parents[cut][parent]
            if order is not None:
                child = order.rows[child]
            if source.order is not None:
                child = source.order[child]
            if source.live is not None:
                alive = source.live[child]
                parent, child = parent[alive], child[alive]
            grown = None
            if span is not None:
                windows = source.batch.windows(child, window_us)
                grown = span.grown(parent, span_of(source.batch.time[child], windows))
            sure = order is not None and not source.batch.layout.until  # else the window is the widest of all
            if grown is not None and not sure and not (inside := grown.valid()).all():
                parent, child, grown = parent[inside], child[inside], grown.at(inside)
            if len(parent):
                yield parent, child, grown

    def _sources(self, other: int, *, gather: bool) -> Iterator[Source]:
        """Run by run for the last input visited, in memory one after another; gathered into one for
        those before it, so that the number of frames does not multiply with the runs of every input.
        """
        hits = self.hits[other]
        if gather and not (len(hits) == 1 and hits[0].run.tombstones is None):
            yield _gathered(hits, len(self.rows.groups), self.rows.layout)
            return
        for hit in hits:
            live = None if hit.run.tombstones is None else ~hit.run.tombstones
            batch = hit.run.batch
            self._visited[id(batch)] = hit.run
            yield Source(batch, hit.probe, hit.start, hit.count, live)


def _stored_rows(hits: list[Hit], groups: int) -> Ints:
    """Stored rows by key, tombstoned rows included."""
    stored = np.zeros(groups, np.int64)
    for hit in hits:
        stored[hit.probe] += hit.count
    return stored


def _gathered(hits: list[Hit], groups: int, layout: Layout) -> Source:
    parts, labels = [], []
    for hit in hits:
        position, rows = hit.live()
        parts.append(hit.run.batch.take(rows))
        labels.append(hit.probe[position])
    label = np.concatenate(labels)
    order = np.argsort(label, kind="stable")
    count = np.bincount(label, minlength=groups)
    batch = concat(parts[0].layout if parts else layout, parts)
    keys, start = np.flatnonzero(count), np.cumsum(count) - count
    return Source(batch, keys, start[keys], count[keys], order=order)
