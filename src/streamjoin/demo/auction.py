"""The running example of the PWJoin paper: how many bids does an auction get soon after it opens?

Open (one tuple per item) joins Bid (many per item) on the item's number; a bid counts when it comes
within the window after its item opened. The same streams are joined twice. The window join (WJoin)
evicts tuples that are older than the window. PWJoin also heeds punctuations: an item is opened
once, so a bid need not be kept; "no more bids for item 180" purges the item before its window ends,
and is propagated downstream. An auction that outlasts the window is over when its item leaves
the window, before its own end (early propagation, section 4.4). So PWJoin can count: grouped by item,
it gives each count once, when it is final. The window join never knows, and gives the joined rows.

Both inputs have the window, as in the paper's experiments. That on Bid changes no result, since no
bid comes before its item opened; without it the window join would keep bids for ever.

On Spark a micro-batch is one file of each stream, so both joins move through event time in step; what they
store comes from the metrics that every join reports of itself, through `MetricsLog`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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
from streamjoin.demo.runner import ObservedJoin, Tick, check_rows, read_files, start, text_table, write_files
from streamjoin.errors import InvariantBroken
from streamjoin.join.strategies.driver import Timestamp
from streamjoin.plot import Chart

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INPUTS = ("open", "bid")
_ORDER = ("item_id", "bid_time", "bidder")
_METRICS_S = 20  # how long the last metrics may take to arrive


@dataclass
class ObservedAuctions(ObservedJoin):
    """What one of the two joins was seen to do."""

    operator: str = "pwjoin"
    counts: bool = False  # whether it counts, or gives the joined rows
    stored: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in INPUTS})
    groups: list[int] = field(default_factory=list)  # partial counts
    propagated: list[list[int]] = field(default_factory=list)  # items known to be over


Both = tuple[ObservedAuctions, ObservedAuctions]


def both_joins() -> Both:
    """PWJoin and the window join, not run yet."""
    return (
        ObservedAuctions("window and punctuations", operator="pwjoin", counts=True),
        ObservedAuctions("window alone", operator="wjoin"),
    )


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
        driver=Timestamp(),  # the paper's order, a thousand rows at a time
        name=f"auction_{operator}",
    )


def watched_join(observed: ObservedAuctions, window_us: int, *sources: Any) -> Joined:
    """The join that is watched, counting if it can."""
    joined = auction_join(observed.operator, window_us, *sources)
    if not observed.counts:
        return joined
    return joined.group_by("item_id", "description").agg(bids=("*", "count"), best=("price", "max"))


@dataclass
class AuctionDemo:
    """The demo over one set of auctions, in batches of `batch_hours` of event time."""

    streams: AuctionStreams
    batch_hours: float
    name: str = "auction"
    unit: str = "batches"
    folder: Path = field(default=Path(), init=False)

    def introduction(self) -> Iterator[str]:
        hours = f"{self.streams.window_hours:g} hours"
        question = f"How many bids does an item get within {hours} of its opening?"
        yield f"[bold]{question}[/] open ⋈ bid on its number"
        yield (
            "The same two streams are joined twice. The first join heeds what the streams say of themselves: "
            "an item is opened once, and 'no more bids for item 180' when its auction ends (punctuations). "
            "So it can count, and gives each item's count once, when it is final. The second knows only the "
            f"window: what is older than {hours} can go."
        )

    def prepare(self, folder: Path) -> None:
        self.folder = folder

    def explain(self) -> str:
        return watched_join(both_joins()[0], self.streams.window_us).explain()

    def steps(self) -> int:
        return 2 * len(self.streams.cuts_us(self.batch_hours))

    def run_local(self, tick: Tick) -> Both:
        """Both joins in this process, one after the other."""
        joins = both_joins()
        done = 0
        for observed in joins:
            run = watched_join(observed, self.streams.window_us).local()
            for batch in self.streams.batches(self.batch_hours):
                observed.results.append(run.step(batch))
                over: list[Any] = [one.patterns[0] for one in run.punctuations()]
                observed.propagated.append([item.value for item in over])
                state = run.state()
                for name, rows in state.rows.items():
                    observed.stored[name].append(rows)
                observed.state_rows.append(sum(state.rows.values()))
                observed.closed_keys.append(state.closed_keys)
                observed.groups.append(state.groups)
                done += 1
                tick(done)
        return joins

    def run_spark(self, spark: SparkSession, tick: Tick) -> Both:
        """Both joins, one after the other, on one session."""
        joins = both_joins()
        write_files(self.streams.batches(self.batch_hours), self.folder)
        for number, observed in enumerate(joins):
            self.run_one(spark, observed, _after(tick, number * self.steps() // 2))
        return joins

    def run_one(self, spark: SparkSession, observed: ObservedAuctions, tick: Tick) -> None:
        """Run one join over the files to their end."""
        from streamjoin.spark.metrics_log import MetricsLog, read_log

        opened, bids = (
            read_files(spark, schema, self.folder / name)
            for name, schema in zip(INPUTS, (OPEN_SCHEMA, BID_SCHEMA), strict=True)
        )
        log = MetricsLog(self.folder / f"{observed.operator}.jsonl")
        spark.streams.addListener(log)
        try:
            elements = watched_join(observed, self.streams.window_us, opened, bids).elements()
            query = start(elements, _collect(observed), self.folder / f"checkpoint-{observed.operator}")
            while not query.awaitTermination(1):  # raises what went wrong
                tick(len(observed.results))
            tick(len(observed.results))
            _await_metrics(log.path, len(observed.results))
            _read_metrics(observed, read_log(log.path))
        finally:
            spark.streams.removeListener(log)

    def check(self, observed: Both) -> None:
        expected = batch_join(self.streams)
        for one in observed:
            check_answer(one, expected)

    def report(self, observed: Both) -> Iterator[str | Table]:
        pwjoin, wjoin = observed
        streams, cuts = self.streams, self.streams.cuts_us(self.batch_hours)
        batch = propagated_in(pwjoin, streams)
        total = len(streams.open()) + len(streams.bids())
        yield (
            f"{len(wjoin.rows):,} results from {total:,} rows of {streams.hours:g} hours, as the batch join "
            f"over all rows has them; and {len(pwjoin.rows):,} final counts, as its group by has them, each "
            "given in the batch in which its item was known to be over."
        )
        yield _state_sizes(wjoin, pwjoin)
        yield _first_counts(streams, pwjoin.rows, batch, cuts)
        yield from _how_early(streams, batch, cuts)

    def picture(self, observed: Both) -> Chart:
        """Tuples stored by both joins over event time."""
        pwjoin, wjoin = observed
        hours = [0.0, *(cut / HOUR_US for cut in self.streams.cuts_us(self.batch_hours).tolist())]
        return Chart(
            "Tuples in the state of the auction join",
            "hours of event time",
            "tuples in state",
            {
                pwjoin.label: (hours, [0, *pwjoin.state_rows]),
                wjoin.label: (hours, [0, *wjoin.state_rows]),
                f"{wjoin.label}, items only": (hours, [0, *wjoin.stored["open"]]),
            },
        )


def _after(tick: Tick, before: int) -> Tick:
    return lambda done: tick(before + done)


def _collect(observed: ObservedAuctions) -> Callable[[DataFrame, int], None]:
    """A sink that keeps the result rows and the propagated punctuations of every batch."""

    def each(frame: DataFrame, _: int) -> None:
        found: pa.Table = frame.toArrow()
        rows = found.filter(pc.equal(found["_kind"], "row"))
        observed.results.append(rows.select([name for name in rows.column_names if not name.startswith("_")]))
        over = found.filter(pc.equal(found["_kind"], "punctuation"))
        observed.propagated.append(over["item_id"].to_pylist())

    return each


def _await_metrics(log: Path, batches: int) -> None:
    end = time.monotonic() + _METRICS_S
    while not log.exists() or log.read_text().count("\n") < batches:
        if time.monotonic() > end:
            raise InvariantBroken(
                f"Spark gave the metrics of fewer than {batches} batches; run the demo again"
            )
        time.sleep(0.1)


def _read_metrics(observed: ObservedAuctions, lines: list[Any]) -> None:
    """What each input stores after every batch: all that came in, less all that was evicted."""
    observed.closed_keys = [line["closed_keys"] for line in lines]
    observed.groups = [line["groups"] for line in lines]
    for name in INPUTS:
        changes = [
            line[f"{name}_stored"] - line[f"{name}_purged"] - line[f"{name}_invalidated"] for line in lines
        ]
        observed.stored[name] = list(accumulate(changes))
    observed.state_rows = [sum(both) for both in zip(*observed.stored.values(), strict=True)]


def batch_join(streams: AuctionStreams) -> pa.Table:
    """The answer, from a join over all rows at once."""
    opened = streams.open().select(["item_id", "description", "open_time"])
    bids = streams.bids()
    bids = bids.filter(pc.invert(bids["is_end"])).drop_columns("is_end")
    joined = opened.join(bids, "item_id", join_type="inner")
    after_us = since_start_us(joined["bid_time"]) - since_start_us(joined["open_time"])
    return joined.filter(pa.array(after_us <= streams.window_us))


# What is checked before anything is called right


def check_answer(observed: ObservedAuctions, expected: pa.Table) -> None:
    """The join gave exactly the rows of the batch join; where it counts, those of its group by, for
    the items that are over.
    """
    order: tuple[str, ...] = _ORDER
    if observed.counts:
        over = pa.array([item for items in observed.propagated for item in items], pa.int64())
        expected, order = _counted(expected.filter(pc.is_in(expected["item_id"], over))), _ORDER[:1]
    check_rows(f"the join with {observed.label}", observed.rows, expected, order)


def _counted(results: pa.Table) -> pa.Table:
    """The batch answer to the question."""
    counted = results.group_by(["item_id", "description"]).aggregate([([], "count_all"), ("price", "max")])
    return counted.rename_columns({"count_all": "bids", "price_max": "best"})


def propagated_in(observed: ObservedAuctions, streams: AuctionStreams) -> Ints:
    """The batch in which each item's punctuation was propagated, -1 = not yet; checked to be true.

    Propagated are, once each, the items whose punctuation has come or whose window has passed, and
    each count comes in the batch in which its item's punctuation is propagated.
    """
    auctions, bids = streams.auctions(), streams.bids()
    batch = np.full(streams.items, -1)
    for number, items in enumerate(observed.propagated):
        batch[np.array(items, np.int64) - FIRST_ITEM] = number
    over = np.zeros(streams.items, np.bool_)
    over[bids.filter(bids["is_end"])["item_id"].to_numpy() - FIRST_ITEM] = True
    times = since_start_us(bids.filter(pc.invert(bids["is_end"]))["bid_time"])
    if len(times):
        over |= auctions.open_us + streams.window_us < times[-1]
    at_other_times = any(
        np.any(batch[item] != number)
        for number, rows in enumerate(observed.results)
        for item in [rows["item_id"].to_numpy() - FIRST_ITEM]
    )
    if sum(map(len, observed.propagated)) != over.sum() or np.any((batch >= 0) != over) or at_other_times:
        raise InvariantBroken(
            f"the join with {observed.label} propagated punctuations of other items than those that are "
            "over; please report this with the command you ran"
        )
    return batch


# What is reported


def _state_sizes(*joins: ObservedAuctions) -> Table:
    figures: list[tuple[str, Callable[[ObservedAuctions], int]]] = [
        ("tuples, at most", lambda one: max(one.state_rows)),
        ("  items, at most", lambda one: max(one.stored["open"])),
        ("  bids, at most", lambda one: max(one.stored["bid"])),
        ("tuples, on average", lambda one: round(sum(one.state_rows) / len(one.state_rows))),
        ("closed keys remembered, at most", lambda one: max(one.closed_keys)),
        ("partial counts, at most", lambda one: max(one.groups)),
        ("punctuations propagated", lambda one: sum(map(len, one.propagated))),
    ]
    return text_table(
        "State of each join",
        {"": "left", **{one.label: "right" for one in joins}},
        ((what, *(f"{of(one):,}" for one in joins)) for what, of in figures),
    )


def _first_counts(streams: AuctionStreams, counts: pa.Table, batch: Ints, cuts: Ints) -> Table:
    """The first counts that were final, as they were given."""
    rows = []
    for row in counts.slice(0, 5).to_pylist():
        item = row["item_id"] - FIRST_ITEM
        opened = int(streams.auctions().open_us[item])
        moments = (opened, int(cuts[batch[item]]), opened + streams.window_us)
        about = (str(row["item_id"]), row["description"], str(row["bids"]), f"{row['best']:.2f}")
        rows.append((*about, *map(_clock, moments)))
    names = ("item", "", "bids", "best", "opened at", "final at", "by window")
    sides = {name: "left" if name == "" else "right" for name in names}
    return text_table("The first counts, each given once, when it is final (hours)", sides, rows)


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
            f"{inside.sum():,} auctions ended inside the window. Each was propagated downstream as closed, "
            f"a median of {_median_hours(by_window - at, inside)} hours before the window alone would tell."
        )
    outlasting = propagated & ~inside
    if outlasting.any():
        bids = streams.bids()
        bids = bids.filter(pc.invert(bids["is_end"]))
        after = since_start_us(bids["bid_time"]) > by_window[bids["item_id"].to_numpy() - FIRST_ITEM]
        said.append(
            f"{outlasting.sum():,} auctions outlast the window. They were propagated when their item left "
            f"it, a median of {_median_hours(auctions.end_us - at, outlasting)} hours before punctuations "
            f"alone would tell; {after.sum():,} bids that came later were dropped."
        )
    return said


def _median_hours(us: Ints, chosen: Any) -> str:
    return f"{np.median(us[chosen]) / HOUR_US:.1f}"


def _clock(us: int) -> str:
    return f"{us // HOUR_US}:{us % HOUR_US // 60_000_000:02}"
