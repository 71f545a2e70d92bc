"""The running example of the PWJoin paper: how many bids does an auction get soon after it opens?

Open (one tuple per item) joins Bid (many per item) on the item's number; a bid counts when it comes
within the window after its item opened. The same streams are joined twice. The window join (WJoin)
lets tuples go when they are older than the window. PWJoin also heeds punctuations: an item is opened
once, so a bid need not be kept; "no more bids for item 180" lets the item go before its window ends,
and says downstream that it is over. An auction that outlasts the window is over when its item leaves
the window, before its own end (early propagation, section 4.4). So PWJoin can count: grouped by item,
it gives each count once, when it is final. The window join never knows, and gives the joined rows.

Both inputs have the window, as in the paper's experiments. That on Bid changes no result, since no
bid comes before its item opened; without it the window join would keep bids for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from streamjoin.api.join import Joined, join, stream
from streamjoin.declare.closing import closing
from streamjoin.declare.marked import marked
from streamjoin.demo.generators.auction import (
    BID_SCHEMA,
    FIRST_ITEM,
    HOUR_US,
    OPEN_SCHEMA,
    AuctionStreams,
    Ints,
    since_start_us,
)
from streamjoin.errors import InvariantBroken
from streamjoin.plot import Chart

INPUTS = ("open", "bid")
_ORDER = [("item_id", "ascending"), ("bid_time", "ascending"), ("bidder", "ascending")]


@dataclass
class Watched:
    """What was seen of one join while it ran, batch by batch."""

    operator: str
    label: str
    counts: bool = False  # whether it counts, or gives the joined rows
    held: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in INPUTS})
    closed_keys: list[int] = field(default_factory=list)  # keys remembered as closed on one input
    groups: list[int] = field(default_factory=list)  # partial counts
    results: list[pa.Table] = field(default_factory=list)
    propagated: list[list[int]] = field(default_factory=list)  # items known to be over

    @property
    def state_rows(self) -> list[int]:
        return [sum(both) for both in zip(*self.held.values(), strict=True)]


Run = Callable[[AuctionStreams, float, Callable[[int], None]], tuple[Watched, Watched]]


def both_joins() -> tuple[Watched, Watched]:
    """PWJoin and the window join, not run yet."""
    return Watched("pwjoin", "window and punctuations", counts=True), Watched("wjoin", "window alone")


def auction_join(operator: str, window_us: int, opened: Any = OPEN_SCHEMA, bids: Any = BID_SCHEMA) -> Joined:
    """The join by one of the papers' operators; each uses of the declarations what it knows."""
    window = timedelta(microseconds=window_us)
    every_row: Any = pc.scalar(True) if isinstance(opened, pa.Schema) else "true"
    return join(
        stream(
            opened,
            name="open",
            key="item_id",
            time="open_time",
            window=window,
            lateness="0 seconds",
            punctuation=closing(every_row),  # an item is opened once: its first tuple is its last
            columns=["description", "open_time"],
        ),
        stream(
            bids,
            name="bid",
            key="item_id",
            time="bid_time",
            window=window,
            lateness="0 seconds",
            punctuation=marked("is_end"),  # "no more bids for item 180"
        ),
        operator=operator,
        name=f"auction_{operator}",
    )


def watched_join(watched: Watched, window_us: int, *sources: Any) -> Joined:
    """The join that is watched, counting if it can."""
    joined = auction_join(watched.operator, window_us, *sources)
    if not watched.counts:
        return joined
    return joined.group_by("item_id", "description").agg(bids=("*", "count"), best=("price", "max"))


def run_local(
    streams: AuctionStreams, batch_hours: float, tick: Callable[[int], None]
) -> tuple[Watched, Watched]:
    """Both joins in this process, one after the other."""
    joins = both_joins()
    done = 0
    for watched in joins:
        run = watched_join(watched, streams.window_us).local()
        for piece in streams.batches(batch_hours):
            watched.results.append(run.step(piece))
            over: list[Any] = [one.patterns[0] for one in run.punctuations()]
            watched.propagated.append([item.value for item in over])
            state = run.state()
            for name, rows in state.rows.items():
                watched.held[name].append(rows)
            watched.closed_keys.append(state.closed_keys)
            watched.groups.append(state.groups)
            done += 1
            tick(done)
    return joins


