"""The four properties of a join over a join on conforming streams: equal to the batch joins one after the
other, whatever the cut into batches, the interleaving and the crashes; and the bugs planted for them.
"""

from __future__ import annotations

import itertools
from collections import Counter
from random import Random

import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.join.eviction import Eviction
from streamjoin.join.pending_purge import PendingPurge
from streamjoin.join.propagation import RangePropagation
from streamjoin.punctuation import Range
from tests.tables import rows, schema, stream, table, unbounded_is_meant

COLUMNS = {"a": "k x", "b": "k y", "c": "k z"}

KEYS = 8


class Data:
    """Rows of a, b, c and their punctuations, from a seed: in the order of each stream, which keeps them."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.how = rng.choice(["inner", "inner", "left", "full", "left_anti"])
        self.upper = rng.choice(["inner", "inner", "left", "right"])
        self.purge = rng.choice([None, sj.PurgeEvery(9), sj.PurgeEvery(60), "idle"])
        self.streams = {name: self._stream(rng) for name in "abc"}
        self.declared: dict[str, object] = {}  # of a and b

    def _stream(self, rng: Random) -> list[tuple]:
        rows_ = [("row", rng.randrange(KEYS), rng.randrange(100)) for _ in range(rng.randrange(5, 25))]
        closed_keys = []
        for key in range(KEYS):
            kind = rng.random()
            if kind < 0.4:
                closed_keys.append(("over", key, key))
            elif kind < 0.7:
                closed_keys.append(("over", key, min(key + rng.randrange(5), KEYS - 1)))
        for punctuation in closed_keys:  # behind the last row it speaks of
            last = max((i for i, e in enumerate(rows_) if _speaks(punctuation, e)), default=-1)
            rows_.insert(rng.randint(last + 1, len(rows_)), punctuation)
        return rows_

    def join(self) -> sj.Joined:
        a, b = (stream(name, COLUMNS[name], **self.declared) for name in "ab")
        one = sj.join(a, b, name="lower", how=self.how, purge=self.purge)
        return sj.join(sj.stream(one, name="ab", key="k"), stream("c", "k z"), name="upper", how=self.upper)

    def order(self, rng: Random) -> list[tuple[str, tuple]]:
        """One interleaving of the streams, then the end."""
        left = {name: list(elements) for name, elements in self.streams.items()}
        found = []
        while any(left.values()):
            name = rng.choice([name for name, elements in left.items() if elements])
            found.append((name, left[name].pop(0)))
        return found

    def expected(self) -> Counter:
        """The batch joins of plain Python, one after the other."""
        a, b, c = ([e[1:] for e in self.streams[name] if e[0] == "row"] for name in "abc")
        below = _batch_join(a, b, self.how, 2, 2)
        width = 2 if self.how == "left_anti" else 3
        return Counter(_batch_join(below, c, self.upper, width, 2))


def _speaks(punctuation: tuple, element: tuple) -> bool:
    return element[0] == "row" and punctuation[1] <= element[1] <= punctuation[2]


def _batch_join(left: list, right: list, how: str, width: int, other: int) -> list[tuple]:
    matched = [(one, two) for one, two in itertools.product(left, right) if one[0] == two[0]]
    alone = [one for one in left if all(one[0] != two[0] for two in right)]
    if how == "left_anti":
        return alone
    found = [(*one, *two[1:]) for one, two in matched]
    if how in ("left", "full"):
        found += [(*one, *[None] * (other - 1)) for one in alone]
    if how in ("right", "full"):
        keys = {one[0] for one in left}
        found += [(two[0], *[None] * (width - 1), *two[1:]) for two in right if two[0] not in keys]
    return found


def play(data: Data, order: list, sizes: Random, *, crash: Random | None = None) -> tuple[Counter, set[str]]:
    """Results and punctuations of one order cut in batches; on conforming streams nothing is a violation."""
    joined = data.join()
    run, found, over = joined.local(), Counter(), set()
    waiting: dict[str, list[str]] = {}
    wide: list[sj.Punctuation] = []

    def take(result: pa.Table) -> None:
        nonlocal run
        given = rows(result)
        assert not any(f"<{row[0]}>" in over for row in given), "a result after its key was over"
        assert not any(one.matches(row[:1]) for row in given for one in wide), "a result in a range that was"
        found.update(given)
        said = run.punctuations()
        wide.extend(one for one in said if isinstance(one.patterns[0], Range))
        over.update(one.text() for one in said)
        assert run.violations() == []
        if crash is not None and crash.random() < 0.4:
            run = joined.local(snapshot=run.snapshot())

    def flush() -> None:
        if waiting:
            texts = {name: "\n".join([COLUMNS[name], *each]) for name, each in waiting.items()}
            take(run.step({name: table(schema(COLUMNS[name]), text) for name, text in texts.items()}))
            waiting.clear()

    left = sizes.randint(1, 9)
    for name, element in order:
        if element[0] == "row":
            waiting.setdefault(name, []).append(f"{element[1]} {element[2]}")
            left -= 1
        if left <= 0 or element[0] != "row":
            flush()
            left = sizes.randint(1, 9)
        if element[0] == "over":
            low, high = element[1:]
            take(run.punctuate(name, k=low if low == high else sj.between(low, high)))
    flush()
    for name in sizes.sample("abc", 3):
        take(run.end(name))
    assert not any(run.state().rows.values())
    return found, over


@unbounded_is_meant
@pytest.mark.parametrize("seed", range(25))
def test_properties(seed):
    data = Data(seed)
    order = data.order(Random(seed))
    whole, over = play(data, order, Random(1))
    assert whole == data.expected()  # equals the batch join
    assert play(data, order, Random(2))[0] == whole  # whatever the batches
    assert play(data, data.order(Random(seed + 1000)), Random(1))[0] == whole  # the interleaving
    assert play(data, order, Random(1), crash=Random(seed)) == (whole, over)  # the crashes


def first_failure() -> int | None:
    """The first seed whose answer is wrong."""
    for seed in range(60):
        data = Data(seed)
        try:
            assert play(data, data.order(Random(seed)), Random(1))[0] == data.expected()
        except AssertionError:
            return seed
    return None


@unbounded_is_meant
def test_planted_a_range_is_told_while_keys_of_it_wait_to_be_settled(monkeypatch):
    monkeypatch.setattr(PendingPurge, "take_matching", lambda self, chosen: self.layout.empty())
    monkeypatch.setattr(Eviction, "settle", lambda self: iter(()))
    assert first_failure() is not None


@unbounded_is_meant
def test_planted_a_range_is_told_that_one_input_has_closed(monkeypatch):
    def update(self: RangePropagation, closed_keys: list) -> None:
        self.unsent = [(one,) for each in closed_keys for one in each.ranges.patterns()]

    monkeypatch.setattr(RangePropagation, "update", update)
    assert first_failure() is not None
