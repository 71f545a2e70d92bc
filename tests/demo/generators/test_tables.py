"""Master data and its streams: shapes of section 4.1 of the SSBJ paper, and the same from the same seed."""

import zlib

import numpy as np
import pyarrow as pa
import pytest

from lab.generators.weather import LONGITUDES, WeatherStreams
from streamjoin.demo.generators import tpch
from streamjoin.demo.generators.tpch import TpchStreams
from streamjoin.demo.generators.zipf import Zipf, ZipfStreams
from streamjoin.errors import InvalidJoin

SMALL = ZipfStreams(seed=3, rows=10_000, skew=1.0)


@pytest.mark.parametrize("skew", [0.0, 0.5, 1.0])
def test_ranks_beyond_the_table_have_their_probabilities(skew):
    """200,000 values, of which the table holds 65,536: sums up to any rank are those of the exact weights."""
    exact = np.cumsum(np.arange(1, 200_001, dtype=np.float64) ** -skew)
    exact /= exact[-1]
    zipf = Zipf(200_000, skew)
    for rank in (1, 65_536, 65_537, 150_000, 200_000):
        assert zipf.share(rank) == pytest.approx(exact[rank - 1], rel=1e-9)
        below, above = zipf.ranks(np.array([exact[rank - 1] - 1e-9, min(exact[rank - 1] + 1e-9, 1 - 1e-12)]))
        assert below == rank
        assert above == min(rank + 1, 200_000)
    drawn = zipf.ranks(np.random.default_rng(1).random(100_000))
    assert drawn.min() == 1
    assert np.mean(drawn <= 100_000) == pytest.approx(exact[99_999], abs=0.01)


def test_values_of_master_data_repeat_and_some_have_no_row():
    keys, counts = np.unique(SMALL.table_keys(0, SMALL.rows), return_counts=True)
    assert keys.min() >= 1
    assert keys.max() <= SMALL.rows
    assert 1 - len(keys) / SMALL.rows == pytest.approx(1 / np.e, abs=0.02)
    assert np.mean(counts == 1) * len(keys) / SMALL.rows == pytest.approx(1 / np.e, abs=0.02)


def test_rows_have_120_bytes_that_do_not_compress_and_tuples_20():
    rows, tuples = SMALL.table_rows(0, 1000), SMALL.tuples(0, 1000)
    pads = rows["pad"].to_pylist()
    assert {8 + 8 + len(pad) for pad in pads} == {120}
    assert len(zlib.compress(b"".join(pads))) > 104 * 1000
    assert tuples.nbytes == 20 * 1000


def test_every_value_has_one_rank():
    ranks = np.arange(1, SMALL.rows + 1)
    for shifted in (False, True):
        assert np.array_equal(np.sort(SMALL.values_of(ranks, shifted=shifted)), ranks)


@pytest.mark.parametrize("streams", [SMALL, WeatherStreams(seed=3, rows=10_000)])
def test_any_stretch_can_be_made_alone(streams):
    for make in (streams.table_rows, streams.tuples):
        assert make(400, 50).equals(make(0, 1000).slice(400, 50).combine_chunks())
    assert pa.concat_tables(streams.table()).equals(streams.table_rows(0, 10_000))
    other = type(streams)(seed=4, rows=10_000)
    assert not other.tuples(0, 100).equals(streams.tuples(0, 100))


def test_from_the_shift_on_other_values_are_hot():
    moved = ZipfStreams(seed=3, rows=10_000, skew=1.0, shift_at=5_000)
    before, after = moved.stream_keys(0, 5_000), moved.stream_keys(5_000, 5_000)
    assert np.array_equal(before, SMALL.stream_keys(0, 5_000))
    hot = SMALL.values_of(np.arange(1, 101))
    assert np.mean(np.isin(before, hot)) == pytest.approx(SMALL.zipf.share(100), abs=0.03)
    assert np.mean(np.isin(after, hot)) < 0.1


def test_weather_is_many_to_many_on_a_bounded_domain_and_uneven_on_both_sides():
    streams = WeatherStreams(seed=3, rows=200_000)
    rows, tuples = streams.table_rows(0, 200_000), streams.tuples(0, 200_000)
    assert {8 + 8 + len(pad) for pad in tuples["pad"].slice(0, 10).to_pylist()} == {128}
    counts = [np.bincount(table["k"].to_numpy(), minlength=LONGITUDES) for table in (rows, tuples)]
    assert [len(each) for each in counts] == [LONGITUDES, LONGITUDES]
    for each in counts:
        assert each.max() > 20 * each.mean()
    assert 0.5 < np.corrcoef(*counts)[0, 1] < 0.95
    assert counts[0] @ counts[1] / 200_000 > 5 * 200_000 / LONGITUDES


def test_tpch_has_customers_and_orders_and_may_prefer_some_customers():
    (customers,) = TpchStreams(0.001).customers()
    assert len(customers) == 150
    assert pa.string_view() not in customers.schema.types
    keys = {}
    for skew in (None, 1.0):
        orders = pa.concat_tables(TpchStreams(0.001, skew=skew).orders(batch_rows=400))
        assert len(orders) == 1500
        keys[skew] = orders["o_custkey"].to_numpy()
    assert set(keys[1.0]) <= set(customers["c_custkey"].to_numpy())
    assert np.bincount(keys[None]).max() < 50
    assert np.bincount(keys[1.0]).max() == pytest.approx(1500 * Zipf(150, 1.0).share(1), rel=0.2)


def test_without_its_generator_tpch_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(tpch.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidJoin, match=r"pip install 'streamjoin\[demo\]'"):
        next(TpchStreams(0.001).customers())


@pytest.mark.parametrize(
    ("make", "given"),
    [
        (Zipf, {"values": 0, "skew": 1.0}),
        (Zipf, {"values": 10, "skew": -0.1}),
        (ZipfStreams, {"rows": 0}),
        (ZipfStreams, {"row_bytes": 8}),
        (WeatherStreams, {"rows": 0}),
        (TpchStreams, {"scale": 0}),
    ],
    ids=str,
)
def test_what_cannot_be_made_is_refused(make, given):
    with pytest.raises(InvalidJoin, match=r"give .*\."):
        make(**given)
