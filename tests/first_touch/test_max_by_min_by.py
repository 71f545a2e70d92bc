"""`max_by` and `min_by`, and `max` and `min` of a struct, in `group_by`: as Spark has them.

Of rows that tie Spark takes any; here the greatest (least) value counts, so that no cutting into batches and
no restart changes the answer.
"""

import json
import random
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.join.persistence.stored_spec import declared, read_spec
from tests.tables import unbounded_is_meant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAIR = pa.struct({"a": pa.float64(), "b": pa.struct({"c": pa.string()})})
BIDS = pa.schema(
    {"k": pa.int64(), "who": pa.string(), "price": pa.float64(), "pair": PAIR, "end": pa.bool_()}
)
ITEMS = pa.schema({"k": pa.int64(), "title": pa.string()})
ASKED: dict[str, Any] = {
    "winner": ("who", "max_by", "price"),
    "loser": ("who", "min_by", "price"),
    "best_pair": ("pair", "max_by", "price"),
    "by_pair": ("who", "min_by", "pair"),
    "greatest": ("pair", "max"),
    "least": ("pair", "min"),
}


def grouped(items: Any = ITEMS, bids: Any = BIDS, **options: Any) -> sj.Joined:
    return sj.join(
        sj.stream(items, name="items", key="k", unique=True),
        sj.stream(bids, name="bids", key="k", punctuation=sj.marked("end")),
        **options,
    ).group_by("k")


def bids(*rows: tuple[Any, ...], end: tuple[int, ...] = ()) -> pa.Table:
    found = [dict(zip(BIDS.names, (*row, None, False)[:4], strict=False)) | {"end": False} for row in rows]
    return pa.Table.from_pylist([*found, *({"k": k, "end": True} for k in end)], BIDS)


def answer(asked: dict[str, Any], rows: list[tuple[Any, ...]]) -> dict[str, Any]:
    run = grouped().agg(**asked).local()
    run.push("items", pa.table({"k": [1], "title": ["x"]}))
    run.push("bids", bids(*((1, *row) for row in rows)))
    (found,) = run.push("bids", bids(end=(1,))).to_pylist()
    return found


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("ann", 3.0), ("bob", 5.0)], "bob"),
        ([("ann", None), ("bob", None)], None),  # nothing decides
        ([("ann", None), ("bob", 1.0)], "bob"),  # rows without a price do not count
        ([("ann", 3.0), (None, 5.0)], None),  # a null is a value
        ([("ann", 5.0), (None, 5.0), ("bob", 5.0)], "bob"),  # of rows that tie the greatest value
        ([("ann", float("nan")), ("bob", 5.0)], "ann"),  # NaN is above all numbers
        ([("ann", -0.0), ("bob", 0.0)], "bob"),  # one zero
    ],
)
def test_max_by(rows: list[tuple[Any, ...]], expected: str | None) -> None:
    assert answer({"winner": ("who", "max_by", "price")}, rows)["winner"] == expected


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("ann", 3.0), ("bob", 5.0)], "ann"),
        ([("ann", 3.0), (None, 3.0), ("bob", 3.0)], "ann"),
        ([("ann", None), ("bob", float("nan"))], "bob"),
    ],
)
def test_min_by(rows: list[tuple[Any, ...]], expected: str | None) -> None:
    assert answer({"loser": ("who", "min_by", "price")}, rows)["loser"] == expected


def pair(a: float | None, c: str | None = None) -> dict[str, Any]:
    return {"a": a, "b": {"c": c}}


def test_a_struct_has_the_order_of_its_fields_and_a_null_field_is_the_least() -> None:
    pairs = [pair(1.0, "z"), pair(2.0, "a"), pair(2.0, "b"), pair(None, "z"), {"a": None, "b": None}, None]
    found = answer(ASKED, [(None, None, one) for one in pairs])
    assert found["greatest"] == pair(2.0, "b")
    assert found["least"] == {"a": None, "b": None}
    assert answer(ASKED, [(None, None, None)])["greatest"] is None


def test_what_is_refused_says_what_to_write() -> None:
    join = grouped()
    with pytest.raises(sj.InvalidJoin, match=r"needs the column that decides; give \('who', 'max_by', "):
        join.agg(x=("who", "max_by"))
    with pytest.raises(sj.InvalidJoin, match=r"sum takes no second column; give \('price', 'sum'\)"):
        join.agg(x=("price", "sum", "who"))
    with pytest.raises(sj.InvalidJoin, match="no column 'where'"):
        join.agg(x=("who", "max_by", "where"))
    lists = pa.schema({"k": pa.int64(), "l": pa.list_(pa.int64()), "price": pa.int64(), "end": pa.bool_()})
    with pytest.raises(sj.InvalidJoin, match="of which there is no max_by"):
        grouped(bids=lists).agg(x=("price", "max_by", "l"))


