"""`streamjoin state`: the state size of a query, and what bounds it."""

from __future__ import annotations

import click

from streamjoin.cli.options import CHECKPOINT, CONF, JOIN
from streamjoin.cli.quiet_session import quiet_session


@click.command("state")
@CHECKPOINT
@click.option("--json", "as_json", is_flag=True, help="As JSON, also by bucket.")
@JOIN
@click.option("--bucket", type=click.IntRange(min=0), help="Of this bucket only; they count from 0.")
@CONF
def state(
    checkpoint: str, join: str | None, bucket: int | None, conf: tuple[str, ...], *, as_json: bool
) -> None:
    """Show the state size of a query's joins and what would bound it.

    Reads the state of the last finished batch from CHECKPOINT and changes nothing; the query may be
    running or not. Needs disk space for a copy of the state while it works.
    """
    import json

    from streamjoin.spark.checkpoint.inspect import about, join_states
    from streamjoin.spark.checkpoint.reader import Checkpoint

    with quiet_session(conf) as spark:
        read = Checkpoint.at(spark, checkpoint)
        states = join_states(read, join=join, bucket=bucket)
        described = about(read)
    if as_json:
        click.echo(json.dumps({**described, "joins": [one.to_json() for one in states]}, indent=1))
        return
    later = "" if read.planned is None else f"; batch {read.planned} was planned and will run again"
    click.echo(f"{checkpoint}: state after batch {read.committed}{later}")
    for one in states:
        click.echo(f"\n{one.text()}")
