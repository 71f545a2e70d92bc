"""Eight NEXMark queries as works: the files, which inputs a query reads, and what it must answer.

The files of all queries are the same and written once for each number of events. An answer is computed with
pyarrow and numpy over whole tables, never by a contender; its columns are named as in `CHECKS`, and every
engine's form of a query gives columns of these names.

For queries whose rows are final only when something is over (`q4`, `q9`: an auction; `q7`: a window) a table
beside the files says for each key when that is, so that a contender can say how much later its row left. An
auction is over for bids in time at `expires`, or when the auction 101 after it opens, whichever is first.

Worked number for a delay: pieces of 25 s of event time; an auction is over at 3 s, its row leaves in the
second batch, which ends at 50 s: 1 batch and 47 s late. In the first batch it would be 0 batches and 22 s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import feather

from lab.contenders.protocol import Answer, Check, Work, write_input
from lab.peers.nexmark_data import Pieces
from streamjoin.demo.generators.nexmark import FIRST_ID, Name

WINDOW_MS = 10_000
SIDE_ROWS = 10_000
_IN_FLIGHT = 101  # when so many auctions have opened after one, it has had its bids

INPUTS: Mapping[str, tuple[str, ...]] = {
    "q3": ("person", "auction"),
    "q4": ("auction", "bid"),
    "q7": ("bid",),
    "q8": ("person", "auction"),
    "q9": ("auction", "bid"),
    "q13": ("bid", "side"),
    "q20": ("auction", "bid"),
    "q23": ("person", "auction", "bid"),
}
SAYS = {
    "q3": "who sells in Oregon, Idaho or California, in category 10: persons with their auctions",
    "q4": "average final price by category: auctions with the highest of their bids in time",
    "q7": "the highest bid of each 10 seconds",
    "q8": "who opened an auction in the 10 seconds in which they registered",
    "q9": "the winning bid of each auction: the highest in time, of equal ones the earliest",
    "q13": "each bid with a row of a side table of 10,000",
    "q20": "bids with their auction, in category 10",
    "q23": "bids with the person who bids and the auctions this person sells: three streams, one key",
}
CHECKS: Mapping[str, Check] = {
    "q3": Check(("id",), "id", ("name", "city", "state")),
    "q4": Check(("average",), "category"),  # of whole numbers: the average is cut to one
    "q7": Check(("auction", "price", "bidder"), "auction"),
    "q8": Check(("id",), "id", ("name",)),
    "q9": Check(("price", "bid_time"), "id"),
    "q13": Check(("bidder", "price"), "auction", ("value",)),
    "q20": Check(
        ("bidder", "price", "seller"), "auction", ("url", "bid_extra", "description", "auction_extra")
    ),
    "q23": Check(("auction", "price", "auction_id", "category"), "id", ("name", "channel", "item_name")),
}
OVER = {"q4": "id", "q7": "starts", "q9": "id"}  # the column by which it is known when a row is final


def prepare(folder: Path, query: str, events: int, per_piece: int = 250_000) -> Work:
    """The work of a query: files that are written once for all queries, and its answer."""
    pieces = Pieces(events, per_piece)
    home = folder / f"nexmark-{events}"
    written = home / "columns.arrow"
    if not written.exists():
        _write(home, pieces)
    columns = feather.read_table(written).to_pylist()
    found = _Whole(pieces)
    if query in OVER:
        feather.write_feather(found.over(query), home / f"{query}.over.arrow")
    names = INPUTS[query]
    inputs = {name: {c["column"]: c["type"] for c in columns if c["input"] == name} for name in names}
    rows = sum({c["input"]: c["rows"] for c in columns if c["input"] in names}.values())
    return Work(query, SAYS[query], home, inputs, rows, _ANSWERS[query](found))


def _write(home: Path, pieces: Pieces) -> None:
    made = list(pieces)
    side = pa.table({"key": np.arange(SIDE_ROWS), "value": [f"side {i}" for i in range(SIDE_ROWS)]})
    batches = {name: [piece[name] for piece in made] for name in made[0]} | {"side": [side]}
    about = []
    for name, tables in batches.items():
        columns, rows = write_input(home, name, tables)
        about += [{"input": name, "column": c, "type": t, "rows": rows} for c, t in columns.items()]
    feather.write_feather(pa.Table.from_pylist(about), home / "columns.arrow")  # last: now it is whole


class _Whole:
    """The tables of a work from beginning to end, without marked rows."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._made: list[Mapping[Name, pa.Table]] = list(pieces)

    def table(self, name: Name, *columns: str, **renamed: str) -> pa.Table:
        """Some columns of it; of `renamed` the new names are the keywords."""
        parts = [piece[name].filter(pc.invert(piece[name]["is_end"])) for piece in self._made]
        rows = pa.concat_tables(parts).select([*columns, *renamed.values()])
        return rows.rename_columns([*columns, *renamed]).combine_chunks()

    def in_time(self) -> pa.Table:
        """Bids with their auction, between its opening and `expires`."""
        auctions = self.table("auction", "id", "category", "expires", opens="date_time")
        bids = self.table("bid", "auction", "price", at="date_time")
        both = bids.join(auctions, "auction", "id", "inner").rename_columns({"auction": "id"})
        late = pc.or_(pc.less(both["at"], both["opens"]), pc.greater(both["at"], both["expires"]))
        return both.filter(pc.invert(late))

    def over(self, query: str) -> pa.Table:
        """When a key of a query is over, and in which piece that is seen; and when each piece ends."""
        pieces, start = self._pieces, int(self.table("bid", "date_time")["date_time"][0].as_py())
        start -= start % WINDOW_MS  # bids begin a few events after the full second
        ends = np.minimum(np.arange(1, pieces.count + 1) * pieces.per_piece, pieces.events)
        ends_ms = start + ends * 1000 // pieces.rate
        if query == "q7":
            key = np.arange(start, ends_ms[-1], WINDOW_MS)
            over = np.minimum(key + WINDOW_MS, ends_ms[-1])
        else:
            auctions = self.table("auction", "id", "expires")
            key = auctions["id"].to_numpy()
            number = key - FIRST_ID + _IN_FLIGHT
            opens = start + (number // 3 * 50 + 1 + number % 3) * 1000 // pieces.rate
            over = np.minimum(np.minimum(opens, auctions["expires"].to_numpy()), ends_ms[-1])
        piece = np.minimum(np.searchsorted(ends_ms, over, side="right"), pieces.count - 1)
        return pa.table({"key": key, "over_ms": over, "piece": piece, "piece_ends_ms": ends_ms[piece]})


def _q3(whole: _Whole) -> pa.Table:
    person = whole.table("person", "name", "city", "state", person="id")
    auction = whole.table("auction", "id", "seller", "category")
    there = person.filter(pc.is_in(person["state"], pa.array(["or", "id", "ca"])))
    return auction.filter(pc.equal(auction["category"], 10)).join(there, "seller", "person", "inner")


def _q4(whole: _Whole) -> pa.Table:
    final = whole.in_time().group_by(["id", "category"]).aggregate([("price", "max")])
    sums = final.group_by("category").aggregate([("price_max", "sum"), ("price_max", "count")])
    average = sums["price_max_sum"].to_numpy() // sums["price_max_count"].to_numpy()
    return pa.table({"category": sums["category"], "average": average})


def _q7(whole: _Whole) -> pa.Table:
    bids = whole.table("bid", "auction", "price", "bidder", "extra", "date_time")
    starts = bids["date_time"].to_numpy() // WINDOW_MS
    bids = bids.append_column("starts", pa.array(starts))
    top = bids.group_by("starts").aggregate([("price", "max")])
    return bids.join(top, ["starts", "price"], ["starts", "price_max"], "inner")


def _q8(whole: _Whole) -> pa.Table:
    person = whole.table("person", "id", "name", "date_time")
    auction = whole.table("auction", "seller", "date_time")
    for_window = [pc.divide(rows["date_time"], WINDOW_MS) for rows in (person, auction)]
    person, auction = (
        rows.append_column("starts", window)
        for rows, window in zip((person, auction), for_window, strict=True)
    )
    return person.join(
        auction.select(["seller", "starts"]), ["id", "starts"], ["seller", "starts"], "left semi"
    )


def _q9(whole: _Whole) -> pa.Table:
    bids = whole.in_time()
    order = np.lexsort((bids["at"].to_numpy(), -bids["price"].to_numpy(), bids["id"].to_numpy()))
    ids = bids["id"].to_numpy()[order]
    first = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
    return bids.take(pa.array(order[first])).rename_columns({"at": "bid_time"})


def _q13(whole: _Whole) -> pa.Table:
    bids = whole.table("bid", "auction", "bidder", "price")
    values = [f"side {key}" for key in (bids["auction"].to_numpy() % SIDE_ROWS).tolist()]
    return bids.append_column("value", pa.array(values))


def _q20(whole: _Whole) -> pa.Table:
    auction = whole.table("auction", "id", "seller", "category", "description", auction_extra="extra")
    bid = whole.table("bid", "auction", "bidder", "price", "url", bid_extra="extra")
    return bid.join(auction.filter(pc.equal(auction["category"], 10)), "auction", "id", "inner")


def _q23(whole: _Whole) -> pa.Table:
    person = whole.table("person", "id", "name")
    auction = whole.table("auction", "seller", "item_name", "category", auction_id="id")
    bid = whole.table("bid", "auction", "bidder", "price", "channel")
    return bid.join(person.join(auction, "id", "seller", "inner"), "bidder", "id", "inner").rename_columns(
        {"bidder": "id"}
    )


_ROWS: Mapping[str, Callable[[_Whole], pa.Table]] = {
    "q3": _q3, "q4": _q4, "q7": _q7, "q8": _q8, "q9": _q9, "q13": _q13, "q20": _q20, "q23": _q23,
}  # fmt: skip


def _answer(query: str) -> Callable[[_Whole], Answer]:
    return lambda whole: CHECKS[query].answer(_ROWS[query](whole))


_ANSWERS: Mapping[str, Callable[[_Whole], Answer]] = {query: _answer(query) for query in _ROWS}


def delays(over: pa.Table, left: pa.Table) -> dict[str, Any]:
    """How much later rows left (`key`, `batch`) than they were final: medians and the worst, of batches and
    of event time until the end of the batch. Batches after the last piece count as if each were one more.
    """
    both = left.join(over, "key", "key", "inner")
    late = both["batch"].to_numpy() - both["piece"].to_numpy()
    ends = dict(zip(over["piece"].to_pylist(), over["piece_ends_ms"].to_pylist(), strict=True))
    last = max(ends)
    left_ms = np.array([ends.get(min(batch, last), ends[last]) for batch in both["batch"].to_pylist()])
    wait_s = (left_ms - both["over_ms"].to_numpy()) / 1000
    return {
        "rows": len(both),
        "batches_median": float(np.median(late)),
        "batches_most": int(late.max()),
        "event_s_median": float(np.median(wait_s)),
        "event_s_most": float(wait_s.max()),
    }
