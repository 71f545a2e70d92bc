"""One hash index over all tuples that wait: the hash table H_S of the SSBJ paper (and of MESHJOIN).

A turn looks up the b rows of its segment here, once, however many chunks wait (equation 2). Tuples stay in
the chunks they came in, the paper's queue Q, and are numbered as they come; so the rows of all chunks, one
after another, are found by their number less that of the oldest. An entry is a key of a chunk: the number of
its first tuple, and how many there are. Entries stand in a few sorted parts, newest last; four parts of about
the same size become one, without the entries of chunks that have left.

Worked number: 100 chunks of 1,000 keys stand in about 6 parts, and each is moved 3 or 4 times in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamjoin.columnar.batch import Batch, Ints, Layout, concat
from streamjoin.columnar.match import expand
from streamjoin.state.run import Run, match

_FANOUT = 4


@dataclass(frozen=True)
class _Part:
    """Sorted entries: a key, the number of its first tuple, how many tuples."""

    run: Run  # keys only
    first: Ints
    count: Ints

    def __len__(self) -> int:
        return len(self.first)


class WaitingIndex:
    """Keys of waiting tuples, over chunks that come and leave in order."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._chunks: list[tuple[int, Batch]] = []  # the number of its first tuple, and the tuples
        self._parts: list[_Part] = []
        self._next = 0

    def add(self, rows: Batch) -> None:
        """Let sorted tuples wait."""
        groups = rows.groups
        self._chunks.append((self._next, rows))
        self._parts.append(
            _Part(Run("waiting", rows.distinct_keys()), self._next + groups.start, groups.count)
        )
        self._next += len(rows)
        while len(self._parts) >= _FANOUT and len(self._parts[-_FANOUT]) < _FANOUT * len(self._parts[-1]):
            self._parts[-_FANOUT:] = [self._merged(self._parts[-_FANOUT:])]

    def drop_oldest(self) -> None:
        """The oldest chunk has left."""
        self._chunks.pop(0)
        oldest = self._oldest
        self._parts = [part for part in self._parts if int(part.first.max(initial=-1)) >= oldest]

    def find(self, segment: Batch) -> tuple[Batch, Ints]:
        """The waiting tuples whose key a sorted segment has, sorted, and the number of each."""
        numbers = [_NONE]
        for part in self._parts:
            hit = match(segment, part.run)
            if len(hit.probe):
                entries = expand(hit.start, hit.count)[1]
                numbers.append(expand(part.first[entries], part.count[entries])[1])
        found = np.concatenate(numbers)
        found = found[found >= self._oldest]
        tuples = self._tuples(found)
        return tuples.sorted(), found[tuples.sort_order()]

    def count(self, keys: Run) -> Ints:
        """How many tuples of each of some distinct keys wait."""
        waiting = np.zeros(len(keys), np.int64)
        for part in self._parts:
            hit = match(part.run.batch, keys)
            groups = part.run.batch.groups
            key, entries = expand(groups.start[hit.probe], groups.count[hit.probe])
            here = part.first[entries] >= self._oldest
            np.add.at(waiting, hit.start[key[here]], part.count[entries[here]])
        return waiting

    def keys(self) -> Batch:
        """The distinct keys that wait, sorted."""
        there = [part.run.batch.where(part.first >= self._oldest) for part in self._parts]
        return concat(self._layout.keys_only, there).sorted(in_runs=True).distinct_keys()

    def by_chunk(self, numbers: Ints) -> Sequence[tuple[int, Ints]]:
        """Tuples by the chunk they are in, oldest chunk 0, each as a row of it."""
        starts = np.array([first for first, _ in self._chunks], np.int64)
        ordered = np.sort(numbers)
        cuts = np.searchsorted(ordered, starts[1:])
        return [(i, rows - starts[i]) for i, rows in enumerate(np.split(ordered, cuts)) if len(rows)]

    @property
    def _oldest(self) -> int:
        return self._chunks[0][0] if self._chunks else self._next

    def _tuples(self, numbers: Ints) -> Batch:
        if len(numbers) == 0:
            return self._layout.empty()
        data = pa.Table.from_batches([rows.data for _, rows in self._chunks], self._layout.schema)
        taken = data.take(pa.array(numbers - self._oldest)).combine_chunks()
        return Batch(self._layout, taken.to_batches()[0])

    def _merged(self, parts: Sequence[_Part]) -> _Part:
        first = np.concatenate([part.first for part in parts])
        count = np.concatenate([part.count for part in parts])
        keys = concat(self._layout.keys_only, [part.run.batch for part in parts])
        order = keys.sort_order(in_runs=True)
        keys, first, count = keys.sorted(), first[order], count[order]
        here = first >= self._oldest
        return _Part(Run("waiting", keys.where(here)), first[here], count[here])


_NONE: Ints = np.empty(0, np.int64)
