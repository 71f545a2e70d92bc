"""Works on Spark: the sums of prepared files are those of their joins, and rates those of the last half."""

from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lab.contenders.protocol import WEIGHTS, Answer, Measured, run_contender
from lab.spark_joins import chain, enrichment, two_streams
from lab.spark_joins.experiment import late_rate
from lab.spark_joins.two_streams import TwoStreams
from streamjoin.demo.generators.zipf import ZipfStreams


@pytest.mark.parametrize(("inputs", "fan_out"), [(3, 1), (3, 4), (5, 2)])
def test_the_sums_of_a_prepared_join_are_those_of_its_files(tmp_path, inputs, fan_out):
    data = chain.prepare(tmp_path, inputs, fan_out, batches=2, rows=120)
    tables = [pq.read_table(tmp_path / f"s{i}") for i in range(1, inputs + 1)]
    rows = tables[0]
    for table in tables[1:]:
        rows = rows.join(table, "k", join_type="inner")
    values = [rows[f"v{i}"].to_numpy() for i in range(1, inputs + 1)]
    weighted = sum(v * weight for v, weight in zip(values, WEIGHTS, strict=False))
    mix = int(((weighted % 1_000_003) * (rows["k"].to_numpy() % 1_009)).sum())
    assert data.answer == Answer(len(rows), int(sum(values).sum()), mix)
    assert sum(map(len, tables)) == 240


def test_the_sums_of_a_prepared_enrichment_are_those_of_its_files(tmp_path):
    streams = ZipfStreams(seed=3, rows=2_000)
    data = enrichment.prepare(tmp_path, streams, {"long": 3, "short": 1}, batch_rows=300)
    for side, batches in (("long", 3), ("short", 1)):
        assert len(list((tmp_path / side).iterdir())) == batches
        rows = pq.read_table(tmp_path / side).join(pq.read_table(tmp_path / "table"), "k", join_type="inner")
        id_, m, k = (rows[name].to_numpy() for name in ("id", "m", "k"))
        check = np.array([crc32(pad) for pad in rows["pad"].to_pylist()])
        mix = int((((id_ * 31 + m * 17 + check) % 1_000_003) * (k % 1_009)).sum())
        plain = int((id_ + m + rows["x"].to_numpy()).sum())
        assert data[side].answer == Answer(len(rows), plain, mix)


@pytest.mark.parametrize("punctuated", [False, True])
def test_every_row_of_many_finds_its_partner(tmp_path, punctuated):
    work = two_streams.prepare(tmp_path, 3, rows=110, punctuated=punctuated)
    many = pq.read_table(tmp_path / "many")
    rows = many.filter(pa.compute.invert(many["is_end"])) if punctuated else many
    assert work.answer.rows == len(rows) == 300
    assert work.answer.sum == int((rows["k"].to_numpy() * 5).sum())
    assert len(many) - len(rows) == (20 if punctuated else 0)  # ten keys of each batch but the last


def test_outer_joins_have_rows_without_a_partner(tmp_path):
    works = two_streams.prepare_outer(tmp_path, 1)
    one, many = (pq.read_table(tmp_path / side)["k"].to_numpy() for side in ("one", "many"))
    one, many = one[one >= 0], many[many >= 0]
    left = np.isin(many, one).sum() + (~np.isin(one, many)).sum()
    assert works["left"].answer.rows == left
    assert works["full"].answer.rows == left + (~np.isin(many, one)).sum()


def test_the_last_half_of_the_batches_with_rows_counts():
    """Four batches with rows, one to drain; CPU seconds are since the query began."""
    extra = {
        "input_rows": [100, 100, 100, 100, 0],
        "trigger_ms": [900, 900, 100, 300, 700],
        "cpu_s": [2.0, 4.0, 4.5, 5.5, 9.0],
        "answers": [
            {"rows": 10, "came": 0, "earliest": 0},
            {"rows": 10, "came": 10, "earliest": 1},
            {"rows": 10, "came": 10, "earliest": 0},  # batch 2: each a batch old, the oldest two
            {"rows": 30, "came": 30, "earliest": 0},  # batch 3: two batches old, the oldest three
            {"rows": 9, "came": 0, "earliest": 0},
        ],
    }
    found = Measured("streamjoin", "", 1.0, 1.0, 1.0, Answer(69, 0, 0), None, [], extra)
    assert late_rate(found) == 500
    assert enrichment.cpu(found) == 1.5 * 1_000_000 / 200
    assert enrichment.latency(found) == {
        "mean_batches": 1.75,
        "worst_batches": 3,
        "mean_s": pytest.approx(0.55),
        "worst_s": pytest.approx(0.8),
    }


@pytest.mark.spark
@pytest.mark.systems
@pytest.mark.parametrize("engine", ["streamjoin", "spark-rocksdb"])
def test_a_contender_answers_as_the_batch_join(tmp_path, engine):
    work = two_streams.prepare(tmp_path, 2, rows=1_100)
    found = run_contender(TwoStreams(engine, str(tmp_path)).command(), engine, work, 300)
    assert isinstance(found, Measured), found
    assert found.answer == work.answer
    assert sum(found.extra["input_rows"]) == work.rows
