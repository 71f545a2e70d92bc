"""A run: sorted rows that never change, and the flags beside them."""

import itertools
import random

import numpy as np
import pyarrow as pa
import pytest

from streamjoin.columnar.batch import Batch
from streamjoin.columnar.keys import hash_keys
from streamjoin.punctuation import Range
from streamjoin.state.run import Run, match
from tests.tables import by_key, one_hash, sorted_batch


def run_of(keys, **given):
    return Run("1-s-1", sorted_batch(keys, **given))


def rows_of(run, key):
    return np.flatnonzero(np.array(run.batch.keys[0].to_pylist()) == key)


def kill_keys(run, *keys):
    hit = match(sorted_batch(keys), run)
    return run.delete_groups(hit.start, hit.count)


def live_keys(run):
    return sorted(run.batch.where(run.live_mask()).keys[0].to_pylist())


# ---------------------------------------------------------------- tombstoned rows


def test_a_row_dies_once():
    run = run_of([1, 2, 2, 3])
    assert (len(run), run.live_rows, run.tombstoned_rows) == (4, 4, 0)
    assert run.delete(rows_of(run, 2)) == 2
    assert run.delete(rows_of(run, 2)) == 0
    assert (run.live_rows, run.tombstoned_rows) == (2, 2)
    assert live_keys(run) == [1, 3]


def test_killing_nothing_costs_no_flags():
    run = run_of([1, 2])
    assert run.delete(np.empty(0, np.int64)) == 0
    assert run.tombstones is None


@pytest.mark.parametrize("chosen", [(2,), (1, 3), (1, 2, 3), (1, 2, 3, 4, 5, 6, 7, 8, 9)])
@pytest.mark.parametrize("before", [(), (2,), (3, 9)])
def test_all_rows_of_a_key_die_however_many_keys_there_are(chosen, before):
    """A few rows are marked one by one, many are flooded: the same rows die."""
    keys = [key for key in range(1, 10) for _ in range(key)]
    run = run_of(keys)
    for key in before:
        run.delete(rows_of(run, key)[:1])
    lived = sum(np.count_nonzero(run.alive(rows_of(run, key))) for key in chosen)
    assert kill_keys(run, *chosen) == lived
    assert kill_keys(run, *chosen) == 0
    left = [key for key in keys if key not in chosen]
    for key in before:
        if key not in chosen:
            left.remove(key)
    assert live_keys(run) == sorted(left)
    assert run.tombstoned_rows == len(keys) - len(left)


def test_a_key_lives_while_one_of_its_rows_does():
    run = run_of([1, 2, 2, 3])
    run.delete(rows_of(run, 2)[:1])
    run.delete(rows_of(run, 3))
    assert by_key(run.batch, run.hit(np.arange(3)).present()) == {1: True, 2: True, 3: False}


def test_flags_that_were_stored_count():
    batch = sorted_batch([1, 2, 3])
    run = Run("1-s-1", batch, tombstones=np.array([True, False, True]))
    assert (run.tombstoned_rows, run.live_rows) == (2, 1)


# ---------------------------------------------------------------- time


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (0, 100, [10, 20, 20, 30]),
        (10, 30, [10, 20, 20]),  # the start belongs to it, the stop does not
        (11, 30, [20, 20]),
        (20, 21, [20, 20]),
        (30, 31, [30]),
        (31, 99, []),
        (0, 10, []),
        (20, 20, []),
    ],
)
def test_live_rows_between_two_times(start, stop, expected):
    run = run_of([1, 2, 3, 4], times=[30, 20, 10, 20])
    assert sorted(run.batch.time[run.live_between(start, stop)].tolist()) == expected


def test_tombstoned_rows_are_at_no_time():
    run = run_of([1, 2, 3, 4], times=[30, 20, 10, 20])
    run.delete(rows_of(run, 2))
    for start, stop, expected in ((0, 100, [10, 20, 30]), (15, 25, [20])):
        assert sorted(run.batch.time[run.live_between(start, stop)].tolist()) == expected


def test_bounds():
    run = run_of([1, 2, 3], times=[30, 10, 20])
    assert run.time_bounds == (10, 30)
    low, high = run.hash_bounds
    assert low == run.batch.hash.min()
    assert high == run.batch.hash.max()


# ---------------------------------------------------------------- matching


def matched(probe, run):
    """{key: live payloads} of what a probe finds."""
    hit = match(probe, run)
    names = probe.distinct_keys().keys[0].to_pylist()
    found = {names[group]: [] for group in hit.probe.tolist()}
    position, rows = hit.live()
    for at, row in zip(position.tolist(), rows.tolist(), strict=True):
        found[names[hit.probe[at]]].append(run.batch.payload[0][row].as_py())
    return {key: sorted(values) for key, values in found.items()}


def test_a_probe_finds_its_keys_and_their_live_rows():
    run = run_of([1, 2, 2, 3], payload=["a", "b", "c", "d"])
    probe = sorted_batch([2, 3, 4, 2])
    assert matched(probe, run) == {2: ["b", "c"], 3: ["d"]}
    run.delete(rows_of(run, 3))
    assert matched(probe, run) == {2: ["b", "c"], 3: []}
    hit = match(probe, run)
    names = [probe.distinct_keys().keys[0].to_pylist()[group] for group in hit.probe]
    assert dict(zip(names, hit.present().tolist(), strict=True)) == {2: True, 3: False}


@pytest.mark.parametrize("size", [2, 100])
def test_presence_is_the_same_for_few_keys_and_for_many(size):
    run = run_of(list(range(100)))
    run.delete(np.arange(0, 100, 2))
    probe = sorted_batch(list(range(size)))
    hit = match(probe, run)
    parents = set(hit.live()[0].tolist())
    assert hit.present().tolist() == [i in parents for i in range(size)]


