"""The rules of docs/semantics.md, each as a short story: valid, useless, finished, ranges, memory."""

import pytest

import streamjoin as sj
from tests.tables import EMPTY, NOTHING, Story, stream, unbounded_is_meant

pytestmark = unbounded_is_meant

IN_TIME = {"time": "t", "lateness": "0 seconds"}


def window(seconds, **more):
    return {**IN_TIME, "window": f"{seconds} seconds", **more}


def plain(a=None, b=None, **options):
    """a(k, x) with b(k, y)."""
    return sj.join(stream("a", "k x", **(a or {})), stream("b", "k y", **(b or {})), **options)


def timed(**declared):
    """Inputs with a key and a time, in the order given; a result is (k, t, t, …)."""
    return sj.join(*(stream(name, "k t:time", **{**IN_TIME, **said}) for name, said in declared.items()))


def many(count, **declared):
    """a(k, a_x) with b(k, b_x) with …"""
    return sj.join(*(stream(name, f"k {name}_x", **declared.get(name, {})) for name in "abcd"[:count]))


# ---------------------------------------------------------------- valid result


def test_equal_keys_join_whichever_comes_first(story):
    run = story(plain())
    assert run.push("a", "k x\n1 10\n2 20") == NOTHING
    assert run.push("b", "k y\n2 200\n3 300") == [(2, 20, 200)]
    assert run.push("a", "k x\n3 30") == [(3, 30, 300)]
    assert run.push("a", "k x\n3 31") == [(3, 31, 300)]
    assert run.held() == {"a": 4, "b": 2}


def test_rows_of_one_batch_join_each_other_once(story):
    run = story(plain())
    assert run.step(a="k x\n1 10\n2 20", b="k y\n1 100\n3 300") == [(1, 10, 100)]
    assert run.step(a="k x\n3 30", b="k y\n3 301\n2 200") == [(2, 20, 200), (3, 30, 300), (3, 30, 301)]


def test_equal_rows_are_rows_of_their_own(story):
    run = story(plain())
    run.push("a", "k x\n1 10\n1 10")
    assert run.push("b", "k y\n1 5\n1 5") == [(1, 10, 5)] * 4
    assert run.push("b", "k y\n1 5") == [(1, 10, 5)] * 2


def test_null_keys_never_match_and_are_counted_not_stored(story):
    run = story(plain())
    run.push("a", "k x\n- 10\n1 11\n- 12")
    assert run.push("b", "k y\n- 100\n1 101") == [(1, 11, 101)]
    assert run.held() == {"a": 1, "b": 1}
    assert (run.count("a_null_keys"), run.count("b_null_keys"), run.count("a_rows")) == (2, 1, 3)
    assert run.violations() == []


def test_one_null_column_makes_a_composite_key_null(story):
    run = story(sj.join(stream("a", "k l:str x", key=["k", "l"]), stream("b", "k l:str y", key=["k", "l"])))
    run.push("a", "k l x\n1 u 10\n1 - 11\n- u 12")
    assert run.push("b", "k l y\n1 u 100\n1 - 101\n- u 102\n1 v 103") == [(1, "u", 10, 100)]
    assert run.count("a_null_keys") == run.count("b_null_keys") == 2


def test_inputs_are_matched_by_position_of_their_key_columns(story):
    left = stream("left", "k l:str x", key=["k", "l"])
    right = stream("right", "m:str n y", key=["n", "m"])
    run = story(sj.join(left, right))
    run.push("left", "k l x\n1 u 10")
    assert run.push("right", "m n y\nu 1 100") == [(1, "u", 10, 100)]


def test_a_stream_joins_itself_under_two_names(story):
    run = story(sj.join(stream("one", "k x"), stream("two", "k x")))
    rows = "k x\n1 10\n1 11"
    assert run.step(one=rows, two=rows) == [(1, 10, 10), (1, 10, 11), (1, 11, 10), (1, 11, 11)]


def test_three_inputs(story):
    run = story(many(3))
    run.push("a", "k a_x\n1 10\n1 11\n2 20")
    assert run.push("b", "k b_x\n1 100\n2 200\n3 300") == NOTHING
    assert run.push("c", "k c_x\n1 7\n1 8\n3 9") == [
        (1, 10, 100, 7),
        (1, 10, 100, 8),
        (1, 11, 100, 7),
        (1, 11, 100, 8),
    ]
    assert run.push("a", "k a_x\n3 30") == [(3, 30, 300, 9)]


