"""The four properties of group by on conforming streams: final rows equal the batch group by of the
batch join, whatever the cut into batches, the interleaving of the inputs, and the crashes.

Streams are those of `tests.join.test_properties`; groups are made by the key and the first input's x, with
every function that its type allows on every input's x. A failing example is printed as a script.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import currently_in_test_context, given, note, settings

from streamjoin.join.aggregates import FUNCTIONS
from streamjoin.join.outputs import FinishedKeys, Results
from streamjoin.plan.group_by import grouped
from tests.groups import aggregate
from tests.join.test_properties import CHOICES, COUNTS, SEEDS, cut, finds, interleaved, moderate
from tests.simulation import bugs
from tests.simulation.generate import Streams, conforming
from tests.simulation.naive import batch_join
from tests.simulation.play import NAMES, TYPES, Emitted, Player, key_names, normal
from tests.simulation.script import Restart, Row, Script, Settings

Bag = Counter[tuple[Any, ...]]


class GroupPlayer(Player):
    """A script's join, grouped."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.plan = grouped(self.plan, [*self.plan.spec.key_names, x_names(script)[0]], asked(script))
        self.run = self._start(None)

    def _collect(self, run: Any, emitted: Emitted) -> None:
        for output in run.emitted:
            if isinstance(output, Results):
                emitted.events += [("row", plainly(row)) for row in output.rows.to_pylist()]
            elif isinstance(output, FinishedKeys):
                keys = zip(*(column.to_pylist() for column in output.keys.keys), strict=True)
                emitted.events += [("over", normal(key)) for key in keys]


def x_names(script: Script) -> list[str]:
    if script.settings.forgets_matched:
        return ["x"]
    return [f"{NAMES[i]}_x" for i in range(len(script.inputs))]


def asked(script: Script) -> dict[str, tuple[str, ...]]:
    """Every function on every x that it takes; first and last where all rows have times; the last x decides
    where a column does.
    """
    timed = all(one.time is not None for one in script.inputs)
    names = x_names(script)
    return {"n": ("*", "count")} | {
        f"{function}_{name}": (name, function, *names[-1:][: kind.ordered])
        for name, one in zip(names, script.inputs, strict=False)
        for function, kind in FUNCTIONS.items()
        if kind.takes(TYPES[one.x]) and (timed or not kind.timed)
    }


def plainly(row: dict[str, Any]) -> tuple[Any, ...]:
    """A row that can be compared and counted."""
    return tuple((name, normal(value if isinstance(value, list) else [value])) for name, value in row.items())


def answer(script: Script) -> list[Bag]:
    """The final rows of each operation; at the end nothing is held."""
    if currently_in_test_context():
        note(script.source())
    player, found = GroupPlayer(script), []
    for operation in script.operations:
        emitted = player.do(operation)
        found.append(Counter(event[1] for event in emitted.events if event[0] == "row"))
    assert player.run.state().groups == 0
    return found


def total(bags: Iterable[Bag]) -> Bag:
    return sum(bags, Counter())


def expected(streams: Streams) -> Bag:
    """Grouped in plain Python, from the batch join."""
    script = Script(streams.inputs, streams.settings, ())
    data = [
        [each.what for each in elements if isinstance(each.what, Row) and not (marked and each.what.flag)]
        for marked, elements in zip(
            [one.punctuation == "marked" for one in streams.inputs], streams.elements, strict=True
        )
    ]
    by_id = {row.id: row for rows in data for row in rows}
    groups: dict[tuple[Any, ...], list[list[Row | None]]] = {}
    for ids in batch_join(streams.inputs, streams.settings, data).elements():
        parts = [None if one is None else by_id[one] for one in ids]
        key = next(part.key for part in parts if part is not None)
        x = None if parts[0] is None else parts[0].x
        groups.setdefault((normal(key), normal([x])), []).append(parts)
    return Counter(
        final_row(script, next(part for part in members[0] if part).key, members)
        for members in groups.values()
    )


