"""The manifest: which runs live and what of them is tombstoned."""

import numpy as np
import pytest

from streamjoin.state.codec import MANIFEST, decode
from streamjoin.state.manifest import Manifest, RunEntry

IDENTITY = {"inputs": ["news", "access"], "key types": ["int64"], "unique": ["news"]}


def entry(name, rows=10, tombstones=None, matched=None, collided=False):
    return RunEntry(name, rows, rows * 16, collided, (-5, 9), (0, 0), tombstones, matched)


def flags(rows, *chosen):
    mask = np.zeros(rows, np.bool_)
    mask[list(chosen)] = True
    return mask


def test_a_manifest_comes_back_as_it_was():
    told = Manifest(
        IDENTITY,
        {
            "s0": [
                [entry("1-s0-1-aa", tombstones=flags(10, 0, 9)), entry("1-s0-2-bb")],
                [entry("2-s0-1-cc", collided=True)],
            ],
            "s1": [],
            "p0c": [[entry("3-p0c-1-dd", rows=3, matched=flags(3, 1))]],
        },
        {"counters": {"step": 7}, "watermarks": [-(1 << 62), 5], "ranges": [[-(1 << 200), {"hex": "00ff"}]]},
    )
    found = Manifest.decode(told.encode())
    assert (found.identity, found.facts) == (told.identity, told.facts)
    assert {
        tag: [[run.stored_as for run in tier] for tier in tiers] for tag, tiers in found.tiers.items()
    } == {
        "s0": [["1-s0-1-aa", "1-s0-2-bb"], ["2-s0-1-cc"]],
        "s1": [],
        "p0c": [["3-p0c-1-dd"]],
    }
    first, second = found.tiers["s0"][0]
    assert first.tombstones.tolist() == flags(10, 0, 9).tolist()
    assert second.tombstones is second.matched is None
    assert (first.rows, first.nbytes) == (10, 160)
    assert [run.collided for tier in found.tiers["s0"] for run in tier] == [False, False, True]
    assert found.tiers["p0c"][0][0].matched.tolist() == [False, True, False]


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 1000])
def test_flags_of_any_length(rows):
    tombstones = flags(rows, *range(0, rows, 3))
    told = Manifest(IDENTITY, {"s0": [[entry("a", rows=rows, tombstones=tombstones)]]})
    assert Manifest.decode(told.encode()).tiers["s0"][0][0].tombstones.tolist() == tombstones.tolist()


def test_it_is_small():
    """A hundred runs of a million rows, some tombstoned: what is written at every batch."""
    tombstones = flags(1_000_000, *range(0, 1_000_000, 1_000))
    runs = [entry(f"{i}-s0-1-aaaaaaaa", rows=1_000_000) for i in range(99)]
    told = Manifest(IDENTITY, {"s0": [[*runs, entry("x", rows=1_000_000, tombstones=tombstones)]]})
    assert len(told.encode()) < 30_000


def test_it_names_every_run_that_is_needed():
    told = Manifest(IDENTITY, {"s0": [[entry("a"), entry("b")], [entry("c")]], "p0c": [[entry("d")]]})
    assert told.run_names() == {"a", "b", "c", "d"}
    assert Manifest(IDENTITY, {}).run_names() == set()


def test_it_is_a_stored_value_of_its_own_kind():
    header, _ = decode(MANIFEST, Manifest(IDENTITY, {}).encode())
    assert header["identity"] == IDENTITY