def test_four_inputs_in_any_order_of_arrival(story):
    run = story(many(4))
    for name, text in (("c", "k c_x\n1 3"), ("a", "k a_x\n1 1"), ("d", "k d_x\n1 4\n1 5")):
        assert run.push(name, text) == NOTHING
    assert run.push("b", "k b_x\n1 2\n2 2") == [(1, 1, 2, 3, 4), (1, 1, 2, 3, 5)]
    assert run.push("c", "k c_x\n1 33") == [(1, 1, 2, 33, 4), (1, 1, 2, 33, 5)]


def test_keys_that_share_a_hash_are_different_keys():
    run = Story(plain(), "one hash")
    run.push("a", "k x\n1 10\n2 20\n1 11")
    assert run.push("b", "k y\n2 200\n3 300") == [(2, 20, 200)]
    run.punctuate("b", k=1)
    assert run.held() == {"a": 1, "b": 2}
    assert run.push("b", "k y\n2 201\n1 100") == [(2, 20, 201)]
    assert run.violations() == [("b", "after_punctuation", 1, 100)]


# ---------------------------------------------------------------- windows


def test_the_bound_of_a_window_is_inside(story):
    run = story(timed(a=window(4), b=window(100)))
    run.push("a", "k t\n1 10")
    assert run.push("b", "k t\n1 14\n1 15") == [(1, 10, 14)]


def test_only_the_window_of_the_earlier_tuple_is_asked(story):
    run = story(timed(a=window(4), b=window(20)))
    run.push("b", "k t\n1 10")
    assert run.push("a", "k t\n1 30\n1 31") == [(1, 30, 10)]


def test_an_input_without_a_window_waits_for_ever(story):
    run = story(timed(a=window(4), b={}))
    run.push("b", "k t\n1 10")
    assert run.push("a", "k t\n1 100000") == [(1, 100000, 10)]
    assert run.push("b", "k t\n1 100005") == NOTHING


def test_with_three_inputs_the_latest_of_all_counts(story):
    run = story(timed(a=window(10), b=window(3), c=window(100)))
    run.push("a", "k t\n1 10\n2 10")
    run.push("b", "k t\n1 15\n2 17")
    # 18 - 15 = 3 and 18 - 10 = 8 are inside; 21 - 10 = 11 is not
    assert run.push("c", "k t\n1 18\n2 21") == [(1, 10, 15, 18)]


# ------------------------------------------------------- useless on arrival, on punctuation, on watermark


def test_useless_on_arrival_it_joins_and_is_not_kept(story):
    run = story(plain())
    run.push("a", "k x\n1 10")
    run.punctuate("a", k=1)
    assert run.push("b", "k y\n1 100") == [(1, 10, 100)]
    assert run.held() == {"a": 1, "b": 0}
    assert run.count("b_not_stored") == 1


def test_useless_on_punctuation_it_is_purged(story):
    run = story(plain())
    run.push("a", "k x\n1 10\n1 11\n2 20")
    run.push("b", "k y\n1 100")
    assert run.punctuate("b", k=1) == NOTHING
    assert run.held() == {"a": 1, "b": 1}
    assert run.count("a_purged") == 2


def test_useless_on_watermark_it_is_invalidated(story):
    run = story(timed(a=window(4), b=window(4)))
    run.push("a", "k t\n1 10\n2 11\n3 99")
    run.push("b", "k t\n9 14")  # P_b = 14 = 10 + 4: a tuple at 14 may still come
    assert run.held() == {"a": 3, "b": 0}  # b's own tuple came after a's 99
    run.push("b", "k t\n9 15")
    assert run.held()["a"] == 2
    run.advance("b", 16)
    assert run.held()["a"] == 1
    assert run.count("a_invalidated") == 2


def test_a_tuple_past_its_window_joins_what_is_there_and_is_not_kept(story):
    run = story(timed(a=window(4), b={}))
    run.advance("b", 100)
    assert run.push("a", "k t\n1 95\n2 96") == NOTHING
    assert run.held() == {"a": 1, "b": 0}  # 95 + 4 < 100
    assert run.count("a_not_stored") == 1


