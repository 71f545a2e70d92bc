"""The index over waiting tuples finds what a dictionary finds, whatever came and left."""

from collections import Counter, deque

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamjoin.columnar.batch import Batch, Layout
from streamjoin.columnar.keys import hash_keys
from streamjoin.enrich import waiting_index
from streamjoin.enrich.waiting_index import WaitingIndex
from streamjoin.state.run import Run
from tests.tables import one_hash

LAYOUT = Layout((pa.int64(),), payload_types=(pa.int64(),))


def tuples(keys: list[int], first: int, hashed: object) -> Batch:
    column = pa.array(keys, pa.int64())
    numbers = pa.array(range(first, first + len(keys)), pa.int64())
    return LAYOUT.batch([pa.array(hashed([column])), column, numbers]).sorted()  # type: ignore[operator]


def pairs(rows: Batch) -> list[tuple[int, int]]:
    return list(zip(rows.keys[0].to_pylist(), rows.payload[0].to_pylist(), strict=True))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.one_of(st.lists(st.integers(0, 6), min_size=1, max_size=5), st.just("leave")), max_size=40),
    st.lists(st.integers(0, 8), max_size=6),
    st.sampled_from([hash_keys, one_hash]),
)
def test_it_finds_what_waits(happens: list[list[int] | str], sought: list[int], hashed: object) -> None:
    index, waiting, number = WaitingIndex(LAYOUT), deque(), 0
    for what in happens:
        if what != "leave":
            index.add(chunk := tuples(what, number, hashed))
            waiting.append(chunk)
            number += len(what)
        elif waiting:
            index.drop_oldest()
            waiting.popleft()
    every = [one for chunk in waiting for one in pairs(chunk)]
    found, numbers = index.find(tuples(sought, 0, hashed))
    got = pairs(found)
    assert sorted(got) == sorted(one for one in every if one[0] in sought)
    rows = [pairs(waiting[i])[row] for i, some in index.by_chunk(numbers) for row in some]
    assert sorted(rows) == sorted(got)
    count = Counter(key for key, _ in every)
    assert set(index.keys().keys[0].to_pylist()) == count.keys()
    keys = tuples(sorted(set(sought)), 0, hashed).only_keys()
    if len(keys):
        counted = dict(zip(keys.keys[0].to_pylist(), index.count(Run("keys", keys)).tolist(), strict=True))
        assert counted == {key: count[key] for key in set(sought)}


def test_a_hundred_chunks_stand_in_a_few_parts() -> None:
    """A turn costs a lookup in each part, not in each chunk."""
    rng = np.random.default_rng(1)
    index, most = WaitingIndex(LAYOUT), 0
    for turn in range(400):
        index.add(tuples(rng.integers(0, 10_000, 50).tolist(), 0, hash_keys))
        if turn >= 100:
            index.drop_oldest()
        most = max(most, len(index._parts))
    assert most <= 3 * waiting_index._FANOUT
    assert len(index._chunks) == 100


@pytest.mark.parametrize("chunks", [0, 1])
def test_an_empty_one_finds_nothing(chunks: int) -> None:
    index = WaitingIndex(LAYOUT)
    for _ in range(chunks):
        index.add(tuples([1], 0, hash_keys))
        index.drop_oldest()
    found, numbers = index.find(tuples([1], 0, hash_keys))
    assert (len(found), len(numbers), len(index.keys())) == (0, 0, 0)
