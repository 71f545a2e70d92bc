"""Row intake: the core, shared by local runs and Spark, that turns one Arrow batch into `Arrivals`.

Each runtime first decodes its columns (`DecodedRows`): keys in the join's common types and hashed, event
time in microseconds. Then the core asks the stream's punctuation source which rows close keys and which
are data, leaves out rows with null keys, and sorts punctuations by what they close: single keys, patterns,
or keys of a later operator. Cost: linear in the batch; no loop over rows except for patterns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin.columnar.batch import NO_TIME, Batch, Ints, Layout, Mask
from streamjoin.columnar.keys import valid
from streamjoin.declare.arrival import Arrival
from streamjoin.declare.punctuation_source import PunctuationSource
from streamjoin.declare.stream import Stream
from streamjoin.errors import BadInput
from streamjoin.join.arrival_order import with_share_summaries
from streamjoin.join.arrivals import Arrivals, Positions
from streamjoin.join.forwarded_punctuations import punctuation_rows
from streamjoin.join.statistics.monitor import look
from streamjoin.punctuation import ANY, Constant
from streamjoin.state.closed_keys import KeyPatterns


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """All rows of one batch, punctuations among them, in the physical layout of the input.

    `read` are the columns that the punctuation source reads, by its labels; `named` the columns that
    punctuations name beside the key, where there are such. `at` are positions in the source's partitions.
    """

    hashes: Any
    keys: Sequence[Any]
    payload: Sequence[Any]
    time: Ints | None = None
    until: Any = None
    at: Positions | None = None
    read: Mapping[str, Any] = field(default_factory=dict)
    named: Mapping[str, Any] = field(default_factory=dict)

    def batch(self, layout: Layout) -> Batch:
        """The columns that are stored."""
        columns = [self.hashes]
        if self.time is not None:
            columns.append(pa.array(self.time))
        if self.until is not None:
            columns.append(self.until)
        return layout.batch([*columns, *self.keys, *self.payload])


@dataclass(frozen=True)
class RowIntake:
    """What of a stream decides how its rows become arrivals; small, as Spark sends it to every task."""

    stream: str
    layout: Layout
    source: PunctuationSource | None = None
    arrival: Arrival | None = None
    keep_unkeyed: bool = False  # rows with null keys are results of their own
    monitored: bool = True
    unnamed_keys: tuple[int, ...] = ()  # key columns that punctuations do not name: wildcards there
    wildcards_for_key: tuple[str, ...] = ()  # see Stream
    wildcards_for_later: tuple[str, ...] = ()
    null_safe: bool = False  # a null key is a key like any other
    forwarded: tuple[int, ...] = ()  # payload columns that punctuations name for a later operator
    data_columns: tuple[int, ...] = ()  # payload columns in which a control row should have nothing

    @classmethod
    def of(cls, stream: Stream, layout: Layout, *, keep_unkeyed: bool, monitored: bool = True) -> RowIntake:
        """The intake of a declared stream."""
        named = stream.punctuated_columns
        return cls(
            stream.name,
            layout,
            stream.punctuation if stream.control is None else None,
            stream.arrival,
            keep_unkeyed,
            monitored,
            tuple(i for i, name in enumerate(stream.key) if name not in named),
            stream.wildcards_for_key,
            stream.wildcards_for_later,
            stream.null_safe,
            tuple(stream.payload.index(name) for name in stream.forwarded),
            _data_columns(stream),
        )

    def arrivals(self, given: DecodedRows) -> Arrivals:
        """One batch of the input, sorted out."""
        closing = None if self.source is None else self.source.closing_rows(given.read)
        has_key: Mask = np.ones(len(given.hashes), np.bool_) if self.null_safe else valid(given.keys)
        data: Mask = np.ones(len(has_key), np.bool_)
        if closing is not None and closing.data is not None:
            data = closing.data
        chosen = np.flatnonzero(data & has_key)
        everything = given.batch(self.layout)
        rows = everything if len(chosen) == len(everything) else everything.take(chosen)
        result = Arrivals(
            rows,
            self.layout.keys_only.empty(),
            latest_us=latest_time(given.time, data),
            null_keys=int(np.count_nonzero(data)) - len(chosen),
            unkeyed=everything.where(data & ~has_key) if self.keep_unkeyed else None,
            rows_at=None if given.at is None else given.at.take(chosen),
            order=look(rows) if self.monitored and self.arrival is None else None,
        )
        if closing is not None and closing.data is not None:
            with_data = self._has_data(given) & closing.closes & ~data
            result = replace(result, control_rows_with_data=int(np.count_nonzero(with_data)))
        if closing is not None:  # a data row without a key closes nothing
            closes = np.flatnonzero(closing.closes & (has_key | ~data))
            result = self.with_punctuations(result, given, closes)
        if self.arrival is not None and result.rows_at is not None:
            result = with_share_summaries(self.arrival, result, result.rows_at)
        return result

    def _has_data(self, given: DecodedRows) -> Mask:
        """Which rows have a value in a column that a punctuation does not name."""
        found: Mask = np.zeros(len(given.hashes), np.bool_)
        for i in self.data_columns:
            found |= valid([given.payload[i]])
        return found

    def with_punctuations(
        self, result: Arrivals, given: DecodedRows, rows: Ints, *, null_is_wildcard: bool = False
    ) -> Arrivals:
        """With the punctuations that these rows are, on the key or on that of a later operator."""
        wildcards = null_is_wildcard or (self.source is not None and self.source.null_is_wildcard)
        keys = [
            pa.nulls(len(key), key.type) if i in self.unnamed_keys else key
            for i, key in enumerate(given.keys)
        ]
        result, rows = self._with_forwarded(result, given, keys, rows)
        if not wildcards and not self.null_safe:
            named = valid(keys)[rows]
            if not named.all():
                nameless = given.batch(self.layout).take(rows[~named])
                result, rows = replace(result, null_punctuations=nameless), rows[named]
        if len(rows) == 0:
            return result
        single, wide, patterns = (
            (rows, rows[:0], ()) if self.null_safe and not wildcards else sort_punctuations(keys, rows)
        )
        picked = pa.array(single)
        return replace(
            result,
            keys=self.layout.keys_only.batch(
                [given.hashes.take(picked), *(key.take(picked) for key in keys)]
            ),
            keys_at=None if given.at is None else given.at.take(single),
            patterns=patterns,
            patterns_at=None if given.at is None else given.at.take(wide),
        )

    def _with_forwarded(
        self, result: Arrivals, given: DecodedRows, keys: Sequence[Any], rows: Ints
    ) -> tuple[Arrivals, Ints]:
        """With the punctuations that only a later operator can use; the others are still to be added."""
        if not self.wildcards_for_key:
            return result, rows
        on_key = ~_any_named(given, self.wildcards_for_key, rows)
        on_later = rows[~on_key & ~_any_named(given, self.wildcards_for_later, rows)]
        if self.forwarded and len(on_later):
            by = np.zeros(len(keys[0]), np.int64) if given.at is None else given.at.partition
            named = punctuation_rows([*keys, *(given.payload[n] for n in self.forwarded)], by)
            result = replace(result, forwarded=named.take(pa.array(on_later)))
        return result, rows[on_key]


def _data_columns(stream: Stream) -> tuple[int, ...]:
    """The payload columns that tell a data row from a punctuation.

    A punctuation may have an event time, so that column tells only where there is no other.
    """
    source = stream.punctuation
    if source is None or source.ignores_data:
        return ()
    others = [name for name in stream.payload if name not in stream.punctuated_columns]
    chosen = [name for name in others if name != stream.time] or others
    return tuple(stream.payload.index(name) for name in chosen)


def _any_named(given: DecodedRows, columns: Sequence[str], rows: Ints) -> Mask:
    """For which of the rows one of the columns has a value, not a wildcard."""
    mask: Mask = np.zeros(len(rows), np.bool_)
    for name in columns:
        mask |= valid([given.named[name]])[rows]
    return mask


def sort_punctuations(keys: Sequence[Any], rows: Ints) -> tuple[Ints, Ints, tuple[KeyPatterns, ...]]:
    """Punctuation rows by what they close: single keys, or patterns (null = any value).

    Returns the rows that name a single key, the others, and the patterns of those.
    """
    whole = valid(keys)[rows]
    wide = rows[~whole]
    patterns = tuple(
        tuple(ANY if (value := key[row].as_py()) is None else Constant(value) for key in keys)
        for row in wide.tolist()
    )
    return rows[whole], wide, patterns


def offsets(column: Any, stream: str) -> Ints:
    """The offsets of a sequence; every row must have one."""
    if column.null_count:
        row = int(np.flatnonzero(~valid([column]))[0])
        raise BadInput(
            f"stream {stream!r}: row {row} of the batch has no offset; give every row, also a punctuation, "
            "one in the sequence column"
        )
    found: Ints = column.to_numpy(zero_copy_only=False)
    return found


def latest_time(time: Ints | None, rows: Ints | Mask) -> int | None:
    """The greatest event time of the chosen rows, None where none has one."""
    chosen = None if time is None else time[rows]
    if chosen is None or len(chosen) == 0:
        return None
    latest = int(chosen.max())
    return None if latest == NO_TIME else latest
