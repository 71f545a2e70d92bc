"""The cost model before a join runs: equation 1 as printed, and ours in worked numbers and beside runs."""

import json
import warnings

import numpy as np
import pytest

import streamjoin as sj
from streamjoin.demo.auction import auction_join
from streamjoin.demo.generators.auction import AuctionStreams
from streamjoin.demo.generators.news import NewsStreams
from streamjoin.demo.news import news_join
from streamjoin.plan.cost import equation_1, predict
from tests.tables import stream

MARKED = {"punctuation": sj.marked("end")}
TIMED = {"time": "t", "lateness": "0 seconds"}
ROUGHLY = 0.02  # keys are drawn


def input_(name, **declared):
    return stream(name, f"k {name}_x t:time end:bool", columns=[f"{name}_x"], **declared)


def rows(joined, after="1 day", **rates):
    return {one.stream: one.rows for one in predict(joined.plan, rates, after)}


def test_equation_1_as_printed():
    assert equation_1(rate=100, window=5, closed_keys=0, elapsed=60, keys=600) == 500  # a window join
    assert equation_1(rate=100, window=5, closed_keys=5, elapsed=60, keys=600) == 250
    # every key is punctuated in the end: the formula says that nothing is held, whatever the window
    assert equation_1(rate=1000, window=15, closed_keys=10, elapsed=3600, keys=36_000) == 0


def test_an_auction_is_needed_while_bids_for_it_come():
    joined = sj.join(input_("auction", unique=True), input_("bid", **MARKED))
    rate = sj.Rate(60, rows_per_key=6, open_for=("100 seconds", "300 seconds"))
    found = {one.stream: one for one in predict(joined.plan, {"auction": 10, "bid": rate})}
    assert found["auction"].rows == pytest.approx(2000, rel=ROUGHLY)
    assert found["auction"].closed_keys == pytest.approx(2000, rel=ROUGHLY)
    assert found["auction"].mean_life_s == pytest.approx(200, rel=ROUGHLY)
    assert (found["bid"].rows, found["bid"].closed_keys, found["bid"].growing) == (0, 0, False)


def test_rows_wait_for_a_unique_partner_that_comes_late():
    joined = sj.join(input_("a", unique=True), input_("b", **MARKED))
    found = rows(joined, a=sj.Rate(1, first_after="10 seconds"), b=sj.Rate(10, 10, open_for="40 seconds"))
    # a quarter of b's rows comes within the 10 s before a, and waits 5 s on average
    assert found["b"] == pytest.approx(10 * 0.25 * 5, rel=0.05)
    assert found["a"] == pytest.approx(30)


def test_a_window_ends_a_stay_and_lateness_prolongs_it():
    windows = [input_(name, time="t", window="5 seconds", lateness="2 seconds") for name in "ab"]
    assert rows(sj.join(*windows), a=100, b=10) == {"a": 700, "b": 70}
    punctuated = [input_(name, **TIMED, **MARKED, window="30 seconds") for name in "ab"]
    rate = sj.Rate(100, 10, open_for="20 seconds")
    found = predict(sj.join(*punctuated).plan, {"a": rate, "b": rate})
    assert found[0].rows == pytest.approx(100 * 10, rel=ROUGHLY)  # 20 s less the 10 s already gone
    assert found[0].equation_1 == 0


def test_every_other_input_must_have_closed():
    joined = sj.join(*(input_(name, **MARKED) for name in "abc"))
    delays = {"a": "10 seconds", "b": "40 seconds", "c": "80 seconds"}
    found = rows(
        joined, **{name: sj.Rate(1, open_for="0 seconds", punctuation_delay=delays[name]) for name in delays}
    )
    assert found == {"a": 80, "b": 80, "c": 40}


def test_keys_that_are_never_punctuated_grow_with_time():
    joined = sj.join(input_("a", unique=True), input_("b", **MARKED))
    rate = sj.Rate(10, 10, open_for="60 seconds", punctuated=0.75)
    for after, hours in (("1 hour", 1), ("10 hours", 10)):
        found = predict(joined.plan, {"a": 1, "b": rate}, after)[0]
        assert found.rows == pytest.approx(0.75 * 60 + 0.25 * 3600 * hours, rel=0.05)
        assert found.growing


