"""`python -m lab generate`: seeded data as files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import click

from streamjoin.cli.options import ITEMS, ORDER, OUT, RECORDS, SEED


@click.group()
def generate() -> None:
    """Write seeded streams to files."""


@generate.command("news")
@ITEMS
@RECORDS
@ORDER
@SEED
@click.option(
    "--format",
    "form",
    type=click.Choice(["xml", "parquet"]),
    default="xml",
    show_default=True,
    help="Kind of file.",
)
@OUT
def generate_news(
    items: int, records: float, order: Literal["ordered", "random"], seed: int, form: str, out: Path
) -> None:
    """The NewsGeneral and AccessRecord streams of the metadata-aware MJoin paper."""
    from streamjoin.demo.generators.news import ACCESS_SCHEMA, NEWS_SCHEMA, NewsStreams

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
@SEED
@click.option("--punctuations", is_flag=True, help="Rows with is_end say which auction or seller is over.")
@OUT
def generate_nexmark(events: int, rate: int, seed: int, out: Path, *, punctuations: bool) -> None:
    """Persons, auctions and bids of the NEXMark benchmark, as Parquet files."""
    from streamjoin.demo.generators.nexmark import TABLES, Nexmark, nexmark_schema

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
@SEED
@click.option("--spread", type=int, help="How many keys ahead the others of a segment lie.  [default: all]")
@click.option("--irrelevant", type=float, help="Share of the punctuations that speak of no key.")
@OUT
def generate_pattern(
    name: str, rows: int, seed: int, spread: int | None, irrelevant: float | None, out: Path
) -> None:
    """A stream of the punctuation papers, by NAME, as a Parquet file.

    cluster-[order]-[size], punct-[order]-[segment]-[match %], unique-[order] or uniform-[keys], with the
    order asc, desc or random: punct-asc-100-40.
    """
    from lab.generators.patterns import PATTERN_SCHEMA, pattern

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
@SEED
@OUT
def generate_driver(
    name: Literal["I", "II", "III", "IV", "V", "VI"], scale: float, seed: int, out: Path
) -> None:
    """Three streams of the paper on driver inputs, data set NAME, as Parquet files."""
    from lab.generators.driver_sets import DRIVER_SCHEMA, DRIVER_SETS

    out.mkdir(parents=True, exist_ok=True)
    tables = DRIVER_SETS[name].streams(scale=scale, seed=seed).tables
    for stream, table in tables.items():
        _write_parquet(out / f"{stream}.parquet", DRIVER_SCHEMA, [table])
    _say(*(out / f"{stream}.parquet" for stream in tables))


@generate.group("table")
def generate_table() -> None:
    """Master data and a stream that is joined with it.

    Writes Parquet folders: master/ and stream/, with one file a batch of the stream.
    """


_TABLE_ROWS = click.option(
    "--rows", type=click.IntRange(1), default=1_000_000, show_default=True, help="Rows of master data."
)
_STREAM_ROWS = click.option(
    "--stream-rows", type=click.IntRange(1), default=1_000_000, show_default=True, help="Tuples in all."
)
_BATCH_ROWS = click.option(
    "--batch-rows", type=click.IntRange(1), default=100_000, show_default=True, help="Tuples in a file."
)


@generate_table.command("zipf")
@_TABLE_ROWS
@click.option("--skew", default=1.0, show_default=True, help="Zipf's exponent; 0 is uniform.")
@_STREAM_ROWS
@_BATCH_ROWS
@click.option("--shift-at", type=click.IntRange(0), help="The first tuple whose hot values are others.")
@SEED
@OUT
def generate_master_zipf(  # noqa: PLR0913  # one parameter per option
    rows: int, skew: float, stream_rows: int, batch_rows: int, seed: int, out: Path, *, shift_at: int | None
) -> None:
    """The synthetic data of the SSBJ paper: 120 bytes a row, 20 a tuple.

    Values of master data are drawn with repetition, so some have several rows and some none; tuples follow
    Zipf's law over the same values.
    """
    from streamjoin.demo.generators.zipf import ZipfStreams

    streams = ZipfStreams(seed=seed, rows=rows, skew=skew, shift_at=shift_at)
    _write_table(out, streams.table(), _cut(streams, stream_rows, batch_rows))


@generate_table.command("weather")
@_TABLE_ROWS
@_STREAM_ROWS
@_BATCH_ROWS
@SEED
@OUT
def generate_master_weather(rows: int, stream_rows: int, batch_rows: int, seed: int, out: Path) -> None:
    """Weather reports by longitude: 128 bytes each, many to many on 36,001 values."""
    from lab.generators.weather import WeatherStreams

    streams = WeatherStreams(seed=seed, rows=rows)
    _write_table(out, streams.table(), _cut(streams, stream_rows, batch_rows))


@generate_table.command("tpch")
@click.option("--scale", default=0.1, show_default=True, help="Scale factor; 1 has 150,000 customers.")
@click.option("--skew", type=float, help="Draw each order's customer by Zipf's law with this exponent.")
@_BATCH_ROWS
@SEED
@OUT
def generate_master_tpch(scale: float, skew: float | None, batch_rows: int, seed: int, out: Path) -> None:
    """Customers and orders of the TPC-H benchmark (needs streamjoin[demo])."""
    from streamjoin.demo.generators.tpch import TpchStreams

    streams = TpchStreams(scale=scale, skew=skew, seed=seed)
    _write_table(out, streams.customers(), streams.orders(batch_rows))


def _cut(streams: Any, rows: int, batch_rows: int) -> Iterator[Any]:
    """The first tuples of a stream, in batches."""
    for first in range(0, rows, batch_rows):
        yield streams.tuples(first, min(batch_rows, rows - first))


def _write_table(out: Path, table: Iterator[Any], stream: Iterator[Any]) -> None:
    """Files of an earlier run go first: a folder is read whole."""
    from itertools import chain

    files = []
    for folder in (out / "table", out / "stream"):
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.parquet"):
            old.unlink()
    first = next(table)
    files.append(out / "table" / "0000.parquet")
    _write_parquet(files[0], first.schema, chain([first], table))
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
