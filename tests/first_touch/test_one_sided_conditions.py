"""Issue 19, line 19: conditions on one input are tested on arrival; ranges of event time evict, both ways."""

import random
from collections import Counter
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import streamjoin as sj
from tests.tables import Story, at, unbounded_is_meant

pytestmark = unbounded_is_meant

HOW = ["inner", "left", "right", "full", "left_semi", "left_anti"]
STAMP = pa.timestamp("us")
A = pa.schema({"k": pa.int64(), "x": pa.int64()})
B = pa.schema({"k": pa.int64(), "y": pa.int64()})


def two(how: str, where: Any, **unique: bool) -> sj.Joined:
    a = sj.stream(A, name="a", key="k", unique=unique.get("a", False))
    return sj.join(a, sj.stream(B, name="b", key="k", unique=unique.get("b", False)), how=how, where=where)


# ---------------------------------------------------------------- one-sided conditions


@pytest.mark.parametrize("where", ["x > 5 and y > 5", (pc.field("x") > 5) & (pc.field("y") > 5)])
def test_rows_that_fail_alone_are_not_stored_and_pad_at_once(where: Any) -> None:
    run = Story(two("left", where))
    assert run.push("a", "k x\n1 5\n1 6\n1 -") == [(1, None, None), (1, 5, None)]
    assert run.push("b", "k y\n1 5") == []
    assert run.held() == {"a": 1, "b": 0}
    assert (run.count("a_filtered"), run.count("b_filtered"), run.count("a_padded")) == (2, 1, 2)
    assert run.push("b", "k y\n1 7") == [(1, 6, 7)]
    assert run.finish() == []


@pytest.mark.parametrize(
    ("how", "at_once", "stored"),
    [
        ("inner", [], {"a": 0, "b": 0}),
        ("right", [(1, None, 5)], {"a": 0, "b": 0}),
        ("full", [(1, None, 5), (1, 5, None)], {"a": 0, "b": 0}),
        ("left_semi", [], {"a": 0, "b": 0}),
        ("left_anti", [(1, 5)], {"a": 0, "b": 0}),
    ],
)
def test_every_join_type_tests_on_arrival(how: str, at_once: list[Any], stored: dict[str, int]) -> None:
    run = Story(two(how, "x > 5 and y > 5"))
    found = run.push("a", "k x\n1 5") + run.push("b", "k y\n1 5")
    assert sorted(found, key=str) == sorted(at_once, key=str)
    assert run.held() == stored


def test_a_condition_on_the_key_is_of_every_input() -> None:
    run = Story(two("left", "k <> 1 and y > x"))
    assert run.push("a", "k x\n1 5\n2 5") == [(1, 5, None)]
    run.push("b", "k y\n1 9\n2 4")
    assert run.held() == {"a": 1, "b": 1}


def test_a_filtered_row_of_a_unique_input_closes_its_key() -> None:
    run = Story(two("left", "y > 5", b=True))
    run.push("a", "k x\n1 5\n2 5")
    assert run.push("b", "k y\n1 3") == [(1, 5, None)]
    assert run.push("a", "k x\n1 6") == [(1, 6, None)]
    assert run.held() == {"a": 1, "b": 0}


def test_explain_says_what_is_tested_on_arrival() -> None:
    text = two("left", "x > 5 and y > 5 and x < y").explain()
    assert "a: rows that fail (x > 5) leave padded at once and are not stored (a_filtered)" in text
    assert "b: rows that fail (y > 5) match nothing and are not stored (b_filtered)" in text


def test_three_inputs_test_on_arrival() -> None:
    schemas = {name: pa.schema({"k": pa.int64(), name: pa.int64()}) for name in "xyz"}
    streams = [sj.stream(schema, name=f"s{name}", key="k") for name, schema in schemas.items()]
    run = Story(sj.join(*streams, how="left", where="z > 1 and x > 1 and y > z"))
    assert run.push("sx", "k x\n1 1\n1 2") == [(1, 1, None, None)]
    run.push("sz", "k z\n1 1\n1 2")
    assert run.held() == {"sx": 1, "sy": 0, "sz": 1}
    assert run.push("sy", "k y\n1 3") == [(1, 2, 3, 2)]


WHERES = {
    "x > 2 and y < 4": lambda k, x, y: _both(_gt(x, 2), _gt(4, y)),
    "x > 2 and x < y": lambda k, x, y: _both(_gt(x, 2), _gt(y, x)),
    "y is null": lambda k, x, y: y is None,
    "k > 1 and y >= 2": lambda k, x, y: _both(_gt(k, 1), _gt(y, 1)),
    "x > 1 or y > 3": lambda k, x, y: bool(_gt(x, 1)) or bool(_gt(y, 3)),
}


