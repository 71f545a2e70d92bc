"""The stream join as a Spark query: from declared streams to an ordinary DataFrame of results.

    select (JVM: cast keys, hash, microseconds) → pack → union → group by bucket →
    transformWithState → observe metrics → unpack

A control source is one more branch of the union, packed for the input it punctuates. An input may be
the results of another join (`chain`).
Batch DataFrames go through the same code and give the batch answer.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type

from streamjoin.declare.control import Control
from streamjoin.declare.punctuation_source import Condition, Read
from streamjoin.declare.stream import Stream
from streamjoin.declare.upstream import UpstreamJoin
from streamjoin.errors import InvalidJoin
from streamjoin.join.aggregates import Collect, Extreme
from streamjoin.join.group_spec import Aggregate
from streamjoin.join.row_intake import RowIntake
from streamjoin.join.spec import JoinSpec, within_memory
from streamjoin.join.strategies.spill import check_share
from streamjoin.plan.bounds import UnboundedState, warning_text
from streamjoin.plan.group_by import never_final
from streamjoin.plan.output import free_names
from streamjoin.plan.planner import Plan
from streamjoin.spark.chain import PROPAGATED, PropagatedPacker
from streamjoin.spark.columns import by_place, check_condition, micros, normal
from streamjoin.spark.exchange import bucket_labels
from streamjoin.spark.ingest import PACKED, Packer, PhysicalReads, ScheduledPacker
from streamjoin.spark.join_bucket import JoinBucket, metric_names, monitor_names
from streamjoin.spark.metrics import observed
from streamjoin.spark.outputs import Emitter, Packed, RowsOnly, can_be_direct
from streamjoin.spark.processor import BucketProcessor
from streamjoin.spark.scheduled_ingest import scheduled_punctuations
from streamjoin.spark.session import check_session, default_buckets, setting
from streamjoin.spark.unpacking import Unpacking
from streamjoin.spark.versions import arrow_schema_of

# Compaction differs from a local run: writing to the state store is expensive, about 3 ms per MB and more for
# large values, and probing one more run is cheap. docs/decisions has the measurements.
COMPACTION_FANOUT = 16
RUN_BYTES = 8 << 20


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """The columns of a DataFrame in Arrow's types, as Spark's workers see them."""
    zone = setting(frame.sparkSession, "spark.sql.session.timeZone", "UTC")
    return arrow_schema_of(frame.schema, zone)


@dataclass(frozen=True)
class SparkJoin:
    """A planned join over DataFrames, its specification completed for its session."""

    plan: Plan
    spec: JoinSpec
    spark: SparkSession

    @classmethod
    def of(cls, plan: Plan, *, warn: bool = True) -> SparkJoin:
        """Check that this join can run on its session, and complete its specification."""
        frames = [stream.source for stream in plan.streams]
        spark = frames[0].sparkSession
        streaming = {stream.name: bool(stream.source.isStreaming) for stream in plan.streams}
        for stream in plan.streams:
            if stream.control is not None:
                streaming[f"control of {stream.name}"] = bool(stream.control.source.isStreaming)
        if len(set(streaming.values())) > 1:
            raise InvalidJoin(
                "streaming and batch inputs cannot be mixed in one join ("
                + ", ".join(f"{name}: {'streaming' if is_ else 'batch'}" for name, is_ in streaming.items())
                + "); read all of them with readStream, or all with read"
            )
        _refuse_unbuilt(plan)
        check_session(spark)
        if frames[0].isStreaming:
            if (text := never_final(plan)) is not None:
                raise InvalidJoin(text)
            text = warning_text(plan.bounds)
            if warn and text is not None:
                warnings.warn(text, UnboundedState, stacklevel=4)
        buckets = plan.options.buckets or default_buckets(spark)
        check_share(plan.spec.strategies.spill.limit_bytes, buckets)
        compaction = replace(plan.spec.compaction, fanout=COMPACTION_FANOUT, run_bytes=RUN_BYTES)
        spec = replace(
            plan.spec, buckets=buckets, hash="spark-xxhash64", compaction=compaction, may_defer=False
        )
        join = cls(plan, within_memory(spec), spark)
        return replace(join, spec=replace(join.spec, zone=join._read_in_zone()))

    def emitted(self, emitter: Emitter) -> DataFrame:
        """The outputs of the buckets, in the emitter's columns; metrics are observed and taken out."""
        labels = tuple(bucket_labels(self.spec.buckets))
        packed = [self._packed(number, labels) for number in range(len(self.plan.streams))]
        packed += [
            self._packed_control(number, stream.control, labels)
            for number, stream in enumerate(self.plan.streams)
            if stream.control is not None
        ]
        union = packed[0]
        for other in packed[1:]:
            union = union.union(other)
        # unmatched tuples and final groups are known at the end of the inputs, and batch inputs end
        has_final_rows = bool(self.spec.how.preserved) or self.spec.grouping is not None
        ends = has_final_rows and not self.plan.streams[0].source.isStreaming
        joined = union.groupBy("bucket").transformWithStateInPandas(
            BucketProcessor(JoinBucket(self.spec, self._cache_name(), ends=ends), emitter),
            from_arrow_schema(emitter.schema),
            "append",
            "none",
        )
        names = metric_names(self.spec)
        return observed(joined, self.spec.name, names, monitor=monitor_names(self.spec))

    def dataframe(self) -> DataFrame:
        """The result rows, unpacked only where their types demand packing."""
        if not can_be_direct(self.spec.emits):
            return self.rows(self.emitted(Packed()))
        return self.passing(direct_rows(self.emitted(RowsOnly(self.spec.emits)), self.output_type()))

    def rows(self, packed: DataFrame) -> DataFrame:
        """The results among what was emitted packed, in the output columns."""
        return self.unpacking().rows(packed)

    def elements(self, packed: DataFrame, kinds: Sequence[int] = ()) -> DataFrame:
        """Everything that was emitted packed, or some kinds of it, tagged."""
        return self.unpacking().elements(packed, kinds)

    def passing(self, rows: DataFrame, others: Any = None) -> DataFrame:
        """The rows for which the condition that only Spark can test holds, and `others`."""
        return self.unpacking().passing(rows, others)

    def unpacking(self) -> Unpacking:
        """How to make columns of what was emitted packed, in plain values."""
        return Unpacking(self.spec, self.output_type(), self.plan.filter_on_spark)

    def output_type(self) -> T.StructType:
        """The output columns, in Spark's types."""
        joined = self._joined_type()
        grouping = self.spec.grouping
        if grouping is None:
            return joined if self.spec.shown is None else T.StructType([joined[n] for n in self.spec.shown])
        groups = [joined[name] for name in grouping.columns]
        answers = [T.StructField(one.name, _answer_type(one, joined)) for one in grouping.aggregates]
        return T.StructType([*groups, *answers])

    def _joined_type(self) -> T.StructType:
        """The columns of a joined row in Spark's types."""
        fields = [
            T.StructField(name, dtype)
            for name, dtype in zip(self.spec.key_names, self._key_types(), strict=True)
        ]
        emitted = self.plan.streams if self.spec.how.combinations else self.plan.streams[:1]
        first = len(fields)
        for number, stream in enumerate(emitted):
            if self.spec.own_keys:
                start = self.spec.first_column(number)
                own = self.spec.output.names[start : start + first]
                fields += [
                    T.StructField(name, dtype) for name, dtype in zip(own, self._key_types(), strict=True)
                ]
            fields += [
                T.StructField(name, stream.source.schema[column].dataType)
                for name, column in zip(self.spec.payload_names(number), stream.payload, strict=True)
            ]
        fields += [T.StructField(name, T.LongType()) for name in self.spec.stamps]
        return T.StructType(fields)

    def _key_types(self) -> list[T.DataType]:
        types: list[T.DataType] = []
        for i, common in enumerate(self.spec.key_types):
            declared = [stream.source.schema[stream.key[i]].dataType for stream in self.plan.streams]
            same = all(dtype == declared[0] for dtype in declared)
            types.append(declared[0] if same else from_arrow_type(common))
        return types

    def _packed(self, number: int, labels: tuple[int, ...]) -> DataFrame:
        stream, spec = self.plan.streams[number], self.spec.inputs[number]
        packer = self._packer(stream.upstream)(
            number,
            stream.name,
            spec.layout,
            labels,
            RowIntake.of(stream, spec.layout, keep_unkeyed=number in self.spec.how.preserved),
            PhysicalReads.of(stream),
            sequenced=bool(stream.sequence),
            limited=self.spec.memory_share is not None,
        )
        return self._physical_rows(stream, timed=spec.layout.timed).mapInArrow(packer, PACKED)

    def _packer(self, upstream: UpstreamJoin | None) -> Callable[..., Packer]:
        """The packer of an input's rows: of a source, or of the results of a join."""
        if upstream is None:
            return Packer
        key_types = upstream.plan.spec.key_types
        return partial(PropagatedPacker, key_positions=upstream.key_positions, key_types=key_types)

    def _packed_control(self, number: int, source: Control, labels: tuple[int, ...]) -> DataFrame:
        stream, spec = self.plan.streams[number], self.spec.inputs[number]
        forms = [
            source.form(key, dtype) for key, dtype in zip(stream.key, spec.layout.key_types, strict=True)
        ]
        keys = list(zip(stream.key, self._key_types(), forms, strict=True))
        ranged = tuple(form == "range" for form in forms)
        packer = ScheduledPacker(number, stream.name, spec.layout, labels, ranged, source.time)
        return scheduled_punctuations(source, keys, zoned=self._zoned()).mapInArrow(packer, PACKED)

    def _physical_rows(self, stream: Stream, *, timed: bool) -> DataFrame:
        frame, at = _with_conditions(stream)
        keys = [
            normal(F.col(at[name]).cast(dtype), dtype)
            for name, dtype in zip(stream.key, self._key_types(), strict=True)
        ]
        columns = [F.xxhash64(*keys).alias("h")]
        if stream.stamps:
            columns += [
                F.col(at[name]).alias(short) for name, short in zip(stream.stamps, "td", strict=False)
            ]
        elif timed and stream.time is not None:
            dtype = stream.source.schema[stream.time].dataType
            columns.append(micros(at[stream.time], dtype, zoned=self._zoned()).alias("t"))
        columns += [key.alias(f"k{i}") for i, key in enumerate(keys)]
        columns += [F.col(at[name]).alias(f"p{i}") for i, name in enumerate(stream.payload)]
        columns += [F.col(at[read]).alias(name) for name, read in PhysicalReads.of(stream).added.items()]
        if stream.sequence:
            partition = F.xxhash64(F.col(at[stream.sequence[0]])) if len(stream.sequence) == 2 else F.lit(0)
            columns.append(partition.cast("long").alias("part"))
            columns.append(F.col(at[stream.sequence[-1]]).cast("long").alias("off"))
        if stream.upstream is not None:
            propagated = zip(stream.source.columns[-len(PROPAGATED) :], PROPAGATED, strict=True)
            columns += [F.col(at[name]).alias(physical) for name, physical in propagated]
        return frame.select(*columns)

    def _zoned(self) -> bool:
        """Whether some event time is an instant; then all are read in the session's time zone."""
        times = [s.source.schema[s.time].dataType for s in self.plan.streams if s.time is not None]
        controls = [s.control for s in self.plan.streams if s.control is not None]
        times += [control.source.schema[control.time].dataType for control in controls]
        return self.plan.options.zoned or any(isinstance(dtype, T.TimestampType) for dtype in times)

    def _read_in_zone(self) -> str | None:
        """The session's time zone, where local event times are read in it."""
        times = [
            s.source.schema[s.time].dataType for s in self.plan.streams if s.time is not None and not s.stamps
        ]
        local = any(not isinstance(dtype, T.TimestampType) for dtype in times)
        return (
            self.spark.conf.get("spark.sql.session.timeZone") if local and self._zoned() else self.spec.zone
        )

    def _cache_name(self) -> str:
        text = json.dumps(self.spec.identity(), sort_keys=True)
        return f"{self.spec.name}-{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"


