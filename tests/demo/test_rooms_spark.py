"""The rooms demo on Spark: both queries give the batch join's answer; ours holds what a local run holds."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamjoin.demo.auction_spark import write_files
from streamjoin.demo.generators.rooms import VALUES, RoomStreams
from streamjoin.demo.rooms import KNOWING, Watched, batch_join, check_answer, run_local
from streamjoin.demo.rooms_spark import follow, start_ours, start_own

pytestmark = pytest.mark.spark
STREAMS = RoomStreams(seed=2, rooms=6, hours=1)
MINUTES = 20


def test_one_operator_for_three_streams_holds_what_it_holds_in_one_process(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert write_files(STREAMS.batches(MINUTES), tmp_path) == 3
    ours, ticks = Watched(KNOWING), list[int]()
    follow(start_ours(spark, tmp_path, ours), ours, ticks.append)
    assert ticks == [1, 2, 3]
    check_answer(ours, batch_join(STREAMS))
    local, _ = run_local(STREAMS, MINUTES, lambda _: None)
    assert (ours.state_rows, ours.closed_keys) == (local.state_rows, local.closed_keys)
    assert all(ours.counted[f"{name}_rows"] == local.counted[f"{name}_rows"] for name in VALUES)


@pytest.mark.systems
def test_spark_keeps_all_readings_and_pairs_of_two(spark: SparkSession, tmp_path: Path) -> None:
    write_files(STREAMS.batches(MINUTES), tmp_path)
    own = Watched("Spark's own two joins")
    follow(start_own(spark, tmp_path, own), own, lambda _: None)
    check_answer(own, batch_join(STREAMS))
    _, plain = run_local(STREAMS, MINUTES, lambda _: None)
    assert own.state_rows[-1] > plain.state_rows[-1]
