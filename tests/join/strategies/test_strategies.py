"""Strategies change when work is done and in which order, never what is computed."""

from dataclasses import dataclass

import numpy as np
import pytest

import streamjoin as sj
from streamjoin.join.outputs import Results
from streamjoin.join.statistics.selectivity import Selectivities
from streamjoin.join.strategies.probe import FewestRowsFirst, MostSelectiveFirst
from tests.tables import WAYS, Story, stream, table, unbounded_is_meant

pytestmark = unbounded_is_meant


def plain(**options):
    """a(k, x) with b(k, y)."""
    return sj.join(stream("a", "k x"), stream("b", "k y"), **options)


@dataclass(frozen=True)
class PurgeAfter:
    """Punctuations are applied when `wait` keys have them."""

    wait: int
    name: str = "after"

    def due(self, waiting):
        return waiting.keys >= self.wait


def test_one_row_at_a_time_is_the_same_join(story):
    run = story(plain(driver=sj.RoundRobin(quota=1)))
    assert run.step(a="k x\n1 10\n2 20\n1 11", b="k y\n2 200\n1 100") == [
        (1, 10, 100),
        (1, 11, 100),
        (2, 20, 200),
    ]
    run.step(a="k x\n3 30", b="k y\n3 300")
    assert run.held() == {"a": 4, "b": 3}


@pytest.fixture(params=[way for way in WAYS if way != "spilled"])
def roomy(request):
    """As `story`, but memory is never full: then nothing would wait."""
    return lambda joined: Story(joined, request.param)


def test_punctuations_that_wait_are_shown_and_applied_later(roomy):
    run = roomy(plain(purge=PurgeAfter(3)))
    run.push("a", "k x\n1 10\n2 20\n3 30")
    run.punctuate("b", k=1)
    run.punctuate("b", k=2)
    assert run.state().deferred == 2
    assert run.held()["a"] == 3
    assert run.punctuations() == ["<1>", "<2>"]  # only removing tuples waits
    run.punctuate("b", k=3)
    assert run.punctuations() == ["<3>"]
    assert run.state().deferred == 0
    assert run.held()["a"] == 0


def test_a_row_of_a_key_that_waits_finds_it_purged(roomy):
    run = roomy(plain(purge=PurgeAfter(3)))
    run.push("a", "k x\n1 10\n2 20\n3 30")
    run.punctuate("b", k=1)
    assert run.held()["a"] == 3
    run.push("b", "k y\n1 100")
    assert run.violations() == [("b", "after_punctuation", 1, 100)]
    assert (run.held()["a"], run.state().deferred) == (2, 0)


def test_the_input_with_the_fewest_rows_is_visited_first():
    assert FewestRowsFirst().sequence(1, [0, 2, 3], [50, 0, 7, 9], Selectivities(4)) == [2, 3, 0]


def measured(driver, rows, counts, sizes):
    """What is learned from one probe; `rows` and `counts` are given by key."""
    found = Selectivities(len(sizes))
    by_key = {other: np.array(each) for other, each in counts.items()}
    found.learn(driver, np.array(rows), by_key, sizes)
    return found


def test_selectivities_are_matches_over_what_was_tried():
    """Two keys: of 3 and 1 rows of input 0; input 1 has 2 and 0 tuples of them, input 2 has 1 and 5."""
    found = measured(0, [3, 1], {1: [2, 0], 2: [1, 5]}, [0, 10, 20])
    assert found.of([0, 1]) == 6 / (4 * 10)
    assert found.of([2, 0]) == (3 + 5) / (4 * 20)
    assert found.of([0, 1, 2]) == 6 / (4 * 10 * 20)
    assert found.of([1, 2]) is None
    assert found.output(0, 8, [0, 10, 20]) == 12
    assert found.lookups(0, 8, [0, 10, 20]) == 8 + 8 * 1.5  # input 1 is visited first


