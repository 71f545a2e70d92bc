"""The auction demo: both joins give the batch join's answer, and its checks find what is wrong."""

import numpy as np
import pytest

from streamjoin.demo.auction import AuctionDemo, auction_join, batch_join, check_answer, propagated_in
from streamjoin.demo.generators.auction import AuctionStreams
from streamjoin.errors import InvariantBroken

STREAMS = AuctionStreams(seed=2, items=300, bids_per_item=3)


def test_punctuations_leave_less_than_a_window_alone_and_tell_earlier() -> None:
    ticks: list[int] = []
    pwjoin, wjoin = AuctionDemo(STREAMS, 4.0).run_local(ticks.append)
    expected = batch_join(STREAMS)
    for watched in (pwjoin, wjoin):
        check_answer(watched, expected)
    assert ticks == list(range(1, 25))
    assert max(pwjoin.stored["bid"]) == 0  # an item is opened once: no bid waits for another
    later = slice(4, None)  # once the window is full
    assert all(np.array(pwjoin.stored["open"][later]) < np.array(wjoin.stored["open"][later]))
    assert sum(map(len, wjoin.propagated)) == 0
    assert sum(map(len, pwjoin.results)) > 200  # counts, each final
    assert max(pwjoin.groups) > 0 == max(wjoin.groups)
    batch = propagated_in(pwjoin, STREAMS)
    auctions = STREAMS.auctions()
    known_at = STREAMS.cuts_us(4.0)[batch]
    inside = (batch >= 0) & (auctions.end_us <= auctions.open_us + STREAMS.window_us)
    assert inside.sum() > 100
    assert np.all(known_at[inside] <= auctions.end_us[inside] + 4 * 3_600_000_000)
    assert list(AuctionDemo(STREAMS, 4.0).picture((pwjoin, wjoin)).lines)[:2] == [pwjoin.label, wjoin.label]


def test_the_state_of_both_joins_is_bounded() -> None:
    for operator in ("pwjoin", "wjoin"):
        assert "NOT BOUNDED" not in auction_join(operator, STREAMS.window_us).explain()


def test_a_wrong_answer_or_punctuation_is_found() -> None:
    pwjoin, _ = AuctionDemo(STREAMS, 8.0).run_local(lambda _: None)
    expected = batch_join(STREAMS)
    with pytest.raises(InvariantBroken, match="differ from the batch join"):
        check_answer(pwjoin, expected.slice(1))
    told = pwjoin.propagated[3]
    for wrong in (told[1:], [*told, told[0]]):  # one is missing, one is told twice
        pwjoin.propagated[3] = wrong
        with pytest.raises(InvariantBroken, match="punctuations of other items"):
            propagated_in(pwjoin, STREAMS)
    pwjoin.propagated[3] = told
    pwjoin.propagated[0], pwjoin.propagated[3] = pwjoin.propagated[0] + told, []  # told before its count
    with pytest.raises(InvariantBroken, match="punctuations of other items"):
        propagated_in(pwjoin, STREAMS)
    pwjoin.propagated[0], pwjoin.propagated[3] = pwjoin.propagated[0][: -len(told)], told
    propagated_in(pwjoin, STREAMS)
    pwjoin.results[3], pwjoin.results[4] = pwjoin.results[4], pwjoin.results[3]  # counted before or after
    with pytest.raises(InvariantBroken, match="punctuations of other items"):
        propagated_in(pwjoin, STREAMS)
