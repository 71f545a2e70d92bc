"""What `explain()` says of the conditions of a join."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamjoin.plan.planner import Plan


def about_where(plan: Plan) -> dict[str, Any]:
    """The condition, what of it each input's rows are tested for on arrival, and what Spark tests."""
    where = plan.spec.where
    return {
        "where": None if where is None else where.says,
        "where_on_arrival": {
            stream.name: own.text
            for stream, own in zip(plan.streams, () if where is None else where.alone, strict=False)
            if own is not None
        },
        "where_on_spark": plan.filter_on_spark,
        "preserved": [plan.streams[i].name for i in plan.spec.how.preserved],
    }


def where_lines(plan: Mapping[str, Any]) -> list[str]:
    """The same in words."""
    lines = [] if plan["where"] is None else [f"where {plan['where']}"]
    for name, text in plan["where_on_arrival"].items():
        leaves = "leave padded at once" if name in plan["preserved"] else "match nothing"
        lines.append(f"  {name}: rows that fail {text} {leaves} and are not stored ({name}_filtered)")
    if plan["where_on_spark"] is not None:
        lines.append(f"where {plan['where_on_spark']} (tested by Spark, on rows that leave)")
    return lines
