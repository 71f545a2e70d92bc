"""A stream and a table as declared: what the join computes, and what is refused with what to do."""

import re
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.enrich.segments import Segment, StagedVersion
from tests.tables import schema, stream


def table(name, columns, /, **declared):
    declared.setdefault("key", columns.split(maxsplit=1)[0].partition(":")[0])
    declared.setdefault("memory", "1 MB")
    return sj.table(schema(columns).empty_table(), name=name, **declared)


ORDERS = stream("orders", "id item:str t:time")
CUSTOMERS = table("customers", "id city:str")


def output(*inputs, **options):
    return sj.enrich(*inputs, **options).plan.spec.output


# ---------------------------------------------------------------- what it computes


def test_the_columns_are_those_of_any_other_join():
    assert output(ORDERS, CUSTOMERS).names == ["id", "item", "t", "city"]
    assert output(ORDERS, table("c", "cid item:str", columns=["item"])).names == [
        "id",
        "orders_item",
        "t",
        "c_item",
    ]
    versions = output(stream("s", "id c_version:str"), table("c", "id x", columns=["_version"]))
    assert versions.names == ["id", "c_version", "_c_version"]


def test_a_result_says_its_version_where_that_is_asked():
    plan = sj.enrich(ORDERS, table("c", "id city:str", columns=["_version", "city"])).plan
    assert plan.spec.output.names == ["id", "item", "t", "city", "c_version"]
    assert plan.spec.emits_version
    assert not sj.enrich(ORDERS, CUSTOMERS).plan.spec.emits_version


def test_key_types_are_widened_over_all_of_them():
    small = sj.table(pa.table({"id": pa.array([], pa.int16())}), name="small", key="id", memory=1 << 20)
    tiny = sj.stream(pa.schema({"id": pa.int8(), "x": pa.string()}), name="tiny", key="id")
    assert output(tiny, small).field("id").type == pa.int16()
    plan = sj.enrich(tiny, small, CUSTOMERS).plan
    assert [step.spec.table.key_types for step in plan.chain] == [(pa.int64(),)] * 2


def test_several_tables_are_joined_one_after_another():
    """Names as if all were joined at once; event time goes through where a later one waits by it."""
    orders = stream("orders", "id name:str t:time", time="t", lateness="2 seconds")
    first = table("customers", "id name:str", columns=["name", "_version"], how="left")
    second = table("ratings", "id t:time stars", wait="1 minute")
    plan = sj.enrich(orders, first, second, name="enriched").plan
    lower, upper = plan.chain
    assert lower.spec.output.names == ["id", "orders_name", "orders_t", "customers_name", "customers_version"]
    assert upper.spec.output.names == [*lower.spec.output.names, "ratings_t", "stars"]
    assert (lower.name, upper.name) == ("enriched_customers", "enriched")
    assert (lower.stream.time, lower.spec.stream.timed, lower.spec.wait_us) == (None, False, None)
    assert (upper.stream.time, upper.spec.stream.timed, upper.spec.wait_us) == ("orders_t", True, 60_000_000)
    assert upper.spec.lateness_us == 2_000_000
    assert (lower.spec.preserves, upper.spec.preserves) == (True, False)


def test_presets_are_the_papers_form():
    def spec(operator):
        found = sj.enrich(ORDERS, CUSTOMERS, operator=operator).plan.spec
        return found.caches, found.access

    assert spec(None) == (True, "auto")
    assert spec("ssbj") == (True, "paper")
    assert spec("meshjoin") == (False, "paper")


def staged(plan, buckets, largest):
    """A version whose largest segment has so many bytes."""
    segment = Segment("00000-000.segment", 0, 1, largest, 0, 0, collided=False)
    return StagedVersion("c", "v", Path("0001-v"), plan.form(buckets, "local"), 0, (segment,))


