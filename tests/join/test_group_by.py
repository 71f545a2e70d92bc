"""Group by, told as stories: final rows leave in the batch in which their key is finished."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import streamjoin as sj
from streamjoin.join.aggregates import FUNCTIONS
from tests.groups import aggregate, exact_sum
from tests.tables import EMPTY, NOTHING, WAYS, Story, rows, stream, unbounded_is_meant

pytestmark = unbounded_is_meant
in_every_way = pytest.mark.parametrize("way", WAYS)


def auction(**options: Any) -> sj.Joined:
    """Items are opened once; "no more bids for item 180" ends an auction."""
    return sj.join(
        stream("item", "k title:str", unique=True),
        stream("bid", "k price who:str is_end:bool", punctuation=sj.marked("is_end")),
        **options,
    )


def counted(**options: Any) -> sj.Joined:
    return auction(**options).group_by("k").agg(n=("*", "count"), best=("price", "max"))


# ---------------------------------------------------------------- when a row leaves


@in_every_way
def test_a_groups_row_leaves_when_its_key_is_finished(way: str) -> None:
    run = Story(counted(), way)
    assert run.push("item", "k title\n180 vase\n181 rug") == NOTHING
    assert run.push("bid", "k price\n180 5\n180 7\n181 1") == NOTHING
    assert run.push("bid", "k price\n180 6") == NOTHING
    assert run.punctuate("bid", k=180) == [(180, 3, 7)]
    assert run.punctuations() == ["<180>"]
    assert run.finish() == [(181, 1, 1)]
    assert run.punctuations() == ["<181>"]
    assert run.state() == EMPTY


@in_every_way
def test_the_last_results_and_the_punctuation_may_come_in_one_batch(way: str) -> None:
    run = Story(counted(), way)
    run.push("item", "k title\n180 vase")
    assert run.push("bid", "k price is_end\n180 5 false\n180 9 false\n180 - true") == [(180, 2, 9)]
    assert run.state() == EMPTY


def test_no_row_for_a_key_without_results() -> None:
    run = Story(counted())
    run.push("item", "k title\n180 vase")
    assert run.punctuate("bid", k=180) == NOTHING
    assert run.punctuations() == ["<180>"]


def test_the_final_row_comes_before_the_punctuation_for_its_key() -> None:
    run = counted().local()
    seen: list[str] = []
    sorted_out = run._sorted_out

    def watched(outputs: Any) -> Any:
        given = list(outputs)
        seen.extend(type(one).__name__ for one in given)
        return sorted_out(given)

    run._sorted_out = watched  # type: ignore[method-assign]
    schema = run.plan.streams[1].schema
    run.push("item", pa.table({"k": [1], "title": ["a"]}))
    run.push("bid", pa.Table.from_pylist([{"k": 1, "price": 2, "is_end": False}], schema))
    run.punctuate("bid", k=1)
    assert seen == ["Results", "FinishedKeys"]


@in_every_way
def test_further_group_columns(way: str) -> None:
    joined = auction().group_by("who", "k", "title").agg(n=("*", "count"), paid=("price", "sum"))
    assert joined.plan.spec.emits.names == ["who", "k", "title", "n", "paid"]
    run = Story(joined, way)
    run.push("item", "k title\n1 vase\n2 rug")
    run.push("bid", "k price who\n1 5 ann\n1 6 bob\n2 1 ann\n1 1 -")
    run.push("bid", "k price who\n1 4 ann\n1 2 -")
    assert run.punctuate("bid", k=1) == [
        (None, 1, "vase", 2, 3),
        ("ann", 1, "vase", 2, 9),
        ("bob", 1, "vase", 1, 6),
    ]
    assert run.finish() == [("ann", 2, "rug", 1, 1)]


@in_every_way
def test_zeros_and_nans_are_one_group_each(way: str) -> None:
    joined = sj.join(stream("a", "k x:float", unique=True), stream("b", "k y:float z", unique=True)).group_by(
        "k", "y"
    )
    run = Story(joined.agg(n=("*", "count")), way)
    run.push("a", "k x\n1 1\n2 1\n3 1\n4 1")
    assert run.push("b", "k y\n1 0.0") == [(1, 0.0, 1)]
    many = (
        sj.join(stream("a", "k x:float"), stream("b", "k y:float")).group_by("k", "x").agg(n=("*", "count"))
    )
    run = Story(many)
    run.push("a", "k x\n1 0.0\n1 -0.0\n1 nan\n1 nan")
    run.push("b", "k y\n1 1")
    found = run.finish()
    assert [row[2] for row in found] == [2, 2]
    assert sorted(map(str, (row[1] for row in found))) == ["0.0", "nan"]


@in_every_way
def test_composite_keys(way: str) -> None:
    joined = sj.join(
        stream("a", "k j:str x", key=["k", "j"], unique=True), stream("b", "k j:str y", key=["k", "j"])
    )
    run = Story(joined.group_by("j", "k").agg(ys=("y", "collect")), way)
    run.push("a", "k j x\n1 u 0\n1 v 0")
    run.push("b", "k j y\n1 u 3\n1 v 4\n1 u 2")
    assert run.punctuate("b", k=1, j="u") == [("u", 1, [2, 3])]
    assert run.punctuate("b", k=sj.ANY, j="v") == [("v", 1, [4])]
    assert run.state().groups == 0


@in_every_way
def test_a_key_of_which_no_tuple_is_left(way: str) -> None:
    """All its tuples went out of their windows; a range, a wildcard or the end still finds its group."""
    timed = {"time": "t", "window": "10 seconds", "lateness": "0 seconds"}
    joined = sj.join(stream("a", "k x t:time", **timed), stream("b", "k y t:time", **timed))
    run = Story(joined.group_by("k").agg(n=("*", "count")), way)
    run.push("a", "k x t\n1 0 0\n2 0 0\n3 0 0\n4 0 0")
    run.push("b", "k y t\n1 0 1\n2 0 2\n3 0 2\n3 0 3\n4 0 3")
    run.push("a", "k x t\n9 0 50")
    run.push("b", "k y t\n8 0 50")
    assert run.held() == {"a": 1, "b": 1}
    assert run.punctuations() == []
    assert run.punctuate("a", k=sj.between(1, 2)) == [(1, 1), (2, 1)]
    assert run.punctuate("b", k=3) == [(3, 2)]
    assert run.state().groups == 1
    assert run.end("a") == [(4, 1)]
    assert run.finish() == NOTHING
    assert run.punctuations() == ["<1>", "<2>", "<3>", "<4>", "<8>", "<9>"]
    assert run.state().groups == 0


def test_early_finish_by_the_window() -> None:
    """One input is closed for the key, and its tuple has left the window."""
    item = stream("item", "k t:time", time="t", window="10 seconds", lateness="0 seconds", unique=True)
    bid = stream("bid", "k t:time price", time="t", window="10 seconds", lateness="0 seconds")
    run = Story(sj.join(item, bid).group_by("k").agg(n=("*", "count"), last=("price", "last")))
    run.push("item", "k t\n1 0\n2 5")
    assert run.push("bid", "k t price\n1 3 8\n1 10 9\n2 10 1") == NOTHING
    assert run.push("bid", "k t price\n1 11 7") == [(1, 2, 9)]
    assert run.push("bid", "k t price\n1 12 7\n2 12 3") == NOTHING
    assert run.finish() == [(2, 2, 3)]


@in_every_way
def test_a_key_that_comes_again_has_a_row_again(way: str) -> None:
    """Closed on every input it was forgotten; what comes later is a new key."""
    run = Story(counted(), way)
    run.push("item", "k title\n1 vase")
    run.push("bid", "k price\n1 5")
    assert run.punctuate("bid", k=1) == [(1, 1, 5)]
    run.push("item", "k title\n1 rug")
    run.push("bid", "k price\n1 6\n1 8")
    assert run.punctuate("bid", k=1) == [(1, 2, 8)]


def test_final_rows_do_not_wait_for_a_purge_strategy_but_in_mjoin() -> None:
    run = Story(counted(purge=sj.PurgeEvery(2)))
    run.push("item", "k title\n1 a\n2 b")
    run.push("bid", "k price\n1 5\n2 6")
    assert run.punctuate("bid", k=1) == [(1, 1, 5)]
    assert run.punctuate("bid", k=2) == [(2, 1, 6)]
    run = Story(counted(purge=sj.PurgeEvery(2), operator="mjoin_1np"))
    run.push("item", "k title\n1 a\n2 b")
    run.push("bid", "k price\n1 5\n2 6")
    assert run.punctuate("bid", k=1) == NOTHING
    assert run.punctuate("bid", k=2) == [(1, 1, 5), (2, 1, 6)]


@pytest.mark.parametrize("options", [{"purge": "none"}, {"operator": "shj"}])
def test_where_nothing_is_purged_rows_leave_at_the_end(options: dict[str, Any]) -> None:
    run = Story(counted(**options))
    run.push("item", "k title\n1 a\n2 b")
    run.push("bid", "k price\n1 5\n2 6")
    assert run.punctuate("bid", k=1) == NOTHING
    assert run.finish() == [(1, 1, 5), (2, 1, 6)]
    assert run.state().groups == 0


def test_conditions_on_the_joined_row_count_before_groups() -> None:
    run = Story(counted(where=pc.field("price") > 4))
    run.push("item", "k title\n1 a\n2 b")
    run.push("bid", "k price\n1 5\n1 3\n2 1")
    assert run.finish() == [(1, 1, 5)]


# ---------------------------------------------------------------- types of join


@in_every_way
def test_padded_rows_are_results_of_their_key(way: str) -> None:
    joined = auction(how="left").group_by("k").agg(n=("*", "count"), bids=("price", "count"))
    run = Story(joined, way)
    run.push("item", "k title\n1 a\n2 b\n3 c")
    run.push("bid", "k price\n1 5\n1 -")
    assert run.punctuate("bid", k=1) == [(1, 2, 1)]
    assert run.punctuate("bid", k=2) == [(2, 1, 0)]
    assert run.push("item", "k title\n4 d") == NOTHING
    assert run.finish() == [(3, 1, 0), (4, 1, 0)]
    assert run.state() == EMPTY


@in_every_way
@pytest.mark.parametrize("how", ["left", "full", "left_anti"])
def test_null_keys_are_a_group_that_leaves_when_no_more_can_come(how: str, way: str) -> None:
    """As Spark's groupBy has it; only the end of the preserved inputs says that it is final."""
    run = Story(auction(how=how).group_by("k").agg(titles=("title", "collect"), n=("*", "count")), way)
    assert run.push("item", "k title\n- a\n1 b\n- c") == NOTHING
    assert run.push("bid", "k price\n- 3") == NOTHING
    assert run.push("item", "k title\n- b") == NOTHING
    assert run.punctuate("bid", k=1) == [(1, ["b"], 1)]
    bids = 1 if how == "full" else 0
    final = [(None, ["a", "b", "c"], 3 + bids)]
    assert run.end("item") == (NOTHING if how == "full" else final)
    assert run.end("bid") == (final if how == "full" else NOTHING)
    assert run.punctuations() == ["<1>"]
    assert run.state() == EMPTY


