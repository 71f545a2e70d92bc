"""The auction demo's join on Spark: the batch join's answer, and the same state as in one process."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamjoin.demo.auction import AuctionDemo, batch_join, both_joins, check_answer, propagated_in
from streamjoin.demo.generators.auction import AuctionStreams
from streamjoin.demo.runner import write_files

pytestmark = pytest.mark.spark


def test_one_query_gives_rows_punctuations_and_state(spark: SparkSession, tmp_path: Path) -> None:
    streams = AuctionStreams(seed=2, items=200, bids_per_item=3, hours=30)
    assert write_files(streams.batches(6.0), tmp_path) == 5
    pwjoin, _ = both_joins()
    ticks: list[int] = []
    demo = AuctionDemo(streams, 6.0)
    demo.prepare(tmp_path)
    demo.run_one(spark, pwjoin, ticks.append)
    assert ticks[-1] == 5
    check_answer(pwjoin, batch_join(streams))
    propagated_in(pwjoin, streams)
    local, _ = demo.run_local(lambda _: None)
    assert (pwjoin.stored, pwjoin.closed_keys) == (local.stored, local.closed_keys)
    assert pwjoin.state_rows == local.state_rows
    assert [sorted(items) for items in pwjoin.propagated] == [sorted(items) for items in local.propagated]
