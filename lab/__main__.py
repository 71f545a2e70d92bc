"""The lab's command: `python -m lab run NAME`, from the root of the repository."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lab.generate import generate
from streamjoin.errors import StreamJoinError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def commands() -> None:
    """Measure: experiments whose claims hold or do not."""


@commands.command("list")
def list_experiments() -> None:
    """What can be run."""
    from lab.registry import experiments

    for experiment in experiments().values():
        click.echo(f"{experiment.name:12} {experiment.says}")


@commands.command("run")
@click.argument("name")
@click.option("--quick", is_flag=True, help="Fewer repeats, at most 10 minutes; some claims stay open.")
@click.option("--json", "path", type=click.Path(path_type=Path), help="Where to write the result.")
def run_experiment(name: str, path: Path | None, *, quick: bool) -> None:
    """Run the experiment NAME and write its claims as JSON, with a figure beside it.

    papers, peers and scale also write a report to read, FILE.html (one file) and FILE.md. Run again after an
    interruption they go on with the first part that was not finished.
    """
    from lab.registry import experiments, run

    known = experiments()
    if name not in known:
        raise click.BadParameter(f"{name!r} is not one of {', '.join(known)}", param_hint="NAME")
    if not run(known[name], path or Path("out") / f"{name}.json", quick=quick):
        raise click.ClickException("Not all of it ran to its end; run again to do the rest.")


@commands.command("bench")
@click.option("--store", is_flag=True, help="Store the result as that of this release.")
def run_bench(*, store: bool) -> None:
    """Is anything slower than at the last release? About four minutes."""
    from lab.bench.guard import main as guard

    sys.exit(guard(["--store"] if store else []))


commands.add_command(generate)


def main() -> None:
    """Run a command; an error of ours is one message, not a trace."""
    try:
        commands(prog_name="python -m lab")
    except StreamJoinError as error:
        click.echo(f"{type(error).__name__}: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
