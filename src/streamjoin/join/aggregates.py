"""Aggregate functions as accumulators: small columns that are combined in any order.

A function has one or two accumulator columns. `lift` makes them from rows, one accumulator per row;
`combine` makes one of all accumulators of a group, as often as there is reason to; `finish` makes
the answer. So a batch's rows, a compaction of runs and a final row are one code path. Worked case: avg
of 3 and null and 4 is lifted to (3, 1) (-, 0) (4, 1), combined to (7, 2) and finished to 3.5.

What comes out does not depend on what was combined with what, except for the last digits of a sum
of floats. Whole numbers and decimals are summed in wider ones than the answer's, so a sum overflows
only if the answer itself does. Null rules and types are Spark's: null counts nowhere, is left out
of lists, and is the answer where there is nothing else; for `first`, `last`, `max_by` and `min_by` null is a
value. Structs have the order of their fields, the first one first, a null field below all others.

Cost: linear, plus the sorting of collected lists when they are finished. No loop over rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin.columnar.batch import Ints
from streamjoin.columnar.keys import canonical

ALL_ROWS = "*"  # stands for a column in ("*", "count")
_MOST_DIGITS = 38  # of a decimal in Spark
_MORE_DIGITS = 10  # that a sum of decimals has, as in Spark


@dataclass(frozen=True)
class Groups:
    """Which accumulators are combined: `of_rows` ascends from 0 and leaves no number out."""

    of_rows: Ints
    start: Ints

    def __len__(self) -> int:
        return len(self.start)

    def by(self, function: str, column: Any) -> Any:
        """One value for each group, by a function that Arrow has; null where there is no value."""
        table = pa.table([pa.array(self.of_rows), column], ["group", "value"])
        found = table.group_by("group", use_threads=False).aggregate([("value", function)])
        return found.column(f"value_{function}").combine_chunks()

    def extreme_rows(self, of: str, codes: Sequence[Any]) -> Any:
        """One row of each group: the least or greatest by the first code, then by the next, and so on.

        Nulls of a code do not count where a group has anything else. Worked case: of (1, 7) (2, -) (2, 5) the
        greatest is the third.
        """
        rows, groups = np.arange(len(self.of_rows)), self
        for code in codes:
            own = code if len(rows) == len(code) else code.take(pa.array(rows))
            best = groups.by(of, own).take(pa.array(groups.of_rows))
            kept = pc.or_(pc.fill_null(pc.equal(own, best), False), best.is_null())
            there = kept.to_numpy(zero_copy_only=False)
            of_rows = groups.of_rows[there]
            rows, groups = rows[there], Groups(of_rows, np.searchsorted(of_rows, np.arange(len(self))))
            if len(rows) == len(self):
                break
        return pa.array(rows[groups.start])


@dataclass(frozen=True)
class Accumulator(ABC):
    """One function on a column of a type that it `takes`; `by` is the type of the column that decides."""

    dtype: pa.DataType
    by: pa.DataType | None = None
    says: ClassVar[str]
    timed: ClassVar[bool] = False  # the rows' event times decide
    ordered: ClassVar[bool] = False  # another column decides

    @staticmethod
    def takes(dtype: pa.DataType) -> bool:
        """Whether the function has a meaning for a type: here, for all that have an order."""
        return not (pa.types.is_nested(dtype) or pa.types.is_null(dtype))

    @property
    @abstractmethod
    def types(self) -> tuple[pa.DataType, ...]:
        """The types of the accumulator columns."""

    @property
    def result(self) -> pa.DataType:
        """The type of the answer."""
        return self.dtype

    @abstractmethod
    def lift(self, column: Any, order: Any) -> list[Any]:
        """Accumulators of single rows; `order` has for each what decides, times or values of a column."""

    @abstractmethod
    def combine(self, groups: Groups, columns: Sequence[Any]) -> list[Any]:
        """One accumulator for each group."""

    @abstractmethod
    def finish(self, columns: Sequence[Any]) -> Any:
        """The answers; raises `pa.ArrowInvalid` where one does not fit its type."""


class Count(Accumulator):
    """How many values are not null."""

    says = "count"
    types = (pa.int64(),)
    result = pa.int64()

    @staticmethod
    def takes(dtype: pa.DataType) -> bool:  # noqa: ARG004 - every type
        return True

    def lift(self, column: Any, order: Any) -> list[Any]:
        return [column.is_valid().cast(pa.int64())]

    def combine(self, groups: Groups, columns: Sequence[Any]) -> list[Any]:
        return [pa.array(np.add.reduceat(columns[0].to_numpy(), groups.start))]

    def finish(self, columns: Sequence[Any]) -> Any:
        return columns[0]


class Sum(Accumulator):
    """Of whole numbers a long, of floats a double, of decimals one with ten digits more."""

    says = "sum"

    @staticmethod
    def takes(dtype: pa.DataType) -> bool:
        if pa.types.is_decimal(dtype):
            return bool(dtype.precision <= _MOST_DIGITS)
        return bool(pa.types.is_integer(dtype) or pa.types.is_floating(dtype))

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        if pa.types.is_decimal(self.dtype):
            return (pa.decimal256(76, self.dtype.scale),)
        return (pa.float64() if pa.types.is_floating(self.dtype) else pa.decimal128(38, 0),)

    @property
    def result(self) -> pa.DataType:
        if pa.types.is_decimal(self.dtype):
            digits = min(self.dtype.precision + _MORE_DIGITS, _MOST_DIGITS)
            return pa.decimal128(digits, self.dtype.scale)
        return pa.float64() if pa.types.is_floating(self.dtype) else pa.int64()

    def lift(self, column: Any, order: Any) -> list[Any]:
        return [column.cast(self.types[0])]

    def combine(self, groups: Groups, columns: Sequence[Any]) -> list[Any]:
        return [groups.by("sum", columns[0])]

    def finish(self, columns: Sequence[Any]) -> Any:
        return columns[0].cast(self.result)


class Average(Accumulator):
    """The sum as a double, by the count."""

    says = "avg"
    result = pa.float64()

    @staticmethod
    def takes(dtype: pa.DataType) -> bool:
        return bool(pa.types.is_integer(dtype) or pa.types.is_floating(dtype))

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return (*self._sum.types, *self._count.types)

    @property
    def _sum(self) -> Sum:
        return Sum(self.dtype)

    @property
    def _count(self) -> Count:
        return Count(self.dtype)

    def lift(self, column: Any, order: Any) -> list[Any]:
        return [*self._sum.lift(column, order), *self._count.lift(column, order)]

    def combine(self, groups: Groups, columns: Sequence[Any]) -> list[Any]:
        return [*self._sum.combine(groups, columns[:1]), *self._count.combine(groups, columns[1:])]

    def finish(self, columns: Sequence[Any]) -> Any:
        return pc.divide(columns[0].cast(pa.float64()), columns[1].cast(pa.float64()))


class Extreme(Accumulator):
    """The least or greatest value; nulls do not count, NaN is above all numbers."""

    of: ClassVar[str]  # "min" or "max"

    @staticmethod
    def takes(dtype: pa.DataType) -> bool:
        if pa.types.is_struct(dtype):
            return dtype.num_fields > 0 and all(Extreme.takes(field.type) for field in dtype)
        return Accumulator.takes(dtype)

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return (self.dtype,)

    def lift(self, column: Any, order: Any) -> list[Any]:
        return [canonical(column)]

    def combine(self, groups: Groups, columns: Sequence[Any]) -> list[Any]:
        rows = groups.extreme_rows(self.of, [code for column in columns for code in codes(column)])
        return [column.take(rows) for column in columns]

    def finish(self, columns: Sequence[Any]) -> Any:
        return columns[-1]


class Least(Extreme):
    """The least."""

    says = of = "min"


class Greatest(Extreme):
    """The greatest."""

    says = of = "max"


class AtExtreme(Extreme):
    """The value of the row in which another column is least or greatest; of several such rows the least or
    greatest value, null where there is no other. Rows in which that column is null do not count.
    """

    ordered = True

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return (self.by, self.dtype)

    def lift(self, column: Any, order: Any) -> list[Any]:
        counts = order.is_valid()
        return [canonical(order), canonical(pc.if_else(counts, column, pa.nulls(len(column), column.type)))]


class LeastBy(AtExtreme):
    """Of the row in which another column is least."""

    says, of = "min_by", "min"


class GreatestBy(AtExtreme):
    """Of the row in which another column is greatest."""

    says, of = "max_by", "max"


class AtTime(AtExtreme):
    """The same, decided by event time."""

    ordered, timed = False, True

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return (pa.int64(), self.dtype)


class First(AtTime):
    """Of the earliest row."""

    says, of = "first", "min"


class Last(AtTime):
    """Of the latest row."""

    says, of = "last", "max"


class Collect(Accumulator):
    """All values that are not null, as a sorted list."""

    says = "collect"

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return (pa.list_(self.dtype),)

    @property
    def result(self) -> pa.DataType:
        return pa.list_(self.dtype)

    def lift(self, column: Any, order: Any) -> list[Any]:
        there = column.is_valid().to_numpy(zero_copy_only=False)
        return [self._lists(np.cumsum(there), column.drop_null())]

    def combine(self, groups: Groups, columns: Sequence[Any]) -> list[Any]:
        ends = np.cumsum(_lengths(columns[0]))
        return [self._lists(ends[np.append(groups.start[1:], len(ends)) - 1], columns[0].flatten())]

    def finish(self, columns: Sequence[Any]) -> Any:
        lengths, values = _lengths(columns[0]), columns[0].flatten()
        lists = pa.array(np.repeat(np.arange(len(lengths)), lengths))
        table = pa.table([lists, coded(values)], ["list", "value"])
        order = pc.sort_indices(table, [("list", "ascending"), ("value", "ascending")])
        return self._lists(np.cumsum(lengths), values.take(order))

    def _lists(self, ends: Ints, values: Any) -> Any:
        offsets = pa.array(np.append(0, ends), pa.int32())
        return pa.ListArray.from_arrays(offsets, values, type=self.result)


FUNCTIONS: dict[str, type[Accumulator]] = {
    kind.says: kind
    for kind in (Count, Sum, Least, Greatest, Average, LeastBy, GreatestBy, First, Last, Collect)
}


def _lengths(lists: Any) -> Ints:
    lengths: Ints = pc.list_value_length(lists).to_numpy().astype(np.int64)
    return lengths


# Values in the order that counts


def codes(column: Any, *, nested: bool = False) -> list[Any]:
    """Columns whose order, one after another, is that of the values; a struct's are those of its fields.

    A null is null in the first one; inside a struct it is below all other values, as Spark says.
    """
    there = column.is_valid()
    flag = there.cast(pa.int8()) if nested else pc.if_else(there, pa.scalar(1, pa.int8()), None)
    if pa.types.is_struct(column.type):
        return [flag, *(code for field in column.flatten() for code in codes(field, nested=True))]
    return [flag, coded(column)] if nested else [coded(column)]


def coded(column: Any) -> Any:
    """The same values in a type that Arrow orders as Spark does: floats by their bits, NaN last."""
    if pa.types.is_duration(column.type):
        return column.cast(pa.int64())
    if not pa.types.is_floating(column.type):
        return column
    bits = canonical(column).cast(pa.float64()).to_numpy(zero_copy_only=False).view(np.int64)
    ascending = bits ^ ((bits >> 63) & np.int64(0x7FFFFFFFFFFFFFFF))
    return pa.array(ascending, mask=column.is_null().to_numpy(zero_copy_only=False))
