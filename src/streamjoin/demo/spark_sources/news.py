"""The papers' news streams as a Spark source (`demo.generators.news`).

Options: `stream` ("news" or "access") and `seed` must be given; `items` (absent = the stream never ends),
`records_per_item`, `order`, `open_items`, `shuffle`, `readers`, `first_sno` may, with the defaults of
`NewsStreams`. `items_per_batch` (100): how much time, counted in items, a micro-batch takes. `partitions`
(1): into how many tasks that time is cut; within each the rows keep their order.

Offsets count time in items, so the two streams of one seed stay in step, and a micro-batch never holds a
punctuation of one without all that came before it. Worked number: with 10 records per item a default batch
holds 100 news, or about 1000 records and 100 punctuations.

What offsets, batches and checkpoints are stands in `generated.py`. Cost: a task makes at least one block of
the generator, about 100,000 rows or 20 ms, however few rows it gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from streamjoin.demo.generators.news import ACCESS_SCHEMA, NEWS_SCHEMA, NewsStreams
from streamjoin.demo.spark_sources.generated import (
    BATCH_ROWS,
    Generated,
    GeneratedReader,
    GeneratedStreamReader,
    PlaceRange,
    differing,
)
from streamjoin.spark.sources.options import Options
from streamjoin.spark.versions import stream_reader

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
_COLUMNS = {"news": NEWS_SCHEMA, "access": ACCESS_SCHEMA}


@dataclass(frozen=True)
class _NewsPlan(Generated):
    """What the options say. A place is an item's time."""

    SOURCE: ClassVar[str] = _NEWS
    UNIT: ClassVar[str] = "item"

    stream: Literal["news", "access"]
    streams: NewsStreams

    @classmethod
    def of(cls, given: Mapping[str, str]) -> _NewsPlan:
        options = Options(_NEWS, given, _NEWS_OPTIONS)
        stream = options.required("stream")
        if stream not in _COLUMNS:
            raise options.wrong("stream")
        options.required("seed")
        generator = {name: options.value(name, kind) for name, kind in _GENERATOR.items() if name in given}
        return cls(
            stream=cast("Literal['news', 'access']", stream),
            streams=NewsStreams(**({"items": None} | generator)),
            per_batch=options.at_least_one("items_per_batch", 100),
            per_second=None,
            partitions=options.at_least_one("partitions", 1),
        )

    @property
    def title(self) -> str:
        return " ".join([self.stream, *differing(self.streams)])

    @property
    def columns(self) -> pa.Schema:
        return _COLUMNS[self.stream]

    @property
    def start(self) -> int:
        return self.streams.start_item

    @property
    def end(self) -> int | None:
        return self.streams.end_item

    def rows(self, part: PlaceRange) -> Iterator[pa.RecordBatch]:
        step = 4 * self.streams.block_items  # blocks at the edges are made twice, so not too few at once
        for at in range(part.start, part.end, step):
            table = self.streams.between(self.stream, at, min(at + step, part.end))
            yield from table.to_batches(max_chunksize=BATCH_ROWS)


class NewsSource(DataSource):
    """One of the papers' news streams, from a seed. Options: see the top of this file."""

    @classmethod
    def name(cls) -> str:
        return _NEWS

    def schema(self) -> str:
        return _NewsPlan.of(self.options).ddl

    def reader(self, schema: StructType) -> DataSourceReader:
        return GeneratedReader(self._plan(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        limits = [name for name in self.options if name == "items_per_batch"]
        return stream_reader(GeneratedStreamReader(self._plan(schema)), limits)

    def _plan(self, schema: StructType) -> _NewsPlan:
        plan = _NewsPlan.of(self.options)
        plan.check_schema(schema)
        return plan
