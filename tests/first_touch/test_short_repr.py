"""The representation of what a user holds in a notebook is one short line."""

from typing import Any

import pyarrow as pa
import pytest

import streamjoin as sj

ORDERS = pa.schema({"id": pa.int64(), "total": pa.int64()})
LINES = pa.schema({"order": pa.int64(), "t": pa.timestamp("us"), "qty": pa.int64(), "last": pa.bool_()})
CITIES = pa.table({"id": [1], "city": ["Rome"]})


def orders(name: str = "orders", **declared: Any) -> Any:
    return sj.stream(ORDERS, name=name, key="id", unique=True, **declared)


def lines() -> Any:
    return sj.stream(
        LINES,
        name="lines",
        key="order",
        time="t",
        lateness="0 s",
        arrival=sj.clustered(),
        punctuation=sj.closing("last"),
    )


def cities(**declared: Any) -> Any:
    return sj.table(CITIES, name="cities", key="id", memory="1 MB", **declared)


REPRESENTED = {
    "a stream": (orders, "<Stream orders(id, total): key id, unique>"),
    "a stream with more": (
        lines,
        "<Stream lines(order, t, qty, last): key order, time t, clustered arrival, closing punctuations>",
    ),
    "a table": (cities, "<Table cities(id, city): key id>"),
    "a table that keeps rows": (
        lambda: cities(how="left"),
        "<Table cities(id, city): key id, keeps rows without a match>",
    ),
    "a join": (
        lambda: sj.join(orders(), lines()),
        "<Joined join: orders ⋈ lines on id → id, total, t, qty, last>",
    ),
    "an outer join": (
        lambda: sj.join(orders(), lines(), how="right", name="shop"),
        "<Joined shop: orders ⋈ lines on id (right) → id, total, t, qty, last>",
    ),
    "groups": (
        lambda: sj.join(orders(), lines()).group_by("id"),
        "<GroupedBy join: orders ⋈ lines on id by id; .agg(…) or .count()>",
    ),
    "their answer": (
        lambda: sj.join(orders(), lines()).group_by("id").count(),
        "<Joined join: orders ⋈ lines on id → id, count>",
    ),
    "an enriched stream": (
        lambda: sj.enrich(orders_of_cities(), cities()),
        "<Enriched enrich: orders ⋈ cities on id → id, total, city>",
    ),
    "many inputs": (
        lambda: sj.join(*(orders(f"o{i}") for i in range(40))),
        "<Joined join: o0 ⋈ o1 ⋈ o2 ⋈ o3 ⋈ o4 ⋈ o5 and 34 more on id → id, o0_total, ",
    ),
    "a join without one key": (
        lambda: sj.join(
            orders(), lines(), orders("paid"), on="orders.id = lines.order and paid.id = lines.qty"
        ),
        "<Joined join: ",
    ),
}


def orders_of_cities() -> Any:
    return sj.stream(ORDERS, name="orders", key="id")


@pytest.mark.parametrize("what", REPRESENTED)
def test_the_representation_is_one_short_line(what: str) -> None:
    make, shown = REPRESENTED[what]
    text = repr(make())
    assert text.startswith(shown)
    assert text == shown or not shown.endswith(">")
    assert "\n" not in text
    assert len(text) < 160
