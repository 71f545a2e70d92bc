"""What one input has closed: single keys, ranges, patterns, the end; and what of it is remembered."""

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.columnar.batch import Layout
from streamjoin.columnar.keys import hash_keys
from streamjoin.punctuation import ANY, Constant, Empty, Enumeration, between
from streamjoin.state.closed_keys import ClosedKeys, covers, matching_keys
from streamjoin.state.sorted_runs import CompactionPolicy, RunNames, SortedRuns
from tests.tables import batch, by_key, one_hash, sorted_batch

PAIR = Layout((pa.int64(), pa.string()))


def closed_keys(layout=None):
    return ClosedKeys(
        "p0", layout or batch([0]).layout, RunNames(), CompactionPolicy(fanout=2, smallest_class_rows=1)
    )


def closed(told, *keys, **given):
    probe = sorted_batch(keys, **given)
    return {key for key, is_closed in by_key(probe, told.closed(probe)).items() if is_closed}


def pairs(*rows):
    columns = [
        pa.array([one for one, _ in rows], pa.int64()),
        pa.array([two for _, two in rows], pa.string()),
    ]
    return PAIR.batch([pa.array(hash_keys(columns)), *columns]).sorted()


def closed_pairs(told, *rows):
    probe = pairs(*rows)
    found = zip(*(key.to_pylist() for key in probe.distinct_keys().keys), strict=True)
    return {row for row, is_closed in zip(found, told.closed(probe).tolist(), strict=True) if is_closed}


# ---------------------------------------------------------------- single keys


def test_nothing_is_closed_at_first():
    told = closed_keys()
    assert told.empty
    assert len(told) == 0
    assert closed(told, 1, 2) == set()


def test_a_key_is_closed_once():
    told = closed_keys()
    told.close_keys(sorted_batch([1, 2, 2]))
    told.close_keys(sorted_batch([2, 3]))
    assert closed(told, 1, 2, 3, 4) == {1, 2, 3}
    assert len(told) == 3
    assert not told.empty


def test_a_collision_never_closes_an_open_key():
    told = closed_keys()
    told.close_keys(sorted_batch([1], hash_function=one_hash))
    assert closed(told, 1, 2, hash_function=one_hash) == {1}
    assert closed(told, 2, hash_function=one_hash) == set()


def test_forgotten_keys_are_open_again_and_cost_nothing():
    told = closed_keys()
    told.close_keys(sorted_batch([1, 2]))
    told.see(sorted_batch([2, 3]))
    told.forget(sorted_batch([1, 2, 3, 4]))
    assert closed(told, 1, 2, 3) == set()
    assert len(told) == 0
    assert told.empty


def test_a_shown_key_is_told_from_a_closed_one():
    told = closed_keys()
    told.close_keys(sorted_batch([1]))
    told.see(sorted_batch([2]))
    assert closed(told, 1, 2, 3) == {1, 2}
    probe = sorted_batch([1, 2, 3])
    assert by_key(probe, told.closed_by_punctuation(probe)) == {1: True, 2: False, 3: False}


def test_100_000_keys_at_once():
    told = closed_keys()
    told.close_keys(sorted_batch(list(range(0, 100_000, 2))))
    probe = sorted_batch(list(range(100_000)))
    found = by_key(probe, told.closed(probe))
    assert all(is_closed == (key % 2 == 0) for key, is_closed in found.items())


# ---------------------------------------------------------------- ranges and the end


def test_a_range_absorbs_the_single_keys_it_covers():
    told = closed_keys()
    told.close_keys(sorted_batch([1, 5, 9]))
    told.close_pattern((between(4, 6),))
    assert closed(told, 1, 4, 5, 6, 7, 9) == {1, 4, 5, 6, 9}
    assert len(told) == 3  # two keys and a range
    told.close_keys(sorted_batch([5, 6]))
    assert len(told) == 3


def test_ranges_merge():
    told = closed_keys()
    for low in (1, 7, 4):
        told.close_pattern((between(low, low + 2),))
    assert closed(told, 0, 1, 5, 9, 10) == {1, 5, 9}
    assert len(told) == 1