@in_every_way
def test_composite_keys_with_a_null_are_groups_of_their_own(way: str) -> None:
    joined = sj.join(
        stream("a", "k j x", key=["k", "j"], unique=True),
        stream("b", "k j y", key=["k", "j"], unique=True),
        how="left",
    )
    run = Story(joined.group_by("k", "j").agg(n=("*", "count")), way)
    run.push("a", "k j x\n1 - 0\n- 1 0\n1 - 1\n- - 0")
    assert run.finish() == [(None, None, 1), (None, 1, 1), (1, None, 2)]


@in_every_way
@pytest.mark.parametrize(("how", "expected"), [("left_semi", [(1, 1)]), ("left_anti", [(2, 1)])])
def test_semi_and_anti_joins(how: str, expected: list[Any], way: str) -> None:
    run = Story(auction(how=how).group_by("k").agg(n=("title", "count")), way)
    run.push("item", "k title\n1 a\n2 b")
    found = run.push("bid", "k price\n1 5\n1 6")
    assert found + run.finish() == expected
    assert run.state() == EMPTY


@in_every_way
def test_right_join_with_a_key_that_left_closed_long_ago(way: str) -> None:
    """Its rows leave padded at once, and nothing but their group remembers the key."""
    joined = sj.join(stream("a", "k x", unique=True), stream("b", "k y"), how="right")
    run = Story(joined.group_by("k").agg(ys=("y", "collect")), way)
    run.punctuate("a", k=sj.between(1, 5))
    assert run.push("b", "k y\n1 3\n1 2\n2 1") == NOTHING
    assert run.punctuate("b", k=sj.between(0, 1)) == [(1, [2, 3])]
    assert run.end("b") == [(2, [1])]
    assert run.state().groups == 0


