"""Violations in explain(): which rows of each input would break a declaration, and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamjoin.declare.stream import Stream
from streamjoin.plan.planner import Plan

_BECOME = {
    "drop": "dropped: counted, logged, emitted as violations",
    "keep": "kept as far as their key is unfinished, counted, emitted as violations",
    "fail": "refused: the join stops",
}


def violations_of(plan: Plan) -> list[dict[str, Any]]:
    """For each input that may have violations: the reasons, what happens, and whether it is preserved."""
    declared = enumerate(plan.streams)
    found = [
        {
            "input": stream.name,
            "reasons": reasons,
            "on_violation": stream.on_violation,
            "preserved": number in plan.spec.how.preserved,
        }
        for number, stream in declared
        if (reasons := _reasons(stream, plan))
    ]
    return found[::-1] if plan.spec.how.reversed else found


def _reasons(stream: Stream, plan: Plan) -> list[str]:
    source = stream.punctuation
    names_keys = source is not None and source.has_own_rows and not source.null_is_wildcard
    by_punctuation = source is not None and stream.uses_punctuations
    possible = {
        "null_time": stream.time is not None and not stream.stamps,
        "late": plan.spec.windowed and stream.time is not None and not stream.stamps,
        "duplicate_key": stream.unique,
        "after_punctuation": by_punctuation or stream.arrival is not None,
        "null_punctuation": names_keys and by_punctuation and not stream.null_safe,
    }
    return [reason for reason, may_come in possible.items() if may_come]


def violation_lines(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """The same in words, one line for each input.

    >>> one = {"input": "a", "reasons": ["late"], "on_violation": "drop", "preserved": True}
    >>> violation_lines([one])
    ['violations of a (late) are dropped: counted, logged, emitted as violations; they are not padded']
    """
    lines = []
    for one in found:
        text = (
            f"violations of {one['input']} ({', '.join(one['reasons'])}) are {_BECOME[one['on_violation']]}"
        )
        lost = one["preserved"] and one["on_violation"] == "drop"
        lines.append(f"{text}; they are not padded" if lost else text)
    return lines
