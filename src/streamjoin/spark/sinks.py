"""Sinks of one query: rows, punctuations and violations of a join, each batch computed once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streamjoin.errors import InvalidJoin
from streamjoin.spark.files import FileError, Files
from streamjoin.spark.frame import SparkJoin
from streamjoin.spark.outputs import PATTERNS, PUNCTUATIONS, VIOLATIONS, Packed
from streamjoin.spark.resume import resumed
from streamjoin.spark.session import is_connect
from streamjoin.spark.unpacking import Unpacking

Sink = Callable[[DataFrame, int], None]
_FOLDER = re.compile(  # how Hadoop's file systems and Spark say that they cannot make or write a folder
    r"[^\n]*(?:mkdirs|[Mm]kdir|Permission denied|AccessControl|AccessDenied|No FileSystem for scheme|"
    r"not a directory|ParentNotDirectory|FileAlreadyExists|[Rr]ead-only file system|"
    r"CANNOT_CREATE_CHECKPOINT|Failed to create checkpoint)[^\n]*"
)
_TRIGGERS = ("processingTime", "availableNow", "once", "continuous", "realTime")


def write(
    join: SparkJoin, sinks: Mapping[str, Sink | None], *, checkpoint: str, trigger: Mapping[str, Any] | None
) -> StreamingQuery:
    """Start a query that gives every sink its share of each batch: `f(batch_df, batch_id)`."""
    given = {name: sink for name, sink in sinks.items() if sink is not None}
    if not given:
        raise InvalidJoin("write() has no sink; give rows=, punctuations= or violations=")
    check_start(given, trigger)
    check_checkpoint(join.spark, checkpoint, "write")
    join = resumed(join, checkpoint)

    packed = join.emitted(Packed()).writeStream.foreachBatch(_EachBatch(join.unpacking(), given))
    return started(packed, checkpoint, trigger)


@dataclass(frozen=True)
class _EachBatch:
    """What a query does with a batch: plain values beside the sinks, as Connect sends it to its server."""

    unpacking: Unpacking
    sinks: Mapping[str, Sink]

    def __call__(self, emitted: DataFrame, batch_id: int) -> None:
        """What `foreachBatch` calls."""
        emitted.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            for name, sink in self.sinks.items():
                sink(self._share(name, emitted), batch_id)
        finally:
            emitted.unpersist()

    def _share(self, name: str, emitted: DataFrame) -> DataFrame:
        if name == "rows":
            return self.unpacking.rows(emitted)
        kinds = (PUNCTUATIONS, PATTERNS) if name == "punctuations" else (VIOLATIONS,)
        return self.unpacking.elements(emitted, kinds)


def started(writer: Any, checkpoint: str, trigger: Mapping[str, Any] | None) -> StreamingQuery:
    """Start a query with this checkpoint; Spark makes its folder now, on whatever file system it is."""
    writer = writer.option("checkpointLocation", checkpoint)
    if trigger:
        writer = writer.trigger(**trigger)
    try:
        query: StreamingQuery = writer.start()
    except Exception as error:
        reason = _FOLDER.search(str(error))
        if reason is None:
            raise
        raise InvalidJoin(
            f"the checkpoint folder {checkpoint} cannot be written ({reason[0].strip()}); "
            "give a folder that can be written"
        ) from error
    return query


def check_start(sinks: Mapping[str, Any], trigger: Any) -> None:
    """Refuse sinks or a trigger with which no query can run, before one starts."""
    for name, sink in sinks.items():
        if not callable(sink):
            raise InvalidJoin(
                f"write({name}={sink!r}); give a function of a DataFrame and the batch's number"
            )
    if trigger is not None and not (
        isinstance(trigger, Mapping) and len(trigger) == 1 and set(trigger) <= set(_TRIGGERS)
    ):
        raise InvalidJoin(
            f"write(trigger={trigger!r}); give a mapping with one of {', '.join(_TRIGGERS)}, such as "
            '{"processingTime": "10 seconds"}'
        )


def check_checkpoint(spark: SparkSession, path: Any, call: str) -> None:
    """Make the folder on whatever file system it is, and see whether it may be written.

    Over Spark Connect only the server sees its file systems: there Spark says it when the query starts.
    """
    if not isinstance(path, str) or not path:
        raise InvalidJoin(f"{call}(checkpoint={path!r}); give the path of a folder as text")
    if is_connect(spark):
        return
    try:
        made = Files(spark).make(path)
    except FileError as error:
        raise InvalidJoin(
            f"the checkpoint folder {path} cannot be written ({error.java_exception.toString()}); "
            "give a folder that can be written"
        ) from error
    if not made:
        raise InvalidJoin(f"the checkpoint folder {path} cannot be made; give a folder that can be written")
