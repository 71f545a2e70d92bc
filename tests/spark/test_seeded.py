"""Seeded streams on Spark, cut into files at random: the bag of results is the batch join's."""

import csv
import datetime as dt
import itertools
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import streamjoin as sj
from streamjoin.join.strategies import spill as spilling
from tests.spark.streams import run, stream_of

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::streamjoin.UnboundedState")]

NEXMARK = Path(__file__).parents[1] / "data" / "nexmark"
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
FILES = 5
WAITING = sj.SpillAbove("1 KB", defer=True)  # only locally: here every batch gives all its results


@dataclass
class Generated:
    """One input: its rows (key, second, id), the keys it closes and after which row, its declaration."""

    rows: list[tuple[int | None, int, int]]
    ends: dict[int, list[int]]
    unique: bool
    window: int | None
    lateness: int


def generate(rng: random.Random, number: int, *, windowed: bool) -> Generated:
    """A stream that keeps what it declares."""
    unique = number == 0 and rng.random() < 0.6
    lateness = rng.choice([0, 2, 5])
    rows, ends, clock = [], {}, 0
    open_keys = list(range(12))
    for i in range(40):
        clock += rng.randint(0, 3)
        key = rng.choice([None, *open_keys * 8]) if open_keys else None
        rows.append((key, clock + lateness - rng.randint(0, lateness), number * 1000 + i))
        if key is not None and (unique or rng.random() < 0.1):
            open_keys.remove(key)
            if not unique or rng.random() < 0.5:
                ends.setdefault(i, []).append(key)
    window = rng.randint(3, 30) if windowed and rng.random() < 0.8 else None
    return Generated(rows, ends, unique, window, lateness)


def batch_join(inputs: list[Generated]) -> Counter[tuple[Any, ...]]:
    """One row of each input with one key, each in its window when the latest comes."""
    found: Counter[tuple[Any, ...]] = Counter()
    for rows in itertools.product(*(one.rows for one in inputs)):
        latest = max(row[1] for row in rows)
        in_windows = all(
            one.window is None or latest - row[1] <= one.window for one, row in zip(inputs, rows, strict=True)
        )
        if rows[0][0] is not None and len({row[0] for row in rows}) == 1 and in_windows:
            found[tuple(row[2] for row in rows)] += 1
    return found


def files(rng: random.Random, one: Generated, number: int) -> list[pa.Table]:
    """The stream with its punctuations as marked rows, cut anywhere."""
    schema = pa.schema(
        {
            "k": pa.int64(),
            f"t{number}": pa.timestamp("us", "UTC"),
            f"id{number}": pa.int64(),
            "end": pa.bool_(),
        }
    )
    rows: list[tuple[Any, ...]] = []
    for i, (key, second, number_) in enumerate(one.rows):
        rows.append((key, START + dt.timedelta(seconds=second), number_, False))
        rows += [(key, None, None, True) for key in one.ends.get(i, [])]
    cuts = [0, *sorted(rng.randint(0, len(rows)) for _ in range(FILES - 1)), len(rows)]
    return [
        pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows[a:b]], schema=schema)
        for a, b in itertools.pairwise(cuts)
    ]


@pytest.mark.parametrize(
    ("seed", "count", "memory"),
    [
        pytest.param(1, 2, None, marks=pytest.mark.systems),
        pytest.param(2, 3, None, marks=pytest.mark.systems),
        pytest.param(3, 2, None, marks=pytest.mark.systems),
        pytest.param(4, 3, "1 KB", marks=pytest.mark.systems),
        (5, 2, WAITING),
    ],
)
def test_the_answer_is_the_batch_joins(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    count: int,
    memory: Any,
) -> None:
    monkeypatch.setattr(spilling, "SMALLEST_SHARE", 1)  # so that a few rows leave memory
    rng = random.Random(seed)
    windowed = seed != 3
    inputs = [generate(rng, number, windowed=windowed) for number in range(count)]
    streams = []
    for number, one in enumerate(inputs):
        frame = stream_of(spark, tmp_path / str(number), files(rng, one, number))
        timed = {"time": f"t{number}", "lateness": f"{one.lateness} seconds"} if windowed else {}
        if one.window is not None:
            timed["window"] = f"{one.window} seconds"
        streams.append(
            sj.stream(
                frame,
                name=f"s{number}",
                key="k",
                unique=one.unique,
                punctuation=sj.marked("end"),
                columns=[f"id{number}"],
                **timed,
            )
        )
    found = run(sj.join(*streams, buckets=3, memory=memory), tmp_path / "checkpoint")
    ids = Counter(tuple(row[f"id{number}"] for number in range(count)) for row in found.rows)
    assert found.violations == [], f"seed {seed}"
    assert ids == batch_join(inputs), f"seed {seed}"
    # a unique key that is punctuated too, after it was finished, counts as a new key
    again = {key for one in inputs if one.unique for keys in one.ends.values() for key in keys}
    propagated = Counter(row.k for row in found.punctuations if row.k not in again)
    assert not propagated or max(propagated.values()) == 1, f"seed {seed}: announced twice"
    for metrics in found.progress:
        if metrics:
            assert metrics["join"]["state_calls"] <= 3 * 3, "state calls a bucket and batch"
            assert memory is None or metrics["join"]["resident_bytes"] <= 1024, "in memory"
    if memory is not None:
        assert max(metrics["join"]["state_bytes"] for metrics in found.progress if metrics) > 1024


def nexmark(name: str) -> pa.Table:
    with (NEXMARK / f"{name}.csv").open() as file:
        rows = list(csv.DictReader(file))
    return pa.Table.from_pylist(rows, schema=pa.schema([(column, pa.string()) for column in rows[0]]))


def cut(table: pa.Table, rng: random.Random) -> list[pa.Table]:
    cuts = [0, *sorted(rng.randint(0, len(table)) for _ in range(3)), len(table)]
    return [table.slice(a, b - a) for a, b in itertools.pairwise(cuts)]


def where(table: pa.Table, column: str, values: set[str]) -> pa.Table:
    return table.filter(pa.array([value in values for value in table[column].to_pylist()]))


@pytest.mark.systems
def test_nexmark_q3_and_q20(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(20)
    auction, person, bid = (nexmark(name) for name in ("auction", "person", "bid"))
    auction = where(auction, "category", {"10"})
    auctions = stream_of(spark, tmp_path / "auction", cut(auction, rng))
    persons = where(person, "state", {"or", "id", "ca"})
    people = stream_of(spark, tmp_path / "person", cut(persons, rng))
    bids = stream_of(spark, tmp_path / "bid", cut(bid, rng))
    q3 = sj.join(
        sj.stream(auctions, name="auction", key="seller", columns=["id"]),
        sj.stream(people, name="person", key="id", unique=True, columns=["name", "city", "state"]),
    )
    found = run(q3, tmp_path / "q3").rows
    expected = nexmark("q3.expected").to_pylist()
    rows = Counter((row.name, row.city, row.state, row.id) for row in found)
    assert rows == Counter((row["name"], row["city"], row["state"], row["id"]) for row in expected)
    q20 = sj.join(
        sj.stream(bids, name="bid", key="auction"), sj.stream(auctions, name="auction", key="id", unique=True)
    )
    expected = nexmark("q20.expected").to_pylist()
    names = ["auction", "bidder", "price", "bid_date_time", "item_name", "auction_date_time", "seller"]
    rows = Counter(tuple(row[name] for name in names) for row in run(q20, tmp_path / "q20").rows)
    assert rows == Counter(tuple(row[name] for name in names) for row in expected)
