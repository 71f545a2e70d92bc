"""Spark's own form of the NEXMark queries, with watermarks where they bound its state.

Each takes the tables by name, with times as timestamps and rows of punctuations still in, which move the
watermark and are then left out. Columns are named as in `nexmark_work.CHECKS`. What Spark needs to know:

- q3, q20, q23: no time bounds these joins, so Spark stores every row. It has no other way to evict.
- q4, q9: a bid in time lies between `date_time` and `expires`. A watermark on `expires` (an auction lasts at
  most 0.4 s) and the same span as a condition on bids bound both sides, and grouping by `expires` lets the
  aggregate give final rows. q9's row_number is not allowed on streams; the greatest struct is.
- q7, q8: time windows, joined on the window itself; q8 drops duplicates by window.
- q13: a static table, broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

Tables = Mapping[str, DataFrame]
_NOW, _LONGEST = "0 seconds", "400 milliseconds"
# A filter that does not read the event time is moved before the watermark, which would then miss marked rows,
# the last of which closes everything; so would be one that reads it in a way that can be taken apart. No time
# is before 1970.
_LATER = "NOT is_end OR unix_micros({}) < 0"


def _data(rows: DataFrame) -> DataFrame:
    return rows.where("NOT is_end").drop("is_end")


def _q3(tables: Tables) -> DataFrame:
    person = _data(tables["person"]).where("state IN ('or', 'id', 'ca')")
    auction = _data(tables["auction"]).where("category = 10").select("id", "seller")
    sellers = person.select(F.col("id").alias("person"), "name", "city", "state")
    return sellers.join(auction, F.expr("person = seller")).select("name", "city", "state", "id")


def _in_time(tables: Tables, *bid_columns: str) -> DataFrame:
    """Bids in time; the join's condition holds both sides within a span that the watermarks pass."""
    known = {  # a marked row moves the watermark too; Spark would leave it out before, if it had no id
        "id": F.expr("CASE WHEN is_end THEN -1 ELSE id END"),
        "expires": F.expr("CASE WHEN is_end THEN date_time ELSE expires END"),
    }
    auction = tables["auction"].withColumns(known).withWatermark("expires", _LONGEST)
    bid = tables["bid"].withWatermark("date_time", _NOW).where(_LATER.format("date_time"))
    opened = auction.where(_LATER.format("expires")).selectExpr(
        "id", "seller", "category", "date_time AS opens", "expires"
    )
    bids = bid.select("auction", F.col("date_time").alias("at"), *bid_columns)
    return opened.join(
        bids,
        F.expr(f"id = auction AND at >= opens AND at <= expires AND at >= expires - INTERVAL {_LONGEST}"),
    )


def _q4(tables: Tables) -> DataFrame:
    groups = _in_time(tables, "price").drop("at").groupBy("id", "category", "expires")
    return groups.agg(F.max("price").alias("final")).select("id", "category", "final")


def _q9(tables: Tables) -> DataFrame:
    bids = _in_time(tables, "price", "bidder")
    ranked = bids.select(
        "id", "seller", "category", "expires",
        F.struct("price", (-F.unix_millis("at")).alias("early"), "bidder").alias("bid"),
    )  # fmt: skip
    won = ranked.groupBy("id", "seller", "category", "expires").agg(F.max("bid").alias("bid"))
    return won.selectExpr("id", "seller", "category", "bid.bidder", "bid.price", "-bid.early AS bid_time")


def _q7(tables: Tables) -> DataFrame:
    bid = tables["bid"].withWatermark("date_time", _NOW)
    starts = F.window("date_time", "10 seconds")
    top = bid.groupBy(starts.alias("top_window")).agg(F.max("price").alias("top"))
    # A stream may have one event time: the window is, so the time becomes a plain column.
    plain = F.timestamp_micros(F.unix_micros("date_time")).alias("date_time")
    bids = bid.where(_LATER.format("date_time")).select(
        "auction", "price", "bidder", "extra", plain, starts.alias("bid_window")
    )
    both = bids.join(top, F.expr("price = top AND bid_window = top_window"))
    return both.select("auction", "price", "bidder", "extra", "date_time")


def _q8(tables: Tables) -> DataFrame:
    starts = F.window("date_time", "10 seconds")
    person = (
        tables["person"].withWatermark("date_time", _NOW).select("id", "name", starts.alias("person_window"))
    )
    auction = tables["auction"].withWatermark("date_time", _NOW).where(_LATER.format("date_time"))
    opened = auction.select("seller", starts.alias("window"))
    both = person.join(opened, F.expr("id = seller AND person_window = window"))
    once = both.select("id", "name", "window").dropDuplicates(["id", "window"])
    return once.select("id", "name", F.col("window.start").alias("starts"))


def _q13(tables: Tables) -> DataFrame:
    bid = _data(tables["bid"]).withColumn("side_key", F.col("auction") % 10_000)
    side = F.broadcast(tables["side"])
    return bid.join(side, F.expr("side_key = key")).select("auction", "bidder", "price", "date_time", "value")


def _q20(tables: Tables) -> DataFrame:
    auction = _data(tables["auction"]).where("category = 10")
    bid = _data(tables["bid"])
    both = ["date_time", "extra"]
    left = bid.select(*(F.col(c).alias(f"bid_{c}" if c in both else c) for c in bid.columns))
    right = auction.select(*(F.col(c).alias(f"auction_{c}" if c in both else c) for c in auction.columns))
    return left.join(right, F.expr("auction = id")).drop("id")


def _q23(tables: Tables) -> DataFrame:
    person = _data(tables["person"]).select("id", "name", "city", "state")
    auction = _data(tables["auction"]).selectExpr("seller", "id AS auction_id", "item_name", "category")
    bid = _data(tables["bid"]).select("bidder", "auction", "price", "channel", "date_time")
    sells = person.join(auction, F.expr("id = seller")).drop("seller")
    return sells.join(bid, F.expr("id = bidder")).drop("bidder")


QUERIES: Mapping[str, Callable[[Tables], DataFrame]] = {
    "q3": _q3, "q4": _q4, "q7": _q7, "q8": _q8, "q9": _q9, "q13": _q13, "q20": _q20, "q23": _q23,
}  # fmt: skip
