"""Cases of the driver paper: their protocol, their tables, and what is refused."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lab.generators.driver_sets import DRIVER_SETS, PERIODS
from lab.papers import driver_runs
from lab.papers.driver_printed import AT_HALF, AVERAGE_TIME, RUNNING_TIME, printed
from lab.papers.driver_runs import (
    BUFFERS,
    GRID,
    POLICIES,
    TUPLES,
    CaseResult,
    DriverCase,
    PolicySummary,
    batch_join,
    case,
)
from lab.papers.driver_tables import lookups_by, tables, time_by
from streamjoin.errors import InvariantBroken

SMALL = replace(TUPLES, scale=0.001), replace(BUFFERS, scale=0.01)


@pytest.fixture(scope="module")
def found():
    return {(form.name, "V", "1M"): [case(DriverCase(form, "V", "1M", 1))] for form in SMALL}


def test_every_policy_of_every_case_stands_beside_the_paper(found):
    made = tables(found)
    assert list(made) == ["single tuples", "whole buffers"]
    for form in made.values():
        for name, periods in form.items():
            for period, rows in periods.items():
                assert list(rows) == list(POLICIES)
                assert rows["timestamp"]["time_by_timestamp"] == 1
                assert rows["initial_output"]["time_in_paper"] == printed(
                    RUNNING_TIME, name, "initial_output", period
                )
                for row in rows.values():
                    assert row["probes"] > row["intermediate"] > 0
                    assert 0 <= row["produced_at_half"] <= 1
    for runs in found.values():
        assert lookups_by(runs, "initial_output", ("timestamp",)) <= 1.02
        assert lookups_by(runs, "adaptive", driver_runs.FIXED) <= 1.05


def test_single_tuples_are_single_for_every_policy(found):
    runs = found
    (one,) = runs["single tuples", "V", "1M"]
    assert {summary.turns["all"] for summary in one.policies.values()} == {
        one.policies["timestamp"].turns["all"]
    }
    (whole,) = runs["whole buffers", "V", "1M"]
    assert whole.policies["initial_output"].turns["all"] == 8 * 3  # batches that count, streams


def test_lookups_are_rows_and_intermediate_tuples(found):
    """With three inputs a row looks into one, and every pair of it into another."""
    runs = found
    batches = list(DRIVER_SETS["V"].streams(scale=0.001, seed=1).batches(PERIODS["1M"]))[2:]
    rows = sum(len(table) for batch in batches for table in batch.values())
    (one,) = runs["single tuples", "V", "1M"]
    for summary in one.policies.values():
        assert summary.probes["all"] == rows + summary.intermediate["all"]
        assert summary.probes["all"] == summary.probes["first half"] + summary.probes["second half"]


def test_pairs_that_meet_in_one_batch_are_a_tenth_in_ten_batches(found):
    runs = found
    (one,) = runs["single tuples", "V", "1M"]
    assert 0.07 < one.in_one_batch < 0.14
    everything = [DRIVER_SETS["V"].streams(scale=0.001, seed=1).tables]
    assert driver_runs.in_one_batch(everything) == 1


def test_an_answer_that_is_not_the_batch_joins_is_not_reported(monkeypatch):
    monkeypatch.setattr(driver_runs, "batch_join", lambda tables: (batch_join(tables)[0], 0))
    with pytest.raises(InvariantBroken, match="nothing is reported"):
        case(DriverCase(SMALL[0], "V", "1M", 1), ("timestamp",))


def test_the_checksum_does_not_depend_on_order_but_on_every_value():
    rows = pa.table({f"s{i}_v": np.array([1, 2, 3]) * i for i in (1, 2, 3)})
    count, mixed = driver_runs.checksum(rows)
    assert driver_runs.checksum(rows.take([2, 0, 1])) == (count, mixed) == (3, mixed)
    swapped = rows.set_column(0, "s1_v", pa.array([2, 1, 3]))
    assert driver_runs.checksum(swapped) != (3, mixed)


def test_produced_shares_are_told_at_shares_of_the_other_time():
    """Timestamp took 2 s; 8 of 10 results after 0.9 s, all after 1.5 s."""
    at, rows = np.array([0.0, 0.9, 1.5, 3.0]), np.array([0.0, 8.0, 10.0, 10.0])
    share = driver_runs._share(at, rows, 2.0)
    assert share[np.searchsorted(GRID, 0.44)] == 0
    assert share[np.searchsorted(GRID, 0.46)] == 0.8
    assert share[-1] == 1
    assert np.isnan(driver_runs._share(at, rows * 0, 2.0)).all()


def test_ratios_are_of_means_of_lookups_and_medians_of_time():
    def one(probes, cpu_s):
        return PolicySummary({"all": probes}, {}, {"all": cpu_s}, {"all": 1.0}, {})

    runs = [
        CaseResult({"timestamp": one(100, base), "adaptive": one(90, other)}, 0.1)
        for base, other in ((1.0, 1.0), (2.0, 1.0), (2.0, 9.0))
    ]
    assert lookups_by(runs, "adaptive", ("timestamp",)) == 0.9
    assert time_by(runs, "adaptive") == 0.5


def test_the_papers_averages_are_those_of_its_columns():
    for i, (period, average) in enumerate(AVERAGE_TIME.items()):
        column = [rows["initial_output"][i] for rows in RUNNING_TIME.values()]
        assert np.mean(column) == pytest.approx(average, abs=0.001), period
    assert printed(AT_HALF, "I", "consumption_rate", "1M") is None
