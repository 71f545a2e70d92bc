"""A warehouse: each order gets its customer, from a table of which memory holds a tenth.

Orders come as a stream, customers are a table (TPC-H; an order's customer is drawn by Zipf's law, so some
order far more often). Frequent customers come into the cache; every other order waits until the segment of
the table with its customer is read, at most a few batches. In the middle a tenth of the customers move:
orders that came before get the old address, those after it the new one, and the cache begins again.

Worked number: 150,000 customers are 27 MB, and 5 batches may pass until an order is answered; so a batch
reads 1/5 of the table, 6 MB, however many orders it has. Spark's own stream-static join reads all 27 MB.

Customers are written as plain Parquet, neither compressed nor encoded, so that bytes mean the same for both.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from streamjoin.api.enrich import Enriched, enrich, table
from streamjoin.api.join import stream
from streamjoin.demo.generators.tpch import CUSTOMER_KEY, ORDER_KEY, TpchStreams
from streamjoin.errors import InvalidJoin, InvariantBroken
from streamjoin.plot import Areas, Chart, Column

NAME = "warehouse"
BATCHES = 20
VERSION = "customers_version"
_ORDERED = ("o_orderkey", "o_orderdate", "o_totalprice")
_MEMORY_SHARE = 10  # the join gets the customers' bytes by this
_MOVED = 10  # one customer in so many gets another address


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
            path = made.orders_of(made.version_at(number)) / f"{number:04}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(batch, path)
            os.utime(path, (1_000_000_000 + number,) * 2)  # Spark takes the oldest file first
        for version, customers in enumerate(made.customers, start=1):
            _write_plain(customers, made.customers_of(version))
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
        return int(self.customers[0].nbytes) // _MEMORY_SHARE

    def version_at(self, batch: int) -> int:
        return 1 if batch < self.switch else 2

    def orders_of(self, version: int) -> Path:
        return self.folder / "orders" / str(version)

    def customers_of(self, version: int) -> Path:
        return self.folder / "versions" / str(version)

    def bring_in(self, version: int) -> None:
        """These are the customers from now on."""
        _write_plain(self.customers[version - 1], self.table)

    def join(self, orders: Any = None, *, cycle_batches: int) -> Enriched:
        """Orders with their customers; `orders` is a DataFrame, or nothing for a run in this process."""
        return enrich(
            stream(
                self.orders[0].schema if orders is None else orders,
                name="orders",
                key=ORDER_KEY,
                columns=_ORDERED,
            ),
            table(
                str(self.table),
                name="customers",
                key=CUSTOMER_KEY,
                memory=self.memory_bytes,
                cycle_batches=cycle_batches,
                columns=[*(n for n in self.customers[0].column_names if n != CUSTOMER_KEY), "_version"],
            ),
            name=NAME,
        )

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
    return orders.select([ORDER_KEY, *_ORDERED]).join(customers, ORDER_KEY, CUSTOMER_KEY, join_type="inner")


def numbered(rows: pa.Table, version: int) -> pa.Table:
    """The rows, and by which version they were joined."""
    return rows.append_column(VERSION, pa.repeat(version, len(rows)))


def _some_moved(customers: pa.Table) -> pa.Table:
    """Some live elsewhere: their address is read from its end."""
    moved = _has_moved(customers[CUSTOMER_KEY])
    address = pc.if_else(moved, pc.utf8_reverse(customers["c_address"]), customers["c_address"])
    place = customers.schema.get_field_index("c_address")
    return customers.set_column(place, "c_address", address).combine_chunks()


def _has_moved(customer: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.equal(pc.subtract(customer, pc.multiply(pc.divide(customer, _MOVED), _MOVED)), 1)


def _write_plain(table: pa.Table, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / ".new"  # a reader never sees half of it
    pq.write_table(table, new, compression="none", use_dictionary=False)
    new.replace(folder / "0000.parquet")


# What is seen


@dataclass(frozen=True)
class Seen:
    """One batch: its orders, those answered from the cache at once, what was read, and what is held."""

    orders: int
    hits: int
    bytes_read: int
    waiting: int
    segment_bytes: int
    cache_bytes: int
    waiting_bytes: int

    @property
    def hit_percent(self) -> float:
        return 100 * self.hits / max(self.orders, 1)


@dataclass
class Watched:
    """What was seen of this library's join, and of the other one."""

    results: list[pa.Table] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    other: str = "a join with the whole table"
    other_results: list[pa.Table] = field(default_factory=list)
    other_bytes: list[int] = field(default_factory=list)
    how_counted: str = "the table's bytes"

    @property
    def batches(self) -> list[Seen]:
        """Those that brought orders."""
        return [one for one in self.seen if one.orders]

    @property
    def further(self) -> int:
        """Batches without orders, which answered those that waited at the end."""
        return len(self.seen) - len(self.batches)


