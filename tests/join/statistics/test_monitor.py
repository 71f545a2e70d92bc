"""The constraint monitor: what it sees of the data, and what it says."""

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.join.statistics.monitor import LOOKED_AT, SAMPLED_KEYS, Monitor, Order, look
from tests.tables import batch, unbounded_is_meant

pytestmark = unbounded_is_meant

SCHEMA = pa.schema({"k": pa.int64(), "v": pa.int64()})


def rows(keys):
    return pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array(keys, pa.int64())})


def repeated(keys):
    """Enough rows that the first ones are looked at: the given keys, then as many of another."""
    return batch([*keys, *[10**9] * (64 * len(keys))])


@pytest.mark.parametrize(
    ("keys", "ascending", "descending", "clustered"),
    [
        ([1, 1, 2, 3], 0, 3, 0),
        ([3, 1, 2], 2, 1, 0),
        ([1, 2, 1], 1, 1, 1),
        ([5, 4, 4, 1], 3, 0, 0),
        ([7, 1, 7, 2, 7], 3, 3, 1),
    ],
)
def test_the_slack_that_rows_would_need(keys, ascending, descending, clustered):
    found = look(repeated(keys))
    assert found == Order(len(keys), ascending, descending, clustered)


def test_few_rows_are_not_looked_at_and_many_only_at_their_beginning():
    assert look(batch(list(range(100)))) is None
    assert look(batch(list(range(10**6)))).rows == LOOKED_AT


def test_the_sample_is_of_distinct_keys_and_counts_all_their_rows():
    monitor = Monitor()
    every = np.random.default_rng(1).permutation(np.repeat(np.arange(5000), 3))
    for part in np.array_split(every, 7):
        monitor.see(batch(part.tolist()), None)
    assert len(monitor.keys) == SAMPLED_KEYS
    assert set(monitor.counts.tolist()) == {3}
    assert monitor.seen(0).repeated_keys == SAMPLED_KEYS
    again = Monitor()
    again.restore(monitor.to_json())
    assert again.seen(4) == monitor.seen(4)


def told(*batches, **declared):
    joined = sj.join(
        sj.stream(SCHEMA, name="a", key="k", **declared), sj.stream(SCHEMA, name="b", key="k", columns=[])
    )
    run = joined.local()
    for keys in batches:
        run = joined.local(snapshot=run.snapshot())  # what was seen is part of the state
        run.push("a", rows(keys))
    return run.advice()


def test_keys_that_never_repeat_and_come_in_order_are_noticed():
    ascending = list(range(20_000))
    assert told(ascending[:10_000], ascending[10_000:]) == [
        "a: no key repeats in a sample of 256; if that is a rule, declare unique=True",
        "a: keys came that way in 312 rows looked at; if that is a rule, declare arrival=sj.ordered(slack=0)",
    ]


def test_clusters_are_noticed_where_keys_are_in_no_order():
    keys = np.repeat(np.random.default_rng(2).permutation(8000), 4).tolist()
    (said,) = told(keys)
    assert said.endswith("declare arrival=sj.clustered(slack=0)")


def test_nothing_is_said_of_data_that_keeps_nothing():
    random = np.random.default_rng(3)
    assert told(*(random.integers(0, 3000, 20_000).tolist() for _ in range(2))) == []


def test_what_is_declared_is_checked_and_its_slack_told():
    keys = list(range(5000))
    keys[10], keys[12] = keys[12], keys[10]
    said = told(keys, arrival=sj.ordered(slack=5))
    assert "a: ordered arrival kept, widest slack seen 2 of 5 declared" in said
    broken = told(keys, arrival=sj.ordered(), on_violation="drop")
    assert any(text.startswith("a: 2 rows came after a punctuation") for text in broken)
    assert any("ordered arrival broken, widest slack seen" in text for text in broken)


def test_violations_are_told_by_kind():
    assert told([1, 2, 1], unique=True) == ["a: 1 rows repeat a key that is declared unique (duplicate_key)"]