def test_every_other_input_must_have_let_go(story):
    run = story(many(3))
    run.push("a", "k a_x\n1 10")
    run.push("b", "k b_x\n1 20")
    run.push("c", "k c_x\n1 30")
    run.punctuate("b", k=1)
    assert run.held() == {"a": 1, "b": 1, "c": 1}
    run.punctuate("c", k=1)
    assert run.held() == {"a": 0, "b": 1, "c": 1}
    assert run.push("a", "k a_x\n1 11") == [(1, 11, 20, 30)]
    run.punctuate("a", k=1)
    assert run.state() == EMPTY


def test_closed_on_one_and_passed_on_another(story):
    """Each other input lets go in its own way, whichever comes first."""
    for first in ("punctuation", "own_watermarks"):
        run = story(timed(a=window(4), b=window(50), c=window(50)))
        run.push("b", "k t\n1 9")
        run.push("a", "k t\n1 10\n2 10")
        if first == "punctuation":
            run.punctuate("b", k=1)
            assert run.held()["a"] == 2
            run.advance("c", 15)
        else:
            run.advance("c", 15)
            assert run.held()["a"] == 2
            run.punctuate("b", k=1)
        assert run.held()["a"] == 1  # key 2 is still open on b
        run.advance("b", 14)
        assert run.held()["a"] == 1
        run.advance("b", 15)
        assert run.held()["a"] == 0


def test_a_tuple_at_the_very_bound_is_not_passed_yet(story):
    run = story(timed(a=window(4), b=window(50), c=window(50)))
    run.push("b", "k t\n1 9")
    run.push("a", "k t\n1 10")
    run.advance("c", 14)  # a tuple of c at 14 may still come: 14 - 10 = 4
    run.punctuate("b", k=1)
    assert run.held()["a"] == 1
    assert run.push("c", "k t\n1 14") == [(1, 10, 9, 14)]


# ---------------------------------------------------------------- finished


def test_a_key_is_finished_when_every_input_is_closed(story):
    """Theorem 3.1: the regular punctuation."""
    run = story(plain())
    run.push("a", "k x\n1 10")
    run.push("b", "k y\n1 100")
    run.punctuate("a", k=1)
    assert run.punctuations() == []
    run.punctuate("b", k=1)
    assert run.punctuations() == ["<1>"]
    assert run.state() == EMPTY


def test_a_key_is_finished_early_when_a_closed_input_holds_nothing_of_it(story):
    """Theorem 4.1: early propagation."""
    run = story(plain())
    run.push("b", "k y\n1 100\n1 101\n2 200")
    run.punctuate("a", k=1)
    assert run.punctuations() == ["<1>"]
    assert run.held() == {"a": 0, "b": 1}
    assert run.count("b_purged") == 2


def test_a_key_is_finished_when_time_takes_the_last_tuple_of_a_closed_input(story):
    run = story(timed(a=window(4), b=window(100)))
    run.push("a", "k t\n1 10\n2 10")
    run.push("b", "k t\n1 12")
    run.punctuate("a", k=1)
    assert run.punctuations() == []
    run.advance("b", 14)
    assert run.punctuations() == []
    run.advance("b", 15)
    assert run.punctuations() == ["<1>"]  # key 2 may come again on a
    assert run.held() == {"a": 0, "b": 0}


def test_with_three_inputs_one_that_is_closed_and_empty_finishes_a_key(story):
    run = story(many(3))
    run.push("a", "k a_x\n1 10")
    run.push("b", "k b_x\n1 20")
    run.punctuate("c", k=1)
    assert run.punctuations() == ["<1>"]
    assert run.held() == {"a": 0, "b": 0, "c": 0}
    assert run.push("a", "k a_x\n1 11") == NOTHING
    assert run.count("a_not_stored") == 1


def test_a_key_that_was_never_held_is_propagated_when_it_is_punctuated(story):
    run = story(plain())
    run.punctuate("a", k=7)
    assert run.punctuations() == ["<7>"]


def test_a_key_is_propagated_once(story):
    run = story(plain())
    run.push("b", "k y\n1 100")
    run.punctuate("a", k=1)
    assert run.punctuations() == ["<1>"]
    run.punctuate("a", k=1)
    run.push("b", "k y\n1 101")
    run.punctuate("b", k=1)
    assert run.punctuations() == []
    assert run.state() == EMPTY


