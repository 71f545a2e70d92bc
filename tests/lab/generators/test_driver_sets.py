"""The six data sets of the driver paper: sizes, rates of section 4.1, and the same from the same seed."""

import numpy as np
import pyarrow as pa
import pytest

from lab.generators.driver_sets import DRIVER_SCHEMA, DRIVER_SETS, PERIODS, STREAMS, UNITS, units
from streamjoin.errors import InvalidJoin

EQUAL, UNEQUAL = ("I", "II", "III", "IV"), ("V", "VI")
ALL = (*EQUAL, *UNEQUAL)


def counts(table: pa.Table) -> dict[int, int]:
    keys, count = np.unique(table["k"].to_numpy(), return_counts=True)
    return dict(zip(keys.tolist(), count.tolist(), strict=True))


def joined(*tables: pa.Table) -> int:
    """How many results a join on the key has."""
    first, *others = (counts(table) for table in tables)
    return sum(n * int(np.prod([other.get(key, 0) for other in others])) for key, n in first.items())


def per_batch(name: str, stream: str, period: str = "0.1M") -> np.ndarray:
    batches = DRIVER_SETS[name].streams(scale=0.1, seed=5).batches(PERIODS[period])
    return np.array([len(batch[stream]) for batch in batches])


@pytest.mark.parametrize("scale", [0.001, 0.01])
@pytest.mark.parametrize("name", ALL)
def test_streams_pairs_and_results_have_the_papers_sizes(name, scale):
    s1, s2, s3 = DRIVER_SETS[name].streams(scale=scale, seed=7).tables.values()
    found = [len(s1), len(s2), len(s3), joined(s1, s2), joined(s1, s3), joined(s2, s3), joined(s1, s2, s3)]
    half, million = 500_000, 1_000_000
    wanted = [million, million, million, half, million, half, half]
    if name in UNEQUAL:
        wanted = [10_000, 100_000, million, 10_000, 100_000, million, million]
    assert found == pytest.approx([scale * each for each in wanted], abs=0.5)


@pytest.mark.parametrize("name", ALL)
def test_tuples_come_in_order_of_time_and_streams_end_together(name):
    streams = DRIVER_SETS[name].streams(scale=0.1, seed=2)
    for table in streams.tables.values():
        assert table.schema == DRIVER_SCHEMA
        time = units(table["t"])
        assert (np.diff(time) >= 0).all()
        assert 0 <= time[0] < 0.02 * UNITS * 0.1
        assert 0.98 * UNITS * 0.1 < time[-1] < UNITS * 0.1


@pytest.mark.parametrize(("period", "count"), [("0.1M", 100), ("1M", 10)])
def test_batches_are_the_streams_cut_by_time(period, count):
    streams = DRIVER_SETS["II"].streams(scale=0.01, seed=2)
    batches = list(streams.batches(PERIODS[period]))
    assert len(batches) == count
    for name in STREAMS:
        assert pa.concat_tables([batch[name] for batch in batches]).equals(streams.tables[name])
        for i, batch in enumerate(batches):
            number = units(batch[name]["t"]) // (PERIODS[period] // 100)
            assert (number == i).all()


def test_rates_alternate_each_quarter_of_the_input():
    """Per batch of 0.1M units at scale 0.1: 1 per 10 is 1,000 tuples, 1 per 5 2,000, 1 per 15 667."""
    assert per_batch("I", "s1") == pytest.approx(1_000, abs=2)
    assert per_batch("I", "s2") == pytest.approx(1_000, abs=2)
    fast, slow = slice(0, 12), slice(13, 50)  # 12.5 batches hold 250,000 tuples, 37.5 the next 250,000
    quarters = per_batch("I", "s3")
    for start in (0, 50):
        half = quarters[start : start + 50]
        assert half[fast] == pytest.approx(2_000, abs=2)
        assert half[slow] == pytest.approx(2_000 / 3, abs=2)
    assert per_batch("II", "s3") == pytest.approx(quarters, abs=2)
    inverse = per_batch("II", "s2")
    assert inverse[:37] == pytest.approx(2_000 / 3, abs=2)
    assert inverse[38:50] == pytest.approx(2_000, abs=2)
    assert per_batch("III", "s2") == pytest.approx(inverse, abs=2)


def test_the_sine_has_two_waves():
    found = per_batch("III", "s3")
    middle = (np.arange(100) + 0.5) / 100
    assert found == pytest.approx(1_000 * (1 + np.sin(4 * np.pi * middle) / 2), abs=3)


@pytest.mark.parametrize(("name", "first"), [("IV", 0.2), ("V", 0.8), ("VI", 0.2)])
def test_a_b_model_gives_a_fifth_to_one_half_and_again_within(name, first):
    for seed in range(5):
        table = DRIVER_SETS[name].streams(scale=0.1, seed=seed).tables["s3"]
        share = np.histogram(units(table["t"]), np.linspace(0, UNITS * 0.1, 9))[0] / len(table)
        while len(share) > 1:
            halves = share.reshape(-1, 2)
            share = halves.sum(axis=1)
            low = halves.min(axis=1) / share
            assert low == pytest.approx(0.2, abs=0.005)
        assert halves[0, 0] == pytest.approx(first, abs=0.001)


def test_the_same_seed_gives_the_same_data_and_streams_differ():
    def keys(seed: int) -> list[list[int]]:
        tables = DRIVER_SETS["I"].streams(scale=0.001, seed=seed).tables
        return [table["k"].to_pylist() for table in tables.values()]

    assert keys(1) == keys(1)
    assert keys(1) != keys(2)
    assert keys(1)[0] != keys(1)[2]


@pytest.mark.parametrize("wrong", [{"scale": 0}, {"scale": 11}, {"seed": -1}])
def test_what_makes_no_sense_is_refused(wrong):
    with pytest.raises(InvalidJoin, match="Give a scale from"):
        DRIVER_SETS["I"].streams(**wrong)
