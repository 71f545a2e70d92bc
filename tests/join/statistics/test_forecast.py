"""Predicted beside measured: the forecast of a run on the papers' patterns, and why it may be off."""

import warnings
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from lab.generators.patterns import PATTERN_SCHEMA, clustered, punctuated
from lab.state_model.two_streams import one_to_many
from streamjoin.declare.arrival import ordered
from streamjoin.demo.auction import auction_join
from streamjoin.demo.generators.auction import AuctionStreams
from streamjoin.demo.generators.news import NewsStreams
from streamjoin.demo.news import news_join
from tests.tables import stream, unbounded_is_meant

MARGIN = 0.15
AIMS_S = (1, 5, 15)


def watched(run, batches):
    """Tuples after each batch, predicted before it and measured."""
    predicted, measured = [], []
    for batch in batches:
        run.step(batch)
        predicted.append(sum(run.forecast().rows.values()))
        measured.append(sum(run.state().rows.values()))
    return np.array(predicted), np.array(measured)


def error(run, batches, last=1.0):
    """How far the mean prediction is from the mean measured, after the first tenth."""
    predicted, measured = watched(run, batches)
    part = slice(len(measured) // 10, int(len(measured) * last))
    return predicted[part].mean() / measured[part].mean() - 1


def two_patterns(pattern, window_s, operator="pwjoin", rows=30_000, step_s=0.5):
    """A join of two streams of one pattern, and its batches of so much event time."""
    declared = {"key": "k", "time": "t", "lateness": "0 seconds", "punctuation": sj.marked("is_end")}
    a, b = (
        sj.stream(PATTERN_SCHEMA, name=name, window=f"{window_s} seconds", columns=["v"], **declared)
        for name in "ab"
    )
    tables = [pattern.table(rows=rows, seed=seed) for seed in (4, 5)]
    times = [table["t"].cast(pa.int64()).to_numpy() for table in tables]
    cuts = np.arange(times[0][0], max(time[-1] for time in times), step_s * 1e6)
    ends = [[0, *np.searchsorted(time, cuts[1:]), len(time)] for time in times]
    batches = [
        {name: tables[i].slice(ends[i][n], ends[i][n + 1] - ends[i][n]) for i, name in enumerate("ab")}
        for n in range(len(cuts))
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sj.UnboundedState)
        return sj.join(a, b, operator=operator).local(), batches


# ---------------------------------------------------------------- the papers' patterns


@pytest.mark.parametrize("operator", ["pwjoin", "wjoin"])
@pytest.mark.parametrize("window_s", AIMS_S)
def test_the_streams_of_the_pwjoin_figures(window_s, operator):
    pattern = replace(punctuated("asc", 100, 40), gap="2 milliseconds")
    assert abs(error(*two_patterns(pattern, window_s, operator), last=0.9)) < MARGIN


def test_keys_that_end_soon():
    pattern = replace(punctuated("asc", 100, 40), gap="2 milliseconds", spread=20)
    assert abs(error(*two_patterns(pattern, 5))) < MARGIN


def test_clusters_in_any_order_that_a_window_lets_go():
    pattern = replace(clustered("random", 40), gap="2 milliseconds")
    assert abs(error(*two_patterns(pattern, 2, step_s=0.25), last=0.7)) < MARGIN


@pytest.mark.parametrize("order", ["ordered", "random"])
def test_the_news_streams_of_the_mjoin_paper(order):
    streams = NewsStreams(seed=3, items=6_000, order=order, open_items=500, shuffle=500)
    steps = range(streams.start_item, 6_000, 100)
    batches = (
        {name: streams.between(name, start, start + 100) for name in ("news", "access")} for start in steps
    )
    assert abs(error(news_join().local(), batches, last=0.9)) < MARGIN


def test_one_to_many_with_punctuations():
    one = stream("one", "k va", unique=True)
    many = stream("many", "k vb is_end:bool", punctuation=sj.marked("is_end"))
    batches = (rows for rows, _ in one_to_many(40, 500, 10))
    assert abs(error(sj.join(one, many, goal="memory").local(), batches)) < MARGIN


@unbounded_is_meant
@pytest.mark.parametrize("arrival", [sj.clustered(), ordered()])
def test_one_to_many_with_clustered_and_ordered_arrival(arrival):
    random = np.random.default_rng(1)
    keys = np.arange(12_000)
    many = np.array_split(np.repeat(keys, random.poisson(10, len(keys))), 60)
    one = np.array_split(keys[np.argsort(keys + random.uniform(-1000, 1000, len(keys)))], 60)
    joined = sj.join(
        stream("one", "k va", unique=True), stream("many", "k vb", arrival=arrival), operator="mjoin_1nc"
    )
    batches = (
        {"one": pa.table({"k": a, "va": a}), "many": pa.table({"k": b, "vb": b})}
        for a, b in zip(one, many, strict=True)
    )
    assert abs(error(joined.local(), batches)) < MARGIN


@pytest.mark.parametrize("operator", ["pwjoin", "wjoin"])
def test_the_auction_of_the_pwjoin_paper(operator):
    streams = AuctionStreams(seed=5, items=6_000, hours=72)
    assert abs(error(auction_join(operator, streams.window_us).local(), streams.batches(0.5))) < MARGIN


def test_punctuations_that_nothing_evicts_are_seen_to_grow():
    run = one_many().local()
    for step in range(60):
        run.step(steady(step, 300, 5, punctuated=0.7))
    assert run.state().closed_keys > 5000  # keys of `one` that `many` never closes
    assert run.forecast().closed_keys == pytest.approx(run.state().closed_keys, rel=MARGIN)


def test_bytes_too():
    streams = AuctionStreams(seed=5, items=6_000, hours=72)
    run = auction_join("wjoin", streams.window_us).local()
    found = []
    for batch in streams.batches(0.5):
        run.step(batch)
        found.append((run.forecast().nbytes, run.state().nbytes))
    predicted, measured = np.array(found[len(found) // 10 :]).mean(axis=0)
    assert abs(predicted / measured - 1) < MARGIN


def test_three_inputs():
    inputs = [stream(name, f"k {name}_x end:bool", punctuation=sj.marked("end")) for name in "abc"]
    random = np.random.default_rng(2)
    keys, steps, per_step = 200 * 50, 50, 200
    born = np.arange(keys) // per_step

    def batch(step):
        """Key k comes on each input in the step of its birth; a closes it 1, b 4 and c 8 steps later."""
        found = {}
        for name, after in zip("abc", (1, 4, 8), strict=True):
            rows, ends = np.flatnonzero(born == step), np.flatnonzero(born == step - after)
            k = np.concatenate([random.permutation(rows), ends])
            end = np.arange(len(k)) >= len(rows)
            found[name] = pa.table({"k": k, f"{name}_x": pa.array(k, mask=end), "end": end})
        return found

    run = sj.join(*inputs).local()
    predicted, measured = watched(run, map(batch, range(steps)))
    assert measured[-1] == 200 * (8 + 8 + 4)  # needed until the last of the others has closed
    assert predicted[20:].mean() == pytest.approx(measured[20:].mean(), rel=MARGIN)


# ---------------------------------------------------------------- a prediction, and its reasons


def steady(step, keys, open_steps, punctuated=1.0, rows_of_one=1):
    """Unique keys on `one`, all closed by `many` so many steps later, except those beyond `punctuated`."""
    new = np.arange(step * 10_000, step * 10_000 + keys * rows_of_one)
    past = step - open_steps
    ended = np.arange(past * 10_000, past * 10_000 + int(keys * punctuated)) if past >= 0 else np.arange(0)
    return {
        "one": pa.table({"k": new, "x": new}),
        "many": pa.table({"k": ended, "end": np.ones(len(ended), np.bool_)}),
    }


def one_many():
    return sj.join(
        stream("one", "k x", unique=True), stream("many", "k end:bool", punctuation=sj.marked("end"))
    )


def test_a_forecast_is_made_before_what_it_predicts():
    """Four times as many rows from one step on: the model cannot know before a term has passed."""
    run = one_many().local()
    for step in range(48):
        run.step(steady(step, 300, 5))
    assert run.forecast().rows["one"] == pytest.approx(run.state().rows["one"], rel=MARGIN)
    for step in range(48, 53):
        run.step(steady(step, 300, 5, rows_of_one=4))
    assert run.state().rows["one"] > 2 * run.forecast().rows["one"]


def test_more_than_twice_as_much_is_explained_by_what_changed():
    run = one_many().local()
    for step in range(48):
        run.step(steady(step, 300, 5))
    assert not any("the model expects" in said for said in run.advice())
    for step in range(48, 55):
        run.step(steady(step, 300, 60))  # keys stay open all of a sudden
    (said,) = [said for said in run.advice() if "the model expects" in said]
    assert said.startswith("one holds 2.")
    assert "they stay needed for" in said
    assert "rows instead of" in said


def test_keys_that_never_get_their_punctuation_are_told():
    run = one_many().local()
    for step in range(60):
        run.step(steady(step, 300, 5, punctuated=0.7))
    (said,) = [said for said in run.advice() if "nothing seems to evict" in said]
    share = int(said.split("evict ")[1].split(" %")[0])
    assert 25 <= share <= 35
    # and the model knows that the state grows
    assert run.forecast().rows["one"] == pytest.approx(run.state().rows["one"], rel=MARGIN)


def test_rows_lost_to_a_ttl_are_expected():
    joined = sj.join(
        stream("a", "k x t:time", time="t", lateness="0 seconds", ttl="20 seconds"),
        stream("b", "k y t:time", time="t", lateness="0 seconds", ttl="20 seconds"),
    )
    times = [np.sort(np.random.default_rng(step).uniform(step, step + 1, 100)) * 1e6 for step in range(80)]
    numbers = np.arange(100)
    batches = (
        {
            name: pa.table({"k": numbers, column: numbers, "t": pa.array(t.astype(int), pa.timestamp("us"))})
            for name, column in (("a", "x"), ("b", "y"))
        }
        for t in times
    )
    assert abs(error(joined.local(), batches)) < 0.05


def test_a_snapshot_goes_on_with_the_same_forecast():
    straight = one_many().local()
    restarted = one_many().local()
    for step in range(30):
        straight.step(steady(step, 300, 5))
        restarted.step(steady(step, 300, 5))
        restarted = one_many().local(snapshot=restarted.snapshot())
        assert restarted.forecast() == straight.forecast()
    assert restarted.advice() == straight.advice()


def test_nothing_is_predicted_before_anything_was_seen():
    run = one_many().local()
    assert sum(run.forecast().rows.values()) == 0
    run.step({})
    assert run.forecast().nbytes == 0
    assert run.advice() == []


@unbounded_is_meant
def test_rows_without_a_time_do_not_start_the_clock():
    timed = {"time": "t", "lateness": "0 seconds", "on_violation": "keep"}
    run = sj.join(stream("a", "k x t:time", **timed), stream("b", "k y t:time", **timed)).local()
    nowhen = pa.array([None] * 3, pa.timestamp("us"))
    run.push("a", pa.table({"k": [1, 2, 3], "x": [1, 2, 3], "t": nowhen}))
    assert run.join.calibration.begin is None
    run = sj.join(stream("a", "k x t:time", **timed), stream("b", "k y t:time", **timed)).local(
        snapshot=run.snapshot()
    )
    times = pa.array([5_000_000, 9_000_000], pa.timestamp("us"))
    run.push("a", pa.table({"k": [1, 2], "x": [1, 2], "t": times}))
    assert run.join.calibration.begin == 5e6
