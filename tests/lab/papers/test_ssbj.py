"""The SSBJ paper replayed: settings check their answers, and figures say what was measured."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from lab.papers import ssbj, ssbj_claims, ssbj_model, ssbj_rates, ssbj_runs
from lab.papers.cached_answers import cached_answers
from lab.papers.ssbj_data import ORDER_BYTES, TpchRows
from lab.papers.ssbj_loop import BatchJoin, LoopMeasurement
from lab.papers.ssbj_model import least_memory
from lab.papers.ssbj_runs import ALL, PAIR, SsbjSetting, TimedCycles, ratios, run
from lab.report.figures import Context
from streamjoin.enrich.cost import LoopCosts
from streamjoin.errors import InvalidJoin, InvariantBroken
from tests.lab.papers.stored_claims import stored_ids

SMALL = SsbjSetting(0.5, ALL, 2_000, segments=6, repeats=1)


@pytest.mark.parametrize("data", ["zipf", "weather"])
def test_a_setting_runs_all_forms_and_fills_their_memory(data):
    found = run(replace(SMALL, data=data, rows=40_000 if data == "weather" else 2_000))
    assert list(found) == list(ALL)
    for name, [seen] in found.items():
        assert seen.rate > 0
        assert seen.disk_s > 0
        assert (seen.stretch.hits > 0) is (name != "meshjoin")
    assert ratios(found, "streamjoin")[0] > 0


def test_a_wrong_answer_is_not_reported(monkeypatch):
    add = BatchJoin.add

    def with_one_more(self, sums, batch):
        add(self, sums, batch)
        sums.add(1, 0, 0)

    monkeypatch.setattr(BatchJoin, "add", with_one_more)
    with pytest.raises(InvariantBroken, match="nothing is reported"):
        run(replace(SMALL, forms=PAIR))


def test_tpch_orders_begin_again_with_other_numbers(monkeypatch):
    orders = pa.table({"k": pa.array([5, 7, 9]), "x": pa.array([b"a", b"b", b"c"], pa.binary())})
    rows = TpchRows(10)
    monkeypatch.setitem(rows.__dict__, "_orders", orders)
    assert rows.tuples(2, 3).to_pydict() == {"k": [9, 5, 7], "id": [2, 3, 4], "x": [b"c", b"a", b"b"]}


def test_tpch_rows_have_the_papers_widths():
    rows = TpchRows(150)
    customers, orders = rows.table_rows(0, 150), rows.tuples(0, 10)
    assert {len(pad) for pad in customers["pad"].to_pylist()} == {207}
    assert {16 + len(x) for x in orders["x"].to_pylist()} == {ORDER_BYTES}
    assert set(orders["k"].to_pylist()) <= set(customers["k"].to_pylist())


def test_memory_for_a_rate_lies_between_measured_points():
    points = {0.01: 100.0, 0.02: 200.0, 0.1: 180.0}
    assert least_memory(points, 50.0) == pytest.approx(0.01)
    assert least_memory(points, 150.0) == pytest.approx(0.015, abs=1e-3)
    assert least_memory(points, 300.0) is None


def seen(setting):
    """Made up: this library takes ten times MESHJOIN's tuples in a turn of the same time."""
    of = {"meshjoin": (100, 0.0), "ssbj": (150, 0.5), "streamjoin": (1_000, 0.4 + 2 * setting.memory)}
    found = {}
    for name in setting.forms:
        w, hits = of[name][0] * max(round(1_000 * setting.memory), 1), of[name][1]
        cycle = LoopMeasurement(w, 50, 1.0, 1.0, 1, 1.0, 1, int(hits * w * 50), 50, 0, 1, {})
        found[name] = [TimedCycles(cycle, 1.0, 0)] * setting.repeats
    return found


@pytest.fixture
def quick(tmp_path, monkeypatch):
    monkeypatch.setattr(ssbj_claims, "run", seen)
    monkeypatch.setattr(ssbj_claims, "cached_answers", lambda *rest: cached_answers(*rest, workers=1))
    monkeypatch.setattr(
        ssbj_model, "calibrated", lambda what: LoopCosts(0.0, 1e-3, 1e-5, 1e-8, 1e-8, 1e-6, 1e-6)
    )
    monkeypatch.setattr(ssbj_model, "cached_answers", lambda *rest: cached_answers(*rest, workers=1))
    return Context(True, lambda _: None, tmp_path)


@pytest.mark.parametrize("form", ["quick", "full"])
def test_every_figure_has_claims_with_ids_of_their_own(quick, form):
    context = replace(quick, quick=form == "quick")
    figures = [figure for part in ssbj.parts() for figure in part.run(context)]
    assert sorted(figure.id for figure in figures) == [
        f"ssbj-{one}" for one in ("4a", "4b", "5a", "5b", "5c", "5d", "5e", "5f", "6a", "6b", "6c", "6d")
    ]
    ids = [claim.id for figure in figures for claim in figure.claims]
    assert sorted(ids) == stored_ids("ssbj")
    assert all(claim.id.startswith(figure.id) for figure in figures for claim in figure.claims)
    assert all(claim.why for figure in figures for claim in figure.claims if not claim.holds)
    open_ = [claim.id for figure in figures for claim in figure.claims if claim.holds is None]
    assert bool(open_) is context.quick
    json.dumps([figure.series for figure in figures])


def test_without_its_generator_tpch_is_open_with_the_reason(quick, monkeypatch):
    def missing(setting):
        raise InvalidJoin("TPC-H data is made by tpchgen-cli, which is not installed; pip install it")

    monkeypatch.setattr(ssbj_claims, "run", missing)
    figure = ssbj_rates.on_tpch(quick)
    assert [claim.holds for claim in figure.claims] == [None, None]
    assert all("not installed" in claim.why for claim in figure.claims)


def test_segments_are_small_enough_for_the_memory():
    assert [ssbj_runs.segments_for(memory) for memory in (0.01, 0.02, 0.05, 0.5)] == [250, 125, 50, 50]
