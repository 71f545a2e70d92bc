"""The experiments the lab knows, and running one with a progress bar."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from lab import binary, multiway, planner, semistream, throughput
from lab.experiment import Experiment, Progress
from lab.papers import experiment as papers
from lab.parts import Reported
from lab.peers import experiment as peers
from lab.run_parts import run_parts
from lab.scale import experiment as scale
from lab.terminal import tell


def experiments() -> dict[str, Experiment | Reported]:
    """By name."""
    return {
        one.name: one
        for module in (throughput, binary, planner, multiway, semistream, papers, peers, scale)
        for one in module.experiments()
    }


def run(experiment: Experiment | Reported, path: Path, *, quick: bool) -> bool:
    """Run, save, tell; returns whether all of it ran to its end."""
    console = Console()
    if isinstance(experiment, Reported):
        return run_parts(experiment, path, console, quick=quick)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task(experiment.name, total=None)
        started = False

        def step(what: str) -> None:
            nonlocal started
            bar.update(task, description=what, advance=1 if started else 0)
            started = True
            if not console.is_terminal:  # where the bar is not drawn
                console.print(what, highlight=False, soft_wrap=True)

        result = experiment.run(quick, Progress(lambda total: bar.update(task, total=total), step))
        bar.update(task, advance=1)
    tell(console, result.claims, result.required, result.save(path))
    return True
