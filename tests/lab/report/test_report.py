"""Experiments of parts: what is finished is not done again, what fails is named, and the reports say all."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from lab.experiment import Claim, Statement
from lab.report import journal
from lab.report.figures import Context, Figure, ReportedExperiment, ReportPart, Table
from lab.report.run import run_parts
from streamjoin.plot import Chart

FASTER = Statement("a-1-faster", "A by B <time>", "paper A, figure 1", "<", 1, "times")
SMALLER = Statement("b-1-smaller", "tuples of A by B", "paper B, figure 1", "<=", 0.5, "times")
OPEN = Statement("b-1-open", "needs a peer", "paper B, figure 1", ">=", 3, "times", aim=5)


def figure_a(context: Context) -> Sequence[Figure]:
    chart = Chart("time", "tuples", "seconds", {"A": ([0, 1], [1, 2]), "B": ([0, 1], [1, 3])})
    claim = FASTER.measured([0.7, 0.8, 0.9])
    table = Table(("engine", "rows/s"), [["A", 1_234_567], ["B | C", None]])
    return [Figure("a-1", "A & B", "what was run", "A is faster", [claim], [chart], table, ["a note"])]


def figure_b(context: Context) -> Sequence[Figure]:
    claims = [replace(SMALLER.measured([0.7]), why="because"), OPEN.open("the peer is not installed")]
    return [Figure("b-1", "B", "what was run", "A is smaller", claims, series={"x": [1, 2]})]


def experiment(*runs: Callable[[Context], Sequence[Figure]]) -> ReportedExperiment:
    parts = [ReportPart(f"part-{i}", f"part {i}", (1, 2), run) for i, run in enumerate(runs)]
    return ReportedExperiment(
        "toy", "a toy", "A toy", "For a test.", {"a": "A", "b": "B"}, lambda: parts, 1, 0, "It says"
    )


def go(tmp_path: Path, what: ReportedExperiment, *, quick: bool = False) -> bool:
    return run_parts(what, tmp_path / "toy.json", Console(quiet=True), quick=quick)


def test_both_reports_have_every_figure_claim_and_reason(tmp_path: Path) -> None:
    assert go(tmp_path, experiment(figure_a, figure_b))
    result = json.loads((tmp_path / "toy.json").read_text())
    assert [claim["holds"] for claim in result["claims"]] == [True, False, None]
    assert result["series"]["b-1"] == {"x": [1, 2]}
    page, text = ((tmp_path / f"toy.{ending}").read_text() for ending in ("html", "md"))
    for says in ("what was run", "1,234,567", "because", "the peer is not installed", "1 of 3 claims hold"):
        assert says in page, says
        assert says in text, says
    assert "A by B &lt;time&gt;" in page
    assert "0.8 (0.7 to 0.9, 3 runs)" in page
    assert "A &amp; B" in page
    assert "src='data:image/png;base64," in page
    assert not re.search(r"""(src|href)=['"](?!data:|#)""", page)  # nothing outside the file
    for picture in re.findall(r"!\[.*?\]\((.*?)\)", text):
        assert (tmp_path / picture).exists()
    assert r"| B \| C |" in text
    assert not (tmp_path / "toy.parts").exists()


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    ran = []

    def first(context: Context) -> Sequence[Figure]:
        ran.append("first")
        return figure_a(context)

    def stopped(context: Context) -> Sequence[Figure]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(tmp_path, experiment(first, stopped))
    assert not (tmp_path / "toy.json").exists()
    assert go(tmp_path, experiment(first, figure_b))
    assert ran == ["first"]
    assert len(json.loads((tmp_path / "toy.json").read_text())["claims"]) == 3
    assert go(tmp_path, experiment(first, figure_b))  # the last one was whole: all anew
    assert ran == ["first", "first"]


@pytest.mark.parametrize("change", ["form", "code"])
def test_what_another_program_finished_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    ran = []

    def first(context: Context) -> Sequence[Figure]:
        ran.append(context.quick)
        return figure_a(context)

    def fails(context: Context) -> Sequence[Figure]:
        raise ValueError

    go(tmp_path, experiment(first, fails))
    if change == "code":
        monkeypatch.setattr(journal, "code_hash", lambda: "other")
    go(tmp_path, experiment(first, figure_b), quick=change == "form")
    assert ran == [False, change == "form"]


def test_a_part_that_fails_is_named_and_done_again_alone(tmp_path: Path) -> None:
    ran = []

    def first(context: Context) -> Sequence[Figure]:
        ran.append("first")
        return figure_a(context)

    def fails(context: Context) -> Sequence[Figure]:
        raise ValueError("no disk")

    assert not go(tmp_path, experiment(first, fails, figure_b))
    for ending in ("html", "md"):
        text = (tmp_path / f"toy.{ending}").read_text()
        assert "Did not end: part 1: ValueError: no disk" in text
        assert "tuples of A by B" in text  # the parts after it were run
    assert go(tmp_path, experiment(first, lambda context: [], figure_b))
    assert ran == ["first"]


def test_the_product_stands_beside_the_reference_and_impossible_is_no_failure(tmp_path: Path) -> None:
    def figures(context: Context) -> Sequence[Figure]:
        decided = FASTER.decided([0.7, 0.8]).beside(FASTER.measured([1.5]))
        undecided = replace(FASTER, id="a-1-b").decided([0.9, 1.1])
        never = replace(OPEN.measured([1.5]), id="a-1-c", impossible="39 % hits give at most 1.64 times")
        return [Figure("a-1", "A", "what was run", "A is faster", [decided, undecided, never])]

    assert go(tmp_path, experiment(figures))
    text = (tmp_path / "toy.md").read_text()
    for says in (
        "1 of 3 claims hold; 1 must. 1 are impossible",
        "| holds | 1.5: does not hold |",
        "Undecided: A by B <time>. the runs lie on both sides of 1",
        "Impossible: needs a peer. 39 % hits give at most 1.64 times",
        "| in all | 1 | 1 | 0 | 1 | 0 | 3 |",
    ):
        assert says in text, says
    assert "the product</th>" in (tmp_path / "toy.html").read_text()
    stored = json.loads((tmp_path / "toy.json").read_text())["claims"]
    assert Claim.of(stored[0]).product.holds is False