def test_the_most_selective_input_is_visited_first_and_that_follows_the_data():
    sizes = [0, 1000, 10]
    assert MostSelectiveFirst().sequence(0, [1, 2], sizes, Selectivities(3)) == [2, 1]  # nothing known yet
    found = measured(0, [1] * 4, {1: [1, 0, 0, 0], 2: [1, 1, 1, 1]}, sizes)
    assert MostSelectiveFirst().sequence(0, [1, 2], sizes, found) == [1, 2]
    for _ in range(40):
        found.end_batch()
        found.learn(0, np.ones(4), {1: np.array([2, 2, 2, 2]), 2: np.array([1, 0, 0, 0])}, sizes)
    assert MostSelectiveFirst().sequence(0, [1, 2], sizes, found) == [2, 1]


def test_few_keys_are_looked_at_once_enough_are_known():
    found = Selectivities(3)
    assert [found.every(keys) for keys in (1, 511, 5_120)] == [1, 1, 10]
    found.learn(0, np.ones(512), {1: np.zeros(512), 2: np.zeros(512)}, [0, 100, 100])
    assert found.every(1) == 1  # no combination was found yet
    found.learn(0, np.ones(1), {1: np.ones(1), 2: np.ones(1)}, [0, 100, 100])
    assert [found.every(keys) for keys in (1, 5_120, 512_000)] == [53, 53, 1_000]
    found.end_batch()
    assert found.every(1) == 1
    again = Selectivities(3)
    again.restore(found.to_json())
    assert again.every(1) == found.every(1)


def test_of_many_inputs_only_pairs_are_kept():
    found = Selectivities(8)
    found.learn(0, np.array([1]), {other: np.array([1]) for other in range(1, 8)}, [10] * 8)
    assert found.of([0, 3]) == 0.1
    assert found.of([0, 3, 4]) == pytest.approx(0.01)
    assert len(found.to_json()) == 8  # pairs, and how many keys were looked at


@dataclass(frozen=True)
class Waiting:
    """A queue as a driver sees it."""

    input: int
    rows_left: int
    unique: bool = False
    live_rows: int = 0
    cluster_left: int = 0
    next_time_us: int | None = None
    results_per_row: float | None = None
    expected_output: float | None = None
    cost: float = 0.0  # lookups per row and per row that others were given before

    def rows_until(self, time_us):
        return time_us - self.next_time_us  # a row for each microsecond

    def expected_lookups(self, rows, added):
        return rows * (1 + self.cost * sum(added.values()))


def test_round_robin_takes_turns_and_whole_buffers_or_its_quota():
    queues = [Waiting(0, 5), Waiting(1, 7), Waiting(3, 2)]
    turns, previous = [], None
    for _ in range(4):
        previous, rows = sj.RoundRobin().choose(queues, previous)
        turns.append((previous, rows))
    assert turns == [(0, 5), (1, 7), (3, 2), (0, 5)]
    assert sj.RoundRobin(quota=3).choose(queues, 1) == (3, 3)


def turns(driver, queues, count):
    """The inputs of so many turns, on queues that never end."""
    found, previous = [], None
    for _ in range(count):
        previous, _rows = driver.choose(queues, previous)
        found.append(previous)
    return found


def test_priority_reads_the_unique_input_first_then_the_smaller():
    queues = [
        Waiting(0, 50, live_rows=9),
        Waiting(1, 70, live_rows=3),
        Waiting(2, 9, unique=True, live_rows=99),
    ]
    assert turns(sj.Priority(quota=5), queues, 4) == [2, 1, 0, 2]
    assert sj.Priority(quota=5).choose(queues, None) == (2, 5)
    assert sj.Priority().choose(queues, None) == (2, 9)


def test_random_treats_inputs_alike_and_repeats_itself():
    queues = [[Waiting(0, i), Waiting(1, i)] for i in range(400)]
    found = [sj.RandomInput(seed=1).choose(each, None)[0] for each in queues]
    assert found == [sj.RandomInput(seed=1).choose(each, None)[0] for each in queues]
    assert 150 < sum(found) < 250


