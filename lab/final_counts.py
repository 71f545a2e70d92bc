"""When does the final count of an auction leave? This library beside Spark's watermark aggregation.

The question of PWJoin's example: bids within 12 hours of an item's opening. Both read the same files on
Spark, one file of each stream a micro-batch. This library joins and groups by item; it heeds "no more
bids for item 180". Spark joins the streams within the window and counts by item in append mode. Its
aggregation groups by (item_id, open_time), with the watermark on open_time and no delay: of the forms
Spark accepts the one that emits first, since a time window or a session would wait for its own end too.

An oracle reads from the data alone in which batch each count becomes final: the one that brings the
punctuation of its item, or the first bid later than its window; from then on nothing can change it.
Worked number: an item opens at 1:10 and its punctuation comes at 3:40. In batches of an hour its count is
final in batch 3 (3:00 to 4:00). Spark's watermark passes 13:10 in batch 13 and is used in batch 14: 11
batches later. Counts are compared with the batch join's before any delay is told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from streamjoin.demo.auction import INPUTS, auction_join, batch_join
from streamjoin.demo.runner import write_files
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

OURS, SPARK = "this library", "Spark's watermark aggregation"
NEVER = -1  # in place of a batch: not within the recording


# The oracle


def final_in(streams: AuctionStreams, batch_hours: float) -> Ints:
    """The batch in which the count of each item becomes final, by its place; `NEVER` if in none.

    A bid later than the window of an item says that no bid inside it is still to come, since bids are in
    the order of their time; a punctuation says so for its item, and its own time says nothing.
    """
    bids, cuts = streams.bids(), streams.cuts_us(batch_hours)
    times, ends = since_start_us(bids["bid_time"]), bids["is_end"].to_numpy()
    later = len(cuts)  # beyond the last batch
    ended = np.full(streams.items, later)
    ended[bids["item_id"].to_numpy()[ends] - FIRST_ITEM] = np.searchsorted(cuts, times[ends], side="right")
    of_data = np.append(np.searchsorted(cuts, times[~ends], side="right"), later)
    passes = streams.auctions().open_us + streams.window_us
    passed = of_data[np.searchsorted(times[~ends], passes, side="right")]
    first = np.minimum(ended, passed)
    return np.where(first < later, first, NEVER)


def batch_counts(streams: AuctionStreams) -> Ints:
    """Bids within the window of each item, by its place: the batch join, counted."""
    items = batch_join(streams)["item_id"].to_numpy() - FIRST_ITEM
    return np.bincount(items, minlength=streams.items)


# The two queries


@dataclass(frozen=True)
class Emitted:
    """Counts in the order in which they left: which item, how many bids, in which batch."""

    item: Ints
    bids: Ints
    batch: Ints

    def checked(self, who: str, counts: Ints, given: Any) -> Ints:
        """The batch of each item's count by place, `NEVER` where none left; first the answer is compared.

        `given`: for which items a count must have left; each leaves once, as the batch join has it.
        """
        batch = np.full(len(counts), NEVER)
        batch[self.item] = self.batch
        right = np.array_equal(np.sort(self.item), np.flatnonzero(given & (counts > 0)))
        if not right or np.any(counts[self.item] != self.bids):
            raise InvariantBroken(
                f"{who} gave {len(self.item):,} counts that differ from the batch join's; no delay is told"
            )
        return batch


def sources(spark: SparkSession, folder: Path) -> tuple[DataFrame, DataFrame]:
    """Both streams, one file a micro-batch."""
    opened, bids = (
        spark.readStream.schema(from_arrow_schema(schema))
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / name))
        for name, schema in zip(INPUTS, (OPEN_SCHEMA, BID_SCHEMA), strict=True)
    )
    return opened, bids


def by_this_library(streams: AuctionStreams, opened: DataFrame, bids: DataFrame) -> DataFrame:
    """PWJoin, grouped by item."""
    joined = auction_join("pwjoin", streams.window_us, opened, bids)
    return joined.group_by("item_id").agg(bids=("*", "count")).dataframe()


def by_spark(streams: AuctionStreams, opened: DataFrame, bids: DataFrame) -> DataFrame:
    """Spark's own join within the window, and its aggregation by item and opening time."""
    left = opened.select("item_id", "open_time").withWatermark("open_time", "0 seconds").alias("o")
    right = bids.where("not is_end").select("item_id", "bid_time").withWatermark("bid_time", "0 seconds")
    within = F.expr(
        "o.item_id = b.item_id and bid_time >= open_time "
        f"and bid_time <= open_time + interval {streams.window_us} microseconds"
    )
    joined = left.join(right.alias("b"), within).select("o.item_id", "open_time")
    return joined.groupBy("item_id", "open_time").agg(F.count("*").alias("bids"))


