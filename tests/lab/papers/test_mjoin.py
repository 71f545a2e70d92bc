"""The news join of the MJoin paper as the lab runs it, in small."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lab.papers import mjoin, mjoin_scheduling
from lab.papers.mjoin import parts
from lab.papers.mjoin_forms import BATCHES, SINGLE
from lab.papers.news_reference import ReferenceSize, operators, reference_rounds, schedulers
from lab.papers.news_runs import News, SingleTuples, local, marks_of, news, rounds, work
from lab.report.figures import Context
from streamjoin.errors import InvariantBroken
from streamjoin.join.strategies.driver import Priority
from streamjoin.join.strategies.purge import PurgeEvery
from tests.lab.papers.stored_claims import stored_ids


def test_single_tuples_take_one_at_a_time_and_news_first():
    data = news(30, "ordered", 30)
    run = work(local("mjoin_1np", goal="memory", driver=SingleTuples(Priority(100))), data)
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
            "immediate": lambda: local("mjoin_1np", goal="memory", propagate=False),
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


def test_the_reference_engine_gives_all_pairs_of_what_it_read():
    size = ReferenceSize(300, 2)
    data = size.data("random")
    found = reference_rounds(
        {**schedulers("ours", "default"), **operators("mjoin", "xjoin", "immediate")},
        data,
        size.results,
        size.rounds,
        lambda _: None,
    )
    for runs in found.values():
        assert [run.rows[-1] >= 300 for run in runs] == [True, True]
        assert len(runs[0].seconds_to(size.marks(10))) == 10
    assert found["mjoin"][0].held[-1] < found["xjoin"][0].held[-1]
    assert found["ours"][0].turns < found["default"][0].turns  # random reads news far ahead


def test_a_lost_pair_of_the_reference_engine_stops_it():
    size = ReferenceSize(300, 1)
    data = size.data("ordered")
    with pytest.raises(InvariantBroken, match="not the"):
        reference_rounds(
            operators("mjoin", "xjoin", "immediate"), News(data.batches, data.pairs[1:]), 300, 1, print
        )


def test_ids_of_claims_are_those_of_the_stored_report(monkeypatch):
    small = replace(SINGLE, items=(60, 60), items_a_batch=30, rounds=(1, 1))
    large = replace(BATCHES, items=(400, 400), items_a_batch=100, rounds=(1, 1))
    for module in (mjoin, mjoin_scheduling):
        monkeypatch.setattr(module, "FORMS", (small, large))
        monkeypatch.setattr(module, "SIZES", {True: ReferenceSize(200, 2)})
    monkeypatch.setattr(mjoin, "SINGLE", small)
    monkeypatch.setattr(mjoin, "BATCHES", large)
    context = Context(True, lambda _: None, Path())
    claims = [claim for part in parts() for figure in part.run(context) for claim in figure.claims]
    assert sorted(claim.id for claim in claims) == stored_ids("mjoin")
    assert {claim.id for claim in claims if claim.product is not None} == {
        one for one in stored_ids("mjoin") if one.endswith("-single")
    }
    assert all(claim.why for claim in claims if claim.holds is False and claim.product is not None)
