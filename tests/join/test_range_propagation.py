"""Ranges and patterns in the output: propagated once every input has closed them, whatever was stored."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import streamjoin as sj
from streamjoin.join.propagation import RangePropagation
from tests.tables import NOTHING, Story, stream, unbounded_is_meant

StoryOf = Any


def two(keys: str = "k", **options: Any) -> sj.Joined:
    key = keys.split()
    return sj.join(stream("a", f"{keys} x", key=key), stream("b", f"{keys} y", key=key), **options)


@unbounded_is_meant
def test_a_range_leaves_though_no_key_of_it_was_ever_stored(story: StoryOf) -> None:
    run = story(two())
    run.punctuate("a", k=sj.between(1, 5))
    assert run.punctuations() == NOTHING
    run.punctuate("b", k=sj.between(3, 9))
    assert run.punctuations() == ["<[3, 5]>"]
    run.punctuate("a", k=sj.between(6, 7))
    assert run.punctuations() == ["<[3, 7]>"]
    run.punctuate("b", k=sj.between(3, 4))  # nothing new
    assert run.punctuations() == NOTHING


@unbounded_is_meant
def test_keys_of_a_range_leave_before_it(story: StoryOf) -> None:
    run = story(two())
    run.push("a", "k x\n4 40")
    run.punctuate("a", k=sj.between(1, 5))
    run.punctuate("b", k=sj.between(1, 5))
    assert run.punctuations() == ["<4>", "<[1, 5]>"]


@unbounded_is_meant
def test_patterns_of_composite_keys(story: StoryOf) -> None:
    run = story(two("k j"))
    run.punctuate("a", k=7, j=sj.ANY)
    run.punctuate("b", k=sj.ANY, j=sj.between(1, 3))
    assert run.punctuations() == ["<7, [1, 3]>"]
    run.punctuate("b", k=7, j=sj.ANY)
    assert run.punctuations() == ["<7, *>"]


@unbounded_is_meant
@pytest.mark.parametrize("purge", ["immediate", "batch", sj.PurgeEvery(1000)], ids=str)
def test_a_padded_row_leaves_before_the_range_that_has_it(purge: Any, story: StoryOf) -> None:
    run = story(two(how="left", purge=purge))
    run.push("a", "k x\n4 40")
    run.punctuate("a", k=sj.between(1, 5))
    assert run.punctuate("b", k=sj.between(1, 5)) == [(4, 40, None)]
    assert run.punctuations() == ["<4>", "<[1, 5]>"]


@unbounded_is_meant
def test_the_groups_of_a_range_are_final_before_it_leaves() -> None:
    run = Story(two(purge=sj.PurgeEvery(1000)).group_by("k").agg(n=("*", "count")), "straight")
    run.push("a", "k x\n4 40")
    run.push("b", "k y\n4 41\n4 42")
    run.punctuate("a", k=sj.between(1, 5))
    assert run.punctuate("b", k=sj.between(1, 5)) == [(4, 2)]
    assert run.punctuations() == ["<4>", "<[1, 5]>"]


def test_ordered_inputs_propagate_what_both_have_passed(story: StoryOf) -> None:
    run = story(
        sj.join(*(stream(name, f"k {column}", arrival=sj.ordered()) for name, column in ("ax", "by")))
    )
    run.push("a", "k x\n3 1\n8 1")
    run.push("b", "k y\n5 1\n6 1")
    assert "<(, 5]>" in run.punctuations()


@unbounded_is_meant
@pytest.mark.parametrize("options", [{"propagate": False}, {"purge": "none"}], ids=str)
def test_a_join_that_does_not_propagate_keeps_ranges_to_itself(options: Any) -> None:
    run = two(**options).local()
    for name in "ab":
        run.punctuate(name, k=sj.between(1, 5))
    assert run.punctuations() == NOTHING


@unbounded_is_meant
def test_many_patterns_are_compared_once_each() -> None:
    """A batch compares what is new: each pattern meets those of the other input once."""
    run = two("k j").local()
    calls = 0
    good = sj.Punctuation.intersect

    def counted(self: sj.Punctuation, other: sj.Punctuation) -> sj.Punctuation:
        nonlocal calls
        calls += 1
        return good(self, other)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sj.Punctuation, "intersect", counted)
        for key in range(60):
            run.punctuate("a", k=key, j=sj.ANY)
            run.punctuate("b", k=key, j=sj.ANY)
    assert len(run.punctuations()) == 60
    assert calls <= 2 * 60 * 61


@unbounded_is_meant
def test_planted_only_the_newest_patterns_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    good = RangePropagation._update_patterns

    def update(self: RangePropagation, closed: Any, new: Any) -> None:
        newest = [
            SimpleNamespace(ended=one.ended, patterns=[patterns for i, patterns in new if i == number])
            for number, one in enumerate(closed)
        ]
        good(self, newest, new)  # type: ignore[arg-type]

    monkeypatch.setattr(RangePropagation, "_update_patterns", update)
    with pytest.raises(AssertionError):
        test_patterns_of_composite_keys(lambda joined: Story(joined, "straight"))
