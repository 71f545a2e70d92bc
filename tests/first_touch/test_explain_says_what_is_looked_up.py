"""What `explain()` says of lookups is what happens, in batches of one row and in large ones."""

import json
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.enrich import segments
from streamjoin.enrich.read_costs import ReadCosts

ROWS = 40_000
TABLE = pa.table({"id": np.arange(ROWS), "name": [f"{i:080d}" for i in range(ROWS)]})
ORDERS = sj.stream(pa.schema({"id": pa.int64()}), name="orders", key="id")
LOOKS_UP = ReadCosts(5e-9, 1e-6, 1e-4)
READS = ReadCosts(1e-10, 1e-6, 3e-4)  # a segment is read in less time than one key is found in it


def run_with(costs: ReadCosts, cycle_batches: int = 1) -> sj.EnrichRun:
    table = sj.table(TABLE, name="t", key="id", memory="4 MB", cycle_batches=cycle_batches)
    with patch.object(segments, "measure", lambda _: costs):
        return sj.enrich(ORDERS, table).local()


@pytest.mark.parametrize("cycle_batches", [1, 4])
def test_batches_of_one_row(cycle_batches: int) -> None:
    """It was decided twice, once for all segments, which was said, and once for each, which was done."""
    for costs, looked_up in ((LOOKS_UP, True), (READS, False)):
        run = run_with(costs, cycle_batches)
        scan = json.loads(run.explain(format="json"))["scan"]
        assert (scan["keys_read_whole"] > 1) == looked_up
        assert ("these are looked up" in run.explain()) == looked_up
        assert ("each whole: that costs less than finding one key" in run.explain()) != looked_up
        for i in range(100):
            run.push("orders", pa.table({"id": [i * 17]}))
        run.finish()
        counted = run.counters()
        least, most = (0, 0) if looked_up else (100 // cycle_batches, 100)  # rows that wait share a reading
        assert counted["keys_found"] == (100 if looked_up else 0)
        assert least <= counted["segments_read"] <= most


@pytest.mark.parametrize("more", [-0.2, 0.2])
def test_keys_in_a_segment_are_looked_up_up_to_the_number_that_is_said(more: float) -> None:
    run = run_with(LOOKS_UP)
    said = json.loads(run.explain(format="json"))["scan"]["keys_read_whole"]
    staged = len(run.versions()["t"].segments)
    keys = np.random.default_rng(1).permutation(ROWS)[: int(said * (1 + more) * staged)]
    run.push("orders", pa.table({"id": keys}))
    counted = run.counters()
    assert (counted["keys_found"], counted["segments_read"]) == ((len(keys), 0) if more < 0 else (0, staged))


def test_few_keys_do_not_wait_for_the_cycle() -> None:
    run = run_with(LOOKS_UP, cycle_batches=4)
    most = json.loads(run.explain(format="json"))["scan"]["keys_that_wait"]
    assert f"below {most:,} waiting keys all are answered at once" in run.explain()
    run.push("orders", pa.table({"id": range(most - 5)}))
    assert run.waiting == 0
    run = run_with(LOOKS_UP, cycle_batches=4)
    run.push("orders", pa.table({"id": range(most + 5)}))
    assert run.waiting > 0
