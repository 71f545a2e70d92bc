"""SHJ, XJoin, MJoin and PWJoin as the papers print them, beside the product's presets on the same streams."""

from collections import Counter

import pytest

import streamjoin as sj
from lab.reference.elements import End, Row
from lab.reference.mjoin import MJoin, Settings
from lab.reference.pwjoin import PWJoin
from lab.reference.shj import SHJ
from lab.reference.xjoin import XJoin
from tests.lab.reference.product import ProductRun, numbers, one_to_many, punctuated
from tests.tables import unbounded_is_meant

pytestmark = unbounded_is_meant
SEEDS = range(3)


def batch_join(elements, windows=(None, None)):
    """All pairs, by their definition."""
    a, b = ([row for row in elements if isinstance(row, Row) and row.input == side] for side in (0, 1))
    within = [float("inf") if window is None else window for window in windows]
    return Counter(
        (x.number, y.number)
        for x in a
        for y in b
        if x.key == y.key and y.time - x.time <= within[0] and x.time - y.time <= within[1]
    )


# ---------------------------------------------------------------- SHJ and XJoin


@pytest.mark.parametrize("seed", SEEDS)
def test_shj_is_the_product_step_by_step(seed):
    ours, paper = ProductRun({}, {}, operator="shj"), SHJ(buckets=3)
    elements = [one for one in punctuated(seed) if isinstance(one, Row)]
    for element in elements:
        ours.take(element)
        paper.take(element)
        assert ours.rows == numbers(paper.output.rows)
        assert ours.state == [len(state) for state in paper.states]
    assert ours.rows == batch_join(elements)
    assert paper.work.probes == len(elements)


@pytest.mark.parametrize("memory", [None, 0, 7, 40])
@pytest.mark.parametrize("seed", SEEDS)
def test_xjoin_gives_each_pair_once_in_its_three_stages(seed, memory):
    elements = punctuated(seed)
    paper = XJoin(buckets=3, memory=memory, page=4)
    for place, element in enumerate(elements):
        paper.take(element)
        assert memory is None or sum(state.in_memory for state in paper.states) <= memory
        if place % 17 == 0:
            paper.idle()
    while paper.idle():
        pass
    paper.finish()
    assert numbers(paper.output.rows) == batch_join(elements)
    assert (paper.work.pages_written > 0) == (memory is not None)


def test_xjoin_is_the_product_with_spilled_runs_and_deferred_matches():
    elements = [one for one in punctuated(3, rows=400) if isinstance(one, Row)]
    ours, paper = ProductRun({}, {}, operator="xjoin", memory="1 MB"), XJoin(buckets=4, memory=50)
    for element in elements:
        ours.take(element)
        paper.take(element)
    ours.finish()
    paper.finish()
    assert ours.rows == numbers(paper.output.rows)


def test_stage_two_joins_disk_with_memory_and_stage_three_leaves_that_out():
    join = XJoin(buckets=1, memory=1)
    for element in (Row(0, 1, 0, 0), Row(0, 1, 1, 1), Row(1, 1, 2, 0)):  # the second makes memory too full
        join.take(element)
    assert join.output.rows == []
    while join.idle():
        pass
    assert numbers(join.output.rows) == {(0, 0): 1, (1, 0): 1}
    join.finish()
    assert numbers(join.output.rows) == {(0, 0): 1, (1, 0): 1}


# ---------------------------------------------------------------- MJoin


def as_mjoin(elements, settings, at_once=1):
    paper = MJoin(settings)
    for place, element in enumerate(elements):
        paper.offer(element)
        if place % at_once == at_once - 1:
            paper.drain()
            paper.idle()
    paper.drain()
    return paper


@pytest.mark.parametrize("seed", SEEDS)
def test_mjoin_1np_is_the_product_step_by_step(seed):
    ours = ProductRun({"unique": True}, {}, operator="mjoin_1np", goal="memory")  # rule 2: purges at once
    paper = MJoin(Settings(buckets=3))
    for element in one_to_many(seed):
        ours.take(element)
        paper.offer(element)
        paper.drain()
        assert ours.rows == numbers(paper.output.rows)
        assert sorted(ours.ends) == sorted(paper.output.ends)
        assert ours.state == [len(state) for state in paper.states]


@pytest.mark.parametrize(
    "settings",
    [
        Settings(streams="random", tuples="sequential"),
        Settings(quota=(3, 7)),
        Settings(purge_every=5, buckets=2),
        Settings(memory=5, buckets=3, page=2),
        Settings(memory=8, buckets=3, purge_every=4, tuples="sequential"),
    ],
)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_setting_changes_what_mjoin_gives(seed, settings):
    elements = one_to_many(seed)
    paper = as_mjoin(elements, settings, at_once=25)
    paper.finish()
    assert numbers(paper.output.rows) == batch_join(elements)
    plain = as_mjoin(elements, Settings())
    assert sorted(plain.output.ends) == sorted(paper.output.ends)
    assert len(set(paper.output.ends)) == len(paper.output.ends)


