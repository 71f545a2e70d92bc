"""The auction streams: the same from the same seed, and true to the paper's example."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamjoin.demo.generators.auction import (
    BID_SCHEMA,
    FIRST_ITEM,
    HOUR_US,
    OPEN_SCHEMA,
    AuctionStreams,
    since_start_us,
)
from streamjoin.errors import InvalidJoin

STREAMS = AuctionStreams(seed=3, items=800)

any_streams = st.builds(
    AuctionStreams,
    seed=st.integers(0, 2**40),
    items=st.integers(0, 60),
    bids_per_item=st.sampled_from([0, 0.5, 4, 30]),
    hours=st.sampled_from([0.5, 10.0, 100.0]),
    window_hours=st.sampled_from([0.01, 3.0, 12.0]),
    early_share=st.sampled_from([0.0, 0.3, 1.0]),
    long_share=st.sampled_from([0.0, 0.3, 1.0]),
    unwanted_share=st.sampled_from([0.0, 0.3, 1.0]),
)


def places(table: pa.Table) -> np.ndarray:
    return table["item_id"].to_numpy() - FIRST_ITEM


def data_and_ends(bids: pa.Table) -> tuple[pa.Table, pa.Table]:
    return bids.filter(pc.invert(bids["is_end"])), bids.filter(bids["is_end"])


def test_the_same_seed_gives_the_same_streams_and_another_seed_others() -> None:
    again, other = AuctionStreams(seed=3, items=800), AuctionStreams(seed=4, items=800)
    assert again.open().equals(STREAMS.open())
    assert again.bids().equals(STREAMS.bids())
    assert not other.open().equals(STREAMS.open())
    assert not other.bids().equals(STREAMS.bids())


@settings(max_examples=40, deadline=None)
@given(any_streams)
def test_streams_are_in_order_and_no_bid_follows_the_end_of_its_item(streams: AuctionStreams) -> None:
    opened, bids = streams.open(), streams.bids()
    assert (opened.schema, bids.schema) == (OPEN_SCHEMA, BID_SCHEMA)
    assert opened["item_id"].to_pylist() == list(range(FIRST_ITEM, FIRST_ITEM + streams.items))
    open_us, bid_us = since_start_us(opened["open_time"]), since_start_us(bids["bid_time"])
    for times in (open_us, bid_us):
        assert np.all(np.diff(times) >= 0)
        assert np.all((times >= 0) & (times < streams.hours * HOUR_US))
    data, ends = data_and_ends(bids)
    assert len(set(ends["item_id"].to_pylist())) == len(ends)
    assert np.all(since_start_us(data["bid_time"]) > open_us[places(data)])
    end_place = np.full(streams.items, len(bids))
    end_place[places(ends)] = np.flatnonzero(bids["is_end"].to_numpy())
    assert np.all(np.flatnonzero(~bids["is_end"].to_numpy()) < end_place[places(data)])
    assert data["price"].null_count == data["bidder"].null_count == 0
    assert ends["price"].null_count == ends["bidder"].null_count == len(ends)


@settings(max_examples=20, deadline=None)
@given(any_streams, st.sampled_from([0.3, 1.0, 200.0]))
def test_batches_cut_both_streams_at_the_same_moments(streams: AuctionStreams, hours: float) -> None:
    pieces = list(streams.batches(hours))
    cuts = streams.cuts_us(hours)
    assert len(pieces) == len(cuts)
    for name, whole, time in (("open", streams.open(), "open_time"), ("bid", streams.bids(), "bid_time")):
        assert pa.concat_tables([piece[name] for piece in pieces]).equals(whole)
        for start, piece, stop in zip([0, *cuts], pieces, cuts, strict=False):
            times = since_start_us(piece[name][time])
            assert np.all((times >= start) & (times < stop))


def test_bids_lie_inside_the_window_of_their_item_unless_its_auction_outlasts_it() -> None:
    auctions, (data, _) = STREAMS.auctions(), data_and_ends(STREAMS.bids())
    outlasts = auctions.end_us > auctions.open_us + STREAMS.window_us
    assert 0.05 < outlasts.mean() < 0.15
    after = since_start_us(data["bid_time"]) - auctions.open_us[places(data)] > STREAMS.window_us
    assert not after[~outlasts[places(data)]].any()
    assert after[outlasts[places(data)]].any()
    none = AuctionStreams(seed=3, items=800, long_share=0)
    (data, _), auctions = data_and_ends(none.bids()), none.auctions()
    assert np.all(since_start_us(data["bid_time"]) - auctions.open_us[places(data)] <= none.window_us)


def test_shares_and_means_are_those_asked_for() -> None:
    streams = AuctionStreams(seed=5, items=5_000, hours=10_000)
    auctions, (data, ends) = streams.auctions(), data_and_ends(streams.bids())
    bids = np.bincount(places(data), minlength=streams.items)
    assert abs((bids == 0).mean() - 0.1) < 0.02
    assert abs(bids[bids > 0].mean() - 6) < 0.2
    assert len(ends) > 4_980  # but for those still open at the end
    short = auctions.end_us - auctions.open_us < streams.window_us / 12
    assert 0 < short.mean() < streams.early_share


def test_every_bid_is_above_the_one_before_and_above_the_start_price() -> None:
    data, _ = data_and_ends(STREAMS.bids())
    order = np.argsort(places(data), kind="stable")
    item, price = places(data)[order], data["price"].to_numpy()[order]
    start = STREAMS.open()["start_price"].to_numpy()[item]
    first = np.append(True, np.diff(item) > 0)
    before = np.where(first, start, np.append(0, price[:-1]))
    raises = price - before
    assert np.all((raises > 0.49) & (raises < 10))
    assert len(np.unique(raises[first].round(2))) > 100


@pytest.mark.parametrize("wrong", [{"items": -1}, {"early_share": 1.5}, {"hours": 0}, {"seed": -1}])
def test_nonsense_is_refused(wrong: dict) -> None:
    with pytest.raises(InvalidJoin, match=next(iter(wrong))):
        AuctionStreams(**({"seed": 1, "items": 1} | wrong))
    with pytest.raises(InvalidJoin, match="Give more than 0"):
        next(STREAMS.batches(0))