def test_a_hash_that_is_equal_is_verified_on_the_key():
    run = run_of([1, 2, 2, 3], payload=["a", "b", "c", "d"], hash_function=one_hash)
    assert matched(sorted_batch([2, 4], hash_function=one_hash), run) == {2: ["b", "c"]}
    assert matched(sorted_batch([4], hash_function=one_hash), run) == {}
    assert matched(sorted_batch([3, 1, 2], hash_function=one_hash), run) == {
        1: ["a"],
        2: ["b", "c"],
        3: ["d"],
    }


def test_a_single_key_that_collides_with_a_single_key():
    """Neither side sees a collision within itself."""
    run = run_of([1], payload=["a"], hash_function=one_hash)
    assert matched(sorted_batch([2], hash_function=one_hash), run) == {}
    assert matched(sorted_batch([1], hash_function=one_hash), run) == {1: ["a"]}


def test_nothing_in_common():
    run = run_of([1, 2])
    hit = match(sorted_batch([7, 8]), run)
    assert len(hit.probe) == 0
    assert hit.live()[0].tolist() == []
    assert hit.present().tolist() == []


@pytest.mark.parametrize("hash_function", [hash_keys, one_hash])
def test_a_long_run_is_searched_alike_whether_its_keys_are_known_or_not(hash_function):
    """A run that was just mapped from a file knows only whether keys collide in it."""
    rows = sorted_batch([key for key in range(50) for _ in range(3)], hash_function=hash_function)
    for probe_keys in ([7], [7, 99], [99], list(range(0, 60, 2))):
        probe = sorted_batch(probe_keys, hash_function=hash_function)
        known = Run("known", rows)
        assert known.collided == (hash_function is one_hash)
        fresh = Run("fresh", Batch(rows.layout, rows.data), known_collided=known.collided)
        found = [
            sorted(rows.keys[0].take(pa.array(match(probe, run).live()[1])).to_pylist())
            for run in (known, fresh)
        ]
        assert found[0] == found[1] == sorted(key for key in probe_keys if key < 50 for _ in range(3))


def test_presence_in_stretches_that_are_partly_dead():
    run = run_of([key for key in range(10) for _ in range(4)])
    for key in range(10):
        run.delete(rows_of(run, key)[: key % 5])  # keys 4 and 9 are tombstoned
    for probe_keys in ([4], [9, 3], list(range(10))):
        probe = sorted_batch(probe_keys)
        hit = match(probe, run)
        names = [probe.distinct_keys().keys[0][group].as_py() for group in hit.probe.tolist()]
        found = dict(zip(names, hit.present().tolist(), strict=True))
        assert found == {key: key % 5 != 4 for key in probe_keys}


@pytest.mark.parametrize(
    ("values", "bounds"),
    [
        (list(range(-50, 50)), [(None, 3), (-7, None), (4, 9), (9, 4), (200, None), (None, None)]),
        ([f"k{i:02}" for i in range(40)], [(None, "k07"), ("k1", "k2"), ("", "z"), ("k39", None)]),
    ],
)
def test_a_range_is_looked_up_by_value(values, bounds):
    rng = random.Random(7)
    run = run_of(rng.choices(values, k=200))
    keys = run.batch.distinct_keys().keys[0]
    for low, high in bounds:
        for low_closed, high_closed in itertools.product((True, False), repeat=2):
            pattern = Range(low, high, low_closed, high_closed)
            assert run.groups_within(pattern).tolist() == np.flatnonzero(pattern.mask(keys)).tolist()


def test_matched_flags_are_of_live_rows_and_cleared_never():
    run = run_of([1, 2, 2, 3])
    assert run.unmatched(np.arange(4)).tolist() == [0, 1, 2, 3]
    run.mark_matched(rows_of(run, 2)[:1])
    run.delete(rows_of(run, 3))
    assert len(run.unmatched(np.arange(4))) == 3
    assert np.count_nonzero(run.matched_between(0, 4)) == 1
    assert len(run.matched_between(0, 4)) == 3


# ---------------------------------------------------------------- the index


def indexed(run):
    return "_index" in run.__dict__


def test_a_long_run_is_indexed_once_enough_was_asked_of_it_and_finds_the_same():
    keys = [key for key in range(3000) for _ in range(1 + key % 3)]
    run, few, many = run_of(keys), sorted_batch([1, 2, 5000]), sorted_batch(range(0, 6000, 2))
    before = match(few, run)
    assert not indexed(run)
    found = match(many, run)
    assert indexed(run)
    assert sorted(many.groups.start[found.probe].tolist()) == sorted(found.probe.tolist())
    assert found.count.sum() == sum(1 + key % 3 for key in range(0, 3000, 2))
    rows = np.concatenate([np.arange(a, a + n) for a, n in zip(found.start, found.count, strict=True)])
    assert sorted(run.batch.keys[0].to_numpy()[rows].tolist()) == [key for key in keys if key % 2 == 0]
    again = match(few, run)
    assert [again.start.tolist(), again.count.tolist()] == [before.start.tolist(), before.count.tolist()]


def test_an_index_counts_as_memory_and_goes_with_the_rows():
    run = run_of(range(5000))
    alone = run.resident_bytes
    match(sorted_batch(range(5000)), run)
    assert run.resident_bytes > alone
    run.unload()
    assert not indexed(run)
    assert run.asked == 0


def test_a_short_run_is_not_indexed():
    run = run_of(range(100))
    match(sorted_batch(range(100)), run)
    assert not indexed(run)
