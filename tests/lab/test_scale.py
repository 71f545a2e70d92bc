"""The scale experiment in small, and its model of a cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.scale import local
from lab.scale.local import Point, anywhere, grown, open_keys, per_tenfold, with_hot_key
from lab.scale.model import Cluster, Costs, predicted

COSTS = Costs(
    batch_s=0.4,
    driver_s=0.0,
    task_s=0.1,
    bucket_s=0.0,
    map_s=1e-6,
    join_s=1e-6,
    slope=2.0,
    tuples0=1e6,
    shuffle_bytes=0.0,
    state_bytes=20.0,
)
TEN = Cluster(rows_per_s=2.5e6, tuples=1e7, executors=5, cores=2, buckets=10, store=1e12)


def test_slopes_are_factors_per_tenfold():
    points = [Point(size, ms, ms, 0, 0) for size, ms in ((100, 10.0), (1_000, 15.0), (100_000, 60.0))]
    assert per_tenfold(points) == pytest.approx([1.5, 2.0])


def test_the_loads_give_right_answers_and_hold_what_they_say():
    [point] = grown(anywhere(2, 1), [2 * local.ROWS], lambda _: None)
    assert point.state_bytes > 0
    hot = list(with_hot_key(anywhere(1, 1), 1 / 3, 1))
    assert sum(batch["many"]["k"].to_numpy().tolist().count(0) for batch in hot) / local.ROWS == (
        pytest.approx(1 / 3, abs=0.01)
    )
    assert open_keys(20_000, 2, 1).size == 20_000


def test_a_cluster_keeps_up_where_its_load_is_below_one():
    found = predicted(COSTS, TEN)  # 10 slots of a million rows each: map 0.25 and join 0.25
    assert found.load == pytest.approx(0.5, abs=1e-3)
    assert found.keeps_up_s == pytest.approx(0.5 / 0.5, rel=1e-3)
    assert found.hot_rows == pytest.approx(1e6)
    assert found.state_bytes_executor == 4e7
    assert predicted(COSTS, replace(TEN, rows_per_s=5.1e6)).keeps_up_s is None


def test_larger_buckets_cost_more_by_the_measured_slope():
    join = predicted(COSTS, replace(TEN, tuples=1e8)).loads["join"]
    assert join == pytest.approx(2 * predicted(COSTS, TEN).loads["join"])
