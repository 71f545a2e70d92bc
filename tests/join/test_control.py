"""Punctuations of a control source wait until their input's event time is past theirs, and then act."""

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.columnar.batch import Layout
from streamjoin.columnar.keys import hash_keys
from streamjoin.join.arrivals import Arrivals
from streamjoin.join.scheduled_punctuations import ScheduledPunctuations
from streamjoin.join.watermarks import END_OF_TIME
from streamjoin.join.wire import bucket_bounds, from_bytes, split, to_bytes, together
from streamjoin.punctuation import ANY, Constant, between
from streamjoin.state.sorted_runs import CompactionPolicy, RunNames
from tests.tables import EMPTY, NOTHING, Story, at, schema, stream, unbounded_is_meant

ONE = schema("k over:time")
LIST = schema("k:list over:time")
RANGE = schema("k_from k_to over:time")


def controlled(columns=ONE, *, on="k y t:time", **declared):
    """News that never end and access that is controlled."""
    declared = {"time": "t", "lateness": "0 seconds", **declared}
    keys = {"key": declared.pop("key", "k")}
    news = stream("news", on.replace("y", "x").replace("t:time", "s:time"), unique=True, **keys)
    access = stream("access", on, punctuation=sj.control(columns, time="over"), **keys, **declared)
    return sj.join(news, access)


# ---------------------------------------------------------------- when it acts


def test_a_punctuation_acts_strictly_after_its_time(story):
    run = story(controlled())
    run.push("news", "k x\n1 10\n2 20")
    assert run.control("access", "k over\n1 50") == NOTHING
    assert run.state().closed_keys == 3  # two news seen, one punctuation that waits
    run.push("access", "k y t\n1 1 49")
    run.push("access", "k y t\n2 2 50")  # P = 50 is not past 50
    assert (run.held()["news"], run.punctuations(), run.state().closed_keys) == (2, [], 3)
    assert run.push("access", "k y t\n1 3 50") == [(1, 10, None, 3, 50)]  # and so this one is in time
    run.push("access", "k y t\n2 4 51")
    assert (run.held()["news"], run.punctuations(), run.state().closed_keys) == (1, ["<1>"], 1)
    assert run.violations() == []


def test_rows_of_the_batch_in_which_time_passes_are_no_violations(story):
    run = story(controlled(on_violation="fail"))
    run.push("news", "k x\n1 10")
    run.control("access", "k over\n1 50")
    assert len(run.push("access", "k y t\n2 0 60\n1 1 61\n1 2 62")) == 2
    assert run.punctuations() == ["<1>"]


def test_lateness_holds_a_punctuation_back(story):
    run = story(controlled(lateness="10 seconds"))
    run.push("news", "k x\n1 10")
    run.control("access", "k over\n1 50")
    run.push("access", "k y t\n2 0 60")
    assert run.punctuations() == []
    run.push("access", "k y t\n2 0 61")
    assert run.punctuations() == ["<1>"]


def test_a_punctuation_for_a_time_that_is_past_acts_in_its_own_batch(story):
    run = story(controlled())
    run.push("news", "k x\n1 10\n2 20\n3 30")
    run.push("access", "k y t\n9 0 100")
    run.control("access", "k over\n1 99\n2 100\n3 101")
    assert run.punctuations() == ["<1>"]
    run.control("access", "k over\n3 20")
    assert run.punctuations() == ["<3>"]
    run.advance("access", 101)
    assert run.punctuations() == ["<2>"]
    run.advance("access", 102)  # 3 was over for all: its second punctuation went with it
    assert (run.punctuations(), run.state().closed_keys) == ([], 0)


def test_a_row_after_its_punctuation_has_acted_is_a_violation(story):
    run = story(controlled())
    run.control("access", "k over\n1 50")
    run.push("access", "k y t\n1 1 60")  # nothing waits for it: news 1 may come
    assert (run.held()["access"], run.violations()) == (1, [])
    run.push("access", "k y t\n1 2 61")
    assert run.violations() == [("access", "after_punctuation", 1, 2, 61)]


def test_punctuations_act_in_any_order_of_their_coming(story):
    run = story(controlled())
    run.push("news", "k x\n1 10\n2 20\n3 30\n4 40")
    run.control("access", "k over\n3 30\n1 10")
    run.control("access", "k over\n4 40\n2 20")
    done = []
    for second in (10, 11, 21, 30, 31, 100):
        run.advance("access", second)
        done.append(run.punctuations())
    assert done == [[], ["<1>"], ["<2>"], [], ["<3>"], ["<4>"]]
    assert run.state() == EMPTY


def test_all_that_waits_is_due_when_its_input_ends(story):
    run = story(controlled())
    run.control("access", "k over\n1 50")
    run.control("access", "k over\n- 60\n2 70")  # null: no more access at all
    run.advance("access", 61)
    assert run.punctuations() == ["<1>", "<2>"]
    run.push("news", "k x\n1 10\n3 30")
    assert (run.held()["news"], run.count("news_not_stored")) == (0, 2)
    run.control("access", "k over\n4 900")
    assert run.punctuations() == ["<3>", "<4>"]