def values_of(members: list[list[Row | None]], number: int) -> list[Any]:
    """The x of one input in every row of a group."""
    parts = [each[number] for each in members]
    return [None if part is None else part.x for part in parts]


def final_row(script: Script, key: tuple[Any, ...], members: list[list[Row | None]]) -> tuple[Any, ...]:
    names = x_names(script)
    first = members[0][0]
    row = dict(zip(key_names(0, len(key)), key, strict=True))
    row[names[0]] = None if first is None else first.x
    times = [max(part.t or 0 for part in parts if part) for parts in members]
    for name, (column, function, *by) in asked(script).items():
        if column == "*":
            row[name] = len(members)
            continue
        values, order = values_of(members, names.index(column)), times
        if by:
            order = values_of(members, names.index(by[0]))
        row[name] = aggregate(function, values, order)
    return plainly(row)


# The properties


def equals_the_batch_answer(streams: Streams, one: list[int], other: list[int]) -> None:
    script = Script(streams.inputs, streams.settings, tuple(cut(interleaved(streams, one), other)))
    assert total(answer(script)) == expected(streams)


def unchanged_by_cutting(streams: Streams, one: list[int], other: list[int]) -> None:
    order = interleaved(streams, one)
    plain = Settings(unit=streams.settings.unit, how=streams.settings.how, where=streams.settings.where)
    whole = Script(streams.inputs, plain, tuple(cut(order, [8])))
    pieces = Script(streams.inputs, streams.settings, tuple(cut(order, other)))
    assert total(answer(whole)) == total(answer(pieces))


def unchanged_by_interleaving(streams: Streams, one: list[int], other: list[int]) -> None:
    in_turn = Script(streams.inputs, streams.settings, tuple(cut(interleaved(streams, [0]), one)))
    mixed = Script(streams.inputs, streams.settings, tuple(cut(interleaved(streams, other), one)))
    assert total(answer(in_turn)) == total(answer(mixed))


def unchanged_by_a_crash(streams: Streams, one: list[int], other: list[int]) -> None:
    operations = cut(interleaved(streams, one), [3])
    calm = answer(Script(streams.inputs, streams.settings, tuple(operations)))
    everywhere = [each for operation in operations for each in (operation, Restart())]
    assert answer(Script(streams.inputs, streams.settings, tuple(everywhere)))[::2] == calm


PROPERTIES: list[Callable[[Streams, list[int], list[int]], None]] = [
    equals_the_batch_answer,
    unchanged_by_cutting,
    unchanged_by_interleaving,
    unchanged_by_a_crash,
]


def groupable(seed: int, count: int) -> Streams:
    streams = conforming(seed, count)
    return streams._replace(settings=replace(streams.settings, propagate=True))


@COUNTS
@pytest.mark.parametrize("holds", PROPERTIES, ids=lambda each: each.__name__)
@settings(moderate, max_examples=9)
@given(seed=SEEDS, one=CHOICES, other=CHOICES)
def test_property(
    count: int, holds: Callable[..., None], seed: int, one: list[int], other: list[int]
) -> None:
    note(f"groupable({seed}, {count})")
    holds(groupable(seed, count), one, other)


# Each property was seen to fail


@pytest.mark.parametrize(
    ("holds", "bug"),
    [
        (equals_the_batch_answer, bugs.groups_without_tuples_are_not_found_by_ranges),
        (unchanged_by_cutting, bugs.the_first_partial_row_of_a_group_wins),
        (unchanged_by_interleaving, bugs.the_first_partial_row_of_a_group_wins),
        (unchanged_by_a_crash, bugs.a_snapshot_has_no_groups),
    ],
    ids=[each.__name__ for each in PROPERTIES],
)
def test_property_fails_on_a_bug_planted_for_it(holds: Callable[..., None], bug: bugs.Plant) -> None:
    finds(holds, bug, groupable, count=2)
