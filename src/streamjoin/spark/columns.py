"""Physical columns of a join as Spark expressions: names by place, normalized keys, times in microseconds."""

from __future__ import annotations

from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from streamjoin.declare.punctuation_source import Condition
from streamjoin.declare.stream import Stream
from streamjoin.errors import InvalidJoin


def by_place(frame: DataFrame) -> tuple[DataFrame, dict[str, str]]:
    """The frame with its columns called c0, c1…, and what each is called now.

    So no name of a user needs quoting, equals one of ours, or is looked up without regard to its case.
    """
    placed = [f"c{i}" for i in range(len(frame.columns))]
    return frame.toDF(*placed), dict(zip(frame.columns, placed, strict=True))


def normal(key: Any, dtype: T.DataType) -> Any:
    """One zero for floating keys, so that -0.0 and 0.0 hash alike."""
    if isinstance(dtype, T.DoubleType | T.FloatType):
        return F.when(key == F.lit(0.0), F.lit(0.0).cast(dtype)).otherwise(key)
    return key


def micros(name: str, dtype: T.DataType, *, zoned: bool) -> Any:
    """Event time as microseconds; instants, or wall-clock times where no input has instants."""
    if isinstance(dtype, T.DateType) and not zoned:
        return F.unix_date(F.col(name)).cast("long") * F.lit(86_400_000_000)
    if isinstance(dtype, T.TimestampNTZType) and not zoned:
        return F.expr(f"timestampdiff(MICROSECOND, TIMESTAMP_NTZ'1970-01-01 00:00:00', {name})")
    return F.unix_micros(F.col(name).cast("timestamp"))


def check_tests(stream: Stream) -> None:
    """Refuse a test of rows, for its punctuation source, that is not true or false on Spark."""
    source = stream.punctuation
    reads = {} if source is None else source.reads(stream)
    for read in reads.values():
        if not isinstance(read, Condition):
            continue
        said = f"stream {stream.name!r}: {source.name if source else ''}({read.test!s})"
        if not isinstance(read.test, str):
            raise InvalidJoin(f"{said}: give a boolean column's name, or on Spark a condition as SQL text")
        if read.test in stream.schema.names:
            continue  # its type was checked with the stream
        try:
            found = stream.source.select(F.expr(read.test)).schema[0].dataType
        except PySparkException as error:
            reason = " ".join(str(error).partition("SQLSTATE")[0].split())
            raise InvalidJoin(
                f"{said} cannot be tested ({reason}); give a boolean column's name, or a condition over "
                f"{', '.join(stream.schema.names)}"
            ) from error
        if not isinstance(found, T.BooleanType):
            raise InvalidJoin(
                f"{said} is {found.simpleString()}, not true or false; give a boolean column, or a condition "
                f"such as {read.test + ' = …'!r}"
            )


def check_condition(spark: SparkSession, columns: T.StructType, text: str) -> None:
    """Refuse an SQL condition that Spark cannot test on rows of these columns."""
    try:
        _ = spark.createDataFrame([], columns).where(F.expr(text)).schema
    except PySparkException as error:
        reason = str(error).partition("SQLSTATE")[0].splitlines()
        raise InvalidJoin(
            f"where={text!r} cannot be tested ({' '.join(reason).strip()}); give a condition over "
            f"{', '.join(columns.names)}: a pyarrow expression or SQL text"
        ) from error
