"""Beside plain rows: marked and closing rows, their order, punctuations of several partitions."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import streamjoin as sj
from tests.tables import EMPTY, NOTHING, Story, stream, unbounded_is_meant

pytestmark = unbounded_is_meant


def marked(columns="k x end:bool", b="k y", **more):
    """a's rows with `end` are punctuations."""
    more.setdefault("punctuation", sj.marked("end"))
    return sj.join(stream("a", columns, **more), stream("b", b))


# ---------------------------------------------------------------- marked


def test_a_marked_row_is_a_punctuation_and_no_data(story):
    run = story(marked())
    run.push("b", "k y\n1 100\n2 200")
    assert run.push("a", "k x end\n1 10 false\n2 - true") == [(1, 10, 100)]
    assert run.punctuations() == ["<2>"]
    assert run.held() == {"a": 1, "b": 1}
    assert (run.count("a_rows"), run.count("a_punctuations")) == (1, 1)


def test_a_flag_that_is_null_marks_nothing(story):
    run = story(marked())
    run.push("b", "k y\n1 100")
    assert run.push("a", "k x end\n1 10 -") == [(1, 10, 100)]


def test_the_other_columns_of_a_marked_row_do_not_matter(story):
    run = story(
        sj.join(
            stream(
                "a",
                "k t:time x end:bool",
                time="t",
                window="10 seconds",
                lateness="0 seconds",
                punctuation=sj.marked("end"),
            ),
            stream("b", "k t:time y", time="t", window="10 seconds", lateness="0 seconds"),
        )
    )
    run.push("b", "k t y\n1 10 100")
    run.push("a", "k t x end\n1 - - true\n2 9999 - true")
    assert run.punctuations() == ["<1>", "<2>"]
    run.push("a", "k t x end\n3 5 1 false")  # the marked row's time was no progress
    assert run.violations() == []


def test_without_a_sequence_marks_act_after_the_rows_of_their_batch(story):
    run = story(marked())
    run.push("b", "k y\n1 100")
    assert run.push("a", "k x end\n1 - true\n1 10 false") == [(1, 10, 100)]
    assert run.violations() == []
    run.push("a", "k x end\n1 11 false")
    assert run.violations() == [("a", "after_punctuation", 1, 11)]


def test_with_a_sequence_marks_act_after_what_came_before_them(story):
    run = story(marked("k x end:bool o", sequence="o"))
    run.push("b", "k y\n1 100")
    assert run.push("a", "k x end o\n1 - true 2\n1 11 false 3\n1 10 false 1") == [(1, 10, 100)]
    assert run.violations() == [("a", "after_punctuation", 1, 11)]


def test_a_mark_speaks_for_its_own_key_only(story):
    run = story(marked("k x end:bool o", sequence="o"))
    run.push("b", "k y\n1 100\n2 200")
    assert run.push("a", "k x end o\n1 - true 1\n2 20 false 2") == [(2, 20, 200)]
    assert run.violations() == []


def test_a_punctuation_acts_between_the_rows_of_a_batch():
    """One row at a time: b's row of key 1 comes when a is closed for it already."""

    def told(sequence):
        joined = sj.join(
            stream("a", "k x end:bool o", columns=["x"], sequence=sequence, punctuation=sj.marked("end")),
            stream("b", "k y"),
            driver=sj.RoundRobin(quota=1),
        )
        run = Story(joined)
        found = run.step(a="k x end o\n1 10 false 1\n1 - true 2\n2 20 false 3", b="k y\n1 100\n2 200")
        assert found == [(1, 10, 100), (2, 20, 200)]
        return run.count("b_not_stored"), run.count("b_purged")

    assert told("o") == (1, 0)
    assert told(None) == (0, 1)


def test_a_null_key_of_a_mark_is_a_violation(story):
    run = story(marked())
    run.push("a", "k x end\n1 10 false\n- - true")
    assert run.violations() == [("a", "null_punctuation", None, None)]
    assert run.held() == {"a": 1, "b": 0}


def test_a_null_key_is_a_wildcard_where_that_is_declared(story):
    run = story(marked(punctuation=sj.marked("end", null_is_wildcard=True)))
    run.push("b", "k y\n1 100\n2 200")
    assert run.push("a", "k x end\n1 10 false\n- - true") == [(1, 10, 100)]
    assert run.punctuations() == ["<2>"]
    run.push("a", "k x end\n3 30 false")
    assert run.violations() == [("a", "after_punctuation", 3, 30)]


def test_a_null_in_one_of_two_key_columns_is_a_wildcard_for_it(story):
    keys = ["k", "l"]
    a = stream("a", "k l:str end:bool", key=keys, punctuation=sj.marked("end", null_is_wildcard=True))
    run = story(sj.join(a, stream("b", "k l:str y", key=keys)))
    run.push("b", "k l y\n1 u 1\n1 v 2\n2 u 3")
    run.push("a", "k l end\n1 - true")
    assert run.punctuations() == ['<1, "u">', '<1, "v">']
    run.push("a", "k l end\n- u true")
    assert run.punctuations() == ['<2, "u">']
    assert run.held() == {"a": 0, "b": 0}


