"""Ranges of event time: what conditions on the event times of two inputs say of eviction.

A condition such as `a.t < b.t - interval 5 seconds`, one of those whose AND must hold, bounds the difference
of two event times: t_a - t_b <= -5 s - 1 us. So a tuple of b matches only rows of a that are earlier by
more than 5 seconds, and is useless once a's watermark is past t_b - 5 s - 1 us. A tuple of a stays: rows of b
may be as late as they like. With the condition the other way round too, both are bounded.

`ranges[i][m]` is the greatest t_m - t_i at which a tuple of input i matches one of m; None: any.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction

import pyarrow as pa

from streamjoin.plan.where.expression_tree import Node

Ranges = tuple[tuple[int | None, ...], ...]
_MOST_US = 1 << 61  # beyond it a watermark less a range would not fit 64 bits
_SIGNS = {"less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "equal": "="}
_SUMS = {"add": 1, "add_checked": 1, "subtract": -1, "subtract_checked": -1}
_PER_US = {"s": Fraction(1_000_000), "ms": Fraction(1_000), "us": Fraction(1), "ns": Fraction(1, 1_000)}
Linear = tuple[Counter[str], Fraction]  # a sum of columns, each with its sign, and microseconds


def no_ranges(inputs: int) -> Ranges:
    """Nothing is said of any two inputs."""
    return tuple((None,) * inputs for _ in range(inputs))


def time_ranges(parts: Iterable[Node], times: Mapping[str, int], schema: pa.Schema, inputs: int) -> Ranges:
    """The ranges that conditions whose AND holds give; `times` are the event times, and of which input."""
    found: list[list[int | None]] = [[None] * inputs for _ in range(inputs)]
    slack = 1 if any(schema.field(name).type.unit == "ns" for name in times) else 0  # times are cut to us
    for part in parts:
        for later, earlier, most_us in _differences(part, times):
            i, m = times[earlier], times[later]
            known = found[i][m]
            bound = max(most_us + slack, -_MOST_US)
            if i != m and bound <= _MOST_US and (known is None or bound < known):
                found[i][m] = bound
    return tuple(map(tuple, found))


def _differences(part: Node, times: Mapping[str, int]) -> Iterable[tuple[str, str, int]]:
    """Two columns and the most by which the first is greater than the second, from one comparison."""
    sign = _SIGNS.get(part.name) if part.kind == "call" else None
    if sign is None:
        return
    sides = [_linear(one, times) for one in part.args]
    if len(sides) != 2 or sides[0] is None or sides[1] is None:
        return
    columns, more = _added(sides[0], sides[1], -1)
    signed = sorted(((weight, name) for name, weight in columns.items() if weight), reverse=True)
    if [weight for weight, _ in signed] != [1, -1]:
        return
    (_, plus), (_, minus) = signed
    if sign in ("<", "<=", "="):  # plus - minus + more <= 0
        yield plus, minus, math.ceil(-more) - 1 if sign == "<" else math.floor(-more)
    if sign in (">", ">=", "="):  # minus - plus - more <= 0
        yield minus, plus, math.ceil(more) - 1 if sign == ">" else math.floor(more)


def _linear(node: Node, times: Mapping[str, int]) -> Linear | None:
    if node.kind == "field":
        return (Counter({node.name: 1}), Fraction(0)) if node.name in times else None
    if node.kind == "literal" and pa.types.is_duration(node.value.type) and node.value.is_valid:
        return Counter(), node.value.value * _PER_US[node.value.type.unit]
    if node.kind == "call" and node.name in _SUMS and len(node.args) == 2:
        left, right = (_linear(one, times) for one in node.args)
        return None if left is None or right is None else _added(left, right, _SUMS[node.name])
    return None


def _added(left: Linear, right: Linear, sign: int) -> Linear:
    columns = Counter(left[0])
    for name, weight in right[0].items():
        columns[name] += sign * weight
    return columns, left[1] + sign * right[1]