def _with_conditions(stream: Stream) -> tuple[DataFrame, dict[Read, str]]:
    """A stream's rows by place, with the SQL conditions that its punctuation source tests, and what each
    column and condition is called now. A condition that is a column's name is that column.
    """
    source: DataFrame = stream.source
    reads = [read for read in PhysicalReads.of(stream).added.values() if isinstance(read, Condition)]
    tested = [read for read in reads if read.test not in source.columns]
    names = dict(zip(tested, free_names([f"s{i}" for i in range(len(tested))], source.columns), strict=True))
    tests = [F.expr(read.test).alias(name) for read, name in names.items()]
    frame, at = by_place(source.select("*", *tests))
    places: dict[Read, str] = {read: at[names.get(read, read.test)] for read in reads}
    places.update(at)
    return frame, places


def check_filter(plan: Plan) -> None:
    """Refuse SQL that neither the join nor Spark can test."""
    if plan.filter_on_spark is not None:
        spark = plan.streams[0].source.sparkSession
        check_condition(spark, SparkJoin(plan, plan.spec, spark).output_type(), plan.filter_on_spark)


def direct_rows(emitted: DataFrame, output: T.StructType) -> DataFrame:
    """Results that were emitted in their own columns, in their own types."""
    return emitted.select(
        *(_from_micros(f"c{i}", field.dataType).alias(field.name) for i, field in enumerate(output))
    )


def _refuse_unbuilt(plan: Plan) -> None:
    for stream in plan.streams:
        if stream.arrival is not None and len(stream.sequence) != 2:
            raise InvalidJoin(
                f"stream {stream.name!r} is clustered or ordered on Spark without a sequence that names its "
                "partitions; add sequence=[partition column, offset column]: its order holds in each"
            )


def _answer_type(asked: Aggregate, joined: T.StructType) -> T.DataType:
    if isinstance(asked.accumulator, Extreme):
        return joined[asked.column].dataType
    if isinstance(asked.accumulator, Collect):
        return T.ArrayType(joined[asked.column].dataType)
    return from_arrow_type(asked.accumulator.result)


def _from_micros(name: str, dtype: T.DataType) -> Any:
    """A column as it was emitted directly, in its own type again."""
    if isinstance(dtype, T.TimestampType):
        return F.timestamp_micros(F.col(name))
    if isinstance(dtype, T.TimestampNTZType):
        return F.expr(f"timestampadd(MICROSECOND, {name}, TIMESTAMP_NTZ'1970-01-01 00:00:00')")
    return F.col(name)
