"""The papers' arrival patterns: true punctuations, their shape, and the same from the same seed."""

from datetime import UTC, datetime
from itertools import groupby, pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamjoin as sj
from lab.generators.patterns import (
    NOWHERE,
    PATTERN_SCHEMA,
    StreamPattern,
    clustered,
    pattern,
    punctuated,
    uniform,
    unique,
)
from streamjoin.errors import InvalidJoin

SEEDS = range(20)
orders = st.sampled_from(["asc", "desc", "random"])
any_pattern = st.builds(
    StreamPattern,
    order=orders,
    size=st.sampled_from([None, 0.5, 1, 3, 20]),
    match=st.sampled_from([0, 10, 40, 99, 100]),
    spread=st.sampled_from([None, 1, 4]),
    irrelevant=st.sampled_from([0, 0.3, 1]),
    first_key=st.integers(-50, 50),
)
steady = settings(deadline=None, max_examples=200)


def columns(table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    return table["k"].to_numpy(), table["is_end"].to_numpy()


def gaps_us(table: pa.Table) -> np.ndarray:
    return np.diff(table["t"].cast(pa.int64()).to_numpy())


def segments(table: pa.Table) -> list[tuple[np.ndarray, int]]:
    """The keys of the tuples before each punctuation, and its key."""
    key, is_end = columns(table)
    ends = np.flatnonzero(is_end)
    return [(key[start + 1 : end], key[end]) for start, end in pairwise([-1, *ends])]


# ---------------------------------------------------------------- every pattern


@steady
@given(any_pattern, st.integers(0, 200), st.integers(0, 2**40))
def test_no_tuple_comes_after_its_punctuation_and_every_key_ends_once(chosen, rows, seed):
    table = chosen.table(rows=rows, seed=seed)
    key, is_end = columns(table)
    assert table.schema == PATTERN_SCHEMA
    assert table["v"].drop_null().to_pylist() == list(range(rows))
    assert table["v"].is_null().to_pylist() == is_end.tolist()
    domain = list(range(chosen.first_key, chosen.first_key + chosen.keys(rows)))
    assert set(key[~is_end]) <= set(domain)
    assert sorted(key[is_end] - NOWHERE * (key[is_end] >= NOWHERE // 2)) == domain
    last_tuple = {each: place for place, each in enumerate(key) if not is_end[place]}
    for place in np.flatnonzero(is_end):
        assert last_tuple.get(key[place], -1) < place
    assert (gaps_us(table) >= 0).all()
    assert (gaps_us(table)[is_end[1:]] == 0).all()  # a punctuation has the time of what came before it


@steady
@given(any_pattern, st.integers(1, 100), st.integers(0, 2**40))
def test_the_same_seed_gives_the_same_stream_and_punctuations_change_no_tuple(chosen, rows, seed):
    table = chosen.table(rows=rows, seed=seed)
    assert chosen.table(rows=rows, seed=seed).equals(table)
    assert not chosen.table(rows=rows, seed=seed + 1).equals(table)
    alone = {name: getattr(chosen, name) for name in chosen.__slots__} | {"punctuations": False}
    tuples = table.filter(pa.compute.invert(table["is_end"])).combine_chunks()
    assert StreamPattern(**alone).table(rows=rows, seed=seed).equals(tuples)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_join_sees_no_violation_and_ends_with_nothing_held(seed):
    streams = {
        "a": pattern("punct-asc-5-40", rows=100, seed=seed),
        "b": pattern("punct-random-5-40", rows=100, seed=seed + 1_000, spread=3),
    }
    marks = sj.marked("is_end")
    run = sj.join(
        *(sj.stream(PATTERN_SCHEMA, name=name, key="k", punctuation=marks, columns=["v"]) for name in streams)
    ).local()
    found = [
        run.step({name: table.slice(at, 7) for name, table in streams.items()}) for at in range(0, 140, 7)
    ]
    left, right = (table.filter(pa.compute.invert(table["is_end"])) for table in streams.values())
    assert sum(map(len, found)) == len(left.join(right, "k", join_type="inner", right_suffix="_b"))
    assert run.violations() == []
    assert not any(run.state().rows.values())


# ---------------------------------------------------------------- their shapes


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("order", ["asc", "desc", "random"])
def test_clusters_are_contiguous_in_their_order(order, seed):
    table = clustered(order, 10).table(rows=500, seed=seed)
    runs = [key for key, _ in groupby(table["k"].to_pylist())]
    assert len(runs) == len(set(runs)) == 50
    ended = {"asc": sorted(runs), "desc": sorted(runs, reverse=True), "random": runs}
    assert runs == ended[order]
    assert (order == "random") is (runs not in (ended["asc"], ended["desc"]))
    assert all((keys == end).all() for keys, end in segments(table))


@pytest.mark.parametrize("seed", SEEDS)
def test_sizes_and_gaps_are_poisson(seed):
    table = pattern("cluster-random-30", rows=30_000, seed=seed)
    sizes = np.array([len(keys) for keys, _ in segments(table)])
    assert (len(sizes), sizes.sum()) == (1_000, 30_000)
    assert 24 < sizes.var() < 37
    gaps = gaps_us(table.filter(pa.compute.invert(table["is_end"])))
    assert abs(gaps.mean() - 10_000) < 300
    assert abs(gaps.std() - 10_000) < 500


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("order", ["asc", "desc", "random"])
def test_the_share_that_matches_is_poisson_around_its_mean(order, seed):
    found = segments(pattern(f"punct-{order}-100-40", rows=20_000, seed=seed))
    assert len(found) == 200
    shares = np.array([100 * (keys == end).mean() for keys, end in found[:-1]])
    assert abs(shares.mean() - 40) < 2
    assert 4.5 < shares.std() < 8.5
    assert (found[-1][0] == found[-1][1]).all()
    assert all(keys[-1] == end for keys, end in found)  # its last tuple is just before the punctuation
    assert np.mean([keys[0] == end for keys, end in found]) < 0.6


@pytest.mark.parametrize("order", ["asc", "desc", "random"])
def test_the_other_tuples_lie_among_the_next_keys_to_end(order):
    def distances(spread: int | None) -> np.ndarray:
        found = segments(punctuated(order, 50, 40, spread=spread).table(rows=20_000, seed=4))
        place = {end: at for at, (_, end) in enumerate(found)}
        return np.array(
            [place[key] - at for at, (keys, end) in enumerate(found) for key in keys if key != end]
        )

    near, far = distances(3), distances(None)
    assert set(near) == {1, 2, 3}
    assert np.bincount(near)[1:].min() > 0.9 * len(near) / 3
    assert far.min() >= 1
    assert far.max() > 350
    assert 60 < np.median(far) < 90  # of 400 keys: the median of a product of two uniform numbers is 0.187


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_irrelevant_punctuations_speak_of_keys_that_are_nowhere_and_keep_the_order(share):
    usual = pattern("punct-asc-30-40", rows=30_000, seed=2)
    table = pattern("punct-asc-30-40", rows=30_000, seed=2, irrelevant=share)
    key, is_end = columns(table)
    nowhere = key >= NOWHERE
    assert (nowhere <= is_end).all()
    assert abs(nowhere.sum() / 1_000 - share) < 0.05
    assert np.array_equal(key - NOWHERE * nowhere, usual["k"].to_numpy())
    assert (np.diff(key[is_end & nowhere]) > 0).all()


@pytest.mark.parametrize("order", ["asc", "desc", "random"])
def test_unique_keys_come_once_each(order):
    key, is_end = columns(unique(order).table(rows=300, seed=1))
    assert np.array_equal(key[::2], key[1::2])
    assert not is_end[::2].any()
    assert is_end[1::2].all()
    assert sorted(key[::2]) == list(range(300))


def test_a_uniform_stream_has_all_keys_and_no_punctuation():
    table = pattern("uniform-50", rows=5_000, seed=1)
    assert table.equals(uniform(50, rows=5_000, seed=1))
    key, is_end = columns(table)
    assert not is_end.any()
    assert np.bincount(key, minlength=50).min() > 50
    assert table.schema == PATTERN_SCHEMA


def test_time_begins_at_the_start_and_goes_by_the_gap():
    start = datetime(2020, 2, 29, tzinfo=UTC)
    table = pattern("unique-asc", rows=2_000, seed=1, start=start, gap="1 second")
    first, last = table["t"][0].as_py(), table["t"][-1].as_py()
    assert 0 <= (first - start).total_seconds() < 10
    assert abs((last - first).total_seconds() - 2_000) < 200


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("cluster-asc-10", clustered("asc", 10)),
        ("cluster-random-2.5", clustered("random", 2.5)),
        ("punct-desc-100-40", punctuated("desc", 100, 40)),
        ("punctuation-desc-100-40", punctuated("desc", 100, 40)),
        ("unique-random", unique("random")),
    ],
)
def test_the_papers_names(name, same):
    assert pattern(name, rows=500, seed=6).equals(same.table(rows=500, seed=6))


@pytest.mark.parametrize(
    "name",
    [
        "",
        "punct",
        "punct-asc-100",
        "punct-up-100-40",
        "cluster-asc",
        "cluster-asc-x",
        "unique-asc-3",
        "uniform--3",
    ],
)
def test_another_name_is_refused_with_what_there_is(name):
    with pytest.raises(InvalidJoin, match=r"There is no pattern .* Give cluster-.*: punct-asc-100-40\."):
        pattern(name, rows=1, seed=1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"order": "up"},
        {"size": 0},
        {"size": float("nan")},
        {"match": 101},
        {"match": -1},
        {"spread": 0},
        {"irrelevant": 1.5},
        {"first_key": 1 << 40},
    ],
)
def test_what_makes_no_pattern_is_refused_by_name(wrong):
    with pytest.raises(InvalidJoin, match=f"StreamPattern got {next(iter(wrong))}="):
        StreamPattern(**wrong)


def test_other_wrong_values_are_refused():
    for name in ("unique-asc", "uniform-5"):
        with pytest.raises(InvalidJoin, match="Give no negative numbers"):
            pattern(name, rows=-1, seed=1)
        with pytest.raises(InvalidJoin, match="Give no negative numbers"):
            pattern(name, rows=1, seed=-1)
        with pytest.raises(InvalidJoin, match="has no time zone"):
            pattern(name, rows=1, seed=1, start=datetime(2020, 1, 1))  # noqa: DTZ001
        with pytest.raises(InvalidJoin, match="gap is 'soon'"):
            pattern(name, rows=1, seed=1, gap="soon")
    with pytest.raises(InvalidJoin, match="uniform got keys=0"):
        pattern("uniform-0", rows=1, seed=1)
    with pytest.raises(InvalidJoin, match="uniform-5 has no spread"):
        pattern("uniform-5", rows=1, seed=1, spread=3)
    with pytest.raises(InvalidJoin, match="StreamPattern got size=0"):
        pattern("cluster-asc-0", rows=1, seed=1)
