"""Issue 19, line 20: keys of each input, null-safe keys, right semi and anti joins, qualified names."""

import itertools
import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import streamjoin as sj
from tests.tables import Story, unbounded_is_meant

pytestmark = unbounded_is_meant

HOW = ["inner", "left", "right", "full", "left_semi", "left_anti", "right_semi", "right_anti"]
A = pa.schema({"k": pa.int64(), "x": pa.int64()})
B = pa.schema({"k": pa.int64(), "y": pa.int64()})
Row = tuple[int | None, ...]


def two(how: str = "inner", a: Any = None, b: Any = None, **options: Any) -> sj.Joined:
    left = sj.stream(A, name="a", key="k", **(a or {}))
    return sj.join(left, sj.stream(B, name="b", key="k", **(b or {})), how=how, **options)


def brute(left: list[Row], right: list[Row], how: str, *, null_safe: bool, each: bool) -> Counter[Any]:
    """Rows (k, value) of both sides by the type of join; with `each`, the key of each side too."""
    if how.startswith("right_"):
        return brute(right, left, how.replace("right", "left"), null_safe=null_safe, each=each)
    pairs = [
        (i, j)
        for (i, a), (j, b) in itertools.product(enumerate(left), enumerate(right))
        if a[0] == b[0] and (null_safe or a[0] is not None)
    ]
    matched = [{pair[0] for pair in pairs}, {pair[1] for pair in pairs}]

    def columns(a: Row | None, b: Row | None) -> tuple[Any, ...]:
        key = (a or b or (None,))[0]
        own = [row if each else row[1:] for row in (a or (None, None), b or (None, None))]
        return (key, *own[0], *own[1])

    def alone(rows: list[Row], kept: Any) -> Counter[Any]:
        chosen = [row for i, row in enumerate(rows) if kept(i)]
        return Counter((row[0], *(row if each else row[1:])) for row in chosen)

    if how == "left_semi":
        return alone(left, lambda i: i in matched[0])
    if how == "left_anti":
        return alone(left, lambda i: i not in matched[0])
    found = Counter(columns(left[i], right[j]) for i, j in pairs)
    if how in ("left", "full"):
        found.update(columns(row, None) for i, row in enumerate(left) if i not in matched[0])
    if how in ("right", "full"):
        found.update(columns(None, row) for j, row in enumerate(right) if j not in matched[1])
    return found


def drawn(rng: random.Random, steps: int = 10) -> tuple[list[Row], list[Row], list[tuple[str, pa.Table]]]:
    rows: dict[str, list[Row]] = {"a": [], "b": []}
    told = []
    for _ in range(steps):
        name = rng.choice("ab")
        new = [(rng.choice([None, 1, 2, 3, 4]), rng.randrange(9)) for _ in range(rng.randrange(4))]
        rows[name] += new
        columns = [pa.array([row[i] for row in new], pa.int64()) for i in range(2)]
        told.append((name, pa.table(columns, (A if name == "a" else B).names)))
    return rows["a"], rows["b"], told


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("null_safe", [False, True])
@pytest.mark.parametrize("how", HOW)
def test_the_answer_is_the_batch_joins(how: str, null_safe: bool, each: bool) -> None:
    for seed in range(6):
        rng = random.Random(f"{seed} {how} {null_safe} {each}")
        left, right, steps = drawn(rng)
        joined = two(how, null_safe=null_safe, keys="each" if each else "once")
        run = joined.local()
        found: Counter[Any] = Counter()
        for name, table in steps:
            if rng.random() < 0.2:
                run = joined.local(snapshot=run.snapshot())
            found.update(tuple(row.values()) for row in run.push(name, table).to_pylist())
            if null_safe and rng.random() < 0.1:  # nothing of it follows: not true, but null is no wildcard
                found.update(tuple(row.values()) for row in run.punctuate(name, k=99).to_pylist())
        found.update(tuple(row.values()) for row in run.finish().to_pylist())
        assert found == brute(left, right, how, null_safe=null_safe, each=each), seed
        assert run.state().empty


# ---------------------------------------------------------------- which side is missing


