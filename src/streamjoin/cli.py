"""The command line: `streamjoin demo`, `generate`, `lab`, `state` and `rebucket`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import click

from streamjoin.cli_generate import ITEMS, ORDER, OUT, RECORDS, SEED, generate
from streamjoin.errors import StreamJoinError

_LOCAL = click.option("--local", is_flag=True, help="In this process, without Spark.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="streamjoin")
def commands() -> None:
    """Joins over live streams that know when to let go of their state."""


commands.add_command(generate)


@commands.group()
def demo() -> None:
    """See a join at work."""


@demo.command("news")
@ITEMS
@RECORDS
@ORDER
@SEED
@click.option("--batch-rows", default=5_000, show_default=True, help="Rows per batch, about.")
@_LOCAL
@OUT
def demo_news(  # noqa: PLR0913  # one parameter per option
    items: int,
    records: float,
    order: Literal["ordered", "random"],
    seed: int,
    batch_rows: int,
    out: Path,
    *,
    local: bool,
) -> None:
    """News items joined with their readers: the state stays flat, because items end."""
    from rich.console import Console

    from streamjoin.lab.demo_news import run_local, show
    from streamjoin.sources.news import NewsStreams

    run = run_local
    if not local:
        from streamjoin.lab.demo_news_spark import run_spark as run
    streams = NewsStreams(seed=seed, items=items, records_per_item=records, order=order)
    show(streams, run, Console(), out, batch_rows)


@demo.command("auction")
@click.option(
    "--items", type=click.IntRange(min=1), default=4_000, show_default=True, help="Items put up for auction."
)
@click.option("--bids", default=6.0, show_default=True, help="Bids per item, on average.")
@SEED
@click.option(
    "--batch-hours",
    type=click.FloatRange(min=0.05),
    default=3.0,
    show_default=True,
    help="Event time per batch; 48 hours in all.",
)
@_LOCAL
@OUT
def demo_auction(items: int, bids: float, seed: int, batch_hours: float, out: Path, *, local: bool) -> None:
    """Items joined with their bids: a window bounds the state, punctuations make it small."""
    from rich.console import Console

    from streamjoin.lab.demo_auction import run_local, show
    from streamjoin.sources.auction import AuctionStreams

    run = run_local
    if not local:
        from streamjoin.lab.demo_auction_spark import run_spark as run
    show(AuctionStreams(seed=seed, items=items, bids_per_item=bids), run, Console(), out, batch_hours)


@demo.command("rooms")
@click.option(
    "--rooms", type=click.IntRange(min=1), default=40, show_default=True, help="Rooms of the building."
)
@click.option(
    "--hours", type=click.FloatRange(min=0.1), default=6.0, show_default=True, help="Event time in all."
)
@SEED
@click.option(
    "--batch-minutes",
    type=click.FloatRange(min=0.1),
    default=20.0,
    show_default=True,
    help="Event time per batch.",
)
@_LOCAL
@OUT
def demo_rooms(rooms: int, hours: float, seed: int, batch_minutes: float, out: Path, *, local: bool) -> None:
    """Temperature, humidity and light of each room and minute, three streams in one join."""
    from rich.console import Console

    from streamjoin.lab.demo_rooms import run_local, show
    from streamjoin.sources.rooms import RoomStreams

    run = run_local
    if not local:
        from streamjoin.lab.demo_rooms_spark import run_spark as run
    show(RoomStreams(seed=seed, rooms=rooms, hours=hours), run, Console(), out, batch_minutes)


@demo.command("warehouse")
@click.option(
    "--scale",
    type=click.FloatRange(min=0.05),
    default=1.0,
    show_default=True,
    help="TPC-H scale factor; 1 has 150,000 customers.",
)
@click.option("--skew", default=1.0, show_default=True, help="Zipf's exponent of how often customers order.")
@click.option(
    "--batch-rows", type=click.IntRange(min=100), default=10_000, show_default=True, help="Orders in a batch."
)
@click.option(
    "--cycle-batches",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="In how many batches each order is answered.",
)
@SEED
@_LOCAL
@OUT
def demo_warehouse(  # noqa: PLR0913  # one parameter per option
    scale: float, skew: float, batch_rows: int, cycle_batches: int, seed: int, out: Path, *, local: bool
) -> None:
    """Orders with their customers, a table that changes and of which memory holds a tenth.

    Needs streamjoin[demo], which makes the tables.
    """
    from rich.console import Console

    from streamjoin.lab.demo_warehouse import run_local, show
    from streamjoin.sources.tpch import TpchStreams

    run = run_local
    if not local:
        from streamjoin.lab.demo_warehouse_spark import run_spark as run
    streams = TpchStreams(scale=scale, skew=skew, seed=seed)
    show(streams, run, Console(), out, batch_rows=batch_rows, cycle=cycle_batches)


@commands.group()
def lab() -> None:
    """Measure: experiments whose claims hold or do not."""


@lab.command("list")
def lab_list() -> None:
    """What can be run."""
    from streamjoin.lab.registry import experiments

    for experiment in experiments().values():
        click.echo(f"{experiment.name:12} {experiment.says}")


@lab.command("run")
@click.argument("name")
@click.option("--quick", is_flag=True, help="Fewer repeats, at most 10 minutes; some claims stay open.")
@click.option("--json", "path", type=click.Path(path_type=Path), help="Where to write the result.")
def lab_run(name: str, path: Path | None, *, quick: bool) -> None:
    """Run the experiment NAME and write its claims as JSON, with a figure beside it.

    papers, peers and scale also write a report to read, FILE.html (one file) and FILE.md. Run again after an
    interruption they go on with the first part that was not finished.
    """
    from streamjoin.lab.registry import experiments, run

    known = experiments()
    if name not in known:
        raise click.BadParameter(f"{name!r} is not one of {', '.join(known)}", param_hint="NAME")
    if not run(known[name], path or Path("out") / f"{name}.json", quick=quick):
        raise click.ClickException("Not all of it ran to its end; run again to do the rest.")


_CHECKPOINT = click.argument("checkpoint", type=click.Path(path_type=Path))
_JOIN = click.option("--join", help="Of this join only, where the query has several.")


@commands.command("state")
@_CHECKPOINT
@click.option("--json", "as_json", is_flag=True, help="As JSON: everything, also by bucket.")
@_JOIN
@click.option("--bucket", type=click.IntRange(min=0), help="Of this bucket only; they count from 0.")
def state(checkpoint: Path, join: str | None, bucket: int | None, *, as_json: bool) -> None:
    """What the joins of a query hold, why, and what would let it go.

    Reads the state of the last finished batch from CHECKPOINT and changes nothing; the query may be
    running or not. Needs room on the disk for a copy of the state while it works.
    """
    import json

    from streamjoin.spark.checkpoint import Checkpoint
    from streamjoin.spark.held import about, join_states

    read = Checkpoint.at(checkpoint)
    with _quiet_session() as spark:
        states = join_states(spark, read, join=join, bucket=bucket)
    if as_json:
        click.echo(json.dumps({**about(read), "joins": [one.to_json() for one in states]}, indent=1))
        return
    later = "" if read.planned is None else f"; batch {read.planned} was begun and will run again"
    click.echo(f"{checkpoint}: state after batch {read.committed}{later}")
    for one in states:
        click.echo(f"\n{one.text()}")


@commands.command("rebucket")
@_CHECKPOINT
@click.option("--buckets", type=int, required=True, help="How many buckets the state shall have.")
@click.option(
    "--to", type=click.Path(path_type=Path), help="The new checkpoint.  [default: CHECKPOINT-BUCKETS]"
)
@_JOIN
def rebucket(checkpoint: Path, buckets: int, to: Path | None, join: str | None) -> None:
    """Write a query's state for another number of buckets.

    Stop the query first. The new checkpoint is written beside CHECKPOINT, which stays as it is; it is read
    back and compared before it gets its name. Then start the query with sj.join(…, buckets=BUCKETS) and
    the new checkpoint: it goes on at the same offsets, with the same batch ids. Go on from one of the two
    only. Needs room beside it for four copies of the state while it works.
    """
    from streamjoin.spark.rebucket import Rebucketing

    asked = Rebucketing.of(checkpoint, buckets, to, join)
    with _quiet_session() as spark:
        asked.run(spark, lambda text: click.echo(text, err=True))
    click.echo(f"{asked.target}: start the query from here, with buckets={buckets}")


@contextmanager
def _quiet_session() -> Iterator[Any]:
    """A local Spark session whose own messages stay off the terminal."""
    import tempfile

    from streamjoin.spark.session import session

    with tempfile.TemporaryDirectory() as folder:
        spark = session(name="streamjoin", log=Path(folder) / "spark.log")
        try:
            yield spark
        finally:
            spark.stop()


def main() -> None:
    """Run a command; an error of ours is one message, not a trace."""
    try:
        commands()
    except StreamJoinError as error:
        click.echo(f"{type(error).__name__}: {error}", err=True)
        sys.exit(1)
