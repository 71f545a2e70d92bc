"""Outer, semi and anti joins, and conditions on the joined row: what leaves, and when."""

import pyarrow.compute as pc
import pytest

import streamjoin as sj
from tests.tables import EMPTY, NOTHING, stream, unbounded_is_meant

pytestmark = unbounded_is_meant

IN_TIME = {"time": "t", "lateness": "0 seconds"}


def plain(how, a=None, b=None, **options):
    """a(k, x) with b(k, y)."""
    return sj.join(stream("a", "k x", **(a or {})), stream("b", "k y", **(b or {})), how=how, **options)


def timed(how, a=None, b=None):
    """a(k, x, t) with b(k, y, t), both in order of time."""
    left = stream("a", "k x t:time", **{**IN_TIME, **(a or {})}, columns=["x"])
    return sj.join(left, stream("b", "k y t:time", **{**IN_TIME, **(b or {})}, columns=["y"]), how=how)


# ---------------------------------------------------------------- outer


def test_an_unmatched_left_tuple_leaves_padded_when_its_key_is_closed(story):
    run = story(plain("left"))
    assert run.push("a", "k x\n1 10\n2 20\n2 21") == NOTHING
    assert run.push("b", "k y\n1 100") == [(1, 10, 100)]
    assert run.punctuate("b", k=1) == NOTHING
    assert run.punctuate("b", k=2) == [(2, 20, None), (2, 21, None)]
    assert run.held() == {"a": 0, "b": 1}
    assert run.count("a_padded") == 2


def test_a_left_tuple_of_a_closed_key_leaves_padded_on_arrival(story):
    run = story(plain("left"))
    run.punctuate("b", k=1)
    assert run.push("a", "k x\n1 10") == [(1, 10, None)]
    assert run.held()["a"] == 0


def test_never_a_padded_row_and_a_match_for_one_tuple(story):
    run = story(plain("left"))
    run.push("a", "k x\n1 10")
    assert run.push("b", "k y\n1 100") == [(1, 10, 100)]
    assert run.push("b", "k y\n1 101") == [(1, 10, 101)]
    run.push("a", "k x\n3 30\n4 40")  # the flag goes along when runs are merged
    assert run.punctuate("b", k=1) == NOTHING
    assert run.finish() == [(3, 30, None), (4, 40, None)]
    assert run.state() == EMPTY


def test_right_and_full_pad_the_other_way_and_both(story):
    for how, found in (("right", [(2, None, 200)]), ("full", [(1, 10, None), (2, None, 200)])):
        run = story(plain(how))
        run.push("a", "k x\n1 10\n3 30")
        assert run.push("b", "k y\n2 200\n3 300") == [(3, 30, 300)]
        assert run.finish() == found
        assert run.state() == EMPTY


def test_a_padded_row_leaves_when_its_window_has_passed(story):
    run = story(timed("left", a={"window": "10 seconds"}))
    run.push("a", "k x t\n1 10 0\n2 20 5")
    assert run.push("b", "k y t\n1 100 8") == [(1, 10, 100)]
    assert run.push("b", "k y t\n9 900 12") == NOTHING  # 1 has matched
    assert run.push("b", "k y t\n9 901 16") == [(2, 20, None)]
    assert run.held()["a"] == 0


def test_rows_with_null_keys_match_nothing_and_leave_padded(story):
    run = story(plain("full"))
    assert run.push("a", "k x\n- 10\n1 11") == [(None, 10, None)]
    assert run.push("b", "k y\n- 100") == [(None, None, 100)]
    assert run.finish() == [(1, 11, None)]
    assert run.count("a_null_keys") == 1


def test_a_key_is_propagated_only_when_no_padded_row_can_follow(story):
    run = story(plain("left"))
    run.punctuate("b", k=1)
    run.push("a", "k x\n1 10")
    assert run.punctuations() == []  # an inner join would say <1> at once
    assert run.push("a", "k x\n1 11") == [(1, 11, None)]
    run.punctuate("a", k=1)
    assert run.punctuations() == ["<1>"]


def test_left_for_three_inputs_keeps_each_tuple_of_the_first(story):
    run = story(sj.join(*(stream(name, f"k {name}_x") for name in "abc"), how="left"))
    run.push("a", "k a_x\n1 10\n2 20")
    run.push("b", "k b_x\n1 100\n2 200")
    assert run.push("c", "k c_x\n1 1000") == [(1, 10, 100, 1000)]
    assert run.end("c") == [(2, 20, None, None)]  # b is still open, but 2 will never be complete
    assert run.finish() == NOTHING
    assert run.state() == EMPTY


