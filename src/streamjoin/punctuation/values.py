"""A value of a pattern: its order, its Arrow type, its text form.

Each is defined in one place, so that matching a row in Python and a column in Arrow agree:

- **Order** (`rank`): NaN equals NaN and is greater than any number, -0.0 equals 0.0, as in Spark. Times with
  a zone are compared as instants; Python alone would call the two 02:30 of a clock change equal.
- **Type** (`convert`): a value becomes what `pa.scalar(value, dtype).as_py()` gives, or is refused. The
  conversion is exact: 5 fits a decimal, "5" does not fit an int64, half a second no timestamp[s].
- **Text** (`write`, `reader`): 180, 12.50, true, "a JSON string", 0x00ff, 2026-11-15T10:00:00+01:00.
  Writing and reading gives the same value, for every type of `kind`.

    >>> convert(5, pa.decimal128(10, 2))
    Decimal('5.00')
    >>> reader(pa.int64())("180")
    180

Not supported: nested types, intervals, time64[ns] and duration[ns] (Python has no value for them).
"""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache, total_ordering
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from streamjoin.errors import BadInput

Value: TypeAlias = Any  # bool, int, float, Decimal, str, bytes, date, datetime, time or timedelta

_PYTHON_TYPES = (bool, int, float, Decimal, str, bytes, date, datetime, time, timedelta)


# ---------------------------------------------------------------- order


@total_ordering
class _NotANumber:
    """The rank of NaN: equal to itself, above everything else."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _NotANumber)

    def __lt__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0x7FF8


_NAN_RANK = _NotANumber()


def is_nan(value: Value) -> bool:
    """Whether the value is a NaN, of whichever type of number."""
    return (isinstance(value, float) and math.isnan(value)) or (isinstance(value, Decimal) and value.is_nan())


def rank(value: Value) -> Any:
    """The sort key of a value, used to compare and hash values."""
    if is_nan(value):
        return _NAN_RANK
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return value


def below(one: Value, other: Value) -> bool:
    """Whether `one` is strictly less than `other`; values of different kinds have no order."""
    try:
        return bool(rank(one) < rank(other))
    except TypeError as error:
        raise BadInput(
            f"{one!r} and {other!r} have no common order. Give both as values of the column's type."
        ) from error


def canonical(value: Any) -> Value:
    """The plain Python form of a user's value: numpy and Arrow scalars unwrapped, -0.0 as 0.0."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        value = pa.array(np.array([value]))[0]
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    elif isinstance(value, np.generic):
        value = value.item()
    elif isinstance(value, bytearray | memoryview):
        value = bytes(value)
    if value is None or type(value).__name__ == "NaTType":
        raise BadInput("A null is not a value of a pattern: null keys never match. Use ANY for every value.")
    if not isinstance(value, _PYTHON_TYPES):
        raise BadInput(
            f"{value!r} of type {type(value).__name__} cannot be part of a pattern. Give a number, string, "
            f"bytes, date, time, a list of such values, between(low, high) or ANY."
        )
    if isinstance(value, float | Decimal) and value == 0:
        return abs(value)
    return value


# ---------------------------------------------------------------- type


@dataclass(frozen=True, slots=True)
class Kind:
    """A family of Arrow types: the Python values it takes, and how one is written."""

    name: str
    takes: tuple[type, ...]
    example: str


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], Kind], ...] = (
    (pa.types.is_boolean, Kind("boolean", (bool,), "true or false")),
    (pa.types.is_integer, Kind("integer", (int,), "a whole number such as 180")),
    (pa.types.is_floating, Kind("float", (float, int), "a number such as 0.5")),
    (pa.types.is_decimal, Kind("decimal", (Decimal, int), "a number such as 12.50")),
    (pa.types.is_date, Kind("date", (date,), "a date such as 2026-11-15")),
    (pa.types.is_time, Kind("time", (time,), "a time such as 10:00:00")),
    (pa.types.is_duration, Kind("duration", (timedelta,), "a duration such as PT1.5S")),
)
_STRING = Kind("string", (str,), 'a string in JSON quotes such as "news"')
_BINARY = Kind("binary", (bytes,), "bytes such as 0x00ff")
_LOCAL_TIME = Kind("timestamp", (datetime,), "a time without a zone such as 2026-11-15T10:00:00")
_ZONED_TIME = Kind("timestamp", (datetime,), "a time with its zone such as 2026-11-15T10:00:00+01:00")


def plain(dtype: pa.DataType) -> pa.DataType:
    """The type of the values: for a dictionary type, its value type."""
    return dtype.value_type if pa.types.is_dictionary(dtype) else dtype


@lru_cache(maxsize=256)
def kind(dtype: pa.DataType) -> Kind:
    """The family of an Arrow type; a type without one is refused."""
    dtype = plain(dtype)
    if dtype in (pa.string(), pa.large_string(), pa.string_view()):
        return _STRING
    if pa.types.is_fixed_size_binary(dtype) or dtype in (pa.binary(), pa.large_binary(), pa.binary_view()):
        return _BINARY
    if pa.types.is_timestamp(dtype):
        return _LOCAL_TIME if dtype.tz is None else _ZONED_TIME
    if dtype not in (pa.time64("ns"), pa.duration("ns")):
        for holds, found in _KINDS:
            if holds(dtype):
                return found
    raise BadInput(
        f"Type {dtype} cannot be part of a punctuation. Cast the column to a number, string, binary, date, "
        f"time, timestamp or duration in at most microseconds, or punctuate it with ANY only."
    )