# ---------------------------------------------------------------- functions


SAMPLES: dict[pa.DataType, Callable[[Random], Any]] = {
    pa.int64(): lambda rng: rng.choice((-(2**62), -1, 0, 1, 2**62, 7)),
    pa.int8(): lambda rng: rng.randint(-128, 127),
    pa.uint64(): lambda rng: rng.choice((0, 1, 2**62)),
    pa.float64(): lambda rng: rng.choice((0.5, -2.0, 1024.0, math.inf, math.nan)),
    pa.float32(): lambda rng: rng.choice((0.5, -2.25, 3.0)),
    pa.decimal128(12, 2): lambda rng: Decimal(rng.randint(-500, 500)) / 4,
    pa.decimal128(38, 0): lambda rng: Decimal(rng.choice((-(10**37), 10**37, 3))),
    pa.string(): lambda rng: rng.choice(("", "a", "é", "z", "\U0001f600")),
    pa.binary(): lambda rng: rng.choice((b"", b"\0", b"a", b"\xff")),
    pa.bool_(): lambda rng: rng.random() < 0.5,
    pa.date32(): lambda rng: date(2024, 2, rng.randint(1, 29)),
    pa.timestamp("us"): lambda rng: datetime(2024, 2, rng.randint(1, 29)),  # noqa: DTZ001
    pa.duration("us"): lambda rng: timedelta(seconds=rng.randint(-5, 5)),
}


