"""`streamjoin rebucket`: rewrite a checkpoint for another number of buckets."""

from __future__ import annotations

from pathlib import Path

import click

from streamjoin.cli.options import CHECKPOINT, JOIN
from streamjoin.cli.quiet_session import quiet_session


@click.command("rebucket")
@CHECKPOINT
@click.option("--buckets", type=int, required=True, help="The new number of buckets.")
@click.option(
    "--to", type=click.Path(path_type=Path), help="The new checkpoint.  [default: CHECKPOINT-BUCKETS]"
)
@JOIN
def rebucket(checkpoint: Path, buckets: int, to: Path | None, join: str | None) -> None:
    """Write a query's state for another number of buckets.

    Stop the query first. The new checkpoint is written beside CHECKPOINT, which stays as it is; it is read
    back and compared before it gets its name. Then start the query with sj.join(…, buckets=BUCKETS) and
    the new checkpoint: it goes on at the same offsets, with the same batch ids. Go on from one of the two
    only. Needs disk space beside it for four copies of the state while it works.
    """
    from streamjoin.spark.checkpoint.rebucket import Rebucketing

    asked = Rebucketing.of(checkpoint, buckets, to, join)
    with quiet_session() as spark:
        asked.run(spark, lambda text: click.echo(text, err=True))
    click.echo(f"{asked.target}: start the query from here, with buckets={buckets}")