def test_the_text_names_both_columns() -> None:
    assert "winner = max_by(who, price)" in grouped().agg(**ASKED).explain()


def test_the_stored_specification_has_both_columns() -> None:
    """What inspection and rebucketing read a state with."""
    spec = grouped().agg(**ASKED).plan.spec
    assert (
        read_spec(spec.identity(), json.loads(json.dumps(declared(spec))), spec.compaction).grouping
        == spec.grouping
    )


# Against brute force: any batching and restarts


def drawn(rng: random.Random, count: int) -> list[tuple[Any, ...]]:
    def price() -> float | None:
        return rng.choice([None, 1.0, 2.5, -0.0, 0.0, float("nan"), float(rng.randrange(5))])

    def one_pair() -> dict[str, Any] | None:
        return rng.choice([None, {"a": price(), "b": None}, pair(price(), rng.choice([None, "x", "y"]))])

    return [
        (rng.randrange(6), rng.choice([None, "ann", "bob", "cyn"]), price(), one_pair()) for _ in range(count)
    ]


def order(value: Any) -> Any:
    """A sort key: null below all, NaN above all numbers, structs field by field."""
    if value is None:
        return (0,)
    if isinstance(value, dict):
        return (1, *(order(part) for part in value.values()))
    if isinstance(value, float):
        return (1, value != value, 0.0 if value != value else value + 0.0)  # noqa: PLR0124
    return (1, value)


def brute_force(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    groups = defaultdict(list)
    for k, *row in rows:
        groups[k].append(dict(zip(("who", "price", "pair"), row, strict=True)))
    found = []
    for k, members in groups.items():
        answers = []
        for column, function, *by in ASKED.values():
            extreme = max if function.startswith("max") else min
            decisive = by[0] if by else column
            counted = [one for one in members if one[decisive] is not None]
            best = extreme((order(one[decisive]) for one in counted), default=None)
            values = [one[column] for one in counted if order(one[decisive]) == best]
            values = [value for value in values if value is not None]
            answers.append(order(extreme(values, key=order, default=None)))
        found.append((k, *answers))
    return sorted(found)


def comparable(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((row["k"], *(order(row[name]) for name in ASKED)) for row in rows)


@pytest.mark.parametrize("seed", range(20))
def test_equals_brute_force_whatever_the_batching_and_the_restarts(seed: int) -> None:
    rng = random.Random(seed)
    rows = drawn(rng, 80)
    join = grouped().agg(**ASKED)
    run = join.local()
    run.push("items", pa.table({"k": list(range(6)), "title": ["x"] * 6}))
    at = 0
    while at < len(rows):
        step = rng.randrange(1, 12)
        run.push("bids", bids(*rows[at : at + step]))
        at += step
        if rng.random() < 0.3:
            run = join.local(snapshot=run.snapshot())
    found = run.push("bids", bids(end=tuple(range(6)))).to_pylist()
    assert comparable(found) == brute_force(rows)
    assert run.state().empty


@pytest.mark.spark
@pytest.mark.systems
@unbounded_is_meant
def test_equals_sparks_own(spark: "SparkSession", tmp_path: Path) -> None:
    """Where nothing ties; structs are compared whole, so ties among them do not show."""
    from pyspark.sql import functions as F

    from tests.spark.streams import run, stream_of

    rng = random.Random(7)
    rows = [
        (k, who, None if price is None else i + 0.5, one)
        for i, (k, who, price, one) in enumerate(drawn(rng, 120))
    ]
    items = pa.table({"k": list(range(6)), "title": ["x"] * 6})
    parts = [bids(*rows[:50]), bids(*rows[50:]), bids(end=tuple(range(6)))]
    asked = {name: one for name, one in ASKED.items() if name != "by_pair"}
    left, right = stream_of(spark, tmp_path / "i", [items]), stream_of(spark, tmp_path / "b", parts)
    found = run(grouped(left, right, buckets=2).agg(**asked), tmp_path / "c")
    plain = spark.createDataFrame(items).join(spark.createDataFrame(bids(*rows)), "k").groupBy("k")
    expected = plain.agg(
        F.max_by("who", "price"),
        F.min_by("who", "price"),
        F.max_by("pair", "price"),
        F.max("pair"),
        F.min("pair"),
    )

    def plainly(rows: list[Any]) -> list[Any]:
        return sorted(
            tuple(order(v.asDict(True) if hasattr(v, "asDict") else v) for v in row) for row in rows
        )

    assert plainly(found.rows) == plainly(expected.collect())
