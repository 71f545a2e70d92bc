"""TPC-H: orders with their lines as two streams, and customers from a table.

    python examples/tpch/orders_lines_customers.py

Orders and lines are joined by the order's number. An order comes once (`unique`), and an order's lines come
together (`clustered`), one after the other within a partition, as `sequence` says: so an order is purged
when the lines of the next begin, and a line that finds its order is not stored. No event time is needed.
Spark's own join stores every order and every line for good. Customers are a table: staged once, looked up
through a cache within `memory`.
"""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

import streamjoin as sj
from streamjoin.demo.generators.tpch import TpchStreams


def query(orders: DataFrame, lines: DataFrame, customers: DataFrame, checkpoint: str) -> DataFrame:
    """`lines` have a partition and a position in it; `checkpoint` is that of the query started with it."""
    known = sj.enrich(
        sj.stream(orders, name="orders", key="o_custkey"),
        sj.table(customers, name="customers", key="c_custkey", memory="64 MB"),
        name="customers_of_orders",
    )
    joined = sj.join(
        sj.stream(known.dataframe(checkpoint=checkpoint), name="orders", key="o_orderkey", unique=True),
        sj.stream(
            lines,
            name="lines",
            key="l_orderkey",
            arrival=sj.clustered(),
            sequence=["part", "place"],
        ),
        name="tpch",
    )
    return joined.dataframe()


def write(folder: Path) -> None:
    """Ten files of orders and of lines, and the customers; scale factor 0.01: 15,000 orders."""
    streams = TpchStreams(scale=0.01)
    tables = {"orders": streams.orders(), "lines": streams.lines(), "customers": streams.customers()}
    for name, parts in tables.items():
        table = pa.concat_tables(parts).combine_chunks()
        if name == "lines":
            places = np.arange(len(table))
            table = table.append_column("part", pa.array(np.zeros(len(table), np.int64)))
            table = table.append_column("place", pa.array(places))
        (folder / name).mkdir()
        size = -(-len(table) // (1 if name == "customers" else 10))
        for number, first in enumerate(range(0, len(table), size)):
            pq.write_table(table.slice(first, size), folder / name / f"{number:03}.parquet")


def main() -> None:
    spark = sj.session(log="out/spark.log")
    with tempfile.TemporaryDirectory() as folder:
        home, checkpoint = Path(folder), f"{folder}/checkpoint"
        write(home)

        def streamed(name: str) -> DataFrame:
            path = str(home / name)
            reader = spark.readStream.schema(spark.read.parquet(path).schema)
            return reader.option("maxFilesPerTrigger", 1).parquet(path)

        rows = query(
            streamed("orders"), streamed("lines"), spark.read.parquet(str(home / "customers")), checkpoint
        )
        shown = rows.select("o_orderkey", "c_name", "l_linenumber", "l_quantity", "l_shipdate")
        writer = shown.writeStream.format("console").option("checkpointLocation", checkpoint)
        running = writer.trigger(availableNow=True).start()
        running.awaitTermination()
        for batch in running.recentProgress:
            figures = sj.progress(batch)["tpch"]
            print(f"{batch.numInputRows:,} rows read, {figures['state_rows']} tuples stored")


if __name__ == "__main__":
    main()
