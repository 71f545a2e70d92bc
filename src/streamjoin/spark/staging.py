"""Staging on Spark: the same segments as `enrich.staging`, written by the workers.

    select (JVM: cast keys, hash) → a task for each slice of the hash space → sort, write segments → manifest

The hashes are those of a stream's rows, so stream and table meet bucket by bucket. A slice is about 64 MB
as Spark estimates the table; a task that gets far more sorts it through files. Worked number: 10 million
rows of 120 bytes are 1.4 GB, 22 slices, 350 segments.

A table that Spark does not read itself (Arrow files, databases) is first read by the driver, once, as
Parquet into the folder of the version.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from streamjoin.columnar.batch import Batch
from streamjoin.columnar.keys import canonical, cast_by_position
from streamjoin.enrich.progress_bar import OnProgress, is_shown, progress_bar
from streamjoin.enrich.segments import SEGMENT_BYTES, Segment, StagedForm, StagedVersion, VersionStore
from streamjoin.enrich.staging import HashSlices
from streamjoin.enrich.tables.files import ParquetFiles
from streamjoin.enrich.tables.retries import Retries
from streamjoin.enrich.tables.source import TableSource, check_columns, check_unchanged, read_batches
from streamjoin.errors import InvalidJoin
from streamjoin.spark.columns import by_place, normal
from streamjoin.spark.exchange import bucket_labels
from streamjoin.spark.session import default_buckets

HASH = "spark-xxhash64"
SLICE_BYTES = 64 << 20
_BUFFER_BYTES = 128 << 20
_UNKNOWN = 1 << 40  # bytes: Spark does not know how large a table is
_SIZE = re.compile(r"sizeInBytes=([0-9.]+(?:E\+?[0-9]+)?) ([KMGTPE]iB|B)\b")
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_FILE_ROWS = 1 << 20  # of the Parquet files that the driver writes
_SPARKS: dict[str, Any] = {  # Spark's times are microseconds
    "compression": "lz4",
    "coerce_timestamps": "us",
    "allow_truncated_timestamps": True,
}
_SEGMENT = "file string, bucket int, rows long, nbytes long, first long, last long, collided boolean"
_SEGMENT_ARROW = pa.schema(
    {
        "file": pa.string(),
        "bucket": pa.int32(),
        "rows": pa.int64(),
        "nbytes": pa.int64(),
        "first": pa.int64(),
        "last": pa.int64(),
        "collided": pa.bool_(),
    }
)


@dataclass(frozen=True)
class SparkStaging:
    """How to stage; `key_types` are the join's, in the order of the key."""

    key_types: Sequence[T.DataType]
    segment_bytes: int = SEGMENT_BYTES


def stage_frame(
    frame: DataFrame, form: StagedForm, store: VersionStore, label: str, how: SparkStaging
) -> StagedVersion:
    """Stage a batch DataFrame as a new version."""
    _check(frame, form, store.table)
    with store.begin(label) as writer:
        segments, null_keys = _write(frame, form, writer.folder, how)
        return writer.finish(form, segments, null_keys)


def stage_table(
    spark: SparkSession,
    source: TableSource,
    form: StagedForm,
    store: VersionStore,
    label: str,
    how: SparkStaging,
) -> StagedVersion:
    """Stage a table that is no DataFrame as a new version."""
    columns = list(dict.fromkeys([*form.keys, *form.columns]))
    check_columns(source, columns)
    with store.begin(label) as writer:
        content, loaded = source.fingerprint(), writer.folder / ".table"
        if isinstance(source, ParquetFiles) and not any(map(_has_nanoseconds, source.schema().types)):
            frame = _parquet(spark, source.path, source.files)
        else:
            with progress_bar(f"reading {store.table}") as progress:
                Retries().of(lambda: load(source, columns, loaded, progress))
            frame = _parquet(spark, loaded, [loaded])
        segments, null_keys = _write(frame, form, writer.folder, how)
        check_unchanged(source, content)
        shutil.rmtree(loaded, ignore_errors=True)
        return writer.finish(form, segments, null_keys)


def _parquet(spark: SparkSession, path: Path, files: Sequence[Path]) -> DataFrame:
    """These files and no others of their folder, on this machine whatever Spark's own file system is."""
    base = path if path.is_dir() else path.parent
    reader = spark.read.option("basePath", f"file://{base.absolute()}")
    return reader.parquet(*(f"file://{file.absolute()}" for file in files))


def _has_nanoseconds(dtype: pa.DataType) -> bool:
    """Whether Spark refuses to read it from Parquet."""
    fields = [dtype.field(i).type for i in range(dtype.num_fields)]
    return (pa.types.is_timestamp(dtype) and dtype.unit == "ns") or any(map(_has_nanoseconds, fields))


