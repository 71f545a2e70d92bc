"""The ceiling of a cache in front of MESHJOIN, against a cache that was filled greedily."""

import numpy as np
import pytest

from lab.papers.ssbj_ceiling import ceiling, impossible, most_hits


@pytest.mark.parametrize("memory", [0.01, 0.1])
def test_no_cache_hits_more_often_than_the_bound_says(memory):
    rows = 200_000
    random = np.random.default_rng(1)
    tuples = np.bincount(random.integers(0, rows, rows), minlength=rows)
    probability = 1 / np.arange(1, rows + 1)
    probability /= probability.sum()
    best = np.argsort(-probability / np.maximum(tuples, 1e-9))
    fits = np.cumsum(tuples[best]) <= memory * rows
    assert probability[best][fits].sum() == pytest.approx(most_hits(rows, memory), abs=0.03)


def test_seven_times_at_one_percent_is_impossible_at_the_papers_size_and_at_ours():
    for rows in (100_000_000, 1_000_000):
        assert ceiling(most_hits(rows, 0.01)) < 7
        assert "not 7" in impossible(rows, 0.01, 7)
        assert impossible(rows, 0.1, 8) is None
