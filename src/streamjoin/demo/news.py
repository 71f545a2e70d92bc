"""The running example of the metadata-aware MJoin paper: which keywords do readers follow?

NewsGeneral (one tuple per news item) joins AccessRecord (many per item) on the item's number.
An item leaves the top ten after a while, and AccessRecord then says so by a punctuation. The
join that declares this stores ten items; the same join with nothing declared stores everything.

On Spark both queries read the seeded news source in micro-batches until its end, this library's join first,
then Spark's own over the same streams; state is what each reports of itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.table import Table

from streamjoin.api.join import Joined, join, stream
from streamjoin.declare.marked import marked
from streamjoin.demo.generators.news import ACCESS_SCHEMA, NEWS_SCHEMA, NewsStreams
from streamjoin.demo.runner import (
    ObservedJoin,
    Tick,
    check_rows,
    collect,
    follow,
    read_files,
    start,
    text_table,
    write_files,
)
from streamjoin.plan.bounds import UnboundedState
from streamjoin.plot import Chart

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DECLARED = "keys and punctuations declared"


def news_join(news: Any = NEWS_SCHEMA, access: Any = ACCESS_SCHEMA) -> Joined:
    """The join with all that is known: one tuple per news item, and when an item's accesses are over."""
    return join(
        stream(news, name="news", key="sno", unique=True, columns=["keyword"]),
        stream(access, name="access", key="sno", punctuation=marked("is_end")),
        name="news_access",
    )


def undeclared_join() -> Joined:
    """The same join with nothing declared; punctuation rows are left out of its input."""
    plain = pa.schema([ACCESS_SCHEMA.field("sno"), ACCESS_SCHEMA.field("ipaddr")])
    return join(
        stream(NEWS_SCHEMA, name="news", key="sno", columns=["keyword"]),
        stream(plain, name="access", key="sno"),
        name="news_access_plain",
    )


@dataclass
class NewsDemo:
    """The demo over one set of streams, in batches of about `batch_rows` rows."""

    streams: NewsStreams
    batch_rows: int
    name: str = "news"
    unit: str = "joining"
    folder: Path = field(default=Path(), init=False)

    def introduction(self) -> Iterator[str]:
        yield "[bold]Which keywords do readers follow?[/] news ⋈ access on the news item's number"

    def prepare(self, folder: Path) -> None:
        self.folder = folder

    def explain(self) -> str:
        return news_join().explain()

    def steps(self) -> int:
        return sum(map(len, self.streams.news())) + sum(map(len, self.streams.access()))

    def run_local(self, tick: Tick) -> tuple[ObservedJoin, ObservedJoin]:
        """Both joins side by side in this process."""
        declared = ObservedJoin(DECLARED)
        undeclared = ObservedJoin("the same join with nothing declared")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnboundedState)  # that its state grows is what is shown
            runs = ((declared, news_join().local()), (undeclared, undeclared_join().local()))
        seen = 0
        for batch in self._batches():
            seen += sum(map(len, batch.values()))
            for observed, run in runs:
                tables = batch if observed is declared else _without_marks(batch)
                observed.results.append(run.step(tables))
                observed.rows_in.append(seen)
                observed.state_rows.append(sum(run.state().rows.values()))
            tick(seen)
        return declared, undeclared

    def _batches(self) -> Iterator[dict[str, pa.Table]]:
        batch: dict[str, pa.Table] = {}
        for name, rows in self.streams.arrivals(self.batch_rows):
            if name in batch or (name == "news" and batch):
                yield batch
                batch = {}
            batch[name] = rows
        if batch:
            yield batch

    def run_spark(self, spark: SparkSession, tick: Tick) -> tuple[ObservedJoin, ObservedJoin]:
        """Both joins, one after the other, on one session."""
        from streamjoin.demo.spark_sources.registry import register

        register(spark)
        declared, own = ObservedJoin(DECLARED), ObservedJoin("Spark's own join")
        news, access = self._source(spark, "news"), self._source(spark, "access")
        query = news_join(news, access).write(
            rows=collect(declared), checkpoint=str(self.folder / "ours"), trigger={"availableNow": True}
        )
        follow(query, declared, lambda _: tick(declared.rows_in[-1] // 2))
        rows = access.where("not is_end").select("sno", "ipaddr")
        joined = news.select("sno", "keyword").join(rows, "sno")
        half = declared.rows_in[-1] // 2
        query = start(joined, collect(own), self.folder / "own")
        follow(query, own, lambda _: tick(half + own.rows_in[-1] // 2))
        return declared, own

    def _source(self, spark: SparkSession, name: str) -> DataFrame:
        from streamjoin.spark.versions import HAS_READ_LIMITS

        if not HAS_READ_LIMITS:  # then only Spark's own sources can be read in small batches
            folder, schema = self.folder / "files", NEWS_SCHEMA if name == "news" else ACCESS_SCHEMA
            if not folder.exists():
                write_files(self._batches(), folder)
            return read_files(spark, schema, folder / name)
        reader = spark.readStream.format("streamjoin_news").option("stream", name)
        for option in fields(self.streams):
            if getattr(self.streams, option.name) is not None:
                reader = reader.option(option.name, getattr(self.streams, option.name))
        items_per_batch = max(1, round(self.batch_rows / (self.streams.records_per_item + 2)))
        return reader.option("items_per_batch", items_per_batch).load()

    def check(self, observed: tuple[ObservedJoin, ObservedJoin]) -> None:
        expected = batch_join(self.streams)
        for one in observed:
            check_rows(f"the join with {one.label}", one.rows, expected, ("sno", "keyword", "ipaddr"))

    def report(self, observed: tuple[ObservedJoin, ObservedJoin]) -> Iterator[str | Table]:
        declared, other = observed
        first = declared.rows.slice(0, 5)
        rows = (map(str, row.values()) for row in first.to_pylist())
        yield text_table("Some results", dict.fromkeys(first.column_names, "left"), rows)
        yield (
            f"{len(declared.rows):,} results from {self.steps():,} rows, the same as the batch join over all "
            f"rows gives.\nTuples in state at the end: {declared.state_rows[-1]:,} where keys and "
            f"punctuations are declared (at most {max(declared.state_rows):,}), "
            f"{other.state_rows[-1]:,} by {other.label}."
        )

    def picture(self, observed: tuple[ObservedJoin, ObservedJoin]) -> Chart:
        lines = {one.label: (one.rows_in, one.state_rows) for one in observed}
        return Chart("Tuples in the state of the news join", "rows read", "tuples in state", lines)


def _without_marks(batch: dict[str, pa.Table]) -> dict[str, pa.Table]:
    return {
        name: rows.filter(pc.invert(rows["is_end"])) if name == "access" else rows
        for name, rows in batch.items()
    }


def batch_join(streams: NewsStreams) -> pa.Table:
    """The answer, from a join over all rows at once."""
    news = pa.concat_tables(streams.news()).select(["sno", "keyword"])
    access = pa.concat_tables(streams.access())
    access = access.filter(pc.invert(access["is_end"])).select(["sno", "ipaddr"])
    return news.join(access, "sno", join_type="inner")
