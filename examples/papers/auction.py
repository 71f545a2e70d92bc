"""PWJoin, figure 1(c): the number of bids for each auction within 12 hours of its opening.

    python examples/papers/auction.py

    SELECT A.item_id, COUNT(*) AS bids
    FROM Auction [RANGE 12 HOURS] A, Bid [UNBOUNDED] B
    WHERE A.item_id = B.item_id GROUP BY A.item_id

The plan is a join with a window on the auctions, and a group-by above it. A count is final the moment the
join propagates its key: when the bids of the item are punctuated, or the auction has left its window. A bid
needs no window: each auction is opened once (`unique`), so a bid is not stored after its auction has come.
"""

from datetime import datetime
from typing import Any

import pyarrow as pa

import streamjoin as sj

AUCTION = pa.schema(
    {"item_id": pa.int64(), "seller": pa.string(), "reserve": pa.float64(), "open_time": pa.timestamp("us")}
)
BID = pa.schema(
    {
        "item_id": pa.int64(),
        "bidder": pa.string(),
        "price": pa.float64(),
        "bid_time": pa.timestamp("us"),
        "is_end": pa.bool_(),
    }
)
AUCTIONS = [(180, "a", 130.0, "09:00"), (182, "b", 20.0, "10:00"), (184, "c", 5.0, "10:30")]
BIDS: list[tuple[Any, ...]] = [  # without a bidder: the punctuation <180, *, *, *>
    (180, "x", 155.0, "18:27"),
    (182, "y", 30.0, "18:30"),
    (180, "z", 177.0, "18:57"),
    (180, None, None, None),
    (182, "x", 35.0, "21:59"),
    (182, "y", 40.0, "22:01"),
    (184, "y", 6.0, "22:31"),
]


def plan(auctions: Any, bids: Any) -> sj.Joined:
    """Figure 1(c), over schemas for a local run or over DataFrames on Spark."""
    auction = sj.stream(
        auctions,
        name="auction",
        key="item_id",
        time="open_time",
        lateness="0 seconds",
        window="12 hours",
        unique=True,
    )
    bid = sj.stream(
        bids,
        name="bid",
        key="item_id",
        time="bid_time",
        lateness="0 seconds",
        punctuation=sj.marked("is_end"),
    )
    return sj.join(auction, bid, name="auction").group_by("item_id").agg(bids=("*", "count"))


def clock(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(f"2004-11-10 {text}")


def auction_table(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = [list(column) for column in zip(*rows, strict=True)]
    return pa.table([*columns[:3], [clock(text) for text in columns[3]]], schema=AUCTION)


def bid_table(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = [list(column) for column in zip(*rows, strict=True)]
    ends = [bidder is None for bidder in columns[1]]
    return pa.table([*columns[:3], [clock(text) for text in columns[3]], ends], schema=BID)


def main() -> None:
    run = plan(AUCTION, BID).local()
    run.push("auction", auction_table(AUCTIONS))
    for bid in BIDS:
        for row in run.push("bid", bid_table([bid])).to_pylist():
            print(f"{bid[3] or 'punctuation'}: item {row['item_id']} had {row['bids']} bids")


if __name__ == "__main__":
    main()