@pytest.mark.parametrize("seed", SEEDS)
def test_mjoin_1nc_is_the_product_step_by_step(seed):
    ours = ProductRun({"unique": True}, {"arrival": sj.clustered(slack=0)}, operator="mjoin_1nc")
    paper = MJoin(Settings(clustered=True, buckets=3))
    for element in one_to_many(seed, clustered=True):
        ours.take(element)
        paper.offer(element)
        paper.drain()
        assert ours.rows == numbers(paper.output.rows)
        assert sorted(ours.ends) == sorted(paper.output.ends)


def test_clusters_save_probes():
    elements = one_to_many(1, clustered=True)
    plain, clustered = (as_mjoin(elements, Settings(clustered=one), at_once=200) for one in (False, True))
    assert numbers(plain.output.rows) == numbers(clustered.output.rows)
    assert clustered.work.probes < plain.work.probes


def test_value_oriented_puts_the_row_first_for_which_a_punctuation_waits():
    join = MJoin(Settings(quota=(10, 10)))
    for element in (Row(1, 7, 0, 0), End(1, 7)):
        join.offer(element)
    join.drain()
    for element in (Row(0, 5, 0, 0), Row(0, 7, 1, 1)):
        join.offer(element)
    join.step()
    assert [row.key for row in join.pool] == [5]
    join.step()
    assert (join.output.ends, list(join.pool)) == ([7], [])


def test_batch_purging_scans_less_and_holds_more():
    elements = one_to_many(2, keys=40, rows=600)
    at_once, in_batches = (
        as_mjoin(elements, Settings(purge_every=n), at_once=len(elements)) for n in (1, 10)
    )
    assert in_batches.work.scanned < at_once.work.scanned


# ---------------------------------------------------------------- PWJoin, PJoin, WJoin


def windowed(windows, **options):
    declared = [
        {"lateness": "0 seconds"} | ({} if window is None else {"window": f"{window} seconds"})
        for window in windows
    ]
    return ProductRun(*declared, **options)


@pytest.mark.parametrize("windows", [(5, 5), (3, 20), (1, 2)])
@pytest.mark.parametrize("seed", SEEDS)
def test_pwjoin_is_the_product_step_by_step(seed, windows):
    """Results, punctuations and tuples held, where a punctuation comes with the last row of its key."""
    elements = punctuated(seed)
    ours, paper = windowed(windows, operator="pwjoin"), PWJoin(windows)
    for element in elements:
        ours.take(element)
        paper.take(element)
        assert ours.rows == numbers(paper.output.rows)
        assert sorted(ours.ends) == sorted(paper.output.ends)
        assert ours.state == [state.rows for state in paper.states]
    assert ours.rows == batch_join(elements, windows)


@pytest.mark.parametrize("inputs", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_product_propagates_what_pwjoin_does_and_never_later(seed, inputs):
    """A punctuation behind the window of its last row: the paper's ring no longer fires, the product acts."""
    elements = punctuated(seed, inputs=inputs, at_once=False, rows=300)
    ours, paper = windowed((4, 4), operator="pwjoin"), PWJoin((4, 4))
    for element in elements:
        ours.take(element)
        paper.take(element)
        assert ours.rows == numbers(paper.output.rows)
        assert not Counter(paper.output.ends) - Counter(ours.ends)
    assert max(Counter(ours.ends).values()) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_wjoin_and_pjoin_are_parts_of_pwjoin(seed):
    elements = punctuated(seed)
    window, punctuations = windowed((5, 5), operator="wjoin"), ProductRun({}, {}, operator="pjoin")
    wjoin, pjoin = PWJoin((5, 5), punctuations=False), PWJoin((None, None))
    for element in elements:
        if isinstance(element, Row):
            window.take(element)
            wjoin.take(element)
        punctuations.take(element)
        pjoin.take(element)
        assert window.rows == numbers(wjoin.output.rows)
        assert window.state == [state.rows for state in wjoin.states]
        assert punctuations.rows == numbers(pjoin.output.rows)
        assert punctuations.state == [state.rows for state in pjoin.states]
    assert sorted(punctuations.ends) == sorted(pjoin.output.ends)


def test_a_punctuated_value_is_propagated_when_its_last_row_leaves_the_window():
    join = PWJoin((5, 5))
    for element in (Row(0, 79, 0, 0), Row(0, 79, 2, 1), End(0, 79), Row(1, 79, 3, 0), Row(1, 81, 7, 1)):
        join.take(element)
    assert (len(join.output.rows), join.output.ends) == (2, [])  # one row of 79 is in the window still
    join.take(Row(1, 81, 8, 2))
    assert join.output.ends == [79]
    join.take(Row(1, 79, 9, 3))
    assert join.work.dropped == 2  # discarded on the fly, then dropped unseen
    join.take(End(1, 79))
    assert (join.output.ends, 79 in join.states[0].index) == ([79], False)