def _gt(a: int | None, b: int | None) -> bool:
    return a is not None and b is not None and a > b


def _both(a: bool, b: bool) -> bool:
    return a and b


def brute(left: list[Any], right: list[Any], how: str, matches: Any, own: int = 1) -> Counter[Any]:
    """Rows (k, and `own` columns more) of both sides by the type of join."""
    nulls = (None,) * own
    pairs = [
        (i, j)
        for i, a in enumerate(left)
        for j, b in enumerate(right)
        if a[0] is not None and a[0] == b[0] and matches(a, b)
    ]
    matched = [{pair[0] for pair in pairs}, {pair[1] for pair in pairs}]
    if how == "left_semi":
        return Counter(row for i, row in enumerate(left) if i in matched[0])
    if how == "left_anti":
        return Counter(row for i, row in enumerate(left) if i not in matched[0])
    found = Counter((*left[i], *right[j][1:]) for i, j in pairs)
    if how in ("left", "full"):
        found.update((*row, *nulls) for i, row in enumerate(left) if i not in matched[0])
    if how in ("right", "full"):
        found.update((row[0], *nulls, *row[1:]) for j, row in enumerate(right) if j not in matched[1])
    return found


def told(joined: sj.Joined, steps: list[tuple[str, pa.Table]], rng: random.Random) -> Counter[Any]:
    """The results of pushes, with a stop and a restart now and then."""
    run = joined.local()
    found: Counter[Any] = Counter()
    for name, table in steps:
        if rng.random() < 0.2:
            run = joined.local(snapshot=run.snapshot())
        found.update(tuple(row.values()) for row in run.push(name, table).to_pylist())
    found.update(tuple(row.values()) for row in run.finish().to_pylist())
    assert run.state().empty
    return found


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("text", WHERES)
def test_the_answer_is_the_batch_joins(how: str, text: str) -> None:
    for seed in range(4):
        rng = random.Random(f"{seed} {how} {text}")
        rows: dict[str, list[Any]] = {"a": [], "b": []}
        steps = []
        for _ in range(8):
            name = rng.choice("ab")
            new = [
                (rng.choice([None, 1, 2, 3]), rng.choice([None, 1, 2, 3, 4, 5]))
                for _ in range(rng.randrange(4))
            ]
            rows[name] += new
            columns = [pa.array([row[i] for row in new], pa.int64()) for i in range(2)]
            steps.append((name, pa.table(columns, (A if name == "a" else B).names)))
        expected = brute(rows["a"], rows["b"], how, lambda a, b, test=WHERES[text]: test(a[0], a[1], b[1]))
        assert told(two(how, text), steps, rng) == expected, seed


# ---------------------------------------------------------------- ranges of event time

TA = pa.schema({"k": pa.int64(), "i": pa.int64(), "t": STAMP})
TB = pa.schema({"k": pa.int64(), "j": pa.int64(), "u": STAMP})


def timed(how: str, where: Any, lateness: tuple[str, str] = ("0 seconds", "0 seconds")) -> sj.Joined:
    a = sj.stream(TA, name="a", key="k", time="t", lateness=lateness[0])
    b = sj.stream(TB, name="b", key="k", time="u", lateness=lateness[1])
    return sj.join(a, b, how=how, where=where)


@pytest.mark.parametrize(
    "where",
    [
        "t < u - interval 5 seconds",
        "a.t + interval 5 seconds < b.u",
        "u - t > interval '5 seconds'",
        pc.field("t") < pc.field("u") - pa.scalar(timedelta(seconds=5)),
    ],
)
def test_a_negative_bound_lets_rows_go(where: Any) -> None:
    run = Story(timed("left", where))
    run.push("b", "k j u\n1 10 10\n1 11 20")
    assert run.held() == {"a": 0, "b": 2}
    run.push("a", "k i t\n1 1 4")
    assert run.held() == {"a": 1, "b": 2}  # a row at 4 may still follow: it matches that of 10
    run.push("a", "k i t\n2 2 5")
    assert run.held() == {"a": 2, "b": 1}  # nothing before 5 follows
    run.push("b", "k j u\n1 12 100")
    assert run.held()["a"] == 2  # rows of b may be as late as they like
    run.push("a", "k i t\n2 3 95")
    assert run.held() == {"a": 3, "b": 0}


