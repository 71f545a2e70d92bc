"""Joins of many inputs at their edges: a source joined with itself, batches in which inputs are empty."""

import pytest

import streamjoin as sj
from tests.tables import EMPTY, NOTHING, Story, stream, unbounded_is_meant

DRIVERS = (
    "timestamp",
    "round_robin",
    "random",
    "priority",
    "follow_clusters",
    "consumption_rate",
    "initial_output",
    "output_rate",
    "adaptive",
)
EDGES = "who whom\n1 2\n2 3\n2 4\n3 1"


@unbounded_is_meant
def test_a_self_join_works_through_two_names():
    joined = sj.join(stream("first", "who whom", key="whom"), stream("second", "who whom", key="who"))
    assert joined.plan.spec.output.names == ["whom", "who", "second_whom"]
    paths = [(1, 3, 2), (2, 1, 3), (2, 1, 4), (3, 2, 1)]
    assert Story(joined).step(first=EDGES, second=EDGES) == paths
    one_by_one = Story(joined)
    assert one_by_one.push("second", EDGES) == NOTHING
    assert one_by_one.push("first", EDGES) == paths


@unbounded_is_meant
def test_a_self_join_of_three_counts_every_way():
    run = Story(sj.join(*(stream(name, f"k {name}_x", key="k") for name in "abc")))
    twice = "k {}_x\n1 1\n1 2"
    assert len(run.step(**{name: twice.format(name) for name in "abc"})) == 2**3


@pytest.mark.parametrize("driver", DRIVERS)
def test_batches_in_which_inputs_are_empty(driver):
    timed = {"time": "t", "lateness": "0 seconds", "window": "10 seconds"}
    run = Story(
        sj.join(*(stream(name, f"k {name} t:time", key="k", **timed) for name in "xyz"), driver=driver)
    )
    assert run.step(x="k x t", y="k y t", z="k z t") == NOTHING
    assert run.step(x="k x t\n1 10 0\n2 20 0", y="k y t", z="k z t\n1 30 0") == NOTHING
    assert run.push("y", "k y t") == NOTHING
    assert run.step(x="k x t", y="k y t\n1 40 1\n2 50 1") == [(1, 10, 0, 40, 1, 30, 0)]
    assert run.step(z="k z t\n2 60 2\n2 70 10") == [(2, 20, 0, 50, 1, 60, 2), (2, 20, 0, 50, 1, 70, 10)]
    assert run.held() == {"x": 2, "y": 2, "z": 3}
    run.step(x="k x t\n3 80 30", y="k y t\n3 90 30", z="k z t")  # only z waits for nobody
    assert run.held() == {"x": 3, "y": 3, "z": 0}
    assert run.finish() == NOTHING
    assert run.state() == EMPTY