@unbounded_is_meant
def test_an_input_that_ends_lets_an_idle_one_go_on_in_the_same_batch(story):
    """b is idle behind a and c; c ends by its control, so that b's punctuation is due at once."""
    timed = {"time": "t", "lateness": "0 seconds"}
    a = stream("a", "k x t:time", **timed)
    b = stream("b", "k y t:time", idle="5 seconds", punctuation=sj.control(ONE, time="over"), **timed)
    c = stream("c", "k z t:time", punctuation=sj.control(ONE, time="over"), **timed)
    run = story(sj.join(a, b, c))
    run.push("a", "k x t\n1 1 100")
    run.push("c", "k z t\n1 1 20")
    run.control("b", "k over\n1 50")
    run.control("c", "k over\n- 19")
    assert run.run.join.watermarks[1] == 95_000_000
    assert run.punctuations() == ["<1>"]
    assert run.state().closed_keys == 2  # b's of 1, which a keeps open, and that it was announced
    run.push("b", "k y t\n1 1 96")
    assert run.violations() == [("b", "after_punctuation", 1, 1, 96)]


# ---------------------------------------------------------------- forms


def test_a_list_is_as_many_keys_and_an_empty_one_none(story):
    run = story(controlled(LIST))
    run.push("news", "k x\n1 1\n2 2\n3 3")
    run.control("access", "k over\n{1,3,7} 10\n{} 10\n{2,-} 20")
    assert run.count("access_punctuations") == 4
    run.advance("access", 11)
    assert run.punctuations() == ["<1>", "<3>", "<7>"]
    run.advance("access", 21)  # the null in the list was no wildcard
    assert run.punctuations() == ["<2>"]
    run.push("access", "k y t\n8 0 22")
    assert run.violations() == []
    run.control("access", "k over\n- 0")
    run.push("access", "k y t\n8 0 23")
    assert run.violations() == [("access", "after_punctuation", 8, 0, 23)]


def test_a_range_has_both_its_ends_and_null_is_none(story):
    run = story(controlled(RANGE))
    run.push("news", "k x\n1 1\n2 2\n3 3\n4 4\n5 5")
    run.control("access", "k_from k_to over\n2 3 10\n5 5 10\n9 1 10\n- 1 20")
    assert run.state().closed_keys == 5 + 3  # the crossed one punctuations nothing
    run.advance("access", 10)
    assert run.punctuations() == []
    run.advance("access", 11)
    assert run.punctuations() == ["<2>", "<3>", "<5>"]
    run.advance("access", 30)
    assert run.punctuations() == ["<1>"]
    run.control("access", "k_from k_to over\n- - 0")
    assert run.punctuations() == ["<4>"]
    assert run.held() == {"news": 0, "access": 0}


PAIR = {"on": "k d:str y t:time", "key": ["k", "d"]}


def test_columns_of_a_composite_key_combine(story):
    run = story(controlled(schema("k_from k_to d:str over:time"), **PAIR))
    run.push("news", "k d x\n1 a 1\n2 a 2\n2 b 3\n3 a 4\n9 b 5")
    run.control("access", "k_from k_to d over\n1 2 a 10\n3 3 a 20\n- - b 30\n- 0 - 40")
    assert [run.advance("access", 11), run.punctuations()][1] == ['<1, "a">', '<2, "a">']
    assert [run.advance("access", 21), run.punctuations()][1] == ['<3, "a">']
    assert [run.advance("access", 31), run.punctuations()][1] == ['<2, "b">', '<9, "b">']
    run.advance("access", 41)
    run.push("access", "k d y t\n0 z 1 42")
    assert run.violations() == [("access", "after_punctuation", 0, "z", 1, 42)]


def test_lists_of_a_composite_key_multiply(story):
    columns = pa.schema({"k": pa.list_(pa.int32()), "d": pa.list_(pa.string()), "over": pa.date32()})
    run = story(controlled(columns, **PAIR))
    run.push("news", "k d x\n1 a 1\n2 a 2\n2 b 3\n3 c 4")
    run.control("access", "k d over\n{1,2} {a,b} 1970-01-01\n{3} - 1970-01-02\n{} {a} 1970-01-01")
    run.advance("access", 1)
    assert run.punctuations() == ['<1, "a">', '<1, "b">', '<2, "a">', '<2, "b">']
    run.advance("access", 86_401)
    assert run.punctuations() == ['<3, "c">']


def test_keys_are_widened_as_the_streams_are():
    def declared(name, dtype, **more):
        columns = pa.schema({"k": dtype, "t": pa.timestamp("us")})
        return sj.stream(columns, name=name, key="k", time="t", lateness="0 seconds", **more)

    source = pa.schema({"k": pa.int16(), "at": pa.timestamp("s")})
    narrow = declared("narrow", pa.int32(), punctuation=sj.control(source, time="at"))
    run = sj.join(declared("wide", pa.float64(), unique=True), narrow).local()
    run.control("narrow", pa.table({"k": [0], "at": [at(5)]}, schema=source))
    run.push(
        "wide", pa.table({"k": [-0.0], "t": [at(1)]}, schema=pa.schema({"k": "f8", "t": pa.timestamp("us")}))
    )
    run.advance("narrow", at(6))
    assert [one.text() for one in run.punctuations()] == ["<0.0>"]


