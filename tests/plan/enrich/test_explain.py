"""What is said of a semi-stream join before and after its table is staged."""

import json
import re
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.enrich.cost import LoopCosts, LoopTurns
from streamjoin.plan.enrich.calibration import loop_costs
from tests.tables import schema, stream, table

MANY = pa.table({"id": np.arange(100_000), "city": np.full(100_000, "Rome")})


def customers(**declared):
    return sj.table(MANY, name="customers", key="id", memory="64 MB", **declared)


def told(text):
    """The lines of a text by their first word."""
    return {line.split(":")[0].strip(): line.strip() for line in text.splitlines() if ":" in line}


def test_before_it_is_staged_figures_are_said_to_be_assumed():
    lines = told(sj.enrich(stream("orders", "id item:str"), customers(how="left")).explain())
    assert lines["enrich"] == "enrich: orders ⋈ customers, a stream and a table"
    assert lines["result"] == "result: id, item, city"
    assert lines["customers"] == (
        "customers: the Arrow table, 100,000 rows, about 3.6 MB (guessed from its columns)"
    )
    assert lines["scan"] == (
        "scan: a batch reads only segments that have missed keys, 3.6 MB at most; below 1,500 missed keys in "
        "one of 3.6 MB these are looked up, else it is read whole (assumed until it is staged: a key is "
        "found in 1 µs, and 300 µs for each segment it is looked for in, 2 GB are read in a second)"
    )
    assert lines["latency"] == "latency: each row is answered in the batch it comes with"
    assert lines["memory"] == (
        "memory: 64 MB: 3.43 MB for the segment that is read (its size by the cost model), 60.6 MB for "
        "cached values and rows that wait (what is needed at least shows when it is staged)"
    )
    assert lines["versions"].startswith("versions: the source tells by its content whether it is new")


def test_once_it_is_staged_they_are_measured():
    run = sj.enrich(stream("orders", "id item:str"), customers(version="may", columns=["_version"])).local()
    plan = json.loads(run.explain(format="json"))
    assert plan["table"] == {
        "name": "customers",
        "key": ["id"],
        "source": "the Arrow table",
        "rows": 100_000,
        "bytes": 1_600_000,
        "size": "staged",
        "null_keys": 0,
    }
    assert plan["memory"]["least_bytes"] == 2 * plan["memory"]["segment_bytes"] == 3_200_000
    assert not plan["scan"]["costs"]["assumed"]
    lines = told(run.explain())
    assert "measured when it was staged" in lines["scan"]
    assert lines["versions"] == (
        "versions: 0001-may is staged; labelled 'may': another label is another version; the result says by "
        "which each row was joined"
    )


def test_what_is_staged_beside_a_checkpoint_is_told(tmp_path):
    joined = sj.enrich(stream("orders", "id item:str"), customers(version="may"))
    joined.local(folder=tmp_path / "query.tables")  # stages where a query with this checkpoint would
    assert "0001-may is staged" in joined.explain(checkpoint=str(tmp_path / "query"))
    assert "assumed until it is staged" in joined.explain(checkpoint=str(tmp_path / "another"))


def test_a_longer_cycle_reads_less_in_each_batch():
    lines = told(sj.enrich(stream("orders", "id"), customers(cycle_batches=2)).explain())
    assert lines["scan"].startswith(
        "scan: below 600 waiting keys all are answered at once; a batch reads only segments that have missed "
        "keys, 1.8 MB at most; below 1,500 missed keys in one of 3.6 MB these are looked up"
    )
    assert lines["latency"] == (
        "latency: each row is answered within 2 batches: 1 later at most, and each batch reads a "
        "share of 1/2 of the table"
    )


def test_presets_scan_as_in_the_paper():
    text = sj.enrich(stream("orders", "id"), customers(), operator="meshjoin", buckets=4).explain()
    assert "MESHJOIN: the segments are read in cycles for all rows that wait; nothing is cached" in text
    assert told(text)["scan"] == "scan: the segments are scanned, 3.6 MB a batch, as in the paper"
    assert told(text)["memory"].startswith(
        "memory: 64 MB over 4 buckets: 3.43 MB for the segment that is read"
    )


