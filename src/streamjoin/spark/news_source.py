"""The papers' news streams as a Spark source (`sources.news`).

Options: `stream` ("news" or "access") and `seed` must be given; `items` (absent = the stream never ends),
`records_per_item`, `order`, `open_items`, `shuffle`, `readers`, `first_sno` may, with the defaults of
`NewsStreams`. `items_per_batch` (100): how much time, counted in items, a micro-batch takes. `partitions`
(1): into how many tasks that time is cut; within each the rows keep their order.

Offsets count time in items, so the two streams of one seed stay in step, and a micro-batch never holds a
punctuation of one without all that came before it. Worked number: with 10 records per item a default batch
holds 100 news, or about 1000 records and 100 punctuations.

availableNow takes a finite stream to its end, batch by batch, and one batch of a stream that never ends. A
checkpoint names its stream and generator; with other options it is refused. Cost: a task makes at least one
block of the generator, about 100,000 rows or 20 ms, however few rows it gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from math import ceil
from typing import Any, Literal, TypeAlias, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from streamjoin.errors import InvalidJoin
from streamjoin.sources.news import ACCESS_SCHEMA, NEWS_SCHEMA, NewsStreams
from streamjoin.spark.source_options import Options

Offset: TypeAlias = dict[str, Any]  # JSON of numbers, strings and booleans

_BATCH_ROWS = 100_000  # of one record batch
_NEWS = "streamjoin_news"
_NEWS_OPTIONS = {
    "stream": "'news' or 'access'",
    "seed": "a whole number, the same for both streams",
    "items": "how many news items, a whole number; leave it out for a stream without an end",
    "records_per_item": "the mean number of access records, a number",
    "order": "'ordered' or 'random'",
    "open_items": "how many items are open at once, a whole number",
    "shuffle": "how far a random order goes, in items, a whole number",
    "readers": "how many addresses there are, a whole number",
    "first_sno": "the number of the first item, a whole number",
    "items_per_batch": "how much time a micro-batch takes, in items, 1 or more",
    "partitions": "how many tasks read a batch, 1 or more",
}
_GENERATOR: dict[str, Callable[[str], Any]] = {
    "seed": int,
    "items": int,
    "records_per_item": float,
    "order": str,
    "open_items": int,
    "shuffle": int,
    "readers": int,
    "first_sno": int,
}
_NEWS_COLUMNS = {
    "news": ("sno long, title string, keyword string", NEWS_SCHEMA),
    "access": ("sno long, ipaddr string, is_end boolean", ACCESS_SCHEMA),
}


@dataclass(frozen=True)
class _Times(InputPartition):
    """The rows of [start, end), counted in items."""

    start: int
    end: int


@dataclass(frozen=True)
class _NewsPlan:
    """What the options say."""

    stream: Literal["news", "access"]
    streams: NewsStreams
    items_per_batch: int
    partitions: int

    @classmethod
    def of(cls, given: Mapping[str, str]) -> _NewsPlan:
        options = Options(_NEWS, given, _NEWS_OPTIONS)
        stream = options.required("stream")
        if stream not in _NEWS_COLUMNS:
            raise options.wrong("stream")
        options.required("seed")
        generator = {name: options.value(name, kind) for name, kind in _GENERATOR.items() if name in given}
        return cls(
            cast("Literal['news', 'access']", stream),
            NewsStreams(**({"items": None} | generator)),
            options.at_least_one("items_per_batch", 100),
            options.at_least_one("partitions", 1),
        )

    def check_schema(self, schema: StructType) -> None:
        """Refuse a schema of the user's: the columns are what they are."""
        ddl, arrow = _NEWS_COLUMNS[self.stream]
        if not arrow.equals(to_arrow_schema(schema, timezone="UTC")):
            raise InvalidJoin(
                f"{_NEWS} gives {ddl} for stream={self.stream!r}. Leave .schema(…) out and select columns."
            )

    @property
    def title(self) -> str:
        """Which stream it is, in what differs from the defaults; stored beside every offset."""
        chosen = {each.name: getattr(self.streams, each.name) for each in fields(self.streams)}
        usual = {each.name: each.default for each in fields(self.streams)}
        return " ".join([self.stream, *(f"{k}={v}" for k, v in chosen.items() if v != usual[k])])

    def offset(self, item: int) -> Offset:
        return {"item": item, "of": self.title}

    def item(self, offset: Offset) -> int:
        if offset["of"] != self.title:
            raise InvalidJoin(
                f"The checkpoint is of the stream <{offset['of']}>, and the options now say <{self.title}>. "
                f"Give the same options, or another checkpoint."
            )
        return int(offset["item"])

    def cut(self, start: int, end: int) -> list[_Times]:
        """The range in `partitions` pieces, fewer when it is shorter."""
        step = max(ceil((end - start) / self.partitions), 1)
        return [_Times(at, min(at + step, end)) for at in range(start, end, step)]

    def rows(self, part: _Times) -> Iterator[pa.RecordBatch]:
        step = 4 * self.streams.block_items  # blocks at the edges are made twice, so not too few at once
        for at in range(part.start, part.end, step):
            table = self.streams.between(self.stream, at, min(at + step, part.end))
            yield from table.to_batches(max_chunksize=_BATCH_ROWS)


class NewsSource(DataSource):
    """One of the papers' news streams, from a seed. Options: see the top of this file."""

    @classmethod
    def name(cls) -> str:
        return _NEWS

    def schema(self) -> str:
        return _NEWS_COLUMNS[_NewsPlan.of(self.options).stream][0]

    def reader(self, schema: StructType) -> DataSourceReader:
        return _NewsReader(self._plan(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _NewsStreamReader(self._plan(schema))

    def _plan(self, schema: StructType) -> _NewsPlan:
        plan = _NewsPlan.of(self.options)
        plan.check_schema(schema)
        return plan


class _NewsReader(DataSourceReader):
    def __init__(self, plan: _NewsPlan) -> None:
        if plan.streams.end_item is None:
            raise InvalidJoin(
                f"{_NEWS} without the option 'items' never ends. Give items, or use readStream."
            )
        self._plan, self._end = plan, plan.streams.end_item

    def partitions(self) -> list[_Times]:
        return self._plan.cut(self._plan.streams.start_item, self._end) or [_Times(0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._plan.rows(cast("_Times", partition))


class _NewsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, plan: _NewsPlan) -> None:
        self._plan = plan
        self._ends_now = False
        self._end = plan.streams.end_item

    def initialOffset(self) -> Offset:
        return self._plan.offset(self._plan.streams.start_item)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._plan.items_per_batch)  # of Spark's limits the nearest; it counts items here

    def prepareForTriggerAvailableNow(self) -> None:
        self._ends_now = True

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        item = self._plan.item(start)
        if self._end is None and self._ends_now:
            self._end = item + self._plan.items_per_batch
        if isinstance(limit, ReadMaxRows):
            step = limit.max_rows
        elif self._end is not None:
            step = self._end - item
        else:
            step = self._plan.items_per_batch  # everything of what never ends: no
        return self._plan.offset(item + step if self._end is None else max(min(item + step, self._end), item))

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return self._plan.cut(self._plan.item(start), self._plan.item(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._plan.rows(cast("_Times", partition))
