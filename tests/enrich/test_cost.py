"""The cost model of a semi-stream join: its equations, its inverse, and costs found again from turns."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from streamjoin.columnar.batch import Layout
from streamjoin.columnar.keys import hash_keys
from streamjoin.demo.generators.zipf import Zipf
from streamjoin.enrich.cost import EnrichCostModel, EnrichLoad, LoopCosts, LoopTurns, _cached, calibrate
from streamjoin.enrich.operator import EnrichSpec
from streamjoin.enrich.read_costs import ReadCosts
from streamjoin.errors import InvalidJoin

COSTS = LoopCosts(read_byte=1e-9, turn=1e-3, chunk=2e-5, search=5e-8, row=1e-7, hit=3e-7, waited=6e-7)
ORDERED = EnrichLoad(rows=1_000_000, row_bytes=132, tuple_bytes=42, segments=100, caches=False)
PAPER = replace(ORDERED, ordered=False)


def test_memory_is_a_segment_and_what_waits():
    """Equation 1 with 1,500 tuples a turn: half of 100 turns are here in order, all as in the paper."""
    segment = 1_000_000 * 132 / 100
    assert ORDERED.memory(1_500) == segment + 0.5 * 1_500 * 100 * 42
    assert PAPER.memory(1_500) == segment + 1_500 * 100 * 42


def test_a_turn_costs_what_equation_2_says():
    """Uniform: 1,000 tuples have 1,000 values, about; 400 hit; 10,000 rows of a segment are looked up."""
    model = EnrichCostModel(COSTS, PAPER)
    fixed = 1e-9 * 1.32e6 + 1e-3 + 2e-5 * 100 + 1e-7 * 10_000
    of_tuples = 3e-7 * 400 + 6e-7 * 600 + 5e-8 * 10_000
    assert model.loop_seconds(1_000, hit_rate=0.4) == pytest.approx(fixed + of_tuples)
    in_order = replace(model, load=ORDERED)
    assert in_order.loop_seconds(1_000, hit_rate=0.4) == pytest.approx(fixed + 3e-7 * 400 + 6e-7 * 600)


@pytest.mark.parametrize("caches", [False, True])
@pytest.mark.parametrize("skew", [0.0, 1.0])
def test_memory_for_a_rate_is_the_inverse_of_rate_for_a_memory(caches, skew):
    model = EnrichCostModel(COSTS, replace(ORDERED, caches=caches, skew=skew))
    found = model.rate_for(13_200_000)
    assert found.memory <= 13_200_000
    back = model.memory_for(found.rate)
    assert back.memory == pytest.approx(found.memory, rel=1e-3)
    assert back.longest_wait_s == pytest.approx(100 * back.loop_s)
    assert model.rate_for(20e6).rate > found.rate


def test_a_cache_is_worth_more_memory_the_more_skewed_the_stream_is():
    without = EnrichCostModel(COSTS, replace(ORDERED, skew=1.0)).rate_for(13.2e6)
    rates = [
        EnrichCostModel(COSTS, replace(ORDERED, caches=True, skew=skew)).rate_for(13.2e6).rate
        for skew in (0.0, 0.5, 1.0)
    ]
    assert rates == sorted(rates)
    assert rates[2] > 2 * without.rate


def test_values_are_cached_as_the_inequality_says():
    """Those that pay are there, most others are not; with ever more tuples all are."""
    load = replace(ORDERED, caches=True, skew=1.0)
    zipf = Zipf(1_000_000, 1.0)
    saved = 0.5 * zipf.probability(np.arange(1, 1_000_001)) * 5_000 * 100 * 42
    poisson, hits = np.exp(-1.0), 0.0
    for rows in range(9):
        poisson /= max(rows, 1)
        cost = 1.2 * (rows * 140 if rows else 24)
        hits += poisson * zipf.share(int(np.count_nonzero(saved > cost)))
    assert hits < load.cached(5_000)[0] < hits + 0.1
    assert load.cached(1e9)[0] == pytest.approx(1.0, abs=1e-3)


def test_a_value_can_be_cached_by_chance():
    """Half a tuple a cycle, paying from 2 on: with q = 9 % a cycle, it is there a third of the time."""
    q = 1 - np.exp(-0.5) * 1.5
    wanted = 1 - np.mean([(1 - q) ** j for j in range(10)])
    found = _cached(np.array([0.5, 1.5, 0.0, 700.0]), 1.4)
    assert found[0] == pytest.approx(wanted)
    assert found[1:].tolist() == [1.0, 0.0, 1.0]


def test_distinct_values_of_some_tuples():
    assert ORDERED.distinct(1_000) == pytest.approx(999.5, rel=1e-3)
    drawn = Zipf(1_000_000, 1.0).ranks(np.random.default_rng(3).random(20_000))
    assert replace(ORDERED, skew=1.0).distinct(20_000) == pytest.approx(len(np.unique(drawn)), rel=0.03)


def test_planted_costs_are_found_again():
    rng = np.random.default_rng(4)
    seen = []
    for _ in range(20):
        some = LoopTurns(0.0, *(rng.random(6) * [100, 20_000, 3e6, 5_000, 5_000, 1e5]).tolist())
        seen.append(replace(some, seconds=COSTS.seconds(some) * rng.uniform(0.99, 1.01)))
    found = LoopCosts.fit(seen, COSTS.read_byte)
    for one in seen:
        assert found.seconds(one) == pytest.approx(one.seconds, rel=0.03)
    assert found.hit == pytest.approx(COSTS.hit, rel=0.3)


def test_no_cost_is_below_zero():
    """Less time for more waiting tuples: noise. The turn explains it."""
    seen = [LoopTurns(2e-3, 10, 100, 0, 0, waited) for waited in (100, 200)]
    seen.append(LoopTurns(1.9e-3, 10, 100, 0, 0, 300))
    found = LoopCosts.fit(seen, 0.0)
    assert min(found.turn, found.chunk, found.row, found.waited) >= 0
    assert found.seconds(seen[0]) == pytest.approx(2e-3, rel=0.05)


def test_what_cannot_be_is_refused_with_what_can():
    model = EnrichCostModel(COSTS, ORDERED)
    with pytest.raises(InvalidJoin, match=r"memory=1,000 bytes is too small: one tuple a turn needs 1,32"):
        model.rate_for(1_000)
    with pytest.raises(InvalidJoin, match=r"more than one bucket can take .* \(1,\d{3},\d{3}\); give"):
        model.memory_for(1e9)


STREAM = Layout((pa.int64(),), payload_types=(pa.int64(),))


class Segments:
    """Uniform table in memory."""

    version, costs = "1", ReadCosts()

    def __init__(self, rows, segments):
        key = pa.array(np.random.default_rng(1).integers(0, rows, rows))
        hashed = hash_keys([key])
        table = STREAM.batch([pa.array(hashed), key, pa.array(np.arange(rows))]).sorted()
        edges = np.linspace(0, rows, segments + 1).astype(int)
        ends = np.searchsorted(table.hash, table.hash[edges[1:-1]])
        cuts = [0, *ends.tolist(), rows]
        self._segments = [table.slice(a, b - a) for a, b in pairwise(cuts)]
        self.rows = rows
        self.segment_bytes = tuple(segment.nbytes for segment in self._segments)
        self.row_bytes = table.nbytes / rows
        self.starts = np.array([segment.hash[0] for segment in self._segments])

    def read(self, segment):
        return self._segments[segment]

    def find(self, segment, keys):
        raise AssertionError("reads whole segments only")


@pytest.mark.parametrize("access", ["scan", "paper"])
def test_the_real_operator_can_be_calibrated(access):
    output = pa.schema({"k": pa.int64(), "id": pa.int64(), "row": pa.int64()})
    spec = EnrichSpec(STREAM, STREAM, output, 1 << 24, access=access)
    rng = np.random.default_rng(2)

    def uniform(w):
        key = pa.array(rng.integers(0, 2_000, w))
        return STREAM.batch([pa.array(hash_keys([key])), key, pa.array(np.arange(w))])

    def skewed(w):
        key = pa.array(rng.integers(0, 50, w))
        return STREAM.batch([pa.array(hash_keys([key])), key, pa.array(np.arange(w))])

    tables = [Segments(2_000, segments) for segments in (4, 8)]
    found = calibrate(spec, tables, [uniform, skewed], [50, 200])
    load = EnrichLoad.of(spec, tables[0], tuple_bytes=24.0)
    assert load.ordered is (access == "scan")
    assert 1e-5 < EnrichCostModel(found, load).loop_seconds(100, hit_rate=0.5) < 1
    assert found.read_byte > 0
