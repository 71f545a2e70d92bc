"""Joins without one common key: chains, stars and cycles of operators, as tables."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import streamjoin as sj
from tests.tables import EMPTY, NOTHING, WAYS, Story, stream, unbounded_is_meant

in_every_way = pytest.mark.parametrize("way", WAYS)
TIMED = {"window": "10 seconds", "lateness": "0 seconds"}
AB_FIRST = {"a": 1, "b": 1, "c": sj.Rate(9, rows_per_key=9)}


def ends(name: str, columns: str, **declared):
    """A stream whose punctuations may leave columns open."""
    over = sj.marked("over", null_is_wildcard=True)
    return stream(name, f"{columns} over:bool", punctuation=over, **declared)


def chain(**declared) -> sj.Joined:
    """a.x = b.x and b.y = c.y."""
    a, b, c = stream("a", "x p"), stream("b", "x y q"), stream("c", "y r")
    return sj.join(a, b, c, on="a.x = b.x and b.y = c.y", name="abc", **declared)


def windowed_chain() -> sj.Joined:
    a = stream("a", "x t:time", time="t", **TIMED)
    b = stream("b", "x y u:time", time="u", window="10 seconds", lateness="20 seconds")
    c = stream("c", "y v:time", time="v", lateness="0 seconds")
    return sj.join(a, b, c, on="a.x = b.x and b.y = c.y", name="abc", rates=AB_FIRST)


# ---------------------------------------------------------------- stories


@unbounded_is_meant
@in_every_way
def test_a_chain(way):
    run = Story(chain(), way)
    assert run.push("a", "x p\n1 10\n2 20") == NOTHING
    assert run.push("c", "y r\n7 700\n8 800") == NOTHING
    assert run.push("b", "x y q\n1 7 5\n1 8 6\n2 7 5\n3 7 5") == [
        (1, 10, 7, 5, 700),
        (1, 10, 8, 6, 800),
        (2, 20, 7, 5, 700),
    ]
    assert run.push("a", "x p\n3 30") == [(3, 30, 7, 5, 700)]
    assert run.held() == {"a": 3, "b": 4, "abc_1": 4, "c": 2}
    assert run.finish() == NOTHING
    assert not any(run.held().values())


@unbounded_is_meant
@in_every_way
def test_a_star(way):
    fact = stream("f", "x y z n", key="n")
    sides = [stream(name, f"{column} {name}v") for name, column in zip("abc", "xyz", strict=True)]
    run = Story(sj.join(fact, *sides, on=["f.x = a.x", "f.y = b.y", "f.z = c.z"]), way)
    run.push("a", "x av\n1 10")
    run.push("b", "y bv\n2 20\n2 21")
    run.push("c", "z cv\n3 30")
    assert run.push("f", "x y z n\n1 2 3 0\n1 2 4 1") == [(1, 2, 3, 0, 10, 20, 30), (1, 2, 3, 0, 10, 21, 30)]


@unbounded_is_meant
@in_every_way
def test_a_triangle_has_a_composite_key(way):
    a, b, c = stream("a", "x y"), stream("b", "y z"), stream("c", "z x")
    joined = sj.join(a, b, c, on="a.y = b.y and b.z = c.z and c.x = a.x")
    assert joined.plan.spec.key_names == ["x", "z"]
    run = Story(joined, way)
    run.push("a", "x y\n1 2\n5 2")
    run.push("b", "y z\n2 3")
    assert run.push("c", "z x\n3 1\n3 9") == [(1, 2, 3)]


@unbounded_is_meant
@in_every_way
def test_a_self_join_through_two_names(way):
    parts = [stream(name, "part of", key="part") for name in ("b1", "b2", "b3")]
    joined = sj.join(*parts, on="b1.of = b2.part and b2.of = b3.part")
    assert joined.plan.spec.emits.names == ["b1_of", "part", "b2_of", "b3_of"]
    run = Story(joined, way)
    rows = "part of\n1 2\n2 3\n3 4"
    run.push("b1", rows)
    run.push("b2", rows)
    assert run.push("b3", rows) == [(2, 1, 3, 4)]


@unbounded_is_meant
@in_every_way
def test_windows_count_over_all_components(way):
    """The window of a counts for c, which it meets one operator later."""
    run = Story(windowed_chain(), way)
    assert run.run.plan.steps[0] == "abc_1: a ⋈ b on a.x = b.x"
    run.push("a", "x t\n1 0\n1 5")
    run.push("b", "x y u\n1 7 4")
    assert run.push("c", "y v\n7 8") == [(1, 0, 7, 4, 8), (1, 5, 7, 4, 8)]
    assert run.push("c", "y v\n7 12") == [(1, 5, 7, 4, 12)]  # 0 is 12 s before
    assert run.held()["abc_1"] == 1  # the result of 0 has a window that is over
    assert run.push("c", "y v\n7 15") == NOTHING  # 4 is 11 s before
    assert run.held() == {"a": 2, "b": 1, "abc_1": 0, "c": 3}
    assert run.violations() == []


@unbounded_is_meant
@in_every_way
def test_the_slowest_input_below_tells_the_time(way):
    a = stream("a", "x t:time", time="t", window="90 seconds", lateness="0 seconds")
    b = stream("b", "x y u:time", time="u", window="90 seconds", lateness="0 seconds")
    c = stream("c", "y v:time", time="v", **TIMED)
    run = Story(sj.join(a, b, c, on="a.x = b.x and b.y = c.y", rates=AB_FIRST), way)
    run.push("c", "y v\n7 10")
    run.push("a", "x t\n1 30")
    assert run.held()["c"] == 1  # a has passed 20; b has not, but its results have a row of a, or later ones
    run.push("b", "x y u\n1 7 5")  # with a at 30: too late for c at 10
    assert run.held()["c"] == 1  # a result may still come of a row of b at 5 and an a at 30
    run.push("b", "x y u\n1 9 21")
    assert run.held()["c"] == 0
    assert run.violations() == []


@in_every_way
def test_punctuations_column_by_column(way):
    """<5, *> of b closes x = 5; what it closes of y it does not say."""
    b = ends("b", "x y", key=["x", "y"])
    joined = sj.join(stream("a", "x p", unique=True), b, on="a.x = b.x")
    run = Story(joined, way)
    run.push("a", "x p\n5 1\n6 1")
    run.push("b", "x y over\n5 7 false\n5 7 true\n- 7 true")  # of x they say nothing
    assert run.held() == {"a": 2, "b": 0}
    run.punctuate("b", x=5, y=7)
    assert run.held() == {"a": 2, "b": 0}
    run.push("b", "x y over\n5 - true")
    assert run.held() == {"a": 1, "b": 0}
    run.push("b", "x y over\n- - true")
    assert run.state() == EMPTY


@unbounded_is_meant
@in_every_way
def test_punctuations_of_a_column_that_is_joined_later_close_nothing_here(way):
    b = stream("b", "x y over:bool", key="y", punctuation=sj.marked("over"), unique=False)
    run = Story(sj.join(stream("a", "x p", unique=True), b, on="a.x = b.x"), way)
    run.push("a", "x p\n5 1")
    assert run.push("b", "x y over\n- 5 true\n5 5 false") == [(5, 1, 5)]
    run.punctuate("b", y=5)
    assert run.held() == {"a": 1, "b": 0}
    assert run.violations() == []


def orders(**options) -> sj.Joined:
    """a(x) and c(y) are unique, b(x, y) punctuations both: everything is bounded."""
    a, c = stream("a", "x p", unique=True), stream("c", "y r", unique=True)
    b = ends("b", "x y", key=["x", "y"])
    return sj.join(a, b, c, on="a.x = b.x and b.y = c.y", name="abc", strict=True, **options)


@in_every_way
def test_a_punctuation_goes_on_to_the_operator_that_joins_its_column(way):
    run = Story(orders(rates=AB_FIRST), way)
    run.push("a", "x p\n1 10\n2 20")
    run.push("c", "y r\n7 70\n8 80\n9 90")
    assert run.push("b", "x y\n1 7\n2 8") == [(1, 10, 7, 70), (2, 20, 8, 80)]
    assert run.held() == {"a": 2, "b": 0, "abc_1": 0, "c": 3}
    run.push("b", "x y over\n- 7 true\n- 9 true")  # b holds nothing of them: no result with them follows
    assert run.held() == {"a": 2, "b": 0, "abc_1": 0, "c": 1}
    run.punctuate("b", x=[1, 2], y=sj.ANY)
    assert run.held() == {"a": 0, "b": 0, "abc_1": 0, "c": 1}
    run.punctuate("b", x=sj.ANY, y=8)
    assert run.state() == EMPTY
    assert run.violations() == []
    assert run.punctuations() == ["<7>", "<8>", "<9>"]


@in_every_way
def test_a_punctuation_waits_while_tuples_it_speaks_of_are_held(way):
    run = Story(orders(rates=AB_FIRST), way)
    run.push("c", "y r\n7 70\n8 80")
    run.push("b", "x y\n1 7\n2 8\n3 7")  # no a yet: all are held
    run.punctuate("b", x=sj.ANY, y=[7, 8])
    assert run.held() == {"a": 0, "b": 3, "abc_1": 0, "c": 2}
    assert run.state().closed_keys == 4  # two that wait, and the keys of c
    assert run.push("a", "x p\n1 10\n2 20") == [(1, 10, 7, 70), (2, 20, 8, 80)]
    assert run.held() == {"a": 2, "b": 1, "abc_1": 0, "c": 1}  # 8 has gone on, of 7 there is (3, 7)
    assert run.push("a", "x p\n3 30") == [(3, 30, 7, 70)]
    assert run.held() == {"a": 3, "b": 0, "abc_1": 0, "c": 0}
    run.punctuate("b", x=sj.between(1, 3), y=sj.ANY)
    assert not any(run.held().values())
    assert run.violations() == []


@in_every_way
def test_a_punctuation_goes_on_over_two_operators(way):
    a, c, d = (
        stream("a", "x p", unique=True),
        stream("c", "y r", unique=True),
        stream("d", "z s", unique=True),
    )
    b = ends("b", "x y z", key=["x", "y", "z"])
    rates = {"a": 1, "b": 1, "c": sj.Rate(9, rows_per_key=9), "d": sj.Rate(99, rows_per_key=99)}
    on = "a.x = b.x and b.y = c.y and b.z = d.z"
    joined = sj.join(a, b, c, d, on=on, name="j", rates=rates, strict=True)
    assert [step.partition(" on ")[0] for step in joined.plan.steps[:3]] == [
        "j_1: a ⋈ b", "j_2: j_1 ⋈ c", "j: j_2 ⋈ d"
    ]  # fmt: skip
    run = Story(joined, way)
    run.push("d", "z s\n5 50\n6 60")
    run.push("b", "x y z\n1 7 5")
    run.punctuate("b", x=sj.ANY, y=sj.ANY, z=[5, 6])
    assert run.held()["d"] == 1  # 6
    run.push("a", "x p\n1 10")
    assert run.held() == {"a": 1, "b": 0, "j_1": 1, "c": 0, "j_2": 0, "d": 1}
    assert run.push("c", "y r\n7 70") == [(1, 10, 7, 5, 70, 50)]
    assert run.held() == {"a": 1, "b": 0, "j_1": 0, "c": 1, "j_2": 0, "d": 0}
    run.punctuate("b", x=1, y=sj.ANY, z=sj.ANY)
    run.punctuate("b", x=sj.ANY, y=7, z=sj.ANY)
    assert run.state() == EMPTY


@in_every_way
def test_a_row_that_breaks_a_punctuation_that_went_on_is_a_violation_there(way):
    run = Story(orders(rates=AB_FIRST), way)
    run.push("a", "x p\n1 10")
    run.punctuate("b", x=sj.ANY, y=7)
    assert run.push("b", "x y\n1 7") == NOTHING
    assert run.push("c", "y r\n7 70") == NOTHING
    assert run.violations() == [("abc_1", "after_punctuation", 7, 1, 10)]


@unbounded_is_meant
def test_propagate_false_passes_no_punctuation_on():
    a, c = stream("a", "x p", unique=True), stream("c", "y r", unique=True)
    b = ends("b", "x y", key=["x", "y"])
    joined = sj.join(a, b, c, on="a.x = b.x and b.y = c.y", rates=AB_FIRST, propagate=False)
    run = Story(joined)
    run.push("c", "y r\n7 70")
    run.punctuate("b", x=sj.ANY, y=7)
    assert run.held()["c"] == 1


@unbounded_is_meant
def test_rows_by_where_and_by_group():
    joined = chain(where=pc.field("r") > pc.field("p"))
    run = Story(joined)
    run.push("a", "x p\n1 10\n2 800")
    run.push("b", "x y q\n1 7 5\n2 7 6")
    assert run.push("c", "y r\n7 700") == [(1, 10, 7, 5, 700)]
    counted = Story(chain().group_by("y").agg(n=("*", "count"), most=("p", "max")))
    counted.push("a", "x p\n1 10\n2 20")
    counted.push("b", "x y q\n1 7 5\n2 7 6")
    counted.push("c", "y r\n7 700")
    assert counted.finish() == [(7, 2, 20)]
    with pytest.raises(sj.InvalidJoin, match="leaves out y"):
        chain().group_by("x").agg(n=("*", "count"))


@unbounded_is_meant
def test_first_and_last_go_by_the_latest_of_all_components():
    a, b, c = stream("a", "x p t:time", time="t"), stream("b", "x y"), stream("c", "y r")
    joined = sj.join(a, b, c, on="a.x = b.x and b.y = c.y", rates=AB_FIRST)
    run = Story(joined.group_by("y").agg(last=("p", "last")))
    run.push("c", "y r\n7 1")
    run.push("b", "x y\n1 7")
    run.push("a", "x p t\n1 10 9\n1 20 4")
    assert run.finish() == [(7, 10)]


# ---------------------------------------------------------------- the order, and the words for it


@unbounded_is_meant
def test_what_shares_a_class_shares_an_operator():
    a, b, c, d = (stream(name, f"x y {name}v") for name in "abcd")
    joined = sj.join(a, b, c, d, on="a.x = b.x and b.x = c.x and c.y = d.y", name="j")
    assert list(joined.plan.steps[:2]) == ["j_1: c ⋈ d on c.y = d.y", "j: a ⋈ b ⋈ j_1 on a.x = b.x = c.x"]
    one = sj.join(a, b, c, on="a.x = b.x and b.x = c.x")
    assert one.plan.steps == ("join: a ⋈ b ⋈ c on a.x = b.x = c.x",)
    assert one.local().plan.streams[0].upstream is None


@unbounded_is_meant
@pytest.mark.parametrize(("fast", "first"), [("a", "b ⋈ c on b.y = c.y"), ("c", "a ⋈ b on a.x = b.x")])
def test_the_order_that_gives_fewer_intermediate_rows(fast, first):
    rates = {name: sj.Rate(100, rows_per_key=100) if name == fast else 1 for name in "abc"}
    joined = chain(rates=rates)
    assert joined.plan.steps[0] == f"abc_1: {first}"
    assert "the cheapest of 2 orders" in joined.explain()
    assert "assumed" not in joined.explain()


def test_the_order_that_is_bounded():
    """b closes x: with a first nothing is bounded above; with c first, rows of b and c go by b's ends."""
    b = ends("b", "x y", key="x")
    a, c = stream("a", "x p", unique=True), stream("c", "y r", unique=True)
    joined = sj.join(a, b, c, on="a.x = b.x and b.y = c.y")
    assert joined.plan.steps[0] == "join_1: a ⋈ b on a.x = b.x"


