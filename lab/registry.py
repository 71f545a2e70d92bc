"""The experiments the lab knows, and running one with a progress bar."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from lab.experiment import Experiment, StepReporter
from lab.papers import experiment as papers
from lab.peers import experiment as peers
from lab.report.figures import ReportedExperiment
from lab.report.run import run_parts
from lab.report.terminal import print_claims
from lab.scale import experiment as scale
from lab.spark_joins import experiment as spark_joins
from lab.state_model import experiment as state


def experiments() -> dict[str, Experiment | ReportedExperiment]:
    """By name."""
    return {
        one.name: one for module in (papers, peers, scale, spark_joins, state) for one in module.experiments()
    }


def run(experiment: Experiment | ReportedExperiment, path: Path, *, quick: bool) -> bool:
    """Run, save, print the claims; returns whether all of it ran to its end."""
    console = Console()
    if isinstance(experiment, ReportedExperiment):
        return run_parts(experiment, path, console, quick=quick)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task(experiment.name, total=None)
        started = False

        def step(what: str) -> None:
            nonlocal started
            bar.update(task, description=what, advance=1 if started else 0)
            started = True
            if not console.is_terminal:  # where the bar is not drawn
                console.print(what, highlight=False, soft_wrap=True)

        result = experiment.run(quick, StepReporter(lambda total: bar.update(task, total=total), step))
        bar.update(task, advance=1)
    print_claims(console, result.claims, result.required, result.save(path))
    return True
