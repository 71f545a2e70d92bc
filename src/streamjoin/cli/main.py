"""The command `streamjoin`: its subcommands, one file each."""

from __future__ import annotations

import sys

import click

from streamjoin import __version__
from streamjoin.cli.demo import demo
from streamjoin.cli.rebucket import rebucket
from streamjoin.cli.state import state
from streamjoin.errors import StreamJoinError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="streamjoin")
def commands() -> None:
    """Stream-stream joins with bounded state."""


for _command in (demo, state, rebucket):
    commands.add_command(_command)


def main() -> None:
    """Run a command; an error of ours is one message, not a trace."""
    try:
        commands()
    except StreamJoinError as error:
        click.echo(f"{type(error).__name__}: {error}", err=True)
        sys.exit(1)