Run = Callable[[Warehouse, int, Callable[[int], None]], Watched]


def run_local(warehouse: Warehouse, cycle_batches: int, tick: Callable[[int], None]) -> Watched:
    """Both in this process; the other one joins each batch with the whole table, in memory."""
    watched = Watched()
    run = warehouse.join(cycle_batches=cycle_batches).local()
    before = run.counters()

    def note(found: pa.Table, orders: int) -> None:
        nonlocal before
        counted, held = run.counters(), run.state()["customers"]
        watched.results.append(found)
        watched.seen.append(
            Seen(
                orders,
                counted["hits"] - before["hits"],
                counted["bytes_read"] - before["bytes_read"],
                held.waiting,
                held.segment_bytes,
                held.cache_bytes,
                held.waiting_bytes + held.switching_bytes,
            )
        )
        before = counted

    for number, orders in enumerate(warehouse.orders):
        version = warehouse.version_at(number)
        if number == warehouse.switch:
            warehouse.bring_in(version)
            watched.results.append(run.refresh())  # reads on as a batch does
        note(run.push("orders", orders), len(orders))
        customers = warehouse.customers[version - 1]
        watched.other_results.append(numbered(joined_at_once(orders, customers), version))
        watched.other_bytes.append(customers.nbytes)
        tick(2 * number + 2)
    while run.waiting:
        note(run.tick(), 0)
    return watched


def check_answers(watched: Watched, expected: pa.Table) -> None:
    """Both gave exactly the rows of the batch join, each order with the customers of its time."""
    ours = pa.concat_tables(watched.results)
    place = ours.schema.get_field_index(VERSION)
    ordinal = pc.cast(pc.utf8_slice_codeunits(ours[VERSION], 0, 4), pa.int64())
    ours = ours.set_column(place, VERSION, ordinal)
    for who, found in ((NAME, ours), (watched.other, pa.concat_tables(watched.other_results))):
        rows = found.select(expected.column_names).cast(expected.schema)
        if not rows.sort_by("o_orderkey").equals(expected.sort_by("o_orderkey")):
            raise InvariantBroken(
                f"{who} gave {len(rows):,} rows that differ from the batch join's {len(expected):,}; "
                "please report this with the command you ran"
            )


# What is told


