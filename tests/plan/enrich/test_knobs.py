"""What a user may set of an enrichment: the access path, the switching factor; and the size of segments."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.enrich.cost import best_segment_bytes

ROWS = 20_000
TABLE = pa.table({"id": np.arange(ROWS), "name": [f"{i:080d}" for i in range(ROWS)]})
ORDERS = sj.stream(pa.schema({"id": pa.int64()}), name="orders", key="id")


def enriched(memory: str = "1 MB", **options: Any) -> sj.Enriched:
    return sj.enrich(ORDERS, sj.table(TABLE, name="t", key="id", memory=memory), **options)


@pytest.mark.parametrize(("access", "found"), [("lookup", True), ("scan", False)])
def test_the_access_path(access: str, found: bool) -> None:
    run = enriched(access=access).local()
    for i in range(10):
        assert run.push("orders", pa.table({"id": [i * 1000]})).num_rows == 1
    counted = run.counters()
    assert (counted["keys_found"] > 0, counted["segments_read"] > 0) == (found, not found)
    assert f"access='{access}'" in run.explain()


def test_a_higher_switching_factor_caches_fewer_values() -> None:
    cached = {}
    for factor in (0.5, 1, 8):
        joined = enriched("500 KB", operator="ssbj", switching_factor=factor)
        run, rng = joined.local(), np.random.default_rng(1)
        for _ in range(12):
            run.push("orders", pa.table({"id": (rng.zipf(1.2, 3_000) - 1) % ROWS}))
        cached[factor] = run.state()["t"].cache_rows
        assert ("switching factor" in run.explain()) == (factor != 1)
    assert cached[0.5] >= cached[1] > cached[8]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"access": "index"}, "access='index'; give one of 'auto', 'scan', 'lookup'"),
        ({"access": "scan", "operator": "ssbj"}, "scans as its paper does; leave one of them out"),
        ({"switching_factor": 0}, "switching_factor=0; give a number above 0"),
        ({"switching_factor": "2"}, "switching_factor='2'; give a number above 0"),
        ({"switching_factor": float("inf")}, "give a number above 0"),
        ({"switching_factor": True}, "give a number above 0"),
        ({"switching_factor": 2, "operator": "meshjoin"}, "caches nothing; leave it out"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(sj.InvalidJoin, match=says):
        enriched(**options)


@pytest.mark.parametrize("memory", [1e6, 8e6, 64e6, 1e9])
def test_the_size_of_segments_is_the_best_of_the_cost_model(memory: float) -> None:
    """The rate is (M - S) S / (c_0 + c_1 S) by a constant: no other size serves a higher one."""
    turn, byte = 1e-3, 1e-9

    def rate(segment: float) -> float:
        return (memory - segment) * segment / (turn + byte * segment)

    best = rate(best_segment_bytes(memory, turn, byte))
    assert best >= max(map(rate, np.linspace(memory / 1000, memory * 0.999, 500))) * 0.9999


def test_it_is_said() -> None:
    assert "256 kB for the segment that is read (its size by the cost model)" in enriched().explain()
    staged = enriched().local().versions()["t"]
    assert 0.5 * (1 << 18) < staged.largest_segment <= 1 << 18