def test_a_cluster_that_was_begun_is_read_to_its_end():
    queues = [Waiting(0, 5, unique=True), Waiting(1, 7, cluster_left=3)]
    assert sj.FollowClusters(quota=1).choose(queues, 1) == (1, 3)
    assert sj.FollowClusters(quota=1).choose(queues, 0) == (1, 1)
    assert sj.FollowClusters(quota=1).choose([Waiting(0, 5, unique=True), Waiting(1, 4)], 1) == (0, 1)


def test_the_timestamp_driver_takes_rows_up_to_the_next_of_another_input():
    queues = [
        Waiting(0, 50, next_time_us=30),
        Waiting(1, 70, next_time_us=10),
        Waiting(2, 9, next_time_us=17),
    ]
    assert sj.Timestamp(quota=1).choose(queues, None) == (1, 7)
    assert sj.Timestamp().choose(queues, 0) == (1, 1000)
    assert sj.Timestamp(quota=1).choose(queues[:1], 0) == (0, 1)
    with pytest.raises(sj.InvalidJoin, match="give the number of rows"):
        sj.Timestamp(quota=None)


BUFFERS = [
    Waiting(0, 100, results_per_row=2.0, expected_output=50.0),
    Waiting(1, 10, results_per_row=0.5, expected_output=20.0),
    Waiting(2, 400, results_per_row=1.0, expected_output=100.0),
]


@pytest.mark.parametrize(
    ("driver", "order"),
    [(sj.ConsumptionRate, [1, 2, 0]), (sj.InitialOutput, [2, 0, 1]), (sj.OutputRate, [1, 0, 2])],
)
def test_buffers_are_worked_through_one_after_another(driver, order):
    """By the fewest results of a row, by the most results of a buffer, by the most of each row of it."""
    left, found = list(BUFFERS), []
    while left:
        chosen, rows = driver().choose(left, None)
        assert rows == BUFFERS[chosen].rows_left
        found.append(chosen)
        left = [queue for queue in left if queue.input != chosen]
    assert found == order
    assert driver(quota=1).choose(BUFFERS, 0) == (0, 1)  # the one that was begun goes on
    unknown = [Waiting(0, 5), Waiting(1, 7)]
    assert driver().choose(unknown, None) == (0, 5)  # nothing is known: as declared


def test_the_adaptive_driver_takes_the_order_with_the_fewest_lookups():
    """Rows of input 1 cost the more the later it comes; rows of input 0 cost always the same."""
    queues = [
        Waiting(0, 100, expected_output=1.0),
        Waiting(1, 100, expected_output=1.0, cost=3.0),
        Waiting(2, 10, expected_output=1.0, cost=1.0),
    ]
    chosen = sj.Adaptive().for_batch(queues)
    assert chosen.order == (1, 2, 0)
    assert sj.Adaptive().choose(queues, None) == (1, 100)
    unknown = [Waiting(0, 5), Waiting(1, 7)]
    assert sj.Adaptive(quota=3).for_batch(unknown) == sj.RoundRobin(quota=3)


@pytest.mark.parametrize("driver", [sj.RoundRobin, sj.RandomInput, sj.Priority, sj.FollowClusters])
def test_a_quota_of_nothing_is_refused(driver):
    with pytest.raises(sj.InvalidJoin, match="a quota of 0 rows would never finish; give 1 or more"):
        driver(quota=0)


def one_to_many(**options):
    """news(k, x), one tuple per key, with access(k, y) that ends its keys."""
    news = stream("news", "k x", unique=True)
    return sj.join(stream("access", "k y end:bool", punctuation=sj.marked("end")), news, **options)


BATCH = {
    "access": "k y end\n1 100 false\n2 200 false\n1 101 false\n1 - true\n3 300 false",
    "news": "k x\n1 10\n2 20\n3 30",
}


def test_reading_the_unique_input_first_stores_nothing_of_the_other(story):
    first = story(one_to_many(driver="priority"))
    first.step(**BATCH)
    assert first.count("access_stored") == 0
    assert first.count("access_not_stored") == 4
    declared = story(one_to_many(driver="round_robin"))
    declared.step(**BATCH)
    assert declared.count("access_stored") == 4


