"""Values in SQL conditions: typed expressions, literals, casts, and the type in which Spark compares two.

Whole numbers compare as they are, with decimals exactly, with floats as doubles. A time that is written out
is in the time zone of the column it is compared with. Text compares with text; a text that is written out
also with times. Everything else needs a cast.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamjoin.declare.durations import MOST_US
from streamjoin.plan.where.sql_text import Literal, NotTranslated

US = pa.timestamp("us")
_NO = object()  # not a literal
_WHOLE = (pa.int32(), pa.int64())
_TYPES = {
    **dict.fromkeys(("tinyint", "byte"), pa.int8()),
    **dict.fromkeys(("smallint", "short"), pa.int16()),
    **dict.fromkeys(("int", "integer"), pa.int32()),
    **dict.fromkeys(("bigint", "long"), pa.int64()),
    **dict.fromkeys(("float", "real"), pa.float32()),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    **dict.fromkeys(("timestamp", "timestamp_ntz"), US),
}


@dataclass(frozen=True)
class Value:
    """An expression, its type, and its value where it is a literal."""

    expression: Any
    dtype: pa.DataType
    literal: Any = _NO

    @property
    def kind(self) -> str:
        return kind_of(self.dtype)

    @property
    def is_literal(self) -> bool:
        return self.literal is not _NO


def kind_of(dtype: pa.DataType) -> str:
    """The family of a type, such as int; types of no family by their own name."""
    kinds = {
        "null": pa.types.is_null,
        "bool": pa.types.is_boolean,
        "int": pa.types.is_integer,
        "float": pa.types.is_floating,
        "decimal": pa.types.is_decimal,
        "string": lambda one: pa.types.is_string(one) or pa.types.is_large_string(one),
        "timestamp": pa.types.is_timestamp,
        "date": pa.types.is_date,
        "duration": pa.types.is_duration,
    }
    return next((name for name, test in kinds.items() if test(dtype)), str(dtype))


def literal(value: Any, dtype: pa.DataType) -> Value:
    """A value that is written out."""
    return Value(pc.scalar(pa.scalar(value, dtype)), dtype, value)


def written(node: Literal) -> Value:
    """A literal of the text, in the type that Spark gives it."""
    kind, value = node.kind, node.value
    if kind == "whole":
        number = int(value)
        fitting = [dtype for dtype in _WHOLE if abs(number) < 1 << (dtype.bit_width - 1)]
        return literal(number, fitting[0]) if fitting else _decimal(value)
    if kind in ("long", "short", "byte"):
        dtype = {"long": pa.int64(), "short": pa.int16(), "byte": pa.int8()}[kind]
        return literal(int(value), dtype)
    if kind in ("double", "float"):
        return literal(float(value), pa.float64() if kind == "double" else pa.float32())
    if kind == "decimal":
        return _decimal(value)
    if kind == "interval":
        if abs(value) > MOST_US:
            raise NotTranslated("an interval of more than 10,000 years is beyond any event time")
        return literal(value, pa.duration("us"))
    if kind in ("date", "timestamp", "timestamp_ntz"):
        return _time(value, pa.date32() if kind == "date" else US)
    plain = {"text": pa.string(), "boolean": pa.bool_(), "null": pa.null()}
    if kind not in plain:
        raise NotTranslated(f"{value!r} is no value")
    return literal(value, plain[kind])


def _decimal(text: str) -> Value:
    number = Decimal(text)
    _, digits, exponent = number.as_tuple()
    scale = max(0, -int(exponent))
    precision = max(len(digits) + max(0, int(exponent)), scale)
    if precision > 38:
        raise NotTranslated(f"{text} has more than 38 digits")
    return literal(number, pa.decimal128(max(precision, 1), scale))


def _time(text: str, dtype: pa.DataType) -> Value:
    """A date or a time as text; only forms that leave nothing open."""
    try:
        found = date.fromisoformat(text.strip()) if dtype == pa.date32() else _moment(text.strip())
    except ValueError as error:
        raise NotTranslated(
            f"{text!r} is no {kind_of(dtype)} such as 2026-01-31 or 2026-01-31 12:00:00"
        ) from error
    return literal(found, dtype)


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is not None:
        raise ValueError(text)
    return found


def cast(operand: Value, wanted: tuple[str, ...]) -> Value:
    """A value in another type, where Arrow and Spark agree on how."""
    name = wanted[0]
    if name in ("decimal", "numeric", "dec"):
        numbers = [int(one) for one in wanted[1:] if one.isdigit()] or [10]
        dtype = pa.decimal128(numbers[0], numbers[1] if len(numbers) > 1 else 0)
    elif name in _TYPES and len(wanted) == 1:
        dtype = _TYPES[name]
    else:
        raise NotTranslated(f"the type {name} is not known here")
    if operand.kind == "null":
        return literal(None, dtype)
    if operand.is_literal and operand.kind == "string" and kind_of(dtype) in ("timestamp", "date"):
        return _time(operand.literal, dtype)
    source, target = operand.kind, kind_of(dtype)
    exact = {
        ("int", "int"),
        ("int", "float"),
        ("float", "float"),
        ("int", "string"),
        ("int", "decimal"),
        ("decimal", "float"),
        ("string", "string"),
    }
    if (source, target) == ("string", "int") or (source, target) == ("string", "float"):
        return Value(pc.utf8_trim_whitespace(operand.expression).cast(dtype), dtype)
    if (source, target) in exact or operand.dtype == dtype:
        return Value(operand.expression.cast(dtype), dtype)
    raise NotTranslated(f"a cast from {operand.dtype} to {name} is not known here")


def alike(left: Value, right: Value) -> tuple[Value, Value]:
    """Both in the type in which Spark compares them."""
    kinds = {left.kind, right.kind}
    if left.kind == right.kind == "timestamp":
        return in_zone(left, right.dtype), in_zone(right, left.dtype)
    if "null" in kinds or left.dtype == right.dtype or kinds in ({"int"}, {"duration"}, {"date"}):
        return left, right
    if kinds <= {"int", "decimal"}:
        return _decimals(left, right)
    if kinds <= {"int", "float", "decimal"}:
        return double(left), double(right)
    if kinds == {"string"}:
        return left, right
    if kinds in ({"string", "timestamp"}, {"string", "date"}):
        return _read_time(left, right.dtype), _read_time(right, left.dtype)
    if kinds == {"date", "timestamp"}:
        return _midnight(left, right.dtype), _midnight(right, left.dtype)
    raise NotTranslated(f"{left.dtype} is compared with {right.dtype}; cast one of them")


_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}  # of whole numbers, by their bits


def _decimals(*operands: Value) -> tuple[Value, Value]:
    """Both as decimals of one type that has room for either; Arrow's own choice may be too narrow."""
    sizes = [
        (_DIGITS[one.dtype.bit_width], 0)
        if one.kind == "int"
        else (one.dtype.precision - one.dtype.scale, one.dtype.scale)
        for one in operands
    ]
    scale = max(size[1] for size in sizes)
    precision = max(size[0] for size in sizes) + scale
    if precision > 38:
        raise NotTranslated("a comparison needs a decimal of more than 38 digits; cast one side to double")
    dtype = pa.decimal128(precision, scale)
    left, right = (Value(one.expression.cast(dtype), dtype, one.literal) for one in operands)
    return left, right


