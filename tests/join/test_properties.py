"""The four properties of the operator on conforming streams, for 2 to 6 inputs: it equals the
batch join, whatever the cut into batches, the interleaving of the inputs, and the crashes.

Streams come from a seed (`tests.simulation.generate.conforming`): windows, lateness, idle, unique
keys, clustered and ordered arrival, punctuations of every pattern. Hypothesis chooses the seed, how
the inputs are interleaved and where batches end. A failing example is printed as a script.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, currently_in_test_context, given, note, settings
from hypothesis import strategies as st

from streamjoin.punctuation import Punctuation
from tests.simulation import bugs
from tests.simulation.generate import Element, Streams, conforming
from tests.simulation.naive import batch_join
from tests.simulation.play import Player, speaks_of
from tests.simulation.script import Finish, Operation, Push, Restart, Row, Script, Settings

Bag = Counter[tuple[int, ...]]

moderate = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)
COUNTS = pytest.mark.parametrize("count", [2, 3, 4, 5, 6])
SEEDS = st.integers(0, 2**32 - 1)
CHOICES = st.lists(st.integers(0, 60), min_size=1, max_size=12)


# Streams, interleaved and cut


def interleaved(streams: Streams, choices: Sequence[int]) -> list[tuple[int, Element]]:
    """One order of all elements that keeps each input's own; as far apart as the skew allows."""
    late = itertools.cycle(choices)
    placed = []
    for i, elements in enumerate(streams.elements):
        watermarks = 0
        for number, element in enumerate(elements):
            most = 60 if streams.skew is None else streams.skew
            watermarks = max(watermarks, element.clock + next(late) % (most + 1))
            placed.append((watermarks, i, number, element))
    return [(i, element) for _, i, _, element in sorted(placed, key=lambda each: each[:3])]


def cut(order: Iterable[tuple[int, Element]], choices: Sequence[int]) -> list[Operation]:
    """Batches: rows that follow each other come together, a few at a time, on all inputs at once."""
    sizes = itertools.cycle(1 + choice % 9 for choice in choices)
    operations: list[Operation] = []
    rows: dict[int, list[Row]] = {}
    left = next(sizes)

    def flush() -> None:
        if rows:
            operations.append(Push({i: tuple(each) for i, each in rows.items()}))
            rows.clear()

    for i, element in order:
        if isinstance(element.what, Row):
            rows.setdefault(i, []).append(element.what)
            left -= 1
        if left <= 0 or not isinstance(element.what, Row):
            flush()
            left = next(sizes)
        if not isinstance(element.what, Row):
            operations.append(element.what)
    flush()
    return [*operations, Finish()]


def answer(script: Script) -> list[Bag]:
    """Ids of the result rows of each operation; on conforming streams nothing is a violation."""
    if currently_in_test_context():
        note(script.source())
    player, found = Player(script), []
    over: set[object] = set()
    wide: list[Punctuation] = []
    for operation in script.operations:
        emitted = player.do(operation)
        assert emitted.violations == []
        found.append(Counter(event[2] for event in emitted.events if event[0] == "row"))
        for event in emitted.events:
            if event[0] == "over":
                over.add(event[1])
            elif event[0] == "wide":
                wide.append(event[1])
            else:
                said = [one for one in wide if speaks_of(one, event[1])]
                assert event[1] not in over, f"a result after {event[1]} was over"
                assert not said, f"a result of {event[1]} after {said}"
    assert not any(player.run.state().rows.values())
    return found


def total(bags: Iterable[Bag]) -> Bag:
    return sum(bags, Counter())


def expected(streams: Streams) -> Bag:
    data = [
        [
            element.what
            for element in elements
            if isinstance(element.what, Row) and not (one.punctuation == "marked" and element.what.flag)
        ]
        for one, elements in zip(streams.inputs, streams.elements, strict=True)
    ]
    return batch_join(streams.inputs, streams.settings, data)


# The properties


def equals_the_batch_join(streams: Streams, one: list[int], other: list[int]) -> None:
    script = Script(streams.inputs, streams.settings, tuple(cut(interleaved(streams, one), other)))
    assert total(answer(script)) == expected(streams)


def unchanged_by_cutting(streams: Streams, one: list[int], other: list[int]) -> None:
    order = interleaved(streams, one)
    plain = Settings(unit=streams.settings.unit, how=streams.settings.how, where=streams.settings.where)
    whole = Script(streams.inputs, plain, tuple(cut(order, [8])))
    pieces = Script(streams.inputs, streams.settings, tuple(cut(order, other)))
    single = Script(streams.inputs, streams.settings, tuple(cut(order, [0])))
    assert total(answer(whole)) == total(answer(pieces)) == total(answer(single))


