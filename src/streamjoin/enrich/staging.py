"""Staging without Spark: an external sort of a table by hash, in two passes over bounded memory.

First pass: keys are cast to the join's types and hashed, rows with a null key left out; whenever 64 MB are
buffered they are sorted and spilled as slices of the hash space, one temporary file each. Second pass:
consecutive slices of a bucket, about 32 MB together, are read, sorted and cut into segments. A table of up to
64 MB needs no temporary files. Worked number: 10 GB in 256 slices of 40 MB each. Only a key with more rows
than that takes more memory.

A source that loses its connection is read again from its beginning, after a pause. What an interrupted
staging leaves is no version, and is removed by the next one.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin.columnar.batch import Batch, Ints, concat
from streamjoin.columnar.keys import canonical, cast_by_position, hash_keys, valid
from streamjoin.columnar.types import plain
from streamjoin.enrich.progress_bar import OnProgress, progress_bar
from streamjoin.enrich.segments import (
    SEGMENT_BYTES,
    Segment,
    StagedForm,
    StagedVersion,
    VersionStore,
    write_segments,
)
from streamjoin.enrich.tables.retries import Retries
from streamjoin.enrich.tables.source import TableSource, check_columns, check_unchanged, read_batches
from streamjoin.errors import BadInput, InvalidJoin, SourceLost
from streamjoin.join.wire import bucket_bounds

BUFFER_BYTES = 64 << 20
SLICES = 256

Hash = Callable[[Sequence[Any]], Ints]


@dataclass(frozen=True)
class StagingOptions:
    """How to stage; `hash` must be the function that `StagedForm.hash` names."""

    hash: Hash = hash_keys
    segment_bytes: int = SEGMENT_BYTES
    buffer_bytes: int = BUFFER_BYTES
    progress: OnProgress | None = None  # called with rows done and rows in all; None: a bar, on a terminal
    retries: Retries = field(default_factory=Retries)


_DEFAULTS = StagingOptions()


def stage(
    source: TableSource, form: StagedForm, store: VersionStore, label: str, how: StagingOptions = _DEFAULTS
) -> StagedVersion:
    """Read the table once and stage it as a new version."""
    wanted = list(dict.fromkeys([*form.keys, *form.columns]))
    check_columns(source, wanted)

    def read(folder: Path, progress: OnProgress) -> tuple[HashSlices, int, int]:
        content, total, rows, kept = source.fingerprint(), source.rows(), 0, 0
        slices = HashSlices(form, folder, how.buffer_bytes)
        try:
            for batch in read_batches(source, wanted):
                part = in_layout(batch, form, how.hash, source.describe())
                rows, kept = rows + batch.num_rows, kept + len(part)
                slices.add(part)
                progress(rows // 2, total)
        except SourceLost:
            slices.clear()
            raise
        check_unchanged(source, content)
        return slices, rows, rows - kept

    bar = progress_bar(f"staging {store.table}") if how.progress is None else nullcontext(how.progress)
    with store.begin(label) as writer, bar as progress:
        slices, rows, null_keys = how.retries.of(lambda: read(writer.folder, progress))
        segments, written = [], 0
        for segment in slices.segments("", how.segment_bytes):
            segments.append(segment)
            written += segment.rows
            progress((rows + written) // 2, rows)
        return writer.finish(form, segments, null_keys)


def in_layout(batch: pa.RecordBatch, form: StagedForm, hash_function: Hash, table: str) -> Batch:
    """Rows of the table in the types of the join, without those that have a null key."""
    types = form.layout.schema.types[1:]
    names = [*form.keys, *form.columns]
    columns = [
        _cast(batch.column(name), dtype, name, table) for name, dtype in zip(names, types, strict=True)
    ]
    keys = [canonical(key) for key in columns[: len(form.keys)]]
    columns[: len(keys)] = keys
    there = valid(keys)
    if not there.all():
        chosen = pa.array(np.flatnonzero(there))
        columns = [column.take(chosen) for column in columns]
    return form.layout.batch([pa.array(hash_function(columns[: len(keys)])), *columns])


def _cast(column: Any, dtype: pa.DataType, name: str, table: str) -> Any:
    try:
        return cast_by_position(column.cast(plain(column.type)), dtype, rounded=True)
    except pa.ArrowNotImplementedError as error:
        raise InvalidJoin(
            f"{table}: column {name!r} is {column.type} and cannot become {dtype}; cast it first"
        ) from error
    except pa.ArrowInvalid as error:
        raise BadInput(
            f"{table}: column {name!r} does not fit {dtype} ({error}); correct the rows"
        ) from error


@dataclass
class HashSlices:
    """Rows by slices of the hash space, spilled beyond `buffer_bytes`; then written as segments."""

    form: StagedForm
    folder: Path
    buffer_bytes: int = BUFFER_BYTES
    _buffered: list[Batch] = field(default_factory=list)
    _buffered_bytes: int = 0
    _files: dict[int, Path] = field(default_factory=dict)
    _unique: str = field(default_factory=lambda: uuid.uuid4().hex)  # several may stage into one folder

    @property
    def per_bucket(self) -> int:
        return max(1, SLICES // self.form.buckets)

    def add(self, rows: Batch) -> None:
        self._buffered.append(rows)
        self._buffered_bytes += rows.nbytes
        if self._buffered_bytes >= self.buffer_bytes:
            self._spill()

    def clear(self) -> None:
        """Drop all rows."""
        for path in self._files.values():
            path.unlink(missing_ok=True)
        self._files, self._buffered, self._buffered_bytes = {}, [], 0

    def segments(self, stem: str, segment_bytes: int) -> Iterator[Segment]:
        """Write all rows as segments, and remove the spilled files."""
        for number, (bucket, rows) in enumerate(self._in_order()):
            yield from write_segments(rows, bucket, self.folder, f"{stem}{number:05d}", segment_bytes)

    def _in_order(self) -> Iterator[tuple[int, Batch]]:
        """Bucket by bucket all rows, sorted, in parts that are cut between hashes."""
        if not self._files:
            yield from _cut(self._take_buffered(), self.form.buckets)
            return
        self._spill()
        for bucket, slices in self._groups():
            parts = [part for number in slices for part in self._read(number)]
            yield bucket, concat(self.form.layout, parts).sorted()

    def _spill(self) -> None:
        for number, part in _cut(self._take_buffered(), self.form.buckets * self.per_bucket):
            path = self._files.setdefault(number, self.folder / f".{self._unique}-{number:05d}")
            with path.open("ab") as file:
                file.write(part.data.serialize())

    def _take_buffered(self) -> Batch:
        """Take the buffered rows, sorted."""
        rows = concat(self.form.layout, self._buffered)
        self._buffered, self._buffered_bytes = [], 0
        return rows.sorted()

    def _groups(self) -> Iterator[tuple[int, list[int]]]:
        """Consecutive slices of one bucket, half of `buffer_bytes` together, or one slice."""
        group: list[int] = []
        size = 0
        for number in sorted(self._files):
            more = self._files[number].stat().st_size
            crosses = group and group[0] // self.per_bucket != number // self.per_bucket
            if group and (crosses or size + more > self.buffer_bytes // 2):
                yield group[0] // self.per_bucket, group
                group, size = [], 0
            group.append(number)
            size += more
        if group:
            yield group[0] // self.per_bucket, group

    def _read(self, number: int) -> Iterator[Batch]:
        path = self._files[number]
        with pa.OSFile(str(path)) as file:
            while file.tell() < file.size():
                data = pa.ipc.read_record_batch(pa.ipc.read_message(file), self.form.layout.schema)
                yield Batch(self.form.layout, data)
        path.unlink()


def _cut(rows: Batch, parts: int) -> Iterator[tuple[int, Batch]]:
    """Sorted rows by slices of the hash space, those that have any."""
    cuts = [0, *np.searchsorted(rows.hash, bucket_bounds(parts)).tolist(), len(rows)]
    for number, (start, stop) in enumerate(pairwise(cuts)):
        if stop > start:
            yield number, rows.slice(start, stop - start)
