"""`streamjoin rebucket`: rewrite a checkpoint for another number of buckets."""

from __future__ import annotations

import click

from streamjoin.cli.options import CHECKPOINT, CONF, JOIN
from streamjoin.cli.quiet_session import quiet_session
from streamjoin.errors import InvalidJoin


@click.command("rebucket")
@CHECKPOINT
@click.option("--buckets", type=int, help="The new number of buckets.")
@click.option("--to", help="The new checkpoint.  [default: CHECKPOINT-BUCKETS]")
@click.option("--in-place", is_flag=True, help="Replace the state of CHECKPOINT itself; a copy is kept.")
@JOIN
@CONF
def rebucket(
    checkpoint: str,
    buckets: int | None,
    to: str | None,
    join: str | None,
    conf: tuple[str, ...],
    *,
    in_place: bool,
) -> None:
    """Write a query's state for another number of buckets.

    Stop the query first. The new checkpoint is written beside CHECKPOINT, which stays as it is, or with
    --in-place takes its place, with a copy of the old one kept beside it; it is read back and compared
    before. Then start the query: it goes on at the same offsets, with the same batch ids. Without --in-place,
    go on from one of the two only. Needs disk space for four copies of the state while it works.

    If --in-place was interrupted, the same command without --buckets says what CHECKPOINT is, and finishes
    what was begun.
    """
    from streamjoin.spark.checkpoint.in_place import unfinished
    from streamjoin.spark.checkpoint.rebucket import Rebucketing
    from streamjoin.spark.files import Files

    def say(text: str) -> None:
        click.echo(text, err=True)

    if in_place and to is not None:
        raise InvalidJoin("--to and --in-place say two things; give one of them")
    with quiet_session(conf) as spark:
        checkpoint = checkpoint.rstrip("/")
        switch = unfinished(Files(spark), checkpoint)
        kept: str | None
        if switch is not None:
            if not in_place or buckets not in (None, switch.buckets):
                raise InvalidJoin(
                    f"rebucketing {checkpoint} to {switch.buckets} buckets was interrupted; finish it first, "
                    f"with --in-place and without --buckets"
                )
            switch.finish(Files(spark), say)
            buckets, done, kept = switch.buckets, checkpoint, switch.kept
        elif buckets is None:
            raise InvalidJoin(
                f"no rebucketing of {checkpoint} was interrupted while it changed it, so it is as it was; "
                "give --buckets"
            )
        else:
            asked = Rebucketing.of(spark, checkpoint, buckets, to, join, in_place=in_place)
            done, kept = asked.target, asked.run(say)
    old = "" if kept is None else f". The old one is {kept}"
    click.echo(f"{done}: in {buckets} buckets; start the query from here{old}")