def test_arrivals_after_the_finish_are_dropped_on_an_open_input_and_violations_on_a_closed_one(story):
    run = story(plain())
    run.punctuate("a", k=1)
    assert run.punctuations() == ["<1>"]
    assert run.push("b", "k y\n1 100\n1 101") == NOTHING
    assert run.count("b_not_stored") == 2
    assert run.violations() == []
    assert run.push("a", "k x\n1 10") == NOTHING
    assert run.violations() == [("a", "after_punctuation", 1, 10)]
    assert run.count("a_after_punctuation") == 1
    assert run.held() == {"a": 0, "b": 0}


def test_a_key_is_not_finished_while_a_closed_input_holds_a_useful_tuple(story):
    run = story(plain())
    run.push("a", "k x\n1 10")
    run.punctuate("a", k=1)
    assert run.punctuations() == []
    assert run.push("b", "k y\n1 100") == [(1, 10, 100)]
    assert run.push("b", "k y\n1 101") == [(1, 10, 101)]
    run.punctuate("b", k=1)
    assert run.punctuations() == ["<1>"]


def test_without_propagation_nothing_is_propagated_and_all_else_is_the_same(story):
    run = story(plain(propagate=False))
    run.push("b", "k y\n1 100")
    run.punctuate("a", k=1)
    assert run.punctuations() == []
    assert run.push("b", "k y\n1 101") == NOTHING
    assert run.held() == {"a": 0, "b": 0}
    run.punctuate("b", k=1)
    assert run.state() == EMPTY


# ---------------------------------------------------------------- ranges, lists, patterns


def test_a_range_finishes_the_keys_it_covers_and_propagates_each(story):
    run = story(plain())
    run.push("b", "k y\n1 100\n5 500\n6 600")
    run.punctuate("a", k=sj.between(1, 5))
    assert run.punctuations() == ["<1>", "<5>"]
    assert run.held() == {"a": 0, "b": 1}
    assert run.push("b", "k y\n3 300\n6 601") == NOTHING
    assert run.count("b_not_stored") == 1  # key 3 has never been held: nothing to propagate
    assert run.punctuations() == []
    run.push("a", "k x\n3 30")
    assert run.violations() == [("a", "after_punctuation", 3, 30)]


@pytest.mark.parametrize(
    ("closed", "open_keys"),
    [
        (sj.between(2, 4), {1, 5}),
        (sj.between(2, 4, low_closed=False), {1, 2, 5}),
        (sj.between(2, 4, high_closed=False), {1, 4, 5}),
        (sj.between(2, 4, low_closed=False, high_closed=False), {1, 2, 4, 5}),
        (sj.between(None, 2), {3, 4, 5}),
        (sj.between(3, None, low_closed=False), {1, 2, 3}),
        (sj.between(3, 3), {1, 2, 4, 5}),
        (sj.between(4, 2), {1, 2, 3, 4, 5}),
        (sj.between(None, None), set()),
        ([2, 4], {1, 3, 5}),
        ([], {1, 2, 3, 4, 5}),
        (sj.ANY, set()),
    ],
    ids=str,
)
def test_every_pattern(story, closed, open_keys):
    run = story(plain())
    run.push("b", "k y\n1 1\n2 2\n3 3\n4 4\n5 5")
    run.punctuate("a", k=closed)
    assert run.held()["b"] == len(open_keys)
    found = run.push("a", "k x\n1 1\n2 2\n3 3\n4 4\n5 5")
    assert {key for key, *_ in found} == open_keys


def test_a_list_is_split_into_constants(story):
    run = story(plain())
    run.push("b", "k y\n1 100")
    run.punctuate("a", k=[1, 2, 3, 2])
    assert run.punctuations() == ["<1>", "<2>", "<3>"]
    assert run.count("a_punctuations") == 3


def test_ranges_that_meet_from_both_sides_finish_what_was_held(story):
    run = story(plain())
    run.push("a", "k x\n1 10\n4 40\n8 80")
    run.push("b", "k y\n4 400")
    run.punctuate("a", k=sj.between(1, 5))
    assert run.punctuations() == []
    run.punctuate("b", k=sj.between(3, 9))
    assert run.punctuations() == ["<4>", "<8>", "<[3, 5]>"]  # 4 is closed on both; 8 on b, which holds none
    assert run.held() == {"a": 1, "b": 0}
    assert run.push("b", "k y\n1 100") == [(1, 10, 100)]


def test_a_closed_and_absent_key_of_a_range_is_finished_too(story):
    run = story(plain())
    run.push("a", "k x\n8 80")
    run.punctuate("b", k=sj.between(3, 9))
    assert run.punctuations() == ["<8>"]
    assert run.held() == {"a": 0, "b": 0}


