"""A punctuation row with a null key is a violation like the others; it never stops a query by itself."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import streamjoin as sj

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINES = pa.schema({"id": pa.int64(), "part": pa.int64(), "qty": pa.int64(), "over": pa.bool_()})
ROWS = pa.table(
    {
        "id": [1, None, None, 1],
        "part": [7, None, 7, None],
        "qty": [3, None, 4, None],
        "over": [False, True, False, True],
    },
    LINES,
)


def joined(
    key: Any = "id", how: str = "inner", lines: Any = LINES, orders: Any = None, **declared: Any
) -> sj.Joined:
    orders = pa.schema({"id": pa.int64(), "part": pa.int64()}) if orders is None else orders
    wild = declared.pop("wild", False)
    source = sj.marked("over", null_is_wildcard=wild)
    return sj.join(
        sj.stream(orders, name="orders", key=key, unique=True),
        sj.stream(lines, name="lines", key=key, punctuation=source, **declared),
        how=how,
    )


def started(**declared: Any) -> sj.LocalRun:
    run = joined(**declared).local()
    run.push("orders", pa.table({"id": [1, 2], "part": [7, 7]}))
    return run


@pytest.mark.parametrize("policy", ["drop", "keep"])
@pytest.mark.parametrize("how", ["inner", "full"])
def test_it_is_a_violation_and_the_join_goes_on(policy: str, how: str) -> None:
    run = started(on_violation=policy, how=how)
    found = run.push("lines", ROWS)
    assert [row["qty"] for row in found.to_pylist()] == ([3] if how == "inner" else [4, 3])
    row = {"id": None, "part": None, "qty": None}
    assert run.violations() == [{"stream": "lines", "reason": "null_punctuation", "kept": False, "row": row}]
    assert run.counters()["lines_null_punctuation"] == 1
    assert run.counters()["lines_null_keys"] == 1
    assert any("punctuations with a null key" in one for one in run.advice())
    assert run.state().rows == {"orders": 1, "lines": 0}  # key 1 is closed, and nothing else


def test_part_of_a_key_is_not_enough() -> None:
    run = started(key=["id", "part"])
    part = pa.table({"id": [1, None, 1], "part": [None, 7, 7], "qty": [None] * 3, "over": [True] * 3}, LINES)
    run.push("lines", part)
    assert [one["reason"] for one in run.violations()] == ["null_punctuation"] * 2
    assert run.state().rows["orders"] == 1


def test_fail_stops_with_what_to_do_and_does_not_advise_to_end_the_input() -> None:
    with pytest.raises(sj.PunctuationViolated, match=r"on_violation='drop'.*then such a row ends the input"):
        started(on_violation="fail").push("lines", ROWS)


def test_a_wildcard_is_meant_where_it_is_declared() -> None:
    run = started(wild=True)
    run.push("lines", ROWS)
    assert run.violations() == []
    assert run.state().rows["orders"] == 0  # all of lines is over


def test_it_survives_a_snapshot() -> None:
    run = started()
    run.push("lines", ROWS)
    again = joined().local(snapshot=run.snapshot())
    assert [one["reason"] for one in again.violations()] == ["null_punctuation"]


def test_explain_names_it() -> None:
    assert "violations of lines (after_punctuation, null_punctuation) are dropped" in joined().explain()
    assert "null_punctuation" not in joined(wild=True).explain()


@pytest.mark.spark
@pytest.mark.systems
def test_on_spark_it_goes_to_the_violations_and_the_query_goes_on(
    spark: "SparkSession", tmp_path: Path
) -> None:
    schema = "id long, part long, qty long, over boolean"
    spark.createDataFrame(ROWS.to_pylist(), schema).write.parquet(str(tmp_path / "lines"))
    spark.createDataFrame([(1, 7)], "id long, part long").write.parquet(str(tmp_path / "orders"))
    join = joined(
        lines=spark.readStream.schema(schema).parquet(str(tmp_path / "lines")),
        orders=spark.readStream.schema("id long, part long").parquet(str(tmp_path / "orders")),
    )
    violations: list[Any] = []
    rows: list[Any] = []
    query = join.write(
        rows=lambda frame, _: rows.extend(frame.collect()),
        violations=lambda frame, _: violations.extend(frame.collect()),
        checkpoint=str(tmp_path / "state"),
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    assert [row["qty"] for row in rows] == [3]
    assert [(one["_input"], one["_reason"]) for one in violations] == [("lines", "null_punctuation")]
    assert sj.progress(query)["join"]["lines_null_punctuation"] == 1