def convert(value: Any, dtype: pa.DataType) -> Value:
    """The value converted to a column's type; `BadInput` when it does not fit exactly.

    A float column rounds a float to its width, as Arrow and Spark do; everything else is exact.
    """
    value, family = canonical(value), kind(dtype)
    takes = isinstance(value, family.takes) and (isinstance(value, bool) == (family.name == "boolean"))
    takes = takes and (isinstance(value, datetime) == (family.name == "timestamp"))
    if takes and family.name == "timestamp":
        takes = (value.tzinfo is None) == (plain(dtype).tz is None)
    if not takes:
        raise _misfit(repr(value), dtype, f"a Python {type(value).__name__} is not converted")
    try:
        converted = canonical(pa.scalar(value, plain(dtype)).as_py())
        same = rank(converted) == rank(value) or (family.name == "float" and math.isfinite(converted))
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise _misfit(repr(value), dtype, str(error)) from error
    if not same:
        raise _misfit(repr(value), dtype, f"it would become {converted!r}")
    return converted


def _misfit(given: str, dtype: pa.DataType, reason: str = "") -> BadInput:
    why = f" ({reason})" if reason else ""
    return BadInput(f"{given} is not a value of type {plain(dtype)}{why}. Write {kind(dtype).example}.")


# ---------------------------------------------------------------- text


def write(value: Value) -> str:
    """The text form of a value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        offset = value.utcoffset()
        odd = offset is not None and offset % timedelta(minutes=1)  # zones of the 19th century have seconds
        return (value.astimezone(UTC) if odd else value).isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        us = value // timedelta(microseconds=1)
        return f"{'-' if us < 0 else ''}PT{format(Decimal(abs(us)).scaleb(-6).normalize(), 'f')}S"
    return repr(value)


_BOOLEAN = re.compile(r"true|false")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?inf|nan")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)")
_BYTES = re.compile(r"0x(([0-9a-fA-F]{2})*)")
_TIME = re.compile(r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?")
_TIMESTAMP = re.compile(r"([0-9-]{10}([T ][0-9:]{5,8})?)(\.[0-9]+)?(Z|[+-][0-9]{2}:?[0-9]{2})?")
_DURATION = re.compile(r"(-?)PT([0-9]+(\.[0-9]{1,6})?)S")


def reader(dtype: pa.DataType) -> Callable[[str], Value]:
    """A function from the text form (blanks trimmed) to the value of this type.

    Strings are returned as they are, since their quotes belong to the enclosing pattern. Make it once for a
    column and use it for each value: looking up a type costs more than reading an int.
    """
    family = kind(dtype)
    if family.name == "string":
        return str
    if family.name == "integer":
        return _integer_reader(plain(dtype))
    decode = _DECODERS[family.name]

    def read(text: str) -> Value:
        try:
            value = decode(text, plain(dtype))
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise _misfit(repr(text), dtype) from error
        return convert(value, dtype)

    return read


def _integer_reader(dtype: pa.DataType) -> Callable[[str], int]:
    signed = pa.types.is_signed_integer(dtype)
    low = -(1 << dtype.bit_width - 1) if signed else 0
    high = (1 << dtype.bit_width - (1 if signed else 0)) - 1

    def read(text: str) -> int:
        if _INTEGER.fullmatch(text) and len(text) <= 4000 and low <= (value := int(text)) <= high:
            return value
        raise _misfit(repr(text), dtype, f"from {low} to {high}")

    return read


def _match(form: re.Pattern[str], text: str) -> re.Match[str]:
    found = form.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return found


def _instant(text: str, dtype: pa.DataType) -> Value:
    clock, fraction, zone = _match(_TIMESTAMP, text).group(1, 3, 4)
    digits = (fraction or "").rstrip("0").rstrip(".")  # Arrow refuses more digits than the unit has
    return pa.scalar(clock + digits + (zone or "")).cast(dtype).as_py()


def _duration(text: str, _: pa.DataType) -> timedelta:
    sign, seconds = _match(_DURATION, text).group(1, 2)
    return timedelta(microseconds=int(Decimal(sign + seconds).scaleb(6)))


_DECODERS: dict[str, Callable[[str, pa.DataType], Value]] = {
    "boolean": lambda text, _: _match(_BOOLEAN, text).group() == "true",
    "float": lambda text, _: float(_match(_FLOAT, text).group()),
    "decimal": lambda text, _: Decimal(_match(_DECIMAL, text).group()),
    "binary": lambda text, _: bytes.fromhex(_match(_BYTES, text).group(1)),
    "date": lambda text, _: date.fromisoformat(text),
    "time": lambda text, _: time.fromisoformat(_match(_TIME, text).group()),
    "duration": _duration,
    "timestamp": _instant,
}
