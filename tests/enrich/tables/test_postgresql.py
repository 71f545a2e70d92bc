"""A table from a real PostgreSQL server: one snapshot, types, and what is told when it goes away."""

from __future__ import annotations

import datetime as dt
import traceback
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import streamjoin as sj
from lab.peers.postgres import Server
from streamjoin.columnar.batch import Layout
from streamjoin.declare.table import Table
from streamjoin.enrich.segments import StagedForm, VersionStore
from streamjoin.enrich.staging import StagingOptions, stage
from streamjoin.enrich.tables.postgresql import PostgreSQL, postgresql
from streamjoin.enrich.tables.retries import Retries

pytestmark = [pytest.mark.systems, pytest.mark.xdist_group("postgresql")]

ROWS = 200_000
FORM = StagedForm(("id",), ("name",), Layout((pa.int64(),), payload_types=(pa.string(),)), "local", 2)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    running = Server()
    running.sql(
        "create table customers(id int, name text);"
        f"insert into customers select i, 'name ' || i from generate_series(1, {ROWS}) i"
    )
    yield running
    running.close()


@pytest.fixture
def customers(server: Server) -> PostgreSQL:
    return postgresql(server.uri, table="customers")


def test_a_table_and_a_query_are_read_in_their_types(server: Server) -> None:
    server.sql(
        'create schema shop; create table shop."The Goods"(id bigint, price numeric(12, 2), free numeric, '
        "day date, at timestamptz, code uuid, notes jsonb, short char(3), tags int[])"
    )
    server.sql(
        "insert into shop.\"The Goods\" values (1, 1.25, 1.5, '2020-02-03', '2020-02-03 01:00+00', "
        "'96f17fed-7082-4e7d-ae3f-01889fcc229a', '{\"a\": 1}', 'ab', '{1,2}')"
    )
    server.sql('insert into shop."The Goods"(id) values (null)')
    source = postgresql(server.uri, table="shop.The Goods")
    types = [pa.int64(), pa.decimal128(12, 2), pa.string(), pa.date32(), pa.timestamp("us", "UTC")]
    assert source.schema().types[:8] == [*types, pa.string(), pa.string(), pa.string()]
    (batch,) = source.batches(source.schema().names)
    first, second = batch.to_pylist()
    assert first == {
        "id": 1,
        "price": Decimal("1.25"),
        "free": "1.5",
        "day": dt.date(2020, 2, 3),
        "at": dt.datetime(2020, 2, 3, 1, tzinfo=dt.UTC),
        "code": "96f17fed-7082-4e7d-ae3f-01889fcc229a",
        "notes": '{"a": 1}',
        "short": "ab",
        "tags": [1, 2],
    }
    assert set(second.values()) == {None}
    query = postgresql(server.uri, query='select id + 1 as next from shop."The Goods" where id > 0;')
    assert [row for batch in query.batches(["next"]) for row in batch.to_pylist()] == [{"next": 2}]


def test_rows_committed_while_it_is_read_are_not_in_the_snapshot(
    server: Server, customers: PostgreSQL, tmp_path: Path
) -> None:
    def change(done: int, total: int | None) -> None:
        if not changed:
            server.sql("insert into customers values (-1, 'late'); delete from customers where id > 100000")
            changed.append(done)

    changed: list[int] = []
    store = VersionStore(tmp_path, "customers")
    version = stage(customers, FORM, store, "before", StagingOptions(progress=change))
    assert 0 < 2 * changed[0] < ROWS
    assert version.rows == ROWS
    later = stage(customers, FORM, store, "after")
    assert later.rows == 100_001
    server.sql("delete from customers where id < 0")
    server.sql(f"insert into customers select i, 'name ' || i from generate_series(100001, {ROWS}) i")


def test_a_server_that_goes_away_is_read_again_from_the_beginning(
    server: Server, customers: PostgreSQL, tmp_path: Path
) -> None:
    pauses: list[float] = []

    def delete(done: int, total: int | None) -> None:
        if not pauses and server.process.poll() is None:
            server.kill()

    def sleep(pause: float) -> None:
        pauses.append(pause)
        if len(pauses) == 3:
            server.start()

    how = StagingOptions(progress=delete, retries=Retries(sleep=sleep), buffer_bytes=1 << 20)
    version = stage(customers, FORM, VersionStore(tmp_path, "customers"), "v", how)
    assert pauses == [1, 2, 4]
    assert version.rows == ROWS
    assert all(path.suffix in (".segment", ".json") for path in version.folder.iterdir())


def test_a_server_that_stays_away_is_told_without_the_password(
    server: Server, customers: PostgreSQL, tmp_path: Path
) -> None:
    store = VersionStore(tmp_path, "customers")

    def delete(done: int, total: int | None) -> None:
        if server.process.poll() is None:
            server.kill()

    how = StagingOptions(progress=delete, retries=Retries(sleep=lambda pause: None))
    with pytest.raises(sj.SourceLost) as told:
        stage(customers, FORM, store, "v", how)
    server.start()
    text = str(told.value)
    assert 'PostgreSQL "customers" at local/postgres cannot be reached' in text
    assert "Tried 6 times" in text
    assert "Restart the query when it is back: nothing staged so far is used" in text
    assert "secret-word" not in "".join(traceback.format_exception(told.value)) + repr(customers)
    assert store.versions() == []
    assert stage(customers, FORM, store, "v").rows == ROWS


def test_a_stream_is_enriched_from_the_database_and_again_with_a_new_version(server: Server) -> None:
    server.sql(
        "create table cities(id int, city text); insert into cities values (1, 'Rome'), (null, 'none')"
    )
    source = postgresql(server.uri, table="cities")

    def cities(version: str) -> Table:
        return sj.table(source, name="cities", key="id", memory="1 MB", version=version)

    orders = sj.stream(pa.schema({"id": pa.int64(), "item": pa.string()}), name="orders", key="id")
    run = sj.enrich(orders, cities("monday")).local()
    rows = pa.table({"id": [1, 2], "item": ["tea", "rice"]})
    assert run.push("orders", rows).to_pylist() == [{"id": 1, "item": "tea", "city": "Rome"}]
    server.sql("update cities set city = 'Oslo', id = 2 where id = 1")
    run.refresh(cities("tuesday"))
    assert run.push("orders", rows).to_pylist() == [{"id": 2, "item": "rice", "city": "Oslo"}]


def test_what_is_wrong_is_told(server: Server) -> None:
    with pytest.raises(sj.InvalidJoin, match="takes table= or query=, one of them"):
        postgresql(server.uri)
    with pytest.raises(
        sj.InvalidJoin, match=r'relation "nothing" does not exist.*; correct the table or query'
    ):
        postgresql(server.uri, table="nothing").schema()
    with pytest.raises(sj.InvalidJoin, match=r"no column 'key'; it has 'id', 'name'"):
        list(postgresql(server.uri, table="customers").batches(["key"]))
    failing = postgresql(server.uri, query="select 1 / (id - 150000) as x from customers")
    with pytest.raises(sj.BadInput, match="division by zero"):
        list(failing.batches(["x"]))
    with pytest.raises(sj.SourceLost, match='database "other" does not exist'):
        postgresql(server.uri.replace("/postgres?", "/other?"), table="t").schema()
    for uri in (
        "postgresql://u:hush@local:port/x",
        "host=/nowhere password=hush",
        "postgresql://u:hu sh@[/x",
    ):
        with pytest.raises(sj.StreamJoinError) as told:
            postgresql(uri, table="t").schema()
        assert "hush" not in str(told.value)
        assert "hu sh" not in str(told.value)
