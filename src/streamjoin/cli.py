"""The command line: `streamjoin demo`, `generate`, `lab`, `state` and `rebucket`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import click

from streamjoin.errors import StreamJoinError

_OUT = click.option(
    "--out", type=click.Path(path_type=Path), default=Path("out"), show_default=True, help="Folder for files."
)
_SEED = click.option("--seed", default=1, show_default=True, help="The same seed gives the same data.")
_ITEMS = click.option("--items", default=2_000, show_default=True, help="News items in all.")
_RECORDS = click.option(
    "--records", default=50.0, show_default=True, help="Access records per item, on average."
)
_ORDER = click.option(
    "--order",
    type=click.Choice(["ordered", "random"]),
    default="random",
    show_default=True,
    help="How news arrive.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="streamjoin")
def commands() -> None:
    """Joins over live streams that know when to let go of their state."""


@commands.group()
def demo() -> None:
    """See a join at work."""


@demo.command("news")
@_ITEMS
@_RECORDS
@_ORDER
@_SEED
@click.option("--batch-rows", default=5_000, show_default=True, help="Rows per batch, about.")
@click.option("--local", is_flag=True, help="In this process, without Spark.")
@_OUT
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
@_SEED
@click.option(
    "--batch-hours",
    type=click.FloatRange(min=0.05),
    default=3.0,
    show_default=True,
    help="Event time per batch; 48 hours in all.",
)
@click.option("--local", is_flag=True, help="In this process, without Spark.")
@_OUT
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
@_SEED
@click.option(
    "--batch-minutes",
    type=click.FloatRange(min=0.1),
    default=20.0,
    show_default=True,
    help="Event time per batch.",
)
@click.option("--local", is_flag=True, help="In this process, without Spark.")
@_OUT
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
@_SEED
@click.option("--local", is_flag=True, help="In this process, without Spark.")
@_OUT
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
def generate() -> None:
    """Write seeded streams to files."""


@generate.command("news")
@_ITEMS
@_RECORDS
@_ORDER
@_SEED
@click.option(
    "--format",
    "form",
    type=click.Choice(["xml", "parquet"]),
    default="xml",
    show_default=True,
    help="Kind of file.",
)
@_OUT
def generate_news(
    items: int, records: float, order: Literal["ordered", "random"], seed: int, form: str, out: Path
) -> None:
    """The NewsGeneral and AccessRecord streams of the metadata-aware MJoin paper."""
    from streamjoin.sources.news import ACCESS_SCHEMA, NEWS_SCHEMA, NewsStreams

    streams = NewsStreams(seed=seed, items=items, records_per_item=records, order=order)
    out.mkdir(parents=True, exist_ok=True)
    files = [out / f"news.{form}", out / f"access.{form}"]
    if form == "xml":
        streams.write_xml(*files)
    else:
        _write_parquet(files[0], NEWS_SCHEMA, streams.news(100_000))
        _write_parquet(files[1], ACCESS_SCHEMA, streams.access(100_000))
    _say(*files)


@generate.command("nexmark")
@click.option("--events", default=100_000, show_default=True, help="Persons, auctions and bids in all.")
@click.option("--rate", default=10_000, show_default=True, help="Events in a second of event time.")
@_SEED
@click.option("--punctuations", is_flag=True, help="Rows with is_end say which auction or seller is over.")
@_OUT
def generate_nexmark(events: int, rate: int, seed: int, out: Path, *, punctuations: bool) -> None:
    """Persons, auctions and bids of the NEXMark benchmark, as Parquet files."""
    from streamjoin.sources.nexmark import TABLES, Nexmark, nexmark_schema

    streams = Nexmark(seed=seed, events=events, rate=rate)
    out.mkdir(parents=True, exist_ok=True)
    for table in TABLES:
        marked = punctuations and table != "person"
        schema = nexmark_schema(table, punctuations=marked)
        _write_parquet(out / f"{table}.parquet", schema, streams.tables(table, punctuations=marked))
    _say(*(out / f"{table}.parquet" for table in TABLES))


@generate.command("pattern")
@click.argument("name")
@click.option("--rows", default=100_000, show_default=True, help="Tuples; punctuations come on top.")
@_SEED
@click.option("--spread", type=int, help="How many keys ahead the others of a segment lie.  [default: all]")
@click.option("--irrelevant", type=float, help="Share of the punctuations that speak of no key.")
@_OUT
def generate_pattern(
    name: str, rows: int, seed: int, spread: int | None, irrelevant: float | None, out: Path
) -> None:
    """A stream of the punctuation papers, by NAME, as a Parquet file.

    cluster-[order]-[size], punct-[order]-[segment]-[match %], unique-[order] or uniform-[keys], with the
    order asc, desc or random: punct-asc-100-40.
    """
    from streamjoin.sources.patterns import PATTERN_SCHEMA, pattern

    given = {"spread": spread, "irrelevant": irrelevant}
    table = pattern(name, rows=rows, seed=seed, **{k: v for k, v in given.items() if v is not None})
    out.mkdir(parents=True, exist_ok=True)
    file = out / f"{name}.parquet"
    _write_parquet(file, PATTERN_SCHEMA, [table])
    _say(file)


@generate.command("driver")
@click.argument("name", type=click.Choice(["I", "II", "III", "IV", "V", "VI"]))
@click.option(
    "--scale", default=1.0, show_default=True, help="Times the paper's tuples, keys and time; 0.001 to 10."
)
@_SEED
@_OUT
def generate_driver(
    name: Literal["I", "II", "III", "IV", "V", "VI"], scale: float, seed: int, out: Path
) -> None:
    """Three streams of the paper on driver inputs, data set NAME, as Parquet files."""
    from streamjoin.sources.driver_sets import DRIVER_SCHEMA, DRIVER_SETS

    out.mkdir(parents=True, exist_ok=True)
    tables = DRIVER_SETS[name].streams(scale=scale, seed=seed).tables
    for stream, table in tables.items():
        _write_parquet(out / f"{stream}.parquet", DRIVER_SCHEMA, [table])
    _say(*(out / f"{stream}.parquet" for stream in tables))


@generate.group("master")
def generate_master() -> None:
    """Master data and a stream that is joined with it.

    Writes Parquet folders: master/ and stream/, with one file a batch of the stream.
    """


_MASTER_ROWS = click.option(
    "--rows", type=click.IntRange(1), default=1_000_000, show_default=True, help="Rows of master data."
)
_STREAM_ROWS = click.option(
    "--stream-rows", type=click.IntRange(1), default=1_000_000, show_default=True, help="Tuples in all."
)
_BATCH_ROWS = click.option(
    "--batch-rows", type=click.IntRange(1), default=100_000, show_default=True, help="Tuples in a file."
)


@generate_master.command("zipf")
@_MASTER_ROWS
@click.option("--skew", default=1.0, show_default=True, help="Zipf's exponent; 0 is uniform.")
@_STREAM_ROWS
@_BATCH_ROWS
@click.option("--shift-at", type=click.IntRange(0), help="The first tuple whose hot values are others.")
@_SEED
@_OUT
def generate_master_zipf(  # noqa: PLR0913  # one parameter per option
    rows: int, skew: float, stream_rows: int, batch_rows: int, seed: int, out: Path, *, shift_at: int | None
) -> None:
    """The synthetic data of the SSBJ paper: 120 bytes a row, 20 a tuple.

    Values of master data are drawn with repetition, so some have several rows and some none; tuples follow
    Zipf's law over the same values.
    """
    from streamjoin.sources.zipf import ZipfStreams

    streams = ZipfStreams(seed=seed, rows=rows, skew=skew, shift_at=shift_at)
    _write_master(out, streams.master(), _cut(streams, stream_rows, batch_rows))


@generate_master.command("weather")
@_MASTER_ROWS
@_STREAM_ROWS
@_BATCH_ROWS
@_SEED
@_OUT
def generate_master_weather(rows: int, stream_rows: int, batch_rows: int, seed: int, out: Path) -> None:
    """Weather reports by longitude: 128 bytes each, many to many on 36,001 values."""
    from streamjoin.sources.weather import WeatherStreams

    streams = WeatherStreams(seed=seed, rows=rows)
    _write_master(out, streams.master(), _cut(streams, stream_rows, batch_rows))


@generate_master.command("tpch")
@click.option("--scale", default=0.1, show_default=True, help="Scale factor; 1 has 150,000 customers.")
@click.option("--skew", type=float, help="Draw each order's customer by Zipf's law with this exponent.")
@_BATCH_ROWS
@_SEED
@_OUT
def generate_master_tpch(scale: float, skew: float | None, batch_rows: int, seed: int, out: Path) -> None:
    """Customers and orders of the TPC-H benchmark (needs streamjoin[demo])."""
    from streamjoin.sources.tpch import TpchStreams

    streams = TpchStreams(scale=scale, skew=skew, seed=seed)
    _write_master(out, streams.customers(), streams.orders(batch_rows))


def _cut(streams: Any, rows: int, batch_rows: int) -> Iterator[Any]:
    """The first tuples of a stream, in batches."""
    for first in range(0, rows, batch_rows):
        yield streams.tuples(first, min(batch_rows, rows - first))


def _write_master(out: Path, master: Iterator[Any], stream: Iterator[Any]) -> None:
    """Files of an earlier run go first: a folder is read whole."""
    from itertools import chain

    files = []
    for folder in (out / "master", out / "stream"):
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.parquet"):
            old.unlink()
    first = next(master)
    files.append(out / "master" / "0000.parquet")
    _write_parquet(files[0], first.schema, chain([first], master))
    for i, batch in enumerate(stream):
        files.append(out / "stream" / f"{i:04}.parquet")
        _write_parquet(files[-1], batch.schema, [batch])
    _say(*files)


def _write_parquet(file: Path, schema: Any, tables: Iterable[Any]) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(file, schema) as writer:
        for table in tables:
            writer.write_table(table)


def _say(*files: Path) -> None:
    for file in files:
        click.echo(f"{file}  {file.stat().st_size:,} bytes")


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
    """Run the experiment NAME and write its claims as JSON, with a figure beside it."""
    from streamjoin.lab.registry import experiments, run

    known = experiments()
    if name not in known:
        raise click.BadParameter(f"{name!r} is not one of {', '.join(known)}", param_hint="NAME")
    run(known[name], path or Path("out") / f"{name}.json", quick=quick)


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