@pytest.mark.parametrize("dtype", SAMPLES, ids=str)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_do_what_plain_python_does(function: str, dtype: pa.DataType) -> None:
    """Values in many batches, with nulls, kept as partial rows that are merged and combined."""
    if not FUNCTIONS[function].takes(dtype):
        with pytest.raises(sj.InvalidJoin, match=f"there is no {function}"):
            over(dtype, function)
        return
    rng = Random(f"{function} {dtype}")
    run = over(dtype, function).local()
    run.push("one", pa.table({"k": list(range(9))}))
    schema = run.plan.streams[1].schema
    groups: dict[int, tuple[list[Any], list[int]]] = {}
    for _ in range(30):
        batch = []
        for _ in range(rng.randint(0, 6)):
            k, t = rng.randrange(8), rng.randrange(4)
            value = None if k == 7 or rng.random() < 0.2 else SAMPLES[dtype](rng)
            batch.append({"k": k, "v": value, "t": t})
            values, times = groups.setdefault(k, ([], []))
            values.append(value)
            times.append(t)
        run.push("many", pa.Table.from_pylist(batch, schema))
    if function == "sum" and dtype in (pa.int64(), pa.uint64(), pa.decimal128(38, 0)):
        limit = 10**38 if pa.types.is_decimal(dtype) else 2**63
        groups = {k: each for k, each in groups.items() if abs(exact_sum(each[0])) < limit}
    for k, (values, times) in groups.items():
        found = run.punctuate("many", k=k)
        assert found.num_rows == 1
        same(found["a"][0].as_py(), aggregate(function, values, times))


def over(dtype: pa.DataType, function: str) -> sj.Joined:
    one = sj.stream(pa.schema({"k": pa.int64()}), name="one", key="k", unique=True)
    many = sj.stream(
        pa.schema({"k": pa.int64(), "v": dtype, "t": pa.timestamp("us")}), name="many", key="k", time="t"
    )
    by = ("t",) if FUNCTIONS[function].ordered else ()
    return sj.join(one, many).group_by("k").agg(a=("v", function, *by))


def same(found: Any, wanted: Any) -> None:
    if isinstance(wanted, list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            same(one, other)
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, nan_ok=True)
    else:
        assert found == wanted
        assert type(found) is type(wanted)


@pytest.mark.parametrize(
    ("dtype", "function", "result"),
    [
        (pa.int8(), "sum", pa.int64()),
        (pa.float32(), "sum", pa.float64()),
        (pa.decimal128(12, 2), "sum", pa.decimal128(22, 2)),
        (pa.decimal128(30, 4), "sum", pa.decimal128(38, 4)),
        (pa.int32(), "avg", pa.float64()),
        (pa.float32(), "max", pa.float32()),
        (pa.string(), "first", pa.string()),
        (pa.int8(), "collect", pa.list_(pa.int8())),
        (pa.list_(pa.int8()), "count", pa.int64()),
    ],
)
def test_types_are_sparks(dtype: pa.DataType, function: str, result: pa.DataType) -> None:
    assert over(dtype, function).plan.spec.emits.field("a").type == result


