"""Seeded generators as Spark sources: what the news and NEXMark have in common.

A generator's stream has places, counted in a unit of its own (news items, events), and can be read from any
place to any other. So an offset is a place and the name of the stream, a partition is a stretch of places,
and a batch that is read again is the same. Within a partition the rows keep their order.

availableNow takes a finite stream to its end, batch by batch, and one batch of a stream that never ends.
Before Spark 4.2 a batch takes all there is, and an option that limits it is refused. A checkpoint names its
stream and generator; with other options it is refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from math import ceil
from time import monotonic
from typing import Any, ClassVar, TypeAlias, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from streamjoin.errors import InvalidJoin
from streamjoin.spark.versions import (
    LimitedReader,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    arrow_schema_of,
    needs,
)

Offset: TypeAlias = dict[str, Any]  # JSON of numbers and strings

BATCH_ROWS = 100_000  # of one record batch


@dataclass(frozen=True)
class PlaceRange(InputPartition):
    """The places of [start, end)."""

    start: int
    end: int


@dataclass(frozen=True)
class Generated(ABC):
    """One stream of a generator, as the options of a source describe it.

    `per_batch`: how many places a micro-batch takes; None = all that are due. `per_second`: how many become
    due in a second since the query began; None = all at once.
    """

    SOURCE: ClassVar[str]
    UNIT: ClassVar[str]  # what a place is; with an s, the option that says how many there are

    per_batch: int | None
    per_second: float | None
    partitions: int

    @property
    @abstractmethod
    def title(self) -> str:
        """Which stream it is; stored beside every offset."""

    @property
    @abstractmethod
    def columns(self) -> pa.Schema:
        """Of its rows."""

    @property
    @abstractmethod
    def start(self) -> int:
        """The first place."""

    @property
    @abstractmethod
    def end(self) -> int | None:
        """The place after the last one; None = there is always another."""

    @abstractmethod
    def rows(self, part: PlaceRange) -> Iterator[pa.RecordBatch]:
        """The rows of a stretch, in their order."""

    @property
    def ddl(self) -> str:
        """The columns as Spark writes them."""
        schema = from_arrow_schema(self.columns)
        return ", ".join(f"{field.name} {field.dataType.typeName()}" for field in schema)

    def check_schema(self, schema: StructType) -> None:
        """Refuse a schema of the user's: the columns are what they are."""
        if not self.columns.equals(arrow_schema_of(schema, "UTC")):
            raise InvalidJoin(
                f"{self.SOURCE} gives {self.ddl} for <{self.title}>. Leave .schema(…) out and select columns."
            )

    def offset(self, place: int) -> Offset:
        return {self.UNIT: place, "of": self.title}

    def place(self, offset: Offset) -> int:
        if offset["of"] != self.title:
            raise InvalidJoin(
                f"The checkpoint is of the stream <{offset['of']}>, and the options now say <{self.title}>. "
                f"Give the same options, or another checkpoint."
            )
        return int(offset[self.UNIT])

    def cut(self, start: int, end: int) -> list[PlaceRange]:
        """The range in `partitions` pieces, fewer when it is shorter."""
        step = max(ceil((end - start) / self.partitions), 1)
        return [PlaceRange(at, min(at + step, end)) for at in range(start, end, step)]


def differing(generator: Any) -> list[str]:
    """What of a generator is not as usual, as name=value: with the seed, enough to tell it from others."""
    return [
        f"{each.name}={value}"
        for each in fields(generator)
        if (value := getattr(generator, each.name)) != each.default
    ]


class GeneratedReader(DataSourceReader):
    """A whole stream, once."""

    def __init__(self, plan: Generated) -> None:
        if plan.end is None:
            option = f"{plan.UNIT}s"
            raise InvalidJoin(
                f"{plan.SOURCE} without the option {option!r} never ends. Give {option}, or use readStream."
            )
        self._plan, self._end = plan, plan.end

    def partitions(self) -> list[PlaceRange]:
        return self._plan.cut(self._plan.start, self._end) or [PlaceRange(0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._plan.rows(cast("PlaceRange", partition))


class GeneratedStreamReader(LimitedReader):
    """A stream in micro-batches."""

    def __init__(self, plan: Generated) -> None:
        self._plan = plan
        self._end = plan.end
        self._ends_now = False
        self._began: tuple[float, int] | None = None  # when and at which place this run of the query did

    def initialOffset(self) -> Offset:
        return self._plan.offset(self._plan.start)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._plan.per_batch is None:
            return ReadAllAvailable()
        return ReadMaxRows(self._plan.per_batch)  # of Spark's limits the nearest; it counts places here

    def prepareForTriggerAvailableNow(self) -> None:
        self._ends_now = True

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        place = self._plan.place(start)
        due = self._due(place)
        if isinstance(limit, ReadMaxRows):
            due = min(due, place + limit.max_rows)
        return self._plan.offset(max(due, place))

    def _due(self, place: int) -> int:
        """Up to where a batch that begins at this place may go."""
        if self._end is None and self._ends_now:
            self._end = place + self._one_batch
        if self._plan.per_second is not None and not self._ends_now:
            if self._began is None:
                self._began = monotonic(), place
            when, began = self._began
            due = began + int((monotonic() - when) * self._plan.per_second)
        elif self._end is None:
            due = place + self._one_batch  # everything of what never ends: no
        else:
            due = self._end
        return due if self._end is None else min(due, self._end)

    @property
    def _one_batch(self) -> int:
        """How far a batch goes that nothing else limits; without a size, a second's worth."""
        return self._plan.per_batch or ceil(self._plan.per_second or 1)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        first, last = self._plan.place(start), self._plan.place(end)
        if last < first:  # the end was found without knowing the start
            raise needs("4.2", f"{self._plan.SOURCE}: to go on from a checkpoint of a stream without an end")
        return self._plan.cut(first, last)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._plan.rows(cast("PlaceRange", partition))