def test_memory_is_divided_over_the_buckets_and_segments_fit_it():
    plan = sj.enrich(ORDERS, table("c", "id city:str", memory="64 MB")).plan
    assert plan.for_bucket(staged(plan, 8, 1 << 20)).memory_bytes == 8 << 20
    assert [plan.segment_bytes(buckets) for buckets in (1, 8, 8192)] == [4 << 20, 2_064_083, 16 << 10]


def test_memory_that_is_too_small_is_refused_with_what_the_whole_join_needs():
    plan = sj.enrich(ORDERS, table("c", "id city:str", memory=7999)).plan
    with pytest.raises(sj.InvalidJoin, match=r"memory=7,999 bytes is too small: it needs 8,000, twice"):
        plan.for_bucket(staged(plan, 4, 1000))
    assert plan.for_bucket(staged(plan, 1, 1000)).memory_bytes == 7999


# ---------------------------------------------------------------- what is refused

TIMED = {"time": "t", "lateness": "0 seconds"}
STREAMS = {
    "window": ({**TIMED, "window": "1 minute"}, "window= says nothing to sj.enrich; a table"),
    "idle": ({**TIMED, "idle": "1 minute"}, "idle= says nothing"),
    "ttl": ({**TIMED, "ttl": "1 minute"}, "ttl= says nothing to sj.enrich; memory= of the"),
    "unique": ({"unique": True}, "unique= says nothing"),
    "arrival": ({"arrival": sj.clustered()}, "arrival= says nothing"),
    "sequence": ({"sequence": "n"}, "sequence= says nothing"),
    "punctuation": ({"punctuation": sj.marked("last")}, "punctuation= says nothing"),
    "on_violation": ({"on_violation": "fail"}, "on_violation= says nothing"),
}


@pytest.mark.parametrize(("declared", "says"), STREAMS.values(), ids=STREAMS)
def test_what_a_stream_declares_for_other_joins_is_refused(declared, says):
    with pytest.raises(sj.InvalidJoin, match=f"stream 'orders': {re.escape(says)}"):
        sj.enrich(stream("orders", "id n t:time last:bool", **declared), CUSTOMERS)