def test_a_key_that_nothing_completes_any_more_lets_its_left_tuples_go_at_once(story):
    run = story(sj.join(*(stream(name, f"k {name}_x") for name in "abc"), how="left"))
    run.push("a", "k a_x\n2 20")
    assert run.punctuate("c", k=2) == [(2, 20, None, None)]
    assert run.push("a", "k a_x\n2 21") == [(2, 21, None, None)]


# ---------------------------------------------------------------- semi and anti


def test_a_semi_join_gives_each_left_tuple_once_and_forgets_it(story):
    run = story(plain("left_semi"))
    run.push("a", "k x\n1 10\n1 11\n2 20")
    assert run.push("b", "k y\n1 100\n1 101") == [(1, 10), (1, 11)]
    assert run.push("b", "k y\n1 102") == NOTHING
    assert run.held()["a"] == 1
    assert run.push("a", "k x\n1 12") == [(1, 12)]
    assert run.held()["a"] == 1
    assert run.finish() == NOTHING


def test_an_anti_join_gives_what_matched_nothing_when_that_is_sure(story):
    run = story(plain("left_anti"))
    run.push("a", "k x\n1 10\n2 20\n2 21")
    assert run.push("b", "k y\n1 100") == NOTHING
    assert run.held()["a"] == 2
    assert run.punctuate("b", k=2) == [(2, 20), (2, 21)]
    assert run.push("a", "k x\n2 22") == [(2, 22)]
    assert run.finish() == NOTHING


def test_semi_and_anti_look_at_windows(story):
    for how, first, last in (("left_semi", [(1, 10)], NOTHING), ("left_anti", NOTHING, [(2, 20)])):
        run = story(timed(how, a={"window": "10 seconds"}))
        run.push("a", "k x t\n1 10 0\n2 20 0")
        assert run.push("b", "k y t\n1 100 10") == first
        assert run.push("b", "k y t\n2 200 11") == last


def test_a_semi_join_propagates_a_key_with_its_last_left_tuple(story):
    run = story(plain("left_semi", a={"unique": True}))
    run.push("a", "k x\n1 10")
    run.push("b", "k y\n1 100")
    assert run.punctuations() == ["<1>"]


# ---------------------------------------------------------------- conditions on the joined row


def test_a_condition_decides_what_is_a_match(story):
    run = story(plain("left", where=pc.field("y") > pc.field("x")))
    run.push("a", "k x\n1 10\n2 20")
    assert run.push("b", "k y\n1 100\n2 15\n2 -") == [(1, 10, 100)]
    assert run.finish() == [(2, 20, None)]


def test_a_condition_of_a_semi_join_may_speak_of_columns_that_do_not_leave(story):
    run = story(plain("left_semi", where=pc.field("y") > 5))
    run.push("a", "k x\n1 10")
    assert run.push("b", "k y\n1 5") == NOTHING
    assert run.push("b", "k y\n1 6") == [(1, 10)]


def test_a_condition_that_cannot_be_tested_is_refused():
    with pytest.raises(sj.InvalidJoin, match=r"where=.*give a pyarrow expression over k, x, y"):
        plain("inner", where=pc.field("z") > 5)
    with pytest.raises(sj.InvalidJoin, match=r"where='sqrt\(y\) > 5': the function sqrt.*; give a pyarrow"):
        plain("inner", where="sqrt(y) > 5")


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("spelt", "meant"),
    [
        ("leftouter", "left"),
        ("left_outer", "left"),
        ("outer", "full"),
        ("semi", "left_semi"),
        ("leftanti", "left_anti"),
    ],
)
def test_types_are_spelt_as_in_spark(spelt, meant):
    assert plain(spelt).plan.spec.how.name == meant


def test_an_unknown_type_or_too_many_inputs_are_refused():
    with pytest.raises(sj.InvalidJoin, match="how='cross'; give one of inner, left, right"):
        plain("cross")
    three = [stream(name, f"k {name}_x") for name in "abc"]
    with pytest.raises(sj.InvalidJoin, match="how='full' joins two inputs, this join has 3"):
        sj.join(*three, how="full")
