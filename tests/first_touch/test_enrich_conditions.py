"""A condition of an enrichment decides what a match is: a left join pads where no table row fulfils it."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streamjoin as sj

ORDERS = pa.schema({"id": pa.int64(), "total": pa.int64()})
ROWS = pa.table({"id": [1, 1, 2, 3], "most": [10, 20, 5, None], "active": [True, True, False, True]})
CONDITIONS: list[tuple[Any, Any]] = [
    ("total <= most", lambda total, most, active: most is not None and total <= most),
    ("active", lambda total, most, active: active),
    ("total > 4 and active and total <= most", lambda t, m, a: t > 4 and a and m is not None and t <= m),
    (pc.field("total") > 4, lambda total, most, active: total > 4),
    ("orders.total <> customers.most or most is null", lambda t, m, a: m is None or t != m),
]


def enriched(where: Any, **table: Any) -> sj.Enriched:
    orders = sj.stream(ORDERS, name="orders", key="id")
    given = {"name": "customers", "key": "id", "memory": "1 MB", "how": "left", **table}
    operator = given.pop("operator", None)
    return sj.enrich(orders, sj.table(ROWS, **given), where=where, operator=operator)


def told(*results: pa.Table) -> Counter[Any]:
    return Counter(tuple(row.values()) for table in results for row in table.to_pylist())


def expected(rows: list[tuple[int, int]], holds: Any, *, left: bool) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for key, total in rows:
        partners = [
            (one["most"], one["active"])
            for one in ROWS.to_pylist()
            if one["id"] == key and holds(total, one["most"], one["active"])
        ]
        found.update((key, total, *one) for one in partners or ([(None, None)] if left else []))
    return found


def test_padding_is_not_filtering_the_result() -> None:
    run = enriched("total <= most").local()
    given = run.push("orders", pa.table({"id": [1, 1, 2], "total": [15, 30, 5]}))
    assert told(given) == Counter([(1, 15, 20, True), (1, 30, None, None), (2, 5, 5, False)])
    assert run.counters()["unmatched"] == 1


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 25)), max_size=6), max_size=6),
    st.sampled_from(CONDITIONS),
    st.sampled_from(["inner", "left"]),
    st.sampled_from([None, "ssbj", "meshjoin"]),
    st.integers(1, 3),
)
def test_it_equals_the_batch_join(batches: Any, condition: Any, how: str, operator: Any, cycle: int) -> None:
    where, holds = condition
    run = enriched(where, how=how, operator=operator, cycle_batches=cycle).local()
    found = [
        run.push("orders", pa.table([*zip(*rows, strict=True)] or [[], []], schema=ORDERS))
        for rows in batches
    ]
    assert told(*found, run.finish()) == expected(
        [row for rows in batches for row in rows], holds, left=how == "left"
    )


@pytest.mark.parametrize("operator", [None, "ssbj"])
def test_cached_values_are_tested_too(operator: str | None) -> None:
    run = enriched("total <= most", operator=operator).local()
    batch = pa.table({"id": [1] * 200 + [2] * 200, "total": [15, 30] * 200})
    for _ in range(12):
        assert told(run.push("orders", batch)) == Counter(
            {
                (1, 15, 20, True): 100,
                (1, 30, None, None): 100,
                (2, 15, None, None): 100,
                (2, 30, None, None): 100,
            }
        )
    assert run.counters()["hits"] > 0


def test_a_row_that_can_match_no_version_does_not_wait() -> None:
    orders = sj.stream(
        pa.schema({"id": pa.int64(), "total": pa.int64(), "t": pa.timestamp("us")}),
        name="orders",
        key="id",
        time="t",
        lateness="0 seconds",
    )
    table = sj.table(ROWS, name="customers", key="id", memory="1 MB", how="left", wait="1 hour")
    run = sj.enrich(orders, table, where="total > 0 and total <= most").local()
    rows = {"id": [1, 1, 1], "total": [0, 20, 99], "t": pa.array([0, 0, 0], pa.timestamp("us"))}
    assert [row["total"] for row in run.push("orders", pa.table(rows)).to_pylist()] == [0, 20]
    assert run.in_waiting_room == 1  # 99, until a version allows as much
    richer = pa.table({"id": [1], "most": [100], "active": [True]})
    anew = sj.table(richer, name="customers", key="id", memory="1 MB", how="left", wait="1 hour")
    assert run.refresh(anew).column("most").to_pylist() == [100]  # a refresh gives result rows


def test_several_tables_have_their_own() -> None:
    orders = sj.stream(ORDERS, name="orders", key="id")
    tables = [sj.table(ROWS, name=name, key="id", memory="1 MB", how="left") for name in ("a", "b")]
    joined = sj.enrich(orders, *tables, where={"b": "orders.total = b.most and a.most = b.most"})
    given = joined.local().push("orders", pa.table({"id": [1, 2], "total": [20, 9]}))
    assert told(given) == Counter(
        [(1, 20, 10, True, None, None), (1, 20, 20, True, 20, True), (2, 9, 5, False, None, None)]
    )
    assert "where orders.total = b.most" in joined.explain()
    with pytest.raises(sj.InvalidJoin, match="does not say of which table"):
        sj.enrich(orders, *tables, where="total > 1")
    with pytest.raises(sj.InvalidJoin, match="names 'c'; give conditions of a, b"):
        sj.enrich(orders, *tables, where={"c": "total > 1"})


@pytest.mark.parametrize("where", ["total <=", "price > 1", "upper(total) = 'A'", 7])
def test_mistakes_are_found_when_it_is_declared(where: Any) -> None:
    with pytest.raises(sj.StreamJoinError, match="where="):
        enriched(where)


def test_a_snapshot_goes_on_with_the_same_condition_only(tmp_path: Path) -> None:
    state = enriched("total <= most").local(folder=tmp_path).snapshot()
    run = enriched("total <= most").local(folder=tmp_path, snapshot=state)
    assert told(run.push("orders", pa.table({"id": [2], "total": [6]}))) == Counter([(2, 6, None, None)])
    with pytest.raises(sj.StreamJoinError, match="where"):
        enriched("total < most").local(folder=tmp_path, snapshot=state)


@pytest.mark.spark
def test_on_spark(spark: Any, tmp_path: Path) -> None:
    rows = [(key, total) for key in range(5) for total in (3, 5, 15, 30)]
    frame = spark.createDataFrame(rows, "id long, total long")
    orders = sj.stream(frame, name="orders", key="id")
    for where, holds in CONDITIONS[:3]:
        table = sj.table(ROWS, name="customers", key="id", memory="1 MB", how="left")
        given = sj.enrich(orders, table, where=where, buckets=2).dataframe(checkpoint=str(tmp_path / "cp"))
        assert Counter(map(tuple, given.collect())) == expected(rows, holds, left=True)