PLACES = {"key": ["k", "l"]}


def places(a=None, b=None):
    return sj.join(
        stream("a", "k l:str x", **PLACES, **(a or {})), stream("b", "k l:str y", **PLACES, **(b or {}))
    )


def test_patterns_of_a_composite_key(story):
    run = story(places())
    run.push("b", "k l y\n1 u 10\n1 v 11\n2 u 20\n3 w 30")
    run.punctuate("a", k=1, l=sj.ANY)
    assert run.punctuations() == ['<1, "u">', '<1, "v">']
    run.punctuate("a", k=sj.ANY, l=sj.between("w", None))
    assert run.punctuations() == ['<3, "w">']
    assert run.push("b", "k l y\n1 z 12\n2 u 21\n9 x 90") == NOTHING
    assert run.held() == {"a": 0, "b": 2}
    run.punctuate("a", k=[2, 5], l=["u", "v"])
    assert run.punctuations() == ['<2, "u">', '<2, "v">', '<5, "u">', '<5, "v">']
    assert run.held() == {"a": 0, "b": 0}


def test_only_a_punctuation_that_leaves_the_other_columns_free_closes_a_key(story):
    run = story(plain())
    run.push("b", "k y\n1 100\n2 200")
    run.punctuate("a", sj.Punctuation.parse("<1, 5>", run.run.plan.streams[0].schema.types))
    assert run.punctuations() == []
    assert run.push("a", "k x\n1 10") == [(1, 10, 100)]
    run.punctuate("a", sj.Punctuation.parse("<[1, 2], *>", run.run.plan.streams[0].schema.types))
    assert run.punctuations() == ["<2>"]
    run.push("a", "k x\n1 11")
    assert run.violations() == [("a", "after_punctuation", 1, 11)]


# ---------------------------------------------------------------- stored punctuations


def test_a_punctuation_is_remembered_while_another_input_is_open(story):
    run = story(many(3))
    run.punctuate("a", k=1)
    assert run.state().closed_keys > 0
    run.punctuate("b", k=1)
    assert run.state().closed_keys > 0
    run.punctuate("c", k=1)
    assert run.state() == EMPTY


def test_once_closed_everywhere_it_is_forgotten_and_the_key_is_new(story):
    run = story(plain())
    run.punctuate("a", k=1)
    run.punctuate("b", k=1)
    assert run.state() == EMPTY
    run.push("a", "k x\n1 10")
    assert run.push("b", "k y\n1 100") == [(1, 10, 100)]
    assert run.violations() == []


def test_a_punctuation_that_merged_into_a_range_stays(story):
    run = story(plain())
    run.punctuate("a", k=1)
    run.punctuate("a", k=sj.between(1, 5))
    run.punctuate("b", k=1)
    run.push("a", "k x\n1 10")
    assert run.violations() == [("a", "after_punctuation", 1, 10)]


def test_nothing_is_remembered_of_many_keys_that_came_and_went(story):
    run = story(plain(a={"unique": True}))
    for key in range(50):
        run.push("a", f"k x\n{key} 1")
        run.push("b", f"k y\n{key} 2")
        run.punctuate("b", k=key)
        assert run.state() == EMPTY
    assert len(run.punctuations()) == 50


# ---------------------------------------------------------------- the end


def test_the_end_of_an_input_closes_every_key_on_it(story):
    run = story(plain())
    run.push("a", "k x\n1 10")
    run.push("b", "k y\n1 100\n2 200")
    run.end("a")
    assert run.punctuations() == ["<2>"]
    assert run.held() == {"a": 1, "b": 0}
    assert run.push("b", "k y\n1 101\n3 300") == [(1, 10, 101)]
    run.push("a", "k x\n5 50")
    assert run.violations() == [("a", "after_punctuation", 5, 50)]
    run.end("b")
    assert run.punctuations() == ["<1>"]
    assert run.state() == EMPTY


def test_finish_ends_all(story):
    run = story(many(4, a={"unique": True}))
    run.push("a", "k a_x\n1 10")
    run.push("b", "k b_x\n1 20\n2 20")
    run.punctuate("c", k=[5, 6])
    run.punctuations()
    assert run.finish() == NOTHING
    assert run.punctuations() == ["<1>", "<2>"]
    assert run.state() == EMPTY
