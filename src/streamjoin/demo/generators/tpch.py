"""Customers as master data and orders as the stream, of the TPC-H benchmark (section 4.1 of the SSBJ paper).

The tables are made by `tpchgen-cli`, a program of the package index: scale factor 1 has 150,000 customers and
1.5 million orders; the paper took factor 100. In TPC-H an order's customer is uniform, and a third of the
customers never order. With `skew` the customer of an order is drawn anew: from all customers by Zipf's law,
the most frequent ones anywhere. Worked number: skew 1, scale factor 1: the first has 8.0 % of the orders.

Text columns are plain strings, so that every reader of Parquet knows them. Cost: about a second to start the
generator, and 1 to 2 µs an order.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from streamjoin.demo.generators.zipf import ZipfStreams
from streamjoin.errors import BadInput, InvalidJoin

CUSTOMER_KEY, ORDER_KEY = "c_custkey", "o_custkey"
_CUSTOMERS = 150_000  # at scale factor 1
_PROGRAM = "tpchgen-cli"


@dataclass(frozen=True)
class TpchStreams:
    """Customers, orders and their lines; without `skew` the benchmark's own choice of customers."""

    scale: float = 0.1
    skew: float | None = None
    seed: int = 1  # of the choice of customers; the tables themselves are the benchmark's

    def __post_init__(self) -> None:
        if not 0.001 <= self.scale <= 1000:
            raise InvalidJoin(f"TPC-H got the scale factor {self.scale!r}; give one from 0.001 to 1000.")

    @property
    def customer_rows(self) -> int:
        return round(_CUSTOMERS * self.scale)

    @property
    def _choice(self) -> ZipfStreams:
        return ZipfStreams(seed=self.seed, rows=self.customer_rows, skew=self.skew or 0.0)

    def customers(self, batch_rows: int = 100_000) -> Iterator[pa.Table]:
        """The table customer, in parts."""
        yield from self._table("customer", batch_rows)

    def orders(self, batch_rows: int = 100_000) -> Iterator[pa.Table]:
        """The table orders, in parts."""
        first = 0
        for part in self._table("orders", batch_rows):
            place = part.schema.get_field_index(ORDER_KEY)
            if self.skew is None:
                yield part
            else:
                drawn = pa.array(self._choice.stream_keys(first, len(part)))
                yield part.set_column(place, part.schema.field(place), drawn)
            first += len(part)

    def lines(self, batch_rows: int = 100_000) -> Iterator[pa.Table]:
        """The table lineitem, in parts: four lines of an order on average, one after the other."""
        yield from self._table("lineitem", batch_rows)

    def _table(self, name: str, batch_rows: int) -> Iterator[pa.Table]:
        with tempfile.TemporaryDirectory(prefix="streamjoin-tpch-") as folder:
            command = [_program(), "parquet", "--scale-factor", f"{self.scale:g}", "--tables", name]
            command += ["--output-dir", folder, "--quiet"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
            if done.returncode:
                raise BadInput(f"{_PROGRAM} failed: {done.stderr.strip()[-500:]}; see what it says")
            with pq.ParquetFile(Path(folder) / f"{name}.parquet") as file:
                for batch in file.iter_batches(batch_rows):
                    yield _plain(pa.Table.from_batches([batch]))


def _plain(table: pa.Table) -> pa.Table:
    """Strings instead of views of strings, nullable, without the numbers of fields."""
    fields = [
        pa.field(field.name, pa.string() if field.type == pa.string_view() else field.type)
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))


def _program() -> str:
    """Where the generator is: beside this Python, or on PATH."""
    beside = Path(sys.executable).with_name(_PROGRAM)
    found = str(beside) if beside.exists() else shutil.which(_PROGRAM)
    if found is None:
        raise InvalidJoin(
            f"TPC-H data is made by {_PROGRAM}, which is not installed; pip install 'streamjoin[demo]'"
        )
    return found
