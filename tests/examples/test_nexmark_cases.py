"""Five NEXMark queries against expected rows that nobody here wrote (tests/data/nexmark), under many
random batchings and interleavings, with and without knowledge of the data, with restarts between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pytest

import streamjoin as sj
from streamjoin import Joined

DATA = Path(__file__).parents[1] / "data" / "nexmark"
BATCHINGS = 60
WHEN = pa.timestamp("us")
TYPES = {
    "person": {"id": pa.int64(), "date_time": WHEN, "credit_card": pa.string()},
    "auction": {
        **dict.fromkeys(("id", "initial_bid", "reserve", "seller", "category"), pa.int64()),
        **dict.fromkeys(("date_time", "expires"), WHEN),
    },
    "bid": {**dict.fromkeys(("auction", "bidder", "price"), pa.int64()), "date_time": WHEN},
}


def read(name: str, types: dict[str, pa.DataType]) -> pa.Table:
    options = pyarrow.csv.ConvertOptions(column_types=types)
    return pyarrow.csv.read_csv(DATA / f"{name}.csv", convert_options=options)


def table(name: str) -> pa.Table:
    return read(name, TYPES[name])


def bag(rows: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(column.to_pylist() for column in rows.columns), strict=True))


@dataclass(frozen=True)
class Query:
    """Tables as they are pushed, and the join of them; `columns` of its result are the answer."""

    tables: dict[str, pa.Table]
    joined: Joined
    columns: list[str]
    expected: pa.Table
    finally_: Callable[[pa.Table], pa.Table] = lambda rows: rows  # what the query makes of the joined rows


def q3(*, declared: bool) -> Query:
    """Who sells in particular states, in category 10?"""
    person, auction = table("person"), table("auction")
    tables = {
        "person": person.filter(pc.is_in(person["state"], pa.array(["or", "id", "ca"]))),
        "auction": auction.filter(pc.equal(auction["category"], 10)),
    }
    joined = sj.join(
        sj.stream(person.schema, name="person", key="id", unique=declared),
        sj.stream(auction.schema, name="auction", key="seller", columns=["id"]),
    )
    columns = ["name", "city", "state", "auction_id"]
    return Query(tables, joined, columns, read("q3.expected", {"id": pa.int64()}))


def q8(*, declared: bool) -> Query:
    """Who opened an auction in the 10 seconds in which they registered? A semi join gives each once."""
    tables = {name: _with_window(table(name)) for name in ("person", "auction")}
    # A window of 10 s and any order: the tables span 10 s, so nothing is late that could still join.
    timed: dict[str, Any] = {"time": "date_time", "window": "10 seconds", "lateness": "1 hour"}
    joined = sj.join(
        sj.stream(
            tables["person"].schema,
            name="person",
            key=["id", "starts"],
            unique=declared,
            columns=["name"],
            **(timed if declared else {}),
        ),
        sj.stream(
            tables["auction"].schema,
            name="auction",
            key=["seller", "starts"],
            columns=[],
            **(timed if declared else {}),
        ),
        how="left_semi",
    )
    expected = read("q8.expected", {"id": pa.int64(), "starttime": WHEN})
    return Query(tables, joined, ["id", "name", "starts"], expected)


def _with_window(rows: pa.Table) -> pa.Table:
    return rows.append_column("starts", pc.floor_temporal(rows["date_time"], 10, "second"))


def q20(*, declared: bool) -> Query:
    """Bids with their auction, in category 10."""
    bid, auction = table("bid"), table("auction")
    tables = {"bid": bid, "auction": auction.filter(pc.equal(auction["category"], 10))}
    joined = sj.join(
        sj.stream(bid.schema, name="bid", key="auction"),
        sj.stream(auction.schema, name="auction", key="id", unique=declared),
    )
    types = {**TYPES["bid"], **TYPES["auction"], "bid_date_time": WHEN, "auction_date_time": WHEN}
    expected = read("q20.expected", types)
    return Query(tables, joined, expected.column_names, expected)


def q101(*, declared: bool) -> Query:
    """Every auction with its highest bid, or none."""
    bid, auction = table("bid"), table("auction")
    joined = sj.join(
        sj.stream(auction.schema, name="auction", key="id", unique=declared, columns=["item_name"]),
        sj.stream(bid.schema, name="bid", key="auction", columns=["price"]),
        how="left",
    )
    expected = read("q101.expected", {"auction_id": pa.int64(), "current_highest_bid": pa.int64()})
    return Query({"bid": bid, "auction": auction}, joined, ["id", "item_name", "price"], expected, _highest)


def _highest(rows: pa.Table) -> pa.Table:
    found = rows.group_by(["id", "item_name"]).aggregate([("price", "max")])
    return found.select(["id", "item_name", "price_max"])


def q104(*, declared: bool) -> Query:
    """Auctions that are not among those with fewer than 20 bids."""
    bid, auction = table("bid"), table("auction")
    counted = bid.group_by("auction").aggregate([("price", "count")])
    few = counted.filter(pc.less(counted["price_count"], 20)).select(["auction"])
    joined = sj.join(
        sj.stream(auction.schema, name="auction", key="id", unique=declared, columns=["item_name"]),
        sj.stream(few.schema, name="few", key="auction", unique=declared),
        how="left_anti",
    )
    expected = read("q104.expected", {"auction_id": pa.int64()})
    return Query({"auction": auction, "few": few}, joined, ["id", "item_name"], expected)


def answer(query: Query, seed: int) -> pa.Table:
    """The rows of one run: batches of any size, on any input or both, with restarts between."""
    rng = Random(seed)
    run = query.joined.local()
    left = {name: rows.take(rng.sample(range(len(rows)), len(rows))) for name, rows in query.tables.items()}
    found = []
    largest = rng.choice((1, 5, 20))
    while any(map(len, left.values())):
        step = {}
        for name in rng.sample(sorted(left), rng.randint(1, 2)):
            size = rng.randint(0, largest)
            step[name], left[name] = left[name].slice(0, size), left[name].slice(size)
        found.append(run.step(step))
        if rng.random() < 0.1:
            run = query.joined.local(snapshot=run.snapshot())
    found.append(run.finish())
    assert run.violations() == []
    assert not any(run.state().rows.values())
    return query.finally_(pa.concat_tables(found).select(query.columns))


@pytest.mark.filterwarnings("ignore::streamjoin.UnboundedState")
@pytest.mark.parametrize("declared", [False, True], ids=["nothing declared", "unique keys declared"])
@pytest.mark.parametrize("make", [q3, q8, q20, q101, q104])
def test_query_gives_the_expected_rows_whatever_the_batching(make: Any, declared: bool) -> None:
    query = make(declared=declared)
    wanted = bag(query.expected)
    assert len(query.expected) > 0
    for seed in range(BATCHINGS):
        assert bag(answer(query, seed)) == wanted, f"seed {seed}"
