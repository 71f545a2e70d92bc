"""Group by over a join: checks the aggregates, and whether a group's row is ever final.

A group's row is emitted when its key is finished: every input has closed it, or one that has closed it
stores no tuple of it that could still join (and in outer and anti joins every preserved input has closed
it). So some input must close keys whose own tuples are evicted too, by its window or because all other
inputs close keys. Where none does, rows are emitted only when the inputs end, which live streams do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from streamjoin.errors import InvalidJoin
from streamjoin.join.aggregates import ALL_ROWS, FUNCTIONS, Accumulator
from streamjoin.join.group_spec import Aggregate, Grouping
from streamjoin.join.spec import JoinSpec
from streamjoin.join.strategies.purge import NoPurge
from streamjoin.plan.bounds import closes_keys
from streamjoin.plan.planner import Plan


def grouped(plan: Plan, columns: Sequence[Any], aggregates: Mapping[str, Any]) -> Plan:
    """The plan of a join whose groups leave instead of its rows."""
    _check_join(plan)
    _check_columns(plan.spec, columns)
    if not aggregates:
        raise InvalidJoin('agg() has no aggregates; give one such as agg(n=("*", "count"))')
    grouping = Grouping(
        plan.spec.output,
        tuple(plan.spec.key_names),
        tuple(columns),
        tuple(_aggregate(plan.spec, columns, name, asked) for name, asked in aggregates.items()),
    )
    if any(one.accumulator.timed for one in grouping.aggregates):
        _check_times(plan.spec)
    return replace(plan, spec=replace(plan.spec, grouping=grouping))


def sparks_names(functions: Mapping[str, str] | None) -> dict[str, tuple[str, str]]:
    """Aggregates that are a function of each column, under the names that Spark gives them.

    >>> sparks_names({"price": "max", "*": "count"})
    {'max(price)': ('price', 'max'), 'count(1)': ('*', 'count')}
    """
    if not isinstance(functions, Mapping | None):
        raise InvalidJoin(f'agg({functions!r}); give aggregates by name, as in agg(n=("*", "count"))')
    return {
        f"{function}({'1' if column == ALL_ROWS else column})": (column, function)
        for column, function in (functions or {}).items()
    }


def number_columns(plan: Plan, function: str) -> list[str]:
    """The columns of a joined row that are numbers, group columns too, as in Spark."""
    found = [field.name for field in plan.spec.output if _is_number(field.type)]
    if not found:
        raise InvalidJoin(f"{function}(): the join has no column that is a number; name the columns")
    return found


def _is_number(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype))


def _check_join(plan: Plan) -> None:
    if plan.spec.grouping is not None:
        raise InvalidJoin("this join is grouped already; call group_by on the join itself")
    if plan.filter_on_spark is not None:
        raise InvalidJoin(
            f"where={plan.filter_on_spark!r} can be tested by Spark only, on rows that leave, and group_by "
            'adds them up before; give a pyarrow expression such as pc.field("price") > 10, or simpler SQL'
        )
    if not plan.spec.propagate:
        raise InvalidJoin(
            "propagate=False propagates no finished keys, but group_by gives a row when its key is finished; "
            "leave propagate out"
        )
    keeping = [plan.streams[i].name for i in plan.spec.how.preserved if _keeps(plan, i)]
    if keeping:
        raise InvalidJoin(
            f'on_violation="keep" on {", ".join(keeping)}: in a {plan.spec.how.name} join such rows leave '
            'padded also when their group has left; declare on_violation="drop" or "fail" there'
        )


def _keeps(plan: Plan, number: int) -> bool:
    return plan.spec.inputs[number].on_violation == "keep"


def _check_columns(spec: JoinSpec, columns: Sequence[Any]) -> None:
    known = spec.output.names
    for name in columns:
        if not isinstance(name, str) or name not in known:
            raise InvalidJoin(f"group_by: the join has no column {name!r}; it has {', '.join(known)}")
    if len(set(columns)) < len(columns):
        raise InvalidJoin(f"group_by({', '.join(columns)}) names a column twice; name each once")
    missing = [name for name in spec.key_names if name not in columns]
    if missing:
        raise InvalidJoin(
            f"group_by({', '.join(columns)}) leaves out {', '.join(missing)}: only of the join's keys is it "
            f"known that they are finished; add {', '.join(missing)}, and add such groups up afterwards"
        )
    for name in columns:
        dtype = spec.output.field(name).type
        if name not in spec.key_names and not Accumulator.takes(dtype):
            raise InvalidJoin(f"group_by: {name} is of type {dtype}; group by columns of simple types")


def _aggregate(spec: JoinSpec, columns: Sequence[str], name: str, asked: Any) -> Aggregate:
    if not (isinstance(asked, tuple) and len(asked) in (2, 3) and all(isinstance(one, str) for one in asked)):
        raise InvalidJoin(f'{name}={asked!r}; give a column and a function, such as ("price", "sum")')
    column, function, *by = asked
    if name in columns:
        raise InvalidJoin(f"{name} is a group column and an aggregate; give the aggregate another name")
    if function not in FUNCTIONS:
        raise InvalidJoin(f"{name}: no function {function!r}; give one of {', '.join(FUNCTIONS)}")
    if FUNCTIONS[function].ordered != bool(by):
        given = f"{function} takes no second column; give {(column, function)!r}"
        if not by:
            given = f'{function} needs the column that decides; give ({column!r}, {function!r}, "price")'
        raise InvalidJoin(f"{name}: {given}")
    if (column, function) != (ALL_ROWS, "count"):
        _check_aggregated(spec, name, column, function)
    if by:
        _check_aggregated(spec, name, by[0], function)
    return Aggregate.of(spec.output, name, column, function, *by)


def _check_aggregated(spec: JoinSpec, name: str, column: str, function: str) -> None:
    """Whether the joined row has the column, and the function a meaning for its type."""
    if column not in spec.output.names:
        if column == ALL_ROWS:
            raise InvalidJoin(f'{name}: there is no {function} of "*"; give a column, or ("*", "count")')
        known = ", ".join(spec.output.names)
        raise InvalidJoin(f"{name}: the join has no column {column!r}; it has {known}")
    dtype = spec.output.field(column).type
    if FUNCTIONS[function].takes(dtype):
        return
    fitting = [known for known, kind in FUNCTIONS.items() if kind.takes(dtype)]
    instead = "; or take sum and count and divide" if function == "avg" and "sum" in fitting else ""
    raise InvalidJoin(
        f"{name}: {column} is of type {dtype}, of which there is no {function}; there is "
        f"{', '.join(fitting)}, or cast {column} before it is joined{instead}"
    )


def _check_times(spec: JoinSpec) -> None:
    """Every kind of result row needs a component with a time."""
    timed = [one.layout.timed for one in spec.inputs]
    alone = (0,) if spec.how.first_match else spec.how.preserved
    lacking = " and ".join(spec.inputs[i].name for i in alone if not timed[i])
    if not any(timed):
        lacking = lacking or " or ".join(one.name for one in spec.inputs)
    if lacking:
        raise InvalidJoin(f"first and last go by event time: declare time= on {lacking}")


def never_final(plan: Plan) -> str | None:
    """Why no group's row leaves before the inputs end, and what to declare; None where rows do leave."""
    if plan.spec.grouping is None:
        return None
    why = "a group's row leaves when its key is finished, and here no key ever is before the inputs end: "
    if isinstance(plan.spec.strategies.purge, NoPurge):
        return f"{why}purge='none' applies no punctuation; choose another purge= or operator="
    closing = [closes_keys(stream) is not None for stream in plan.streams]
    names = [stream.name for stream in plan.streams]
    waited_for = [names[i] for i in plan.spec.how.preserved if not closing[i]]
    if not waited_for:
        if any(closes and bound.tuples for closes, bound in zip(closing, plan.bounds, strict=True)):
            return None
        waited_for = [name for name, closes in zip(names, closing, strict=True) if not closes]
    return f"{why}declare punctuation=, arrival= or unique=True on {' and '.join(waited_for)}"


def about_groups(plan: Plan) -> list[str]:
    """What `explain()` says of them."""
    if plan.spec.grouping is None:
        return []
    reason = never_final(plan)
    leaves = "a row leaves in the batch in which its key is finished; until then its partial row is state"
    return [f"by {plan.spec.grouping.text}", leaves if reason is None else reason]
