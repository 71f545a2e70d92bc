"""NEXMark's works: the files end what they open, answers are those of naive loops, delays as worked out."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lab.contenders.protocol import Answer
from lab.peers.nexmark_data import NOBODY, Pieces
from lab.peers.nexmark_work import CHECKS, INPUTS, delays, prepare

EVENTS, PER_PIECE = 12_000, 5_000
PIECES = Pieces(EVENTS, PER_PIECE)


def rows(name: str) -> list[dict[str, Any]]:
    return [row for piece in PIECES for row in piece[name].to_pylist() if not row["is_end"]]


def test_every_value_of_bids_and_auctions_is_ended_once_after_its_last_row() -> None:
    for table, column in (("bid", "auction"), ("auction", "seller")):
        ended: set[int] = set()
        for piece in PIECES:
            pairs = [(row[column], row["is_end"]) for row in piece[table].to_pylist()]
            marked = [value for value, end in pairs if end]
            data = [value for value, end in pairs if not end]
            assert not ended & {*data}
            assert not ended & {*marked}
            assert len(marked) == len({*marked})
            ended |= {*marked}
        assert ended >= {row[column] for row in rows(table)} | {NOBODY}


def naive(query: str) -> list[dict[str, Any]]:
    person = {row["id"]: row for row in rows("person")}
    auction = {row["id"]: row for row in rows("auction")}
    bids = rows("bid")
    if query == "q3":
        there = {key for key, row in person.items() if row["state"] in ("or", "id", "ca")}
        return [
            person[a["seller"]] | a for a in auction.values() if a["category"] == 10 and a["seller"] in there
        ]
    if query == "q7":
        top = Counter[int]()
        for bid in bids:
            top[bid["date_time"] // 10_000] = max(top[bid["date_time"] // 10_000], bid["price"])
        return [bid for bid in bids if bid["price"] == top[bid["date_time"] // 10_000]]
    if query == "q8":
        opened = {(a["seller"], a["date_time"] // 10_000) for a in auction.values()}
        return [p for p in person.values() if (p["id"], p["date_time"] // 10_000) in opened]
    if query == "q13":
        return [bid | {"value": f"side {bid['auction'] % 10_000}"} for bid in bids]
    if query == "q20":
        return [
            auction[b["auction"]]
            | b
            | {"bid_extra": b["extra"], "auction_extra": auction[b["auction"]]["extra"]}
            for b in bids
            if auction.get(b["auction"], {"category": 0})["category"] == 10
        ]
    if query == "q23":
        return [
            person[b["bidder"]] | a | b | {"auction_id": a["id"], "id": b["bidder"]}
            for a in auction.values()
            for b in bids
            if a["seller"] == b["bidder"] in person
        ]
    best: dict[int, dict[str, Any]] = {}
    for bid in bids:  # in the order of time
        its = auction.get(bid["auction"])
        in_time = its and its["date_time"] <= bid["date_time"] <= its["expires"]
        if in_time and bid["price"] > best.get(its["id"], {"price": 0})["price"]:
            best[its["id"]] = bid | {"id": its["id"], "bid_time": bid["date_time"]}
    if query == "q9":
        return [*best.values()]
    sold = [(auction[key]["category"], bid["price"]) for key, bid in best.items()]
    count, total = Counter(c for c, _ in sold), Counter[int]()
    for category, price in sold:
        total[category] += price
    return [{"category": c, "average": total[c] // count[c]} for c in count]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nexmark")


@pytest.mark.parametrize("query", INPUTS)
def test_answer_is_that_of_naive_loops(query: str, folder: Path) -> None:
    work = prepare(folder, query, EVENTS, PER_PIECE)
    found, check = naive(query), CHECKS[query]
    numbers = [[row[v] for v in check.values] + [len(row[t]) for t in check.texts] for row in found]
    weights = (31, 17, 13, 11, 7, 5, 3)
    mixed = [
        sum(w * n for w, n in zip(weights, each, strict=False)) % 1_000_003 * (row[check.key] % 1_009)
        for each, row in zip(numbers, found, strict=True)
    ]
    assert work.answer == Answer(len(found), sum(map(sum, numbers)), sum(mixed))
    assert work.answer.rows > 0
    assert [*work.inputs] == [*INPUTS[query]]


def test_a_row_that_leaves_a_batch_later_than_its_auction_is_over() -> None:
    """Pieces of 25 s; two auctions are over at 3 s; their rows leave in the first and the second batch."""
    over = pa.table(
        {"key": [1, 2, 3], "over_ms": [3_000, 3_000, 30_000], "piece": [0, 0, 1]}
        | {"piece_ends_ms": [25_000, 25_000, 50_000]}
    )
    found = delays(over, pa.table({"key": [1, 2], "batch": [0, 1]}))
    assert (found["batches_median"], found["batches_most"]) == (0.5, 1)
    assert (found["event_s_median"], found["event_s_most"]) == (34.5, 47.0)
