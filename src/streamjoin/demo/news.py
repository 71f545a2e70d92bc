"""The running example of the metadata-aware MJoin paper: which keywords do readers follow?

NewsGeneral (one tuple per news item) joins AccessRecord (many per item) on the item's number.
An item leaves the top ten after a while, and AccessRecord then says so by a punctuation. The
join that knows this holds ten items; the same join with nothing declared holds everything.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from streamjoin.api.join import Joined, join, stream
from streamjoin.declare.marked import marked
from streamjoin.demo.generators.news import ACCESS_SCHEMA, NEWS_SCHEMA, NewsStreams
from streamjoin.errors import InvariantBroken
from streamjoin.plan.bounds import UnboundedState
from streamjoin.plot import Chart


@dataclass
class Watched:
    """What was seen of one join while it ran."""

    label: str
    rows_in: list[int] = field(default_factory=list)
    state_rows: list[int] = field(default_factory=list)
    results: list[pa.Table] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(map(len, self.results))


def news_join(news: Any = NEWS_SCHEMA, access: Any = ACCESS_SCHEMA) -> Joined:
    """The join that knows: one tuple per news item, and when an item's accesses are over."""
    return join(
        stream(news, name="news", key="sno", unique=True, columns=["keyword"]),
        stream(access, name="access", key="sno", punctuation=marked("is_end")),
        name="news_access",
    )


def ignorant_join() -> Joined:
    """The same join with nothing declared; punctuation rows are left out of its input."""
    plain = pa.schema([ACCESS_SCHEMA.field("sno"), ACCESS_SCHEMA.field("ipaddr")])
    return join(
        stream(NEWS_SCHEMA, name="news", key="sno", columns=["keyword"]),
        stream(plain, name="access", key="sno"),
        name="news_access_plain",
    )


def run_local(streams: NewsStreams, batch_rows: int, tick: Callable[[int], None]) -> tuple[Watched, Watched]:
    """Both joins side by side in this process."""
    knowing = Watched("keys and punctuations declared")
    ignorant = Watched("the same join with nothing declared")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnboundedState)  # that its state grows is what is shown
        runs = ((knowing, news_join().local()), (ignorant, ignorant_join().local()))
    seen = 0
    for piece in _pieces(streams, batch_rows):
        seen += sum(map(len, piece.values()))
        for watched, run in runs:
            tables = piece if watched is knowing else _without_marks(piece)
            watched.results.append(run.step(tables))
            watched.rows_in.append(seen)
            watched.state_rows.append(sum(run.state().rows.values()))
        tick(seen)
    return knowing, ignorant


def _pieces(streams: NewsStreams, batch_rows: int) -> Iterator[dict[str, pa.Table]]:
    piece: dict[str, pa.Table] = {}
    for name, table in streams.arrivals(batch_rows):
        if name in piece or (name == "news" and piece):
            yield piece
            piece = {}
        piece[name] = table
    if piece:
        yield piece


def _without_marks(piece: dict[str, pa.Table]) -> dict[str, pa.Table]:
    return {
        name: table.filter(pc.invert(table["is_end"])) if name == "access" else table
        for name, table in piece.items()
    }


def batch_join(streams: NewsStreams) -> pa.Table:
    """The answer, from a join over all rows at once."""
    news = pa.concat_tables(streams.news()).select(["sno", "keyword"])
    access = pa.concat_tables(streams.access())
    access = access.filter(pc.invert(access["is_end"])).select(["sno", "ipaddr"])
    return news.join(access, "sno", join_type="inner")


def show(
    streams: NewsStreams,
    run: Callable[..., tuple[Watched, Watched]],
    console: Console,
    out: Path,
    batch_rows: int,
) -> None:
    """Run the demo and tell about it."""
    console.print("[bold]Which keywords do readers follow?[/] news ⋈ access on the news item's number\n")
    console.print(news_join().explain(), highlight=False, soft_wrap=True)
    console.print()
    expected = batch_join(streams)
    total = sum(map(len, streams.news())) + sum(map(len, streams.access()))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("joining", total=total)
        knowing, ignorant = run(streams, batch_rows, lambda seen: progress.update(task, completed=seen))
    for watched in (knowing, ignorant):
        _check(watched, expected)
    console.print(_sample(pa.concat_tables(knowing.results).slice(0, 5)))
    console.print(
        f"{knowing.count:,} results from {total:,} rows, the same as the batch join over all rows gives.\n"
        f"Tuples held at the end: {knowing.state_rows[-1]:,} where keys and punctuations are declared "
        f"(at most {max(knowing.state_rows):,}), {ignorant.state_rows[-1]:,} by {ignorant.label}.\n",
        highlight=False,
        soft_wrap=True,
    )
    chart = Chart(
        "Tuples held by the news join",
        "rows read",
        "tuples held",
        {watched.label: (watched.rows_in, watched.state_rows) for watched in (knowing, ignorant)},
    )
    console.print(chart.terminal(), highlight=False, markup=False, soft_wrap=True)
    console.print(f"\nPicture: {chart.png(out / 'demo-news.png')}", highlight=False)


def _check(watched: Watched, expected: pa.Table) -> None:
    order = [("sno", "ascending"), ("keyword", "ascending"), ("ipaddr", "ascending")]
    found = pa.concat_tables(watched.results).select(expected.column_names).sort_by(order)
    if not found.equals(expected.sort_by(order).cast(found.schema)):
        raise InvariantBroken(
            f"the join with {watched.label} gave {len(found):,} rows that differ from the batch join's "
            f"{len(expected):,}; please report this with the command you ran"
        )


def _sample(rows: pa.Table) -> Table:
    table = Table(title="Some results", title_justify="left")
    for name in rows.column_names:
        table.add_column(name)
    for row in rows.to_pylist():
        table.add_row(*(str(value) for value in row.values()))
    return table