@unbounded_is_meant
def test_the_plan_in_words():
    text = chain().explain()
    assert "Operators, one after another in each batch" in text
    assert "  abc_1: a ⋈ b on a.x = b.x\n  abc: abc_1 ⋈ c on b.y = c.y" in text
    assert "no rates were given for a, b, c: assumed one key a second" in text
    with_rates = chain().explain(rates={"a": 1, "b": 1, "c": 1})
    assert with_rates.count("together:") == 2
    seven = [stream(name, "x y") for name in "abcdefg"]
    on = [f"{one.name}.y = {two.name}.x" for one, two in itertools.pairwise(seven)]
    assert "for more than 6 inputs" in sj.join(*seven, on=on).explain()


@unbounded_is_meant
def test_the_columns_of_a_result():
    a = stream("a", "x v t:time", time="t", columns=["v"])
    b = stream("b", "y x v n", key="n", columns=[])
    c = stream("c", "y v over:bool", punctuation=sj.marked("over"))
    joined = sj.join(a, b, c, on="a.x = b.x and b.y = c.y")
    assert joined.plan.spec.emits.names == ["x", "a_v", "y", "c_v"]
    below = next(one.upstream.plan for one in joined.plan.streams if one.upstream is not None)
    assert below.spec.emits.names in (["x", "a_v", "y", "_latest"], ["y", "x", "c_v"])


