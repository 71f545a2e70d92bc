"""Key types: the one type to which the key columns of all inputs are cast before hashing, as Spark widens:
whole numbers to the wider one, whole numbers and decimals to a decimal that holds both, either
with a float to double, a date with a timestamp to the timestamp. Everything else must be equal.

A double holds 15 digits of any number: of wider whole numbers and decimals two may become one, as in Spark.
Then keys no longer are what was declared of them (`keeps_apart`), and the planner refuses such declarations.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cache, reduce
from zoneinfo import ZoneInfo

import pyarrow as pa

from streamjoin.errors import InvalidJoin

_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
_UNITS = ["s", "ms", "us", "ns"]
_ZONE = re.compile(r"tz=[^\],]+")
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2}):?(\d{2})?")
_EXACT_DIGITS = 15  # of a double: different numbers of so many digits are different doubles


def plain(dtype: pa.DataType) -> pa.DataType:
    """The same values in the form that is stored: no dictionaries, no large or view variants."""
    if pa.types.is_dictionary(dtype):
        return plain(dtype.value_type)
    if pa.types.is_large_string(dtype) or dtype == pa.string_view():
        return pa.string()
    if pa.types.is_large_binary(dtype) or dtype == pa.binary_view():
        return pa.binary()
    return dtype


def stored_type(dtype: pa.DataType) -> str:
    """The text of a type as it is stored: the same for all time zones, because instants are stored.

    >>> stored_type(pa.timestamp("us", "Europe/Oslo")), stored_type(pa.list_(pa.timestamp("s", "UTC")))
    ('timestamp[us, zoned]', 'list<item: timestamp[s, zoned]>')
    """
    return _ZONE.sub("zoned", str(dtype))


@cache
def zone_text(zone: str) -> str:
    """A time zone under one name, however it is spelled: by its offset where that never changes.

    >>> zone_text("UTC"), zone_text("Etc/UTC"), zone_text("GMT+01:00"), zone_text("Europe/Oslo")
    ('+00:00', '+00:00', '+01:00', 'Europe/Oslo')
    """
    fixed = _OFFSET.fullmatch(zone)
    if fixed is not None:
        sign, hours, minutes = fixed.groups(default="00")
        offset = f"{sign}{int(hours):02}:{minutes}"
        return "+00:00" if offset == "-00:00" else offset
    try:
        known = ZoneInfo("UTC" if zone == "Z" else zone)
    except (KeyError, ValueError, OSError):
        return zone
    moments = [datetime(year, month, 1, tzinfo=UTC) for year in range(1900, 2040) for month in (1, 7)]
    offsets = {moment.astimezone(known).strftime("%z") for moment in moments}
    return zone if len(offsets) > 1 else f"{(only := offsets.pop())[:3]}:{only[3:]}"


def in_one_zone(text: str) -> str:
    """A text that names types, with each time zone under one name."""
    return _ZONE.sub(lambda found: f"tz={zone_text(found.group()[3:])}", text)


def orderable(dtype: pa.DataType) -> bool:
    """Whether values of this type have an order, so that a range of them has a meaning."""
    return not (pa.types.is_nested(dtype) or pa.types.is_null(dtype))


def common_type(streams: list[str], columns: list[str], types: list[pa.DataType]) -> pa.DataType:
    """The widened type of one key position over all inputs."""

    def widen_or_refuse(a: pa.DataType, b: pa.DataType) -> pa.DataType:
        wide = widen(a, b)
        if wide is None:
            listed = ", ".join(f"{s}.{c} {t}" for s, c, t in zip(streams, columns, types, strict=True))
            raise InvalidJoin(f"key columns cannot be brought to one type ({listed}); cast one of them first")
        return wide

    return reduce(widen_or_refuse, [plain(dtype) for dtype in types])


def widen(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """The narrowest type that holds both, None where there is none.

    >>> widen(pa.int32(), pa.int64())
    DataType(int64)
    """
    if a == b:
        return a
    if pa.types.is_integer(a) and pa.types.is_integer(b):
        return _widen_integers(a, b)
    exact_a, exact_b = _as_decimal(a), _as_decimal(b)
    if exact_a is not None and exact_b is not None:
        return _widen_decimals(exact_a, exact_b)
    if (pa.types.is_floating(a) or exact_a is not None) and (pa.types.is_floating(b) or exact_b is not None):
        return pa.float64()
    if pa.types.is_temporal(a) and pa.types.is_temporal(b):
        return _widen_times(a, b)
    if pa.types.is_struct(a) and pa.types.is_struct(b) and a.num_fields == b.num_fields:
        return _widen_structs(a, b)
    return None


def keeps_apart(own: pa.DataType, wide: pa.DataType) -> bool:
    """Whether different values of a type stay different in the type that it is widened to.

    >>> keeps_apart(pa.int32(), pa.float64()), keeps_apart(pa.int64(), pa.float64())
    (True, False)
    """
    if pa.types.is_struct(own) and pa.types.is_struct(wide):
        pairs = zip(own, wide, strict=True)
        return all(keeps_apart(plain(one.type), other.type) for one, other in pairs)
    exact = _as_decimal(own)
    return exact is None or not pa.types.is_floating(wide) or exact[0] <= _EXACT_DIGITS


def _widen_integers(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    bits = max(
        a.bit_width * (1 + pa.types.is_unsigned_integer(a)),
        b.bit_width * (1 + pa.types.is_unsigned_integer(b)),
    )
    signed = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
    return signed.get(bits) or pa.decimal128(20, 0)


def _as_decimal(dtype: pa.DataType) -> tuple[int, int] | None:
    """Precision and scale of an exact number."""
    if pa.types.is_decimal(dtype):
        return dtype.precision, dtype.scale
    if pa.types.is_integer(dtype):
        return (20 if dtype == pa.uint64() else _DIGITS[dtype.bit_width]), 0
    return None


def _widen_decimals(a: tuple[int, int], b: tuple[int, int]) -> pa.DataType | None:
    scale = max(a[1], b[1])
    precision = max(a[0] - a[1], b[0] - b[1]) + scale
    return pa.decimal128(precision, scale) if precision <= 38 else None


def _widen_times(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if pa.types.is_timestamp(a) and pa.types.is_timestamp(b):
        if (a.tz is None) != (b.tz is None):
            return None
        return pa.timestamp(max(a.unit, b.unit, key=_UNITS.index), a.tz)
    if pa.types.is_date(a) and pa.types.is_date(b):
        return pa.date32()
    date, time = (a, b) if pa.types.is_date(a) else (b, a)
    return time if pa.types.is_date(date) and pa.types.is_timestamp(time) else None


def _widen_structs(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    fields = []
    for i in range(a.num_fields):
        wide = widen(plain(a.field(i).type), plain(b.field(i).type))
        if wide is None:
            return None
        fields.append(pa.field(a.field(i).name, wide))
    return pa.struct(fields)
