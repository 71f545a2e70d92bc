"""SQL conditions as pyarrow expressions with the meaning that Spark gives them.

Three-valued logic as in SQL; NaN equals NaN and is greater than every number; whole numbers divide as
doubles; a sum that does not fit its type stops the join, as in Spark's ANSI mode. One difference: a division
by zero is null, as pyarrow tests all parts of a condition, also where Spark's `b <> 0 and a / b > 2` would
not divide. What would differ in any other way is not translated (`NotTranslated`).

Worked case: `total > 1.5 and not gift` over total: double, gift: bool gives
((total > 1.5) or is_nan(total)) and invert(gift).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamjoin.plan.where.sql_text import Literal, Name, NotTranslated, parse
from streamjoin.plan.where.sql_values import Value, alike, cast, double, in_zone, literal, written

Qualified = Mapping[tuple[str, str], str]
_DAY_US = 86_400_000_000
_UTC = {"UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z", "+00:00", "UCT", "Etc/UCT", "Zulu", "Universal"}
_FUNCTIONS = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def translated(text: str, columns: pa.Schema, qualified: Qualified) -> Any:
    """The pyarrow expression of an SQL condition over these columns.

    `qualified` gives the column of `input.column`.
    """
    found = _Translation(columns, qualified).value(parse(text))
    if found.kind == "null":
        return pc.scalar(pa.scalar(None, pa.bool_()))
    if found.kind != "bool":
        raise NotTranslated(f"it is of type {found.dtype}, not a condition")
    try:
        columns.empty_table().filter(found.expression)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise NotTranslated(str(error).partition("\n")[0]) from error
    return found.expression


class _Translation:
    """One condition; a method for each kind of operator."""

    def __init__(self, columns: pa.Schema, qualified: Qualified) -> None:
        self._columns = columns
        self._qualified = qualified
        self._calls: dict[str, Callable[..., Value]] = {
            "and": lambda a, b: self._logic(a, b, pc.and_kleene),
            "or": lambda a, b: self._logic(a, b, pc.or_kleene),
            "not": lambda a: Value(pc.invert(_condition(a).expression), pa.bool_()),
            "is null": lambda a: Value(_is_null(a), pa.bool_()),
            "is true": lambda a: Value(_surely(_condition(a)), pa.bool_()),
            "is false": lambda a: Value(_surely(self._calls["not"](a)), pa.bool_()),
            "<=>": _same,
            "in": _in,
            "like": _like,
            "minus": _minus,
            "||": _joined,
            "coalesce()": _coalesce,
            "ifnull()": _coalesce,
            "nvl()": _coalesce,
            "abs()": _abs,
            "isnull()": lambda a: Value(_is_null(a), pa.bool_()),
            "isnotnull()": lambda a: Value(pc.invert(_is_null(a)), pa.bool_()),
            **{sign: _comparison(sign) for sign in _FUNCTIONS},
            **{sign: _arithmetic(sign) for sign in "+-*/%"},
        }

    def value(self, node: Any) -> Value:
        if isinstance(node, Literal):
            return written(node)
        if isinstance(node, Name):
            return self._column(node.parts)
        if node.name == "cast":
            return cast(self.value(node.args[0]), node.args[1].value)
        call = self._calls.get(node.name)
        if call is None:
            raise NotTranslated(f"the function {node.name} is not known here")
        try:
            return call(*map(self.value, node.args))
        except TypeError as error:
            raise NotTranslated(f"{node.name} has {len(node.args)} operands") from error

    def _column(self, parts: tuple[str, ...]) -> Value:
        names = self._columns.names
        if len(parts) == 1:
            name = _lookup(parts[0], names)
            if name is not None:
                return Value(pc.field(name), self._columns.field(name).type)
        if len(parts) == 2:
            key = next((key for key in self._qualified if _folded(key) == _folded(parts)), None)
            if key is not None:
                name = self._qualified[key]
                return Value(pc.field(name), self._columns.field(name).type)
        struct = _lookup(parts[0], names)
        if struct is not None and len(parts) > 1:
            return self._nested(struct, parts[1:])
        raise NotTranslated(f"there is no column {'.'.join(parts)}; there are {', '.join(names)}")

    def _nested(self, struct: str, parts: tuple[str, ...]) -> Value:
        dtype, path = self._columns.field(struct).type, [struct]
        for part in parts:
            names = [one.name for one in dtype] if pa.types.is_struct(dtype) else []
            name = _lookup(part, names)
            if name is None:
                raise NotTranslated(f"{'.'.join(path)} has no field {part}")
            dtype = dtype.field(name).type
            path.append(name)
        return Value(pc.field(*path), dtype)

    @staticmethod
    def _logic(left: Value, right: Value, combine: Any) -> Value:
        return Value(combine(_condition(left).expression, _condition(right).expression), pa.bool_())


def _folded(parts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.casefold() for part in parts)


def _lookup(name: str, names: list[str]) -> str | None:
    """A name as Spark finds it: as written, else whatever its case, if that is one."""
    if name in names:
        return name
    alike = [one for one in names if one.casefold() == name.casefold()]
    return alike[0] if len(alike) == 1 else None


# Conditions


def _condition(operand: Value) -> Value:
    if operand.kind == "null":
        return literal(None, pa.bool_())
    if operand.kind != "bool":
        raise NotTranslated(f"{operand.dtype} stands where a condition should")
    return operand


def _is_null(operand: Value) -> Any:
    return operand.expression.is_null()


def _surely(condition: Value) -> Any:
    """True where it is true, else false, also where it is null."""
    return pc.coalesce(condition.expression, pc.scalar(False))


def _comparison(sign: str) -> Callable[[Value, Value], Value]:
    def compare(left: Value, right: Value) -> Value:
        a, b = alike(left, right)
        if "null" in (a.kind, b.kind):
            return literal(None, pa.bool_())
        return Value(_compared(sign, a, b), pa.bool_())

    return compare


def _compared(sign: str, a: Value, b: Value) -> Any:
    if a.kind != "float":
        return _FUNCTIONS[sign](a.expression, b.expression)
    if sign in (">", ">="):
        return _compared("<" if sign == ">" else "<=", b, a)
    found = _FUNCTIONS[sign](a.expression, b.expression)
    if sign == "<>":
        return pc.invert(_compared("=", a, b))
    if sign == "<=":
        return pc.invert(_compared("<", b, a))
    if sign == "<":  # what is no NaN is less than NaN
        return (
            found if b.is_literal else pc.or_kleene(found, pc.and_kleene(_is_nan(b), pc.invert(_is_nan(a))))
        )
    if a.is_literal or b.is_literal:
        return found
    return pc.or_kleene(found, pc.and_kleene(_is_nan(a), _is_nan(b)))


def _is_nan(operand: Value) -> Any:
    return pc.scalar(False) if operand.is_literal else pc.is_nan(operand.expression)


def _same(left: Value, right: Value) -> Value:
    """Null-safe equality."""
    if "null" in (left.kind, right.kind):
        other = right if left.kind == "null" else left
        return Value(_is_null(other), pa.bool_())
    equal = _comparison("=")(left, right)
    return Value(pc.or_kleene(_surely(equal), pc.and_kleene(_is_null(left), _is_null(right))), pa.bool_())


def _in(operand: Value, *listed: Value) -> Value:
    if not listed:
        raise NotTranslated("IN has an empty list")
    plain = operand.kind not in ("float", "timestamp") and all(
        one.is_literal and one.kind == operand.kind and one.literal is not None for one in listed
    )
    if plain and operand.kind in ("int", "string"):
        dtype = pa.int64() if operand.kind == "int" else operand.dtype
        found = operand.expression.cast(dtype).isin(pa.array([one.literal for one in listed], dtype))
        null = pc.scalar(pa.scalar(None, pa.bool_()))
        return Value(pc.if_else(_is_null(operand), null, found), pa.bool_())
    equal = _comparison("=")
    found = equal(operand, listed[0]).expression
    for one in listed[1:]:
        found = pc.or_kleene(found, equal(operand, one).expression)
    return Value(found, pa.bool_())


def _like(operand: Value, pattern: Value) -> Value:
    if operand.kind != "string" or pattern.kind != "string" or not pattern.is_literal:
        raise NotTranslated("LIKE takes text and a pattern that is written out")
    return Value(pc.match_like(operand.expression, pattern.literal), pa.bool_())


# Numbers and text


def _arithmetic(sign: str) -> Callable[[Value, Value], Value]:
    def compute(left: Value, right: Value) -> Value:
        kinds = {left.kind, right.kind}
        if "null" in kinds:
            other = left if right.kind == "null" else right
            return literal(None, pa.float64() if sign == "/" else other.dtype)
        if kinds & {"timestamp", "duration", "date"}:
            return _time_arithmetic(sign, left, right)
        if not kinds <= {"int", "float", "decimal"}:
            raise NotTranslated(f"{left.dtype} {sign} {right.dtype}")
        if sign == "/":
            return _quotient(left, right)
        if sign == "%":
            return _remainder(left, right)
        if "float" in kinds and left.dtype != right.dtype:
            left, right = double(left), double(right)
        function = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}[sign]
        return _typed(function(left.expression, right.expression), function, left, right)

    return compute


def _typed(expression: Any, function: Any, *operands: Value) -> Value:
    """With the type that the function gives, found on no rows."""
    try:
        empty = [pa.array([], one.dtype) for one in operands]
        return Value(expression, function(*empty).type)
    except pa.ArrowException as error:
        raise NotTranslated(str(error)) from error


def _quotient(left: Value, right: Value) -> Value:
    if "decimal" in (left.kind, right.kind) and "float" not in (left.kind, right.kind):
        raise NotTranslated("decimals are divided; cast one of them to double")
    a, b = double(left), double(right)
    divisor = pc.if_else(pc.equal(b.expression, 0.0), pc.scalar(pa.scalar(None, pa.float64())), b.expression)
    return Value(pc.divide(a.expression, divisor), pa.float64())


def _remainder(left: Value, right: Value) -> Value:
    if (left.kind, right.kind) != ("int", "int"):
        raise NotTranslated("% is known here for whole numbers only")
    wide = pa.int64()
    a, b = left.expression.cast(wide), right.expression.cast(wide)
    divisor = pc.if_else(pc.equal(b, 0), pc.scalar(pa.scalar(None, wide)), b)
    return Value(pc.subtract(a, pc.multiply(pc.divide(a, divisor), divisor)), wide)


def _time_arithmetic(sign: str, left: Value, right: Value) -> Value:
    kinds = left.kind, right.kind
    if kinds == ("duration", "timestamp") and sign == "+":
        return _time_arithmetic(sign, right, left)
    function = {"+": pc.add_checked, "-": pc.subtract_checked}.get(sign)
    if function is None or kinds not in (
        ("timestamp", "duration"),
        ("timestamp", "timestamp"),
        ("duration", "duration"),
    ):
        raise NotTranslated(f"{left.dtype} {sign} {right.dtype}")
    if kinds == ("timestamp", "timestamp"):
        if sign == "+":
            raise NotTranslated("two times are added")
        left, right = in_zone(left, right.dtype), in_zone(right, left.dtype)
        if not _steady(left.dtype):
            raise NotTranslated(
                f"times of the zone {left.dtype.tz} are subtracted, by the clock on the wall as Spark does; "
                "write b <= a + interval …"
            )
    if kinds == ("timestamp", "duration") and not (_short(right) or _steady(left.dtype)):
        raise NotTranslated(f"days are added in the zone {left.dtype.tz}, where they have no fixed length")
    return _typed(function(left.expression, right.expression), function, left, right)


def _short(interval: Value) -> bool:
    return interval.is_literal and interval.literal is not None and abs(interval.literal) < _DAY_US


def _steady(dtype: pa.DataType) -> bool:
    """Whether a day always has 24 hours."""
    return dtype.tz is None or dtype.tz in _UTC or dtype.tz[:1] in "+-"


def _minus(operand: Value) -> Value:
    if operand.kind == "null":
        return operand
    if operand.is_literal and operand.kind in ("int", "float", "decimal", "duration"):
        return literal(-operand.literal, operand.dtype)
    if operand.kind not in ("int", "float", "decimal"):
        raise NotTranslated(f"-{operand.dtype}")
    return Value(pc.negate_checked(operand.expression), operand.dtype)


def _abs(operand: Value) -> Value:
    if operand.kind not in ("int", "float", "decimal"):
        raise NotTranslated(f"abs of {operand.dtype}")
    return Value(pc.abs_checked(operand.expression), operand.dtype)


def _joined(left: Value, right: Value) -> Value:
    if (left.kind, right.kind) != ("string", "string"):
        raise NotTranslated(f"{left.dtype} || {right.dtype}")
    return Value(pc.binary_join_element_wise(left.expression, right.expression, ""), pa.string())


def _coalesce(*operands: Value) -> Value:
    known = [one for one in operands if one.kind != "null"]
    if not known:
        return literal(None, pa.null())
    types = {one.dtype for one in known if not one.is_literal} or {known[0].dtype}
    if len({one.kind for one in known}) > 1 or (len(types) > 1 and known[0].kind != "int"):
        raise NotTranslated("coalesce of several types; cast them to one")
    dtype = max(types, key=lambda one: one.bit_width) if known[0].kind == "int" else types.pop()
    parts = [one.expression.cast(dtype) if one.dtype != dtype else one.expression for one in known]
    return Value(pc.coalesce(*parts), dtype)
