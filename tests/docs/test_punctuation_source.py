"""docs/contributing/punctuation-source.md: its code runs, locally and through Spark's ingest."""

import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.columnar.keys import hash_keys
from streamjoin.join.row_intake import RowIntake
from streamjoin.spark.ingest import Packer, PhysicalReads
from tests.docs.pages import regenerated


@pytest.fixture(scope="module")
def page():
    """The names that the page defines, after all of its code has run."""
    return regenerated("docs/contributing/punctuation-source.md")[1]


def arrivals_on_spark(stream, spec, given):
    """The rows as the JVM lays them out, and what the packer makes of them."""
    reads = PhysicalReads.of(stream)
    assert reads.added == {}  # all that tombstones read is payload, which is there already
    intake = RowIntake.of(stream, spec.layout, keep_unkeyed=False)
    packer = Packer(0, stream.name, spec.layout, (0,), intake, reads)
    keys = [given.column(name).combine_chunks() for name in stream.key]
    columns = {"h": pa.array(hash_keys(keys)), "k0": keys[0]}
    columns |= {f"p{i}": given.column(name).combine_chunks() for i, name in enumerate(stream.payload)}
    return packer.arrivals(pa.RecordBatch.from_arrays(list(columns.values()), list(columns)))


def test_the_page_runs_and_its_source_closes_keys_locally(page):
    assert page["run"].counters()["states_punctuations"] == 1
    assert page["joined"].plan.bounds[0].tuples


def test_the_source_of_the_page_works_in_sparks_ingest(page):
    plan = page["joined"].plan
    given = pa.table({"id": [1, 1, 2, 3], "state": ["paid", None, "paid", None]})
    found = arrivals_on_spark(plan.streams[1], plan.spec.inputs[1], given)
    assert found.rows.keys[0].to_pylist() == [1, 2]
    assert found.rows.payload[0].to_pylist() == ["paid", "paid"]
    assert found.keys.keys[0].to_pylist() == [1, 3]


def test_a_tombstone_without_a_key_is_a_violation(page):
    run = page["joined"].local()
    run.push("states", pa.table({"id": pa.array([None], pa.int64()), "state": pa.array([None], pa.string())}))
    assert [one["reason"] for one in run.violations()] == ["null_punctuation"]


def test_the_source_checks_its_stream(page):
    with pytest.raises(sj.InvalidJoin, match="only key columns"):
        sj.stream(pa.schema({"id": pa.int64()}), name="s", key="id", punctuation=page["Tombstones"]())


def test_rows_behind_a_tombstone_are_violations_where_the_order_is_known(page):
    columns = pa.schema({"id": pa.int64(), "state": pa.string(), "offset": pa.int64()})
    states = sj.stream(columns, name="states", key="id", sequence="offset", punctuation=page["Tombstones"]())
    run = sj.join(page["orders"], states).local()
    run.push("orders", pa.table({"id": [1], "item": ["pen"]}))
    given = {"id": [1, 1, 1], "state": ["paid", None, "sent"], "offset": [1, 2, 3]}
    assert run.push("states", pa.table(given)).num_rows == 1
    assert [one["reason"] for one in run.violations()] == ["after_punctuation"]


def test_in_an_operator_with_another_key_tombstones_are_propagated(page):
    def stream(name, *columns, **more):
        return sj.stream(pa.schema({c: pa.int64() for c in columns}), name=name, **more)

    a, c = (stream(name, key, name, key=key, unique=True) for name, key in (("a", "x"), ("c", "y")))
    b = stream("b", "x", "y", "v", key="y", punctuation=page["Tombstones"]())
    text = sj.join(a, b, c, on="a.x = b.x and b.y = c.y").explain()
    assert "punctuations of b" in text
