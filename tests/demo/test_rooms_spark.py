"""The rooms demo on Spark: both queries give the batch join's answer; ours holds what a local run holds."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamjoin.demo.generators.rooms import VALUES, RoomStreams
from streamjoin.demo.rooms import RoomsDemo
from streamjoin.demo.runner import write_files

pytestmark = pytest.mark.spark
STREAMS = RoomStreams(seed=2, rooms=6, hours=1)
MINUTES = 20


def test_one_operator_for_three_streams_holds_what_it_holds_in_one_process(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert write_files(STREAMS.batches(MINUTES), tmp_path) == 3
    demo, ticks = RoomsDemo(STREAMS, MINUTES), list[int]()
    demo.prepare(tmp_path)
    ours = demo.run_ours(spark, ticks.append)
    assert ticks == [1, 2, 3]
    local, _ = demo.run_local(lambda _: None)
    demo.check((ours, local))
    assert (ours.state_rows, ours.closed_keys) == (local.state_rows, local.closed_keys)
    assert all(ours.counted[f"{name}_rows"] == local.counted[f"{name}_rows"] for name in VALUES)


@pytest.mark.systems
def test_spark_keeps_all_readings_and_pairs_of_two(spark: SparkSession, tmp_path: Path) -> None:
    write_files(STREAMS.batches(MINUTES), tmp_path)
    demo = RoomsDemo(STREAMS, MINUTES)
    demo.prepare(tmp_path)
    own = demo.run_sparks_own(spark, lambda _: None)
    _, plain = demo.run_local(lambda _: None)
    demo.check((own, plain))
    assert own.state_rows[-1] > plain.state_rows[-1]
