"""TPC-H as a work for all engines: orders and lines as streams, customers as a table.

Orders come in a random order (seeded), and the lines of each come together in that same order. So a key's
lines are clustered and nothing is sorted. Lines are cut into as many files as orders, by number, so the
lines of an order may be in the file before its own or in the next. Prices are whole cents.

Worked number: scale factor 0.3 has 450,000 orders, about 1.8 million lines, 45,000 customers. Cost: 4 s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lab.contenders.protocol import Check, Work, write_input
from streamjoin.columnar.batch import Ints
from streamjoin.columnar.match import expand
from streamjoin.demo.generators.tpch import TpchStreams

ORDERS = ("o_orderkey", "o_custkey", "o_totalprice", "o_orderpriority")
LINES = ("l_orderkey", "l_linenumber", "l_partkey", "l_extendedprice", "l_shipmode")
CUSTOMERS = ("c_custkey", "c_name", "c_nationkey", "c_mktsegment")
CHECK = Check(
    ("o_totalprice", "l_extendedprice", "l_linenumber", "l_partkey", "c_nationkey"),
    "o_orderkey",
    ("c_mktsegment",),
)


@dataclass(frozen=True)
class TpchSize:
    """How much there is."""

    scale: float = 0.3
    batches: int = 6
    seed: int = 8


def prepare(folder: Path, load: TpchSize) -> Work:
    """Write the files, and join once in memory."""
    streams = TpchStreams(load.scale)
    orders = _plain(streams.orders(), ORDERS)
    orders = orders.take(pa.array(np.random.default_rng(load.seed).permutation(len(orders))))
    lines = _of_orders(_plain(streams.lines(), LINES), orders["o_orderkey"].to_numpy())
    customers = _plain(streams.customers(), CUSTOMERS)
    place = np.arange(len(lines))
    streamed = lines.append_column("part", pa.array(place * 0)).append_column("place", pa.array(place))
    inputs, rows = {}, 0
    for name, table, parts in (
        ("orders", orders, load.batches),
        ("lines", streamed, load.batches),
        ("customers", customers, 1),
    ):
        inputs[name], count = write_input(folder, name, _cut(table, parts))
        rows += count if parts > 1 else 0
    answer = CHECK.answer(orders.join(lines, "o_orderkey", "l_orderkey", "inner").join(
        customers, "o_custkey", "c_custkey", "inner"
    ))  # fmt: skip
    return Work("tpch", "orders with their lines and customers", folder, inputs, rows, answer)


def _plain(parts: Iterable[pa.Table], columns: Sequence[str]) -> pa.Table:
    """Some columns, prices as whole cents."""
    table = pa.concat_tables(parts).select(columns).combine_chunks()
    for i, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type):
            table = table.set_column(i, field.name, pc.multiply(table[i], 100).cast(pa.int64()))
        elif pa.types.is_integer(field.type):
            table = table.set_column(i, field.name, table[i].cast(pa.int64()))
    return table


def _of_orders(lines: pa.Table, orders: Ints) -> pa.Table:
    """The lines, those of each order together, in the order of the orders."""
    keys: Ints = lines["l_orderkey"].to_numpy()  # sorted: so TPC-H is made
    first = np.searchsorted(keys, orders, side="left")
    _, place = expand(first, np.searchsorted(keys, orders, side="right") - first)
    return lines.take(pa.array(place))


def _cut(table: pa.Table, parts: int) -> list[pa.Table]:
    size = -(-len(table) // parts)
    return [table.slice(first, size) for first in range(0, len(table), size)]