def test_the_keys_of_each_input_tell_which_side_is_missing() -> None:
    joined = two("full", keys="each")
    assert joined.plan.spec.emits.names == ["k", "a_k", "x", "b_k", "y"]
    run = Story(joined)
    run.push("a", "k x\n1 10\n2 -")
    run.push("b", "k y\n1 -\n3 -")
    assert run.finish() == [(2, 2, None, None, None), (3, None, None, 3, None)]


def test_keys_of_other_names_keep_them() -> None:
    orders = sj.stream(pa.schema({"id": pa.int64()}), name="orders", key="id")
    lines = sj.stream(pa.schema({"order_id": pa.int32()}), name="lines", key="order_id")
    joined = sj.join(orders, lines, how="left", keys="each")
    assert joined.plan.spec.emits.names == ["id", "orders_id", "order_id"]
    assert sj.join(orders, lines, how="left", where="order_id > 1", keys="each").local()


def test_conditions_see_the_keys_of_each_input() -> None:
    run = Story(two("left", keys="each", where="b.k > 1 and a_k < 3 and y > x"))
    assert run.push("a", "k x\n1 0\n2 0\n3 0") == [(3, 3, 0, None, None)]
    assert run.push("b", "k y\n1 5\n2 5\n3 5") == [(2, 2, 0, 2, 5)]
    assert run.finish() == [(1, 1, 0, None, None)]


def test_groups_and_three_inputs_with_keys_of_each() -> None:
    streams = [sj.stream(pa.schema({"k": pa.int64(), n: pa.int64()}), name=n, key="k") for n in "xyz"]
    joined = sj.join(*streams, how="left", keys="each", names="qualified")
    assert joined.plan.spec.emits.names == ["k", "x_k", "x_x", "y_k", "y_y", "z_k", "z_z"]
    run = joined.group_by("k").agg(n=("y_k", "count")).local()
    run.push("x", pa.table({"k": [1, 2], "x": [1, 2]}))
    run.push("y", pa.table({"k": [1, 1], "y": [1, 2]}))
    run.push("z", pa.table({"k": [1], "z": [1]}))
    assert sorted(run.finish().to_pylist(), key=str) == [{"k": 1, "n": 2}, {"k": 2, "n": 0}]


# ---------------------------------------------------------------- null-safe keys


def test_null_keys_match_and_are_closed_like_others() -> None:
    run = Story(two("left", null_safe=True))
    run.push("a", "k x\n- 1\n2 2")
    assert run.push("b", "k y\n- 5") == [(None, 1, 5)]
    assert run.punctuate("b", k=None) == []
    assert run.held() == {"a": 1, "b": 1}
    assert run.punctuate("a", k=None) == []
    assert run.punctuations() == ["<null>"]
    assert run.held() == {"a": 1, "b": 0}
    assert run.punctuate("b", k=2) == [(2, 2, None)]


def test_a_marked_row_with_a_null_key_closes_the_null_key() -> None:
    schema = pa.schema({"k": pa.int64(), "y": pa.int64(), "end": pa.bool_()})
    b = sj.stream(schema, name="b", key="k", punctuation=sj.marked("end"))
    run = Story(sj.join(sj.stream(A, name="a", key="k"), b, how="left", null_safe=True))
    run.push("a", "k x\n- 1\n2 2")
    assert run.push("b", "k y end\n- - true") == [(None, 1, None)]
    assert run.held() == {"a": 1, "b": 0}
    assert run.push("b", "k y end\n- 3 false") == []
    assert run.violations() != []


def test_null_safe_keys_of_two_columns_and_ranges() -> None:
    schema = pa.schema({"p": pa.int64(), "q": pa.string()})
    streams = [sj.stream(schema, name=name, key=["p", "q"], unique=True) for name in "ab"]
    run = Story(sj.join(*streams, how="full", null_safe=True))
    run.push("a", "p q\n- -\n1 -\n- u\n1 u")
    assert run.push("b", "p q\n1 -\n- -\n2 u") == [(None, None), (1, None)]
    assert run.punctuate("a", p=sj.between(0, 9), q=sj.ANY) == [(2, "u")]
    assert run.finish() == [(None, "u"), (1, "u")]
    assert run.held() == {"a": 0, "b": 0}


