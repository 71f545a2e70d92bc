"""Why state is held: told in stories, and checked on random scripts: what is named would let it go."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import streamjoin as sj
from streamjoin.join.arrivals import Arrivals
from streamjoin.join.operator import StreamJoin
from streamjoin.join.persistence.inspect import StateEntries, inspect
from streamjoin.join.persistence.snapshot import from_bytes, to_bytes
from streamjoin.join.propagation import punctuations_of
from streamjoin.plan.state_report import JoinState
from tests.simulation.generate import script
from tests.simulation.play import Player
from tests.simulation.script import Finish
from tests.tables import Story, stream, unbounded_is_meant


def kept(story: Story, number: int) -> list[StateEntries]:
    return list(inspect(story.run.join).inputs[number].entries)


def text(story: Story) -> str:
    join = story.run.join
    return JoinState(0, join.spec, tuple(join.watermarks), {0: inspect(join)}, {"purge": "immediate"}).text()


def auctions() -> sj.Joined:
    auction = stream(
        "auction", "id t:time item:str", time="t", window="12 hours", lateness="0 seconds", unique=True
    )
    bid = stream(
        "bid", "id t:time price end:bool", time="t", lateness="0 seconds", punctuation=sj.marked("end")
    )
    return sj.join(auction, bid)


def test_a_tuple_waits_for_a_punctuation_or_for_event_time() -> None:
    run = Story(auctions())
    run.push("auction", "id t item\n180 0 a\n181 3600 b")
    run.push("bid", "id t price end\n180 7200 5 false\n182 7200 6 false")
    assert kept(run, 0) == [
        StateEntries("tuples", 2, ("bid",), (), (12 * 3_600_000_000, 13 * 3_600_000_000), ("181", "180")),
        StateEntries("unique keys seen", 2, ("bid",), keys=("181", "180")),
    ]
    assert kept(run, 1) == [StateEntries("tuples", 1, ("auction",), (), None, ("182",))]
    told = text(run)
    assert (
        "2 tuples wait until bid closes their key or its event "
        "time passes 1970-01-01 12:00:00 to 1970-01-01 13:00:00 (window 12:00:00); keys 181, 180" in told
    )
    assert "it closes keys by punctuations of bid (rows marked end)" in told
    assert "1 tuple waits until auction closes their key; keys 182" in told
    assert "2 keys are remembered as come (unique) until bid closes them too" in told
    run.push("bid", "id t price end\n180 7200 - true")
    assert [(one.what, one.count) for one in kept(run, 0)] == [("tuples", 1), ("unique keys seen", 1)]


def test_a_punctuation_is_remembered_until_the_other_input_makes_it_too() -> None:
    run = Story(auctions())
    run.push("bid", "id t price end\n180 0 - true\n181 0 - true")
    assert kept(run, 1) == [StateEntries("closed keys", 2, ("auction",), keys=("181", "180"))]
    assert "2 keys are remembered as closed until auction closes them too; keys 181" in text(run)


@unbounded_is_meant
def test_of_several_inputs_one_that_holds_nothing_is_enough() -> None:
    names = ["a", "b", "c"]
    run = Story(sj.join(*(stream(name, "k x", punctuation=None) for name in names)))
    run.push("a", "k x\n1 10\n2 20")
    run.push("b", "k x\n1 11")
    assert kept(run, 0) == [
        StateEntries("tuples", 1, ("b", "c"), ("c",), keys=("1",)),
        StateEntries("tuples", 1, ("b", "c"), ("b", "c"), keys=("2",)),
    ]
    told = text(run)
    assert "c closing it is enough: it holds none of it; keys 1" in told
    assert "b closes their key (which nothing declares: punctuation=, arrival= or unique=True would)" in told
    run.punctuate("c", k=1)
    assert run.held() == {"a": 1, "b": 0, "c": 0}


@unbounded_is_meant
def test_ranges_partial_and_scheduled_punctuations_are_named() -> None:
    control = sj.control(stream("x", "k over:time").schema, time="over")
    a = stream("a", "k x t:time", time="t", lateness="0 seconds", punctuation=control)
    b = stream("b", "k y end:bool p:str o", sequence=["p", "o"], punctuation=sj.marked("end", partitions=2))
    run = Story(sj.join(a, b, how="left"))
    run.push("a", "k x t\n1 10 5")
    run.control("a", "k over\n1 60\n2 90")
    run.push("b", "k y end p o\n7 - true p 1")
    run.punctuate("b", k=sj.between(50, 60))
    assert [(one.what, one.count) for one in kept(run, 0)] == [("tuples", 1), ("scheduled punctuations", 2)]
    assert [(one.what, one.count) for one in kept(run, 1)] == [("ranges", 1), ("partial punctuations", 1)]
    told = text(run)
    assert "1 have no match yet; they leave padded when they are evicted" in told
    assert "passes 1970-01-01 00:01:00 to 1970-01-01 00:01:30; keys" in told
    assert "1 punctuation waits until all of its 2 partitions have sent it; keys 7" in told
    assert "1 range closed: remembered for good" in told


def test_what_waits_for_the_purge_says_so() -> None:
    a = stream("a", "k x end:bool", punctuation=sj.marked("end"))
    b = stream("b", "k y end:bool", punctuation=sj.marked("end"))
    run = Story(sj.join(a, b, purge=sj.PurgeEvery(100)))
    run.push("a", "k x end\n1 10 false")
    run.push("b", "k y end\n1 - true")
    assert kept(run, 0) == [StateEntries("tuples", 1, keys=("1",))]
    assert "1 tuple can match nothing any more: the next purge evicts them" in text(run)
    assert "1 key closed and not purged yet" in text(run)


def test_buckets_add_up() -> None:
    run = Story(auctions())
    run.push("auction", "id t item\n180 0 a")
    one = inspect(run.run.join)
    run.push("auction", "id t item\n181 3600 b")
    both = one.and_also(inspect(run.run.join)).inputs[0]
    assert (both.tuples, both.runs, both.times_us) == (3, 3, (0, 3_600_000_000))
    assert [(one.what, one.count) for one in both.entries] == [("tuples", 3), ("unique keys seen", 3)]


# What is named lets go


def closing(join: StreamJoin, number: int, keys: Any) -> None:
    layout = join.spec.inputs[number].layout
    list(join.process({number: replace(Arrivals.nothing(layout), keys=keys)}))


def check(join: StreamJoin) -> Counter[str]:
    """Every tuple is counted once and waits for somebody; if those close its key, it goes."""
    found = inspect(join)
    names = [one.name for one in join.spec.inputs]
    counted: Counter[str] = Counter()
    for i, one in enumerate(found.inputs):
        tuples = [each for each in one.entries if each.what == "tuples"]
        assert sum(each.count for each in tuples) == join.sides[i].live_rows == one.tuples
        assert all(each.open for each in tuples), "a tuple that nobody needs is stored"
        for each in tuples:
            counted["tuples"] += each.count
            counted["several" if len(each.open) > 1 else "one"] += 1
            counted["enough"] += len(each.enough)
        if not tuples:
            continue
        # the keys of one group, looked up again by their text
        keys = join.sides[i].live().distinct_keys()
        group = tuples[0]
        texts = [one.text()[1:-1] for one in punctuations_of(keys.keys)]
        chosen = keys.take(np.array([texts.index(group.keys[0])]))
        for ways in [group.open, *((name,) for name in group.enough)]:
            again = from_bytes(join.spec, to_bytes(join))
            before = again.sides[i].live_rows
            for name in ways:
                closing(again, names.index(name), chosen)
            assert again.sides[i].live_rows < before, f"{group} of {names[i]} stays after {ways} closed it"
            if ways == group.open:
                assert not again.sides[i].present(chosen).any() or len(tuples) > 1
    return counted


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in (1, 2))])
def test_what_is_named_lets_go(part: int) -> None:
    counted: Counter[str] = Counter()
    for seed in range(part * 30, part * 30 + 30):
        player = Player(script(seed))
        if player.script.settings.operator is not None:
            continue  # some presets take no notice of punctuations
        for operation in player.script.operations:
            if isinstance(operation, Finish):
                break
            player.do(operation)
            try:
                counted += check(player.run.join)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {error}") from error
    assert counted["tuples"] > 100
    assert counted["several"]
    assert counted["enough"]