def test_following_a_cluster_drops_what_turns_of_one_row_would_store():
    """1-NC: the rows of a cluster follow its first one, whose partner is there by then."""
    stored = {}
    for driver in (sj.RoundRobin(quota=1), sj.FollowClusters(quota=1)):
        joined = sj.join(
            stream("news", "k x", unique=True),
            stream("access", "k y", arrival=sj.clustered()),
            driver=driver,
        )
        run = Story(joined)
        run.step(news="k x\n1 10\n2 20\n3 30", access="k y\n1 1\n2 2\n2 3\n2 4\n3 5\n3 6")
        stored[driver.name] = run.run.join.turns
    assert stored["follow_clusters"] < stored["round_robin"]


def value_oriented(order):
    """a has closed 1; of b's rows one is of that key, behind others, and b then ends it too."""
    end = {"punctuation": sj.marked("end"), "sequence": "n"}
    a, b = stream("a", "k x"), stream("b", "k y end:bool n", **end)
    run = Story(sj.join(a, b, order=order, driver=sj.RoundRobin(quota=10)))
    run.push("a", "k x\n1 10\n2 20")
    run.punctuate("a", k=1)
    rows = table(run._schemas["b"], "k y end n\n2 200 false 1\n3 300 false 2\n1 100 false 3\n1 - true 4")
    arrivals = run.run._intakes[1].arrivals(rows)
    events = []
    for output in run.run.join.process({1: arrivals}):
        events += output.rows["k"].to_pylist() if isinstance(output, Results) else ["over"]
    return events, run.count("b_reordered")


def test_value_oriented_scheduling_finishes_awaited_keys_before_other_rows():
    assert value_oriented("sequential") == ([1, 2, "over"], 0)
    assert value_oriented("value_oriented") == ([1, "over", 2], 2)


def test_waiting_rows_last_beyond_the_turn_until_nothing_is_urgent():
    """a has closed 1. In turns of two rows, b's 2 and 3 wait while rows of 1 come, also over a's turn."""
    a, b = stream("a", "k x"), stream("b", "k y")
    run = Story(sj.join(a, b, order="value_oriented", driver=sj.RoundRobin(quota=2)))
    run.push("a", "k x\n1 10\n2 20\n3 30")
    run.punctuate("a", k=1)
    b_rows = table(run._schemas["b"], "k y\n2 200\n1 100\n1 101\n3 300\n3 301\n2 201")
    a_rows = table(run._schemas["a"], "k x\n2 21\n2 22\n3 31")
    arrivals = {i: run.run._intakes[i].arrivals(rows) for i, rows in enumerate((a_rows, b_rows))}
    events = [
        key
        for output in run.run.join.process(arrivals)
        if isinstance(output, Results)
        for key in output.rows["k"].to_pylist()
    ]
    # b: 1 | a: 3 | b: 1 | then none is urgent: b's 2, 3, 3 and 2 together
    assert events[:2] == [1, 1]
    assert run.count("b_reordered") == 2
    assert len(events) == 2 + 2 * 3 + 2 * 2


def test_priority_gives_each_input_its_own_quota():
    driver = sj.Priority(quota={"news": 2, "access": 3})
    joined = sj.join(stream("news", "k x", unique=True), stream("access", "k y"), driver=driver)
    chosen, good = [], type(joined.plan.spec.strategies.driver).choose
    with pytest.MonkeyPatch.context() as patched:

        def choose(self, queues, previous):
            chosen.append(good(self, queues, previous))
            return chosen[-1]

        patched.setattr(sj.Priority, "choose", choose)
        run = Story(joined)
        run.step(news="k x\n1 1\n2 2\n3 3\n4 4", access="k y\n1 1\n2 2\n3 3\n4 4\n4 5")
    assert chosen == [(0, 2), (1, 3), (0, 2), (1, 3)]
    with pytest.raises(
        sj.InvalidJoin, match="a quota for 'old', which is no input of this join; give quotas"
    ):
        sj.join(stream("a", "k x"), stream("b", "k y"), driver=sj.Priority(quota={"old": 3}))
    with pytest.raises(sj.InvalidJoin, match="would never finish"):
        sj.FollowClusters(quota={"a": 0})


