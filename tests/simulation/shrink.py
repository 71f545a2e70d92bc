"""A failing script made small: greedily leave out operations, rows, inputs and declarations while
the same check still fails. Every candidate is run, so what is left is a script that repeats it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace

from tests.simulation.checks import Failed, verdict
from tests.simulation.script import Control, Input, Operation, Push, Row, Script, Settings

Verdict = Callable[[Script], Failed | None]


def shrink(script: Script, judge: Verdict = verdict, *, tries: int = 2000) -> tuple[Script, Failed]:
    """The smallest script found, and how it fails."""
    failed = judge(script)
    if failed is None:
        raise ValueError("this script does not fail; give one that does")
    while True:
        for candidate in _smaller(script):
            tries -= 1
            found = judge(candidate) if tries > 0 else None
            if found is not None and found.check == failed.check and _makes_sense(found):
                script, failed = candidate, found
                break
        else:
            return script, failed


def _makes_sense(failed: Failed) -> bool:
    """A declaration that became invalid is no failure."""
    return "InvalidJoin" not in str(failed) and "BadInput" not in str(failed)


def _smaller(script: Script) -> Iterator[Script]:
    yield from _fewer_operations(script)
    yield from _fewer_inputs(script)
    yield from _fewer_rows(script)
    yield from _fewer_declarations(script)
    yield from _plainer_rows(script)


def _fewer_operations(script: Script) -> Iterator[Script]:
    ops = script.operations
    size = len(ops) // 2
    while size:
        for start in range(0, len(ops), size):
            yield replace(script, operations=ops[:start] + ops[start + size :])
        size //= 2


def _fewer_inputs(script: Script) -> Iterator[Script]:
    if len(script.inputs) == 2:
        return
    for gone in range(len(script.inputs)):
        kept = [one for i, one in enumerate(script.inputs) if i != gone]
        moved = [op for op in (_without_input(op, gone) for op in script.operations) if op is not None]
        yield replace(script, inputs=tuple(kept), operations=tuple(moved))


def _without_input(operation: Operation, gone: int) -> Operation | None:
    if isinstance(operation, Push):
        return Push({i - (i > gone): rows for i, rows in operation.rows.items() if i != gone})
    number = getattr(operation, "input", None)
    if number is None:
        return operation
    return None if number == gone else operation._replace(input=number - (number > gone))  # type: ignore[call-arg]


def _fewer_rows(script: Script) -> Iterator[Script]:
    for at, op in enumerate(script.operations):
        if isinstance(op, Control):
            for row in range(len(op.punctuations)):
                yield _with(
                    script, at, op._replace(punctuations=op.punctuations[:row] + op.punctuations[row + 1 :])
                )
        if not isinstance(op, Push):
            continue
        if len(op.rows) > 1:
            for i in op.rows:
                yield _with(script, at, Push({m: rows for m, rows in op.rows.items() if m != i}))
        for i, rows in op.rows.items():
            for row in range(len(rows)):
                yield _with(script, at, Push({**op.rows, i: rows[:row] + rows[row + 1 :]}))


def _with(script: Script, at: int, operation: Operation) -> Script:
    ops = script.operations
    return replace(script, operations=(*ops[:at], operation, *ops[at + 1 :]))


def _fewer_declarations(script: Script) -> Iterator[Script]:
    for one in fields(Settings):
        if getattr(script.settings, one.name) != one.default:
            yield replace(script, settings=replace(script.settings, **{one.name: one.default}))
    for i, declared in enumerate(script.inputs):
        for one in fields(Input):
            if one.name == "types" or getattr(declared, one.name) == one.default:
                continue
            if one.name == "x" and any(row.x is not None for row in _rows(script, i)):
                continue
            plainer = replace(declared, **{one.name: one.default})
            yield replace(script, inputs=(*script.inputs[:i], plainer, *script.inputs[i + 1 :]))


def _rows(script: Script, number: int) -> Iterator[Row]:
    for op in script.operations:
        if isinstance(op, Push):
            yield from op.rows.get(number, ())


def _plainer_rows(script: Script) -> Iterator[Script]:
    for at, op in enumerate(script.operations):
        if not isinstance(op, Push):
            continue
        for i, rows in op.rows.items():
            for n, row in enumerate(rows):
                for plainer in (row._replace(x=None), row._replace(flag=False), row._replace(partition=0)):
                    if plainer != row:
                        yield _with(script, at, Push({**op.rows, i: (*rows[:n], plainer, *rows[n + 1 :])}))
