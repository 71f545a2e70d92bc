"""Cases that a reviewer found by the public API alone, each as it was told."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import streamjoin as sj
from streamjoin.join.persistence.inspect import inspect
from streamjoin.plan.state_report import JoinState
from tests.tables import unbounded_is_meant

pytestmark = unbounded_is_meant

START = dt.datetime(2020, 1, 1)  # noqa: DTZ001 - the streams have no zone
NUMBERS = {name: pa.schema({"k": pa.int64(), name: pa.int64()}) for name in ("x", "y", "_row")}


def numbers(name: str, column: str, **declared: Any) -> Any:
    return sj.stream(NUMBERS[column], name=name, key="k", **declared)


def rows(column: str, *pairs: tuple[int | None, int | None]) -> pa.Table:
    return pa.Table.from_pylist([{"k": k, column: value} for k, value in pairs], schema=NUMBERS[column])


def test_struct_keys_are_matched_by_the_place_of_their_fields() -> None:
    left, right = pa.struct({"x": pa.int64()}), pa.struct({"y": pa.int32()})
    a = sj.stream(pa.schema({"k": left, "v": pa.int64()}), name="a", key="k")
    b = sj.stream(pa.schema({"k": right, "w": pa.int64()}), name="b", key="k")
    run = sj.join(a, b).local()
    run.push("a", pa.table({"k": pa.array([{"x": None}, {"x": 1}, None], left), "v": [1, 2, 3]}))
    found = run.push("b", pa.table({"k": pa.array([{"y": 1}, {"y": 2}, None], right), "w": [1, 2, 3]}))
    assert found.to_pylist() == [{"k": {"x": 1}, "v": 2, "w": 1}]
    other = pa.array([{"z": 1}], pa.struct({"z": pa.int64()}))
    with pytest.raises(sj.BadInput, match="column 'k' has the fields z, declared are x"):
        run.push("a", pa.table({"k": other, "v": [1]}))


@pytest.mark.parametrize("purge", ["immediate", "batch", "idle"])
def test_a_key_that_time_finishes_before_it_is_purged_is_propagated_once(purge: str) -> None:
    schema = pa.schema({"k": pa.int64(), "t": pa.timestamp("us")})
    timed: dict[str, Any] = {"key": "k", "time": "t", "lateness": "0 seconds", "window": "5 seconds"}
    a, b = (sj.stream(schema, name=name, arrival=sj.ordered(), columns=[], **timed) for name in "ab")
    run = sj.join(a, b, purge=purge).local()
    for key, second in ((1, 0), (2, 100)):
        table = pa.table({"k": [key], "t": [START + dt.timedelta(seconds=second)]}, schema=schema)
        run.step({"a": table, "b": table})
    assert [one.text() for one in run.punctuations()] == ["<(, 0]>", "<1>", "<(, 1]>"]


def test_a_single_punctuation_inside_ranges_of_all_inputs_is_nothing_new() -> None:
    run = sj.join(numbers("a", "x"), numbers("b", "y")).local()
    run.push("a", rows("x", (3, 1)))
    for name in "ab":
        run.punctuate(name, k=sj.between(0, 10))
    run.punctuate("a", k=3)
    run.finish()
    run.punctuate("b", k=77)
    assert [one.text() for one in run.punctuations()] == ["<3>", "<[0, 10]>"]


def test_conditions_that_differ_in_the_middle_of_a_long_list_are_told_apart() -> None:
    long = list(range(1000))
    other = [*long[:500], 7777, *long[501:]]
    inputs = numbers("a", "x"), numbers("b", "y")
    snapshot = sj.join(*inputs, how="left", where=pc.field("x").isin(long)).local().snapshot()
    sj.join(*inputs, how="left", where=pc.field("x").isin(long)).local(snapshot=snapshot)
    with pytest.raises(sj.StateFormatError, match="where= was "):
        sj.join(*inputs, how="left", where=pc.field("x").isin(other)).local(snapshot=snapshot)
    with pytest.raises(sj.StateFormatError, match="how= was left and is now inner"):
        sj.join(*inputs, where=pc.field("x").isin(long)).local(snapshot=snapshot)


def test_a_condition_may_speak_of_a_column_called_row_but_not_of_ours() -> None:
    run = sj.join(numbers("a", "x"), numbers("b", "_row"), where=pc.field("_row") > 1).local()
    run.push("a", rows("x", (1, 1)))
    assert run.push("b", rows("_row", (1, 1), (1, 2))).to_pylist() == [{"k": 1, "x": 1, "_row": 2}]
    with pytest.raises(sj.InvalidJoin, match="cannot be tested on a joined row"):
        sj.join(numbers("a", "x"), numbers("b", "y"), where=pc.field("_row") > 0)


def test_a_condition_that_fails_on_data_says_so() -> None:
    ratio = pc.divide(pc.field("x"), pc.field("y")) > 0
    run = sj.join(numbers("a", "x"), numbers("b", "y"), how="full", where=ratio).local()
    run.push("a", rows("x", (1, 4)))
    with pytest.raises(sj.BadInput, match=r"where=.* failed on a joined row .*divide by zero"):
        run.push("b", rows("y", (1, 0)))


def test_what_no_purging_means_for_the_state_is_explained() -> None:
    marked = {"punctuation": sj.marked("end")}
    schema = pa.schema({"k": pa.int64(), "end": pa.bool_()})
    a, b = (sj.stream(schema, name=name, key="k", **marked) for name in "ab")
    assert "NOT BOUNDED" in sj.join(a, b, purge="none").explain()
    assert "NOT BOUNDED" not in sj.join(a, b).explain()


def test_control_punctuations_act_when_their_input_ends_however_they_are_purged() -> None:
    source = pa.schema({"k": pa.int64(), "over": pa.timestamp("us")})
    schema = pa.schema({"k": pa.int64(), "t": pa.timestamp("us")})
    timed: dict[str, Any] = {"key": "k", "time": "t", "lateness": "0 seconds", "columns": []}
    control = sj.control(source, time="over")
    a, b = (sj.stream(schema, name=name, punctuation=control, **timed) for name in "ab")
    run = sj.join(a, b, purge=sj.PurgeEvery(10)).local()
    run.control("b", pa.table({"k": [5], "over": [START]}, schema=source))
    run.finish()
    assert run.state().empty


def test_a_null_key_after_the_end_of_its_input_is_a_violation() -> None:
    run = sj.join(numbers("a", "x"), numbers("b", "y"), how="left").local()
    assert len(run.push("a", rows("x", (None, 1)))) == 1
    run.end("a")
    assert len(run.push("a", rows("x", (None, 2)))) == 0
    assert [found["reason"] for found in run.violations()] == ["after_punctuation"]


def test_a_semi_join_is_not_refused_for_columns_that_do_not_leave() -> None:
    left = pa.schema({"k": pa.int64(), "v": pa.int64(), "b_v": pa.int64()})
    right = pa.schema({"k": pa.int64(), "v": pa.int64()})
    inputs = sj.stream(left, name="a", key="k"), sj.stream(right, name="b", key="k")
    assert sj.join(*inputs, how="left_semi").plan.spec.output.names == ["k", "v", "b_v"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda a, b: sj.join(a, b, buckets="4"), "buckets='4'; give a whole number"),
        (lambda a, b: sj.join(a, b, buckets=2.5), r"buckets=2\.5; give a whole number"),
        (lambda a, b: sj.join(a, b, name=5), "name=5; give a name"),
        (lambda a, b: sj.stream(NUMBERS["x"], name="c", key=3), "key is 3; give a column's name"),
        (lambda a, b: sj.join(a, b).local(snapshot="x"), "stored state is bytes, not a str"),
        (lambda a, b: sj.join(a, b).local().step(None), "a batch is a NoneType; give a mapping"),
        (lambda a, b: sj.join(a, b).local().punctuate("a", 5), "5 is no Punctuation; name the key columns"),
        (lambda a, b: sj.join(a, b).local().push("a", _twice()), "two columns 'k'; rename one"),
    ],
)
def test_bad_input_is_told_in_words(call: Any, said: str) -> None:
    with pytest.raises(sj.StreamJoinError, match=said):
        call(numbers("a", "x"), numbers("b", "y"))


def _twice() -> pa.Table:
    return pa.Table.from_arrays([pa.array([1])] * 3, names=["k", "k", "x"])


TEXTS = {name: pa.schema({"k": pa.int64(), name: pa.string()}) for name in "ab"}


def deferring(memory: Any) -> sj.Joined:
    return sj.join(*(sj.stream(TEXTS[name], name=name, key="k") for name in "ab"), memory=memory)


def fed(run: sj.LocalRun, begin: int, end: int) -> list[tuple[Any, ...]]:
    """Every key of b is one that a has had, mostly long before; both sides outgrow 1 MB."""
    found: list[tuple[Any, ...]] = []
    for i in range(begin, end):
        keys = {"a": range(i * 200, (i + 1) * 200), "b": [j * 7 % ((i + 1) * 200) for j in range(200)]}
        for name in "ab":
            table = pa.table({"k": list(keys[name]), name: [f"{i:0400}"] * 200}, schema=TEXTS[name])
            found += map(tuple, map(dict.values, run.push(name, table).to_pylist()))
    return found


@pytest.mark.parametrize("drained", [False, True])
@pytest.mark.parametrize("between", ["1 MB", None])
def test_pairs_that_wait_are_neither_lost_nor_doubled_when_a_restart_changes_the_memory(
    between: str | None, drained: bool
) -> None:
    free = deferring(None).local()
    waits = sj.SpillAbove("1 MB", defer=True)
    run = deferring(waits).local()
    found = fed(run, 0, 8)
    assert run.state().deferred
    while drained and run.state().deferred:
        found += map(tuple, map(dict.values, run.idle().to_pylist()))
    run = deferring(between).local(snapshot=run.snapshot())
    run = deferring(between).local(snapshot=run.snapshot())  # nothing came in between
    found += fed(run, 8, 16)
    assert run.state().deferred == 0
    run = deferring(waits).local(snapshot=run.snapshot())
    found += fed(run, 16, 24)
    found += map(tuple, map(dict.values, run.finish().to_pylist()))
    assert sorted(found) == sorted(fed(free, 0, 24))


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        (5, "give a rate for each of a, b, by name"),
        ({1: 1, "b": 2}, "rates are given for 1, b; give one for each of a, b"),
        ({"a": float("nan"), "b": 1}, "as numbers"),
        ({"a": float("inf"), "b": 1}, "as numbers"),
        ({"a": 10**400, "b": 1}, "as numbers"),
    ],
)
def test_rates_that_are_none_are_refused_with_what_to_give(rates: Any, said: str) -> None:
    joined = sj.join(numbers("a", "x"), numbers("b", "y"))
    with pytest.raises(sj.InvalidJoin, match=said):
        joined.explain(rates=rates)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rows_per_key": float("nan")}, "as numbers"),
        ({"row_bytes": "x"}, "as numbers"),
        ({"row_bytes": -5}, "row_bytes above 0"),
        ({"open_for": ("1 hour",)}, "a pair"),
        ({"open_for": ("2 hours", "1 hour")}, "shortest, longest"),
    ],
)
def test_a_rate_that_is_none_is_refused_with_what_to_give(given: Any, said: str) -> None:
    with pytest.raises(sj.InvalidJoin, match=said):
        sj.Rate(1, **given)


@pytest.mark.parametrize(
    ("limit", "given", "said"),
    [
        ("1 MB", {"flush": ["largest"]}, "give one of largest, oldest"),
        ("1 MB", {"defer": "no"}, "give True or False"),
        ("9" * 400 + " GB", {}, "give a size such as"),
    ],
)
def test_a_memory_limit_that_is_none_is_refused(limit: str, given: Any, said: str) -> None:
    with pytest.raises(sj.InvalidJoin, match=said):
        sj.SpillAbove(limit, **given)


def test_a_join_given_as_an_input_is_refused_in_one_line() -> None:
    joined: Any = sj.join(numbers("a", "x"), numbers("b", "y"))
    with pytest.raises(sj.InvalidJoin, match=r"^a Joined is not a stream; wrap it with sj.stream\(…, name"):
        sj.join(joined, numbers("c", "x"))


def test_the_state_command_says_of_groups_what_they_wait_for() -> None:
    run = (
        sj.join(numbers("a", "x", unique=True), numbers("b", "y")).group_by("k").agg(n=("*", "count")).local()
    )
    run.step({"a": rows("x", (1, 1), (2, 2)), "b": rows("y", (1, 1), (2, 2), (2, 3))})
    told = JoinState(
        0, run.join.spec, tuple(run.join.watermarks), {0: inspect(run.join)}, {"purge": "immediate"}
    )
    assert "\ngroups: 2 rows added up so far; a group is emitted when its key is finished\n" in told.text()
    assert "side g" not in told.text()
