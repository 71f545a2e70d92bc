"""The warehouse demo's data: TPC-H orders by batch, and two versions of the customers, as Parquet files.

In the middle of the orders one customer in ten moves; the batch join gives each order the customer of its
time. Customers are written as plain Parquet, neither compressed nor encoded, so that bytes mean the
same to every reader.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streamjoin.demo.generators.tpch import CUSTOMER_KEY, ORDER_KEY, TpchStreams
from streamjoin.errors import InvalidJoin

BATCHES = 20
VERSION = "customers_version"
ORDERED = ("o_orderkey", "o_orderdate", "o_totalprice")
MEMORY_SHARE = 10  # the join gets the customers' bytes by this
MOVED = 10  # one customer in so many gets another address


@dataclass(frozen=True)
class Warehouse:
    """Orders by batch, and the customers before and after some moved; files of both in a folder.

    `orders/1` has the orders that came before the change and `orders/2` the others, a file for each batch;
    `versions/1` and `versions/2` have the customers. `customers` has those of the present.
    """

    folder: Path
    orders: tuple[pa.Table, ...]
    customers: tuple[pa.Table, pa.Table]

    @classmethod
    def stocked(
        cls, streams: TpchStreams, folder: Path, batch_rows: int, batches: int = BATCHES
    ) -> Warehouse:
        """Generate the tables and write the files."""
        orders = tuple(islice(streams.orders(batch_rows), batches))
        if sum(map(len, orders)) < batches * batch_rows:
            raise InvalidJoin(
                f"scale factor {streams.scale:g} has too few orders for {batches} batches of {batch_rows:,}; "
                f"give --batch-rows {sum(map(len, orders)) // batches} or less"
            )
        before = pa.concat_tables(streams.customers()).combine_chunks()
        made = cls(folder, orders, (before, _some_moved(before)))
        for number, batch in enumerate(orders):
            path = folder / "orders" / str(made.version_at(number)) / f"{number:04}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(batch, path)
            os.utime(path, (1_000_000_000 + number,) * 2)  # Spark takes the oldest file first
        for version, table in enumerate(made.customers, start=1):
            _write_plain(table, made.customers_of(version))
        made.bring_in(1)
        return made

    @property
    def switch(self) -> int:
        """The first batch that comes after the change."""
        return len(self.orders) // 2

    @property
    def table(self) -> Path:
        """The customers as they are at present."""
        return self.folder / "customers"

    @property
    def memory_bytes(self) -> int:
        return int(self.customers[0].nbytes) // MEMORY_SHARE

    def version_at(self, batch: int) -> int:
        return 1 if batch < self.switch else 2

    def customers_of(self, version: int) -> Path:
        return self.folder / "versions" / str(version)

    def bring_in(self, version: int) -> None:
        """These are the customers from now on."""
        _write_plain(self.customers[version - 1], self.table)

    def batch_join(self) -> pa.Table:
        """The answer: each version's orders joined with its customers at once, and the version's number."""
        return pa.concat_tables(
            numbered(joined_at_once(pa.concat_tables(orders), customers), version)
            for version, orders, customers in zip(
                (1, 2), (self.orders[: self.switch], self.orders[self.switch :]), self.customers, strict=True
            )
        )


def joined_at_once(orders: pa.Table, customers: pa.Table) -> pa.Table:
    """A batch join by Arrow."""
    return orders.select([ORDER_KEY, *ORDERED]).join(customers, ORDER_KEY, CUSTOMER_KEY, join_type="inner")


def numbered(rows: pa.Table, version: int) -> pa.Table:
    """The rows, and by which version they were joined."""
    return rows.append_column(VERSION, pa.repeat(version, len(rows)))


def _some_moved(customers: pa.Table) -> pa.Table:
    """Some live elsewhere: their address is read from its end."""
    moved = has_moved(customers[CUSTOMER_KEY])
    address = pc.if_else(moved, pc.utf8_reverse(customers["c_address"]), customers["c_address"])
    place = customers.schema.get_field_index("c_address")
    return customers.set_column(place, "c_address", address).combine_chunks()


def has_moved(customer: pa.ChunkedArray) -> pa.ChunkedArray:
    """Which customers get another address."""
    return pc.equal(pc.subtract(customer, pc.multiply(pc.divide(customer, MOVED), MOVED)), 1)


def _write_plain(table: pa.Table, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / ".new"  # a reader never sees half of it
    pq.write_table(table, new, compression="none", use_dictionary=False)
    new.replace(folder / "0000.parquet")
