"""A join as an input of another: results and punctuations go on, both levels let go."""

from __future__ import annotations

import warnings

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import streamjoin as sj
from streamjoin.local.chain import ChainRun
from tests.tables import EMPTY, NOTHING, WAYS, Story, stream, table, unbounded_is_meant

in_every_way = pytest.mark.parametrize("way", WAYS)


def marked(name: str, columns: str, **declared):
    return stream(name, f"{columns} over:bool", punctuation=sj.marked("over"), **declared)


def lower(how: str = "inner", **options) -> sj.Joined:
    return sj.join(marked("a", "k x"), marked("b", "k y"), name="lower", how=how, **options)


def chain(joined: sj.Joined | None = None, **options) -> sj.Joined:
    """(a ⋈ b) ⋈ c, all of one key."""
    ab = sj.stream(joined or lower(), name="ab", key="k")
    return sj.join(ab, marked("c", "k z"), name="upper", **options)


# ---------------------------------------------------------------- a story


@in_every_way
def test_results_and_punctuations_go_on_in_the_same_step(way):
    run = Story(chain(), way)
    assert run.push("a", "k x\n1 10\n2 20") == NOTHING
    assert run.push("c", "k z\n1 100\n2 200") == NOTHING
    assert run.push("b", "k y\n1 5\n1 6") == [(1, 10, 5, 100), (1, 10, 6, 100)]
    assert run.held() == {"a": 2, "b": 2, "ab": 2, "c": 2}
    run.punctuate("a", k=1)
    assert run.held() == {"a": 2, "b": 0, "ab": 2, "c": 2}  # no a comes that could want b's rows
    run.punctuate("b", k=1)  # 1 is finished below, so closed on ab: nothing can want c's row any more
    assert run.held() == {"a": 1, "b": 0, "ab": 2, "c": 1}
    assert run.punctuations() == []
    run.punctuate("c", k=1)
    assert run.punctuations() == ["<1>"]
    assert run.held() == {"a": 1, "b": 0, "ab": 0, "c": 1}
    assert run.finish() == NOTHING
    assert run.state() == EMPTY
    assert run.violations() == []


@in_every_way
def test_rows_and_punctuation_of_a_key_in_one_step(way):
    run = Story(chain(), way)
    run.push("c", "k z\n1 100")
    run.step(a="k x over\n1 10 false\n1 - true", b="k y over\n1 5 false\n1 - true", c="k z over\n1 - true")
    assert run.punctuations() == ["<1>"]
    assert run.violations() == []
    assert run.state() == EMPTY
    assert run.count("results") == 1


@in_every_way
def test_a_key_that_matched_nothing_below_is_finished_above(way):
    run = Story(chain(), way)
    run.push("c", "k z\n7 700")
    run.punctuate("a", k=7)  # a has none of it: 7 is finished below, before b says anything
    assert run.held()["c"] == 0
    assert run.punctuations() == ["<7>"]
    run.push("b", "k y\n7 1")
    assert run.count("b_not_stored") == 1


@in_every_way
@pytest.mark.parametrize("how", ["left", "full", "left_anti"])
def test_padded_rows_leave_before_the_punctuation_of_their_key(how, way):
    run = Story(chain(lower(how)), way)
    run.push("c", "k z\n1 100")
    run.push("a", "k x\n1 10")
    run.punctuate("a", k=1)
    padded = () if how == "left_anti" else (None,)
    assert run.punctuate("b", k=1) == [(1, 10, *padded, 100)]
    assert run.violations() == []
    run.punctuate("c", k=1)
    assert run.punctuations() == ["<1>"]
    assert run.state() == EMPTY


# ---------------------------------------------------------------- ranges and the end


@in_every_way
def test_a_range_is_passed_on_when_every_input_has_closed_it(way):
    run = Story(chain(), way)
    run.push("c", "k z\n1 1\n3 3\n5 5\n9 9")
    run.punctuate("a", k=sj.between(1, 5))
    assert run.held()["c"] == 4
    run.punctuate("b", k=sj.between(3, 9))  # now both have closed 3 to 5, of which neither held a key
    assert run.held()["c"] == 2
    assert run.count("ab_punctuations") == 1
    run.punctuate("a", k=sj.between(6, 7))  # 3 to 7
    run.punctuate("a", k=sj.between(6, 7))  # nothing new
    assert run.count("ab_punctuations") == 2
    run.punctuate("a", k=sj.between(8, 9))
    assert run.held()["c"] == 1
    run.punctuate("b", k=1)  # a constant that a range of a covers: the key is announced
    assert run.held()["c"] == 0


