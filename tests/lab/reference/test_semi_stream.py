"""MESHJOIN and SSBJ as the papers print them, beside the product's enrichment and a batch join."""

import random
from collections import Counter

import pyarrow as pa
import pytest

import streamjoin as sj
from lab.reference.elements import Row
from lab.reference.meshjoin import MeshJoin
from lab.reference.ssbj import SSBJ, Sizes
from tests.lab.reference.product import numbers


def relation(seed, *, rows=60, values=40):
    """Values drawn with repetition, so some have several tuples and some none."""
    draw = random.Random(seed)
    return [Row(1, draw.randrange(values), 0, number) for number in range(rows)]


def stream(seed, *, rows=600, values=40):
    """Skewed: half of the tuples have one of four values."""
    draw = random.Random(seed + 100)
    return [Row(0, draw.randrange(4 if draw.random() < 0.5 else values), 0, n) for n in range(rows)]


def batch_join(tuples, master):
    return Counter((t.number, r.number) for t in tuples for r in master if t.key == r.key)


def product(operator, tuples, master):
    table = sj.table(
        pa.table({"k": [r.key for r in master], "m": [r.number for r in master]}),
        name="master",
        key="k",
        memory="1 MB",
        cycle_batches=3,
    )
    tuple_schema = pa.schema({"k": pa.int64(), "v": pa.int64()})
    run = sj.enrich(sj.stream(tuple_schema, name="s", key="k"), table, operator=operator).local()
    found = Counter()
    for at in range(0, len(tuples), 50):
        some = tuples[at : at + 50]
        found += pairs(
            run.push("s", pa.table([[t.key for t in some], [t.number for t in some]], tuple_schema))
        )
    return found + pairs(run.finish())


def pairs(results):
    return Counter(zip(results["v"].to_pylist(), results["m"].to_pylist(), strict=True))


@pytest.mark.parametrize("seed", range(3))
def test_meshjoin_is_the_product_and_the_batch_join(seed):
    master, tuples = relation(seed), stream(seed)
    join = MeshJoin(master, partition=7)
    for at in range(0, len(tuples), 5):
        join.step(tuples[at : at + 5])
        assert join.waiting.rows <= 5 * len(join.disk.partitions)
    join.finish()
    assert numbers(join.output.rows) == batch_join(tuples, master) == product("meshjoin", tuples, master)


@pytest.mark.parametrize("absent", [True, False])
@pytest.mark.parametrize("memory", [None, 2_500])
@pytest.mark.parametrize("factor", [1.0, 3.0])
@pytest.mark.parametrize("seed", range(3))
def test_ssbj_gives_the_batch_join_whatever_moves(seed, factor, memory, absent):
    master, tuples = relation(seed), stream(seed, rows=6_000)
    join = SSBJ(
        master, partition=10, sizes=Sizes(100, 60, 4, memory=memory), switching_factor=factor, absent=absent
    )
    left = iter(tuples)
    while join.step(left, most=20 if memory is None else None):
        pass
    join.finish()
    assert numbers(join.output.rows) == batch_join(tuples, master)
    assert join.hits > 0
    assert join.cycle > 30


def test_ssbj_is_the_product():
    master, tuples = relation(1), stream(1)
    join = SSBJ(master, partition=10, sizes=Sizes(100, 60))
    left = iter(tuples)
    while join.step(left, most=10):
        pass
    join.finish()
    assert numbers(join.output.rows) == product("ssbj", tuples, master)


def test_the_cache_inequality_decides_the_example_of_figure_3():
    """Value 30 has three waiting tuples and two of R, value 10 three and four; all are of one size."""
    master = [Row(1, key, 0, n) for n, key in enumerate((10, 20, 30, 10, 20, 30, 10, 20, 10, 40))]
    join = SSBJ(master, partition=5, sizes=Sizes(1, 1))
    for _ in range(10):  # five R-cycles; in each 3 of 10, 3 of 30, 1 of 40
        join.step(iter([Row(0, key, 0, 0) for key in (10, 30, 30)]))
        join.step(iter([Row(0, key, 0, 0) for key in (10, 10, 30, 40)]))
    assert {value: len(cached.rows) for value, cached in join.cache.items()} == {30: 2}


def test_a_value_that_comes_no_more_is_evicted_and_one_without_tuples_of_r_is_cached_empty():
    master = [Row(1, key, 0, key) for key in range(4)]
    join = SSBJ(master, partition=2, sizes=Sizes(2, 1))
    for _ in range(2 * 6):
        join.step(iter([Row(0, 1, 0, 0), Row(0, 99, 0, 0)]))
    assert {value: len(cached.rows) for value, cached in join.cache.items()} == {1: 1, 99: 0}
    for _ in range(2 * 20):
        join.step(iter([Row(0, 2, 0, 0)]))
    assert set(join.cache) == {2}


def test_memory_is_what_equation_1_says():
    master = relation(5, rows=200, values=100)
    join = SSBJ(master, partition=20, sizes=Sizes(20, 60, 4, memory=10_000))
    draw = random.Random(5)
    left = iter([Row(0, min(int(draw.paretovariate(0.7)) - 1, 99), 0, n) for n in range(60_000)])
    used = []
    while join.step(left):
        used.append(join.bytes + 20 * 60)
    assert max(used) <= 1.1 * 10_000  # values that move are in both tables for a cycle, the phase-out
    assert min(used[len(used) // 2 : -20]) > 0.8 * 10_000