def test_first_and_last_go_by_the_latest_component() -> None:
    timed = {"time": "t", "lateness": "0 seconds"}
    joined = sj.join(
        stream("a", "k x t:time", window="100 seconds", **timed),
        stream("b", "k y t:time", **timed, punctuation=sj.closing(pc.field("y") > 99)),
    )
    run = Story(joined.group_by("k").agg(first=("y", "first"), last=("y", "last"), x=("x", "last")))
    run.push("b", "k y t\n1 5 30\n1 6 20\n1 7 20")  # the earliest result is made of a row of 40
    run.push("a", "k x t\n1 1 10\n1 2 40")
    assert run.finish() == [(1, 6, 7, 2)]  # at 20: 6 and 7 with x 1; at 40: 5, 6 and 7 with x 2


def test_ties_are_broken_by_value_and_null_is_the_last_resort() -> None:
    joined = sj.join(stream("a", "k", unique=True), stream("b", "k y t:time", time="t", unique=False))
    run = Story(joined.group_by("k").agg(first=("y", "first"), last=("y", "last")))
    run.push("a", "k\n1\n2\n3")
    run.push("b", "k y t\n1 4 0\n1 - 0\n1 3 0\n2 - 0\n2 5 1\n3 5 0\n3 - 1")
    assert run.finish() == [(1, 3, 4), (2, None, 5), (3, 5, None)]


def test_a_sum_that_overflows_fails_only_if_the_answer_does() -> None:
    joined = auction().group_by("k").agg(total=("price", "sum"))
    run = Story(joined)
    run.push("item", "k title\n1 a\n2 b")
    run.push("bid", f"k price\n1 {2**63 - 1}\n1 1\n2 {2**63 - 1}")
    run.push("bid", f"k price\n1 {-(2**63)}\n2 1")
    assert run.punctuate("bid", k=1) == [(1, 0)]
    with pytest.raises(sj.BadInput, match=r"total = sum\(price\) of {'k': 2} does not fit int64 .* wider"):
        run.punctuate("bid", k=2)


# ---------------------------------------------------------------- what is held


def test_a_key_that_stays_open_does_not_grow() -> None:
    run = counted().local()
    run.push("item", pa.table({"k": [1, 2], "title": ["a", "b"]}))
    schema = run.plan.streams[1].schema
    bids = pa.Table.from_pylist([{"k": k, "price": 1, "is_end": False} for k in (1, 2)], schema)
    most = 0
    for _ in range(1000):
        run.push("bid", bids)
        most = max(most, run.state().groups)
    assert most <= 2 * 4
    assert rows(run.finish()) == [(1, 1000, 1), (2, 1000, 1)]


def test_many_results_of_one_batch_are_combined() -> None:
    run = counted().local()
    size = 200_000
    run.push("item", pa.table({"k": [1], "title": ["a"]}))
    columns = [np.ones(size, np.int64), np.arange(size), pa.nulls(size, pa.string()), np.zeros(size, bool)]
    bids = pa.table(dict(zip(("k", "price", "who", "is_end"), columns, strict=True)))
    run.push("bid", bids)
    assert run.state().groups <= 4
    assert rows(run.punctuate("bid", k=1)) == [(1, size, size - 1)]


def test_groups_are_part_of_the_state() -> None:
    run = Story(counted())
    run.push("item", "k title\n1 a")
    before = run.state()
    run.push("bid", "k price\n1 5")
    after = run.state()
    assert (before.groups, after.groups) == (0, 1)
    assert after.nbytes > before.nbytes
    assert after != EMPTY


def test_a_snapshot_of_another_grouping_is_refused() -> None:
    snapshot = counted().local().snapshot()
    with pytest.raises(sj.StateFormatError, match=r"group_by was k: n = count\(\*\)"):
        auction().group_by("k").agg(n=("*", "count")).local(snapshot=snapshot)
    with pytest.raises(sj.StateFormatError, match=r"group_by was k: .* and is now none"):
        auction().local(snapshot=snapshot)
    with pytest.raises(sj.StateFormatError, match=r"group_by was none and is now k: "):
        counted().local(snapshot=auction().local().snapshot())


# ---------------------------------------------------------------- what is refused, and explained