def test_bounds_on_both_sides_bound_both_inputs() -> None:
    joined = timed("full", "t between u - interval 10 seconds and u - interval 5 seconds")
    assert joined.explain(format="json").count('"tuples_bounded": true') == 2
    assert "they match only rows of b that are at most 10 s later" in joined.explain()
    assert "they match only rows of a that are 5 s earlier or more" in joined.explain()
    run = Story(joined)
    run.push("a", "k i t\n1 1 0")
    assert run.push("b", "k j u\n1 5 5") == [(1, 1, 0, 5, 5)]
    assert run.push("b", "k j u\n1 6 11") == []
    assert run.held()["a"] == 0


def test_a_bound_on_one_side_bounds_one_input() -> None:
    text = timed("inner", "t < u - interval 5 seconds").explain()
    assert "a: NOT BOUNDED" in text
    assert "b: bounded" in text


def test_without_a_lateness_nothing_is_evicted_and_nothing_late() -> None:
    a = sj.stream(TA, name="a", key="k", time="t")
    b = sj.stream(TB, name="b", key="k", time="u")
    run = Story(sj.join(a, b, where="t < u - interval 5 seconds"))
    run.push("b", "k j u\n1 10 10")
    run.push("a", "k i t\n1 1 100")
    assert run.push("a", "k i t\n1 2 1") == [(1, 2, 1, 10, 10)]


RANGES: list[tuple[str, Any]] = [
    ("t < u - interval 3 seconds", lambda t, u: t < u - 3),
    ("t <= u - interval 3 seconds and t >= u - interval 6 seconds", lambda t, u: u - 6 <= t <= u - 3),
    ("t > u + interval 2 seconds", lambda t, u: t > u + 2),
    ("t between u - interval 2 seconds and u + interval 4 seconds", lambda t, u: u - 2 <= t <= u + 4),
    ("t = u", lambda t, u: t == u),
    ("u - t < interval 4 seconds and i <> j", lambda t, u: u - t < 4),
]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("number", range(len(RANGES)))
def test_ranges_equal_the_batch_join_at_any_pace(how: str, number: int) -> None:
    text, matches = RANGES[number]
    for seed in range(4):
        rng = random.Random(f"{seed} {how} {number}")
        late = (rng.randrange(4), rng.randrange(4))
        joined = timed(how, text, (f"{late[0]} seconds", f"{late[1]} seconds"))
        clock = [0, 0]
        pace = (rng.choice([1, 2, 5]), rng.choice([1, 2, 5]))
        rows: list[list[Any]] = [[], []]
        steps = []
        for _ in range(14):
            side = rng.randrange(2)
            new = []
            for _ in range(rng.randrange(4)):
                second = max(0, clock[side] - rng.randrange(late[side] + 1)) + rng.randrange(pace[side] + 1)
                # ids of a are even and of b odd, so that i <> j holds
                number_of = 2 * (len(rows[side]) + len(new)) + side
                new.append((rng.choice([None, 1, 2]), number_of, second))
            clock[side] = max([clock[side], *(row[2] for row in new)])
            rows[side] += new
            schema = (TA, TB)[side]
            columns = [pa.array([row[0] for row in new], pa.int64())]
            columns += [pa.array([row[1] for row in new], pa.int64())]
            columns += [pa.array([at(0) + timedelta(seconds=row[2]) for row in new], STAMP)]
            steps.append(("ab"[side], pa.table(columns, schema.names)))
        left, right = ([(k, i, at(0) + timedelta(seconds=second)) for k, i, second in side] for side in rows)
        expected = brute(
            left,
            right,
            how,
            lambda a, b, test=matches: test((a[2] - at(0)).total_seconds(), (b[2] - at(0)).total_seconds()),
            own=2,
        )
        assert told(joined, steps, rng) == expected, seed


def test_three_inputs_evict_by_ranges_of_pairs() -> None:
    schemas = [pa.schema({"k": pa.int64(), f"t{i}": STAMP}) for i in range(3)]
    streams = [
        sj.stream(schema, name=f"s{i}", key="k", time=f"t{i}", lateness="0 seconds")
        for i, schema in enumerate(schemas)
    ]
    where = "t1 <= t0 + interval 5 seconds and t2 <= t0 - interval 5 seconds"
    run = Story(sj.join(*streams, where=where))
    run.push("s0", "k t0\n1 10")
    run.push("s1", "k t1\n1 16")
    assert run.held()["s0"] == 1
    run.push("s2", "k t2\n1 6")
    assert run.held()["s0"] == 0