def test_a_range_is_not_forgotten_with_its_keys():
    told = closed_keys()
    told.close_pattern((between(1, 5),))
    told.forget(sorted_batch([1, 2, 3, 4, 5]))
    assert closed(told, 1, 5, 6) == {1, 5}


def test_the_end_covers_everything():
    told = closed_keys()
    told.close_keys(sorted_batch([1]))
    told.close_pattern((ANY,))
    assert told.ended
    assert closed(told, 1, 2) == {1, 2}
    assert len(told.constants) == 0
    assert by_key(sorted_batch([7]), told.covered_widely(sorted_batch([7]))) == {7: True}


def test_an_empty_punctuation_says_nothing():
    told = closed_keys()
    told.close_pattern((Empty(),))
    assert told.empty


def test_what_is_covered_widely():
    told = closed_keys()
    told.close_keys(sorted_batch([1]))
    told.close_pattern((between(4, 6),))
    probe = sorted_batch([1, 4, 7])
    assert by_key(probe, told.covered_widely(probe)) == {1: False, 4: True, 7: False}


def test_a_range_over_keys_without_order_is_refused():
    told = closed_keys(Layout((pa.list_(pa.int64()),)))
    with pytest.raises(sj.BadInput, match="has no meaning; punctuate single keys"):
        told.close_pattern((between(1, 5),))


# ---------------------------------------------------------------- patterns of composite keys

PLACES = ((1, "a"), (1, "b"), (2, "a"), (3, "c"))


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ((Constant(1), ANY), {(1, "a"), (1, "b")}),
        ((ANY, Constant("a")), {(1, "a"), (2, "a")}),
        ((between(2, None), ANY), {(2, "a"), (3, "c")}),
        ((between(1, 2), Constant("a")), {(1, "a"), (2, "a")}),
        ((Enumeration((1, 3)), between("b", None)), {(1, "b"), (3, "c")}),
        ((Constant(1), Empty()), set()),
        ((ANY, ANY), set(PLACES)),
    ],
    ids=lambda value: None if isinstance(value, set) else str(value),  # a set of texts has no fixed order
)
def test_patterns_over_two_columns(patterns, expected):
    told = closed_keys(PAIR)
    told.close_pattern(patterns)
    assert closed_pairs(told, *PLACES) == expected


def test_patterns_absorb_keys_and_narrower_patterns():
    told = closed_keys(PAIR)
    told.close_keys(pairs((1, "a"), (2, "a")))
    told.close_pattern((Constant(1), between("a", "c")))
    assert len(told) == 2
    told.close_pattern((Constant(1), ANY))  # covers the one before
    assert len(told) == 2
    told.close_pattern((Constant(1), Constant("x")))  # is covered
    assert len(told) == 2
    assert closed_pairs(told, (1, "z"), (2, "a"), (2, "b")) == {(1, "z"), (2, "a")}


def test_covering():
    assert covers((ANY, Constant(1)), (Constant(5), Constant(1)))
    assert not covers((Constant(5), Constant(1)), (ANY, Constant(1)))
    assert covers((between(1, 9),), (Enumeration((2, 3)),))


# ---------------------------------------------------------------- which held keys a punctuation touches


def test_keys_with_a_live_row_that_match():
    side = SortedRuns("s", batch([0]).layout, RunNames())
    side.append(sorted_batch([1, 2, 2, 3]))
    side.append(sorted_batch([2, 9]))
    for hit in side.match(sorted_batch([3])):
        hit.run.delete(hit.live()[1])
    found = matching_keys(side, (between(2, 5),))
    assert [keys.keys[0].to_pylist() for keys in found] == [[2], [2]]
    assert matching_keys(side, (between(50, 60),)) == []


def test_seen_keys_of_a_set_that_was_emptied_are_not_closed():
    told = closed_keys()
    told.see(sorted_batch([1]))
    told.forget(sorted_batch([1]))
    assert not told.closed(sorted_batch([1])).any()
    assert np.array_equal(told.closed(batch([])), np.zeros(0, np.bool_))
