"""The NEXMark streams as a Spark source (`demo.generators.nexmark`).

Options: `table` ("person", "auction" or "bid") and `seed` must be given. Others:

- `events`: how many events there are in all three tables together; absent = the stream never ends.
- `rate` (10,000): events in a second of event time. `live` ("false"): when "true" they also come at this rate
  in a second of real time since the query began, or began again; availableNow does not wait for them.
- `punctuations` ("false"): when "true", rows with `is_end` say which values are over: of "bid" the auctions,
  of "auction" the sellers, for `marked("is_end")`.
- `events_per_batch` (50,000; when live, all that are due): how many events, of all three tables, a
  micro-batch takes. `partitions` (1): into how many tasks they are cut; within each the rows keep their
  order.

Offsets count events, so the tables of one seed stay in step. Worked number: a batch of 50,000 events has 1000
persons, 3000 auctions and 46,000 bids. What offsets, batches and checkpoints are stands in `generated.py`.
Cost: about 1 µs for an event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from streamjoin.demo.generators.nexmark import TABLES, Name, Nexmark, nexmark_schema
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

_NEXMARK = "streamjoin_nexmark"
_OPTIONS = {
    "table": "'person', 'auction' or 'bid'",
    "seed": "a whole number, the same for all tables",
    "events": "how many events, a whole number; leave it out for a stream without an end",
    "rate": "events in a second, a whole number",
    "live": "'true' or 'false'",
    "punctuations": "'true' or 'false'",
    "events_per_batch": "how many events a micro-batch takes, 1 or more",
    "partitions": "how many tasks read a batch, 1 or more",
}
_GENERATOR: dict[str, Callable[[str], Any]] = {"seed": int, "events": int, "rate": int}


@dataclass(frozen=True)
class _NexmarkPlan(Generated):
    """What the options say. A place is an event."""

    SOURCE: ClassVar[str] = _NEXMARK
    UNIT: ClassVar[str] = "event"

    table: Name
    streams: Nexmark
    punctuations: bool

    @classmethod
    def of(cls, given: Mapping[str, str]) -> _NexmarkPlan:
        options = Options(_NEXMARK, given, _OPTIONS)
        table = options.required("table")
        if table not in TABLES:
            raise options.wrong("table")
        options.required("seed")
        generator = {name: options.value(name, kind) for name, kind in _GENERATOR.items() if name in given}
        streams = Nexmark(**generator)
        live = options.flag("live")
        whole = live and "events_per_batch" not in given
        return cls(
            table=table,
            streams=streams,
            punctuations=options.flag("punctuations"),
            per_batch=None if whole else options.at_least_one("events_per_batch", 50_000),
            per_second=streams.rate if live else None,
            partitions=options.at_least_one("partitions", 1),
        )

    @property
    def title(self) -> str:
        marked = ["punctuations"] if self.punctuations else []
        return " ".join([self.table, *marked, *differing(self.streams)])

    @property
    def columns(self) -> pa.Schema:
        return nexmark_schema(self.table, punctuations=self.punctuations)

    @property
    def start(self) -> int:
        return 0

    @property
    def end(self) -> int | None:
        return self.streams.events

    def rows(self, part: PlaceRange) -> Iterator[pa.RecordBatch]:
        for at in range(part.start, part.end, BATCH_ROWS):
            stop = min(at + BATCH_ROWS, part.end)
            table = self.streams.between(self.table, at, stop, punctuations=self.punctuations)
            yield from table.combine_chunks().to_batches()


class NexmarkSource(DataSource):
    """One of NEXMark's tables, from a seed. Options: see the top of this file."""

    @classmethod
    def name(cls) -> str:
        return _NEXMARK

    def schema(self) -> str:
        return _NexmarkPlan.of(self.options).ddl

    def reader(self, schema: StructType) -> DataSourceReader:
        return GeneratedReader(self._plan(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        limits = [name for name in self.options if name == "events_per_batch"]
        return stream_reader(GeneratedStreamReader(self._plan(schema)), limits)

    def _plan(self, schema: StructType) -> _NexmarkPlan:
        plan = _NexmarkPlan.of(self.options)
        plan.check_schema(schema)
        return plan
