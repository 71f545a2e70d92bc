"""Pattern-matching kernels: which rows of a column match; Arrow arrays in, boolean numpy arrays out.

Each function costs one pass and has no loop over rows. Bounds and values are converted to the column's type
first, so 5 matches a decimal 5.00 and a value of the wrong type is `BadInput`. The order is that of
`values.rank`: NaN equals NaN and is above any number, -0.0 equals 0.0. A null is never matched.

    >>> within(pa.array([1.0, float("nan"), None]), low=0.5, low_closed=True).tolist()
    [True, True, False]
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin.punctuation.values import Value, convert, is_nan, plain

Column: TypeAlias = Any  # pa.Array or pa.ChunkedArray
Mask: TypeAlias = npt.NDArray[np.bool_]


def equal(column: Column, value: Value) -> Mask:
    """Rows equal to the value."""
    column, (sought,) = _prepare(column, [value])
    if sought is None:
        return nothing(column)
    return _mask(pc.is_nan(column) if is_nan(sought.as_py()) else pc.equal(column, sought))


def member(column: Column, values: Sequence[Value]) -> Mask:
    """Rows equal to one of the values; one pass with a hash table of the values."""
    column, sought = _prepare(column, values)
    if not sought or sought[0] is None:
        return nothing(column)
    if pa.types.is_floating(column.type):
        column = pc.add(column, pa.scalar(0.0, column.type))  # -0.0 + 0.0 is 0.0; is_in compares bits
    return _mask(pc.is_in(column, value_set=pa.array([v.as_py() for v in sought], column.type)))


def within(
    column: Column,
    *,
    low: Value | None = None,
    high: Value | None = None,
    low_closed: bool = False,
    high_closed: bool = False,
) -> Mask:
    """Rows between two bounds; a bound of None is missing, a closed bound is part of the range."""
    column, (bottom, top) = _prepare(column, [low, high])
    kept = _mask(column.is_valid())
    if bottom is not None:
        kept &= _mask(_above(column, bottom, closed=low_closed))
    if top is not None:
        kept &= _mask(_below(column, top, closed=high_closed))
    return kept


def nothing(column: Column) -> Mask:
    """No row."""
    return np.zeros(len(column), np.bool_)


def nulls(column: Column) -> Mask:
    """Rows that are null."""
    return ~_mask(column.is_valid())


def everything(column: Column) -> Mask:
    """Every row, nulls included."""
    return np.ones(len(column), np.bool_)


def _above(column: Column, bound: Any, *, closed: bool) -> Any:
    floating = pa.types.is_floating(column.type)
    if floating and is_nan(bound.as_py()):
        return pc.and_(pc.is_nan(column), closed)
    numbers = (pc.greater_equal if closed else pc.greater)(column, bound)
    return pc.or_(numbers, pc.is_nan(column)) if floating else numbers


def _below(column: Column, bound: Any, *, closed: bool) -> Any:
    if is_nan(bound.as_py()):
        return pc.or_(pc.invert(pc.is_nan(column)), closed)
    return (pc.less_equal if closed else pc.less)(column, bound)


def _prepare(column: Column, values: Sequence[Value | None]) -> tuple[Column, list[Any]]:
    """The column in a type that every Arrow kernel supports, and the values as scalars of that type."""
    dtype = column.type
    if pa.types.is_null(dtype):
        return column, [None for _ in values]
    bare = plain(dtype)
    simple = {pa.float16(): pa.float32(), pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    target = simple.get(bare, bare)
    scalars = [None if value is None else pa.scalar(convert(value, dtype), target) for value in values]
    return (column if dtype == target else column.cast(target)), scalars


def _mask(flags: Any) -> Mask:
    if isinstance(flags, pa.ChunkedArray):
        flags = flags.combine_chunks()
    return np.array(flags.fill_null(False).to_numpy(zero_copy_only=False), dtype=np.bool_)
