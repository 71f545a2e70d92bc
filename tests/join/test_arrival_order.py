"""Clustered and ordered arrival: what the order of an input's tuples closes, and who came too late."""

from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

import streamjoin as sj
from tests.tables import EMPTY, NOTHING, rows, stream, unbounded_is_meant

pytestmark = unbounded_is_meant


def arriving(arrival, **more):
    """a(k, x) arrives as declared; b(k, y) does not say."""
    return sj.join(stream("a", "k x", arrival=arrival, **more), stream("b", "k y"))


def told(run, keys):
    """Keys of `a`, in this order, in one push; which of them were behind, by their place."""
    lines = "\n".join(f"{key} {place}" for place, key in enumerate(keys))
    run.push("a", f"k x\n{lines}")
    violations = run.violations()
    assert all(reason == "after_punctuation" for _, reason, *_ in violations)
    return sorted(place for _, _, _, place in violations)


def open_on_a(run, keys):
    """Which keys `a` may still bring: a tuple of `b` that is kept may still join."""
    found = set()
    for key in keys:
        before = run.held()["b"]
        run.push("b", f"k y\n{key} 0")
        if run.held()["b"] > before:
            found.add(key)
    return found


# ---------------------------------------------------------------- clustered


def test_a_cluster_is_closed_when_the_next_begins(story):
    run = story(arriving(sj.clustered()))
    run.push("b", "k y\n3 30\n4 40")
    assert run.push("a", "k x\n3 1\n3 2") == [(3, 1, 30), (3, 2, 30)]
    assert run.held()["b"] == 2
    assert run.push("a", "k x\n4 3") == [(4, 3, 40)]
    assert run.held() == {"a": 3, "b": 1}  # b's tuple of key 3 has met all it can meet
    run.punctuate("b", k=3)
    assert run.punctuations() == ["<3>"]


def test_a_key_that_comes_back_is_a_violation(story):
    run = story(arriving(sj.clustered()))
    run.push("b", "k y\n3 30")
    assert run.push("a", "k x\n3 1\n4 2\n3 3") == [(3, 1, 30)]
    assert run.violations() == [("a", "after_punctuation", 3, 3)]


@pytest.mark.parametrize(
    ("slack", "keys", "behind"),
    [
        (0, [3, 3, 4, 4, 5], []),
        (0, [3, 4, 3], [2]),
        (0, [3, 4, 3, 3, 4], [2, 3, 4]),
        (1, [3, 4, 3, 4], []),  # one tuple between
        (1, [3, 4, 5, 3], [3]),
        (1, [3, 4, 3, 5, 3, 6, 3], []),
        (2, [3, 4, 5, 3], []),
        (2, [3, 4, 5, 6, 3], [4]),
        (2, [3, 4, 4, 4, 3, 4], [4]),
    ],
)
def test_slack_is_how_many_tuples_may_lie_between(story, slack, keys, behind):
    assert told(story(arriving(sj.clustered(slack=slack))), keys) == behind


@pytest.mark.parametrize(("slack", "still_open"), [(0, {5}), (1, {4, 5}), (2, {3, 4, 5})])
def test_what_a_cluster_leaves_open(story, slack, still_open):
    run = story(arriving(sj.clustered(slack=slack)))
    told(run, [2, 3, 4, 5])
    assert open_on_a(run, [2, 3, 4, 5]) == still_open


def test_clusters_of_composite_keys(story):
    columns, keys = "k l:str x", ["k", "l"]
    run = story(
        sj.join(stream("a", columns, key=keys, arrival=sj.clustered()), stream("b", "k l:str y", key=keys))
    )
    run.push("a", "k l x\n1 u 1\n1 u 2\n1 v 3\n1 u 4")
    assert run.violations() == [("a", "after_punctuation", 1, "u", 4)]


def test_both_clustered_state_is_what_is_open(story):
    run = story(
        sj.join(stream("a", "k x", arrival=sj.clustered()), stream("b", "k y", arrival=sj.clustered()))
    )
    for key in range(20):
        run.push("a", f"k x\n{key} 1\n{key} 2")
        run.push("b", f"k y\n{key} 3\n{key} 4")
        assert sum(run.held().values()) <= 4
    assert run.punctuations() == sorted(f"<{key}>" for key in range(19))


# ---------------------------------------------------------------- ordered


def test_everything_below_is_closed(story):
    run = story(arriving(sj.ordered()))
    run.push("b", "k y\n1 10\n3 30\n5 50")
    assert run.push("a", "k x\n3 1") == [(3, 1, 30)]
    assert run.punctuations() == ["<1>"]
    assert run.held() == {"a": 1, "b": 2}
    assert run.push("a", "k x\n3 2\n5 3") == [(3, 2, 30), (5, 3, 50)]
    assert run.held()["b"] == 1
    run.push("b", "k y\n4 40")  # below 5: closed, never seen
    assert run.count("b_not_stored") == 1


