"""Issue 19, line 12: `where=` in explain(), SQL text for every join and group_by, mistakes found early."""

import itertools
import random
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import streamjoin as sj
from tests.tables import unbounded_is_meant

pytestmark = unbounded_is_meant

HOW = ["inner", "left", "right", "full", "left_semi", "left_anti"]
A = pa.schema({"k": pa.int64(), "x": pa.int64()})
B = pa.schema({"k": pa.int64(), "y": pa.int64()})


def two(how: str = "inner", **options: Any) -> sj.Joined:
    return sj.join(sj.stream(A, name="a", key="k"), sj.stream(B, name="b", key="k"), how=how, **options)


# ---------------------------------------------------------------- explain


@pytest.mark.parametrize("where", ["y > 5 and x is not null", pc.field("y") > 5])
def test_explain_shows_the_condition(where: Any) -> None:
    joined = two(where=where)
    assert f"where {where}" in joined.explain()
    assert f'"where": "{where}"' in joined.explain(format="json")
    assert "where" not in two().explain()


# ---------------------------------------------------------------- SQL text, locally


def pushed(joined: sj.Joined, seed: int) -> Counter[Any]:
    rng = random.Random(seed)
    run = joined.local()
    found: Counter[Any] = Counter()
    for _ in range(6):
        for name, column in (("a", "x"), ("b", "y")):
            size = rng.randrange(5)
            rows = {
                "k": [rng.choice([None, 1, 2, 3]) for _ in range(size)],
                column: [rng.choice([None, 1, 2, 3, 4]) for _ in range(size)],
            }
            table = pa.table({n: pa.array(v, pa.int64()) for n, v in rows.items()})
            found.update(map(str, run.push(name, table).to_pylist()))
    found.update(map(str, run.finish().to_pylist()))
    return found


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("y > x", pc.field("y") > pc.field("x")),
        ("x + 1 = y and k <> 2", (pc.field("x") + 1 == pc.field("y")) & (pc.field("k") != 2)),
        ("b.y between 2 and 3", (pc.field("y") >= 2) & (pc.field("y") <= 3)),
        ("not (x = 1 or y in (2, 3))", ~((pc.field("x") == 1) | (pc.field("y") == 2) | (pc.field("y") == 3))),
        ("x is null or a.x < b.y", pc.field("x").is_null() | (pc.field("x") < pc.field("y"))),
    ],
)
def test_sql_text_runs_locally_for_every_join_type(how: str, text: str, expression: Any) -> None:
    for seed in range(3):
        assert pushed(two(how, where=text), seed) == pushed(two(how, where=expression), seed)


def test_sql_text_goes_with_groups() -> None:
    run = two(where="y > x").group_by("k").agg(n=("*", "count")).local()
    run.push("a", pa.table({"k": [1, 1], "x": [1, 5]}))
    run.push("b", pa.table({"k": [1, 1], "y": [3, 9]}))
    assert run.finish().to_pylist() == [{"k": 1, "n": 3}]


def test_a_list_of_conditions_is_their_and() -> None:
    for seed in range(4):
        both = pushed(two("full", where=["y > x", pc.field("x") > 1]), seed)
        assert both == pushed(two("full", where="y > x and x > 1"), seed)


def test_conditions_go_with_edges() -> None:
    streams = [sj.stream(A, name="a", key="k"), sj.stream(B, name="b", key="k")]
    run = sj.join(*streams, on="a.x = b.y", where="a.k < b.k").local()
    run.push("a", pa.table({"k": [1, 9], "x": [5, 5]}))
    assert run.push("b", pa.table({"k": [4], "y": [5]})).num_rows == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("y >", "the end"),
        ("z > 5", "no column z"),
        ("y > 5 5", "'5' stands where the condition should end"),
        ("upper(y) = 'A'", "upper"),
        ("y + 1", "not a condition"),
        ("y = 'five'", "int64 is compared with string"),
        ("", "the end"),
    ],
)
@pytest.mark.parametrize("how", ["inner", "left"])
def test_mistakes_in_sql_are_refused_by_join(how: str, text: str, says: str) -> None:
    with pytest.raises(sj.InvalidJoin, match=r"pyarrow expression") as refused:
        two(how, where=text)
    assert says in str(refused.value)


@pytest.mark.parametrize("where", [5, {"y": 5}, [], ["y > 1", 7], lambda row: True])
def test_what_is_no_condition_is_refused_by_join(where: Any) -> None:
    with pytest.raises(sj.InvalidJoin, match="where="):
        two(where=where)


# ---------------------------------------------------------------- Mistakes in maps


