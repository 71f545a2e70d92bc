"""`streamjoin state`: the state size of a query, and what bounds it."""

from __future__ import annotations

from pathlib import Path

import click

from streamjoin.cli.options import CHECKPOINT, JOIN
from streamjoin.cli.quiet_session import quiet_session


@click.command("state")
@CHECKPOINT
@click.option("--json", "as_json", is_flag=True, help="As JSON, also by bucket.")
@JOIN
@click.option("--bucket", type=click.IntRange(min=0), help="Of this bucket only; they count from 0.")
def state(checkpoint: Path, join: str | None, bucket: int | None, *, as_json: bool) -> None:
    """Show the state size of a query's joins and what would bound it.

    Reads the state of the last finished batch from CHECKPOINT and changes nothing; the query may be
    running or not. Needs disk space for a copy of the state while it works.
    """
    import json

    from streamjoin.spark.checkpoint.inspect import about, join_states
    from streamjoin.spark.checkpoint.reader import Checkpoint

    read = Checkpoint.at(checkpoint)
    with quiet_session() as spark:
        states = join_states(spark, read, join=join, bucket=bucket)
    if as_json:
        click.echo(json.dumps({**about(read), "joins": [one.to_json() for one in states]}, indent=1))
        return
    later = "" if read.planned is None else f"; batch {read.planned} was planned and will run again"
    click.echo(f"{checkpoint}: state after batch {read.committed}{later}")
    for one in states:
        click.echo(f"\n{one.text()}")