@in_every_way
def test_a_range_of_one_value_is_passed_on(way):
    run = Story(chain(), way)
    run.push("c", "k z\n4 1\n5 1")
    run.punctuate("a", k=sj.between(1, 4))
    run.punctuate("b", k=sj.between(4, 7))
    assert run.held()["c"] == 1


@in_every_way
def test_a_range_of_all_values_does_not_end_the_stream(way):
    """A row without a key may still come: it is in no range, and an outer join gives it."""
    run = Story(chain(lower("left"), how="left"), way)
    run.push("c", "k z\n5 1")
    for name in "ab":
        run.punctuate(name, k=sj.between(None, 5))
        run.punctuate(name, k=sj.between(6, None))
    assert run.held()["c"] == 0
    assert run.push("a", "k x\n- 1") == [(None, 1, None, None)]
    assert run.violations() == []
    run.end("a")
    run.end("b")
    run.push("a", "k x\n- 2")
    assert run.violations() == [("a", "after_punctuation", None, 2)]


@in_every_way
def test_patterns_of_composite_keys_are_passed_on(way):
    one = sj.join(
        stream("a", "k j x", key=["k", "j"], unique=True),
        stream("b", "k j y", key=["k", "j"], unique=True),
        name="lower",
    )
    ab = sj.stream(one, name="ab", key=["j", "k"])  # its own order
    run = Story(sj.join(ab, stream("c", "j k z", key=["j", "k"], unique=True), name="upper"), way)
    run.push("c", "j k z\n1 10 1\n2 10 1\n1 20 1")
    run.punctuate("a", k=10, j=sj.ANY)
    run.punctuate("b", k=sj.ANY, j=1)
    assert run.held()["c"] == 2  # of k = 10 and j = 1 nothing comes any more
    run.punctuate("a", k=sj.ANY, j=1)
    assert run.held()["c"] == 1
    assert run.count("ab_punctuations") == 2


@in_every_way
def test_when_all_inputs_below_have_ended_the_stream_has_ended(way):
    run = Story(chain(), way)
    run.push("c", "k z\n1 1\n2 2")
    run.push("a", "k x\n1 1")
    run.end("a")
    assert run.held()["c"] == 2
    run.end("b")
    assert run.held() == {"a": 0, "b": 0, "ab": 0, "c": 0}
    assert run.count("ab_punctuations") == 2  # of key 1, and the end
    run.push("c", "k z\n3 3")
    assert run.count("c_not_stored") == 1


@in_every_way
def test_a_range_does_not_wait_for_a_purge_strategy_below(way):
    """The padded row of 2 leaves below when both inputs have closed it, and after it the range."""
    run = Story(chain(lower("left", purge=sj.PurgeEvery(3))), way)
    run.push("c", "k z\n2 200\n7 700")
    run.push("a", "k x\n2 20")
    run.punctuate("a", k=sj.between(1, 9))
    assert run.punctuate("b", k=sj.between(1, 9)) == [(2, 20, None, 200)]
    assert run.held() == {"a": 0, "b": 0, "ab": 1, "c": 0}
    assert run.violations() == []


@unbounded_is_meant
@in_every_way
def test_a_join_that_purges_nothing_passes_only_its_end(way):
    run = Story(chain(lower(purge="none")), way)
    run.push("c", "k z\n1 1")
    run.punctuate("a", k=sj.between(1, 5))
    run.punctuate("b", k=sj.between(1, 5))
    assert run.count("ab_punctuations") == 0
    run.end("a")
    run.end("b")
    assert run.held()["c"] == 0


