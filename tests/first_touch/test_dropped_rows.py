"""Dropped rows leave a log line and stand in explain(); rows that need no place are not_stored."""

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.join.notices import LOG
from tests.tables import unbounded_is_meant

SCHEMA = pa.schema({"k": pa.int64(), "t": pa.timestamp("us"), "n": pa.int64()})
START = datetime(2026, 11, 16, tzinfo=UTC)


def timed(name: str, **declared: Any) -> Any:
    return sj.stream(SCHEMA, name=name, key="k", time="t", window="1 h", lateness="0 s", **declared)


def rows(*minutes: int) -> pa.Table:
    times = [START + timedelta(minutes=minute) for minute in minutes]
    return pa.table({"k": list(minutes), "t": pa.array(times, pa.timestamp("us")), "n": minutes})


def test_dropped_rows_are_logged_less_and_less_often(caplog: pytest.LogCaptureFixture) -> None:
    run = sj.join(timed("a"), timed("b"), name="shop").local()
    with caplog.at_level(logging.WARNING, LOG.name):
        run.push("a", rows(600))
        for minute in range(250):
            run.push("a", rows(minute))
    said = [record.getMessage() for record in caplog.records]
    assert [text.split(" so far")[0].split()[-1] for text in said] == ["1", "10", "100"]
    assert said[0].startswith(
        "join 'shop', stream 'a': dropped rows that came later than the declared lateness allows (late), 1 so"
    )
    assert "on_violation=" in said[0]


@unbounded_is_meant
def test_each_reason_and_input_is_said(caplog: pytest.LogCaptureFixture) -> None:
    run = sj.join(timed("a", unique=True), timed("b")).local()
    with caplog.at_level(logging.WARNING, LOG.name):
        run.push("a", rows(600, 600))
        run.push("a", rows(1, 2))
        run.push("b", rows(600))
        run.push("b", rows(1))
    said = [record.getMessage() for record in caplog.records]
    assert ["(duplicate_key)" in text for text in said] == [True, False, False]
    assert ["stream 'b'" in text for text in said] == [False, False, True]


@pytest.mark.parametrize("policy", ["keep", "drop"])
def test_what_is_kept_is_not_logged(policy: Any, caplog: pytest.LogCaptureFixture) -> None:
    run = sj.join(timed("a", on_violation=policy), timed("b")).local()
    with caplog.at_level(logging.WARNING, LOG.name):
        run.push("a", rows(600))
        run.push("a", rows(1))
    assert bool(caplog.records) == (policy == "drop")


def test_explain_says_what_is_dropped() -> None:
    told = sj.join(timed("a", unique=True), timed("b", on_violation="keep")).explain()
    dropped = (
        "violations of a (null_time, late, duplicate_key) are dropped: counted, logged, emitted as violations"
    )
    assert f"  {dropped}\n" in told
    assert "  violations of b (null_time, late) are kept" in told
    plain = sj.stream(SCHEMA, name="c", key="k")
    assert "violations" not in sj.join(plain, sj.stream(SCHEMA, name="d", key="k")).explain()


@pytest.mark.parametrize(("how", "preserved"), [("left", ["a"]), ("full", ["a", "b"]), ("left_anti", ["a"])])
def test_explain_says_that_late_rows_of_a_preserved_input_are_not_padded(
    how: str, preserved: list[str]
) -> None:
    told = sj.join(timed("a"), timed("b"), how=how).explain()
    found = [line.split()[2] for line in told.splitlines() if line.endswith("they are not padded")]
    assert found == preserved


@pytest.mark.parametrize("how", ["left", "full", "left_anti"])
def test_late_rows_of_a_preserved_input_leave_as_violations_only(how: str) -> None:
    run = sj.join(timed("a"), timed("b"), how=how).local()
    run.push("a", rows(600))
    came = run.push("a", rows(1)).num_rows + run.finish().num_rows
    assert came == 1  # the row that was in time
    assert [(one["reason"], one["row"]["n"]) for one in run.violations()] == [("late", 1)]


@unbounded_is_meant
def test_rows_that_joined_and_need_no_place_are_not_stored() -> None:
    orders = sj.stream(pa.schema({"k": pa.int64()}), name="orders", key="k", unique=True)
    run = sj.join(orders, sj.stream(SCHEMA, name="lines", key="k")).local()
    run.push("orders", pa.table({"k": [1]}))
    assert run.push("lines", rows(1)).num_rows == 1
    assert run.counters()["lines_not_stored"] == 1
    assert not any(name.endswith("_dropped") for name in run.counters())