@unbounded_is_meant
def test_key_types_are_widened():
    a = sj.stream(pa.schema({"x": pa.int32()}), name="a", key="x")
    b = sj.stream(pa.schema({"x": pa.int64(), "y": pa.float64()}), name="b", key="x")
    c = sj.stream(pa.schema({"y": pa.int32()}), name="c", key="y")
    run = Story(sj.join(a, b, c, on="a.x = b.x and b.y = c.y"))
    assert run.run.plan.spec.emits.types == [pa.int64(), pa.float64()]
    run.push("a", "x\n1")
    run.push("b", "x y\n1 7.0")
    assert run.push("c", "y\n7") == [(1, 7.0)]


@unbounded_is_meant
def test_a_join_over_a_join_of_several_keys():
    abc = sj.stream(chain(), name="abc", key="y")
    run = Story(sj.join(abc, stream("d", "y s"), name="top"))
    run.push("a", "x p\n1 10")
    run.push("b", "x y q\n1 7 5")
    run.push("c", "y r\n7 700")
    assert run.push("d", "y s\n7 1") == [(7, 1, 10, 5, 700, 1)]
    ab = sj.stream(sj.join(stream("a", "x p"), stream("b", "x y"), name="lower"), name="ab", key="x")
    run = Story(sj.join(ab, stream("c", "y r"), stream("d", "x s"), on="ab.y = c.y and ab.x = d.x"))
    run.push("a", "x p\n1 10")
    run.push("b", "x y\n1 7")
    run.push("c", "y r\n7 70")
    assert run.push("d", "x s\n1 5") == [(1, 7, 10, 70, 5)]


