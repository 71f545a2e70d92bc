"""Enrichment on Spark: from a stream and a staged table to an ordinary DataFrame of results.

    select (JVM: cast keys, hash) → pack ─┐
    ticks (which version) → pack ─────────┴─ group by bucket → transformWithState → observe metrics → rows

The table is staged before the query starts, beside its checkpoint; see `staging`. A batch DataFrame as
stream goes through the same code and gives the batch answer.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.streaming.query import StreamingQuery

from streamjoin.columnar.types import plain
from streamjoin.enrich.segments import StagedVersion, VersionStore
from streamjoin.enrich.spec import EnrichSpec
from streamjoin.enrich.tables.files import table_source
from streamjoin.errors import InvalidJoin, StateFormatError
from streamjoin.join.row_intake import RowIntake
from streamjoin.plan.enrich.planner import EmptyTable, EnrichPlan
from streamjoin.plan.figures import joins
from streamjoin.spark.columns import by_place, micros, normal
from streamjoin.spark.enrich_bucket import STREAM, EnrichBucket, TickPacker, metric_names
from streamjoin.spark.exchange import bucket_labels
from streamjoin.spark.frame import direct_rows
from streamjoin.spark.ingest import PACKED, Packer
from streamjoin.spark.metrics import observed
from streamjoin.spark.outputs import ROWS, Emitter, Packed, RowsOnly, can_be_direct, unpack_rows
from streamjoin.spark.processor import BucketProcessor
from streamjoin.spark.session import check_session, default_buckets
from streamjoin.spark.sinks import started
from streamjoin.spark.sources.ticks import TICK, TickSource
from streamjoin.spark.staging import HASH, SparkStaging, stage_frame, stage_table

Sink = Callable[[DataFrame, int], None]


def staged_beside(checkpoint: str, plan: EnrichPlan) -> VersionStore:
    """Where the versions of a join's table are: beside its checkpoint."""
    place = urlparse(checkpoint)
    if place.scheme not in ("", "file"):
        raise InvalidJoin(
            f"checkpoint={checkpoint!r}: a table is staged beside it, as files that every worker maps; "
            "give a folder of a file system that all workers share"
        )
    beside = Path(f"{_local(checkpoint)}.tables")
    return VersionStore(beside / plan.name / plan.table.name, plan.table.name)


@dataclass(frozen=True)
class SparkEnrich:
    """A planned semi-stream join over a DataFrame, its table staged."""

    plan: EnrichPlan
    spec: EnrichSpec
    frame: DataFrame
    store: VersionStore
    version: StagedVersion
    checkpoint: Path

    @classmethod
    def of(cls, plan: EnrichPlan, checkpoint: str) -> SparkEnrich:
        """Check that it can run on its session, and stage what is not staged yet."""
        below = None if plan.below is None else cls.of(plan.below, checkpoint)
        frame: Any = plan.stream.source if below is None else below.dataframe()
        if frame is None:
            raise InvalidJoin(
                f"{plan.stream.name} was declared with a schema, not a DataFrame; "
                "use local(), or declare it with a DataFrame"
            )
        spark = frame.sparkSession
        check_session(spark)
        store = staged_beside(checkpoint, plan)
        if frame.isStreaming and not store.folder.exists() and _has_run(checkpoint):
            raise StateFormatError(
                f"table {plan.table.name!r}: the query of this checkpoint has run, and {store.folder} is "
                "not there; restore the folder, or begin with a new checkpoint"
            )
        version = staged(plan, spark, store)
        if version.rows == 0:
            warnings.warn(
                f"table {plan.table.name!r} has no row with a key: nothing will match", EmptyTable, 4
            )
        spec = replace(plan.for_bucket(version), name=plan.name, buckets=version.form.buckets, hash=HASH)
        return cls(plan, spec, frame, store, version, _local(checkpoint))

    @classmethod
    def versions(cls, plan: EnrichPlan, checkpoint: str) -> list[StagedVersion]:
        """The present versions of all tables of a chain of joins, staged where they were not."""
        spark = plan.chain[0].stream.source.sparkSession
        return [staged(one, spark, staged_beside(checkpoint, one)) for one in plan.chain]

    def emitted(self, emitter: Emitter) -> DataFrame:
        """What the buckets emit, in the emitter's columns; metrics are observed and taken out."""
        labels = tuple(bucket_labels(self.spec.buckets))
        stream = self.plan.stream
        packer = Packer(
            STREAM,
            stream.name,
            self.spec.stream,
            labels,
            RowIntake(stream.name, self.spec.stream, keep_unkeyed=self.spec.preserves),
            limited=True,
        )
        rows = self._physical_rows().mapInArrow(packer, PACKED)
        ticks = self._ticks().mapInArrow(TickPacker(labels), PACKED)
        work = EnrichBucket(
            self.spec,
            str(self.store.folder),
            self.store.table,
            labels,
            self._cache_name(),
            ends=not self.frame.isStreaming,
        )
        joined = rows.union(ticks).groupBy("bucket")
        found = joined.transformWithStateInPandas(
            BucketProcessor(work, emitter), from_arrow_schema(emitter.schema), "append", "none"
        )
        return observed(found, self.plan.name, metric_names(stream.name))

    def dataframe(self) -> DataFrame:
        """The result rows, by the shorter way where their types allow it."""
        if can_be_direct(self.spec.output):
            return direct_rows(self.emitted(RowsOnly(self.spec.output)), self.output_type())
        blobs = self.emitted(Packed()).where(F.col("kind") == ROWS).select("blob")
        unpack: Any = unpack_rows
        return blobs.mapInArrow(unpack, self.output_type())

    def output_type(self) -> T.StructType:
        """The columns of a result in Spark's types."""
        stream, table = self.plan.stream, self.plan.table
        names = iter(self.spec.output.names)
        fields = [T.StructField(next(names), dtype) for dtype in _key_types(self.plan)]
        fields += [
            T.StructField(next(names), self.frame.schema[column].dataType) for column in stream.payload
        ]
        fields += [
            T.StructField(next(names), _table_type(table.source, column, table.type_of(column)))
            for column in table.payload
        ]
        fields += [T.StructField(name, T.StringType()) for name in names]  # the version
        return T.StructType(fields)

    def _physical_rows(self) -> DataFrame:
        stream = self.plan.stream
        frame, at = by_place(self.frame)
        keys = [
            normal(F.col(at[name]).cast(dtype), dtype)
            for name, dtype in zip(stream.key, _key_types(self.plan), strict=True)
        ]
        columns = [F.xxhash64(*keys).alias("h")]
        if stream.time is not None:
            dtype = self.frame.schema[stream.time].dataType
            columns.append(
                micros(at[stream.time], dtype, zoned=isinstance(dtype, T.TimestampType)).alias("t")
            )
        columns += [key.alias(f"k{i}") for i, key in enumerate(keys)]
        columns += [F.col(at[name]).alias(f"p{i}") for i, name in enumerate(stream.payload)]
        return frame.select(*columns)

    def _ticks(self) -> DataFrame:
        spark = self.frame.sparkSession
        if not self.frame.isStreaming:
            return spark.createDataFrame([(self.version.id,)], "version string")
        spark.dataSource.register(TickSource)
        return (
            spark.readStream.format(TICK)
            .option("folder", str(self.store.folder))
            .option("table", self.store.table)
            .option("cycle_batches", str(self.spec.cycle_batches))
            .option("checkpoint", str(self.checkpoint))
            .option("settling", str(_settling(self.plan)))
            .load()
        )

    def _cache_name(self) -> str:
        text = json.dumps([self.spec.identity(), str(self.store.folder)], sort_keys=True)
        return f"{self.plan.name}-{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"


