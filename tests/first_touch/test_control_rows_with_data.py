"""A flag on the last data row, declared as a punctuation row, loses no row silently."""

import logging
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.columnar.keys import hash_keys
from streamjoin.join.notices import Notices
from streamjoin.join.row_intake import RowIntake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINES = pa.schema({"id": pa.int64(), "qty": pa.int64(), "last": pa.bool_()})
DATA = pa.table({"id": [1, 1, 2], "qty": [3, 4, 5], "last": [False, True, True]}, LINES)
CONTROL = pa.table({"id": [1, 1], "qty": [3, None], "last": [False, True]}, LINES)


def joined(lines: Any = LINES, orders: Any = None, **declared: Any) -> sj.Joined:
    orders = pa.schema({"id": pa.int64()}) if orders is None else orders
    return sj.join(
        sj.stream(orders, name="orders", key="id", unique=True),
        sj.stream(lines, name="lines", key="id", punctuation=sj.marked("last"), **declared),
    )


def started(**declared: Any) -> sj.LocalRun:
    run = joined(**declared).local()
    run.push("orders", pa.table({"id": [1, 2]}))
    return run


def test_it_is_counted_and_stands_in_advice_and_is_warned_about_once() -> None:
    run = started()
    with pytest.warns(sj.DataInControlRow, match=r'declare punctuation=sj.closing\("last"\)') as warned:  # noqa: PT031
        assert run.push("lines", DATA).num_rows == 1
        run.push("lines", DATA)
    assert len(warned) == 1
    assert run.counters()["lines_control_rows_with_data"] == 4
    assert any(
        '4 rows that are punctuations by sj.marked("last") have data' in one and 'sj.closing("last")' in one
        for one in run.advice()
    )


def test_punctuations_without_data_are_not_warned_about() -> None:
    run = started()
    assert run.push("lines", CONTROL).num_rows == 1
    assert run.counters()["lines_control_rows_with_data"] == 0
    assert not any("data" in one for one in run.advice())


def test_a_run_that_goes_on_from_a_snapshot_counts_on() -> None:
    run = started()
    with pytest.warns(sj.DataInControlRow):
        run.push("lines", DATA)
    again = joined().local(snapshot=run.snapshot())
    assert again.counters()["lines_control_rows_with_data"] == 2


def test_the_time_of_a_punctuation_is_no_data() -> None:
    columns = pa.schema({"id": pa.int64(), "t": pa.timestamp("us"), "qty": pa.int64(), "last": pa.bool_()})
    run = joined(columns, time="t", lateness="0 s").local()
    run.push("lines", pa.table({"id": [1], "t": [5], "qty": [None], "last": [True]}, columns))
    assert run.counters()["lines_control_rows_with_data"] == 0
    with pytest.warns(sj.DataInControlRow):
        run.push("lines", pa.table({"id": [2], "t": [5], "qty": [0], "last": [True]}, columns))


def test_columns_that_a_punctuation_names_are_no_data() -> None:
    """With on=, a punctuation of one key column may name the other for a later operator."""
    b = pa.schema({"x": pa.int64(), "y": pa.int64(), "over": pa.bool_()})
    streams = [
        sj.stream(pa.schema({"x": pa.int64()}), name="a", key="x", unique=True),
        sj.stream(b, name="b", key=["x", "y"], punctuation=sj.marked("over", null_is_wildcard=True)),
        sj.stream(pa.schema({"y": pa.int64()}), name="c", key="y", unique=True),
    ]
    run = sj.join(*streams, on="a.x = b.x and b.y = c.y").local()
    rows = pa.table({"x": [1, None, 1], "y": [2, 2, None], "over": [False, True, True]}, b)
    run.push("b", rows)
    assert not any(count for name, count in run.counters().items() if "control_rows_with_data" in name)


def test_explain_and_help_say_control_rows_never_joined() -> None:
    assert "rows marked last are control rows, never joined" in joined().explain()
    assert "control rows, never joined" in (sj.marked.__doc__ or "")


def test_the_line_to_write_joins_every_row() -> None:
    lines = sj.stream(LINES, name="lines", key="id", punctuation=sj.closing("last"), columns=["qty"])
    orders = sj.stream(pa.schema({"id": pa.int64()}), name="orders", key="id", unique=True)
    run = sj.join(orders, lines).local()
    run.push("orders", pa.table({"id": [1, 2]}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run.push("lines", DATA).num_rows == 3
    assert run.state().empty


def test_sparks_ingest_logs_it_once(caplog: pytest.LogCaptureFixture) -> None:
    from streamjoin.spark import ingest

    stream, spec = joined().plan.streams[1], joined().plan.spec.inputs[1]
    intake = RowIntake.of(stream, spec.layout, keep_unkeyed=False)
    packer = ingest.Packer(0, "lines", spec.layout, (0,), intake, ingest.PhysicalReads.of(stream))
    keys, qty, last = DATA.combine_chunks().columns
    columns = [pa.array(hash_keys([keys.chunk(0)])), keys.chunk(0), qty.chunk(0), last.chunk(0)]
    batch = pa.RecordBatch.from_arrays(columns, ["h", "k0", "p0", "s0"])
    with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.WARNING, "streamjoin"):
        patch.setattr(ingest, "_NOTICES", Notices())
        for _ in range(2):
            assert packer.arrivals(batch).control_rows_with_data == 2
    assert [record.message for record in caplog.records if "sj.closing" in record.message]
    assert len(caplog.records) == 1


@pytest.mark.spark
@pytest.mark.systems
def test_on_spark_it_is_counted_in_the_metrics(spark: "SparkSession", tmp_path: Path) -> None:
    spark.createDataFrame(DATA.to_pylist(), "id long, qty long, last boolean").write.parquet(
        str(tmp_path / "lines")
    )
    spark.createDataFrame([(1,), (2,)], "id long").write.parquet(str(tmp_path / "orders"))
    join = joined(
        spark.readStream.schema("id long, qty long, last boolean").parquet(str(tmp_path / "lines")),
        spark.readStream.schema("id long").parquet(str(tmp_path / "orders")),
    )
    query = join.write(
        rows=lambda frame, _: frame.collect(),
        checkpoint=str(tmp_path / "state"),
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    metrics = sj.progress(query)["join"]
    assert metrics["lines_control_rows_with_data"] == 2
    assert any("sj.closing" in one for one in join.advice(metrics))
