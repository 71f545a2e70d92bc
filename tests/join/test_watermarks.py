"""Event time: watermarks act after the whole batch, wait for lateness, and follow others when idle."""

import streamjoin as sj
from tests.tables import stream, unbounded_is_meant

pytestmark = unbounded_is_meant


def window(seconds, **more):
    return {"window": f"{seconds} seconds", "time": "t", "lateness": "0 seconds", **more}


def timed(**declared):
    """Inputs with a key and a time, in the order given; a result is (k, t, t, …)."""
    return sj.join(*(stream(name, "k t:time", **said) for name, said in declared.items()))


def test_a_watermark_acts_after_the_whole_batch(story):
    run = story(timed(a=window(4), b=window(4)))
    run.push("b", "k t\n1 10")
    # 20 comes first and would push 9 out, did it act at once
    assert run.step(a="k t\n9 20\n1 10\n1 9", b="k t\n1 10") == [(1, 9, 10)] * 2 + [(1, 10, 10)] * 2
    assert run.violations() == []


def test_lateness_holds_the_watermark_back(story):
    run = story(timed(a=window(4), b=window(4, lateness="5 seconds")))
    run.push("a", "k t\n1 10")
    run.push("b", "k t\n9 19")  # P_b = 14
    assert run.held()["a"] == 1
    assert run.push("b", "k t\n1 14") == [(1, 10, 14)]
    run.push("b", "k t\n9 20")  # P_b = 15
    assert run.held()["a"] == 0


def test_advance_is_a_watermark_without_data_and_goes_only_forward(story):
    run = story(timed(a=window(4), b=window(4)))
    run.push("a", "k t\n1 10\n2 20")
    run.advance("b", 15)
    assert run.held()["a"] == 1
    run.advance("b", 3)
    run.push("b", "k t\n2 14\n2 15")
    assert run.violations() == [("b", "late", 2, 14)]


def test_an_idle_input_follows_the_others(story):
    """Worked number of watermarks.py: P = 100 and max(40, 100 - 20) = 80."""
    run = story(timed(a=window(10), b=window(10, idle="20 seconds")))
    run.push("b", "k t\n1 40")
    run.push("a", "k t\n1 69\n2 100")
    assert run.held()["a"] == 1  # 69 + 10 < 80
    run.push("b", "k t\n2 79\n2 80")
    assert run.violations() == [("b", "late", 2, 79)]


def test_without_idle_a_silent_input_holds_everything(story):
    run = story(timed(a=window(10), b=window(10)))
    run.push("a", "k t\n1 10\n1 100000")
    assert run.held()["a"] == 2


def test_an_idle_input_waits_for_the_slowest_of_the_others(story):
    run = story(timed(a=window(10), b=window(10), c=window(10, idle="20 seconds")))
    run.push("b", "k t\n8 50")
    run.push("a", "k t\n9 100")  # P_c = 50 - 20 = 30
    run.push("c", "k t\n1 29\n1 30")
    assert run.violations() == [("c", "late", 1, 29)]


def test_an_ended_input_holds_no_idle_one_back(story):
    run = story(timed(a=window(10), b=window(10), c=window(10, idle="20 seconds")))
    run.push("b", "k t\n8 5")
    run.push("a", "k t\n9 100")
    run.end("b")  # P_c = 100 - 20 = 80
    run.push("c", "k t\n1 79\n1 80")
    assert run.violations() == [("c", "late", 1, 79)]


def test_an_idle_input_follows_another_idle_one_as_far_as_that_has_got(story):
    idle = window(10, idle="20 seconds")
    run = story(timed(a=window(10), b=idle, c=idle))
    run.push("a", "k t\n9 100")
    run.push("b", "k t\n7 100")  # P_c = 100 - 20
    run.push("a", "k t\n9 200")  # P_b = 100, so P_c is still 80
    run.push("c", "k t\n1 79\n1 80")
    assert run.violations() == [("c", "late", 1, 79)]
