"""The experiments the lab knows, and running one with a progress bar."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from streamjoin.lab import binary, multiway, planner, semistream, throughput
from streamjoin.lab.experiment import Claim, Experiment, Progress


def experiments() -> dict[str, Experiment]:
    """By name."""
    return {
        one.name: one
        for module in (throughput, binary, planner, multiway, semistream)
        for one in module.experiments()
    }


def run(experiment: Experiment, path: Path, *, quick: bool) -> None:
    """Run, save, tell."""
    console = Console()
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
    for claim in result.claims:
        console.print(_line(claim), highlight=False, soft_wrap=True)
    holding = sum(claim.holds is True for claim in result.claims)
    console.print(f"{holding} of {len(result.claims)} claims hold ({result.required} must).", highlight=False)
    for file in result.save(path):
        console.print(f"Written: {file}", highlight=False)


def _line(claim: Claim) -> str:
    word = {True: "holds", False: "DOES NOT HOLD", None: "open"}[claim.holds]
    if claim.measured is None:
        return f"{word:14}{claim.says}: {claim.why}"
    aim = "" if claim.aim is None else f", aim {claim.aim:g}"
    spread = f" ({claim.low:.2f} to {claim.high:.2f} in {claim.runs} runs)" if claim.runs > 1 else ""
    why = f"; {claim.why}" if claim.why and not claim.holds else ""
    wanted = f"wanted {claim.op} {claim.target:g}{aim}{why}"
    return f"{word:14}{claim.says}: {claim.measured:.2f}{spread}, {wanted}"