def test_what_nothing_bounds_grows_and_a_ttl_bounds_it():
    assert rows(sj.join(input_("a"), input_("b")), "1 hour", a=1, b=2) == {"a": 3600, "b": 7200}
    lossy = sj.join(*(input_(name, time="t", lateness="5 seconds", ttl="1 minute") for name in "ab"))
    assert rows(lossy, "1 hour", a=1, b=2) == {"a": 65, "b": 130}


def test_purging_in_batches_keeps_tuples_longer_and_not_at_all_for_ever():
    rates = {"a": 10.0, "b": sj.Rate(10, open_for="0 seconds", punctuation_delay="60 seconds")}
    inputs = input_("a", unique=True), input_("b", **MARKED)
    assert rows(sj.join(*inputs), **rates)["a"] == 600
    batched = sj.join(*inputs, purge=sj.PurgeEvery(1000))  # 20 keys a second are punctuated: 25 s on average
    assert rows(batched, **rates)["a"] == 850
    assert rows(sj.join(*inputs, purge=sj.PurgeEvery(1000, when_idle=True)), **rates)["a"] == 600
    assert rows(sj.join(*inputs, purge="none"), "1 hour", **rates)["a"] == 36_000


def test_ordered_arrival_is_remembered_as_one_range():
    joined = sj.join(input_("a", **MARKED), input_("b", arrival=sj.ordered()))
    rate = sj.Rate(10, open_for="10 seconds")
    found = {one.stream: one.closed_keys for one in predict(joined.plan, {"a": rate, "b": rate})}
    assert found["b"] == 0


# ---------------------------------------------------------------- beside runs


