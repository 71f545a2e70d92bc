"""The auction demo's join on Spark: the batch join's answer, and the same state as in one process."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamjoin.demo.auction import batch_join, both_joins, check_answer, propagated_in, run_local
from streamjoin.demo.auction_spark import watch, write_files
from streamjoin.demo.generators.auction import AuctionStreams

pytestmark = pytest.mark.spark


def test_one_query_gives_rows_announcements_and_state(spark: SparkSession, tmp_path: Path) -> None:
    streams = AuctionStreams(seed=2, items=200, bids_per_item=3, hours=30)
    assert write_files(streams.batches(6.0), tmp_path) == 5
    pwjoin, _ = both_joins()
    ticks: list[int] = []
    watch(spark, pwjoin, streams, tmp_path, ticks.append)
    assert ticks[-1] == 5
    check_answer(pwjoin, batch_join(streams))
    propagated_in(pwjoin, streams)
    local, _ = run_local(streams, 6.0, lambda _: None)
    assert (pwjoin.held, pwjoin.closed_keys) == (local.held, local.closed_keys)
    assert [sorted(items) for items in pwjoin.propagated] == [sorted(items) for items in local.propagated]
