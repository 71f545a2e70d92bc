"""The lab experiment `planner`: its oracle, its prediction loop and what it refuses to report."""

from dataclasses import replace

import numpy as np
import pyarrow.compute as pc
import pytest

from lab import predicted
from lab.final_counts import NEVER, SPARK, Comparison, Emitted, batch_counts, final_in
from lab.generators.patterns import punctuated, unique
from lab.planner import PRINTED, counts_claims, late_rate, prediction, prediction_charts
from lab.predicted import Case, Pattern, Watched, watch
from lab.registry import experiments
from streamjoin.demo.auction import auction_join
from streamjoin.demo.generators.auction import FIRST_ITEM, AuctionStreams, since_start_us
from streamjoin.errors import InvariantBroken

STREAMS = AuctionStreams(seed=3, items=200, bids_per_item=4, hours=40)


def test_the_lab_knows_the_experiment():
    assert "planner" in experiments()


# ---------------------------------------------------------------- when a count becomes final


@pytest.mark.parametrize("batch_hours", [0.5, 3.0])
def test_the_oracle_is_what_reading_batch_by_batch_tells(batch_hours):
    passes = STREAMS.auctions().open_us + STREAMS.window_us
    wanted, reached = np.full(STREAMS.items, NEVER), -1
    for number, batch in enumerate(STREAMS.batches(batch_hours)):
        ends = batch["bid"].filter(batch["bid"]["is_end"])["item_id"].to_pylist()
        data = batch["bid"].filter(pc.invert(batch["bid"]["is_end"]))
        reached = max([reached, *since_start_us(data["bid_time"]).tolist()])
        for item in range(STREAMS.items):
            over = item + FIRST_ITEM in ends or reached > passes[item]
            if over and wanted[item] == NEVER:
                wanted[item] = number
    assert final_in(STREAMS, batch_hours).tolist() == wanted.tolist()
    assert NEVER in wanted
    assert len(np.unique(wanted)) > 10


def test_each_count_of_a_local_run_leaves_in_the_batch_the_oracle_names():
    run = auction_join("pwjoin", STREAMS.window_us).group_by("item_id").agg(bids=("*", "count")).local()
    parts = []
    for number, batch in enumerate(STREAMS.batches(1.0)):
        rows = run.step(batch)
        item, bids = rows["item_id"].to_numpy() - FIRST_ITEM, rows["bids"].to_numpy()
        parts.append((item, bids, np.full(len(rows), number)))
    left = Emitted(*(np.concatenate(part) for part in zip(*parts, strict=True)))
    final, counts = final_in(STREAMS, 1.0), batch_counts(STREAMS)
    batch = left.checked("a local run", counts, final != NEVER)
    same = (batch != NEVER) == ((final != NEVER) & (counts > 0))
    assert same.all()
    found = Comparison(STREAMS, 1.0, final, batch, batch)
    assert found.elsewhere == 0
    assert replace(found, ours=np.where(batch > 20, batch + 1, batch)).elsewhere == (batch > 20).sum() > 0


def test_counts_that_are_not_the_batch_joins_are_not_reported():
    counts = np.array([2, 0, 5])
    everything = np.ones(3, np.bool_)

    def checked(item, bids):
        left = Emitted(np.array(item), np.array(bids), np.arange(len(item)))
        return left.checked("a query", counts, everything).tolist()

    assert checked([2, 0], [5, 2]) == [1, NEVER, 0]
    wrong = ([2, 0], [5, 1]), ([2], [5]), ([2, 0, 0], [5, 2, 2]), ([0, 1, 2], [2, 0, 5])
    for item, bids in wrong:  # another count, one missing, one twice, one of nothing
        with pytest.raises(InvariantBroken, match="no delay is told"):
            checked(item, bids)


def test_delays_are_told_in_batches_and_hours():
    """Items final in batches 0, 1, 2 and never; Spark gives the first two, the second after the last file."""
    streams = AuctionStreams(seed=1, items=4, hours=8, window_hours=1)
    final = np.array([0, 1, 2, NEVER])
    found = Comparison(streams, 2.0, final, final, np.array([3, 4, NEVER, NEVER]))
    assert found.delay_batches.tolist() == [3, 3]
    assert found.delay_hours.tolist() == [6, 6]
    on_time, batches, hours = counts_claims(found)
    assert (on_time.measured, batches.measured, hours.measured) == (0, 3, 6)
    assert (on_time.holds, batches.holds, hours.holds) == (True, True, True)
    assert found.series()["counts"] == {"final": 3, SPARK: 2}
    ours, spark = (y for _, y in found.chart().lines.values())
    assert ours == pytest.approx([0, 100 / 3, 200 / 3, 100, 100, 100])
    assert spark == pytest.approx([0, 0, 0, 0, 100 / 3, 200 / 3])


# ---------------------------------------------------------------- predicted beside measured


def test_a_small_pattern_is_predicted_and_its_claim_made():
    case = Pattern(replace(punctuated("asc", 100, 40), spread=20), 2, rows=8_000)
    (claim,), series, charts = prediction(range(4, 5), lambda _: None, {PRINTED: case})
    assert claim.holds
    found = series["predicted"][PRINTED]
    assert claim.measured == pytest.approx(abs(found["error"]))
    assert found["claimed"]
    assert sum(one["claimed"] for one in series["predicted"].values()) == 1
    assert found["error_of_equation_1_late"] < -0.3  # it tends to zero
    assert abs(found["error_late"]) < 0.15
    assert list(charts["equation-1"].lines) == ["held", "our model", "equation 1 as printed"]


def test_equation_1_is_zero_where_each_key_has_ended_and_the_window_where_nothing_is_heeded():
    case = Pattern(unique("asc"), 1, rows=3_000)(4)
    assert case.printed[-1] == pytest.approx(0, abs=1e-6)
    window = Pattern(unique("asc"), 1, "wjoin", rows=3_000)(4)
    assert window.printed[-1] == pytest.approx(2 * 500, rel=0.1)  # a tuple every 2 ms, on both


@pytest.mark.parametrize("make", [predicted.news, predicted.auction, predicted.arriving])
def test_every_kind_of_case_counts_its_results(make):
    first = {predicted.news: "random", predicted.auction: "wjoin", predicted.arriving: predicted.ordered()}
    seen = watch("small", make(first[make], 4, 600))
    assert len(seen.measured) == len(seen.predicted) > 5


def test_a_case_whose_results_are_not_the_batch_joins_is_not_reported():
    case = Pattern(punctuated("asc", 100, 40), 1, rows=1_000)(4)
    with pytest.raises(InvariantBroken, match="results, the batch join"):
        watch("wrong", Case(case.run, case.batches, case.results + 1))


def test_an_error_is_of_the_means_over_the_middle():
    held = [0, *[100] * 8, 0]
    assert Watched([900, *[110] * 8, 900], held).error == pytest.approx(0.1)
    up_and_down = Watched([0, *[110, 90] * 4, 0], held)
    assert (up_and_down.error, up_and_down.distance) == (0, pytest.approx(0.1))
    assert prediction_charts({}) == {}


# ---------------------------------------------------------------- memory


def test_rows_per_second_are_those_of_the_last_half():
    assert late_rate({"input_rows": [10, 10, 30, 30], "trigger_ms": [1, 1, 100, 200]}) == 200