def unchanged_by_interleaving(streams: Streams, one: list[int], other: list[int]) -> None:
    in_turn = Script(streams.inputs, streams.settings, tuple(cut(interleaved(streams, [0]), one)))
    mixed = Script(streams.inputs, streams.settings, tuple(cut(interleaved(streams, other), one)))
    assert total(answer(in_turn)) == total(answer(mixed))


def unchanged_by_a_crash(streams: Streams, one: list[int], other: list[int]) -> None:
    operations = cut(interleaved(streams, one), [3])
    calm = answer(Script(streams.inputs, streams.settings, tuple(operations)))
    everywhere = [each for operation in operations for each in (operation, Restart())]
    always = answer(Script(streams.inputs, streams.settings, tuple(everywhere)))
    at = other[0] % len(operations)
    once = [*operations[:at], Restart(), *operations[at:]]
    crashed = answer(Script(streams.inputs, streams.settings, tuple(once)))
    if streams.settings.defer:  # a restart may change what is in memory, and so when a result leaves
        assert total(always) == total(crashed) == total(calm)
    else:
        assert always[::2] == crashed[:at] + crashed[at + 1 :] == calm


PROPERTIES: list[Callable[[Streams, list[int], list[int]], None]] = [
    equals_the_batch_join,
    unchanged_by_cutting,
    unchanged_by_interleaving,
    unchanged_by_a_crash,
]


@COUNTS
@pytest.mark.parametrize("holds", PROPERTIES, ids=lambda each: each.__name__)
@moderate
@given(seed=SEEDS, one=CHOICES, other=CHOICES)
def test_property(
    count: int, holds: Callable[..., None], seed: int, one: list[int], other: list[int]
) -> None:
    note(f"conforming({seed}, {count})")
    holds(conforming(seed, count), one, other)


def deferring(seed: int, count: int) -> Streams:
    """Streams of an inner join in which joining with what left memory waits."""
    streams = conforming(seed, count)
    memory = Random(seed).choice((1, 200, 600))
    return streams._replace(settings=replace(streams.settings, how="inner", memory=memory, defer=True))


@COUNTS
@pytest.mark.parametrize("holds", PROPERTIES, ids=lambda each: each.__name__)
@settings(moderate, max_examples=5)
@given(seed=SEEDS, one=CHOICES, other=CHOICES)
def test_property_where_joining_waits(
    count: int, holds: Callable[..., None], seed: int, one: list[int], other: list[int]
) -> None:
    note(f"deferring({seed}, {count})")
    holds(deferring(seed, count), one, other)


# Each property was seen to fail


@pytest.mark.parametrize(
    ("holds", "bug"),
    [
        (equals_the_batch_join, bugs.window_bound_is_exclusive),
        (unchanged_by_cutting, bugs.lateness_is_ignored),
        (unchanged_by_interleaving, bugs.purge_when_one_input_is_closed),
        (unchanged_by_a_crash, bugs.snapshot_loses_the_newest_tier),
    ],
    ids=[each.__name__ for each in PROPERTIES],
)
def test_property_fails_on_a_bug_planted_for_it(holds: Callable[..., None], bug: bugs.Plant) -> None:
    finds(holds, bug, conforming)


@pytest.mark.parametrize(
    "bug",
    [
        bugs.matches_that_were_made_are_made_again,
        bugs.a_purge_does_not_wait_for_deferred_matches,
        bugs.a_watermark_does_not_wait_for_deferred_matches,
        bugs.rows_with_deferred_matches_are_dropped,
    ],
    ids=lambda each: each.__name__,
)
def test_a_bug_where_joining_waits_is_found(bug: bugs.Plant) -> None:
    finds(equals_the_batch_join, bug, deferring)


def finds(
    holds: Callable[..., None], bug: bugs.Plant, made: Callable[[int, int], Streams], count: int = 3
) -> None:
    """A property that holds fails with a bug, on one of 300 seeds."""
    for seed in range(300):
        rng = Random(seed)
        one, other = [[rng.randint(0, 60) for _ in range(12)] for _ in range(2)]
        streams = made(seed, count)
        try:
            with bug():
                holds(streams, one, other)
        except AssertionError as failed:
            print(f"{holds.__name__} fails on {bug.__name__}, seed {seed}: {failed}")
            holds(streams, one, other)  # and holds without it
            return
    pytest.fail(f"{holds.__name__} held on 300 seeds with the bug {bug.__name__}")