def test_a_wildcard_with_a_sequence_acts_after_what_came_before_it(story):
    a = sj.marked("end", null_is_wildcard=True)
    run = story(marked("k x end:bool o", punctuation=a, sequence="o"))
    run.push("b", "k y\n1 100\n2 200")
    assert run.push("a", "k x end o\n1 10 false 1\n- - true 2\n2 20 false 3") == [(1, 10, 100)]
    assert run.violations() == [("a", "after_punctuation", 2, 20)]


# ---------------------------------------------------------------- partitions


def parted(partitions=2, **more):
    punctuation = sj.marked("end", partitions=partitions, **more)
    return marked("k x end:bool part:str o", punctuation=punctuation, sequence=["part", "o"])


def test_with_one_partition_a_mark_counts_at_once(story):
    run = story(parted(1))
    run.push("a", "k x end part o\n1 - true p 1")
    assert run.punctuations() == ["<1>"]


def test_a_mark_counts_when_every_partition_has_made_it(story):
    run = story(parted(3))
    run.push("b", "k y\n1 100")
    run.push("a", "k x end part o\n1 - true p 1\n1 - true p 2\n1 - true q 1")
    assert run.punctuations() == []
    assert run.state().closed_keys == 2
    assert run.push("a", "k x end part o\n1 10 false r 1\n1 - true r 2\n2 - true r 3") == [(1, 10, 100)]
    assert run.punctuations() == []  # a holds a tuple of key 1, and b is open
    assert run.held() == {"a": 1, "b": 0}
    run.push("a", "k x end part o\n1 11 false q 9")
    assert run.violations() == [("a", "after_punctuation", 1, 11)]
    run.punctuate("b", k=1)
    assert run.punctuations() == ["<1>"]
    assert run.state().closed_keys == 1  # the pledge of r for key 2


def test_until_then_no_row_is_a_violation(story):
    run = story(parted())
    run.push("b", "k y\n1 100")
    assert run.push("a", "k x end part o\n1 - true p 1\n1 10 false q 1\n1 11 false p 2") == [
        (1, 10, 100),
        (1, 11, 100),
    ]
    assert run.violations() == []


def test_partitions_may_speak_in_one_batch(story):
    run = story(parted())
    run.push("a", "k x end part o\n1 - true p 1\n1 - true q 1\n2 - true q 2")
    assert run.punctuations() == ["<1>"]


def test_a_wildcard_of_one_partition_is_a_wildcard_of_that_partition_only(story):
    """The other partition has sent no punctuation yet: it counts when all have."""
    run = story(parted(null_is_wildcard=True))
    run.push("b", "k y\n1 100")
    run.push("a", "k x end part o\n- - true p 1")
    assert run.punctuations() == []
    assert run.push("a", "k x end part o\n1 10 false q 1") == [(1, 10, 100)]
    assert run.violations() == []
    run.push("a", "k x end part o\n- - true q 2")
    run.push("a", "k x end part o\n1 11 false q 3")
    assert run.violations() == [("a", "after_punctuation", 1, 11)]


def test_a_punctuation_of_the_whole_input_counts_at_once(story):
    run = story(parted())
    run.punctuate("a", k=1)
    assert run.punctuations() == ["<1>"]
    run.end("a")
    run.push("a", "k x end part o\n5 50 false p 1")
    assert run.violations() == [("a", "after_punctuation", 5, 50)]


def test_pledges_are_forgotten_when_their_key_is_closed_in_another_way(story):
    run = story(parted())
    run.push("a", "k x end part o\n1 - true p 1\n2 - true p 2\n3 - true p 3")
    assert run.state().closed_keys == 3
    run.punctuate("a", k=1)
    run.punctuate("b", k=1)
    assert run.state().closed_keys == 2
    run.finish()
    assert run.state() == EMPTY


def test_a_mark_more_than_was_needed_is_no_pledge(story):
    run = story(parted())
    run.push("b", "k y\n1 100")
    run.push("a", "k x end part o\n1 - true p 1\n1 - true q 1")
    assert run.punctuations() == ["<1>"]
    before = run.state().closed_keys
    run.push("a", "k x end part o\n1 - true p 2")
    assert run.state().closed_keys == before
    assert run.punctuations() == []


def test_rows_of_two_partitions_have_no_common_order(story):
    """A higher offset in another partition is not behind the mark."""
    run = story(marked("k x end:bool part:str o", sequence=["part", "o"]))
    run.push("b", "k y\n1 100")
    found = run.push("a", "k x end part o\n1 - true p 5\n1 10 false q 9\n1 11 false p 9\n1 12 false p 1")
    assert found == [(1, 10, 100), (1, 12, 100)]
    assert run.violations() == [("a", "after_punctuation", 1, 11)]


