"""TPC-H and weather data in the shape of the semi-stream experiment: k, m, pad and k, id, x.

Of TPC-H customers are master data and orders the stream, at the paper's widths: 223 and 138 bytes, of which
16 are the two numbers; the rest are the table's own columns as text, cut or filled up. Orders begin again
after the last one, with other numbers. Cost: a second or two for each table of scale factor 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lab.generators.weather import WeatherStreams
from lab.papers.ssbj_tables import TableAndStream
from streamjoin.demo.generators.tpch import CUSTOMER_KEY, ORDER_KEY, TpchStreams
from streamjoin.demo.generators.zipf import TABLE_SCHEMA, ZipfStreams

SEED = 5
CUSTOMER_BYTES, ORDER_BYTES = 223, 138
_ORDERS = 400_000  # of the table, at most
_STREAM_SCHEMA = pa.schema({"k": pa.int64(), "id": pa.int64(), "x": pa.binary()})


@dataclass(frozen=True)
class TpchRows:
    """Customers and orders by number; with `skew` the customer of an order is drawn by Zipf's law."""

    rows: int  # customers
    skew: float | None = None

    stream_schema = _STREAM_SCHEMA

    @property
    def _source(self) -> TpchStreams:
        return TpchStreams(scale=self.rows / 150_000, skew=self.skew, seed=SEED)

    @cached_property
    def _customers(self) -> pa.Table:
        table = pa.concat_tables(self._source.customers()).combine_chunks()
        texts = ["c_address", "c_name", "c_nationkey", "c_phone", "c_acctbal", "c_mktsegment", "c_comment"]
        pad = _bytes(table, texts, CUSTOMER_BYTES - 16)
        columns = [table[CUSTOMER_KEY].cast(pa.int64()), pa.array(np.arange(len(table))), pad]
        return pa.Table.from_arrays(columns, schema=TABLE_SCHEMA)

    @cached_property
    def _orders(self) -> pa.Table:
        parts: list[pa.Table] = []
        for part in self._source.orders():
            texts = ["o_orderkey", "o_orderstatus", "o_totalprice", "o_orderdate", "o_clerk", "o_comment"]
            x = _bytes(part, texts, ORDER_BYTES - 16)
            parts.append(pa.table({"k": part[ORDER_KEY].cast(pa.int64()), "x": x}))
            if sum(map(len, parts)) >= _ORDERS:
                break
        return pa.concat_tables(parts).combine_chunks()

    def table_rows(self, first: int, count: int) -> pa.Table:
        """Some customers."""
        return self._customers.slice(first, count)

    def table(self) -> Iterator[pa.Table]:
        """All customers."""
        yield self._customers

    def tuples(self, first: int, count: int) -> pa.Table:
        """Some orders."""
        numbers = np.arange(first, first + count)
        chosen = self._orders.take(pa.array(numbers % len(self._orders)))
        return pa.Table.from_arrays([chosen["k"], pa.array(numbers), chosen["x"]], schema=_STREAM_SCHEMA)


def _bytes(table: pa.Table, names: list[str], width: int) -> pa.Array:
    """Columns as one text of a fixed width."""
    texts = pc.binary_join_element_wise(*(table[name].cast(pa.string()) for name in names), "|")
    cut = pc.utf8_slice_codeunits(pc.utf8_rpad(texts, width), 0, width)
    return cut.cast(pa.binary()).combine_chunks()


@cache
def tpch(rows: int, skew: float | None) -> TpchRows:
    """Made once in a process."""
    return TpchRows(rows, skew)


def streams(data: str, rows: int, skew: float) -> TableAndStream:
    """The data of a figure: zipf, tpch (its own orders), tpch-zipf or weather."""
    if data == "weather":
        return WeatherStreams(seed=SEED, rows=rows)
    if data.startswith("tpch"):
        return tpch(rows, skew if data == "tpch-zipf" else None)
    return ZipfStreams(seed=SEED, rows=rows, skew=skew)
