"""The warehouse demo on Spark: the batch join's answer, with a change of the customers while it runs."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamjoin.demo.generators.tpch import TpchStreams
from streamjoin.demo.generators.warehouse import Warehouse
from streamjoin.demo.warehouse import ObservedEnrichment, check_answers, run_ours, run_sparks_own

pytestmark = pytest.mark.spark
STREAMS = TpchStreams(scale=0.05, skew=1.0, seed=2)


@pytest.mark.systems
def test_a_new_version_comes_in_while_the_query_runs(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse.stocked(STREAMS, tmp_path, batch_rows=500, batches=4)
    watched, ticks = ObservedEnrichment(), list[int]()
    run_ours(spark, warehouse, 2, watched, ticks.append)
    assert ticks[:4] == [1, 2, 3, 4]
    hits = [seen.hits > 0 for seen in watched.batches]
    assert hits == [False, True, False, True]
    assert all(seen.bytes_read > 0 for seen in watched.batches)
    assert watched.further > 0
    watched.other_results = [warehouse.batch_join()]
    check_answers(watched, warehouse.batch_join())


@pytest.mark.systems
def test_spark_reads_the_whole_table_for_each_batch(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse.stocked(STREAMS, tmp_path, batch_rows=500, batches=4)
    watched, ticks = ObservedEnrichment(), list[int]()
    run_ours(spark, warehouse, 2, watched, lambda _: None)
    run_sparks_own(spark, warehouse, watched, ticks.append)
    assert ticks == [1, 2, 3, 4]
    size = next(warehouse.customers_of(1).glob("*.parquet")).stat().st_size
    assert watched.other_bytes == [pytest.approx(size, rel=0.02)] * 4
    check_answers(watched, warehouse.batch_join())
