"""Ranges of key values that are closed, merged as they come.

Every orderable key type is mapped to codes that keep its order and have a successor: integers,
dates and times to int64, floats to their sortable bits, strings and binaries to their bytes
(the successor of b is b + 0x00), decimals to their unscaled integer. So each range, whatever its
ends, is half-open [low, high) over codes, and touching ranges merge: [1, 5] and [6, 9] on
integers become one. Testing n keys costs n log r.
"""

from __future__ import annotations

import bisect
import decimal
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin.batch import Ints, Mask
from streamjoin.errors import BadInput
from streamjoin.keys import canonical, fixed_width_ints
from streamjoin.punctuation import Range

_LOWEST = -(1 << 300)  # beyond every code of a number
_HIGHEST = 1 << 300
_EXACT = decimal.Context(prec=100)  # the default context rounds to 28 digits


def orderable(dtype: pa.DataType) -> bool:
    """Whether a range over this key type makes sense."""
    return not (pa.types.is_nested(dtype) or pa.types.is_null(dtype))


def _is_bytes(dtype: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(dtype) or pa.types.is_binary(dtype) or pa.types.is_fixed_size_binary(dtype)
    )


def codes(array: Any) -> Any:
    """Ordered codes of non-null values: an int64 array, else a list of integers or bytes."""
    dtype = array.type
    if pa.types.is_decimal(dtype):
        return [int(_EXACT.scaleb(value, dtype.scale)) for value in array.to_pylist()]
    if pa.types.is_uint64(dtype):
        return array.to_pylist()
    ints = fixed_width_ints(array)
    if ints is not None:
        return ints ^ ((ints >> 63) & np.int64(0x7FFFFFFFFFFFFFFF)) if pa.types.is_floating(dtype) else ints
    if pa.types.is_string(dtype):
        return array.cast(pa.binary()).to_pylist()
    return array.to_pylist()


def _code(value: Any, dtype: pa.DataType) -> Any:
    code = codes(canonical(pa.array([value], dtype)))[0]
    return code if isinstance(code, bytes) else int(code)


def _successor(code: Any) -> Any:
    return code + b"\0" if isinstance(code, bytes) else code + 1


def code_bounds(pattern: Range, dtype: pa.DataType) -> tuple[Any, Any]:
    """A range as codes: from the first (inclusive) to the second (exclusive; None = no end)."""
    low: Any = b"" if _is_bytes(dtype) else _LOWEST
    high: Any = None if _is_bytes(dtype) else _HIGHEST
    if pattern.low is not None:
        low = _code(pattern.low, dtype)
        low = low if pattern.low_closed else _successor(low)
    if pattern.high is not None:
        high = _code(pattern.high, dtype)
        high = _successor(high) if pattern.high_closed else high
    return low, high


@dataclass(slots=True)
class RangeSet:
    """Disjoint, ascending, half-open ranges of codes of one key column; high None = no end."""

    dtype: pa.DataType
    low: list[Any] = field(default_factory=list)
    high: list[Any] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.low)

    def add(self, pattern: Range) -> None:
        """Close one more range."""
        if not orderable(self.dtype):
            raise BadInput(f"a range over keys of type {self.dtype} has no meaning; promise single keys")
        low, high = code_bounds(pattern, self.dtype)
        if high is None or low < high:
            self._insert(low, high)

    def _insert(self, low: Any, high: Any) -> None:
        first = bisect.bisect_left(self.low, low)
        if first and (self.high[first - 1] is None or self.high[first - 1] >= low):
            first -= 1
            low = self.low[first]
        last = first
        while last < len(self.low) and (high is None or self.low[last] <= high):
            if self.high[last] is None or (high is not None and self.high[last] > high):
                high = self.high[last]
            last += 1
        self.low[first:last], self.high[first:last] = [low], [high]

    def contains(self, array: Any) -> Mask:
        """For each non-null value, whether it lies in a closed range."""
        values = codes(array)
        if isinstance(values, np.ndarray):
            return self._contains_ints(values)
        at = [bisect.bisect_right(self.low, value) - 1 for value in values]
        return np.array(
            [
                i >= 0 and (self.high[i] is None or value < self.high[i])
                for i, value in zip(at, values, strict=True)
            ],
            np.bool_,
        )

    def _contains_ints(self, values: Ints) -> Mask:
        if not self.low:
            return np.zeros(len(values), np.bool_)
        first, final = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)
        reachable = [
            (max(low, first), min(high - 1, final))
            for low, high in zip(self.low, self.high, strict=True)
            if low <= final and high > first
        ]
        if not reachable:
            return np.zeros(len(values), np.bool_)
        low, last = (np.array(ends, np.int64) for ends in zip(*reachable, strict=True))
        at = np.searchsorted(low, values, side="right") - 1
        inside: Mask = (at >= 0) & (values <= last[at])
        return inside

    def to_json(self) -> list[list[Any]]:
        return [[_to_json(low), _to_json(high)] for low, high in zip(self.low, self.high, strict=True)]

    @classmethod
    def from_json(cls, dtype: pa.DataType, ranges: list[list[Any]]) -> RangeSet:
        lows, highs = [_from_json(low) for low, _ in ranges], [_from_json(high) for _, high in ranges]
        return cls(dtype, lows, highs)


def _to_json(code: Any) -> Any:
    return {"hex": code.hex()} if isinstance(code, bytes) else code


def _from_json(code: Any) -> Any:
    return bytes.fromhex(code["hex"]) if isinstance(code, dict) else code
