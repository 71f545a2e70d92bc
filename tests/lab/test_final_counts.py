"""The final counts of auctions on Spark, by this library and by Spark's own watermark aggregation."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lab.final_counts import NEVER, compare
from lab.planner import counts_claims
from streamjoin.demo.generators.auction import AuctionStreams

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_count_leaves_when_it_is_final_and_spark_gives_it_later(
    spark: SparkSession, tmp_path: Path
) -> None:
    streams = AuctionStreams(seed=2, items=200, bids_per_item=3, hours=16, window_hours=6)
    steps: list[str] = []
    found = compare(spark, streams, 4.0, tmp_path, steps.append)
    assert len(steps) == 2
    assert (found.ours != NEVER).sum() > (found.spark != NEVER).sum() > 50
    assert [claim.holds for claim in counts_claims(found)] == [True, True, True]
    assert found.delay_batches.min() >= 1  # a watermark acts in the batch after the one that moved it
