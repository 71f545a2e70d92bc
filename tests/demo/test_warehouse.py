"""The warehouse demo: both joins give the batch join's answer, and its check finds what is wrong."""

from pathlib import Path

import pyarrow as pa
import pytest

from streamjoin.demo.generators.tpch import TpchStreams
from streamjoin.demo.generators.warehouse import VERSION, Warehouse
from streamjoin.demo.warehouse import ObservedEnrichment, check_answers, run_local
from streamjoin.errors import InvalidJoin, InvariantBroken

STREAMS = TpchStreams(scale=0.05, skew=1.0, seed=2)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    return Warehouse.stocked(STREAMS, tmp_path_factory.mktemp("warehouse"), batch_rows=500, batches=16)


@pytest.fixture(scope="module")
def watched(warehouse: Warehouse) -> ObservedEnrichment:
    ticks: list[int] = []
    found = run_local(warehouse, 4, ticks.append)
    assert ticks == list(range(2, 34, 2))
    return found


def test_hits_grow_and_grow_again_after_the_customers_changed(
    warehouse: Warehouse, watched: ObservedEnrichment
) -> None:
    check_answers(watched, warehouse.batch_join())
    hits = [seen.hit_percent for seen in watched.batches]
    assert hits[0] == hits[8] == 0
    assert min(hits[6], hits[7], hits[14], hits[15]) > 40
    assert all(
        seen.segment_bytes + seen.cache_bytes + seen.waiting_bytes <= warehouse.memory_bytes
        for seen in watched.batches
    )
    assert sum(seen.bytes_read for seen in watched.batches) < sum(watched.other_bytes) / 2
    assert 0 < watched.further < 4  # batches until those that waited at the end are answered


def test_an_order_gets_the_address_of_its_time(warehouse: Warehouse) -> None:
    expected = warehouse.batch_join()
    assert len(expected) == 8_000
    addresses = expected.group_by(["o_custkey", VERSION]).aggregate([("c_address", "count_distinct")])
    assert set(addresses["c_address_count_distinct"].to_pylist()) == {1}
    before, after = (table["c_address"].to_pylist() for table in warehouse.customers)
    changed = [old != new for old, new in zip(before, after, strict=True)]
    assert sum(changed) == len(before) // 10


def test_a_wrong_answer_is_found(warehouse: Warehouse, watched: ObservedEnrichment) -> None:
    expected = warehouse.batch_join()
    with pytest.raises(InvariantBroken, match="differ from the batch join"):
        check_answers(watched, expected.slice(1))
    place = expected.schema.get_field_index(VERSION)
    always_new = expected.set_column(place, VERSION, pa.repeat(2, len(expected)))
    with pytest.raises(InvariantBroken, match="differ from the batch join"):
        check_answers(watched, always_new)


def test_too_few_orders_are_refused_with_the_number_that_fits(tmp_path: Path) -> None:
    with pytest.raises(InvalidJoin, match="give --batch-rows 3750 or less"):
        Warehouse.stocked(STREAMS, tmp_path, batch_rows=4_000)