def show(streams: TpchStreams, run: Run, console: Console, out: Path, *, batch_rows: int, cycle: int) -> None:
    """Run the demo and tell about it."""

    def say(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    say("[bold]Who ordered, and where do they live?[/] orders ⋈ customers\n")
    say(
        f"Orders come in {BATCHES} batches of {batch_rows:,}. {streams.customer_rows:,} customers are a "
        f"table, and the join may take 1/{_MEMORY_SHARE} of its bytes as memory. The tables are TPC-H's; an "
        f"order's customer is drawn by Zipf's law (exponent {streams.skew:g}): some order far more often. "
        f"After batch {BATCHES // 2} one customer in {_MOVED} moves: that is a new version of the table.\n"
    )
    with TemporaryDirectory(prefix="streamjoin-warehouse-") as folder:
        with console.status("generating orders and customers"):
            warehouse = Warehouse.stocked(streams, Path(folder), batch_rows)
        say(f"{warehouse.join(cycle_batches=cycle).explain()}\n")
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("batches", total=2 * BATCHES)
            watched = run(warehouse, cycle, lambda done: progress.update(task, completed=done))
            progress.update(task, completed=2 * BATCHES)
    expected = warehouse.batch_join()
    check_answers(watched, expected)
    console.print(_moved_customer(pa.concat_tables(watched.results)))
    console.print(_batches(watched, warehouse))
    ours, others = sum(one.bytes_read for one in watched.seen), sum(watched.other_bytes)
    say(
        f"{len(expected):,} orders with their customers: this join and {watched.other} both give exactly the "
        "rows of the batch join, each order with the customers of its time.\n"
        f"{watched.batches[-1].waiting:,} orders waited after the last batch; {watched.further} further "
        "batches without orders answered them.\n"
        f"Read in all batches: {ours / 1e6:,.0f} MB, by {watched.other} {others / 1e6:,.0f} MB "
        f"({watched.how_counted}). Each version was read once before, when it was staged. After the change "
        "both are read until no order waits for the old one.\n"
    )
    pictures = _pictures(watched, warehouse)
    console.print(pictures.charts[0].terminal(), highlight=False, markup=False, soft_wrap=True)
    say(f"\nPicture: {pictures.png(out / 'demo-warehouse.png')}")


def _moved_customer(results: pa.Table) -> Table:
    """Two orders before and two after the change, of the customer who moved and ordered most often."""
    moved = results.filter(_has_moved(results[ORDER_KEY]))
    customer = pc.mode(moved[ORDER_KEY])[0]["mode"]
    rows = moved.filter(pc.equal(moved[ORDER_KEY], customer)).sort_by("o_orderkey")
    shown = ("o_orderkey", "c_address", VERSION)
    table = Table(title=f"Some results: orders of customer {customer}, who moved", title_justify="left")
    for name in shown:
        table.add_column(name)
    for row in [*rows.slice(0, 2).to_pylist(), *rows.slice(max(len(rows) - 2, 2)).to_pylist()]:
        table.add_row(*(str(row[name]) for name in shown))
    return table


def _batches(watched: Watched, warehouse: Warehouse) -> Table:
    table = Table(
        title=f"Batch by batch, beside {watched.other}",
        title_justify="left",
        caption="table: the version of the customers; hits: orders answered from the cache at once",
        caption_justify="left",
    )
    names = (
        "batch",
        "table",
        "hits",
        "orders\nwaiting",
        "segment\nkB",
        "waiting\nkB",
        "cache\nkB",
        "read\nMB",
    )
    for name in (*names, "other\nMB"):
        table.add_column(name, justify="right")
    for number, (seen, other) in enumerate(zip(watched.batches, watched.other_bytes, strict=True)):
        held = (seen.segment_bytes, seen.waiting_bytes, seen.cache_bytes)
        table.add_row(
            str(number + 1),
            str(warehouse.version_at(number)),
            f"{seen.hit_percent:.0f} %",
            f"{seen.waiting:,}",
            *(f"{each / 1e3:,.0f}" for each in held),
            f"{seen.bytes_read / 1e6:.1f}",
            f"{other / 1e6:.1f}",
            end_section=number + 1 == warehouse.switch,
        )
    return table


def _pictures(watched: Watched, warehouse: Warehouse) -> Column:
    numbers, seen = list(range(1, len(watched.batches) + 1)), watched.batches
    held = {
        "the segment being read": [one.segment_bytes / 1e3 for one in seen],
        "orders that wait": [one.waiting_bytes / 1e3 for one in seen],
        "cached customers": [one.cache_bytes / 1e3 for one in seen],
    }
    read = {
        "this join": [one.bytes_read / 1e6 for one in seen],
        watched.other: [other / 1e6 for other in watched.other_bytes],
    }
    hits = {"hits": [one.hit_percent for one in seen]}
    return Column(
        (
            Chart("Orders answered from the cache, at once", "batch", "% of a batch", _over(numbers, hits)),
            Areas(
                f"Memory of the join, at most 1/{_MEMORY_SHARE} of the customers",
                "batch",
                "kB",
                _over(numbers, held),
                warehouse.memory_bytes / 1e3,
            ),
            Chart("Read of the customers' table", "batch", "MB in a batch", _over(numbers, read)),
        ),
        (warehouse.switch + 0.5, "customers change"),
    )


def _over(x: list[int], lines: dict[str, list[float]]) -> dict[str, tuple[list[int], list[float]]]:
    return {label: (x, y) for label, y in lines.items()}