OPTIONS = {
    "operator": ("pjoin", "operator='pjoin' joins no table; give one of ssbj, meshjoin, or leave it"),
    "buckets": (0, "give a whole number of 1 or more"),
    "name": ("a b", "give a name of letters"),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_options_that_cannot_be_meant_are_refused(option):
    value, says = OPTIONS[option]
    with pytest.raises(sj.InvalidJoin, match=re.escape(says)):
        sj.enrich(ORDERS, CUSTOMERS, **{option: value})


JOINS = {
    "a stream and a table": ((ORDERS, CUSTOMERS), "use sj.enrich(orders, customers)"),
    "two streams": ((ORDERS, stream("bids", "id"), CUSTOMERS), "with the joined streams as its stream"),
    "a table": ((CUSTOMERS,), "use sj.enrich(stream, customers)"),
}


@pytest.mark.parametrize(("inputs", "says"), JOINS.values(), ids=JOINS)
def test_a_table_among_joined_streams_is_refused_with_the_verb_for_it(inputs, says):
    with pytest.raises(sj.InvalidJoin, match=f"customers: sj.join joins streams, .*{re.escape(says)}"):
        sj.join(*inputs)


INPUTS = {
    "no stream": ((CUSTOMERS,), "customers is a table; give the stream first: sj.enrich(stream, *tables)"),
    "no table": ((ORDERS,), "orders is enriched with nothing; add a table with sj.table(…)"),
    "two streams": (
        (ORDERS, stream("bids", "id"), CUSTOMERS),
        "orders and bids are streams: join them first with sj.join(…), and give the result's dataframe() as",
    ),
    "no input": ((ORDERS, CUSTOMERS, "customers"), "'customers' is no table; wrap it with sj.table(…)"),
    "no stream, but its schema": (
        (ORDERS.schema, CUSTOMERS),
        "a Schema is no stream; wrap it with sj.stream",
    ),
    "names twice": ((ORDERS, table("orders", "id x")), "same name (orders, orders); give each its own"),
    "widths": ((ORDERS, table("c", "a b", key=["a", "b"])), "(orders: id; c: a, b); name as many columns"),
    "types": ((ORDERS, table("c", "id:str")), "(orders.id int64, c.id string); cast one of them first"),
    "wait without time": (
        (ORDERS, table("c", "id", wait="1 hour")),
        "table 'c': wait= counts on the event time of orders; add time= to it",
    ),
    "wait, time not passed on": (
        (
            stream("orders", "id x t:time", **TIMED, columns=["x"]),
            CUSTOMERS,
            table("c", "id", wait="1 hour"),
        ),
        "the time column to its columns=",
    ),
}


@pytest.mark.parametrize(("inputs", "says"), INPUTS.values(), ids=INPUTS)
def test_inputs_that_do_not_fit_are_refused(inputs, says):
    with pytest.raises(sj.InvalidJoin, match=re.escape(says)):
        sj.enrich(*inputs)


def test_a_join_of_streams_is_no_stream_of_this_one():
    inner = sj.join(stream("a", "id", unique=True), stream("b", "id", unique=True))
    with pytest.raises(sj.InvalidJoin, match=r"is the join 'join'; to enrich it give its results: sj.stream"):
        sj.enrich(sj.stream(inner, name="ab", key="id"), CUSTOMERS)


def test_an_enriched_stream_is_a_stream_by_its_results():
    """Its schema, and what it gives is pushed on: into a join with another stream, or on another key."""
    lower = sj.enrich(ORDERS, CUSTOMERS)
    with pytest.raises(sj.InvalidJoin, match=r"give the results: its dataframe\(checkpoint=…\), or locally"):
        sj.stream(lower, name="enriched", key="city")
    upper = sj.enrich(
        sj.stream(lower.plan.spec.output, name="enriched", key="city"), table("towns", "name:str size")
    )
    assert upper.plan.spec.output.names == ["city", "id", "item", "t", "size"]


TABLES = {
    "not here": ({"source": "s3://shop/c"}, "'s3://shop/c' is no path of this machine; give the DataFrame"),
    "name": ({"name": "1a"}, "table name '1a'; give a name of letters"),
    "no key": ({"key": []}, "table 'c' has no key; name at least one"),
    "key not there": ({"key": "no"}, "key column 'no' does not exist; its columns are id, city"),
    "key no name": ({"key": 5}, "table 'c': key is 5; give a column's name"),
    "key twice": ({"key": ["id", "id"]}, "key names 'id' more than once"),
    "columns": ({"columns": ["town"]}, "columns column 'town' does not exist; its columns are id, city"),
    "memory": ({"memory": None}, "table 'c': memory=None; give a size such as \"256 MB\""),
    "cycle": ({"cycle_batches": 0}, "cycle_batches=0; give a whole number of 1 or more"),
    "version": ({"version": " "}, "version=' '; give a label of its present content"),
    "wait": ({"wait": timedelta(0)}, "wait of zero; give a positive duration or none"),
    "wait, no duration": ({"wait": 5}, "table 'c': wait is 5; give a duration"),
    "how": ({"how": "full"}, "how='full'; give 'inner' or 'left'"),
}


@pytest.mark.parametrize(("declared", "says"), TABLES.values(), ids=TABLES)
def test_a_table_that_cannot_be_meant_is_refused(declared, says):
    usual = {"source": schema("id city:str").empty_table(), "name": "c", "key": "id", "memory": "1 MB"}
    with pytest.raises(sj.InvalidJoin, match=re.escape(says)):
        sj.table(**{**usual, **declared})


def test_a_version_column_of_the_tables_own():
    assert output(ORDERS, table("c", "id _version")).names == ["id", "item", "t", "_version"]
    plan = sj.enrich(ORDERS, table("c", "id x _version", columns=["_version"])).plan
    assert plan.spec.output.names == ["id", "item", "t", "_version"]
    assert not plan.spec.emits_version