def load(source: TableSource, columns: Sequence[str], folder: Path, progress: OnProgress) -> None:
    """All rows of a table as Parquet files that Spark can read at once; one read, so one snapshot."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    names, total, read = list(columns), source.rows(), 0
    schema = pa.schema([source.schema().field(name) for name in names])
    number, writer = 0, None
    try:
        for batch in read_batches(source, names):
            if writer is None:
                path = folder / f"{number:05d}.parquet"
                writer = pq.ParquetWriter(path, schema, **_SPARKS)
            writer.write_batch(batch)
            read += batch.num_rows
            progress(read, total)
            if read >= (number + 1) * _FILE_ROWS:
                writer.close()
                number, writer = number + 1, None
    finally:
        if writer is not None:
            writer.close()
    if read == 0:
        pq.write_table(schema.empty_table(), folder / "empty.parquet", **_SPARKS)


def _check(frame: DataFrame, form: StagedForm, table: str) -> None:
    if frame.isStreaming:
        raise InvalidJoin(f"table {table!r} is a streaming DataFrame; read it with read, not readStream")
    missing = [name for name in (*form.keys, *form.columns) if name not in frame.columns]
    if missing:
        raise InvalidJoin(
            f"table {table!r} has no column {', '.join(map(repr, missing))}; "
            f"it has {', '.join(map(repr, frame.columns)) or 'none'}"
        )


def _write(frame: DataFrame, form: StagedForm, folder: Path, how: SparkStaging) -> tuple[list[Segment], int]:
    """All segments, written by the workers, and how many rows have a null key."""
    frame, at = by_place(frame)
    keys = [
        normal(F.col(at[name]).cast(dtype), dtype)
        for name, dtype in zip(form.keys, how.key_types, strict=True)
    ]
    no_key = reduce(or_, [key.isNull() for key in keys])
    nulls = Observation(f"streamjoin_staging_{uuid.uuid4().hex}")
    counted = frame.observe(nulls, F.count_if(no_key).alias("null_keys"))
    rows = counted.where(~no_key).select(
        F.xxhash64(*keys).alias("h"),
        *(key.alias(f"k{i}") for i, key in enumerate(keys)),
        *(F.col(at[name]).alias(f"p{i}") for i, name in enumerate(form.columns)),
    )
    slices = _slices(rows)
    # the hash without its sign and its lower half, times the slices, without the next 31 bits
    upper = F.shiftrightunsigned(F.col("h").bitwiseXOR(F.lit(-(1 << 63))), 33)
    number = F.shiftright(upper * F.lit(slices), 31).cast("int")
    label = F.lit(bucket_labels(slices))[number]  # Spark sends label i to partition i
    task = _StageSlice(form, str(folder), how.segment_bytes)
    written = rows.repartition(slices, label).mapInArrow(task, _SEGMENT)
    with _watched(folder):
        segments = [Segment(*row) for row in written.collect()]
    _check_shared(folder, segments)
    return segments, int(nulls.get["null_keys"])


def _check_shared(folder: Path, segments: Sequence[Segment]) -> None:
    """Whether this process sees what the workers wrote."""
    if segments and not (folder / segments[0].file).is_file():
        raise InvalidJoin(
            f"the workers wrote the table's files to {folder}, and this process does not find them there; "
            "give a checkpoint on a file system that this process and all workers share"
        )


def _slices(rows: DataFrame) -> int:
    """How many tasks sort; memory holds for any number, this is about their time."""
    size, parallel = _estimated_bytes(rows), default_buckets(rows.sparkSession)
    if size > _UNKNOWN:
        return max(64, 4 * parallel)
    return max(-(-size // SLICE_BYTES), min(parallel, -(-size // SEGMENT_BYTES)), 1)


def _estimated_bytes(rows: DataFrame) -> int:
    """What Spark's plan says; the printed plan is the only way to it that Connect has too."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        rows.explain(mode="cost")
    found = _SIZE.search(printed.getvalue())  # the first is that of the whole plan
    return _UNKNOWN + 1 if found is None else int(float(found[1]) * 1024 ** _UNITS.index(found[2]))


@dataclass(frozen=True)
class _StageSlice:
    """One task: its rows, sorted, as segments; one row for each segment goes to the driver."""

    form: StagedForm
    folder: str
    segment_bytes: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What `mapInArrow` calls for every task."""
        context = TaskContext.get()
        stem = f"{context.partitionId() if context else 0:05d}-"
        slices = HashSlices(self.form, Path(self.folder), _BUFFER_BYTES)
        for batch in batches:
            if batch.num_rows:
                slices.add(self._rows(batch))
        segments = [astuple(segment) for segment in slices.segments(stem, self.segment_bytes)]
        pa.default_memory_pool().release_unused()
        columns = [list(column) for column in zip(*segments, strict=True)] or [[]] * len(_SEGMENT_ARROW)
        arrays = [
            pa.array(column, dtype) for column, dtype in zip(columns, _SEGMENT_ARROW.types, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=_SEGMENT_ARROW)

    def _rows(self, batch: pa.RecordBatch) -> Batch:
        layout = self.form.layout
        columns = [
            cast_by_position(column, dtype)
            for column, dtype in zip(batch.columns, layout.schema.types, strict=True)
        ]
        keys = slice(1, 1 + len(self.form.keys))
        columns[keys] = map(canonical, columns[keys])
        return layout.batch(columns)


@contextlib.contextmanager
def _watched(folder: Path) -> Iterator[None]:
    """A progress bar while Spark works, on a terminal: how many segments are written."""
    if not is_shown():
        yield
        return
    over = threading.Event()

    def watch(progress: OnProgress) -> None:
        while not over.wait(0.2):
            progress(sum(1 for _ in folder.glob("[0-9]*")), None)

    with progress_bar(f"staging {folder.parent.name}") as progress:
        watcher = threading.Thread(target=watch, args=(progress,), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
