"""`streamjoin demo`: see a join at work."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from streamjoin.cli.options import ITEMS, ORDER, OUT, RECORDS, SEED

_LOCAL = click.option("--local", is_flag=True, help="In this process, without Spark.")


@click.group()
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

    from streamjoin.demo.generators.news import NewsStreams
    from streamjoin.demo.news import run_local, show

    run = run_local
    if not local:
        from streamjoin.demo.news_spark import run_spark as run
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

    from streamjoin.demo.auction import run_local, show
    from streamjoin.demo.generators.auction import AuctionStreams

    run = run_local
    if not local:
        from streamjoin.demo.auction_spark import run_spark as run
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

    from streamjoin.demo.generators.rooms import RoomStreams
    from streamjoin.demo.rooms import run_local, show

    run = run_local
    if not local:
        from streamjoin.demo.rooms_spark import run_spark as run
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
    help="Batches within which each order is enriched.",
)
@SEED
@_LOCAL
@OUT
def demo_warehouse(  # noqa: PLR0913  # one parameter per option
    scale: float, skew: float, batch_rows: int, cycle_batches: int, seed: int, out: Path, *, local: bool
) -> None:
    """Orders enriched from a customer table that changes, with memory for a tenth of it.

    Needs streamjoin[demo], which makes the tables.
    """
    from rich.console import Console

    from streamjoin.demo.generators.tpch import TpchStreams
    from streamjoin.demo.warehouse import run_local, show

    run = run_local
    if not local:
        from streamjoin.demo.warehouse_spark import run_spark as run
    streams = TpchStreams(scale=scale, skew=skew, seed=seed)
    show(streams, run, Console(), out, batch_rows=batch_rows, cycle=cycle_batches)