def emitted(counts: DataFrame, checkpoint: Path, batches: int) -> Emitted:
    """Run a query to the end of its files and note what left in which batch.

    Spark may add a last batch without data, which lets its watermark act.
    """
    found: list[pa.Table] = []
    query = (
        counts.writeStream.outputMode("append")
        .foreachBatch(_noting(found))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    whole = pa.concat_tables(found)
    if len(found) not in (batches, batches + 1):
        raise InvariantBroken(f"{batches} files became {len(found)} micro-batches; no delay is told")
    item, bids, batch = (whole[name].to_numpy() for name in ("item_id", "bids", "batch"))
    return Emitted(item - FIRST_ITEM, bids, batch)


def _noting(found: list[pa.Table]) -> Callable[[DataFrame, int], None]:
    def each(frame: DataFrame, number: int) -> None:
        table: pa.Table = frame.select("item_id", "bids").toArrow()
        found.append(table.append_column("batch", pa.array(np.full(len(table), number))))

    return each


# Side by side


@dataclass(frozen=True)
class Comparison:
    """By the place of the item: the batch in which its count became final, left here, left Spark."""

    streams: AuctionStreams
    batch_hours: float
    final: Ints
    ours: Ints
    spark: Ints

    @property
    def elsewhere(self) -> int:
        """Counts of this library that left in another batch than the one in which they became final."""
        return int(np.count_nonzero((self.ours != NEVER) & (self.ours != self.final)))

    @property
    def delay_batches(self) -> Any:
        """Batches from final to Spark's count, of the items that have both."""
        return (self.spark - self.final)[self._both]

    @property
    def delay_hours(self) -> Any:
        """The same in hours of event time, from the end of one batch to the end of the other."""
        return (self._ends_us[self.spark] - self._ends_us[self.final])[self._both] / HOUR_US

    @property
    def _both(self) -> Any:
        return (self.spark != NEVER) & (self.final != NEVER)

    @property
    def _ends_us(self) -> Ints:
        """The event time at which each batch ends; that after the last file counts as one more step."""
        cuts = self.streams.cuts_us(self.batch_hours)
        return np.append(cuts, cuts[-1] + round(self.batch_hours * HOUR_US))

    def series(self) -> dict[str, Any]:
        """What is told beside the claims."""
        auctions = self.streams.auctions()
        inside = (auctions.end_us <= auctions.open_us + self.streams.window_us)[self._both]
        hours = self.delay_hours
        kinds = {"ended inside the window": inside, "outlasted the window": ~inside}
        return {
            "batch_hours": self.batch_hours,
            "counts": {
                "final": int(np.count_nonzero(self.ours != NEVER)),
                SPARK: int(np.count_nonzero(self.spark != NEVER)),
            },
            "spark_delay_hours": {
                kind: {
                    "counts": int(chosen.sum()),
                    "median": float(np.median(hours[chosen])),
                    "most": float(hours[chosen].max()),
                }
                for kind, chosen in kinds.items()
                if chosen.any()
            },
        }

    def chart(self) -> Chart:
        """The share of all counts that has left, over event time."""
        hours = [0.0, *(self._ends_us / HOUR_US).tolist()]
        total = max(int(np.count_nonzero(self.ours != NEVER)), 1)
        lines = {}
        for label, batch in ((OURS, self.ours), (SPARK, self.spark)):
            left = np.cumsum(np.bincount(batch[batch != NEVER], minlength=len(hours) - 1))
            lines[label] = (hours, [0.0, *(100 * left / total).tolist()])
        return Chart("Counts of auctions that have left", "hours of event time", "% of final counts", lines)


def compare(
    spark: SparkSession,
    streams: AuctionStreams,
    batch_hours: float,
    folder: Path,
    step: Callable[[str], None],
) -> Comparison:
    """Both queries, one after the other, each checked against the batch join."""
    batches, counts = write_files(streams.batches(batch_hours), folder), batch_counts(streams)
    final = final_in(streams, batch_hours)
    step(f"final counts, {OURS}")
    ours = emitted(by_this_library(streams, *sources(spark, folder)), folder / "ours", batches)
    step("final counts, Spark")
    theirs = emitted(by_spark(streams, *sources(spark, folder)), folder / "spark", batches)
    # Spark's leave in the order of opening: all up to the last of them
    up_to = np.arange(streams.items) <= max(theirs.item, default=-1)
    return Comparison(
        streams,
        batch_hours,
        final,
        ours.checked(OURS, counts, final != NEVER),
        theirs.checked(SPARK, counts, up_to),
    )
