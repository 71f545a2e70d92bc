"""An index finds what a search of the whole array finds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin.kernels.hash_index import HashIndex
from streamjoin.kernels.match import find_stretches

LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
hashes = st.one_of(st.integers(LEAST, MOST), st.integers(-5, 5), st.sampled_from([LEAST, MOST - 1, MOST]))


def same(values, asked):
    found = HashIndex.of(values).find(asked)
    assert [each.tolist() for each in found] == [each.tolist() for each in find_stretches(asked, values)]


@given(st.lists(hashes, min_size=1), st.sets(hashes))
def test_any_values_are_found_with_their_repeats(values, others):
    """Also hashes beyond the ends, which no run is asked for unless its ends are not known."""
    same(np.array(sorted(values), np.int64), np.array(sorted({*values, *others}), np.int64))


@pytest.mark.parametrize("most_rows", [1, 2, 1000])
def test_many_spread_values_are_found(most_rows):
    random = np.random.default_rng(1)
    distinct = np.unique(random.integers(LEAST, MOST, 20_000))
    values = np.repeat(distinct, random.integers(1, most_rows + 1, len(distinct)))
    asked = np.unique(np.concatenate((distinct[::3], random.integers(LEAST, MOST, 20_000))))
    same(values, asked)


def test_bits_deny_most_of_what_is_not_there():
    random = np.random.default_rng(2)
    index = HashIndex.of(np.sort(random.integers(LEAST, MOST, 100_000)))
    assert np.unpackbits(index.bits).mean() < 0.15
    assert index.nbytes < 6 * 100_000


def test_a_key_with_most_rows_hides_no_other():
    values = np.sort(np.concatenate((np.full(50_000, 7), np.arange(0, 100_000, 2))))
    same(values, np.arange(-3, 200_000))
