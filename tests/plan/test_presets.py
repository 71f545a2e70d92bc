"""The papers' operators: what each knows, refuses and does."""

import pytest

import streamjoin as sj
from tests.tables import Story, stream, unbounded_is_meant

pytestmark = unbounded_is_meant

IN_TIME = {"time": "t", "lateness": "0 seconds"}
END = {"punctuation": sj.marked("end")}
ROWS = {
    "one": "k x t\n1 10 0\n2 20 1\n3 30 2",
    "many": "k y t end\n1 100 3 false\n1 101 3 false\n1 - 3 true\n2 200 4 false\n3 300 5 false",
}


def joined(operator, *, window=None, **options):
    """one(k, x, t), unique, with many(k, y, t), which ends its keys; a window on the first."""
    one = stream("one", "k x t:time", **IN_TIME, window=window, unique=True, columns=["x"])
    ending = {"arrival": sj.clustered()} if operator == "mjoin_1nc" else END
    many = stream("many", "k y t:time end:bool", **IN_TIME, **ending, columns=["y"])
    return sj.join(one, many, operator=operator, **options)


def told(operator, *, window=None):
    run = Story(joined(operator, window=window))
    rows = {
        name: "\n".join(row for row in text.split("\n") if "true" not in row) for name, text in ROWS.items()
    }
    found = run.step(**(rows if operator == "mjoin_1nc" else ROWS))
    run.step(many="k y t end\n9 900 60 false")
    return found, run.held(), run.punctuations()


ANSWER = [(1, 10, 100), (1, 10, 101), (2, 20, 200), (3, 30, 300)]


@pytest.mark.parametrize(
    ("operator", "window", "held", "propagated"),
    [
        ("shj", None, {"one": 3, "many": 5}, []),
        ("xjoin", None, {"one": 3, "many": 5}, []),
        ("pjoin", None, {"one": 2, "many": 5}, []),
        ("wjoin", "10 seconds", {"one": 0, "many": 5}, []),
        ("pwjoin", "10 seconds", {"one": 0, "many": 5}, []),
        ("mjoin_1np", None, {"one": 3, "many": 1}, []),  # purged every 100 punctuations
        ("mjoin_1nc", None, {"one": 0, "many": 1}, ["<1>", "<2>", "<3>"]),
    ],
)
def test_each_gives_the_answer_and_holds_what_it_cannot_let_go_of(operator, window, held, propagated):
    assert told(operator, window=window) == (ANSWER, held, propagated)


@pytest.mark.parametrize("operator", ["shj", "xjoin", "pjoin"])
def test_a_window_is_refused_by_those_that_know_none(operator):
    with pytest.raises(sj.InvalidJoin, match=f"operator='{operator}' knows no windows, and one has one"):
        joined(operator, window="10 seconds")


def test_what_a_preset_needs_is_asked_for():
    plain = [stream("a", "k x"), stream("b", "k y")]
    with pytest.raises(sj.InvalidJoin, match="one-to-many join: declare unique=True"):
        sj.join(*plain, operator="mjoin_1np")
    with pytest.raises(sj.InvalidJoin, match=r"follows clusters: declare arrival=sj.clustered"):
        sj.join(stream("a", "k x", unique=True), plain[1], operator="mjoin_1nc")
    with pytest.raises(sj.InvalidJoin, match="operator='hash'; give one of shj, xjoin"):
        sj.join(*plain, operator="hash")


def test_the_goal_chooses_the_purge_of_mjoin():
    """Rule 1: for throughput in batches; rule 2: for memory at once."""
    throughput, memory = joined("mjoin_1np"), joined("mjoin_1np", goal="memory")
    assert throughput.plan.spec.strategies.purge == sj.PurgeEvery(100)
    assert "as mjoin_1np does for throughput: every 100 punctuations, across batches" in throughput.explain()
    assert memory.plan.spec.strategies.purge.name == "immediate"
    run = Story(memory)
    run.step(**ROWS)
    assert run.punctuations() == ["<1>"]


def test_a_strategy_may_be_given_beside_a_preset():
    strategies = joined("mjoin_1np", purge=sj.PurgeEvery(100)).plan.spec.strategies
    assert strategies.purge == sj.PurgeEvery(100)
    assert strategies.order.name == "value_oriented"


def test_explain_names_the_preset():
    text = joined("mjoin_1nc").explain()
    assert "MJoin 1-NC: one-to-many with clustered arrival" in text
    assert "driver: follow_clusters (as mjoin_1nc does: an input goes on" in text


@pytest.mark.parametrize(
    ("goal", "driver", "order"),
    [
        ("throughput", "round_robin", "sequential"),
        ("memory", "priority", "sequential"),
        ("punctuation", "round_robin", "value_oriented"),
    ],
)
def test_a_goal_chooses_strategies(goal, driver, order):
    strategies = sj.join(stream("a", "k x"), stream("b", "k y"), goal=goal).plan.spec.strategies
    assert (strategies.driver.name, strategies.order.name) == (driver, order)


def test_pwjoin_retrieves_in_timestamp_order():
    """In one batch the auctions of 1 and 4 and the bids of 2 and 3: each turn goes on to the next one's."""
    one = stream("one", "k x t:time", **IN_TIME, window="10 seconds", columns=["x"])
    many = stream("many", "k y t:time", **IN_TIME, columns=["y"])
    run = Story(sj.join(one, many, operator="pwjoin"))
    run.step(one="k x t\n1 10 4\n1 11 1", many="k y t\n1 100 2\n1 101 3")
    assert run.run.join.turns == 3
    assert run.count("one_probes") == 2


def test_pwjoin_without_event_times_takes_each_input_in_turn():
    joined = sj.join(stream("a", "k x"), stream("b", "k y"), operator="pwjoin")
    assert joined.plan.spec.strategies.driver.name == "round_robin"