def test_mistakes_in_maps_are_refused() -> None:
    with pytest.raises(sj.InvalidJoin, match="rates"):
        two().explain(rates={"a": 1, "c": 2})
    with pytest.raises(sj.InvalidJoin, match="rates"):
        two().explain(rates=7)  # type: ignore[arg-type]
    with pytest.raises(sj.InvalidJoin):
        two().explain(rates={"a": 1, "b": "many"})  # type: ignore[dict-item]
    with pytest.raises(sj.StreamJoinError, match="nope"):
        two().local().step({"a": pa.table({"k": [1], "x": [1]}), "nope": pa.table({"k": [1]})})
    streams = [sj.stream(A, name="a", key="k"), sj.stream(B, name="b", key="k")]
    with pytest.raises(sj.InvalidJoin, match="rates"):
        sj.join(*streams, on="a.k = b.k", rates={"c": 1})
    edges = sj.join(*streams, on="a.k = b.k")
    with pytest.raises(sj.InvalidJoin, match="rates"):
        edges.explain(rates={"c": 1})


# ---------------------------------------------------------------- On Spark

INTS = [None, 0, 1, 7, -3]
DOUBLES = [None, float("nan"), 0.5, -1.5]
TEXTS = [None, "a", "b%", "aXb"]
MOMENTS = [None, datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC)]
CONDITIONS = [
    "a > b",
    "a <= b or b is null",
    "not (a = b) and a >= 0",
    "a <=> b",
    "a is distinct from b",
    "a in (1, 7)",
    "a not in (1, null)",
    "a in (b, 7)",
    "a between b and 5",
    "a not between 0 and b",
    "a + b * 2 > 6 - a",
    "-a > b",
    "a / 2 > 0.4",
    "b <> 0 and a / b >= 1",
    "b <> 0 and a % b = 1",
    "abs(a) = 3",
    "coalesce(a, b, 5) = 5",
    "a > 0.5",
    "a = 1.0",
    "x > 0.1",
    "x < 0.6",
    "x >= y",
    "x <= y",
    "x < y",
    "x = y",
    "x <> y",
    "not (x > y)",
    "x <=> y",
    "x in (0.5, 2)",
    "x > a",
    "x = 5e-1",
    "p",
    "not p",
    "p or a > 0",
    "p and a > 0",
    "p is true",
    "p is not false",
    "p = (a > 0)",
    "(a > 0) is null",
    "null or p",
    "a > null",
    "s = 'a'",
    "s like 'a%'",
    "s like 'b\\\\%'",
    "s not like '_'",
    "s || 'x' = 'ax'",
    "s > 'a'",
    "s in ('a', 'b%')",
    "t < u",
    "t + interval 5 seconds < u",
    "t < u - interval '5' second",
    "u - t >= interval '1 second'",
    "t >= timestamp '2026-01-01 00:00:05'",
    "t > '2026-01-01'",
    "t >= date '2026-01-01'",
    "t between u - interval 10 seconds and u",
    "d = date '2026-01-01'",
    "d > '2025-12-31'",
    "m > 1",
    "m = 1.50",
    "m + a > 2",
    "m < x",
    "cast(a as double) > x",
    "cast(a as string) = '7'",
    "a::bigint > 1L",
    "cast('7' as int) = a",
    "A = B or `a` = 1",
]


def values() -> pa.Table:
    rows = [
        {"a": a, "b": b, "x": x, "y": y, "s": s, "p": p, "t": t, "u": u, "d": d, "m": m}
        for (a, b), (x, y), s, p, (t, u), d, m in zip(
            itertools.cycle(itertools.product(INTS, INTS)),
            itertools.cycle(itertools.product(DOUBLES, DOUBLES)),
            itertools.cycle(TEXTS),
            itertools.cycle([None, True, False]),
            itertools.cycle(itertools.product(MOMENTS, MOMENTS)),
            itertools.cycle([None, date(2026, 1, 1), date(2025, 1, 1)]),
            itertools.islice(itertools.cycle([None, Decimal("1.50"), Decimal("-7.25")]), 1200),
            strict=False,
        )
    ]
    zoned = pa.timestamp("us", "UTC")
    types = [pa.int32(), pa.int64(), pa.float64(), pa.float64(), pa.string(), pa.bool_(), zoned, zoned]
    names = ["a", "b", "x", "y", "s", "p", "t", "u", "d", "m"]
    schema = pa.schema(list(zip(names, [*types, pa.date32(), pa.decimal128(10, 2)], strict=True)))
    return pa.Table.from_pylist(rows, schema=schema)


