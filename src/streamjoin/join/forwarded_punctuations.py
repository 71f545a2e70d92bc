"""Forwarded punctuations: those of an input about columns that a later operator joins on.

Of b(x, y) in an operator on x, `<*, 7>` closes no key. But once the operator stores no tuple of b with y = 7,
no result with y = 7 follows, and the punctuation is forwarded to the operator that joins y. Until then it
waits here. Worked case: b has (1, 7) and (2, 8) stored when `<*, 7>` and `<*, 9>` come: 9 is forwarded at
once, 7 when (1, 7) is evicted.

A punctuation is a row over the input's key columns and its `forwarded` ones; null is a wildcard. It is stored
if it names just the columns of a later key: it is then a single key there, which is forgotten in time. Where
several partitions of a source, or several buckets of a lower operator, each send their own, it counts when
all have sent it; the sender is the last column.

Cost: a check goes over the live tuples of the input once. It is made when punctuations have come, or when
some wait and tuples were evicted since.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin.columnar.batch import Batch, Ints, Layout, Mask, concat
from streamjoin.columnar.keys import canonical, cast_by_position, hash_keys, valid
from streamjoin.join.partial_punctuations import first_of_each
from streamjoin.join.spec import InputSpec
from streamjoin.state.codec import decode_run, encode_run
from streamjoin.state.component import Contents, Holds, StateComponent
from streamjoin.state.run import Run, match
from streamjoin.state.sorted_runs import SortedRuns


def punctuation_rows(columns: Sequence[Any], by: Ints) -> pa.RecordBatch:
    """Punctuations as they come in: a column for each that may be named, and the sender of each."""
    names = [*(f"c{i}" for i in range(len(columns))), "by"]
    return pa.RecordBatch.from_arrays([*columns, pa.array(by, pa.int64())], names)


class ForwardedPunctuations(StateComponent):
    """Punctuations of one input that wait until no tuple they match is stored; each once by sender."""

    holds: Holds = "punctuations"

    def __init__(self, spec: InputSpec, number: int = 0) -> None:
        self.name, self.input = f"forwarded_punctuations {number}", number
        self._spec = spec
        types = (*spec.layout.key_types, *(spec.layout.payload_types[n] for n in spec.forwarded))
        self.layout = Layout(types, payload_types=(pa.int64(),))
        self.rows = self.layout.empty()
        self._checked_at: int | None = None  # evicted tuples at the last check; None: check again

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def state_rows(self) -> int:
        return len(self)

    def contents(self) -> Iterator[Contents]:
        if len(self):
            yield Contents("forwarded punctuations", len(self))

    def to_json(self) -> Any:
        return encode_run(self.rows).hex() if len(self) else None

    def restore(self, part: Any) -> None:
        self.rows = self._decoded(part)

    def merge(self, parts: Sequence[Any]) -> Any:
        """Punctuations reach every bucket; what one has not forwarded yet, all new ones forward (`refed`)."""
        rows = concat(self.layout, [self._decoded(part) for part in parts]).sorted()
        return encode_run(self._distinct(rows)).hex()

    def refed(self, whole: Any, senders: int) -> Any:
        rows = self._decoded(whole)
        enough = rows.take(rows.groups.start[rows.groups.count >= self._spec.partitions])
        by = np.tile(np.arange(senders, dtype=np.int64), len(enough))
        again = enough.take(np.repeat(np.arange(len(enough)), senders))
        return encode_run(self.layout.batch([again.data.column(0), *again.keys, pa.array(by)])).hex()

    def digest(self, whole: Any) -> Any:
        return sorted(map(str, self._decoded(whole).data.to_pylist()))

    def _decoded(self, part: Any) -> Batch:
        return decode_run(bytes.fromhex(part), self.layout)

    def _distinct(self, together: Batch) -> Batch:
        """Each punctuation of each sender once, of a sorted batch."""
        first = first_of_each(together.groups.of_rows(), together.payload[0].to_numpy())
        return together.take(first)

    def add(self, punctuated: pa.RecordBatch | None) -> None:
        """Punctuations that have come; those that are no later key are not stored."""
        if punctuated is None or not self._spec.forwarded:
            return
        *columns, by = punctuated.columns
        typed = zip(columns, self.layout.key_types, strict=True)
        columns = [canonical(cast_by_position(column, dtype)) for column, dtype in typed]
        named = np.stack([valid([column]) for column in columns])
        useful: Mask = np.zeros(len(by), np.bool_)
        for later in self._spec.later:
            useful |= named[list(later)].all(axis=0) & ~np.delete(named, later, axis=0).any(axis=0)
        new = self.layout.batch([pa.array(hash_keys(columns)), *columns, by]).where(useful)
        together = concat(self.layout, [self.rows, new]).sorted()
        self.rows, self._checked_at = self._distinct(together), None

    def take(self, side: SortedRuns, evicted: int) -> list[Any] | None:
        """The punctuations to forward now, a column for each that may be named; they wait no longer.

        `evicted`: how many tuples of the input were evicted so far.
        """
        if len(self.rows) == 0 or evicted == self._checked_at:
            return None
        self._checked_at = evicted
        closed_keys = self.rows.take(self.rows.groups.start)
        free = self.rows.groups.count >= self._spec.partitions
        for named, some in _alike(closed_keys.keys, np.flatnonzero(free)):
            free[some] = ~self._stored(side, named, [closed_keys.keys[n].take(pa.array(some)) for n in named])
        if not free.any():
            return None
        self.rows = self.rows.where(~free[self.rows.groups.of_rows()])
        return list(closed_keys.where(free).keys)

    def _stored(self, side: SortedRuns, named: Sequence[int], values: list[Any]) -> Mask:
        """Which of the values of the named columns a live tuple has."""
        layout = Layout(tuple(column.type for column in values))
        asked = layout.batch([pa.array(hash_keys(values)), *values])
        order = asked.sort_order()
        by_value, found = asked.take(order), np.zeros(len(asked), np.bool_)
        for run in side.runs:
            rows = _projected(run, [self._column(run.batch, n) for n in named], layout)
            if len(rows):
                found[match(by_value, Run("projected", rows)).probe] = True
        answer: Mask = np.zeros(len(asked), np.bool_)
        answer[order] = found[by_value.groups.of_rows()]
        return answer

    def _column(self, batch: Batch, number: int) -> Any:
        """A column that may be named, of the input's tuples."""
        width = len(self._spec.layout.key_types)
        return batch.keys[number] if number < width else batch.payload[self._spec.forwarded[number - width]]


def _projected(run: Run, columns: list[Any], layout: Layout) -> Batch:
    """Some columns of a run's live tuples, sorted; a null is no value."""
    there = pa.array(np.flatnonzero(run.live_mask() & valid(columns)))
    columns = [canonical(column.take(there)) for column in columns]
    return layout.batch([pa.array(hash_keys(columns)), *columns]).sorted()


def _alike(columns: Sequence[Any], rows: Ints) -> Iterator[tuple[list[int], Ints]]:
    """Of these rows those that name the same columns: which, and the rows."""
    masks = np.stack([valid([column])[rows] for column in columns])
    kinds, which = np.unique(masks, axis=1, return_inverse=True)
    for number in range(kinds.shape[1]):
        yield np.flatnonzero(kinds[:, number]).tolist(), rows[which.reshape(-1) == number]
