"""Aggregates in plain Python, as Spark says they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import localcontext
from typing import Any


def aggregate(function: str, values: Sequence[Any], times: Sequence[Any] = ()) -> Any:
    """What a function makes of the values of one group; `times`, or values of the column that decides, for
    first, last, min_by and max_by only.
    """
    there = [value for value in values if value is not None]
    if function == "count":
        return len(there)
    if function == "collect":
        return sorted(there, key=_order)
    if function in ("first", "last", "min_by", "max_by"):
        extreme = min if function in ("first", "min_by") else max
        counted = [(value, _order(t)) for value, t in zip(values, times, strict=True) if t is not None]
        best = extreme((t for _, t in counted), default=None)
        at = [value for value, t in counted if t == best]
        return extreme((value for value in at if value is not None), key=_order, default=None)
    if not there:
        return None
    if function == "sum":
        return exact_sum(there)
    if function == "avg":
        return exact_sum(there) / len(there)
    return (min if function == "min" else max)(there, key=_order)


def exact_sum(values: Sequence[Any]) -> Any:
    """With as many digits as it takes."""
    with localcontext(prec=100):
        return sum(value for value in values if value is not None)


def _order(value: Any) -> Any:
    """NaN is above all numbers."""
    if isinstance(value, float):
        return math.isnan(value), 0.0 if math.isnan(value) else value
    return value