def test_a_small_table_is_scanned_whenever_a_row_waits():
    small = sj.table(table(schema("id x"), "id x\n1 1\n- 2"), name="small", key="id", memory="1 MB")
    joined = sj.enrich(stream("orders", "id"), small)
    assert told(joined.local().explain())["small"] == (
        "small: the Arrow table, 1 rows, 24 bytes staged, and 1 left out because their key is null"
    )
    assert told(joined.explain())["scan"] == (
        "scan: a batch reads only segments that have missed keys, 48 bytes at most, each whole: that costs "
        "less than finding one key (assumed until it is staged)"
    )


def test_a_waiting_room_and_the_joins_below_are_told():
    orders = stream("orders", "id t:time", time="t", lateness="2 seconds")
    waits = sj.table(MANY, name="late", key="id", memory="64 MB", columns=[], wait="8 seconds", how="left")
    joined = sj.enrich(orders, customers(), waits)
    plan = json.loads(joined.explain(format="json"))
    assert (plan["name"], plan["below"]["name"]) == ("enrich", "enrich_customers")
    assert plan["wait"]["says"] == (
        "rows without a match are tried with each new version until the stream's event time is 10 s past "
        "their own, then they leave padded; what they take is not part of memory="
    )
    assert "orders comes from\n  enrich_customers: orders ⋈ customers" in joined.explain()
    with pytest.raises(sj.InvalidJoin, match="explain\\(format='yaml'\\); give 'text' or 'json'"):
        joined.explain(format="yaml")


# ---------------------------------------------------------------- rates

COSTS = LoopCosts(read_byte=5e-10, turn=1e-3, chunk=1e-4, search=0.0, row=1e-8, hit=5e-7, waited=1e-6)


@pytest.fixture
def calibrated():
    with patch("streamjoin.local.enrich.loop_costs", lambda operator: COSTS):
        yield


def test_a_rate_says_the_memory_and_the_memory_the_rate(calibrated):
    joined = sj.enrich(stream("orders", "id item:str"), customers())
    plan = json.loads(joined.explain(rates={"orders": 500_000}, format="json"))["predicted"]
    assert plan["rows_per_second"] == 500_000
    even, skewed = plan["cases"]
    assert (even["skew"], skewed["skew"]) == (0, 1)
    assert skewed["for_the_rate"]["memory_bytes"] < even["for_the_rate"]["memory_bytes"]
    for case in (even, skewed):
        assert case["for_the_rate"]["rows_per_second"] == pytest.approx(500_000, rel=0.01)
        assert case["with_the_memory"]["memory_bytes"] <= 64 << 20
    text = joined.explain(rates={"orders": 500_000})
    assert "What 500,000 rows/s of orders need (cost model, calibrated on this machine, one core)" in text
    assert re.search(
        r"\n  keys by Zipf 1: \S+ MB, \d+% of the rows hit the cache; 64 MB allow [\d,]+ rows/s", text
    )


def test_what_no_memory_is_enough_for_is_said(calibrated):
    text = sj.enrich(stream("orders", "id"), customers()).explain(
        rates={"orders": sj.Rate(1e9, row_bytes=20)}
    )
    assert "all keys equally often: more than one core can do with 64 MB or more; 64 MB allow" in text


@pytest.mark.parametrize("rates", [5, {}, {"customers": 5}])
def test_a_rate_is_that_of_the_stream(rates):
    with pytest.raises(sj.InvalidJoin, match=r"give the rows per second of orders, as in \{'orders': 1000\}"):
        sj.enrich(stream("orders", "id"), customers()).explain(rates=rates)


@pytest.mark.slow
def test_costs_are_measured_on_this_machine():
    costs = loop_costs("meshjoin")
    assert costs.read_byte > 0
    assert costs.seconds(LoopTurns(0.0, 10, 1000, 100_000, 0, 1000)) > 0
