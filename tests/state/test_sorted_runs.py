"""Sorted runs: compacted by size and by tombstones, cut by bytes; no row lost, none revived."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from streamjoin.state.sorted_runs import CompactionPolicy, KeySet, RunNames, SortedRuns
from tests.tables import batch, by_key, one_hash, sorted_batch


def side_of(policy, *batches, layout=None):
    side = SortedRuns("s", layout or batches[0].layout, RunNames(), policy)
    for rows in batches:
        side.append(rows)
    return side


def payloads(side):
    return Counter(side.live().payload[0].to_pylist())


def delete(side, *keys, hash_function=None):
    given = {} if hash_function is None else {"hash_function": hash_function}
    return sum(hit.run.delete(hit.live()[1]) for hit in side.match(sorted_batch(keys, **given)))


# ---------------------------------------------------------------- merging by size classes


def test_size_classes_grow_by_the_fanout():
    policy = CompactionPolicy(fanout=4, smallest_class_rows=100)
    assert [policy.size_class(rows) for rows in (0, 1, 99)] == [0, 0, 0]
    assert [policy.size_class(rows) for rows in (101, 399, 401, 1_599, 1_601)] == [1, 1, 2, 2, 3]


@pytest.mark.parametrize("fanout", [2, 3, 6])
def test_few_tiers_and_few_rewrites(fanout):
    """At most fanout - 1 tiers per class; a row is rewritten about log(state / batch) / log(fanout) times."""
    rows, batches = 40, 300
    policy = CompactionPolicy(fanout=fanout, smallest_class_rows=rows)
    side = SortedRuns("s", batch([0]).layout, RunNames(), policy)
    for step in range(batches):
        side.append(sorted_batch(list(range(step * rows, (step + 1) * rows))))
        classes = Counter(policy.size_class(sum(map(len, tier))) for tier in side.tiers)
        assert max(classes.values()) < fanout
        assert len(side.tiers) <= (fanout - 1) * (max(classes) + 1)
    assert side.live_rows == rows * batches
    levels = math.log(batches) / math.log(fanout) + 1
    assert side.rewritten_rows <= rows * batches * levels


def test_small_appends_do_not_rewrite_a_large_run():
    policy = CompactionPolicy(fanout=4, smallest_class_rows=10)
    side = side_of(policy, sorted_batch(list(range(10_000))))
    for step in range(100):
        side.append(sorted_batch([10_000 + step]))
    assert side.rewritten_rows < 1_000
    assert max(len(run) for run in side.runs) == 10_000


@pytest.mark.parametrize("seed", range(10))
def test_merging_loses_no_row_and_adds_none(seed):
    random = np.random.default_rng(seed)
    policy = CompactionPolicy(fanout=2, run_bytes=int(random.integers(30, 400)), smallest_class_rows=1)
    side = SortedRuns("s", batch([0], payload=[0]).layout, RunNames(), policy)
    told = Counter()
    for step in range(30):
        keys = random.integers(0, 20, random.integers(0, 9)).tolist()
        payload = [step * 100 + i for i in range(len(keys))]
        side.append(sorted_batch(keys, payload=payload) if keys else side.layout.empty())
        told.update(payload)
    assert payloads(side) == told
    assert_tiers_in_order(side)


def assert_tiers_in_order(side):
    """The runs of one tier cover ascending hash ranges, each sorted in itself."""
    for tier in side.tiers:
        hashes = np.concatenate([run.batch.hash for run in tier])
        assert np.all(hashes[1:] >= hashes[:-1])


def test_every_run_has_a_name_of_its_own():
    names = RunNames()
    policy = CompactionPolicy(fanout=2, run_bytes=64, smallest_class_rows=1)
    side = SortedRuns("s", batch([0]).layout, names, policy)
    seen = set()
    for step in range(10):
        names.begin(step)
        before = {run.name for run in side.runs}
        side.append(sorted_batch([1, 1, 1, 1, 1]))  # equal batches are different runs
        new = {run.name for run in side.runs} - before
        assert not new & seen
        seen |= new
    assert len({run.name for run in side.runs}) == len(list(side.runs))


# ---------------------------------------------------------------- cut by bytes


def test_a_run_holds_at_most_run_bytes():
    policy = CompactionPolicy(run_bytes=1_000)
    side = side_of(policy, sorted_batch(list(range(1_000))))
    assert len(side.tiers) == 1
    assert len(side.tiers[0]) == math.ceil(1_000 / 62)  # 62 rows of 16 bytes each
    a_row = side.nbytes // side.live_rows
    assert all(run.nbytes <= 1_000 + a_row for run in side.runs)


def test_a_run_holds_at_most_run_bytes_where_one_key_is_heavy():
    """The rows of one key are adjacent, so their width must count, not only their number."""
    heavy, light = ["x" * 1_000] * 10, ["x"] * 190
    rows = sorted_batch([0] * 10 + list(range(1, 191)), payload=heavy + light)
    side = side_of(CompactionPolicy(run_bytes=2_000), rows)
    assert max(run.nbytes for run in side.runs) <= 2_000 + 1_100


def test_merged_runs_are_cut_by_hash_range():
    policy = CompactionPolicy(fanout=4, run_bytes=4_000, smallest_class_rows=100)
    batches = [sorted_batch(list(range(step * 200, step * 200 + 200))) for step in range(4)]
    side = side_of(policy, *batches)
    assert len(side.tiers) == 1
    assert len(side.tiers[0]) > 1
    assert all(run.nbytes <= 1.5 * 4_000 for run in side.runs)
    bounds = [run.hash_bounds for run in side.tiers[0]]
    assert all(before[1] < after[0] for before, after in itertools.pairwise(bounds))


@pytest.mark.parametrize("hash_function", [None, one_hash])
def test_one_key_larger_than_a_run(hash_function):
    """Its rows lie in several runs of a tier, and all of them are found, killed and merged."""
    given = {} if hash_function is None else {"hash_function": hash_function}
    policy = CompactionPolicy(fanout=2, run_bytes=200, smallest_class_rows=1)
    one = sorted_batch([7] * 50 + [8], payload=list(range(51)), **given)
    two = sorted_batch([7] * 50 + [9], payload=list(range(51, 102)), **given)
    side = side_of(policy, one, two)
    assert sum(len(run) for run in side.tiers[0]) == 102
    assert len(side.tiers[0]) > 10
    probe = sorted_batch([7, 8, 10], **given)
    assert by_key(probe, side.present(probe)) == {7: True, 8: True, 10: False}
    found = [row for hit in side.match(sorted_batch([7], **given)) for row in hit.live()[1].tolist()]
    assert len(found) == 100
    assert delete(side, 7, **given) == 100
    assert by_key(probe, side.present(probe)) == {7: False, 8: True, 10: False}
    side.drop_tombstoned()
    assert payloads(side) == Counter([50, 101])


def test_a_row_larger_than_a_run_is_a_run():
    policy = CompactionPolicy(run_bytes=10)
    side = side_of(policy, sorted_batch([1, 2, 3], payload=["x" * 100] * 3))
    assert [len(run) for run in side.runs] == [1, 1, 1]


# ---------------------------------------------------------------- tombstoned rows


@pytest.mark.parametrize("tombstone_share", [0.2, 0.5])
def test_a_tier_is_compacted_when_too_much_of_it_is_dead(tombstone_share):
    policy = CompactionPolicy(tombstone_share=tombstone_share)
    side = side_of(policy, sorted_batch(list(range(100))))
    allowed = int(100 * tombstone_share)
    delete(side, *range(allowed))
    side.drop_tombstoned()
    assert (side.live_rows, side.tombstoned_rows, side.rewritten_rows) == (100 - allowed, allowed, 0)
    delete(side, allowed)
    side.drop_tombstoned()
    assert (side.live_rows, side.tombstoned_rows) == (99 - allowed, 0)
    assert side.rewritten_rows == 99 - allowed


def test_a_run_without_a_live_row_is_dropped_and_costs_no_rewriting():
    policy = CompactionPolicy(fanout=6, smallest_class_rows=1)
    side = side_of(policy, sorted_batch(list(range(10))), sorted_batch(list(range(10, 30))))
    delete(side, *range(10))
    side.drop_tombstoned()
    assert [len(run) for run in side.runs] == [20]
    assert side.rewritten_rows == 0
    delete(side, *range(30))
    side.drop_tombstoned()
    assert side.tiers == []
    assert side.nbytes == 0


def test_a_dead_piece_of_a_living_tier_is_dropped():
    side = side_of(CompactionPolicy(run_bytes=400, tombstone_share=0.9), sorted_batch(list(range(100))))
    pieces = len(side.tiers[0])
    first = side.tiers[0][0]
    first.delete(np.arange(len(first)))
    side.drop_tombstoned()
    assert len(side.tiers[0]) == pieces - 1
    assert side.tombstoned_rows == 0


def test_tombstoned_rows_never_come_back():
    """Whatever is appended, merged and compacted after them."""
    policy = CompactionPolicy(fanout=2, run_bytes=120, tombstone_share=0.5, smallest_class_rows=1)
    side = SortedRuns("s", batch([0], payload=[0]).layout, RunNames(), policy)
    random, buried, alive = np.random.default_rng(1), set(), {}
    for step in range(60):
        key = step
        side.append(sorted_batch([key] * 3, payload=[10 * key + i for i in range(3)]))
        alive[key] = 3
        if alive and step % 2:
            victim = int(random.choice(list(alive)))
            assert delete(side, victim) == alive.pop(victim)
            buried.add(victim)
        if step % 5 == 0:
            side.drop_tombstoned()
        assert {value // 10 for value in payloads(side)} == set(alive)
        assert side.live_rows == sum(alive.values())
    probe = sorted_batch(sorted(buried))
    assert not side.present(probe).any()


def test_a_compacted_side_is_small_again():
    side = side_of(CompactionPolicy(fanout=4, smallest_class_rows=10), sorted_batch(list(range(1_000))))
    for step in range(3):
        side.append(sorted_batch([1_000 + step]))
    delete(side, *range(995))
    side.drop_tombstoned()
    assert side.live_rows == 8
    assert side.tombstoned_rows == 0
    assert len(side.tiers) == 1  # what is left is small enough to merge with the small tiers


# ---------------------------------------------------------------- looking


@pytest.mark.parametrize("hash_function", [None, one_hash])
def test_present_in_any_tier(hash_function):
    given = {} if hash_function is None else {"hash_function": hash_function}
    batches = [sorted_batch(keys, **given) for keys in ([1, 2], [2, 3], [4])]
    side = side_of(CompactionPolicy(), *batches)
    assert len(side.tiers) == 3
    probe = sorted_batch([1, 2, 2, 3, 4, 5], **given)
    assert by_key(probe, side.present(probe)) == {1: True, 2: True, 3: True, 4: True, 5: False}
    delete(side, 2, 4, **given)
    assert by_key(probe, side.present(probe)) == {1: True, 2: False, 3: True, 4: False, 5: False}


def test_nothing_is_held_of_nothing():
    side = SortedRuns("s", batch([0]).layout, RunNames())
    assert side.match(sorted_batch([1])) == []
    assert side.match(side.layout.empty()) == []
    assert side.present(sorted_batch([1])).tolist() == [False]
    assert len(side.live()) == 0
    side.append(side.layout.empty())
    side.drop_tombstoned()
    assert side.tiers == []


def test_live_rows_are_sorted():
    side = side_of(CompactionPolicy(), sorted_batch([3, 1]), sorted_batch([2, 1]))
    live = side.live()
    assert sorted(live.keys[0].to_pylist()) == [1, 1, 2, 3]
    assert np.all(live.hash[1:] >= live.hash[:-1])
    assert len(live.groups) == 3


# ---------------------------------------------------------------- sets of keys


@pytest.mark.parametrize("hash_function", [None, one_hash])
def test_a_set_of_keys(hash_function):
    given = {} if hash_function is None else {"hash_function": hash_function}
    keys = KeySet("a", batch([0]).layout, RunNames(), CompactionPolicy(fanout=2, smallest_class_rows=1))
    probe = sorted_batch([1, 2, 3, 4], **given)
    assert not keys.contains(probe).any()
    keys.add(sorted_batch([1, 1, 2], **given))
    keys.add(sorted_batch([2, 3], **given))
    assert len(keys) == 3
    assert by_key(probe, keys.contains(probe)) == {1: True, 2: True, 3: True, 4: False}
    assert keys.remove(sorted_batch([2, 4], **given)) == 1
    assert keys.remove(sorted_batch([2, 4], **given)) == 0
    assert by_key(probe, keys.contains(probe)) == {1: True, 2: False, 3: True, 4: False}
    keys.add(sorted_batch([2], **given))
    assert len(keys) == 3
    assert keys.remove(probe) == 3
    assert keys.side.tiers == []
