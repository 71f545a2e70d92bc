"""An index finds what a search of the whole array finds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamjoin.columnar.hash_index import HashIndex
from streamjoin.columnar.match import match_unique

LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
hashes = st.one_of(st.integers(LEAST, MOST), st.integers(-5, 5), st.sampled_from([LEAST, MOST - 1, MOST]))


def same(values, asked):
    found = HashIndex.of(values).find(asked)
    assert [each.tolist() for each in found] == [each.tolist() for each in match_unique(asked, values)]


@given(st.sets(hashes, min_size=1), st.sets(hashes))
def test_any_values_are_found(values, others):
    """Also hashes beyond the ends, which no run is asked for unless its ends are not known."""
    same(np.array(sorted(values), np.int64), np.array(sorted({*values, *others}), np.int64))


def test_many_spread_values_are_found():
    random = np.random.default_rng(1)
    values = np.unique(random.integers(LEAST, MOST, 20_000))
    same(values, np.unique(np.concatenate((values[::3], random.integers(LEAST, MOST, 20_000)))))


def test_bits_deny_most_of_what_is_not_there():
    random = np.random.default_rng(2)
    index = HashIndex.of(np.unique(random.integers(LEAST, MOST, 100_000)))
    assert np.unpackbits(index.bits).mean() < 0.15
    assert index.nbytes < 6 * 100_000


def test_values_that_crowd_are_found():
    """Most of them fall into one cell, since the last is far from all others."""
    same(np.array([*range(0, 100_000, 2), MOST]), np.arange(-3, 200_000))
