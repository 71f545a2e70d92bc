"""Parquet files, Arrow files and Arrow tables in memory as table sources, and the source that a path means.

The fingerprint of files is a hash of their names, sizes and times of change, that of an Arrow table a hash of
its values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from streamjoin.enrich.tables.source import TableSource, check_columns, missing_methods
from streamjoin.errors import BadInput, InvalidJoin

PARQUET = (".parquet", ".parq", ".pq")
ARROW = (".arrow", ".feather", ".ipc", ".arrows")
BATCH_ROWS = 1 << 16


def table_source(source: Any) -> TableSource:
    """The source that a path or an Arrow table means; a source is itself."""
    if isinstance(source, pa.Table | pa.RecordBatch):
        return MemoryTable(pa.table(source))
    if isinstance(source, str | Path):
        return _files(Path(source))
    lacking = missing_methods(source)
    if not lacking:
        return cast("TableSource", source)
    own = f" (as a sj.TableSource it lacks {', '.join(lacking)})" if "batches" not in lacking else ""
    raise InvalidJoin(
        f"a {type(source).__name__} is no table{own}; give the path of a folder or file of Parquet or "
        "Arrow, an Arrow table, a DataFrame, sj.postgresql(…), sj.sqlite(…), or a sj.TableSource"
    )


def _files(path: Path) -> TableSource:
    if not path.exists():
        raise InvalidJoin(f"table {path} is not there; give the path of a folder or file that is")
    _refuse_lake_table(path)
    found = [path] if path.is_file() else sorted(_shown(path))
    for endings, form in ((PARQUET, ParquetFiles), (ARROW, ArrowFiles)):
        chosen = tuple(file for file in found if file.suffix.lower() in endings)
        if chosen:
            return form(path, chosen)
    there = ", ".join(file.name for file in found[:5]) or "nothing"
    raise InvalidJoin(
        f"table {path} has no Parquet ({', '.join(PARQUET)}) or Arrow files ({', '.join(ARROW)}); "
        f"there is {there}{', …' if len(found) > 5 else ''}"
    )


@dataclass(frozen=True)
class _Lake:
    """A table format whose log says which of its files count; the others have rows that were removed."""

    name: str
    log: str  # a folder
    within: str  # what it holds
    spark: str
    python: str


_LAKES = (
    _Lake("Delta", "_delta_log", "*", "delta", "deltalake.DeltaTable({!r}).to_pyarrow_table()"),
    _Lake("Iceberg", "metadata", "*.metadata.json", "iceberg", "the result of pyiceberg's scan().to_arrow()"),
    _Lake("Hudi", ".hoodie", "*", "hudi", "the rows as an Arrow table"),
)


def _refuse_lake_table(path: Path) -> None:
    """Refuse a folder of a lake table, a part of one, and a folder that has one in it."""
    whole = path.absolute()
    for lake in _LAKES:
        below = sorted(whole.rglob(lake.log)) if whole.is_dir() else []
        for log in (*(above / lake.log for above in (whole, *whole.parents)), *below):
            if log.is_dir() and any(log.glob(lake.within)):
                at = log.parent
                raise InvalidJoin(
                    f"table {path}: {at} is a {lake.name} table, and its files alone do not tell which rows "
                    f"were removed; give spark.read.format({lake.spark!r}).load({str(at)!r}), or without "
                    f"Spark {lake.python.format(str(at))}"
                )


def _shown(folder: Path) -> Iterator[Path]:
    """The files below a folder, without those that Spark and others hide behind a dot or underscore."""
    for path in folder.rglob("*"):
        if path.is_file() and not any(part[0] in "._" for part in path.relative_to(folder).parts):
            yield path


@dataclass(frozen=True)
class Files(TableSource):
    """Files of one kind, below one folder."""

    path: Path
    files: tuple[Path, ...]

    def fingerprint(self) -> str | None:
        digest = hashlib.blake2b(digest_size=8)
        for file in self.files:
            try:
                stat = file.stat()
            except OSError as error:
                raise self.unreadable(error) from error
            digest.update(f"{file.relative_to(self.path)}|{stat.st_size}|{stat.st_mtime_ns}\n".encode())
        return digest.hexdigest()

    def describe(self) -> str:
        return f"table {self.path}"

    def unreadable(self, error: Exception) -> BadInput:
        return BadInput(f"{self.describe()} cannot be read ({error}); write the file again, or take it away")


@dataclass(frozen=True)
class ParquetFiles(Files):
    """Parquet; folders named `column=value` give a column, as Spark writes them."""

    @cached_property
    def _dataset(self) -> ds.Dataset:
        base = self.path if self.path.is_dir() else self.path.parent
        partitioning = ds.HivePartitioning.discover(infer_dictionary=False)
        try:
            return ds.dataset(
                list(map(str, self.files)),
                format=ds.ParquetFileFormat(coerce_int96_timestamp_unit="us"),
                partitioning=partitioning,
                partition_base_dir=str(base),
            )
        except (pa.ArrowException, OSError) as error:
            raise self.unreadable(error) from error

    def schema(self) -> pa.Schema:
        return self._schema

    @cached_property
    def _schema(self) -> pa.Schema:
        """The dataset's; what Spark writes as INT96 are instants, as Spark itself reads them."""
        found = self._dataset.schema
        written = pq.read_metadata(self.files[0]).schema
        for column in (written.column(i) for i in range(len(written))):
            if column.physical_type == "INT96" and column.path in found.names:
                number = found.get_field_index(column.path)
                found = found.set(number, pa.field(column.path, pa.timestamp("us", "UTC")))
        return found

    def rows(self) -> int | None:
        return int(self._dataset.count_rows())

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        check_columns(self, columns)
        schema = pa.schema([self.schema().field(name) for name in columns])
        try:
            for fragment in self._dataset.get_fragments():
                yield from _of_one_file(fragment, schema)
        except (pa.ArrowException, OSError) as error:
            raise self.unreadable(error) from error


