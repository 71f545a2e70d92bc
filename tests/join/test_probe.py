"""What a probe does only where it pays: look up the keys that are left, search times instead of trying them.

Small examples never make it pay, so here it is done always.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, note, settings

from streamjoin.columnar.window import TimeOrder
from streamjoin.join import probe
from streamjoin.join.probe import Probe
from tests.join.test_properties import CHOICES, SEEDS, equals_the_batch_join, finds, moderate
from tests.simulation.generate import Streams, conforming


@pytest.fixture(autouse=True, scope="module")
def always() -> Iterator[None]:
    with patch.object(probe, "_FEW", 2.0), patch.object(probe, "_MANY", 0):
        yield


def inner(seed: int, count: int) -> Streams:
    streams = conforming(seed, count)
    return streams._replace(settings=replace(streams.settings, how="inner"))


@pytest.mark.parametrize("count", [3, 5])
@settings(moderate, max_examples=15)
@given(seed=SEEDS, one=CHOICES, other=CHOICES)
def test_a_join_by_shortcuts_equals_the_batch_join(
    count: int, seed: int, one: list[int], other: list[int]
) -> None:
    note(f"inner({seed}, {count})")
    equals_the_batch_join(inner(seed, count), one, other)


def keys_that_were_not_looked_up_are_absent() -> Any:
    def nobody(self: Probe, other: int) -> Any:
        return np.zeros(len(self.rows.groups), np.bool_)

    return patch.object(Probe, "not_looked_up", nobody)


def the_last_time_is_not_found() -> Any:
    good = TimeOrder.between

    def between(self: TimeOrder, *given: Any) -> Any:
        start, count = good(self, *given)
        return start, np.maximum(count - 1, 0)

    return patch.object(TimeOrder, "between", between)


def keys_that_are_left_are_taken_for_the_first() -> Any:
    good = Probe._enter

    def enter(self: Probe, other: int, hits: Any, looked: Any) -> None:
        if looked is not None:
            left = np.flatnonzero(looked)
            hits = [replace(hit, probe=np.searchsorted(left, hit.probe)) for hit in hits]
        good(self, other, hits, looked)

    return patch.object(Probe, "_enter", enter)


@pytest.mark.parametrize(
    "bug",
    [
        keys_that_were_not_looked_up_are_absent,
        the_last_time_is_not_found,
        keys_that_are_left_are_taken_for_the_first,
    ],
    ids=lambda each: each.__name__,
)
def test_a_bug_in_a_shortcut_is_found(bug: Any) -> None:
    finds(equals_the_batch_join, bug, inner)
