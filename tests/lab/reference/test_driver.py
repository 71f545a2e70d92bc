"""MJoin with the five driver policies as the paper prints them, beside the product on the same batches."""

import random
from collections import Counter
from itertools import product as combinations

import pytest

from lab.reference.driver import POLICIES, DriverJoin, Selectivities, out_rate
from lab.reference.elements import Row
from tests.lab.reference.product import ProductRun, numbers
from tests.tables import unbounded_is_meant

ALIKE = Selectivities({(0, 1): 0.1, (0, 2): 0.2, (1, 2): 0.1}, 0.01, (1.0, 1.0, 1.0))


def batches(seed, *, count=6, keys=8):
    """Rows of three inputs of unequal size, cut into batches by time."""
    draw = random.Random(seed)
    numbered, made = [0, 0, 0], []
    for batch in range(count):
        some = [[], [], []]
        for time in range(batch * 12, batch * 12 + 12):
            side = draw.choices((0, 1, 2), (1, 2, 5))[0]
            some[side].append(Row(side, draw.randrange(keys), time, numbered[side]))
            numbered[side] += 1
        made.append(some)
    return made


def batch_join(made):
    sides = [[row for some in made for row in some[side]] for side in range(3)]
    return Counter(
        tuple(row.number for row in three)
        for three in combinations(*sides)
        if len({r.key for r in three}) == 1
    )


@unbounded_is_meant
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_every_policy_gives_what_the_product_gives_in_every_batch(seed, policy):
    made = batches(seed)
    ours, paper = ProductRun({}, {}, {}, driver=policy), DriverJoin(ALIKE, policy)
    for batch in made:
        ours.step(batch)
        paper.process(batch)
        assert ours.rows == numbers(paper.output.rows)
    assert ours.rows == batch_join(made)


def orders(policy, batch, **options):
    """The inputs in the order in which their rows were put into tables."""
    seen = []

    class Watched(DriverJoin):
        def _process_next_tuple(self, driver, buffer):
            seen.append(driver)
            super()._process_next_tuple(driver, buffer)

    join = Watched(options.get("selectivities", ALIKE), policy)
    join.sizes[:] = options.get("sizes", (0, 0, 0))
    join.process(batch)
    return seen


BATCH = [
    [Row(0, 1, 5, 0)],
    [Row(1, 1, 1, 0), Row(1, 1, 6, 1)],
    [Row(2, 1, 2, 0), Row(2, 1, 3, 1), Row(2, 1, 4, 2)],
]


def test_each_policy_takes_the_order_of_its_figure():
    unequal = Selectivities(ALIKE.pair, 0.01, (100.0, 10.0, 1.0))
    sizes = (10, 100, 1000)
    assert orders("timestamp", BATCH) == [1, 2, 2, 2, 0, 1]
    assert orders("round_robin", BATCH) == [0, 1, 2, 1, 2, 2]
    assert orders("consumption_rate", BATCH, selectivities=unequal) == [2, 2, 2, 1, 1, 0]
    assert orders("initial_output", BATCH, sizes=sizes) == [0, 1, 1, 2, 2, 2]
    assert orders("output_rate", BATCH, sizes=sizes) == [0, 1, 1, 2, 2, 2]
    assert orders("initial_output", BATCH, sizes=(100, 100, 110)) == [2, 2, 2, 1, 1, 0]
    assert orders("output_rate", BATCH, sizes=(100, 100, 110)) == [0, 1, 1, 2, 2, 2]


def test_equation_1_is_the_product_of_the_other_tables():
    join = DriverJoin(ALIKE, "initial_output")
    join.sizes[:] = (2, 3, 5)
    assert [out_rate(join, j) for j in range(3)] == pytest.approx([0.15, 0.1, 0.06])


def test_a_partial_result_is_a_probe_of_the_next_table():
    join = DriverJoin(ALIKE, "timestamp")
    join.process([[], [Row(1, 1, 0, 0), Row(1, 1, 1, 1)], []])
    before = join.work.probes
    join.process([[Row(0, 1, 2, 0)], [], []])
    assert join.work.probes - before == 3  # the row into input 1, two partial results into input 2