def batch_join(streams: AuctionStreams) -> pa.Table:
    """The answer, from a join over all rows at once."""
    opened = streams.open().select(["item_id", "description", "open_time"])
    bids = streams.bids()
    bids = bids.filter(pc.invert(bids["is_end"])).drop_columns("is_end")
    joined = opened.join(bids, "item_id", join_type="inner")
    after_us = since_start_us(joined["bid_time"]) - since_start_us(joined["open_time"])
    return joined.filter(pa.array(after_us <= streams.window_us))


# What is checked before anything is called right


def check_answer(watched: Watched, expected: pa.Table) -> None:
    """The join gave exactly the rows of the batch join; where it counts, those of its group by, for
    the items that are over.
    """
    order = _ORDER
    if watched.counts:
        over = pa.array([item for items in watched.propagated for item in items], pa.int64())
        expected, order = _counted(expected.filter(pc.is_in(expected["item_id"], over))), _ORDER[:1]
    found = pa.concat_tables(watched.results).select(expected.column_names).cast(expected.schema)
    if not found.sort_by(order).equals(expected.sort_by(order)):
        raise InvariantBroken(
            f"the join with {watched.label} gave {len(found):,} rows that differ from the batch join's "
            f"{len(expected):,}; please report this with the command you ran"
        )


def _counted(results: pa.Table) -> pa.Table:
    """The batch answer to the question."""
    counted = results.group_by(["item_id", "description"]).aggregate([([], "count_all"), ("price", "max")])
    return counted.rename_columns({"count_all": "bids", "price_max": "best"})


def propagated_in(watched: Watched, streams: AuctionStreams) -> Ints:
    """The batch in which each item was announced as over, -1 = not yet; checked to be true.

    Announced are, once each, the items whose punctuation has come or whose window has passed, and
    each count comes in the batch in which its item is announced.
    """
    auctions, bids = streams.auctions(), streams.bids()
    batch = np.full(streams.items, -1)
    for number, items in enumerate(watched.propagated):
        batch[np.array(items, np.int64) - FIRST_ITEM] = number
    over = np.zeros(streams.items, np.bool_)
    over[bids.filter(bids["is_end"])["item_id"].to_numpy() - FIRST_ITEM] = True
    times = since_start_us(bids.filter(pc.invert(bids["is_end"]))["bid_time"])
    if len(times):
        over |= auctions.open_us + streams.window_us < times[-1]
    at_other_times = any(
        np.any(batch[item] != number)
        for number, rows in enumerate(watched.results)
        for item in [rows["item_id"].to_numpy() - FIRST_ITEM]
    )
    if sum(map(len, watched.propagated)) != over.sum() or np.any((batch >= 0) != over) or at_other_times:
        raise InvariantBroken(
            f"the join with {watched.label} announced other items as over than those that are; "
            "please report this with the command you ran"
        )
    return batch


# What is told


def show(streams: AuctionStreams, run: Run, console: Console, out: Path, batch_hours: float) -> None:
    """Run the demo and tell about it."""
    say = _plainly(console)
    hours = f"{streams.window_hours:g} hours"
    say(f"[bold]How many bids does an item get within {hours} of its opening?[/] open ⋈ bid on its number\n")
    say(
        "The same two streams are joined twice. The first join heeds what the streams say of themselves: an "
        "item is opened once, and 'no more bids for item 180' when its auction ends (punctuations). So it "
        "can count, and gives each item's count once, when it is final. The second knows only the window: "
        f"what is older than {hours} can go.\n"
    )
    counting = watched_join(both_joins()[0], streams.window_us)
    console.print(counting.explain(), highlight=False, soft_wrap=True)
    console.print()
    expected, cuts = batch_join(streams), streams.cuts_us(batch_hours)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("batches", total=2 * len(cuts))
        both = run(streams, batch_hours, lambda done: progress.update(task, completed=done))
    for watched in both:
        check_answer(watched, expected)
    pwjoin, wjoin = both
    batch = propagated_in(pwjoin, streams)
    total = len(streams.open()) + len(streams.bids())
    counts = pa.concat_tables(pwjoin.results)
    say(
        f"{len(expected):,} results from {total:,} rows of {streams.hours:g} hours, as the batch join over "
        f"all rows has them; and {len(counts):,} final counts, as its group by has them, each given in the "
        "batch in which its item was known to be over.\n"
    )
    console.print(_holdings(wjoin, pwjoin))
    console.print(_first_counts(streams, counts, batch, cuts))
    for sentence in _how_early(streams, batch, cuts):
        say(sentence + "\n")
    chart = state_chart(pwjoin, wjoin, cuts)
    console.print(chart.terminal(), highlight=False, markup=False, soft_wrap=True)
    say(f"\nPicture: {chart.png(out / 'demo-auction.png')}")


