"""Strategies change when work is done and in which order, never what is computed."""

from dataclasses import dataclass

import streamjoin as sj
from streamjoin.operators.strategies import FewestRowsFirst
from tests.tables import stream, unbounded_is_meant

pytestmark = unbounded_is_meant


def plain(**options):
    """a(k, x) with b(k, y)."""
    return sj.join(stream("a", "k x"), stream("b", "k y"), **options)


@dataclass(frozen=True)
class PurgeAfter:
    """Promises are carried out when `wait` keys have them."""

    wait: int
    name: str = "after"

    def due(self, waiting_keys, *, batch_ends):
        return waiting_keys >= self.wait


def test_one_row_at_a_time_is_the_same_join(story):
    run = story(plain(driver=sj.RoundRobin(quota=1)))
    assert run.step(a="k x\n1 10\n2 20\n1 11", b="k y\n2 200\n1 100") == [
        (1, 10, 100),
        (1, 11, 100),
        (2, 20, 200),
    ]
    run.step(a="k x\n3 30", b="k y\n3 300")
    assert run.held() == {"a": 4, "b": 3}


def test_promises_that_wait_are_shown_and_carried_out_later(story):
    run = story(plain(purge=PurgeAfter(3)))
    run.push("a", "k x\n1 10\n2 20\n3 30")
    run.punctuate("b", k=1)
    run.punctuate("b", k=2)
    assert run.state().waiting == 2
    assert run.held()["a"] == 3
    assert run.punctuations() == []
    run.push("b", "k y\n1 100")
    assert run.violations() == [("b", "after_promise", 1, 100)]
    run.punctuate("b", k=3)
    assert run.punctuations() == ["<1>", "<2>", "<3>"]
    assert run.state().waiting == 0
    assert run.held()["a"] == 0


def test_the_input_with_the_fewest_rows_is_visited_first():
    assert FewestRowsFirst().sequence([0, 2, 3], [50, 0, 7, 9]) == [2, 3, 0]


@dataclass(frozen=True)
class Waiting:
    """A queue as a driver sees it."""

    input: int
    rows_left: int


def test_round_robin_takes_turns_and_whole_buffers_or_its_quota():
    queues = [Waiting(0, 5), Waiting(1, 7), Waiting(3, 2)]
    turns, previous = [], None
    for _ in range(4):
        previous, rows = sj.RoundRobin().choose(queues, previous)
        turns.append((previous, rows))
    assert turns == [(0, 5), (1, 7), (3, 2), (0, 5)]
    assert sj.RoundRobin(quota=3).choose(queues, 1) == (3, 3)
