"""A table from SQLite: types as declared or seen, one snapshot, and what is told."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.columnar.batch import Layout
from streamjoin.enrich.segments import StagedForm, VersionStore
from streamjoin.enrich.staging import StagingOptions, stage
from streamjoin.enrich.tables.source import TableSource
from streamjoin.enrich.tables.sqlite import sqlite


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as made:
        made.execute(
            'create table goods(id integer, "the name" varchar(20), price numeric, mixed, data blob, no int)'
        )
        many = [
            (i, f"name {i}", i / 2 if i % 2 else i, i if i < 5000 else "x", b"\0", None)
            for i in range(70_000)
        ]
        made.executemany("insert into goods values (?, ?, ?, ?, ?, ?)", many)
    made.close()
    return path


def rows(source: TableSource, *columns: str) -> list[dict[str, Any]]:
    return [row for batch in source.batches(columns) for row in batch.to_pylist()]


def test_a_table_and_a_query_are_read_in_their_types(database: Path) -> None:
    source = sqlite(database, table="goods")
    types = [pa.int64(), pa.string(), pa.float64(), pa.int64(), pa.binary(), pa.int64()]
    assert source.schema().types == types
    assert source.rows() == 70_000
    found = rows(source, "the name", "price", "no")
    assert found[3] == {"the name": "name 3", "price": 1.5, "no": None}
    assert len(found) == 70_000
    query = sqlite(database, query="select id, id * 0.5 as half from goods where id < 2;")
    assert rows(query, "half", "id") == [{"half": 0.0, "id": 0}, {"half": 0.5, "id": 1}]


def test_it_is_staged_and_its_label_changes_with_the_file(database: Path, tmp_path: Path) -> None:
    source = sqlite(database, table="goods")
    form = StagedForm(("id",), ("the name",), Layout((pa.int64(),), payload_types=(pa.string(),)), "local", 1)
    assert stage(source, form, VersionStore(tmp_path / "m", "m"), "v").rows == 70_000
    before = source.fingerprint()
    with sqlite3.connect(database) as changed:
        changed.execute("insert into goods(id) values (-1)")
    changed.close()
    assert source.fingerprint() != before


def test_rows_written_while_it_is_read_are_not_in_the_snapshot(database: Path, tmp_path: Path) -> None:
    def change(done: int, total: int | None) -> None:
        if not changed:
            changed.append(done)
            with sqlite3.connect(database) as writing:
                writing.execute("delete from goods where id > 10")
            writing.close()

    changed: list[int] = []
    with sqlite3.connect(database) as made:
        made.execute("pragma journal_mode = wal")
    form = StagedForm(("id",), (), Layout((pa.int64(),)), "local", 1)
    store = VersionStore(tmp_path / "m", "m")
    assert (
        stage(sqlite(database, table="goods"), form, store, "v", StagingOptions(progress=change)).rows
        == 70_000
    )
    assert stage(sqlite(database, table="goods"), form, store, "w").rows == 11
    made.close()


def test_what_is_wrong_is_told(database: Path, tmp_path: Path) -> None:
    with pytest.raises(sj.BadInput, match=r"column 'mixed' does not hold int64 only, from row 0 on"):
        rows(sqlite(database, table="goods"), "mixed")
    with pytest.raises(sj.BadInput, match=r"column 'm' holds int, str; cast it in a query"):
        sqlite(database, query="select 1 as m union all select 'a'").schema()
    with pytest.raises(sj.InvalidJoin, match=r"no such table: nothing\); correct the table"):
        sqlite(database, table="nothing").schema()
    with pytest.raises(sj.InvalidJoin, match="there is no such file"):
        sqlite(tmp_path / "other.db", table="goods").schema()
    (tmp_path / "text.db").write_text("no database, and long enough to be told from an empty one")
    with pytest.raises(sj.BadInput, match="file is not a database"):
        sqlite(tmp_path / "text.db", table="goods").schema()


def test_a_locked_database_is_lost_for_now(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **kw: connect(*args, **kw, timeout=0))
    source = sqlite(database, table="goods")
    source.schema()
    writing = connect(database)
    writing.execute("begin exclusive")
    with pytest.raises(sj.SourceLost, match="database is locked"):
        rows(source, "id")
    writing.close()
    assert len(rows(source, "id")) == 70_000