def test_descending(story):
    run = story(arriving(sj.ordered(descending=True)))
    run.push("b", "k y\n1 10\n3 30\n5 50")
    assert run.push("a", "k x\n3 1") == [(3, 1, 30)]
    assert run.punctuations() == ["<5>"]
    assert run.push("a", "k x\n4 2") == NOTHING
    assert run.violations() == [("a", "after_punctuation", 4, 2)]


@pytest.mark.parametrize(
    ("slack", "keys", "behind"),
    [
        (0, [1, 1, 2, 5, 5], []),
        (0, [1, 3, 2], [2]),
        (0, [1, 3, 2, 3, 4, 1], [2, 5]),
        (1, [1, 3, 2, 4], []),  # 2 is one place too late
        (1, [1, 3, 4, 2], [3]),  # two places
        (1, [3, 1, 2], [2]),
        (2, [1, 3, 4, 2], []),
        (2, [4, 1, 2, 3], [3]),
        (2, [1, 2], []),
    ],
)
@pytest.mark.parametrize("descending", [False, True])
def test_slack_is_how_many_places_too_late(story, slack, keys, behind, descending):
    run = story(arriving(sj.ordered(descending=descending, slack=slack)))
    assert told(run, [-key if descending else key for key in keys]) == behind


def test_what_an_order_with_slack_leaves_open(story):
    run = story(arriving(sj.ordered(slack=2)))
    told(run, [1, 5, 7, 9])  # all but the last two: below 5
    assert open_on_a(run, [2, 4, 5, 6, 8, 10]) == {5, 6, 8, 10}


def test_both_ordered_as_in_a_merge(story):
    run = story(sj.join(stream("a", "k x", arrival=sj.ordered()), stream("b", "k y", arrival=sj.ordered())))
    found = []
    for key in range(20):
        found += run.push("a", f"k x\n{key} 1")
        found += run.push("b", f"k y\n{key} 2\n{key} 3")
        assert sum(run.held().values()) <= 3
    assert len(found) == 40


def test_an_ordered_input_that_ends_is_over(story):
    run = story(arriving(sj.ordered()))
    run.push("a", "k x\n1 1\n2 2")
    run.push("b", "k y\n2 20")
    run.finish()
    assert run.punctuations() == ["<1>", "<2>"]
    assert run.held() == {"a": 0, "b": 0}


