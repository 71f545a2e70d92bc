"""Aggregate functions as accumulators: small columns that are combined in any order.

A function has one or two accumulator columns. `lift` makes them from rows, one accumulator per row;
`combine` makes one of all accumulators of a group, as often as there is reason to; `finish` makes
the answer. So a batch's rows, a compaction of runs and a final row are one code path. Worked case: avg
of 3 and null and 4 is lifted to (3, 1) (-, 0) (4, 1), combined to (7, 2) and finished to 3.5.

What comes out does not depend on what was combined with what, except for the last digits of a sum
of floats. Whole numbers and decimals are summed in wider ones than the answer's, so a sum overflows
only if the answer itself does. Null rules and types are Spark's: null counts nowhere, is left out
of lists, and is the answer where there is nothing else; for `first` and `last` null is a value.

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


@dataclass(frozen=True)
class Accumulator(ABC):
    """One function on a column of a type that it `takes`."""

    dtype: pa.DataType
    says: ClassVar[str]
    timed: ClassVar[bool] = False  # the rows' event times decide

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
    def lift(self, column: Any, time: Ints) -> list[Any]:
        """Accumulators of single rows."""

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

    def lift(self, column: Any, time: Ints) -> list[Any]:
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

    def lift(self, column: Any, time: Ints) -> list[Any]:
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

    def lift(self, column: Any, time: Ints) -> list[Any]:
        return [*self._sum.lift(column, time), *self._count.lift(column, time)]

    def combine(self, groups: Groups, columns: Sequence[Any]) -> list[Any]:
        return [*self._sum.combine(groups, columns[:1]), *self._count.combine(groups, columns[1:])]

    def finish(self, columns: Sequence[Any]) -> Any:
        return pc.divide(columns[0].cast(pa.float64()), columns[1].cast(pa.float64()))


class Extreme(Accumulator):
    """The least or greatest value; nulls do not count, NaN is above all numbers."""

    of: ClassVar[str]  # "min" or "max"

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return (coded_type(self.dtype),)

    def lift(self, column: Any, time: Ints) -> list[Any]:
        return [coded(column)]

    def combine(self, groups: Groups, columns: Sequence[Any]) -> list[Any]:
        return [groups.by(self.of, columns[0])]

    def finish(self, columns: Sequence[Any]) -> Any:
        return decoded(columns[-1], self.dtype)


class Least(Extreme):
    """The least."""

    says = of = "min"


class Greatest(Extreme):
    """The greatest."""

    says = of = "max"


class AtExtreme(Extreme):
    """The value of the earliest or latest row; of rows at one time the least or greatest value, null
    where there is no other.
    """

    timed = True

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return (pa.int64(), *super().types)

    def lift(self, column: Any, time: Ints) -> list[Any]:
        return [pa.array(time), *super().lift(column, time)]

    def combine(self, groups: Groups, columns: Sequence[Any]) -> list[Any]:
        time = groups.by(self.of, columns[0])
        there = time.to_numpy()[groups.of_rows] == columns[0].to_numpy()
        of_rows = groups.of_rows[there]
        nearest = Groups(of_rows, np.searchsorted(of_rows, np.arange(len(groups))))
        return [time, *super().combine(nearest, [columns[1].filter(pa.array(there))])]


class First(AtExtreme):
    """Of the earliest row."""

    says, of = "first", "min"


class Last(AtExtreme):
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

    def lift(self, column: Any, time: Ints) -> list[Any]:
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
    kind.says: kind for kind in (Count, Sum, Least, Greatest, Average, First, Last, Collect)
}


def _lengths(lists: Any) -> Ints:
    lengths: Ints = pc.list_value_length(lists).to_numpy().astype(np.int64)
    return lengths


# Values in the order that counts


def coded_type(dtype: pa.DataType) -> pa.DataType:
    """The type in which values of a type are compared."""
    return pa.int64() if pa.types.is_floating(dtype) or pa.types.is_duration(dtype) else dtype


def coded(column: Any) -> Any:
    """The same values in a type that Arrow orders as Spark does: floats by their bits, NaN last."""
    if pa.types.is_floating(column.type):
        plain = canonical(column).cast(pa.float64()).to_numpy(zero_copy_only=False)
        return pa.array(_flipped(plain.view(np.int64)), mask=column.is_null().to_numpy(zero_copy_only=False))
    return column.cast(coded_type(column.type))


def decoded(codes: Any, dtype: pa.DataType) -> Any:
    """What was coded."""
    if not pa.types.is_floating(dtype):
        return codes.cast(dtype)
    plain = _flipped(pc.fill_null(codes, 0).to_numpy()).view(np.float64)
    return pa.array(plain, mask=codes.is_null().to_numpy(zero_copy_only=False)).cast(dtype)


def _flipped(bits: Ints) -> Ints:
    """Bits of floats as ordered numbers, and back."""
    return bits ^ ((bits >> 63) & np.int64(0x7FFFFFFFFFFFFFFF))
