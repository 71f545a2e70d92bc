"""A folder of Delta, Iceberg or Hudi is not read as plain Parquet: removed files would count."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamjoin as sj

ROWS = pa.table({"id": [1, 2], "city": ["Rome", "Oslo"]})
LOGS = {
    "Delta": "_delta_log/00000000000000000000.json",
    "Iceberg": "metadata/v1.metadata.json",
    "Hudi": ".hoodie/hoodie.properties",
}


def lake_table(folder: Path, kind: str) -> Path:
    files = folder / ("data" if kind == "Iceberg" else "day=1")
    files.mkdir(parents=True)
    for name in ("removed", "present"):
        pq.write_table(ROWS, files / f"{name}.parquet")
    log = folder / LOGS[kind]
    log.parent.mkdir()
    log.write_text("{}")
    return files / "present.parquet"


@pytest.mark.parametrize("kind", LOGS)
@pytest.mark.parametrize("which", ["table", "part", "file", "above"])
def test_it_is_refused_with_what_to_write(tmp_path: Path, kind: str, which: str) -> None:
    folder = tmp_path / "lake" / "customers"
    file = lake_table(folder, kind)
    path = {"table": folder, "part": file.parent, "file": file, "above": folder.parent}[which]
    with pytest.raises(sj.InvalidJoin, match=f"table 'c'.* is a {kind} table.*spark.read.format") as refused:
        sj.table(str(path), name="c", key="id", memory="1 MB")
    assert f"load({str(folder)!r})" in str(refused.value)


def test_other_folders_with_such_names_are_read(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "0.parquet")
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "notes.txt").write_text("of the customers")
    assert sj.table(str(tmp_path), name="c", key="id", memory="1 MB").payload == ("city",)
