"""Durations: what explain() prints can be typed back, zero is a window, negative or endless is refused."""

import random
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.declare.durations import MOST_US, duration_text, duration_us

SCHEMA = pa.schema({"k": pa.int64(), "t": pa.timestamp("us"), "n": pa.int64()})
START = datetime(2026, 11, 16, tzinfo=UTC)


def timed(name: str, **declared: Any) -> Any:
    return sj.stream(SCHEMA, name=name, key="k", time="t", **{"lateness": "0 s", **declared})


def rows(*seconds: int, start: datetime = START) -> pa.Table:
    times = [start + timedelta(seconds=second) for second in seconds]
    return pa.table({"k": [1] * len(seconds), "t": pa.array(times, pa.timestamp("us")), "n": seconds})


def pairs(run: sj.LocalRun, *batches: tuple[str, pa.Table]) -> list[tuple[int, int]]:
    found = [row for name, table in batches for row in run.push(name, table).to_pylist()]
    return sorted((row["a_n"], row["b_n"]) for row in [*found, *run.finish().to_pylist()])


@pytest.mark.parametrize(
    "text",
    ["10 min", "1 h", "60 s", "90 s", "1.5 h", "2 d", "16 min 41 s", "3 w", "5 ms", "7 us", "0 s", "1h30min"],
)
def test_what_explain_prints_can_be_typed_back(text: str) -> None:
    declared = timed("a", window=text, lateness=text, idle=text)
    printed = sj.join(declared, timed("b")).explain()
    found = re.search(r"window ([^;]+); lateness ([^;]+); idle after ([^;\n]+)", printed)
    assert found is not None
    for each in found.groups():
        assert duration_us(each, what="again") == declared.window_us


def test_every_whole_number_of_microseconds_comes_back() -> None:
    chosen = random.Random(7)
    units = [1, 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000]
    for _ in range(2_000):
        micros = chosen.choice([chosen.randrange(10 ** chosen.randrange(1, 17)), chosen.randrange(2_000)])
        micros = min(micros * chosen.choice(units), MOST_US)
        assert duration_us(duration_text(micros), what="again") == micros


def test_what_was_measured_can_be_typed_too() -> None:
    for micros in (0.3, 1234.5, 1e6 / 3, 7e9 / 3, 1.234e13, 9.9e16):
        assert duration_us(duration_text(micros), what="again") == pytest.approx(micros, rel=0.01, abs=1)


@pytest.mark.parametrize("window", ["0 seconds", timedelta(0)])
def test_a_window_of_zero_joins_rows_of_the_same_time(window: Any) -> None:
    run = sj.join(timed("a", window=window), timed("b", window=window)).local()
    batches = [("a", rows(1, 2, 2, 3)), ("b", rows(2, 3, 4)), ("a", rows(4, 5))]
    assert pairs(run, *batches) == [(2, 2), (2, 2), (3, 3), (4, 4)]


def test_an_asymmetric_window() -> None:
    """A row of b joins rows of a that are up to 5 seconds older, and none that is newer."""
    run = sj.join(timed("a", window="5 s"), timed("b", window="0 s")).local()
    assert pairs(run, ("a", rows(0, 5, 11)), ("b", rows(5, 10))) == [(0, 5), (5, 5), (5, 10)]


@pytest.mark.parametrize("given", ["-5 minutes", "- 1 h", "1 h -2 h", timedelta(seconds=-1)])
@pytest.mark.parametrize("what", ["window", "lateness", "idle", "ttl"])
def test_a_negative_duration_says_negative(what: str, given: Any) -> None:
    with pytest.raises(sj.InvalidJoin, match=f"stream 'a': {what} is .*negative"):
        timed("a", **{what: given})


ENDLESS = ["300000 years", "9999999999 days", "9" * 300 + " s", timedelta.max, timedelta(days=3_650_001)]


@pytest.mark.parametrize("given", ENDLESS)
@pytest.mark.parametrize("what", ["window", "lateness", "idle", "ttl"])
def test_a_duration_beyond_microseconds_is_refused_when_declared(what: str, given: Any) -> None:
    with pytest.raises(sj.InvalidJoin, match=f"stream 'a': {what} is "):
        timed("a", **{what: given})


def test_an_endless_wait_and_interval_are_refused_when_declared() -> None:
    table = pa.table({"k": [1], "city": ["Rome"]})
    with pytest.raises(sj.InvalidJoin, match=r"wait is .*10,000 years"):
        sj.table(table, name="cities", key="k", memory="1 MB", wait="300000000 days")
    with pytest.raises(sj.InvalidJoin, match="10,000 years"):
        sj.join(timed("a"), timed("b"), where="a_t < b_t + interval 300000000 days")


@pytest.mark.parametrize("start", [START, datetime(9999, 12, 31, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)])
@pytest.mark.parametrize("how", ["inner", "full"])
def test_the_longest_durations_add_up(start: datetime, how: str) -> None:
    """Each and every sum of them with an event time fits 64 bits."""
    longest = dict.fromkeys(("window", "lateness", "idle", "ttl"), "3650000 days")
    run = sj.join(timed("a", **longest), timed("b", **longest), how=how).local()
    table = rows(0, 3600, start=start)
    assert len(pairs(run, ("a", table), ("b", table), ("a", table))) == 8


def test_the_longest_durations_add_up_in_a_join_of_several_operators() -> None:
    longest = {"window": "3650000 days", "lateness": "3650000 days"}
    streams = [
        sj.stream(
            pa.schema({key: pa.int64() for key in keys} | {"t": pa.timestamp("us")}),
            name=name,
            key=list(keys),
            time="t",
            **longest,
        )
        for name, keys in (("a", "x"), ("b", "xy"), ("c", "y"))
    ]
    run = sj.join(*streams, on="a.x = b.x and b.y = c.y").local()
    last = pa.array([datetime(9999, 12, 31, tzinfo=UTC)], pa.timestamp("us"))
    run.push("a", pa.table({"x": [1], "t": last}))
    run.push("b", pa.table({"x": [1], "y": [2], "t": last}))
    assert run.push("c", pa.table({"y": [2], "t": last})).num_rows == 1
