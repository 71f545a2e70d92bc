"""Probing: rows of one input against the state of the others, as frames of matched row numbers.

The rows of the driving input visit the others one after another. All inputs share the key, so a
row whose key is absent from any of them is dropped before anything is multiplied out, and
intermediate results are only row numbers. Frames hold at most about `frame_rows` results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from streamjoin.batch import Batch, Ints, Layout, Mask, concat
from streamjoin.kernels.assemble import Component
from streamjoin.kernels.match import bounded_slices, expand
from streamjoin.kernels.window import within_windows
from streamjoin.state.run import Hit, Run
from streamjoin.state.side import present


@dataclass(frozen=True, slots=True)
class Source:
    """Stored rows that a probe may take: for probe group g, rows start[g] : start[g] + count[g]."""

    batch: Batch
    start: Ints
    count: Ints
    live: Mask | None  # None: all rows of `batch` are live


@dataclass(frozen=True, slots=True)
class Probe:
    """Rows of a driving input (sorted), what each other input holds of their keys, and windows."""

    driver: int
    rows: Batch
    hits: dict[int, list[Hit]]
    windows_us: tuple[int | None, ...]
    frame_rows: int
    tracked: tuple[int, ...] = ()  # inputs whose components stay rows of their runs
    _visited: dict[int, Run] = field(default_factory=dict)  # by the id of rows that are in a frame now

    def run_of(self, batch: Batch) -> Run:
        """The run of a tracked input whose rows a frame at hand is made of."""
        return self._visited[id(batch)]

    def present(self, other: int) -> Mask:
        """For each key of the rows, whether `other` holds a live row of it."""
        return present(self.hits[other], len(self.rows.groups))

    def frames(self, sequence: Sequence[int]) -> Iterator[list[Component]]:
        """Results as one component per input, visiting the others in `sequence`."""
        groups = self.rows.groups
        in_all: Mask = np.ones(len(groups), np.bool_)
        for other in sequence:
            found: Mask = np.zeros(len(groups), np.bool_)
            for hit in self.hits[other]:
                found[hit.probe] = True
            in_all &= found
        if not in_all.any():
            return
        group = groups.of_rows()
        start = np.arange(len(self.rows)) if in_all.all() else np.flatnonzero(in_all[group])
        for frame in self._extend({self.driver: (self.rows, start)}, group[start], list(sequence)):
            yield [frame[i] for i in sorted(frame)]

    def _extend(
        self, frame: dict[int, Component], group: Ints, remaining: list[int]
    ) -> Iterator[dict[int, Component]]:
        if not remaining:
            yield frame
            return
        other, rest = remaining[0], remaining[1:]
        for source in self._sources(other, gather=bool(rest) and other not in self.tracked):
            count = source.count[group]
            parents = np.flatnonzero(count)
            for cut in bounded_slices(count[parents], limit=self.frame_rows):
                chosen = parents[cut]
                parent, child = expand(source.start[group[chosen]], count[chosen])
                parent = chosen[parent]
                if source.live is not None:
                    alive = source.live[child]
                    parent, child = parent[alive], child[alive]
                grown = {i: (batch, rows[parent]) for i, (batch, rows) in frame.items()}
                grown[other] = (source.batch, child)
                inside = self._inside_windows(grown)
                if inside is not None and not inside.all():
                    grown = {i: (batch, rows[inside]) for i, (batch, rows) in grown.items()}
                    parent = parent[inside]
                if len(parent):
                    yield from self._extend(grown, group[parent], rest)

    def _sources(self, other: int, *, gather: bool) -> Iterator[Source]:
        """Run by run for the last input visited, in memory one after another; gathered into one for
        those before it, so that the number of frames does not multiply with the runs of every input.
        """
        groups = len(self.rows.groups)
        if gather:
            yield _gathered(self.hits[other], groups, self.rows.layout)
            return
        for hit in self.hits[other]:
            start, count = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
            start[hit.probe], count[hit.probe] = hit.start, hit.count
            live = None if hit.run.dead is None else ~hit.run.dead
            batch = hit.run.batch
            self._visited[id(batch)] = hit.run
            yield Source(batch, start, count, live)

    def _inside_windows(self, frame: dict[int, Component]) -> Mask | None:
        windows = [self.windows_us[i] for i in frame]
        if all(window is None for window in windows):
            return None
        return within_windows([batch.time[rows] for batch, rows in frame.values()], windows)


def _gathered(hits: list[Hit], groups: int, layout: Layout) -> Source:
    parts, labels = [], []
    for hit in hits:
        position, rows = hit.live()
        parts.append(hit.run.batch.take(rows))
        labels.append(hit.probe[position])
    label = np.concatenate(labels)
    order = np.argsort(label, kind="stable")
    batch = concat(parts[0].layout if parts else layout, parts).take(order)
    count = np.bincount(label, minlength=groups)
    return Source(batch, np.cumsum(count) - count, count, None)
