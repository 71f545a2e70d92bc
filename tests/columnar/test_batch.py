"""Rows sorted by hash, equal keys adjacent even where two keys share a hash; and the groups of keys."""

import numpy as np
import pyarrow as pa
import pytest

from streamjoin.columnar.batch import Batch, Layout, concat

KEYS = Layout((pa.int64(),), payload_types=(pa.string(),))
PAIRS = Layout((pa.int64(), pa.string()))


def batch(hashes, keys, payload=None):
    texts = [str(i) for i in range(len(keys))] if payload is None else payload
    columns = [pa.array(hashes, pa.int64()), pa.array(keys, pa.int64()), pa.array(texts, pa.string())]
    return KEYS.batch(columns)


def keys_of(found):
    return found.keys[0].to_pylist()


def assert_well_sorted(found: Batch, given: Batch) -> None:
    """Ascending hashes; each key in one stretch; the same rows."""
    hashes, keys = found.hash.tolist(), keys_of(found)
    assert hashes == sorted(hashes)
    starts = [i for i in range(len(keys)) if i == 0 or keys[i] != keys[i - 1]]
    assert len({(hashes[i], keys[i]) for i in starts}) == len(starts)
    assert sorted(map(str, found.data.to_pylist())) == sorted(map(str, given.data.to_pylist()))


def test_the_worked_number():
    found = batch([9, 9, 2], [7, 7, 3]).sorted()
    assert keys_of(found) == [3, 7, 7]
    assert found.groups.start.tolist() == [0, 1]
    assert found.groups.count.tolist() == [1, 2]
    assert found.groups.hash.tolist() == [2, 9]
    assert not found.groups.collided


@pytest.mark.parametrize(
    ("hashes", "keys", "groups"),
    [
        ([5, 5, 5, 5], [1, 2, 1, 2], [(0, 2), (2, 2)]),  # two keys, one hash, mixed
        ([5, 5, 5], [1, 2, 3], [(0, 1), (1, 1), (2, 1)]),
        ([9, 5, 5, 5, 1], [8, 1, 2, 1, 7], [(0, 1), (1, 2), (3, 1), (4, 1)]),
        ([5, 5, 6, 6, 6], [1, 2, 3, 4, 3], [(0, 1), (1, 1), (2, 2), (4, 1)]),  # two stretches
        ([6, 5, 6, 5, 6, 5], [3, 1, 4, 2, 3, 1], [(0, 2), (2, 1), (3, 2), (5, 1)]),
        ([1, 1, 2], [5, 5, 6], [(0, 2), (2, 1)]),
    ],
)
def test_keys_that_share_a_hash_are_kept_apart(hashes, keys, groups):
    given = batch(hashes, keys)
    for found in (given.sorted(), given.sorted(in_runs=True), given.take(given.sort_order())):
        assert_well_sorted(found, given)
        pairs = list(zip(found.groups.start.tolist(), found.groups.count.tolist(), strict=True))
        assert pairs == groups
        distinct = len(set(zip(hashes, keys, strict=True)))
        assert found.groups.collided == (len(set(hashes)) < distinct)


@pytest.mark.parametrize("seed", range(30))
def test_any_rows_with_few_hashes(seed):
    random = np.random.default_rng(seed)
    keys = random.integers(0, 8, random.integers(0, 30))
    given = batch(keys % 3, keys)
    found = given.sorted()
    assert_well_sorted(found, given)
    assert len(found.groups) == len(set(keys.tolist()))
    assert keys_of(found.distinct_keys()) == [keys_of(found)[i] for i in found.groups.start]
    assert (
        found.groups.of_rows().tolist()
        == np.repeat(np.arange(len(found.groups)), found.groups.count).tolist()
    )


def test_composite_keys_collide_on_either_column():
    rows = [(1, "a"), (1, "b"), (1, "a"), (2, "a"), (1, "b")]
    given = PAIRS.batch(
        [pa.array([4] * 5), pa.array([one for one, _ in rows]), pa.array([two for _, two in rows])]
    )
    found = given.sorted()
    assert found.groups.count.tolist() == [2, 2, 1]
    assert found.distinct_keys().data.to_pydict() == {"h": [4] * 3, "k0": [1, 1, 2], "k1": ["a", "b", "a"]}


def test_what_is_sorted_is_left_as_it_is():
    given = batch([1, 2, 2, 9], [1, 2, 2, 9])
    assert given.sorted() is given
    assert given.sort_order().tolist() == [0, 1, 2, 3]


def test_stretches_one_after_another():
    given = batch([1, 4, 7, 2, 4, 9], [1, 4, 7, 2, 4, 9])
    found = given.sorted(in_runs=True)
    assert keys_of(found) == [1, 2, 4, 4, 7, 9]
    assert found.payload[0].to_pylist() == ["0", "3", "1", "4", "2", "5"]


def test_no_rows():
    empty = KEYS.empty()
    assert len(empty) == len(empty.groups) == len(empty.sorted()) == len(empty.distinct_keys()) == 0
    assert empty.sort_order().tolist() == []
    assert empty.where(np.zeros(0, np.bool_)).data.num_rows == 0


def test_columns_of_a_layout():
    timed = Layout((pa.int64(), pa.string()), timed=True, payload_types=(pa.float64(),))
    assert timed.schema.names == ["h", "t", "k0", "k1", "p0"]
    assert timed.keys_only.schema.names == ["h", "k0", "k1"]
    given = timed.batch([pa.array([1]), pa.array([5]), pa.array([7]), pa.array(["x"]), pa.array([0.5])])
    assert given.time.tolist() == [5]
    assert [column.to_pylist() for column in given.keys] == [[7], ["x"]]
    assert [column.to_pylist() for column in given.payload] == [[0.5]]
    assert given.only_keys().data.to_pylist() == [{"h": 1, "k0": 7, "k1": "x"}]


def test_choosing_rows():
    given = batch([1, 2, 3], [1, 2, 3])
    everything, some = np.ones(3, np.bool_), np.array([True, False, True])
    assert given.where(everything) is given
    assert keys_of(given.where(some)) == [1, 3]
    assert keys_of(given.take(np.array([2, 2, 0]))) == [3, 3, 1]
    assert keys_of(given.slice(1, 2)) == [2, 3]


def test_one_after_another():
    one, two = batch([1], [1]), batch([2], [2])
    assert keys_of(concat(KEYS, [one, KEYS.empty(), two])) == [1, 2]
    assert concat(KEYS, [KEYS.empty(), one]) is one
    assert len(concat(KEYS, [])) == 0
