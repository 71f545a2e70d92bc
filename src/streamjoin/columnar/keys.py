"""Keys: bring them to one form, hash them, compare them. Arrays in, arrays out.

Two keys are equal as Spark's join says: by value, NaN equals NaN, -0.0 equals 0.0, nulls inside
a struct equal each other. A null key column never gets here (the caller filters `valid`).
Costs are linear; no loop over rows except for key types that Arrow cannot compare (lists).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_SEED = np.uint64(0x9E3779B97F4A7C15)
_NULL_HASH = np.uint64(0x6A09E667F3BCC909)


def canonical(array: Any) -> Any:
    """The same keys with one NaN and one zero, so that equal keys have equal bits."""
    if pa.types.is_floating(array.type):
        plain = array.to_numpy(zero_copy_only=False)
        width = plain.dtype.type
        plain = np.where(np.isnan(plain), width(np.nan), plain + width(0.0))
        return pa.array(plain, array.type, mask=~valid([array]))
    if pa.types.is_struct(array.type):
        children = [canonical(child) for child in array.flatten()]
        mask = pa.array(~valid([array]))
        return pa.StructArray.from_arrays(children, fields=list(array.type), mask=mask)
    if pa.types.is_nested(array.type):
        return pa.array([_one_zero(value) for value in array.to_pylist()], array.type)
    return array


def _one_zero(value: Any) -> Any:
    """A nested value with -0.0 as 0.0 everywhere."""
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, list | tuple):
        return type(value)(_one_zero(part) for part in value)
    if isinstance(value, dict):
        return {name: _one_zero(part) for name, part in value.items()}
    return value


def valid(keys: Sequence[Any]) -> Mask:
    """Rows in which no key column is null."""
    mask: Mask = np.ones(len(keys[0]), np.bool_)
    for key in keys:
        if key.null_count:
            mask &= key.is_valid().to_numpy(zero_copy_only=False)
    return mask


def hash_keys(keys: Sequence[Any]) -> Ints:
    """A 64-bit hash per row of canonical, non-null keys; equal keys have equal hashes.

    Used where no JVM computes it. Deterministic between processes and versions of Python.
    """
    combined = np.full(len(keys[0]), _SEED, np.uint64)
    for key in keys:
        combined = _mix(combined * np.uint64(31) + _hash_column(key))
    return combined.view(np.int64)


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _hash_column(array: Any) -> npt.NDArray[np.uint64]:
    if array.null_count:  # a value's hash must not depend on what stands beside it
        present = valid([array])
        hashes = np.full(len(array), _NULL_HASH, np.uint64)
        hashes[present] = _hash_column(array.drop_null())
        return hashes
    plain = fixed_width_ints(array)
    if plain is not None:
        return plain.view(np.uint64)
    if pa.types.is_struct(array.type):
        combined = np.zeros(len(array), np.uint64)
        for child in array.flatten():
            combined = _mix(combined * np.uint64(31) + _hash_column(child))
        return combined
    if pa.types.is_string(array.type):
        objects = array.to_numpy(zero_copy_only=False)
    else:
        objects = np.array([repr(value) for value in array.to_pylist()], dtype=object)
    return np.asarray(pd.util.hash_array(objects, categorize=False), np.uint64)


def fixed_width_ints(array: Any) -> Ints | None:
    """Fixed-width values without nulls as int64 that are equal just when the values are."""
    dtype = array.type
    if array.null_count:
        return None
    if pa.types.is_integer(dtype) or pa.types.is_boolean(dtype):
        plain: Ints = array.to_numpy(zero_copy_only=False)
        return plain.astype(np.int64, copy=False)
    if pa.types.is_floating(dtype):
        return np.ascontiguousarray(array.to_numpy(zero_copy_only=False).astype(np.float64)).view(np.int64)
    if (
        pa.types.is_timestamp(dtype)
        or pa.types.is_date64(dtype)
        or pa.types.is_time64(dtype)
        or (pa.types.is_duration(dtype))
    ):
        view: Ints = array.view(pa.int64()).to_numpy()
        return view
    if pa.types.is_date32(dtype) or pa.types.is_time32(dtype):
        days: Ints = array.view(pa.int32()).to_numpy().astype(np.int64)
        return days
    return None


def equal(left: Any, right: Any) -> Mask:
    """Elementwise equality of two arrays of one type; nulls (inside structs) equal each other."""
    if left.null_count or right.null_count:
        ours, theirs = valid([left]), valid([right])
        same: Mask = ours == theirs
        both = np.flatnonzero(ours & theirs)
        same[both] = equal(left.take(pa.array(both)), right.take(pa.array(both)))
        return same
    our_ints, their_ints = fixed_width_ints(left), fixed_width_ints(right)
    if our_ints is not None and their_ints is not None:
        same = our_ints == their_ints
        return np.asarray(same)
    if pa.types.is_struct(left.type):
        same = np.ones(len(left), np.bool_)
        for a, b in zip(left.flatten(), right.flatten(), strict=True):
            same &= equal(a, b)
        return same
    if pa.types.is_nested(left.type) or pa.types.is_null(left.type):  # repr: there NaN equals NaN
        pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
        return np.array([repr(a) == repr(b) for a, b in pairs], np.bool_)
    values: Mask = pc.equal(left, right).to_numpy(zero_copy_only=False)
    return values


def equal_at(left: Sequence[Any], rows: Ints, right: Sequence[Any], others: Ints) -> Mask:
    """Whether key `rows[i]` of `left` equals key `others[i]` of `right`, for every i."""
    mask: Mask = np.ones(len(rows), np.bool_)
    for a, b in zip(left, right, strict=True):
        ours, theirs = fixed_width_ints(a), fixed_width_ints(b)
        if ours is not None and theirs is not None:
            mask &= ours[rows] == theirs[others]
        else:
            mask &= equal(a.take(pa.array(rows)), b.take(pa.array(others)))
    return mask


def adjacent_equal(keys: Sequence[Any]) -> Mask:
    """Whether row i + 1 has the key of row i, for i from 0 to n - 2."""
    size = len(keys[0])
    mask: Mask = np.ones(max(size - 1, 0), np.bool_)
    if size > 1:
        for key in keys:
            mask &= equal(key.slice(0, size - 1), key.slice(1))
    return mask


def tie_order(keys: Sequence[Any]) -> Ints:
    """An order that makes equal keys adjacent, by first appearance; for a few rows only."""
    first: dict[str, int] = {}
    rows = list(zip(*(key.to_pylist() for key in keys), strict=True))
    rank = [first.setdefault(repr(row), len(first)) for row in rows]
    return np.argsort(np.array(rank), kind="stable")


def cast_by_position(array: Any, dtype: pa.DataType, *, rounded: bool = False) -> Any:
    """The array in another type; fields of a struct by their place, as Spark does, not by their names.

    As in Spark too, decimals become the nearest float, and dates midnight in the zone of a timestamp.
    `rounded`: whole numbers may become the nearest float; otherwise one that is none is refused.
    """
    if array.type == dtype:
        return array
    if pa.types.is_struct(array.type) and pa.types.is_struct(dtype):
        if array.type.num_fields != dtype.num_fields:
            raise pa.ArrowInvalid(f"{array.type.num_fields} fields are not {dtype.num_fields}")
        fields = [dtype.field(i) for i in range(dtype.num_fields)]
        parts = [
            cast_by_position(part, field.type, rounded=rounded)
            for part, field in zip(array.flatten(), fields, strict=True)
        ]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=array.is_null())
    if pa.types.is_floating(dtype) and pa.types.is_decimal(array.type):
        return array.cast(pa.string()).cast(dtype)  # Arrow's own cast makes 0.30000000000000004 of 0.3
    if pa.types.is_date(array.type) and pa.types.is_timestamp(dtype) and dtype.tz is not None:
        midnight = array.cast(pa.timestamp(dtype.unit))
        return pc.assume_timezone(midnight, dtype.tz, ambiguous="earliest", nonexistent="latest")
    return array.cast(dtype, safe=not (rounded and pa.types.is_floating(dtype)))


def checksum(columns: Sequence[Any]) -> tuple[int, int]:
    """How many rows, and a number that is the same for the same rows in any order."""
    if len(columns[0]) == 0:
        return 0, 0
    return len(columns[0]), int(hash_keys(columns).view(np.uint64).sum(dtype=np.uint64))
