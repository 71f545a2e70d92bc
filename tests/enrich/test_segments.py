"""Staged segments: all rows, sorted, no hash cut; versions come and go whole; damage is told."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streamjoin as sj
from streamjoin.columnar.batch import Batch, Layout, concat
from streamjoin.columnar.keys import hash_keys
from streamjoin.enrich.segments import StagedBucket, StagedForm, StagedVersion, VersionStore, write_segments

LAYOUT = Layout((pa.int64(),), payload_types=(pa.string(),))
FORM = StagedForm(("id",), ("name",), LAYOUT, "local", 1)


def rows(keys: Any, hashes: Any = None) -> Batch:
    key = pa.array(keys, pa.int64())
    names = pc.binary_join_element_wise("name", key.cast(pa.string()), " ")
    hashed = hash_keys([key]) if hashes is None else np.array(hashes, np.int64)
    return LAYOUT.batch([pa.array(hashed), key, names]).sorted()


def stage(store: VersionStore, batch: Batch, label: str = "v", segment_bytes: int = 100) -> StagedVersion:
    with store.begin(label) as writer:
        segments = list(write_segments(batch, 0, writer.folder, "00000", segment_bytes))
        return writer.finish(FORM, segments, 0)


@pytest.fixture
def store(tmp_path: Path) -> VersionStore:
    return VersionStore(tmp_path / "customers", "customers")


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    keys=st.lists(st.integers(0, 30), max_size=80),
    asked=st.sets(st.integers(0, 35)),
    segment_bytes=st.integers(20, 2000),
    colliding=st.booleans(),
)
def test_segments_hold_all_rows_and_find_equals_a_filter(
    tmp_path: Path, keys: list[int], asked: set[int], segment_bytes: int, colliding: bool
) -> None:
    def hashes(of: list[int]) -> list[int] | None:
        return [key // 3 for key in of] if colliding else None

    batch = rows(keys, hashes(keys))
    version = stage(VersionStore(tmp_path / "t", "t"), batch, segment_bytes=segment_bytes)
    table = StagedVersion.open(version.folder).bucket(0)
    read = [table.read(segment) for segment in range(len(table.segments))]
    assert concat(LAYOUT, read).data.to_pylist() == batch.data.to_pylist()
    assert table.segment_bytes == tuple(segment.nbytes for segment in read)
    assert table.starts.tolist() == [int(segment.hash[0]) for segment in read]
    assert all(a.hash[-1] < b.hash[0] for a, b in pairwise(read))
    wanted = rows(sorted(asked), hashes(sorted(asked))).only_keys()
    for number, segment in enumerate(read):
        found = table.find(number, wanted)
        assert found.sorted().data.equals(found.data)
        chosen = [row for row in segment.data.to_pylist() if row["k0"] in asked]
        assert sorted(found.data.to_pylist(), key=repr) == sorted(chosen, key=repr)


def test_a_key_with_more_rows_than_a_segment_stays_in_one(store: VersionStore) -> None:
    version = stage(store, rows([*range(20), *[7] * 100]))
    segments = [set(version.bucket(0).read(n).keys[0].to_pylist()) for n in range(len(version.segments))]
    assert len(segments) > 5
    assert sum(7 in keys for keys in segments) == 1


def test_a_version_is_found_by_its_label_and_form(store: VersionStore) -> None:
    assert store.latest() is None
    first = stage(store, rows([1]), "2026-11-16 10:00")
    second = stage(store, rows([1, 2]), "b")
    assert store.versions() == ["0001-2026-11-16-10-00", "0002-b"]
    assert store.latest() == second
    assert store.find("2026-11-16 10:00", FORM) == first
    assert store.find("c", FORM) is None
    assert store.find("b", StagedForm(("id",), ("name",), LAYOUT, "spark-xxhash64", 1)) is None
    store.remove("0001-2026-11-16-10-00")
    assert store.versions() == ["0002-b"]
    assert not first.folder.exists()


def test_an_interrupted_staging_leaves_no_version_and_the_next_one_cleans_up(store: VersionStore) -> None:
    stage(store, rows([1]))
    killed = store.folder / "0002-killed"
    killed.mkdir()
    (killed / "00000-000.segment").write_bytes(b"half")
    assert store.versions() == ["0001-v"]
    with pytest.raises(FileNotFoundError), store.begin("failing") as writer:
        list(write_segments(rows([1]), 0, writer.folder / "not there", "0"))
    assert sorted(path.name for path in store.folder.iterdir()) == [".lock", "0001-v"]


def test_the_number_of_a_version_deleted_by_hand_is_not_given_again(store: VersionStore) -> None:
    import shutil

    stage(store, rows([1]))
    shutil.rmtree(stage(store, rows([2])).folder)
    assert stage(store, rows([3])).id == "0003-v"


def test_a_version_deleted_by_hand_is_told_with_what_to_do(store: VersionStore) -> None:
    version = stage(store, rows(range(50)))
    table = version.bucket(0)
    table.path(1).unlink()
    told = r"table 'customers', version 0001-v: .*00000-001.segment is not there; restore .* new checkpoint"
    with pytest.raises(sj.StateFormatError, match=told):
        table.read(1)
    with pytest.raises(sj.StateFormatError, match=told):
        table.find(1, rows([1]).only_keys())
    (version.folder / "manifest.json").unlink()
    with pytest.raises(
        sj.StateFormatError, match=r"'customers', version 0001-v: .*manifest.json is not there"
    ):
        store.open("0001-v")


@pytest.mark.parametrize("damage", ["cut", "empty", "bit"])
def test_a_damaged_segment_is_told(store: VersionStore, damage: str) -> None:
    table = stage(store, rows(range(50)), segment_bytes=10_000).bucket(0)
    value = bytearray(table.path(0).read_bytes())
    if damage == "bit":
        value[len(value) // 2] ^= 1
    table.path(0).write_bytes(value[: {"cut": 200, "empty": 0, "bit": len(value)}[damage]])
    with pytest.raises(sj.StateFormatError, match=r"version 0001-v: .*00000-000.segment cannot be read"):
        table.read(0)


def test_a_manifest_of_another_format_is_refused(store: VersionStore) -> None:
    version = stage(store, rows([1]))
    manifest = version.folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 9'))
    with pytest.raises(sj.StateFormatError, match="format 9, this version reads 1"):
        store.open(version.id)


def test_an_empty_table_is_a_version_too(store: VersionStore) -> None:
    version = stage(store, rows([]))
    table = version.bucket(0)
    assert (version.rows, version.largest_segment, table.segment_bytes, len(table.starts)) == (0, 0, (), 0)


def test_finding_touches_little_memory(store: VersionStore) -> None:
    """120 MB staged; 50 keys are looked up in every segment, more files than stay mapped."""
    count = 800_000
    key = pa.array(np.arange(count))
    size = np.full(count + 1, 120, np.int32)
    size[0] = 0
    noise = np.random.default_rng(1).bytes(count * 120)
    data = pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(np.cumsum(size, dtype=np.int32)), pa.py_buffer(noise)]
    )
    layout = Layout((pa.int64(),), payload_types=(pa.binary(),))
    form = StagedForm(("id",), ("data",), layout, "local", 1)
    batch = layout.batch([pa.array(hash_keys([key])), key, data]).sorted()
    with store.begin("large") as writer:
        segments = list(write_segments(batch, 0, writer.folder, "0", 2 << 20))
        version = writer.finish(form, segments, 0)
    assert version.nbytes > 100_000_000
    assert len(segments) > 40
    wanted = batch.take(np.arange(0, count, len(batch) // (50 * len(segments)))).only_keys()
    del batch, data, noise
    table, found = version.bucket(0), 0
    _ask(table, wanted.slice(0, 100))
    before = psutil.Process().memory_info().rss
    files, most = len(list(Path("/proc/self/fd").iterdir())), 0
    for segment in range(len(segments)):
        found += len(table.find(segment, wanted))
        most = max(most, psutil.Process().memory_info().rss - before)
    assert found == len(wanted)
    assert most < 8 << 20
    assert len(list(Path("/proc/self/fd").iterdir())) - files < 50


def _ask(table: StagedBucket, keys: Batch) -> None:
    for segment in range(3):
        table.find(segment, keys)