@pytest.mark.parametrize("operator", ["pwjoin", "wjoin"])
def test_an_auction_beside_its_run(operator):
    streams = AuctionStreams(seed=5, items=4_000, hours=72, early_share=0, long_share=0)
    joined, per_second = auction_join(operator, streams.window_us), 4_000 / 72 / 3600
    found = predict(
        joined.plan,
        {
            "open": sj.Rate(per_second, open_for="0 seconds", row_bytes=8 * 4 + 20),
            "bid": sj.Rate(5.4 * per_second, rows_per_key=5.4, open_for=("1 hour", "12 hours")),
        },
    )
    run, held, nbytes = joined.local(), [], []
    for batch in streams.batches(0.5):
        run.step(batch)
        held.append(sum(run.state().rows.values()))
        nbytes.append(run.state().nbytes)
    settled = slice(len(held) // 3, None)
    assert sum(one.rows for one in found) == pytest.approx(np.mean(held[settled]), rel=0.15)
    assert sum(one.nbytes for one in found) == pytest.approx(np.mean(nbytes[settled]), rel=0.3)


def test_news_in_any_order_beside_its_run():
    streams = NewsStreams(seed=3, items=6_000, order="random", open_items=500, shuffle=500)
    found = rows(
        news_join(),
        news=sj.Rate(1, first_after=("0 seconds", "500 seconds")),
        access=sj.Rate(10, 10, first_after="250 seconds", open_for="500 seconds"),
    )
    run, held = news_join().local(), []
    for start in range(streams.start_item, 5_000, 50):
        run.step({name: streams.between(name, start, start + 50) for name in ("news", "access")})
        held.append(sum(run.state().rows.values()))
    assert sum(found.values()) == pytest.approx(np.mean(held[len(held) // 3 :]), rel=0.15)


# ---------------------------------------------------------------- asked for wrongly


@pytest.mark.parametrize(
    ("rates", "told"),
    [
        ({"a": 1}, "rates are given for a; give one for each of a, b"),
        ({"a": 1, "b": 1, "c": 1}, "give one for each of a, b"),
        ({}, "rates are given for no input"),
    ],
)
def test_every_input_needs_a_rate(rates, told):
    with pytest.raises(sj.InvalidJoin, match=told):
        sj.join(input_("a"), input_("b")).explain(rates=rates)


@pytest.mark.parametrize(
    "given",
    [
        {"rows_per_second": -1},
        {"rows_per_key": 0},
        {"punctuated": 1.5},
        {"open_for": "long"},
        {"rows_per_second": "many"},
    ],
)
def test_a_rate_is_checked(given):
    with pytest.raises(sj.InvalidJoin, match=r"give |Rate: open_for is 'long'"):
        sj.Rate(**{"rows_per_second": 1, **given})


# ---------------------------------------------------------------- as it is told


def test_explain_tells_what_will_be_held():
    joined = sj.join(*(input_(name, **TIMED, **MARKED, window="30 seconds") for name in "ab"))
    rate = sj.Rate(100, 10, open_for="20 seconds", punctuation_delay="1 minute")
    told = joined.explain(rates={"a": rate, "b": rate}, after="2 hours")
    assert "Predicted state, 2 h after its start, at the given rates\n" in told
    assert "  a: 3,000 tuples (each needed for 30 s on average)" in told
    assert "equation 1 of the PWJoin paper says 0 tuples" in told
    assert "  together: 6,000 tuples, " in told
    assert "Predicted state" not in joined.explain()
    endless = sj.join(input_("a"), input_("b")).explain(rates={"a": 1, "b": 1})
    assert "  a: 86,400 tuples (and growing)" in endless
    assert "equation 1" not in endless


def test_explain_as_json_says_the_same():
    joined = sj.join(input_("news", unique=True), input_("access"))
    found = json.loads(joined.explain(format="json", rates={"news": 1, "access": 2}, after="1 hour"))
    assert found["name"] == "join"
    assert [one["name"] for one in found["inputs"]] == ["news", "access"]
    assert found["bounded"] is False
    news, access = found["state"]
    assert (news["tuples_bounded"], access["tuples_bounded"]) == (False, True)
    assert news["to_bound_it"][0].startswith("punctuation=")
    assert access["because"] == [
        {
            "says": "its tuples are purged by the unique key of news",
            "provided": "every key of access appears in news",
        }
    ]
    assert found["predicted"]["after_s"] == 3600
    assert found["predicted"]["inputs"][0]["rows"] == 3600
    assert found["choices"][0]["choice"] == "driver: priority"
    assert json.loads(joined.explain(format="json"))["predicted"] is None
    with pytest.raises(sj.InvalidJoin, match="give 'text' or 'json'"):
        joined.explain(format="yaml")


def test_explain_names_what_a_ttl_loses():
    told = sj.join(*(input_(name, **TIMED, ttl="2 hours") for name in "ab")).explain()
    assert "  a: bounded by loss\n" in told
    assert "    - loses tuples older than 2 h, whatever they could still join (counted as a_expired)" in told
    assert "  a: lateness 0 s; time to live 2 h\n" in told
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sj.join(*(input_(name, **TIMED, ttl="2 hours") for name in "ab")).local()


def test_with_a_number_of_keys_time_matters_in_equation_1() -> None:
    """The paper's assumption: 160 uniform keys of b, 2 of them closed by a each second."""
    timed = {"time": "t", "lateness": "0 seconds", "window": "5 seconds"}
    a = stream("a", "k t:time end:bool", punctuation=sj.marked("end"), **timed)
    joined = sj.join(a, stream("b", "k t:time", **timed), operator="pwjoin")
    rates = {"a": sj.Rate(1000, rows_per_key=500, open_for="1 second"), "b": sj.Rate(1000, keys=160)}
    for after, said in (("20 seconds", 3750), ("40 seconds", 2500), ("100 seconds", 0)):
        found = json.loads(joined.explain(rates=rates, after=after, format="json"))["predicted"]["inputs"][1]
        assert (found["equation_1_rows"], found["equation_1_keys"]) == (said, 160)
    text = joined.explain(rates=rates, after="20 seconds")
    assert "says 3,750 tuples, with 160 distinct keys, punctuated one after another" in text
    with pytest.raises(sj.InvalidJoin, match="give keys above 0"):
        sj.Rate(1, keys=0)