def double(operand: Value) -> Value:
    """A number as a double."""
    if operand.is_literal:
        return literal(None if operand.literal is None else float(operand.literal), pa.float64())
    return Value(operand.expression.cast(pa.float64()), pa.float64())


def in_zone(operand: Value, other: pa.DataType) -> Value:
    """A time that is written out, in the time zone of what it is compared with."""
    if (operand.dtype.tz is None) == (other.tz is None):
        return operand
    if operand.is_literal and other.tz is not None:
        if operand.literal is None:
            return literal(None, other)
        moment = pc.assume_timezone(pa.scalar(operand.literal, US), other.tz, ambiguous="earliest")
        return Value(pc.scalar(moment), moment.type, operand.literal)
    if not operand.is_literal and other.tz is None:
        return operand  # the other one is brought to this zone, if it is written out
    raise NotTranslated("a time with a time zone is compared with one without; cast one of them")


def _read_time(operand: Value, other: pa.DataType) -> Value:
    if operand.kind != "string":
        return operand
    if not operand.is_literal or operand.literal is None:
        raise NotTranslated(f"text is compared with {other}; cast one of them")
    if kind_of(other) == "date":
        return _time(operand.literal, pa.date32())
    return in_zone(_time(operand.literal, US), other)


def _midnight(operand: Value, other: pa.DataType) -> Value:
    if operand.kind != "date":
        return operand
    if operand.is_literal and operand.literal is not None:
        day = operand.literal
        return in_zone(literal(datetime(day.year, day.month, day.day), US), other)  # noqa: DTZ001
    if other.tz is None:
        return Value(operand.expression.cast(US), US)
    raise NotTranslated("a date is compared with a time of a time zone; cast one of them")
