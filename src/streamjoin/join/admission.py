"""Admission: which arriving rows take part, and which break what was declared.

One reason per row, the first that applies: null_time, late, duplicate_key, after_punctuation. A
violation is counted; then, as declared, the row goes to the violations output ("drop"), takes
part all the same ("keep"), or the join fails ("fail"). A punctuation that names no key (null_punctuation)
closes nothing, so it cannot be kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from streamjoin.columnar.batch import NO_TIME, Batch, Ints, Mask
from streamjoin.columnar.keys import equal_at
from streamjoin.errors import BadInput, PunctuationViolated
from streamjoin.join.arrivals import Arrivals, Positions
from streamjoin.join.spec import InputSpec
from streamjoin.state.closed_keys import ClosedKeys

Reason = Literal["late", "after_punctuation", "duplicate_key", "null_time", "null_punctuation"]
REASONS: tuple[Reason, ...] = ("null_time", "late", "duplicate_key", "after_punctuation")


@dataclass(frozen=True, slots=True)
class Violation:
    """Rows of one input that broke what was declared of it, all for one reason."""

    input: int
    reason: Reason
    rows: Batch
    kept: bool


@dataclass(frozen=True, slots=True)
class Admitted:
    """Rows that take part, in arrival order, with their positions if known; and the violations."""

    rows: Batch
    at: Positions | None
    violations: list[Violation]


def admit(
    number: int, spec: InputSpec, arrivals: Arrivals, closed_keys: ClosedKeys, *, late_before: int | None
) -> Admitted:
    """Sort out one input's rows of one batch.

    `late_before` is the input's watermark where lateness counts (exclusive: a row at it is in
    time). Of two rows of a unique key the first by position stays; without positions the one
    with the earlier time, then the smaller row.
    """
    rows = arrivals.rows
    nameless = _null_punctuations(number, spec, arrivals)
    if len(rows) == 0:
        return Admitted(rows, arrivals.rows_at, nameless)
    reasons: dict[Reason, Mask] = {}
    free: Mask = np.ones(len(rows), np.bool_)
    kept = {reason for reason in REASONS if spec.on_violation == "keep"}
    if late_before is not None:
        kept.discard("null_time")  # no window can be tested without a time

    def blame(reason: Reason, mask: Mask) -> None:
        nonlocal free
        mask = mask & free
        if mask.any():
            reasons[reason] = mask | reasons[reason] if reason in reasons else mask
            free = free & ~mask

    if rows.layout.timed:
        blame("null_time", rows.time == NO_TIME)
        if late_before is not None:
            blame("late", rows.time < late_before)
    order = None
    if not closed_keys.empty or spec.unique:
        order = rows.sort_order()
        by_key = rows.sorted()
        if spec.unique:
            blame("duplicate_key", _on_rows(closed_keys.seen.contains(by_key), by_key, order))
        blame("after_punctuation", _on_rows(closed_keys.closed_by_punctuation(by_key), by_key, order))
    if spec.partitions == 1:  # else a punctuation counts only once several partitions have sent it
        blame("after_punctuation", arrivals.after_own_punctuation())
    if spec.unique and order is not None:
        taking_part = np.logical_or.reduce([free, *(reasons[reason] for reason in kept & reasons.keys())])
        blame("duplicate_key", _repeats(rows, order, taking_part, arrivals.rows_at))
    if not reasons:
        return Admitted(rows, arrivals.rows_at, nameless)
    admitted = _apply_policy(number, spec, arrivals, reasons, free, kept)
    return replace(admitted, violations=nameless + admitted.violations)


def _null_punctuations(number: int, spec: InputSpec, arrivals: Arrivals) -> list[Violation]:
    """Punctuations that name no key: violations, whatever else is declared."""
    rows = arrivals.null_punctuations
    if rows is None or len(rows) == 0:
        return []
    if spec.on_violation == "fail":
        raise PunctuationViolated(
            f"stream {spec.name!r}: {len(rows)} punctuation rows of a batch have a null in their key and "
            "close nothing; give them a key, declare on_violation='drop', or null_is_wildcard=True if a null "
            "there stands for every key: then such a row ends the input"
        )
    return [Violation(number, "null_punctuation", rows, kept=False)]


def _on_rows(by_group: Mask, by_key: Batch, order: Ints) -> Mask:
    """Group flags of a sorted batch as row flags in arrival order."""
    mask: Mask = np.zeros(len(by_key), np.bool_)
    mask[order] = np.repeat(by_group, by_key.groups.count)
    return mask


def _repeats(rows: Batch, order: Ints, taking_part: Mask, at: Positions | None) -> Mask:
    """All but the first row of each key, of those that take part."""
    repeats: Mask = np.zeros(len(rows), np.bool_)
    candidates = order[taking_part[order]]
    groups = rows.take(candidates).groups
    for group in np.flatnonzero(groups.count > 1):
        start = groups.start[group]
        members = candidates[start : start + groups.count[group]]
        stays = _first(rows, members, at)
        repeats[members] = True
        repeats[stays] = False
    return repeats


def _first(rows: Batch, members: Ints, at: Positions | None) -> int:
    def rank(row: int) -> tuple[Any, ...]:
        if at is not None:
            return (int(at.partition[row]), int(at.offset[row]))
        time = int(rows.time[row]) if rows.layout.timed else 0
        return (time, [_comparable(column[row].as_py()) for column in rows.payload], row)

    first: int = min(members.tolist(), key=rank)
    return first


def _comparable(value: Any) -> tuple[int, Any]:
    """Any two values of one column in their order, nulls first, NaN last; nested ones by their text."""
    if value is None:
        return (0, 0)
    if isinstance(value, float) and math.isnan(value):
        return (2, 0)
    return (1, repr(value) if isinstance(value, list | dict) else value)


def _apply_policy(
    number: int,
    spec: InputSpec,
    arrivals: Arrivals,
    reasons: dict[Reason, Mask],
    free: Mask,
    kept: set[Reason],
) -> Admitted:
    rows, taking_part = arrivals.rows, free
    violations = []
    for reason in REASONS:
        mask = reasons.get(reason)
        if mask is None:
            continue
        if spec.on_violation == "fail":
            raise _failure(spec, arrivals, int(np.flatnonzero(mask)[0]), reason)
        if reason in kept:
            taking_part = taking_part | mask
        violations.append(Violation(number, reason, rows.where(mask), kept=reason in kept))
    # where no sequence says otherwise, a kept violation must not close its key before the rows beside it
    kept_rows = np.concatenate([np.flatnonzero(free), np.flatnonzero(taking_part & ~free)])
    at = None if arrivals.rows_at is None else arrivals.rows_at.take(kept_rows)
    return Admitted(rows.take(kept_rows), at, violations)


def _failure(spec: InputSpec, arrivals: Arrivals, row: int, reason: Reason) -> Exception:
    rows = arrivals.rows
    key = ", ".join(
        f"{name}={column[row].as_py()!r}" for name, column in zip(spec.columns, rows.keys, strict=False)
    )
    said = {
        "null_time": "has no event time",
        "late": "came later than its declared lateness allows",
        "duplicate_key": "is a second tuple of a key declared unique; the first is "
        + _first_of(arrivals, row),
        "after_punctuation": "came after a punctuation that closed its key, which is "
        + _punctuation_of(arrivals, row),
    }[reason]
    error = BadInput if reason in ("null_time", "late") else PunctuationViolated
    return error(
        f"stream {spec.name!r}: {_place(arrivals.rows_at, row)} ({key}) {said}; correct the stream or its "
        "declaration, or declare on_violation='drop' or 'keep'"
    )


def _place(at: Positions | None, row: int) -> str:
    """Where an element of the batch stands: its offset where that is known."""
    return f"row {row} of the batch" if at is None else f"the row at offset {int(at.offset[row])}"


def _first_of(arrivals: Arrivals, row: int) -> str:
    for other in np.flatnonzero(arrivals.rows.hash == arrivals.rows.hash[row]).tolist():
        if (
            other != row
            and equal_at(arrivals.rows.keys, np.array([other]), arrivals.rows.keys, np.array([row])).all()
        ):
            return _place(arrivals.rows_at, other)
    return "in an earlier batch"


def _punctuation_of(arrivals: Arrivals, row: int) -> str:
    keys = arrivals.keys
    for other in np.flatnonzero(keys.hash == arrivals.rows.hash[row]).tolist():
        same = equal_at(keys.keys, np.array([other]), arrivals.rows.keys, np.array([row])).all()
        if same and arrivals.keys_at is not None:
            return f"at offset {int(arrivals.keys_at.offset[other])}"
    if arrivals.behind is not None and arrivals.behind[row]:
        return "the declared order of arrival"
    return "in an earlier batch"