def test_groups_of_null_safe_keys_are_final_when_they_are_closed() -> None:
    joined = two(null_safe=True, a={"unique": True}).group_by("k").agg(n=("*", "count"))
    run = Story(joined)
    run.push("a", "k x\n- 1")
    run.push("b", "k y\n- 1\n- 2")
    assert run.punctuate("b", k=None) == [(None, 2)]


def test_what_null_safe_cannot_mean_is_refused() -> None:
    with pytest.raises(sj.InvalidJoin, match="arrival="):
        two(null_safe=True, a={"arrival": sj.clustered()})
    with pytest.raises(sj.InvalidJoin, match="null_safe"):
        two(null_safe="yes")
    assert "a.k <=> b.k" in two(null_safe=True).explain()


def test_a_null_key_of_a_lower_join_closes_nothing_else_above() -> None:
    lower = two(null_safe=True, name="lower", a={"unique": True}, b={"unique": True})
    c = sj.stream(pa.schema({"k": pa.int64(), "z": pa.int64()}), name="c", key="k")
    run = Story(sj.join(sj.stream(lower, name="ab", key="k"), c))
    run.push("a", "k x\n- 1\n1 1")
    run.push("b", "k y\n- 1")
    run.push("c", "k z\n1 5")
    assert run.push("b", "k y\n1 2") == [(1, 1, 2, 5)]


# ---------------------------------------------------------------- right semi and anti


def test_right_semi_and_anti_give_rows_of_the_right() -> None:
    run = Story(two("right_semi"))
    run.push("b", "k y\n1 10\n2 20")
    assert run.push("a", "k x\n1 5") == [(1, 10)]
    assert run.held() == {"a": 1, "b": 1}
    anti = two("right_anti", where="x > y")
    assert "right_anti join on a.k = b.k" in anti.explain()
    run = Story(anti)
    run.push("b", "k y\n1 10\n2 20")
    assert run.push("a", "k x\n1 11\n2 11") == []
    assert run.finish() == [(2, 20)]


# ---------------------------------------------------------------- names


def test_qualified_names_do_not_depend_on_the_order() -> None:
    orders = sj.stream(pa.schema({"id": pa.int64(), "v": pa.int64()}), name="orders", key="id")
    lines = sj.stream(pa.schema({"order_id": pa.int64(), "w": pa.int64()}), name="lines", key="order_id")
    for keys, more in (("once", set()), ("each", {"orders_id", "lines_order_id"})):
        for one, two_ in ((orders, lines), (lines, orders)):
            found = sj.join(one, two_, names="qualified", keys=keys).plan.spec.emits.names
            assert set(found) == {"key", "orders_v", "lines_w"} | more
    assert two(names="qualified").plan.spec.emits.names == ["k", "a_x", "b_y"]
    with pytest.raises(sj.InvalidJoin, match="names='long'; give 'short' or 'qualified'"):
        two(names="long")
    with pytest.raises(sj.InvalidJoin, match="keys='both'; give 'once' or 'each'"):
        two(keys="both")


# ---------------------------------------------------------------- on Spark


@pytest.mark.spark
@pytest.mark.parametrize("how", ["full", pytest.param("right_anti", marks=pytest.mark.systems)])
def test_additions_on_spark(spark: Any, how: str) -> None:
    rng = random.Random(how)
    left, right, _ = drawn(rng, 12)
    frames = [spark.createDataFrame(rows, f"k long, {c} long") for rows, c in ((left, "x"), (right, "y"))]
    streams = [sj.stream(frame, name=name, key="k") for frame, name in zip(frames, "ab", strict=True)]
    joined = sj.join(*streams, how=how, null_safe=True, keys="each", names="qualified", buckets=2)
    frame = joined.dataframe()
    wanted = ["k", "a_k", "a_x", "b_k", "b_y"] if how == "full" else ["k", "b_k", "b_y"]
    assert frame.columns == wanted
    found = Counter(tuple(row) for row in frame.collect())
    assert found == brute(left, right, how, null_safe=True, each=True)