def _plainly(console: Console) -> Callable[[str], None]:
    return lambda text: console.print(text, highlight=False, soft_wrap=True)


def state_chart(pwjoin: Watched, wjoin: Watched, cuts: Ints) -> Chart:
    """Tuples held by both joins over event time."""
    hours = [0.0, *(cut / HOUR_US for cut in cuts.tolist())]
    return Chart(
        "Tuples held by the auction join",
        "hours of event time",
        "tuples held",
        {
            pwjoin.label: (hours, [0, *pwjoin.state_rows]),
            wjoin.label: (hours, [0, *wjoin.state_rows]),
            f"{wjoin.label}, items only": (hours, [0, *wjoin.held["open"]]),
        },
    )


def _holdings(*joins: Watched) -> Table:
    table = Table(title="What each join holds", title_justify="left")
    table.add_column("")
    for watched in joins:
        table.add_column(watched.label, justify="right")
    figures: list[tuple[str, Callable[[Watched], int]]] = [
        ("tuples, at most", lambda one: max(one.state_rows)),
        ("  items, at most", lambda one: max(one.held["open"])),
        ("  bids, at most", lambda one: max(one.held["bid"])),
        ("tuples, on average", lambda one: round(sum(one.state_rows) / len(one.state_rows))),
        ("promises remembered, at most", lambda one: max(one.closed_keys)),
        ("partial counts, at most", lambda one: max(one.groups)),
        ("items announced as over", lambda one: sum(map(len, one.propagated))),
    ]
    for what, of in figures:
        table.add_row(what, *(f"{of(watched):,}" for watched in joins))
    return table


def _first_counts(streams: AuctionStreams, counts: pa.Table, batch: Ints, cuts: Ints) -> Table:
    """The first counts that were final, as they were given."""
    table = Table(title="The first counts, each given once, when it is final (hours)", title_justify="left")
    for name in ("item", "", "bids", "best", "opened at", "final at", "by window"):
        table.add_column(name, justify="left" if name == "" else "right")
    for row in counts.slice(0, 5).to_pylist():
        item = row["item_id"] - FIRST_ITEM
        opened = int(streams.auctions().open_us[item])
        moments = (opened, int(cuts[batch[item]]), opened + streams.window_us)
        about = (str(row["item_id"]), row["description"], str(row["bids"]), f"{row['best']:.2f}")
        table.add_row(*about, *map(_clock, moments))
    return table


def _how_early(streams: AuctionStreams, batch: Ints, cuts: Ints) -> list[str]:
    """How long before others could an item be called over, in event time."""
    auctions = streams.auctions()
    by_window = auctions.open_us + streams.window_us
    propagated = batch >= 0
    at = cuts[batch]
    said = []
    inside = propagated & (auctions.end_us <= by_window)
    if inside.any():
        said.append(
            f"{inside.sum():,} auctions ended inside the window. Each was announced downstream as over, "
            f"a median of {_median_hours(by_window - at, inside)} hours before the window alone would tell."
        )
    outlasting = propagated & ~inside
    if outlasting.any():
        bids = streams.bids()
        bids = bids.filter(pc.invert(bids["is_end"]))
        after = since_start_us(bids["bid_time"]) > by_window[bids["item_id"].to_numpy() - FIRST_ITEM]
        said.append(
            f"{outlasting.sum():,} auctions outlast the window. They were announced when their item left it, "
            f"a median of {_median_hours(auctions.end_us - at, outlasting)} hours before punctuations alone "
            f"would tell; {after.sum():,} bids that came later were dropped."
        )
    return said


def _median_hours(us: Ints, chosen: Any) -> str:
    return f"{np.median(us[chosen]) / HOUR_US:.1f}"


def _clock(us: int) -> str:
    return f"{us // HOUR_US}:{us % HOUR_US // 60_000_000:02}"