# ---------------------------------------------------------------- closing


CONDITIONS = {
    "a column": (sj.closing("last"), lambda x: "true" if x == 9 else "false"),
    "an expression": (sj.closing(pc.field("x") == 9), lambda x: "false"),
    "a wider expression": (sj.closing((pc.field("x") > 8) & pc.field("last").is_valid()), lambda x: "false"),
}


@pytest.mark.parametrize("how", CONDITIONS)
def test_a_closing_row_is_the_last_of_its_key_and_joins(story, how):
    condition, flag = CONDITIONS[how]
    run = story(
        sj.join(stream("a", "k x last:bool", punctuation=condition, columns=["x"]), stream("b", "k y"))
    )
    run.push("b", "k y\n1 100\n2 200")
    assert run.push("a", f"k x last\n1 8 {flag(8)}\n2 8 {flag(8)}") == [(1, 8, 100), (2, 8, 200)]
    assert run.push("a", f"k x last\n1 9 {flag(9)}") == [(1, 9, 100)]
    assert run.held() == {"a": 3, "b": 1}
    run.push("a", f"k x last\n1 7 {flag(7)}\n2 7 {flag(7)}")
    assert run.violations() == [("a", "after_punctuation", 1, 7)]


def test_an_auction_closed_by_its_last_bid_forgets_itself(story):
    auction = stream("auction", "id item:str", unique=True)
    bid = stream("bid", "id price:float last:bool", punctuation=sj.closing("last"), columns=["price"])
    run = story(sj.join(auction, bid))
    run.push("auction", "id item\n180 tea\n181 pot")
    assert run.push("bid", "id price last\n180 1.5 false\n180 2.5 true") == [
        (180, "tea", 1.5),
        (180, "tea", 2.5),
    ]
    assert run.punctuations() == ["<180>"]
    assert run.held() == {"auction": 1, "bid": 0}


def test_a_condition_that_is_null_closes_nothing(story):
    run = story(sj.join(stream("a", "k x last:bool", punctuation=sj.closing("last")), stream("b", "k y")))
    run.push("a", "k x last\n1 1 -")
    run.push("a", "k x last\n1 2 false")
    assert run.violations() == []


def test_with_a_sequence_rows_behind_the_closing_one_are_violations(story):
    a = stream("a", "k x last:bool o", punctuation=sj.closing("last"), sequence="o", columns=["x"])
    run = story(sj.join(a, stream("b", "k y")))
    run.push("b", "k y\n1 100")
    assert run.push("a", "k x last o\n1 3 false 3\n1 2 true 2\n1 1 false 1") == [(1, 1, 100), (1, 2, 100)]
    assert run.violations() == [("a", "after_punctuation", 1, 3)]


def test_one_row_at_a_time_a_closing_row_still_joins_before_it_closes(story):
    a = stream("a", "k x last:bool o", punctuation=sj.closing("last"), sequence="o", columns=["x"])
    run = story(sj.join(a, stream("b", "k y"), driver=sj.RoundRobin(quota=1)))
    run.push("b", "k y\n1 100\n2 200")
    assert run.push("a", "k x last o\n1 1 true 1\n2 2 true 2\n2 3 false 3") == [(1, 1, 100), (2, 2, 200)]
    assert run.violations() == [("a", "after_punctuation", 2, 3)]


def test_without_a_sequence_the_rows_of_its_batch_come_before_it(story):
    run = story(
        sj.join(
            stream("a", "k x last:bool", punctuation=sj.closing("last"), columns=["x"]), stream("b", "k y")
        )
    )
    run.push("b", "k y\n1 100")
    assert run.push("a", "k x last\n1 2 true\n1 3 false") == [(1, 2, 100), (1, 3, 100)]
    assert run.violations() == []


def test_a_closing_row_without_a_key_closes_nothing(story):
    run = story(sj.join(stream("a", "k x last:bool", punctuation=sj.closing("last")), stream("b", "k y")))
    assert run.push("a", "k x last\n- 1 true") == NOTHING
    run.push("b", "k y\n1 100")
    assert run.push("a", "k x last\n1 1 false") == [(1, 1, False, 100)]


def test_a_large_table_in_many_chunks_keeps_its_order():
    """A condition is computed chunk by chunk; each row keeps its own answer."""
    rows = 300_000
    a = sj.stream(
        pa.schema({"k": pa.int64()}), name="a", key="k", punctuation=sj.closing(pc.field("k") < 1000)
    )
    b = sj.stream(pa.schema({"k": pa.int64()}), name="b", key="k")
    run = sj.join(a, b).local()
    half = rows // 2
    table = pa.concat_tables([pa.table({"k": list(range(half, rows))}), pa.table({"k": list(range(half))})])
    run.push("a", table)
    assert len(run.join.closed_keys[0].constants) == 1000