# ---------------------------------------------------------------- stop and go on


HELD = {"news": 3, "access": 0}


def test_what_waits_survives_a_stop():
    joined = controlled(schema("k_from k_to over:time"))
    run = Story(joined)
    run.push("news", "k x\n1 1\n2 2\n3 3")
    run.control("access", "k_from k_to over\n1 1 10\n2 3 20")
    run.advance("access", 10)
    again = Story(joined, snapshot=run.run.snapshot())
    assert (again.held(), again.state().closed_keys) == (run.held(), run.state().closed_keys) == (HELD, 5)
    for each in (run, again):
        each.advance("access", 11)
        assert each.punctuations() == ["<1>"]
        each.advance("access", 21)
        assert (each.punctuations(), each.state().rows["news"]) == (["<2>", "<3>"], 0)


def test_waiting_punctuations_are_counted_in_bytes():
    run = Story(controlled())
    before = run.state().nbytes
    run.control("access", "k over\n1 10\n2 20")
    assert run.state().nbytes > before
    run.advance("access", 15)
    run.advance("access", 25)
    run.push("news", "k x\n1 1\n2 2")
    assert run.state() == EMPTY


def test_only_what_is_due_is_touched():
    layout = Layout((pa.int64(),))
    names = RunNames()
    waiting = ScheduledPunctuations("w", layout, names, CompactionPolicy(tombstone_share=0.9))
    keys = pa.array(range(1000))
    waiting.add(layout.keys_with_time.batch([pa.array(hash_keys([keys])), keys, keys]), ())
    (run,) = waiting.side.runs
    asked = []
    good = run.live_between
    run.live_between = lambda start, stop: asked.append(good(start, stop)) or asked[-1]
    assert len(waiting.due(10)[0]) == 10
    assert len(waiting.due(15)[0]) == 5
    assert [len(rows) for rows in asked] == [10, 5]
    waiting.add(layout.keys_with_time.batch([pa.array([1]), pa.array([3]), pa.array([7])]), ((4, (ANY,)),))
    found, patterns = waiting.due(15)  # came after its time
    assert (found.keys[0].to_pylist(), patterns) == ([7], ((ANY,),))
    assert len(waiting.due(END_OF_TIME)[0]) == 985
    assert (len(waiting), waiting.empty) == (0, True)


# ---------------------------------------------------------------- the way to a bucket


def test_punctuations_travel_to_their_buckets_and_patterns_to_all():
    layout = Layout((pa.int64(),), timed=True, payload_types=(pa.string(),))
    keys = pa.array(range(100))
    hashes = hash_keys([keys])
    patterns = ((5, (between(1, 9),)), (6, (ANY,)), (7, (Constant(3),)))
    sent = Arrivals(
        layout.empty(),
        layout.keys_only.empty(),
        scheduled=layout.keys_with_time.batch([pa.array(hashes), pa.array(range(100)), keys]),
        scheduled_patterns=patterns,
    )
    shares = [
        (bucket, from_bytes(to_bytes(share), layout)) for bucket, share in split(sent, 7, limit_bytes=99)
    ]
    assert [bucket for bucket, _ in shares] == list(range(7))
    assert all(share.scheduled_patterns == patterns for _, share in shares)
    bounds = bucket_bounds(7)
    for bucket, share in shares:
        if share.scheduled is not None:
            assert set(np.searchsorted(bounds, share.scheduled.hash, side="right")) == {bucket}
    whole = together(layout, [share for _, share in shares])
    assert whole.scheduled is not None
    assert sorted(zip(whole.scheduled.keys[0].to_pylist(), whole.scheduled.time, strict=True)) == [
        (k, k) for k in range(100)
    ]


# ---------------------------------------------------------------- what is refused while it runs


def test_bad_control_tables_are_refused():
    run = controlled().local()
    with pytest.raises(sj.BadInput, match="'access': row 1 of its control source has no 'over'; give every"):
        run.control("access", pa.table({"k": [1, 2], "over": [at(1), None]}))
    with pytest.raises(sj.BadInput, match=r"the control table has no column 'over' \(it has k\)"):
        run.control("access", pa.table({"k": [1]}))
    with pytest.raises(sj.BadInput, match="control column 'k': cannot read string as int64"):
        run.control("access", pa.table({"k": ["x"], "over": [at(1)]}))
    with pytest.raises(sj.BadInput, match=r"control got a list; give a pyarrow\.Table"):
        run.control("access", [])
    with pytest.raises(sj.InvalidJoin, match=r"'news' has no control source; declare punctuation="):
        run.control("news", pa.table({"k": [1], "over": [at(1)]}))
    assert run.state().empty
    run.control("access", pa.table({"k": [1], "over": [at(1)]}).to_batches()[0])
    assert run.state().closed_keys == 1