# ---------------------------------------------------------------- purging


def punctuated(run, keys):
    for key in keys:
        run.punctuate("b", k=key)
    return run.held()["a"], run.state().deferred


A_ROWS = "k x\n" + "\n".join(f"{key} {key}" for key in range(1, 9))


def test_purging_when_so_many_keys_wait(roomy):
    run = roomy(plain(purge=sj.PurgeEvery(3)))
    run.push("a", A_ROWS)
    assert punctuated(run, [1, 2]) == (8, 2)
    assert punctuated(run, [3, 4]) == (5, 1)


def test_purging_when_the_inputs_have_nothing_left(story):
    run = story(plain(purge=sj.PurgeEvery(100, when_idle=True)))
    run.push("a", A_ROWS)
    assert punctuated(run, [1, 2]) == (6, 0)


def test_purging_when_memory_is_full(roomy):
    run = roomy(plain(purge=sj.PurgeEvery(memory=1)))
    run.push("a", A_ROWS)
    assert punctuated(run, [1]) == (7, 0)
    run = roomy(plain(purge=sj.PurgeEvery(memory=1 << 30)))
    run.push("a", A_ROWS)
    assert punctuated(run, [1]) == (8, 1)


def test_no_purging_keeps_tuples_but_stores_none_that_are_useless(story):
    run = story(plain(purge="none"))
    run.push("a", A_ROWS)
    assert punctuated(run, [1, 2]) == (8, 0)
    run.push("a", "k x\n1 11")
    assert run.held()["a"] == 8
    run.finish()
    assert run.held() == {"a": 0, "b": 0}


def test_what_waits_is_carried_out_when_an_input_ends(story):
    run = story(plain(purge=sj.PurgeEvery(100)))
    run.push("a", A_ROWS)
    punctuated(run, [1, 2])
    run.end("b")
    assert run.held()["a"] == 0
    assert run.state().deferred == 0


@pytest.mark.parametrize("given", [{"keys": 0}, {"memory": -1}, {}])
def test_a_purge_that_never_comes_is_refused(given):
    with pytest.raises(sj.InvalidJoin, match="PurgeEvery"):
        sj.PurgeEvery(**given)


def test_a_driver_without_the_selectivities_it_needs_falls_back_and_says_so():
    joined = sj.join(*(stream(name, f"k {name}1") for name in "abc"), driver="initial_output")
    assert dict(joined.plan.reasons)["driver: initial_output"] == (
        "as you asked; until selectivities are measured, each input in turn"
    )
    run = Story(joined)
    run.step(a="k a1\n1 1", b="k b1\n1 2")
    run.step(b="k b1\n1 3", c="k c1\n1 4")
    assert run.run.counters()["driver_fallbacks"] == 2
    assert "in 2 batches" in run.run.advice()[0]
    run.step(a="k a1\n1 5", c="k c1\n1 6")  # by now rows of all have met
    assert run.run.counters()["driver_fallbacks"] == 2


@pytest.mark.parametrize(
    "kind", [sj.Timestamp, sj.ConsumptionRate, sj.InitialOutput, sj.OutputRate, sj.Adaptive]
)
def test_the_driver_changes_the_work_and_not_the_answer(kind):
    """Three inputs of different sizes over three batches; b and c meet rarely."""
    inputs = [stream(name, f"k {name}1 t:time", time="t") for name in "abc"]
    batches = [
        {
            name: table(
                one.schema,
                f"k {name}1 t\n" + "\n".join(f"{(i * step) % 7} {i} {number * 10 + i}" for i in range(rows)),
            )
            for name, one, rows, step in zip("abc", inputs, (12, 5, 3), (1, 2, 3), strict=True)
        }
        for number in range(3)
    ]
    found = []
    for chosen in (sj.RoundRobin(), kind(), kind(quota=1), kind(quota=2)):
        run = sj.join(*inputs, driver=chosen).local()
        found.append(sorted(str(row) for batch in batches for row in run.step(batch).to_pylist()))
    assert found[0]
    assert all(each == found[0] for each in found)
