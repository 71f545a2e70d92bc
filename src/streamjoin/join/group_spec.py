"""Grouping specification: the keys and aggregates of a group by, and the form of its partial rows.

Joined rows are lifted to partial rows (one accumulator for each aggregate), partial rows of one
group are combined, and combined ones are finished to the answer. Worked case, grouped by item and
count(*): bids (180, a) (180, b) (7, c) are lifted to (180, 1) (180, 1) (7, 1), combined to (180, 2)
(7, 1), and later, with a partial row (180, 5), finished to (180, 7).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin.columnar.assemble import Component
from streamjoin.columnar.batch import Batch, Ints, Layout
from streamjoin.columnar.keys import canonical
from streamjoin.errors import BadInput
from streamjoin.join.aggregates import ALL_ROWS, FUNCTIONS, Accumulator, Groups


@dataclass(frozen=True)
class Aggregate:
    """One column of the answer: a function of a column of the joined row, and of another that decides."""

    name: str
    column: str
    accumulator: Accumulator
    by: str | None = None

    @classmethod
    def of(cls, joined: pa.Schema, name: str, column: str, function: str, by: str | None = None) -> Aggregate:
        """A function by its name, of columns of a joined row."""
        dtype = pa.int64() if (column, function) == (ALL_ROWS, "count") else joined.field(column).type
        order = None if by is None else joined.field(by).type
        return cls(name, column, FUNCTIONS[function](dtype, order), by)

    @property
    def counts_rows(self) -> bool:
        """Whether it counts rows, not values of a column."""
        return self.column == ALL_ROWS and self.accumulator.says == "count"

    @property
    def text(self) -> str:
        columns = self.column if self.by is None else f"{self.column}, {self.by}"
        return f"{self.name} = {self.accumulator.says}({columns})"


@dataclass(frozen=True)
class Grouping:
    """What is asked: group columns, among them the `keys` of the join, and aggregates.

    Partial rows hold the key columns, then the other group columns, then the accumulators.
    """

    joined: pa.Schema
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]

    @cached_property
    def others(self) -> tuple[str, ...]:
        """The group columns that are not the join's."""
        return tuple(name for name in self.columns if name not in self.keys)

    @cached_property
    def layout(self) -> Layout:
        """Of partial rows."""
        types = [self.joined.field(name).type for name in self.others]
        types += [dtype for one in self.aggregates for dtype in one.accumulator.types]
        return Layout(tuple(self.joined.field(name).type for name in self.keys), payload_types=tuple(types))

    @cached_property
    def output(self) -> pa.Schema:
        """The columns of a final row."""
        groups = [pa.field(name, self.joined.field(name).type) for name in self.columns]
        return pa.schema([*groups, *(pa.field(one.name, one.accumulator.result) for one in self.aggregates)])

    @property
    def text(self) -> str:
        return f"{', '.join(self.columns)}: {', '.join(one.text for one in self.aggregates)}"

    def lift(self, rows: pa.RecordBatch, components: Sequence[Component]) -> Batch:
        """Joined rows as partial rows, one each; their time is that of the latest component."""
        time = None
        if any(one.accumulator.timed for one in self.aggregates):
            times = [of.time[at] for of, at in components if of.layout.timed]
            time = pa.array(np.maximum.reduce(times))
        of, at = components[0]
        columns = [pa.array(of.hash[at]), *(rows.column(name) for name in self.keys)]
        columns += [canonical(rows.column(name)) for name in self.others]
        for one in self.aggregates:
            values = columns[0] if one.counts_rows else rows.column(one.column)
            columns += one.accumulator.lift(values, time if one.by is None else rows.column(one.by))
        return self.layout.batch(columns)

    def combine(self, rows: Batch) -> Batch:
        """One partial row for each group of a sorted batch, sorted."""
        number = rows.groups.of_rows()
        others = rows.payload[: len(self.others)]
        for column in others:
            codes = column.dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)
            number = np.unique(number * (codes.max(initial=0) + 1) + codes, return_inverse=True)[1]
        if others:
            rows, number = _by_number(rows, number)
        start = np.flatnonzero(np.diff(number, prepend=-1))
        if len(start) == len(rows):
            return rows
        first = rows.take(start)
        columns = [first.data.column(0), *first.keys, *first.payload[: len(others)]]
        for one, accumulators in self._accumulators(rows):
            columns += one.accumulator.combine(Groups(number, start), accumulators)
        return self.layout.batch(columns)

    def finish(self, rows: Batch) -> pa.RecordBatch:
        """Combined partial rows as final rows."""
        names = [*self.keys, *self.others]
        known = dict(zip(names, [*rows.keys, *rows.payload[: len(self.others)]], strict=True))
        columns = [known[name] for name in self.columns]
        for one, accumulators in self._accumulators(rows):
            try:
                columns.append(one.accumulator.finish(accumulators))
            except pa.ArrowInvalid as error:
                row = _unfit(one, accumulators)
                group = {name: column[row].as_py() for name, column in known.items()}
                raise BadInput(
                    f"{one.text} of {group} does not fit {one.accumulator.result} ({error}); give "
                    f"{one.column} a wider type before it is joined, such as a decimal of 38 digits"
                ) from error
        return pa.RecordBatch.from_arrays(columns, schema=self.output)

    def _accumulators(self, rows: Batch) -> Iterator[tuple[Aggregate, Sequence[Any]]]:
        at = len(self.others)
        for one in self.aggregates:
            yield one, rows.payload[at : (at := at + len(one.accumulator.types))]


def _unfit(asked: Aggregate, accumulators: Sequence[Any]) -> int:
    """The first row whose answer does not fit its type."""
    for row in range(len(accumulators[0])):
        try:
            asked.accumulator.finish([column.slice(row, 1) for column in accumulators])
        except pa.ArrowInvalid:
            return row
    return 0


def _by_number(rows: Batch, number: Ints) -> tuple[Batch, Ints]:
    """Rows of one group beside each other; rows of one key are so already."""
    if np.all(number[1:] >= number[:-1]):
        return rows, number
    order = np.argsort(number, kind="stable")
    return rows.take(order), number[order]