def staged(plan: EnrichPlan, spark: SparkSession, store: VersionStore) -> StagedVersion:
    """The version of the table as it is declared; staged now if it is not yet.

    Buckets use the newest version there is, so an older one that is declared again becomes a new one.
    """
    table = plan.table
    newest = store.latest()
    fixed = default_buckets(spark) if newest is None else newest.form.buckets
    form = plan.form(plan.options.buckets or fixed, HASH)
    is_frame = isinstance(table.source, DataFrame)
    source = None if is_frame else table_source(table.source)
    label = table.version or (source.fingerprint() if source is not None else None) or "1"
    if newest is not None and (newest.label, newest.form) == (label, form):
        return newest
    how = SparkStaging(_key_types(plan), plan.segment_bytes(form.buckets))
    if source is None:
        version = stage_frame(table.source, form, store, label, how)
    else:
        version = stage_table(spark, source, form, store, label, how)
    try:
        plan.for_bucket(version)
    except InvalidJoin:  # a running query must not use a version that its memory is too small for
        store.remove(version.id)
        raise
    return version


def write(
    join: SparkEnrich, rows: Sink, *, checkpoint: str, trigger: Mapping[str, Any] | None
) -> StreamingQuery:
    """Start a query that gives the rows of each batch to a sink."""
    return started(join.dataframe().writeStream.foreachBatch(rows), checkpoint, trigger)


def waiting_after(query: StreamingQuery, plan: EnrichPlan) -> int:
    """How many rows wait after the last batch of a query, in this join and those below it."""
    for progress in reversed(query.recentProgress):
        seen = joins(progress)
        known = [seen[one.name] for one in plan.chain if one.name in seen]
        if len(known) == len(plan.chain):
            return sum(one["waiting"] for one in known)
    return 0


def _settling(plan: EnrichPlan) -> int:
    """How many batches after its own the answer to a row may come, through all joins up to this one.

    A row without a match meets a version that came while it waited in another cycle, where it may wait.
    """
    return sum((one.spec.cycle_batches - 1) * (1 if one.spec.wait_us is None else 2) for one in plan.chain)


def _local(checkpoint: str) -> Path:
    return Path(urlparse(checkpoint).path.rstrip("/")).absolute()


def _has_run(checkpoint: str) -> bool:
    """Whether a query with this checkpoint has finished a batch."""
    return any((_local(checkpoint) / "commits").glob("[0-9]*"))


def _key_types(plan: EnrichPlan) -> list[T.DataType]:
    return [from_arrow_type(dtype) for dtype in plan.spec.stream.key_types]


def _table_type(source: Any, column: str, dtype: Any) -> T.DataType:
    if isinstance(source, DataFrame):
        return source.schema[column].dataType
    return from_arrow_type(plain(dtype))