@pytest.mark.parametrize(
    ("group", "agg", "says"),
    [
        ([], {"n": ("*", "count")}, "leaves out k: only of the join's keys .* finished; add k"),
        (["title"], {"n": ("*", "count")}, "leaves out k"),
        (["k", "nope"], {"n": ("*", "count")}, "no column 'nope'; it has k, title"),
        ([7], {"n": ("*", "count")}, "no column 7"),
        (["k", "k"], {"n": ("*", "count")}, "names a column twice"),
        (["k"], {}, "no aggregates; give one"),
        (["k"], {"n": "count"}, "give a column and a function"),
        (["k"], {"n": ("price", "median")}, "no function 'median'; give one of count, sum"),
        (["k"], {"n": ("nope", "sum")}, "no column 'nope'"),
        (["k"], {"n": ("*", "sum")}, r'there is no sum of "\*"'),
        (["k"], {"k": ("*", "count")}, "k is a group column and an aggregate"),
        (["k"], {"n": ("title", "sum")}, "type string, of which there is no sum; there is count, min, max"),
        (["k"], {"n": ("price", "last")}, "go by event time: declare time= on item or bid"),
    ],
)
def test_refused(group: list[Any], agg: dict[str, Any], says: str) -> None:
    with pytest.raises(sj.InvalidJoin, match=says):
        auction().group_by(*group).agg(**agg)


def test_a_join_that_does_not_propagate_cannot_be_grouped() -> None:
    with pytest.raises(sj.InvalidJoin, match="leave propagate out"):
        counted(propagate=False)


def test_groups_are_not_grouped_again() -> None:
    with pytest.raises(sj.InvalidJoin, match="grouped already"):
        counted().group_by("k").agg(n=("*", "count"))


def test_kept_violations_of_a_preserved_input_are_refused() -> None:
    keeping = stream("a", "k x", unique=True, on_violation="keep")
    other = stream("b", "k y", unique=True)
    with pytest.raises(sj.InvalidJoin, match='on_violation="keep" on a'):
        sj.join(keeping, other, how="left").group_by("k").agg(n=("*", "count"))
    assert sj.join(other, keeping, how="left").group_by("k").agg(n=("*", "count"))


def test_nested_columns_are_refused() -> None:
    joined = sj.join(stream("a", "k ids:list", unique=True), stream("b", "k", unique=True))
    for function in ("min", "first", "collect"):
        with pytest.raises(sj.InvalidJoin, match="there is count, or cast"):
            joined.group_by("k").agg(n=("ids", function))
    with pytest.raises(sj.InvalidJoin, match="simple types"):
        joined.group_by("k", "ids").agg(n=("*", "count"))


def test_an_average_of_decimals_is_refused_with_what_to_do() -> None:
    with pytest.raises(sj.InvalidJoin, match="take sum and count and divide"):
        over(pa.decimal128(10, 2), "avg")


def test_padded_rows_need_a_time_of_their_own() -> None:
    timed, plain = stream("a", "k t:time", time="t", unique=True), stream("b", "k y", unique=True)
    asked = {"y": ("y", "last")}
    assert sj.join(timed, plain, how="left").group_by("k").agg(**asked)
    with pytest.raises(sj.InvalidJoin, match=r"time= on b$"):
        sj.join(timed, plain, how="full").group_by("k").agg(**asked)


WINDOW = {"time": "t", "window": "10 seconds", "lateness": "0 seconds"}


@pytest.mark.parametrize(
    ("left", "right", "options", "says"),
    [
        ({}, {}, {}, "on a and b"),
        ({"unique": True}, {}, {}, "on b"),
        ({"unique": True}, {"unique": True}, {}, None),
        (WINDOW, WINDOW, {}, "on a and b"),
        ({**WINDOW, "unique": True}, WINDOW, {}, None),
        ({**WINDOW, "unique": True}, WINDOW, {"how": "left"}, None),
        ({**WINDOW, "unique": True}, WINDOW, {"how": "right"}, "on b"),
        ({"unique": True}, {"unique": True}, {"purge": "none"}, "choose another purge"),
    ],
)
def test_where_no_key_is_ever_finished_it_is_said(left: Any, right: Any, options: Any, says: Any) -> None:
    joined = sj.join(stream("a", "k t:time", **left), stream("b", "k t:time", **right), **options)
    joined = joined.group_by("k").agg(n=("*", "count"))
    if says is None:
        assert "a row leaves in the batch in which its key is finished" in joined.explain()
        return
    with pytest.warns(sj.UnboundedState) as told:
        joined.local()
    said = [str(one.message) for one in told if "before the inputs end" in str(one.message)]
    assert len(said) == 1
    assert said[0].endswith(says) or says in said[0]
    assert said[0] in joined.explain()


def test_explain_tells_of_groups() -> None:
    text = counted().explain()
    assert "result: k, n, best" in text
    assert "Groups\n  by k: n = count(*), best = max(price)" in text
    assert "Groups" not in auction().explain()