@pytest.mark.spark
def test_sql_means_what_it_means_on_spark(spark: Any, tmp_path: Path) -> None:
    import pyarrow.parquet as pq
    from pyspark.sql import functions as F

    from streamjoin.plan.where.sql_expression import translated

    table = values()
    pq.write_table(table, tmp_path / "rows.parquet")
    frame = spark.read.parquet(str(tmp_path / "rows.parquet")).coalesce(1)
    answers = frame.select(*(F.expr(text).alias(f"c{i}") for i, text in enumerate(CONDITIONS))).toArrow()
    ours = {f"c{i}": translated(text, table.schema, {}) for i, text in enumerate(CONDITIONS)}
    found = ds.dataset(table).scanner(columns=ours).to_table()
    for i, text in enumerate(CONDITIONS):
        assert found.column(f"c{i}").to_pylist() == answers.column(f"c{i}").to_pylist(), text


def frames(spark: Any) -> list[Any]:
    a = spark.createDataFrame([(1, 1), (1, 5), (2, 2), (None, 4), (3, None)], "k long, x long")
    b = spark.createDataFrame([(1, 3), (1, None), (2, 1), (4, 4)], "k long, y long")
    return [sj.stream(a, name="a", key="k"), sj.stream(b, name="b", key="k")]


@pytest.mark.spark
def test_sql_text_on_spark_for_outer_joins_and_groups(spark: Any) -> None:
    full = sj.join(*frames(spark), how="full", where="y > x", buckets=1).dataframe().collect()
    assert Counter(map(tuple, full)) == Counter(
        [
            (1, 1, 3),
            (1, 5, None),
            (2, 2, None),
            (None, 4, None),
            (3, None, None),
            (1, None, None),
            (2, None, 1),
            (4, None, 4),
        ]
    )
    counted = sj.join(*frames(spark), where="y > x", buckets=1).group_by("k").agg(n=("*", "count"))
    assert [tuple(row) for row in counted.dataframe().collect()] == [(1, 1)]


@pytest.mark.spark
def test_what_only_spark_can_test_filters_an_inner_join(spark: Any) -> None:
    inner = sj.join(*frames(spark), where="pmod(y, 3) = 1 and sqrt(y) > x - 2", buckets=1)
    assert "by Spark, on rows that leave" in inner.explain()
    assert [tuple(row) for row in inner.dataframe().collect()] == [(2, 2, 1)]
    with pytest.raises(sj.InvalidJoin, match=r"pmod.*pyarrow expression"):
        sj.join(*frames(spark), how="left", where="pmod(y, 3) = 1")
    with pytest.raises(sj.InvalidJoin, match=r"pmod.*pyarrow expression"):
        inner.group_by("k").count()


@pytest.mark.spark
@pytest.mark.parametrize("text", ["z > 5", "y >", "y + 1", "pmod(y)", "nosuch(y) = 1"])
def test_mistakes_in_sql_are_refused_by_join_on_spark(spark: Any, text: str) -> None:
    for how in ("inner", "left"):
        with pytest.raises(sj.InvalidJoin, match="where="):
            sj.join(*frames(spark), how=how, where=text)


@pytest.mark.spark
def test_sinks_and_folders_are_checked_before_a_query_starts(spark: Any, tmp_path: Path) -> None:
    ticks = [
        sj.stream(
            spark.readStream.format("rate").load().selectExpr("value as k", f"value as {name}1"),
            name=name,
            key="k",
            unique=True,
        )
        for name in "ab"
    ]
    joined = sj.join(*ticks, buckets=1)
    with pytest.raises(sj.InvalidJoin, match=r"rows='table'.*function"):
        joined.write(rows="table", checkpoint=str(tmp_path / "c"))  # type: ignore[arg-type]
    (tmp_path / "file").write_text("")
    for checkpoint in (str(tmp_path / "file"), str(tmp_path / "file" / "below")):
        with pytest.raises(sj.InvalidJoin, match="checkpoint"):
            joined.write(rows=lambda frame, batch: None, checkpoint=checkpoint)
    with pytest.raises(sj.InvalidJoin, match="checkpoint"):
        joined.write(rows=lambda frame, batch: None, checkpoint=7)  # type: ignore[arg-type]
    with pytest.raises(sj.InvalidJoin, match="trigger"):
        joined.write(rows=lambda frame, batch: None, checkpoint=str(tmp_path / "c"), trigger={"often": True})
    with pytest.raises(sj.InvalidJoin, match="trigger"):
        joined.write(rows=lambda frame, batch: None, checkpoint=str(tmp_path / "c"), trigger="1 second")  # type: ignore[arg-type]


def test_a_spill_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import tempfile

    (tmp_path / "file").write_text("")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    with pytest.raises(sj.StreamJoinError, match="TMPDIR"):
        two(memory="8 MB").local()
