"""Staging without Spark: the segments are the table's rows, whatever the keys, sizes, buckets and memory."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streamjoin as sj
from streamjoin.columnar.batch import Layout
from streamjoin.columnar.keys import hash_keys
from streamjoin.enrich.segments import StagedForm, StagedVersion, VersionStore
from streamjoin.enrich.staging import StagingOptions, in_layout, stage
from streamjoin.enrich.tables.files import MemoryTable, table_source
from streamjoin.enrich.tables.source import TableSource
from streamjoin.join.wire import bucket_bounds

PAIR = pa.struct({"a": pa.int64(), "b": pa.string()})
# of each kind: the join's key types, the table's key types, a key column's values from numbers
KINDS: dict[str, tuple[list[pa.DataType], list[pa.DataType]]] = {
    "int": ([pa.int64()], [pa.int32()]),
    "string": ([pa.string()], [pa.dictionary(pa.int32(), pa.string())]),
    "composite": ([pa.int64(), pa.string()], [pa.int64(), pa.large_string()]),
    "struct": ([PAIR], [pa.struct({"x": pa.int32(), "y": pa.string()})]),
    "float": ([pa.float64()], [pa.float32()]),
}


def key_values(dtype: pa.DataType, numbers: list[int | None]) -> list[Any]:
    if pa.types.is_struct(dtype):
        return [None if n is None else {"x": n // 2, "y": None if n % 2 else "y"} for n in numbers]
    if pa.types.is_integer(dtype):
        return numbers
    if pa.types.is_floating(dtype):
        special = {0: 0.0, 1: -0.0, 2: float("nan")}
        return [None if n is None else special.get(n, n / 2) for n in numbers]
    return [None if n is None else f"key {n}" for n in numbers]


def table_of(kind: str, numbers: list[int | None]) -> tuple[pa.Table, StagedForm]:
    wanted, types = KINDS[kind]
    keys = {f"key{i}": pa.array(key_values(t, numbers), t) for i, t in enumerate(types)}
    table = pa.table(
        {**keys, "row": list(range(len(numbers))), "text": ["t" * (i % 7) for i in range(len(numbers))]}
    )
    layout = Layout(tuple(wanted), payload_types=(pa.int64(), pa.string()))
    return table, StagedForm(tuple(keys), ("row", "text"), layout, "local", 1)


def staged_rows(version: StagedVersion) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    for number in range(version.form.buckets):
        bucket = version.bucket(number)
        batches = [bucket.read(segment) for segment in range(len(bucket.segments))]
        yield number, [row for batch in batches for row in batch.data.to_pylist()]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    numbers=st.lists(st.one_of(st.none(), st.integers(0, 25)), max_size=60),
    buckets=st.integers(1, 5),
    sizes=st.tuples(st.integers(30, 3000), st.sampled_from([300, 2000, 1 << 20])),
    asked=st.lists(st.integers(0, 30), max_size=10),
)
def test_staged_segments_are_the_rows_with_a_key_and_find_equals_a_filter(
    tmp_path: Path,
    kind: str,
    numbers: list[int | None],
    buckets: int,
    sizes: tuple[int, int],
    asked: list[int],
) -> None:
    table, form = table_of(kind, numbers)
    form = replace(form, buckets=buckets)
    source = MemoryTable(pa.concat_tables([table.slice(0, 9), table.slice(9)]))
    how = StagingOptions(segment_bytes=sizes[0], buffer_bytes=sizes[1])
    version = stage(source, form, VersionStore(tmp_path / "t", "t"), "v", how)
    there = [i for i, n in enumerate(numbers) if n is not None]
    expected = (
        in_layout(table.take(there).combine_chunks().to_batches()[0], form, hash_keys, "t") if there else None
    )
    naive = expected.data.to_pylist() if expected else []
    assert (version.rows, version.null_keys) == (len(there), len(numbers) - len(there))
    assert not list(version.folder.glob(".*"))
    all_rows: list[dict[str, Any]] = []
    bounds = bucket_bounds(buckets)
    for bucket, rows in staged_rows(version):
        assert all(np.searchsorted(bounds, row["h"], side="right") == bucket for row in rows)
        assert [row["h"] for row in rows] == sorted(row["h"] for row in rows)
        all_rows += rows
    assert Counter(map(repr, all_rows)) == Counter(map(repr, naive))
    ask, _ = table_of(kind, list(asked))
    if asked:
        keys = in_layout(ask.to_batches()[0], form, hash_keys, "t").sorted().distinct_keys()
        found = [
            row
            for bucket in map(version.bucket, range(buckets))
            for segment in range(len(bucket.segments))
            for row in bucket.find(segment, keys).data.to_pylist()
        ]
        same = {0: 0, 1: 0} if kind == "float" else {}  # 0.0 is -0.0
        chosen = {same.get(n, n) for n in asked}
        wanted = [i for i in there if same.get(numbers[i], numbers[i]) in chosen]  # type: ignore[arg-type]
        assert sorted(row["p0"] for row in found) == wanted


def test_a_table_larger_than_memory_is_staged_in_bounded_memory(tmp_path: Path) -> None:
    """80 MB in Parquet, of which 4 MB are held at a time."""
    generator = np.random.default_rng(7)
    table = pa.table({"id": np.arange(100_000), "text": [generator.bytes(120) for _ in range(100_000)]})
    for part in range(6):
        pq.write_table(table, tmp_path / f"{part}.parquet", row_group_size=10_000)
    form = StagedForm(("id",), ("text",), Layout((pa.int64(),), payload_types=(pa.binary(),)), "local", 4)
    told: list[tuple[int, int | None]] = []
    del table
    before, most = pa.total_allocated_bytes(), 0

    def progress(done: int, total: int | None) -> None:
        nonlocal most
        told.append((done, total))
        most = max(most, pa.total_allocated_bytes() - before)

    how = StagingOptions(segment_bytes=1 << 20, buffer_bytes=4 << 20, progress=progress)
    version = stage(table_source(tmp_path), form, VersionStore(tmp_path / "out", "t"), "v", how)
    assert (version.rows, told[-1]) == (600_000, (600_000, 600_000))
    assert told == sorted(told)
    assert most < 32 << 20
    assert version.largest_segment < 3 << 20
    hashes = [[segment.first, segment.last] for segment in version.segments]
    buckets = np.searchsorted(bucket_bounds(4), hashes, side="right")
    assert buckets.tolist() == [[segment.bucket] * 2 for segment in version.segments]
    assert version.costs.read_s_per_byte > 0


def test_bad_tables_are_told(tmp_path: Path) -> None:
    store = VersionStore(tmp_path / "t", "t")
    text = StagedForm(("id",), (), Layout((pa.int64(),)), "local", 1)
    with pytest.raises(sj.InvalidJoin, match=r"no column 'id'; it has 'a'"):
        stage(MemoryTable(pa.table({"a": [1]})), text, store, "v")
    with pytest.raises(sj.BadInput, match=r"column 'id' does not fit int64 .*'x'"):
        stage(MemoryTable(pa.table({"id": ["1", "x"]})), text, store, "v")
    with pytest.raises(sj.InvalidJoin, match=r"column 'id' is list.* cannot become int64; cast it first"):
        stage(MemoryTable(pa.table({"id": [[1]]})), text, store, "v")
    assert store.versions() == []
    assert [path.name for path in store.folder.iterdir()] == [".lock"]


def test_files_that_change_while_they_are_read_are_told(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "a.parquet")

    class Changing(TableSource):
        def __init__(self) -> None:
            self.files = table_source(tmp_path)

        def schema(self) -> pa.Schema:
            return self.files.schema()

        def describe(self) -> str:
            return self.files.describe()

        def fingerprint(self) -> str | None:
            return self.files.fingerprint()

        def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
            yield from self.files.batches(columns)
            pq.write_table(pa.table({"id": list(range(random.randrange(9, 99)))}), tmp_path / "a.parquet")

    form = StagedForm(("id",), (), Layout((pa.int64(),)), "local", 1)
    store = VersionStore(tmp_path / "out", "t")
    with pytest.raises(sj.BadInput, match="changed while it was read"):
        stage(Changing(), form, store, "v")
    assert store.versions() == []
