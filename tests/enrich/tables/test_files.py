"""Tables without Spark: all kinds of files give the same rows, and what is missing is told."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

import streamjoin as sj
from streamjoin.enrich.tables.files import table_source

TABLE = pa.table({"id": [1, 2, None, 3], "name": ["a", None, "c", "d"], "size": [1.5, 2.5, 3.5, 4.5]})


def rows(source: Any, *columns: str) -> list[dict[str, Any]]:
    return [row for batch in table_source(source).batches(columns) for row in batch.to_pylist()]


def write_stream(table: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


def write_file(table: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


WRITERS = {
    "part.parquet": pq.write_table,
    "part.arrow": write_file,
    "part.ipc": write_stream,
    "part.feather": feather.write_feather,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_folder_a_file_and_a_table_give_the_same_rows(tmp_path: Path, name: str) -> None:
    WRITERS[name](TABLE, tmp_path / name)
    WRITERS[name](TABLE.slice(1, 2), tmp_path / f"more-{name}")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".hidden.parquet").write_bytes(b"no Parquet")
    assert table_source(str(tmp_path)).schema() == TABLE.schema
    assert rows(tmp_path / name, "size", "id") == rows(TABLE, "size", "id")
    assert rows(TABLE, "size", "id") == TABLE.select(["size", "id"]).to_pylist()
    more = rows(TABLE, "id") + TABLE.slice(1, 2).select(["id"]).to_pylist()
    assert sorted(map(str, rows(tmp_path, "id"))) == sorted(map(str, more))


def test_folders_that_name_a_value_give_a_column(tmp_path: Path) -> None:
    for region in ("east", "west"):
        folder = tmp_path / f"region={region}"
        folder.mkdir()
        pq.write_table(pa.table({"id": [1]}), folder / "part.parquet")
    assert rows(tmp_path, "id", "region") == [{"id": 1, "region": "east"}, {"id": 1, "region": "west"}]


def test_times_as_spark_writes_them_are_instants(tmp_path: Path) -> None:
    at = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    table = pa.table({"at": pa.array([at], pa.timestamp("us", "UTC"))})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    assert table_source(tmp_path).schema() == table.schema
    assert rows(tmp_path, "at") == [{"at": at}]


def test_the_label_of_files_changes_with_them(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet")
    first = table_source(tmp_path).fingerprint()
    assert table_source(tmp_path).fingerprint() == first
    os.utime(tmp_path / "a.parquet", ns=(1, 1))
    second = table_source(tmp_path).fingerprint()
    pq.write_table(TABLE, tmp_path / "b.parquet")
    assert len({first, second, table_source(tmp_path).fingerprint()}) == 3


def test_the_label_of_a_table_in_memory_is_of_its_values() -> None:
    same = table_source(pa.table(TABLE.to_pydict())).fingerprint()
    assert table_source(TABLE).fingerprint() == same
    assert table_source(TABLE.slice(1)).fingerprint() != same


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(sj.InvalidJoin, match=r"nowhere is not there"):
        table_source(tmp_path / "nowhere")
    with pytest.raises(sj.InvalidJoin, match=r"no Parquet .* or Arrow files .*; there is nothing"):
        table_source(tmp_path)
    (tmp_path / "a.csv").touch()
    with pytest.raises(sj.InvalidJoin, match=r"there is a.csv"):
        table_source(tmp_path)
    with pytest.raises(sj.InvalidJoin, match="a list is no table"):
        table_source([1])
    with pytest.raises(sj.InvalidJoin, match=r"no column 'key'; it has 'id', 'name', 'size'"):
        rows(TABLE, "id", "key")


@pytest.mark.parametrize("name", WRITERS)
def test_a_damaged_file_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"no such format")
    with pytest.raises(sj.BadInput, match=r"cannot be read .*; write the file again"):
        rows(tmp_path, "id")
