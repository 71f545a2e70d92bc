"""A table that is read by a query keeps its types when the query gives no rows."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

import streamjoin as sj
from lab.peers.postgres import Server

QUERY = (
    "select id, name, price, photo, cast(id * 2 as integer) as twice, cast(price as text) as shown "
    "from customers where id > {}"
)
TYPES = [pa.int64(), pa.string(), pa.float64(), pa.binary(), pa.int64(), pa.string()]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.execute("create table customers (id integer, name varchar(20), price real, photo blob, x)")
        database.execute("insert into customers values (1, 'Ada', 1.5, x'00', 7)")
        database.commit()
    return tmp_path / "shop.db"


@pytest.mark.parametrize("least", [0, 100])
def test_sqlite(shop: Path, least: int) -> None:
    assert sj.sqlite(shop, query=QUERY.format(least)).schema().types == TYPES


def test_an_empty_query_joins_in_its_types(shop: Path) -> None:
    orders = sj.stream(pa.schema({"id": pa.int32()}), name="orders", key="id")
    customers = sj.sqlite(shop, query=QUERY.format(100))
    table = sj.table(customers, name="customers", key="id", memory="1 MB", how="left")
    with pytest.warns(sj.EmptyTable):
        run = sj.enrich(orders, table).local()
    given = run.push("orders", pa.table({"id": pa.array([1], pa.int32())}))
    assert given.schema.types == TYPES
    assert given.column("name").to_pylist() == [None]


@pytest.mark.parametrize("column", ["count(*) as n", "x as n"])
def test_what_has_no_type_without_rows_is_refused_with_a_cast(shop: Path, column: str) -> None:
    query = f"select id, {column} from customers where id > {{}} group by id"
    assert sj.sqlite(shop, query=query.format(0)).schema().types == [pa.int64(), pa.int64()]
    with pytest.raises(sj.InvalidJoin, match=r"gives no rows now, and column 'n' has no type.*CAST\("):
        sj.sqlite(shop, query=query.format(100)).schema()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


@pytest.mark.systems
@pytest.mark.xdist_group("postgresql")
def test_postgresql(server: Server) -> None:
    server.sql("create table customers(id int, name text, price numeric(12, 2), at timestamptz)")
    source = sj.postgresql(server.uri, query="select *, count(*) over () as n from customers")
    types = [pa.int32(), pa.string(), pa.decimal128(12, 2), pa.timestamp("us", "UTC"), pa.int64()]
    assert source.schema().types == types
    assert list(source.batches(source.schema().names)) == []
