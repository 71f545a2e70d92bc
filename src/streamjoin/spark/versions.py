"""Spark versions: everything that differs between PySpark 4.0, 4.1, 4.2 and 4.3, and nothing else.

Differences are found by looking (is the module there, does the function take the argument), not by comparing
version numbers: a managed platform's Spark has more than its number says, and its client may have a number of
its own. Numbers are for messages: what a version cannot do is refused with the version that can.

| what | from | before |
| --- | --- | --- |
| sources read with limits, and to an end fixed at the start | 4.2 | all there is, in one micro-batch |
| availableNow in several batches where a Python source takes part | 4.2 | by a setting, else one batch |
| `to_arrow_schema` takes a time zone | 4.2 | the zone is put in afterwards |
| the checkpoint file manager is in the package `checkpointing` | 4.1 | one package above |
| `transformWithStateInPandas` over Spark Connect | 4.1 | refused |
| state can be read before a streaming query has run | 4.3 | its coordinator is asked for first |
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from streamjoin.errors import InvalidJoin


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


_LIMITS: Any = _module("pyspark.sql.streaming.datasource")

HAS_READ_LIMITS = _LIMITS is not None
HAS_ZONED_SCHEMAS = "timezone" in inspect.signature(to_arrow_schema).parameters
IS_BEFORE_4_1 = not hasattr(DataFrame, "repartitionById")  # which is of no other use here


def needs(version: str, what: str) -> InvalidJoin:
    """The error for what this version of Spark cannot do."""
    return InvalidJoin(
        f"{what} needs Spark {version} or later, and this is PySpark {pyspark.__version__}; "
        f"use Spark {version}, or do without"
    )


# ---------------------------------------------------------------- settings


def checkpoint_file_manager() -> str:
    """The class that writes checkpoints through Hadoop's older interface, which is faster on a local disk."""
    package = "org.apache.spark.sql.execution.streaming."
    inner = "" if IS_BEFORE_4_1 else "checkpointing."
    return f"{package}{inner}FileSystemBasedCheckpointFileManager"


def settings() -> dict[str, str]:
    """Settings that only some versions need."""
    if HAS_READ_LIMITS:
        return {}
    # One source that is not told of availableNow, and Spark takes all there is of every source in one batch.
    return {"spark.sql.streaming.triggerAvailableNowWrapper.enabled": "true"}


# ---------------------------------------------------------------- schemas


def arrow_schema_of(schema: StructType, zone: str) -> pa.Schema:
    """A Spark schema in Arrow's types as the workers see them: instants in this time zone."""
    convert: Any = to_arrow_schema
    if HAS_ZONED_SCHEMAS:
        return convert(schema, timezone=zone)
    plain = convert(schema)
    return pa.schema([field.with_type(_in_zone(field.type, zone)) for field in plain])


def _in_zone(dtype: pa.DataType, zone: str) -> pa.DataType:
    """The type with every time zone replaced, at any depth."""
    if pa.types.is_timestamp(dtype) and dtype.tz is not None:
        return pa.timestamp(dtype.unit, tz=zone)
    if pa.types.is_struct(dtype):
        return pa.struct([field.with_type(_in_zone(field.type, zone)) for field in dtype])
    if pa.types.is_list(dtype):
        return pa.list_(dtype.value_field.with_type(_in_zone(dtype.value_type, zone)))
    if pa.types.is_map(dtype):
        item = dtype.item_field.with_type(_in_zone(dtype.item_type, zone))
        return pa.map_(dtype.key_field.with_type(_in_zone(dtype.key_type, zone)), item)
    return dtype


# ---------------------------------------------------------------- state


def prepare_state_reader(spark: SparkSession) -> None:
    """Make what Spark's state store needs before its state is read; before 4.3 only `streams` makes it."""
    _ = spark.streams.active


# ---------------------------------------------------------------- Python sources

if TYPE_CHECKING or not HAS_READ_LIMITS:

    class ReadLimit:
        """How much a micro-batch may take."""

    class ReadAllAvailable(ReadLimit):
        """Everything."""

    class ReadMaxRows(ReadLimit):
        """So many rows."""

        def __init__(self, max_rows: int) -> None:
            self.max_rows = max_rows

    class ReadMaxBytes(ReadLimit):
        """So many bytes."""

        def __init__(self, max_bytes: int) -> None:
            self.max_bytes = max_bytes

    class SupportsTriggerAvailableNow:
        """A reader that is told when a query is to end."""

        def prepareForTriggerAvailableNow(self) -> None:
            """The query ends with what is there now."""

else:
    ReadLimit = _LIMITS.ReadLimit
    ReadAllAvailable = _LIMITS.ReadAllAvailable
    ReadMaxRows = _LIMITS.ReadMaxRows
    ReadMaxBytes = _LIMITS.ReadMaxBytes
    SupportsTriggerAvailableNow = _LIMITS.SupportsTriggerAvailableNow

if TYPE_CHECKING:

    class LimitedReader(SupportsTriggerAvailableNow):
        """A reader as Spark has it from 4.2 on: it gets the start of a batch and its limit."""

        def commit(self, end: dict[str, Any]) -> None:
            """What is before `end` is not needed any more."""

else:

    class LimitedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
        """A reader as Spark has it from 4.2 on: it gets the start of a batch and its limit."""


def stream_reader(reader: LimitedReader, limits: Sequence[str] = ()) -> DataSourceStreamReader:
    """A reader of a stream as this version of Spark calls it; `limits` names the options given that limit a
    micro-batch.
    """
    if limits and not HAS_READ_LIMITS:
        raise needs("4.2", f"the option {limits[0]!r} of a streaming read")
    found: Any = reader if HAS_READ_LIMITS else Unlimited(reader)
    return found  # type: ignore[no-any-return]


class _Unlimited:
    """Before 4.2 Spark does not say where a batch starts, and takes one batch under availableNow: so a batch
    takes all there is, and the reader is asked from where this run of the query has come, at first from the
    beginning. Its offsets must mean the same from wherever they were asked for.
    """

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._at: Any = None

    def initialOffset(self) -> Any:
        return self._reader.initialOffset()

    def latestOffset(self) -> Any:
        at = self.initialOffset() if self._at is None else self._at
        self._at = self._reader.latestOffset(at, ReadAllAvailable())
        return self._at

    def partitions(self, start: Any, end: Any) -> Any:
        return self._reader.partitions(start, end)

    def read(self, partition: Any) -> Any:
        return self._reader.read(partition)

    def commit(self, end: Any) -> None:
        self._reader.commit(end)


Unlimited: Any = type("Unlimited", (_Unlimited, DataSourceStreamReader), {})
