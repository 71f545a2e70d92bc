"""Closed ranges: ranges of key values that are closed, coalesced as they come.

Every orderable key type is mapped to codes that keep its order and have a successor: integers,
dates and times to int64, floats to their sortable bits, strings and binaries to their bytes
(the successor of b is b + 0x00), decimals to their unscaled integer. So each range, whatever its
ends, is half-open [low, high) over codes, and touching ranges coalesce: [1, 5] and [6, 9] on
integers become one. Testing n keys costs n log r.
"""

from __future__ import annotations

import bisect
import decimal
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin.columnar.batch import Ints, Mask
from streamjoin.columnar.keys import canonical, fixed_width_ints
from streamjoin.columnar.types import orderable
from streamjoin.errors import BadInput
from streamjoin.punctuation import Range

_LOWEST = -(1 << 300)  # beyond every code of a number
_HIGHEST = 1 << 300
_EXACT = decimal.Context(prec=100)  # the default context rounds to 28 digits


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


def _predecessor(code: Any) -> Any:
    """The code whose successor this is, None where there is none."""
    if isinstance(code, bytes):
        return code[:-1] if code.endswith(b"\0") else None
    return code - 1


def _value(code: Any, dtype: pa.DataType) -> Any:
    """The value with this code; None where no value of the type, or none that Python can say, has it."""
    try:
        value = _decoded(code, dtype)
        return value if _code(value, dtype) == code else None
    except (pa.ArrowException, ValueError, OverflowError, TypeError):
        return None


def _decoded(code: Any, dtype: pa.DataType) -> Any:
    if isinstance(code, bytes):
        return code.decode() if pa.types.is_string(dtype) else code
    if pa.types.is_decimal(dtype):
        return _EXACT.scaleb(decimal.Decimal(code), -dtype.scale)
    if pa.types.is_floating(dtype):
        bits = code ^ ((code >> 63) & 0x7FFFFFFFFFFFFFFF)
        value = np.array([bits], np.int64).view(np.float64).item()
        return math.nan if math.isnan(value) else value  # there are many NaN, one stands for all
    if pa.types.is_integer(dtype) or pa.types.is_boolean(dtype):
        return bool(code) if pa.types.is_boolean(dtype) else code
    width = pa.int32() if dtype.bit_width == 32 else pa.int64()
    return pa.array([code], width).view(dtype)[0].as_py()


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
class ClosedRanges:
    """Disjoint, ascending, half-open ranges of codes of one key column; high None = no end."""

    dtype: pa.DataType
    low: list[Any] = field(default_factory=list)
    high: list[Any] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.low)

    def add(self, pattern: Range) -> None:
        """Close one more range."""
        if not orderable(self.dtype):
            raise BadInput(f"a range over keys of type {self.dtype} has no meaning; punctuate single keys")
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

    def intersect(self, other: ClosedRanges) -> ClosedRanges:
        """What lies in both; one walk along both."""
        found = ClosedRanges(self.dtype)
        i = j = 0
        while i < len(self) and j < len(other):
            low, ours, theirs = max(self.low[i], other.low[j]), self.high[i], other.high[j]
            ours_first = theirs is None or (ours is not None and ours < theirs)
            high = ours if ours_first else theirs
            if high is None or low < high:
                found.low.append(low)
                found.high.append(high)
            i, j = (i + 1, j) if ours_first else (i, j + 1)
        return found

    def copy(self) -> ClosedRanges:
        """The same ranges, to be kept while these go on growing."""
        return ClosedRanges(self.dtype, [*self.low], [*self.high])

    def beyond(self, smaller: ClosedRanges) -> ClosedRanges:
        """The ranges, whole, that are not just so in a smaller set: those that are new or have grown."""
        known = set(zip(smaller.low, smaller.high, strict=True))
        new = [ends for ends in zip(self.low, self.high, strict=True) if ends not in known]
        return ClosedRanges(self.dtype, [low for low, _ in new], [high for _, high in new])

    def patterns(self) -> list[Range]:
        """The ranges as patterns of values; one whose ends cannot be said as values is left out.

        A range of all values is said in two: as one it would be a wildcard, which nulls match too.
        """
        found = [self._pattern(low, high) for low, high in zip(self.low, self.high, strict=True)]
        if len(found) == 1 and found[0] == Range(None, None):
            width = self.dtype.byte_width if pa.types.is_fixed_size_binary(self.dtype) else 0
            middle = _value(b"\0" * width if _is_bytes(self.dtype) else 0, self.dtype)
            return [Range(None, middle), Range(middle, None)]
        return [one for one in found if one is not None]

    def _pattern(self, low: Any, high: Any) -> Range | None:
        first = last = None
        low_closed = high_closed = False
        if low not in (b"", _LOWEST):
            first, low_closed = _value(low, self.dtype), True
            if first is None:
                first, low_closed = _value(_predecessor(low), self.dtype), False
        if high not in (None, _HIGHEST):
            last, high_closed = _value(_predecessor(high), self.dtype), True
            if last is None:
                last, high_closed = _value(high, self.dtype), False
        unsaid = (first is None and low not in (b"", _LOWEST)) or (
            last is None and high not in (None, _HIGHEST)
        )
        return None if unsaid else Range(first, last, low_closed, high_closed)

    def to_json(self) -> list[list[Any]]:
        return [[_to_json(low), _to_json(high)] for low, high in zip(self.low, self.high, strict=True)]

    @classmethod
    def from_json(cls, dtype: pa.DataType, ranges: list[list[Any]]) -> ClosedRanges:
        lows, highs = [_from_json(low) for low, _ in ranges], [_from_json(high) for _, high in ranges]
        return cls(dtype, lows, highs)


def _to_json(code: Any) -> Any:
    return {"hex": code.hex()} if isinstance(code, bytes) else code


def _from_json(code: Any) -> Any:
    return bytes.fromhex(code["hex"]) if isinstance(code, dict) else code
