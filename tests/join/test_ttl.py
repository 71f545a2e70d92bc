"""The time-to-live of last resort: tuples go when their own input's watermark is past t + ttl, and
that is counted as loss. Told as stories, and once more against nested loops over random batches.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pyarrow as pa
import pytest

import streamjoin as sj
from tests.tables import EMPTY, NOTHING, Story, schema, stream, table, unbounded_is_meant

pytestmark = unbounded_is_meant

OLD = {"time": "t", "lateness": "0 seconds", "ttl": "10 seconds"}
MARKED = {"punctuation": sj.marked("end")}


def two(how="inner", a=None, b=None):
    one = stream("a", "k x t:time end:bool", columns=["x"], **(OLD if a is None else a))
    return sj.join(one, stream("b", "k y end:bool", columns=["y"], **(b or {})), how=how)


def test_a_tuple_goes_when_its_own_watermark_is_past_its_ttl(story):
    run = story(two())
    run.push("a", "k x t\n1 10 0\n2 20 5")
    run.push("a", "k x t\n3 30 10")  # P = 10 = 0 + 10: not past yet
    assert run.held() == {"a": 3, "b": 0}
    run.push("a", "k x t\n4 40 11")
    assert run.held() == {"a": 3, "b": 0}
    assert run.count("a_expired") == 1
    assert run.push("b", "k y\n1 1\n2 2") == [(2, 20, 2)]  # the pair of 1 is lost
    run.advance("a", 100)
    assert run.held() == {"a": 0, "b": 2}
    assert run.count("a_expired") == 4
    assert (run.count("a_invalidated"), run.count("a_purged")) == (0, 0)


def test_the_watermark_of_others_does_not_count(story):
    run = story(
        sj.join(stream("a", "k x t:time", **OLD), stream("b", "k y t:time", time="t", lateness="0 seconds"))
    )
    run.push("a", "k x t\n1 10 0")
    run.push("b", "k y t\n9 1 1000")
    assert run.held()["a"] == 1


def test_a_row_that_comes_too_old_joins_what_is_held_and_is_not_stored(story):
    run = story(two())
    run.push("b", "k y\n1 1")
    run.advance("a", 100)
    assert run.push("a", "k x t\n1 10 89") == [(1, 10, 1)]
    assert run.push("a", "k x t\n2 20 90") == NOTHING  # 90 + 10 = 100: just young enough
    assert run.held() == {"a": 1, "b": 1}
    assert {name: run.count(f"a_{name}") for name in ("expired", "stored", "not_stored", "rows")} == {
        "expired": 1,
        "stored": 1,
        "not_stored": 0,
        "rows": 2,
    }


def test_what_is_dropped_anyway_is_not_lost(story):
    run = story(two(b=MARKED))
    run.push("b", "k end\n1 true")
    run.advance("a", 100)
    run.push("a", "k x t\n1 10 0")
    assert (run.count("a_not_stored"), run.count("a_expired")) == (1, 0)


def test_keys_that_it_finishes_are_propagated_and_forgotten(story):
    run = story(two(a={**OLD, **MARKED}, b=MARKED))
    run.push("b", "k y\n1 1")
    run.push("a", "k x t end\n1 10 0 false\n1 - 0 true")
    assert run.held() == {"a": 1, "b": 0}  # a is closed for 1, b not
    run.advance("a", 11)
    assert run.punctuations() == ["<1>"]
    assert run.held() == {"a": 0, "b": 0}
    assert run.push("b", "k y\n1 2") == NOTHING
    assert run.count("b_not_stored") == 1
    run.push("b", "k end\n1 true")
    assert run.state() == EMPTY


def test_a_unique_key_that_expired_is_over(story):
    run = story(two(a={**OLD, "unique": True}))
    run.push("a", "k x t\n1 10 0")
    run.advance("a", 11)
    assert run.punctuations() == ["<1>"]
    assert run.push("b", "k y\n1 1") == NOTHING
    assert run.held() == {"a": 0, "b": 0}


@pytest.mark.parametrize(
    ("how", "leaves"),
    [
        ("left", [(1, 10, None)]),
        ("full", [(1, 10, None)]),
        ("left_anti", [(1, 10)]),
        ("left_semi", NOTHING),
        ("inner", NOTHING),
        ("right", NOTHING),
    ],
)
def test_an_unmatched_tuple_of_a_preserved_input_leaves_padded(story, how, leaves):
    run = story(two(how))
    run.push("a", "k x t\n1 10 0\n2 20 0")
    run.push("b", "k y\n2 2")
    assert run.advance("a", 11) == leaves
    late = run.push("a", "k x t\n3 30 0")  # too old on arrival: the same, at once
    assert [row[1] for row in late] == [30] * len(leaves)
    matched_goes_at_once = how in ("left_semi", "left_anti")
    assert run.count("a_expired") == (2 if matched_goes_at_once else 3)


def test_a_row_without_a_time_is_too_old_from_the_start(story):
    run = story(two(a={**OLD, "on_violation": "keep"}))
    run.push("b", "k y\n1 1")
    assert run.push("a", "k x t\n1 10 -") == [(1, 10, 1)]
    assert run.held()["a"] == 0
    assert run.count("a_expired") == 1


def test_a_window_and_a_ttl_whichever_is_first(story):
    def timed(name, column, **declared):
        return stream(
            name, f"k {column} t:time", time="t", lateness="0 seconds", columns=[column], **declared
        )

    run = story(
        sj.join(timed("a", "x", window="100 seconds", ttl="10 seconds"), timed("b", "y", window="5 seconds"))
    )
    run.push("a", "k x t\n1 10 0\n2 20 11")
    assert run.held()["a"] == 1
    run.advance("b", 200)
    assert run.held()["a"] == 0
    assert (run.count("a_expired"), run.count("a_invalidated")) == (1, 1)


def test_a_restart_may_change_the_ttl():
    first = Story(two())
    first.push("a", "k x t\n1 10 0\n2 20 7\n3 30 8")
    shorter = two(a={**OLD, "ttl": "2 seconds"})
    run = Story(shorter, snapshot=first.run.snapshot())
    run.push("a", "k x t\n4 40 10")
    assert run.held()["a"] == 2  # 8 and 10: what became too old before the restart is found too
    without = {name: value for name, value in OLD.items() if name != "ttl"}
    run = Story(two(a=without), snapshot=run.run.snapshot())
    run.advance("a", 1000)
    assert run.held()["a"] == 2
    assert run.count("a_expired") == 2


# ---------------------------------------------------------------- nested loops


class Naive:
    """A full outer join of inputs with a ttl, without punctuations, batch by batch."""

    def __init__(self, ttl):
        self.ttl, self.watermarks = ttl, [-(10**9)] * 2
        self.held = [[], []]  # [key, number, time, matched]
        self.results, self.expired = Counter(), [0, 0]

    def batch(self, i, rows):
        for key, number, time in rows:
            row = [key, number, time, False]
            for other in self.held[1 - i]:
                if other[0] == key:
                    row[3] = other[3] = True
                    pair = (number, other[1])
                    self.results[(key, *(pair if i == 0 else pair[::-1]))] += 1
            self.held[i].append(row)
        self._expire(i)  # by the watermark before this batch, and by the new one
        self.watermarks[i] = max([self.watermarks[i], *(time for _, _, time in rows)])
        self._expire(i)

    def _expire(self, i):
        old = [row for row in self.held[i] if self.watermarks[i] > row[2] + self.ttl[i]]
        self.expired[i] += len(old)
        self.held[i] = [row for row in self.held[i] if row not in old]
        self._pad(i, old)

    def _pad(self, i, rows):
        for key, number, _, matched in rows:
            if not matched:
                self.results[(key, number, None) if i == 0 else (key, None, number)] += 1

    def finish(self):
        for i in (0, 1):
            self._pad(i, self.held[i])


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("way", ["straight", "restarted", "one hash", "tiny runs"])
def test_equals_nested_loops(seed, way):
    random = Random(seed)
    ttl = [random.randint(1, 8), random.randint(1, 8)]
    joined = sj.join(
        *(
            stream(
                name,
                f"k {column} t:time",
                time="t",
                lateness="0 seconds",
                columns=[column],
                ttl=f"{ttl[i]} seconds",
            )
            for i, (name, column) in enumerate((("a", "x"), ("b", "y")))
        ),
        how="full",
    )
    model, found = Naive(ttl), Counter()
    run, clock = Story(joined, way), [0, 0]
    for number in range(30):
        i = random.randrange(2)
        clock[i] += random.randint(0, 3)
        rows = [
            (random.randint(0, 5), 100 * number + n, clock[i] - random.randint(0, 9))
            for n in range(random.randint(0, 4))
        ]
        model.batch(i, rows)
        text = f"k {'xy'[i]} t\n" + "\n".join(" ".join(map(str, row)) for row in rows)
        found.update(run.push("ab"[i], text))
        assert list(run.held().values()) == [len(held) for held in model.held]
    model.finish()
    found.update(run.finish())
    assert found == model.results
    assert [run.count("a_expired"), run.count("b_expired")] == model.expired
    assert sum(model.expired) > 0


# ---------------------------------------------------------------- declared wrongly


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ({"ttl": "1 hour"}, r"add time= and lateness="),
        ({"ttl": "1 hour", "time": "t"}, r"add lateness= "),
        ({**OLD, "ttl": "0 seconds"}, "ttl of zero; give a positive duration"),
        ({**OLD, "ttl": 7}, r"ttl is 7; give a duration"),
    ],
)
def test_refused_with_what_to_do(declared, told):
    with pytest.raises(sj.InvalidJoin, match=told):
        stream("a", "k t:time", **declared)


def test_it_is_no_part_of_what_a_restart_must_keep():
    assert two().plan.spec.identity() == two(a={**OLD, "ttl": "1 day"}).plan.spec.identity()


def test_a_table_of_no_rows_expires_nothing():
    run = two().local()
    run.push("a", table(schema("k x t:time end:bool"), "k x t\n1 1 0").slice(0, 0))
    assert isinstance(run.push("b", pa.table({"k": [1], "y": [1], "end": [False]})), pa.Table)
    assert run.counters()["a_expired"] == 0