def _of_one_file(fragment: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a Parquet file; a scan of the dataset would read ahead without a limit."""
    by_folder = ds.get_partition_keys(fragment.partition_expression)
    options: dict[str, Any] = {
        "pre_buffer": False,
        "buffer_size": 1 << 20,
        "coerce_int96_timestamp_unit": "us",
    }
    with pq.ParquetFile(fragment.path, **options) as file:
        there = [name for name in schema.names if name in file.schema_arrow.names]
        for batch in file.iter_batches(BATCH_ROWS, columns=there):
            yield pa.RecordBatch.from_arrays(
                [
                    batch.column(name).cast(dtype)
                    if name in there
                    else pa.repeat(pa.scalar(by_folder.get(name), dtype), batch.num_rows)
                    for name, dtype in zip(schema.names, schema.types, strict=True)
                ],
                schema=schema,
            )


@dataclass(frozen=True)
class ArrowFiles(Files):
    """Arrow IPC, in the file or the stream format."""

    def schema(self) -> pa.Schema:
        with self._opened(self.files[0]) as reader:
            return reader.schema

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        check_columns(self, columns)
        schema = pa.schema([self.schema().field(name) for name in columns])
        for file in self.files:
            with self._opened(file) as reader:
                try:
                    for batch in _each(reader):
                        yield batch.select(list(columns)).cast(schema)
                except (pa.ArrowException, OSError, KeyError) as error:
                    raise self.unreadable(error) from error

    def _opened(self, file: Path) -> Any:
        try:
            with file.open("rb") as opened:
                random_access = opened.read(6) == b"ARROW1"
            return pa.ipc.open_file(str(file)) if random_access else pa.ipc.open_stream(str(file))
        except (pa.ArrowException, OSError) as error:
            raise self.unreadable(error) from error


def _each(reader: Any) -> Iterator[pa.RecordBatch]:
    if isinstance(reader, pa.ipc.RecordBatchFileReader):
        yield from (reader.get_batch(i) for i in range(reader.num_record_batches))
    else:
        yield from reader


@dataclass(frozen=True)
class MemoryTable(TableSource):
    """An Arrow table in memory."""

    table: pa.Table

    def schema(self) -> pa.Schema:
        return self.table.schema

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        check_columns(self, columns)
        yield from self.table.select(list(columns)).to_batches(max_chunksize=BATCH_ROWS)

    def rows(self) -> int | None:
        return int(self.table.num_rows)

    def fingerprint(self) -> str | None:
        return self._content

    @cached_property
    def _content(self) -> str:
        """Of the values and how they are chunked; 1 GB takes about a second."""
        digest = hashlib.blake2b(digest_size=8)
        digest.update(self.table.schema.serialize())
        for batch in self.table.to_batches(max_chunksize=BATCH_ROWS):
            digest.update(batch.serialize())
        return digest.hexdigest()

    def describe(self) -> str:
        return "the Arrow table"