@unbounded_is_meant
@in_every_way
def test_a_join_that_does_not_propagate_passes_only_its_end(way):
    run = Story(chain(lower(propagate=False)), way)
    run.push("c", "k z\n1 1")
    run.punctuate("a", k=1)
    run.punctuate("b", k=1)
    run.punctuate("a", k=sj.between(1, 5))
    run.punctuate("b", k=sj.between(1, 5))
    assert run.count("ab_punctuations") == 0
    assert run.held()["c"] == 1
    run.end("a")
    run.end("b")
    assert run.held()["c"] == 0


# ---------------------------------------------------------------- another key, other types, more levels


@unbounded_is_meant
@in_every_way
def test_a_stream_of_another_key_takes_over_the_end_only(way):
    ab = sj.stream(lower(), name="ab", key="y")
    run = Story(sj.join(ab, marked("c", "y z"), name="upper"), way)
    run.push("c", "y z\n5 500\n6 600")
    run.push("a", "k x\n1 10")
    assert run.push("b", "k y\n1 5") == [(5, 1, 10, 500)]
    run.punctuate("a", k=1)
    run.punctuate("b", k=1)
    run.punctuate("a", k=sj.between(1, 9))
    run.punctuate("b", k=sj.between(1, 9))
    assert run.count("ab_punctuations") == 0
    assert run.held()["c"] == 2
    run.end("a")
    run.end("b")
    assert run.held() == {"a": 0, "b": 0, "ab": 1, "c": 0}  # c may still bring a row of 5
    run.end("c")
    assert not any(run.held().values())


@in_every_way
def test_own_declarations_of_a_stream_of_another_key(way):
    """Unique keys and closing rows are declared of results as of any stream."""
    closing = sj.stream(lower(), name="ab", key="y", punctuation=sj.closing(pc.field("x") == 0))
    run = Story(sj.join(closing, marked("c", "y z"), name="upper"), way)
    run.push("c", "y z\n5 500")
    run.push("a", "k x\n1 0")
    assert run.push("b", "k y\n1 5") == [(5, 1, 0, 500)]
    assert run.held()["c"] == 0


@in_every_way
def test_windows_over_results(way):
    joined = sj.join(
        stream("a", "k t:time", time="t", window="10 seconds", lateness="0 seconds"),
        stream("b", "k u:time", time="u", window="10 seconds", lateness="0 seconds"),
        name="lower",
    )
    ab = sj.stream(joined, name="ab", key="k", time="u", window="5 seconds", lateness="10 seconds")
    c = stream("c", "k v:time", time="v", window="5 seconds", lateness="0 seconds")
    run = Story(sj.join(ab, c, name="upper"), way)
    run.push("a", "k t\n1 0")
    run.push("b", "k u\n1 3\n1 9")
    assert run.push("c", "k v\n1 8") == [(1, 0, 3, 8), (1, 0, 9, 8)]
    assert run.push("c", "k v\n1 14") == [(1, 0, 9, 14)]
    assert run.held()["ab"] == 1  # the result of 3 is past its window
    run.advance("ab", 20)
    assert run.held()["c"] == 0


@in_every_way
def test_key_types_are_widened_between_the_levels(way):
    one = sj.join(
        sj.stream(pa.schema({"k": pa.int32(), "x": pa.int64()}), name="a", key="k", unique=True),
        sj.stream(pa.schema({"k": pa.int16(), "y": pa.int64()}), name="b", key="k", unique=True),
        name="lower",
    )
    c = sj.stream(pa.schema({"k": pa.float64(), "z": pa.int64()}), name="c", key="k", unique=True)
    run = Story(sj.join(sj.stream(one, name="ab", key="k"), c, name="upper"), way)
    run.push("c", "k z\n1.0 1\n1.5 2\n2.0 3\n7.0 4")
    run.push("a", "k x\n1 1")
    assert run.push("b", "k y\n1 1") == [(1.0, 1, 1, 1)]
    assert run.held()["c"] == 3
    for name in "ab":
        run.punctuate(name, k=sj.between(2, 3))
    assert run.held()["c"] == 2
    for name in "ab":
        run.punctuate(name, k=7)
    assert run.held()["c"] == 1


