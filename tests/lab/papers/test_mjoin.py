"""The news join of the MJoin paper as the lab runs it, in small."""

from __future__ import annotations

import numpy as np
import pytest

from lab.papers.mjoin import parts
from lab.papers.news_runs import News, SingleTuples, local, marks_of, news, rounds, work
from streamjoin.errors import InvariantBroken
from streamjoin.join.strategies.driver import Priority
from streamjoin.join.strategies.purge import PurgeEvery


def test_single_tuples_take_one_at_a_time_and_news_first():
    data = news(30, "ordered", 30)
    run = work(local("mjoin_1np", driver=SingleTuples(Priority(100))), data)
    tuples = sum(batch[name].filter(~_ends(batch[name])).num_rows for batch in data.batches for name in batch)
    assert run.turns >= tuples
    assert run.counters["access_stored"] == 0  # each record finds its news
    assert run.rows[-1] == len(data.pairs)
    assert run.held[-1] == 0


def _ends(table):
    if "is_end" not in table.column_names:
        return np.zeros(len(table), bool)
    return table["is_end"].to_numpy()


def test_purging_every_100_holds_more_than_purging_at_once():
    data = news(300, "random", 50)
    found = rounds(
        {
            "batch": lambda: local("mjoin_1np", propagate=False, purge=PurgeEvery(100)),
            "immediate": lambda: local("mjoin_1np", propagate=False),
            "xjoin": lambda: local("xjoin"),
        },
        data,
        1,
        lambda _: None,
    )
    held = {name: sum(run.held) for name, (run,) in found.items()}
    assert held["immediate"] < held["batch"] < held["xjoin"]
    assert found["xjoin"][0].held[-1] == 300 + len(data.pairs)
    seconds = found["batch"][0].seconds_to(marks_of(data, 4))
    assert seconds == sorted(seconds)


def test_a_wrong_answer_stops_it():
    data = news(30, "ordered", 30)
    planted = data.pairs.copy()
    planted[3] += 1
    with pytest.raises(InvariantBroken, match="not the"):
        work(local("mjoin_1np"), News(data.batches, planted))


def test_parts_say_what_they_are():
    assert [part.says for part in parts()] == ["figure 8", "figures 9 to 11"]
