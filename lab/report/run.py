"""Running an experiment of parts: a bar with the time left, a journal, and a report at the end."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.text import Text

from lab.experiment import machine, versions
from lab.report.figures import Context, Pace, ReportedExperiment, ReportPart, in_words
from lab.report.journal import Journal, Outcome
from lab.report.page import Page, html, markdown
from lab.report.terminal import print_claims


class _Left(ProgressColumn):
    """The time left, as the pace of this run says it."""

    def __init__(self, left: Callable[[], float]) -> None:
        super().__init__()
        self._left = left

    def render(self, task: Task) -> Text:
        return Text(f"about {in_words(self._left())} left")


def run_parts(experiment: ReportedExperiment, path: Path, console: Console, *, quick: bool) -> bool:
    """Do what is not done, write the report; returns whether every part ran to its end."""
    parts = experiment.parts()
    path.parent.mkdir(parents=True, exist_ok=True)
    journal = Journal(path.with_suffix(".parts"), quick=quick)
    found, failed = _outcomes(parts, journal, console, quick=quick)
    figures = [figure for outcome in found.values() for figure in outcome.figures]
    page = Page(experiment, figures, failed, _facts(found, quick=quick))
    written = [path, path.with_suffix(".html"), path.with_suffix(".md")]
    written[0].write_text(json.dumps(_result(page, quick=quick), indent=1) + "\n")
    written[1].write_text(html(page, journal.pictures))
    pictures = path.with_suffix("")
    written[2].write_text(markdown(page, pictures.name))
    journal.publish(pictures)
    if not failed:
        journal.close()
    print_claims(console, page.claims, experiment.required, written)
    for part, why in failed.items():
        console.print(f"Did not end: {part}: {why}", highlight=False, soft_wrap=True)
    return not failed


def _outcomes(
    parts: Sequence[ReportPart], journal: Journal, console: Console, *, quick: bool
) -> tuple[dict[str, Outcome], dict[str, str]]:
    """What each part left, now or in the run that was interrupted; and what did not end, with the reason."""
    found, failed = {}, {}
    pace = Pace([part.expected(quick=quick) for part in parts])
    began = perf_counter()

    def left() -> float:
        return pace.left(perf_counter() - began)

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Bar(*columns, _Left(left), console=console) as bar:
        task = bar.add_task("", total=pace.whole)
        for number, part in enumerate(parts, 1):

            def step(what: str, number: int = number) -> None:
                bar.update(task, description=what)
                if not console.is_terminal:
                    place = f"part {number} of {len(parts)}, about {in_words(left())} left"
                    console.print(f"[{place}] {what}", highlight=False, markup=False, soft_wrap=True)

            began, was_there = perf_counter(), journal.has(part.name)
            outcome = _done(part, journal, Context(quick, step, journal.scratch))
            if isinstance(outcome, str):
                failed[part.says] = outcome
            else:
                found[part.name] = outcome
            pace.done(part.expected(quick=quick), None if was_there else perf_counter() - began)
            began = perf_counter()
            bar.update(task, completed=pace.behind)
    return found, failed


def _done(part: ReportPart, journal: Journal, context: Context) -> Outcome | str:
    """What a part left, in this run or before it; or why it did not end."""
    if journal.has(part.name):
        context.step(f"{part.says}: done before")
        return journal.finished(part.name)
    context.step(part.says)
    began = perf_counter()
    try:
        return journal.keep(part.name, part.run(context), perf_counter() - began)
    except Exception as error:  # noqa: BLE001  # the other parts can still be run; it is stored at the end
        return f"{type(error).__name__}: {error}"


def _facts(found: dict[str, Outcome], *, quick: bool) -> list[str]:
    """When it ran, where, on what."""
    minutes = sum(outcome.seconds for outcome in found.values()) / 60
    whens = sorted(outcome.when for outcome in found.values()) or [""]
    form = "short form (--quick): fewer repeats, some claims open" if quick else "full form"
    on = ", ".join(f"{name} {number}" for name, number in versions().items())
    when = f"the first part finished {whens[0]}, the last {whens[-1]}"
    return [f"{form}; {minutes:.0f} minutes of work, {when}; {machine()['cpus']} cores; {on}."]


def _result(page: Page, *, quick: bool) -> dict[str, Any]:
    """As every experiment's result, with the figures beside the claims."""
    figures = []
    for figure in page.figures:
        stored = asdict(figure)
        stored["claims"] = [claim.id for claim in figure.claims]
        del stored["series"]  # stands below
        figures.append(stored)
    return {
        "experiment": page.about.name,
        "form": "quick" if quick else "full",
        "seed": page.about.seed,
        "machine": machine(),
        "versions": versions(),
        "claims": [asdict(claim) for claim in page.claims],
        "required": page.about.required,
        "failed": page.failed,
        "facts": list(page.facts),
        "figures": figures,
        "series": {figure.id: figure.series for figure in page.figures},
    }
