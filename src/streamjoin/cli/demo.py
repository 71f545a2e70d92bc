"""`streamjoin demo`: see a join at work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from streamjoin.cli.options import ITEMS, ORDER, OUT, RECORDS, SEED

if TYPE_CHECKING:
    from streamjoin.demo.runner import Demo

_LOCAL = click.option("--local", is_flag=True, help="In this process, without Spark.")


def _show(demo: Demo[Any], out: Path, *, local: bool) -> None:
    from rich.console import Console

    from streamjoin.demo.runner import show

    show(demo, Console(), out, local=local)


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
    from streamjoin.demo.generators.news import NewsStreams
    from streamjoin.demo.news import NewsDemo

    streams = NewsStreams(seed=seed, items=items, records_per_item=records, order=order)
    _show(NewsDemo(streams, batch_rows), out, local=local)


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
    from streamjoin.demo.auction import AuctionDemo
    from streamjoin.demo.generators.auction import AuctionStreams

    streams = AuctionStreams(seed=seed, items=items, bids_per_item=bids)
    _show(AuctionDemo(streams, batch_hours), out, local=local)


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
    from streamjoin.demo.generators.rooms import RoomStreams
    from streamjoin.demo.rooms import RoomsDemo

    streams = RoomStreams(seed=seed, rooms=rooms, hours=hours)
    _show(RoomsDemo(streams, batch_minutes), out, local=local)


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

    Needs streamjoin[demo], which brings the generator of the tables.
    """
    from streamjoin.demo.generators.tpch import TpchStreams
    from streamjoin.demo.warehouse import WarehouseDemo

    streams = TpchStreams(scale=scale, skew=skew, seed=seed)
    _show(WarehouseDemo(streams, batch_rows, cycle_batches), out, local=local)