@in_every_way
def test_three_levels(way):
    """((a ⋈ b) ⋈ c) ⋈ (d ⋈ e): single keys, ranges and the end go all the way up."""
    abc = sj.stream(chain(), name="abc", key="k")
    de = sj.stream(sj.join(marked("d", "k p"), marked("e", "k q"), name="other"), name="de", key="k")
    run = Story(sj.join(abc, de, name="top"), way)
    for name, column in zip("abcde", "xyzpq", strict=True):
        run.push(name, f"k {column}\n1 1\n2 2\n3 3\n4 4")
    assert run.count("results") == 4
    for name in "abc":
        run.punctuate(name, k=1)
        run.punctuate(name, k=sj.between(2, 3))
    assert run.held() == {"a": 1, "b": 1, "ab": 1, "c": 1, "abc": 4, "d": 4, "e": 4, "de": 1}
    for name in "de":
        run.punctuate(name, k=sj.between(1, 3))
    assert set(run.held().values()) == {1}
    assert run.punctuations() == ["<1>", "<2>", "<3>", "<[2, 3]>"]
    assert run.finish() == NOTHING
    assert not any(run.held().values())
    assert (run.count("lower_results"), run.count("upper_results"), run.count("other_results")) == (4, 4, 4)


@in_every_way
def test_control_sources_and_orders_below(way):
    """A range of a control stream that waits for event time, against an ordered input."""
    control = pa.schema({"k_from": pa.int64(), "k_to": pa.int64(), "over": pa.timestamp("us")})
    declared = {"time": "t", "lateness": "0 seconds", "punctuation": sj.control(control, time="over")}
    joined = sj.join(
        stream("a", "k t:time", **declared), stream("b", "k y", arrival=sj.ordered()), name="lower"
    )
    ab = sj.stream(joined, name="ab", key="k")
    run = Story(sj.join(ab, marked("c", "k z"), name="upper"), way)
    run.push("c", "k z\n1 1\n5 5\n9 9")
    run.control("a", "k_from k_to over\n1 6 10")
    run.push("b", "k y\n2 0\n6 0")  # b has passed what is below 6
    assert run.held()["c"] == 3
    run.push("a", "k t\n20 11")  # past 10: a has closed 1 to 6
    assert run.held()["c"] == 1
    run.push("b", "k y\n8 0")
    assert run.count("ab_punctuations") == 4  # the keys 2 and 6, 1 to 5, then 1 to 6


# ---------------------------------------------------------------- violations, refusals, words


@in_every_way
def test_violations_of_every_level_are_told_by_stream(way):
    run = Story(chain(), way)
    run.push("a", "k x\n1 10")
    run.push("b", "k y\n1 5")
    run.punctuate("a", k=1)
    run.push("a", "k x\n1 11")
    run.punctuate("ab", k=1)  # a punctuation about results, which the next one breaks
    assert run.push("b", "k y\n1 6") == NOTHING
    assert run.violations() == [("a", "after_punctuation", 1, 11), ("ab", "after_punctuation", 1, 10, 6)]
    assert run.run.advice()[0].startswith("a: 1 rows came after a punctuation")


def test_a_refused_step_leaves_no_trace():
    joined = sj.join(
        stream("a", "k x", arrival=sj.clustered()), stream("b", "k y", arrival=sj.clustered()), name="lower"
    )
    ab = sj.stream(joined, name="ab", key="k")
    run = sj.join(ab, stream("c", "k z", arrival=sj.clustered()), name="upper").local()
    good = table(pa.schema({"k": pa.int64(), "x": pa.int64()}), "k x\n1 1")
    before = run.snapshot()
    with pytest.raises(sj.BadInput, match="no column 'z'"):
        run.step({"a": good, "c": good})
    assert run.snapshot() == before
    with pytest.raises(sj.BadInput, match="ab is the result of join lower: push rows of its inputs, a, b"):
        run.push("ab", good)
    with pytest.raises(sj.InvalidJoin, match=r"no input 'd'; its inputs are a, b, c"):
        run.push("d", good)
    with pytest.raises(sj.InvalidJoin, match=r"no input 'd'; its inputs are a, b, c"):
        run.end("d")


