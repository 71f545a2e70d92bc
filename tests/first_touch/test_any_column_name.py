"""Any column name works: names that the library uses itself, names that expressions must quote, all at once.

Each test gives every role of a column (key, time, payload, flag, sequence, group, table column) such names.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import streamjoin as sj
from tests.tables import unbounded_is_meant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = unbounded_is_meant

NAMES = [
    *("_id", "_m", "_kind", "_input", "_punctuation", "_reason"),  # of what a bucket emits, and the tags
    *("_propagated", "_propagated_text", "_propagated_by", "_latest", "_until"),  # between two joins
    *(
        "bucket",
        "input",
        "blob",
        "kind",
        "reason",
        "h",
        "t",
        "d",
        "k0",
        "p0",
        "s0",
        "part",
        "off",
        "c0",
        "c1",
    ),
    *("_key", "value", "side", "group", "list", "time", "version", "row", "stream", "left", "right"),
    *("a.b", "a b", "a`b", "`", 'a"b', "a'b", "ü", "日本", "a,b", "a=b", "*", "a\nb", "1", "\\", "%s", "{x}"),
]
K, V = [1, 2], [10, 20]
AT = datetime(2024, 1, 1, tzinfo=UTC)
LATE: Any = {"window": "1 hour", "lateness": "0 seconds"}
TIME = pa.timestamp("us", "UTC")


def wide(offset: int, names: list[str]) -> dict[str, list[int]]:
    return {name: [offset + i, offset + 100 + i] for i, name in enumerate(names)}


def payload_tables() -> tuple[pa.Table, pa.Table]:
    return pa.table({"k": K, **wide(0, NAMES)}), pa.table({"k": K, "v": V})


def payload_rows() -> list[dict[str, Any]]:
    return [
        {"k": k, **{name: values[i] for name, values in wide(0, NAMES).items()}, "v": V[i]}
        for i, k in enumerate(K)
    ]


def key_tables() -> tuple[pa.Table, pa.Table]:
    """Every name is a key column; on the right in another order, so that names do not help."""
    return (
        pa.table({**wide(0, NAMES), "v": V}),
        pa.table({**{f"r{i}": values for i, values in enumerate(wide(0, NAMES).values())}, "w": V}),
    )


def role_tables() -> tuple[pa.Table, pa.Table]:
    """Time, flag and sequence under such names."""
    data = {
        "_id": [1, 1],
        "a`b": [AT, AT],
        "_m": [False, True],
        "a b": [0, 0],
        "h": [1, 2],
        "_kind": [7, None],
    }
    types = pa.schema(
        {
            "_id": pa.int64(),
            "a`b": TIME,
            "_m": pa.bool_(),
            "a b": pa.int32(),
            "h": pa.int64(),
            "_kind": pa.int64(),
        }
    )
    return pa.table({**data, "_kind": [7, None]}, types), pa.table(
        {"_id": [1], "a.b": pa.array([AT], TIME), "_reason": ["r"]}
    )


def role_join(left: Any, right: Any, **options: Any) -> sj.Joined:
    return sj.join(
        sj.stream(
            left,
            name="left",
            key="_id",
            time="a`b",
            lateness="0 seconds",
            punctuation=sj.marked("_m"),
            sequence=["a b", "h"],
        ),
        sj.stream(right, name="right", key="_id", time="a.b", **LATE, unique=True),
        **options,
    )


ROLES = [{"_id": 1, "a`b": AT, "_kind": 7, "a.b": AT, "_reason": "r"}]


def both(join: Any, left: pa.Table, right: pa.Table) -> list[dict[str, Any]]:
    run = join.local()
    rows = run.push("left", left).to_pylist() + run.push("right", right).to_pylist()
    rows += run.finish().to_pylist()
    return sorted(rows, key=repr)


def joined_on(left: Any, right: Any, key: Any, other: Any, **options: Any) -> sj.Joined:
    return sj.join(
        sj.stream(left, name="left", key=key), sj.stream(right, name="right", key=other), **options
    )


# Locally


def test_local_payload() -> None:
    left, right = payload_tables()
    assert both(joined_on(left.schema, right.schema, "k", "k"), left, right) == payload_rows()


def test_local_keys() -> None:
    left, right = key_tables()
    found = both(joined_on(left.schema, right.schema, NAMES, right.schema.names[:-1]), left, right)
    assert [row["w"] for row in found] == V
    assert list(found[0]) == [*NAMES, "v", "w"]


def test_local_roles() -> None:
    left, right = role_tables()
    assert both(role_join(left.schema, right.schema), left, right) == ROLES


def test_local_groups() -> None:
    left, right = payload_tables()
    asked = {f"max {name}": (name, "max") for name in NAMES}
    join = joined_on(left.schema, right.schema, "k", "k").group_by("k", *NAMES).agg(**asked)
    found = both(join, left, right)
    assert [row[f"max {name}"] for row in found for name in NAMES] == [
        row[name] for row in payload_rows() for name in NAMES
    ]


def test_an_empty_name_and_names_that_differ_by_case() -> None:
    left, right = pa.table({"k": K, "": V, "A": V}), pa.table({"K": K, "a": V})
    found = both(joined_on(left.schema, right.schema, "k", "K"), left, right)
    assert found[0] == {"k": 1, "": 10, "left_A": 10, "right_a": 10}


def test_a_column_that_is_called_as_a_prefixed_one_would_be() -> None:
    left, right = pa.table({"k": K, "x": V}), pa.table({"k": K, "x": V, "left_x": V})
    found = both(joined_on(left.schema, right.schema, "k", "k"), left, right)
    assert list(found[0]) == ["k", "left_x", "right_x", "right_left_x"]


def test_local_edges_name_any_column() -> None:
    a = pa.table({"x y": [1], "_latest": [5], "at": pa.array([AT], TIME)})
    b = pa.table({"x y": [1], "a`b": [2], "_until": [6], "at": pa.array([AT], TIME)})
    c = pa.table({"a`b": [2], "_id": [7], "at": pa.array([AT], TIME)})
    streams = [
        sj.stream(one.schema, name=name, key=one.schema.names[0], time="at", **LATE)
        for name, one in (("a", a), ("b", b), ("c", c))
    ]
    run = sj.join(*streams, on="a.`x y` = b.`x y` and b.`a``b` = c.`a``b`").local()
    rows = [row for name, one in (("a", a), ("b", b), ("c", c)) for row in run.push(name, one).to_pylist()]
    assert [(row["x y"], row["_latest"], row["a`b"], row["_until"], row["_id"]) for row in rows] == [
        (1, 5, 2, 6, 7)
    ]


def test_local_enriched(tmp_path: Path) -> None:
    left, right = payload_tables()
    pq.write_table(left, tmp_path / "t.parquet")
    table = sj.table(str(tmp_path / "t.parquet"), name="t", key="k", memory="64 MB")
    run = sj.enrich(sj.stream(right.schema, name="right", key="k"), table).local()
    found = [*run.push("right", right).to_pylist(), *run.finish().to_pylist()]
    assert {name: found[0][name] for name in NAMES} == {n: v[0] for n, v in wide(0, NAMES).items()}


# On Spark


def frames(spark: "SparkSession", *tables: pa.Table) -> "list[DataFrame]":
    return [spark.createDataFrame(table) for table in tables]


def collected(frame: "DataFrame") -> list[dict[str, Any]]:
    return sorted((dict(zip(frame.columns, row, strict=True)) for row in frame.collect()), key=repr)


@pytest.mark.spark
def test_spark_payload(spark: "SparkSession") -> None:
    join = joined_on(*frames(spark, *payload_tables()), "k", "k", buckets=2)
    assert collected(join.dataframe()) == payload_rows()


@pytest.mark.spark
@pytest.mark.systems
def test_spark_packed_rows_and_elements(spark: "SparkSession") -> None:
    """A nested column makes rows travel packed; the tags of elements get underscores until they are free."""
    left, right = payload_tables()
    right = right.append_column("nested", pa.array([[1], [2]]))
    join = joined_on(*frames(spark, left, right), "k", "k", buckets=2)
    expected = [{**row, "nested": [row["k"]]} for row in payload_rows()]
    assert collected(join.dataframe()) == expected
    elements = collected(join.elements())
    assert [{name: row[name] for name in expected[0]} for row in elements] == expected
    assert {row["__kind"] for row in elements} == {"row"}


@pytest.mark.spark
@pytest.mark.systems
def test_spark_keys(spark: "SparkSession") -> None:
    left, right = key_tables()
    join = joined_on(*frames(spark, left, right), NAMES, right.schema.names[:-1], buckets=2)
    found = collected(join.dataframe())
    assert [row["w"] for row in found] == V
    assert list(found[0]) == [*NAMES, "v", "w"]


@pytest.mark.spark
@pytest.mark.systems
def test_spark_groups(spark: "SparkSession") -> None:
    asked = {f"max {name}": (name, "max") for name in NAMES}
    join = joined_on(*frames(spark, *payload_tables()), "k", "k", buckets=2)
    found = collected(join.group_by("k", *NAMES).agg(**asked).dataframe())
    assert [row[f"max {name}"] for row in found for name in NAMES] == [
        row[name] for row in payload_rows() for name in NAMES
    ]


@pytest.mark.spark
def test_spark_empty_names_and_case(spark: "SparkSession") -> None:
    left, right = pa.table({"k": K, "": V, "A": V}), pa.table({"K": K, "a": V})
    join = joined_on(*frames(spark, left, right), "k", "K", buckets=2)
    assert collected(join.dataframe())[0] == {"k": 1, "": 10, "left_A": 10, "right_a": 10}


@pytest.mark.spark
def test_spark_case_within_one_stream(spark: "SparkSession") -> None:
    """`A` beside `a` is one name to Spark unless the session says otherwise; no name is looked up by case."""
    from pyspark.sql import functions as F

    left, right = frames(spark, pa.table({"k": K, "A": V}), pa.table({"k": K, "v": V}))
    join = joined_on(left.select("k", "A", F.lit(3).alias("a")), right, "k", "k", buckets=2)
    assert collected(join.dataframe())[0] == {"k": 1, "A": 10, "a": 3, "v": 10}


@pytest.mark.spark
@pytest.mark.systems
@pytest.mark.filterwarnings("ignore::streamjoin.EmptyTable")
def test_spark_enriched(spark: "SparkSession", tmp_path: Path) -> None:
    left, right = payload_tables()
    renamed = left.rename_columns(["k", *(f"stream {name}" for name in NAMES)])
    pq.write_table(left, tmp_path / "t.parquet")
    for number, source in enumerate([str(tmp_path / "t.parquet"), *frames(spark, left)]):
        table = sj.table(source, name="t", key="k", memory="64 MB")
        stream = sj.stream(frames(spark, renamed)[0], name="s", key="k")
        found = collected(sj.enrich(stream, table).dataframe(checkpoint=str(tmp_path / f"c{number}")))
        expected = wide(0, NAMES)
        assert [{n: row[n] for n in NAMES} for row in found] == [
            {n: expected[n][i] for n in NAMES} for i in range(2)
        ]
        swapped = sj.stream(frames(spark, left)[0], name="s", key="k")
        other = sj.table(frames(spark, right)[0], name="t", key="k", memory="64 MB")
        found = collected(sj.enrich(swapped, other).dataframe(checkpoint=str(tmp_path / f"d{number}")))
        assert found == payload_rows()


@pytest.mark.spark
@pytest.mark.systems
def test_spark_roles_sinks_and_violations(spark: "SparkSession", tmp_path: Path) -> None:
    from tests.spark.streams import run, stream_of

    left, right = role_tables()
    right = pa.concat_tables([right, right])  # the second one repeats a key declared unique
    found = run(
        role_join(
            stream_of(spark, tmp_path / "l", [left]), stream_of(spark, tmp_path / "r", [right]), buckets=2
        ),
        tmp_path / "c",
    )
    assert [row.asDict()["_kind"] for row in found.rows] == [7]
    assert [row.asDict()["__kind"] for row in found.punctuations] == ["punctuation"]
    assert [(row["__reason"], row["_reason"]) for row in found.violations] == [("duplicate_key", "r")]


@pytest.mark.spark
@pytest.mark.systems
def test_spark_chains_and_edges(spark: "SparkSession") -> None:
    left, right = frames(spark, *payload_tables())
    lower = joined_on(left, right, "k", "k", buckets=2, name="lower")
    top = frames(spark, pa.table({"k": K, "top": V}))[0]
    join = sj.join(
        sj.stream(lower, name="lr", key="k"), sj.stream(top, name="c", key="k"), name="upper", buckets=2
    )
    assert collected(join.dataframe()) == [{**row, "top": V[i]} for i, row in enumerate(payload_rows())]
    other = frames(spark, pa.table({"_until": wide(0, NAMES)["_until"], "top": V}))[0]
    declared = ((left, "l", "k"), (right, "r", "k"), (other, "o", "_until"))
    streams = [sj.stream(frame, name=name, key=key) for frame, name, key in declared]
    graph = sj.join(*streams, on="l.k = r.k and l._until = o.`_until`", buckets=2)
    found = collected(graph.dataframe())
    assert [{name: row[name] for name in NAMES} for row in found] == [
        {name: row[name] for name in NAMES} for row in payload_rows()
    ]


def test_where_names_any_column() -> None:
    left, right = payload_tables()
    for name in NAMES:
        join = joined_on(left.schema, right.schema, "k", "k", where=pc.field(name) < 100)
        assert [row["k"] for row in both(join, left, right)] == [1]


@pytest.mark.spark
def test_spark_closing_names_any_column(spark: "SparkSession") -> None:
    left = pa.table({"k": K, "a b": [True, True], "_id": V})
    left_frame, right = frames(spark, left, pa.table({"k": K, "v": V}))
    join = sj.join(
        sj.stream(left_frame, name="left", key="k", punctuation=sj.closing("a b")),
        sj.stream(right, name="right", key="k", unique=True),
        buckets=2,
    )
    assert [row["_id"] for row in collected(join.dataframe())] == V
