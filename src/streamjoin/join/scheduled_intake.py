"""Scheduled intake: rows of a control stream become punctuations that act once the watermark passes them.

A row has for each key column a value, a list of values or a range with both ends; a null value is a
wildcard, a null end is missing. Lists are expanded, so that a row with the lists {1, 2} and {"a", "b"} is
four single keys; an empty list and a range whose ends are crossed close nothing. A null inside a list is
ignored: a null key never joins.

`ScheduledColumn` is the form after that, the same for both runtimes; on Spark the JVM expands the lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin.columnar.batch import Ints, Layout
from streamjoin.columnar.keys import canonical, equal, hash_keys, valid
from streamjoin.columnar.match import expand
from streamjoin.declare.control import Control
from streamjoin.declare.stream import Stream
from streamjoin.errors import BadInput
from streamjoin.join.arrivals import Arrivals
from streamjoin.join.intake import read_as
from streamjoin.join.scheduled_punctuations import TimedPatterns
from streamjoin.punctuation import ANY, Constant, Empty, Pattern, between, simplify
from streamjoin.state.closed_keys import KeyPatterns


@dataclass(frozen=True, slots=True)
class ScheduledColumn:
    """One key column of scheduled punctuations: a value where there is one, else the ends of a range.

    Without `low` and `high` the column has no ranges, and a null value is a wildcard.
    """

    value: Any
    low: Any = None
    high: Any = None

    def pattern(self, row: int) -> Pattern:
        value = self.value[row].as_py()
        if value is not None:
            return Constant(value)
        return ANY if self.low is None else simplify(between(self.low[row].as_py(), self.high[row].as_py()))


def scheduled_arrivals(
    layout: Layout, columns: Sequence[ScheduledColumn], hashes: Any, time: Ints
) -> Arrivals:
    """Punctuations with their times as arrivals: single keys apart from patterns."""
    values = [column.value for column in columns]
    single = valid(values)
    rows = pa.array(np.flatnonzero(single))
    picked = [hashes.take(rows), pa.array(time).take(rows), *(value.take(rows) for value in values)]
    patterns: list[TimedPatterns] = []
    for row in np.flatnonzero(~single).tolist():
        found: KeyPatterns = tuple(column.pattern(row) for column in columns)
        if not any(isinstance(one, Empty) for one in found):
            patterns.append((int(time[row]), found))
    return replace(
        Arrivals.nothing(layout),
        scheduled=layout.keys_with_time.batch(picked),
        scheduled_patterns=tuple(patterns),
    )


def check_times(micros: Any, stream: str, column: str) -> Ints:
    """The times of control rows; a punctuation without one is refused."""
    if micros.null_count:
        row = int(np.flatnonzero(~valid([micros]))[0])
        raise BadInput(
            f"stream {stream!r}: row {row} of its control source has no {column!r}; "
            "give every punctuation the time after which it acts"
        )
    times: Ints = micros.to_numpy()
    return times


@dataclass(frozen=True)
class ScheduledIntake:
    """Turns control tables of one stream into arrivals, in local runs."""

    stream: Stream
    source: Control
    layout: Layout
    hash: Callable[[Sequence[Any]], Ints] = hash_keys

    def arrivals(self, table: pa.Table | pa.RecordBatch) -> Arrivals:
        """One table of scheduled punctuations."""
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        if not isinstance(table, pa.Table):
            raise BadInput(
                f"stream {self.stream.name!r}: control got a {type(table).__name__}; give a pyarrow.Table"
            )
        time = self._column(table, self.source.time, self.source.type_of(self.source.time))
        micros = time.cast(pa.timestamp("us", getattr(time.type, "tz", None)), safe=False).view(pa.int64())
        times = check_times(micros, self.stream.name, self.source.time)
        rows, columns = self._columns(table)
        hashes = pa.array(self.hash([column.value for column in columns]))
        return scheduled_arrivals(self.layout, columns, hashes, times[rows])

    def _columns(self, table: pa.Table) -> tuple[Ints, list[ScheduledColumn]]:
        """The key columns with lists expanded, and the row of the table that each punctuation comes from."""
        forms = [
            self.source.form(name, dtype)
            for name, dtype in zip(self.stream.key, self.layout.key_types, strict=True)
        ]
        rows: Ints = np.arange(len(table))
        found: list[ScheduledColumn] = []
        chosen: list[
            Ints | None
        ] = []  # for each column: which of its values each punctuation has; None: rows
        for name, dtype, form in zip(self.stream.key, self.layout.key_types, forms, strict=True):
            if form == "list":
                start, count, values = _elements(self._column(table, name, pa.list_(dtype)))
                parent, element = expand(start[rows], count[rows])
                rows = rows[parent]
                chosen = [each if each is None else each[parent] for each in chosen]
                found.append(ScheduledColumn(canonical(values)))
                chosen.append(element)
                continue
            found.append(
                self._range(table, name, dtype) if form == "range" else self._value(table, name, dtype)
            )
            chosen.append(None)
        picks = [pa.array(rows if each is None else each) for each in chosen]
        return rows, [_take(column, pick) for column, pick in zip(found, picks, strict=True)]

    def _value(self, table: pa.Table, name: str, dtype: pa.DataType) -> ScheduledColumn:
        return ScheduledColumn(canonical(self._column(table, name, dtype)))

    def _range(self, table: pa.Table, name: str, dtype: pa.DataType) -> ScheduledColumn:
        low, high = (canonical(self._column(table, f"{name}_{end}", dtype)) for end in ("from", "to"))
        one = valid([low, high]) & equal(low, high)
        return ScheduledColumn(pc.if_else(pa.array(one), low, pa.nulls(len(low), dtype)), low, high)

    def _column(self, table: pa.Table, name: str, dtype: pa.DataType) -> Any:
        if name not in table.column_names:
            raise BadInput(
                f"stream {self.stream.name!r}: the control table has no column {name!r} (it has "
                f"{', '.join(table.column_names) or 'none'}); give tables of the declared schema"
            )
        return read_as(table.column(name), dtype, f"stream {self.stream.name!r}, control column {name!r}")


def _elements(lists: Any) -> tuple[Ints, Ints, Any]:
    """Where the values of each list lie, and the values; a null list has one value, null."""
    values = lists.flatten()
    parent = np.repeat(np.arange(len(lists)), pc.fill_null(pc.list_value_length(lists), 0).to_numpy())
    known = valid([values])
    parent, values = parent[known], values.filter(pa.array(known))
    absent = np.flatnonzero(~valid([lists]))
    parent = np.concatenate([parent, absent])
    order = np.argsort(parent, kind="stable")
    values = pa.concat_arrays([values, pa.nulls(len(absent), values.type)]).take(pa.array(order))
    count = np.bincount(parent, minlength=len(lists))
    return np.cumsum(count) - count, count, values


def _take(column: ScheduledColumn, rows: Any) -> ScheduledColumn:
    ends = [None if end is None else end.take(rows) for end in (column.low, column.high)]
    return ScheduledColumn(column.value.take(rows), *ends)