def test_what_is_refused():
    ab = sj.stream(lower(), name="ab", key="k")
    with pytest.raises(sj.InvalidJoin, match="takes over the punctuations of join 'lower'"):
        sj.stream(lower(), name="ab", key="k", punctuation=sj.closing("x"))
    with pytest.raises(sj.InvalidJoin, match="rows come in no order; leave out arrival="):
        sj.stream(lower(), name="ab", key="k", arrival=sj.clustered())
    with pytest.raises(sj.InvalidJoin, match="leave out sequence="):
        sj.stream(lower(), name="ab", key="k", sequence=["x"])
    with pytest.raises(sj.InvalidJoin, match="key column 'q' does not exist; its columns are k, x, y"):
        sj.stream(lower(), name="ab", key="q")
    with pytest.raises(sj.InvalidJoin, match="several joins have the name lower; give each"):
        sj.join(ab, marked("c", "k z"), name="lower")
    with pytest.raises(sj.InvalidJoin, match="several streams have the name a; give each"):
        sj.join(ab, marked("a", "k z"), name="upper")
    with pytest.raises(sj.InvalidJoin, match=r"several (joins|streams).* name .*; "):
        sj.join(ab, sj.stream(lower(), name="again", key="k"), name="upper")
    with pytest.raises(sj.InvalidJoin, match="not a int"):
        sj.stream(3, name="ab", key="k")


def test_the_same_results_twice_under_other_names():
    twin = sj.join(marked("a2", "k x"), marked("b2", "k y"), name="lower2")
    both = sj.join(
        sj.stream(lower(), name="ab", key="k"), sj.stream(twin, name="again", key="k"), name="upper"
    )
    run = Story(both)
    for name, column in (("a", "x"), ("b", "y"), ("a2", "x"), ("b2", "y")):
        found = run.push(name, f"k {column}\n1 1")
    assert found == [(1, 1, 1, 1, 1)]
    assert both.plan.spec.output.names == ["k", "ab_x", "ab_y", "again_x", "again_y"]


def test_explain_shows_the_lower_join_and_what_bounds_the_upper():
    text = chain().explain()
    assert "  ab: result of join lower; keys are closed by its punctuations" in text
    provided = "provided every key of c appears in an input of join lower"
    assert f"its tuples are purged by punctuations of join lower, {provided}" in text
    assert "\nab is the result of\n  lower: a ⋈ b\n    inner join on a.k = b.k" in text
    assert "NOT BOUNDED" not in text

    other = sj.join(sj.stream(lower(), name="ab", key="y"), marked("c", "y z"), name="upper")
    assert "ab: result of join lower, whose punctuations are on another key: only its end" in other.explain()
    assert "c: NOT BOUNDED" in other.explain()
    silent = chain(lower(propagate=False)).explain()
    assert "ab: result of join lower, which propagates no punctuations: only its end" in silent
    assert "c: NOT BOUNDED" in silent


def test_a_join_whose_inputs_close_no_keys_bounds_nothing_above():
    windowed = sj.join(
        *(stream(n, "k t:time", time="t", window="1 second", lateness="0 seconds") for n in "ab"),
        name="lower",
    )
    text = chain(windowed).explain()
    assert "propagates punctuations, but nothing declared of its inputs finishes keys" in text
    assert "c: NOT BOUNDED" in text
    with pytest.warns(sj.UnboundedState, match="c: declare"):
        chain(windowed).local()
    # a left join announces a key when its left input is closed for it too
    half = sj.join(stream("a", "k x"), stream("b", "k y", unique=True), name="lower", how="left")
    assert "c: NOT BOUNDED" in chain(half).explain()
    # one side that closes keys is enough where its own rows are let go
    right = sj.join(stream("a", "k x"), stream("b", "k y", unique=True), name="lower")
    assert "c: NOT BOUNDED" in chain(right).explain()


def test_a_bounded_chain_starts_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = chain().local()
    assert isinstance(run, ChainRun)


def test_a_snapshot_of_another_chain_is_refused():
    value = chain().local().snapshot()
    with pytest.raises(sj.StateFormatError, match="cannot go on from its state"):
        chain(lower("left")).local(snapshot=value)
    with pytest.raises(sj.StateFormatError):
        lower().local(snapshot=value)
    with pytest.raises(sj.StateFormatError):
        chain().local(snapshot=lower().local().snapshot())