# ---------------------------------------------------------------- what is refused

REFUSED = {
    "a.x = z.x": "no stream 'z'; there are a, b, c",
    "a.q = b.x": "a has no column 'q'; it has x, p",
    "a.x = a.p": "connects a with itself",
    "a.x = b.x": "no edge connects c with a, b, which would be a cross product",
    "a.x = b.x and b.y > c.y": "'b.y > c.y', which is no edge; write edges as",
    "a.x = b.x or b.y = c.y": "is no edge; write edges as",
    "a.x = b.x and a.x = b.y and b.y = c.y": r"makes columns of one input equal \(b: x, y\)",
    "a.x = b.x and b.y = c.text": r"cannot be brought to one type \(b.y int64, c.text string\)",
    "a.x = b.x and b.y = c.over": "c.over is a position or a mark, not data",
    "": "is no edge",
}


@pytest.mark.parametrize(("on", "says"), REFUSED.items(), ids=list(REFUSED))
def test_edges_that_are_refused(on, says):
    a, b = stream("a", "x p"), stream("b", "x y")
    c = stream("c", "y text:str over:bool", punctuation=sj.marked("over"))
    with pytest.raises(sj.InvalidJoin, match=says):
        sj.join(a, b, c, on=on)


def test_what_else_is_refused():
    a, b, c = stream("a", "x p"), stream("b", "x y"), stream("c", "y r")
    on = "a.x = b.x and b.y = c.y"
    with pytest.raises(sj.InvalidJoin, match="how='full' with on=: joins on several keys are inner"):
        sj.join(a, b, c, on=on, how="full")
    with pytest.raises(sj.InvalidJoin, match="two inputs have the same name"):
        sj.join(a, b, b, on=on)
    with pytest.raises(sj.InvalidJoin, match="write edges as"):
        sj.join(a, b, c, on=[])
    with pytest.raises(sj.InvalidJoin, match="rates= helps to order the operators"):
        sj.join(a, stream("b", "x y"), rates={"a": 1})
    with pytest.raises(sj.InvalidJoin, match="for some of a, b, c"):
        sj.join(a, b, c, on=on, rates={"z": 1})
    with pytest.raises(sj.InvalidJoin, match="every input needs an event time: add time= to b"):
        sj.join(stream("a", "x t:time", time="t", **TIMED), b, c, on=on)
    with pytest.raises(sj.InvalidJoin, match="Or leave strict=True out"):
        sj.join(a, b, c, on=on, strict=True)