TYPES = {  # ascending values at which an order could go wrong
    "trailing zeros": (pa.string(), ["a", "a\0", "a\0\0", "b"]),
    "bytes": (pa.binary(), [b"", b"\0", b"a", b"\xff"]),
    "whole numbers from end to end": (pa.int64(), [-(2**63), -1, 0, 2**63 - 1]),
    "unsigned": (pa.uint64(), [0, 2**63 - 1, 2**63, 2**64 - 1]),
    "wide decimals": (
        pa.decimal128(38, 0),
        [Decimal(-1), Decimal(2**63), Decimal(2**63 + 1), Decimal(10**30 + 1)],
    ),
    "decimals of 38 digits": (pa.decimal128(38, 2), [Decimal(f"{'9' * 35}{i}.99") for i in (7, 8, 9)]),
    "floats": (pa.float64(), [float("-inf"), -0.5, 0.0, 5e-324, float("inf"), float("nan")]),
    "dates": (pa.date32(), [date(1, 1, 1), date(1970, 1, 1), date(2026, 11, 15)]),
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("cut", [False, True])
def test_keys_of_every_type_have_their_order(kind, descending, cut):
    """In order, nothing is behind; a key below the last is; whether in one batch or in several."""
    dtype, values = TYPES[kind]
    values = values[::-1] if descending else values
    arrival = sj.ordered(descending=descending)
    a = sj.stream(pa.schema({"k": dtype, "x": pa.int64()}), name="a", key="k", arrival=arrival)
    b = sj.stream(pa.schema({"k": dtype}), name="b", key="k")
    run = sj.join(a, b).local()
    run.push("b", pa.table({"k": pa.array(values, dtype)}))
    whole = pa.table({"k": pa.array([*values, values[-2]], dtype), "x": list(range(len(values) + 1))})
    found = []
    for part in [whole.slice(i, 1) for i in range(len(whole))] if cut else [whole]:
        found += rows(run.push("a", part))
    assert [violation["row"]["x"] for violation in run.violations()] == [len(values)]
    assert sorted(place for _, place in found) == list(range(len(values)))


def test_nothing_is_held_of_two_ordered_inputs_that_end(story):
    run = story(
        sj.join(stream("a", "k x", arrival=sj.clustered()), stream("b", "k y", arrival=sj.clustered(slack=3)))
    )
    run.push("a", "k x\n1 1\n2 2")
    run.push("b", "k y\n2 20\n1 10")
    run.finish()
    assert run.state() == EMPTY


# ---------------------------------------------------------------- within each source partition


def in_partitions(arrival):
    """As `arriving`, but `a` comes through partitions, with the offsets of each."""
    a = stream("a", "k x p:str o", arrival=arrival, sequence=["p", "o"])
    return sj.join(a, stream("b", "k y"))


def test_a_cluster_is_a_matter_of_its_partition(story):
    run = story(in_partitions(sj.clustered()))
    run.push("a", "k x p o\n3 1 p 10\n4 2 q 7\n3 3 p 15\n4 4 q 9")
    assert run.violations() == []
    assert open_on_a(run, [3, 4]) == {3, 4}
    run.push("a", "k x p o\n5 5 p 16")
    assert open_on_a(run, [3, 4, 5]) == {4, 5}


def test_slack_counts_tuples_whatever_their_offsets(story):
    run = story(in_partitions(sj.clustered(slack=1)))
    run.push(
        "a",
        """k x p o
           3 1 p 10
           4 2 p 500
           3 3 p 10000
           6 4 q 10001
           7 5 q 10002
           8 6 q 10003
           3 7 p 10004""",
    )
    assert run.violations() == []
    run.push("a", "k x p o\n4 8 p 10005")
    assert run.violations() == [("a", "after_punctuation", 4, 8)]


def test_offsets_tell_the_order_in_a_batch():
    run = in_partitions(sj.clustered()).local()
    run.push(
        "a", pa.table({"k": [3, 4, 3, 5], "x": [1, 2, 3, 4], "p": ["p", "p", "p", "q"], "o": [1, 9, 5, 2]})
    )
    assert run.violations() == []
    assert [follower and follower.widest_slack for follower in run.join.followers] == [0, None]


def test_a_range_is_closed_when_every_partition_is_past_it(story):
    run = story(in_partitions(sj.ordered()))
    run.push("a", "k x p o\n1 2 q 1\n3 1 p 1\n8 3 p 2")
    assert open_on_a(run, [0, 1, 3, 7]) == {1, 3, 7}
    run.push("a", "k x p o\n5 4 q 2")
    assert open_on_a(run, [1, 3, 4, 5, 7]) == {5, 7}


def test_a_partition_with_no_more_tuples_than_its_slack_closes_nothing(story):
    run = story(in_partitions(sj.ordered(slack=1)))
    run.push("a", "k x p o\n9 3 q 1\n7 1 p 1\n9 2 p 2")
    assert open_on_a(run, [1]) == {1}
    run.push("a", "k x p o\n8 4 q 2")
    assert open_on_a(run, [6, 7]) == {7}


def test_descending_partitions(story):
    run = story(in_partitions(sj.ordered(descending=True)))
    run.push("a", "k x p o\n6 2 q 1\n3 1 p 1")
    assert open_on_a(run, [3, 5, 6, 7]) == {3, 5, 6}


def test_a_tuple_behind_its_own_partition_is_a_violation_though_another_is_not_so_far(story):
    run = story(in_partitions(sj.ordered()))
    run.push("a", "k x p o\n1 2 q 1\n3 1 p 1")
    run.push("a", "k x p o\n2 3 p 2\n2 4 q 2")
    assert run.violations() == [("a", "after_punctuation", 2, 3)]


def test_a_partition_that_appears_later_with_smaller_keys_breaks_the_declaration(story):
    run = story(in_partitions(sj.ordered()))
    run.push("a", "k x p o\n3 1 p 1")
    run.push("a", "k x p o\n2 2 q 1\n5 3 q 2\n4 4 p 2")
    assert run.violations() == [("a", "after_punctuation", 2, 2)]
    assert open_on_a(run, [3, 4]) == {4}


@pytest.mark.parametrize(
    ("arrival", "keys", "widest"),
    [
        (sj.clustered(slack=5), [3, 4, 5, 3, 6, 6], 2),
        (sj.clustered(slack=1), [3, 3, 4], 0),
        (sj.ordered(slack=5), [1, 5, 2, 6, 3, 7], 3),
        (sj.ordered(slack=1), [4, 1, 2, 3], 3),
        (sj.ordered(descending=True, slack=2), [7, 8, 9], 2),
        (sj.ordered(), [1, 2, 3], 0),
    ],
)
@pytest.mark.parametrize("cut", [1, 2, 3, 6])
def test_the_widest_slack_is_seen_whatever_the_cut(arrival, keys, widest, cut):
    """How much slack would have been enough; beyond what is declared, at least that it was not."""
    run = arriving(arrival).local()
    whole = pa.table({"k": keys, "x": list(range(len(keys)))})
    for first in range(0, len(keys), cut):
        run.push("a", whole.slice(first, cut))
    seen = run.join.followers[0].widest_slack
    assert seen == widest if widest <= arrival.slack else arrival.slack < seen <= widest


def test_a_tuple_without_an_offset_is_refused():
    run = in_partitions(sj.clustered()).local()
    with pytest.raises(sj.BadInput, match="stream 'a': row 1 of the batch has no offset"):
        run.push("a", pa.table({"k": [3, 4], "x": [1, 2], "p": ["p", "p"], "o": [1, None]}))
