"""A warehouse: each order gets its customer, from a table of which memory holds a tenth.

Orders come as a stream, customers are a table (TPC-H; an order's customer is drawn by Zipf's law, so some
order far more often). Frequent customers come into the cache; every other order waits until the segment of
the table with its customer is read, at most a few batches. In the middle a tenth of the customers move:
orders that came before get the old address, those after it the new one, and the cache begins again.

Worked number: 150,000 customers are 27 MB, and 5 batches may pass until an order is answered; so a batch
reads 1/5 of the table, 6 MB, however many orders it has. Spark's own stream-static join reads all 27 MB.

Customers are written as plain Parquet, neither compressed nor encoded, so that bytes mean the same for both.

On Spark a micro-batch is one file of orders. The new customers come in while our query runs: the sink of the
last batch before the change brings them in and calls `refresh`, so the next batch uses them. Spark's own
stream-static join keeps the table it began with; so it is stopped after that batch and started with the new
one. What it reads is `inputBytes` of the stages of each batch. Spark does not count what Parquet's vectored
reading gets in threads of its own, so that is turned off for the customers, and only for them: of the orders
only footers count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.table import Table

from streamjoin.api.enrich import Enriched, enrich, table
from streamjoin.api.join import stream
from streamjoin.demo.generators.tpch import CUSTOMER_KEY, ORDER_KEY, TpchStreams
from streamjoin.demo.generators.warehouse import (
    BATCHES,
    MEMORY_SHARE,
    MOVED,
    ORDERED,
    VERSION,
    Warehouse,
    has_moved,
    joined_at_once,
    numbered,
)
from streamjoin.demo.runner import Tick, check_rows, read_files, start, text_table
from streamjoin.plan.figures import joins
from streamjoin.plot import Areas, Chart, Column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NAME = "warehouse"


def warehouse_join(warehouse: Warehouse, orders: Any = None, *, cycle_batches: int) -> Enriched:
    """Orders with their customers; `orders` is a DataFrame, or nothing for a run in this process."""
    return enrich(
        stream(
            warehouse.orders[0].schema if orders is None else orders,
            name="orders",
            key=ORDER_KEY,
            columns=ORDERED,
        ),
        table(
            str(warehouse.table),
            name="customers",
            key=CUSTOMER_KEY,
            memory=warehouse.memory_bytes,
            cycle_batches=cycle_batches,
            columns=[*(n for n in warehouse.customers[0].column_names if n != CUSTOMER_KEY), "_version"],
        ),
        name=NAME,
    )


# What is observed


@dataclass(frozen=True)
class EnrichedBatch:
    """One batch: its orders, those answered from the cache at once, what was read, and the state."""

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
class ObservedEnrichment:
    """What was seen of this library's join, and of the other one."""

    results: list[pa.Table] = field(default_factory=list)
    seen: list[EnrichedBatch] = field(default_factory=list)
    other: str = "a join with the whole table"
    other_results: list[pa.Table] = field(default_factory=list)
    other_bytes: list[int] = field(default_factory=list)
    how_counted: str = "the table's bytes"

    @property
    def batches(self) -> list[EnrichedBatch]:
        """Those that brought orders."""
        return [one for one in self.seen if one.orders]

    @property
    def further(self) -> int:
        """Batches without orders, which answered those that waited at the end."""
        return len(self.seen) - len(self.batches)


def run_local(warehouse: Warehouse, cycle_batches: int, tick: Tick) -> ObservedEnrichment:
    """Both in this process; the other one joins each batch with the whole table, in memory."""
    observed = ObservedEnrichment()
    run = warehouse_join(warehouse, cycle_batches=cycle_batches).local()
    before = run.counters()

    def note(found: pa.Table, orders: int) -> None:
        nonlocal before
        counted, held = run.counters(), run.state()["customers"]
        observed.results.append(found)
        observed.seen.append(
            EnrichedBatch(
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
            observed.results.append(run.refresh())  # reads on as a batch does
        note(run.push("orders", orders), len(orders))
        customers = warehouse.customers[version - 1]
        observed.other_results.append(numbered(joined_at_once(orders, customers), version))
        observed.other_bytes.append(customers.nbytes)
        tick(2 * number + 2)
    while run.waiting:
        note(run.tick(), 0)
    return observed


def run_ours(
    spark: SparkSession, warehouse: Warehouse, cycle_batches: int, observed: ObservedEnrichment, tick: Tick
) -> None:
    """One query over all orders, until none waits."""
    joined = warehouse_join(warehouse, _orders(spark, warehouse, "*"), cycle_batches=cycle_batches)
    checkpoint = warehouse.folder / "ours"
    queries: list[StreamingQuery] = []

    def sink(frame: DataFrame, batch: int) -> None:
        observed.results.append(frame.toArrow())
        tick(min(batch + 1, len(warehouse.orders)))
        if batch + 1 == warehouse.switch:
            warehouse.bring_in(2)
            joined.refresh(checkpoint=str(checkpoint))

    def begin(frame: DataFrame) -> StreamingQuery:
        queries.append(start(frame, sink, checkpoint))
        return queries[-1]

    joined.run_until_done(begin, checkpoint=str(checkpoint))
    seen = [_enriched_batch(progress) for query in queries for progress in query.recentProgress]
    observed.seen = [one for one in seen if one is not None]


def run_sparks_own(
    spark: SparkSession, warehouse: Warehouse, observed: ObservedEnrichment, tick: Tick
) -> None:
    """Spark's join, a query for each version of the customers."""
    from pyspark.sql import functions as F

    def sink(frame: DataFrame, _: int) -> None:
        observed.other_results.append(frame.toArrow())
        tick(len(observed.other_results))

    for version in (1, 2):
        counted = spark.read.option("parquet.hadoop.vectored.io.enabled", "false")
        customers = counted.parquet(str(warehouse.customers_of(version)))
        orders = _orders(spark, warehouse, str(version))
        joined = orders.join(customers, orders[ORDER_KEY] == customers[CUSTOMER_KEY]).drop(CUSTOMER_KEY)
        versioned = joined.withColumn(VERSION, F.lit(version).cast("long"))
        query = start(versioned, sink, warehouse.folder / f"own-{version}")
        query.awaitTermination()
        observed.other_bytes += _input_bytes(spark, query)


def _orders(spark: SparkSession, warehouse: Warehouse, versions: str) -> DataFrame:
    return read_files(spark, warehouse.orders[0].schema, warehouse.folder / "orders" / versions)


def _enriched_batch(progress: Any) -> EnrichedBatch | None:
    """What our join reports of a batch."""
    found = joins(progress).get(NAME)
    if found is None:
        return None
    return EnrichedBatch(
        found["orders_rows"],
        found["hits"],
        found["bytes_read"],
        found["waiting"],
        found["segment_bytes"],
        found["cache_bytes"],
        found["waiting_bytes"] + found["switching_bytes"],
    )


def _input_bytes(spark: SparkSession, query: StreamingQuery) -> list[int]:
    """Bytes that the stages of each batch of a query read from files, by Spark's own status store."""
    context = spark.sparkContext._jsc.sc()  # noqa: SLF001  # has no other way in from Python
    context.listenerBus().waitUntilEmpty()
    store = context.statusStore()
    jobs = store.jobsList(None)
    found: dict[int, int] = {}
    for job in (jobs.apply(i) for i in range(jobs.size())):
        says = job.description().get() if job.description().isDefined() else ""
        batch = re.search(rf"runId = {query.runId}.*batch = (\d+)", says, re.DOTALL)
        if batch is None:
            continue
        stages = job.stageIds()
        read = sum(store.lastStageAttempt(stages.apply(i)).inputBytes() for i in range(stages.size()))
        found[int(batch[1])] = found.get(int(batch[1]), 0) + int(read)
    return [found[batch] for batch in sorted(found)]


def check_answers(observed: ObservedEnrichment, expected: pa.Table) -> None:
    """Both gave exactly the rows of the batch join, each order with the customers of its time."""
    ours = pa.concat_tables(observed.results)
    place = ours.schema.get_field_index(VERSION)
    ordinal = pc.cast(pc.utf8_slice_codeunits(ours[VERSION], 0, 4), pa.int64())
    ours = ours.set_column(place, VERSION, ordinal)
    for who, found in ((NAME, ours), (observed.other, pa.concat_tables(observed.other_results))):
        check_rows(who, found, expected, ["o_orderkey"])


@dataclass
class WarehouseDemo:
    """The demo: batches of `batch_rows` orders, each order answered within `cycle_batches`."""

    streams: TpchStreams
    batch_rows: int
    cycle_batches: int
    name: str = NAME
    unit: str = "batches"
    warehouse: Warehouse = field(init=False)

    def introduction(self) -> Iterator[str]:
        yield "[bold]Who ordered, and where do they live?[/] orders ⋈ customers"
        yield (
            f"Orders come in {BATCHES} batches of {self.batch_rows:,}. {self.streams.customer_rows:,} "
            f"customers are a table, and the join may take 1/{MEMORY_SHARE} of its bytes as memory. The "
            f"tables are TPC-H's; an order's customer is drawn by Zipf's law (exponent "
            f"{self.streams.skew:g}): some order far more often. "
            f"After batch {BATCHES // 2} one customer in {MOVED} moves: that is a "
            "new version of the table."
        )

    def prepare(self, folder: Path) -> None:
        self.warehouse = Warehouse.stocked(self.streams, folder, self.batch_rows)

    def explain(self) -> str:
        return warehouse_join(self.warehouse, cycle_batches=self.cycle_batches).explain()

    def steps(self) -> int:
        return 2 * BATCHES

    def run_local(self, tick: Tick) -> ObservedEnrichment:
        return run_local(self.warehouse, self.cycle_batches, tick)

    def run_spark(self, spark: SparkSession, tick: Tick) -> ObservedEnrichment:
        """Both queries, one after the other, on one session."""
        how = "inputBytes of its stages, the table is plain Parquet; it was started anew for the new version"
        observed = ObservedEnrichment(other="Spark's own join", how_counted=how)
        run_ours(spark, self.warehouse, self.cycle_batches, observed, tick)
        run_sparks_own(spark, self.warehouse, observed, lambda done: tick(BATCHES + done))
        return observed

    def check(self, observed: ObservedEnrichment) -> None:
        check_answers(observed, self.warehouse.batch_join())

    def report(self, observed: ObservedEnrichment) -> Iterator[str | Table]:
        results = pa.concat_tables(observed.results)
        yield _moved_customer(results)
        yield _batches(observed, self.warehouse)
        ours, others = sum(one.bytes_read for one in observed.seen), sum(observed.other_bytes)
        yield (
            f"{len(results):,} orders with their customers: this join and {observed.other} both give exactly "
            "the rows of the batch join, each order with the customers of its time.\n"
            f"{observed.batches[-1].waiting:,} orders waited after the last batch; {observed.further} "
            "further batches without orders answered them.\n"
            f"Read in all batches: {ours / 1e6:,.0f} MB, by {observed.other} {others / 1e6:,.0f} MB "
            f"({observed.how_counted}). Each version was read once before, when it was staged. After the "
            "change both are read until no order waits for the old one."
        )

    def picture(self, observed: ObservedEnrichment) -> Column:
        return _pictures(observed, self.warehouse)


# What is reported


def _moved_customer(results: pa.Table) -> Table:
    """Two orders before and two after the change, of the customer who moved and ordered most often."""
    moved = results.filter(has_moved(results[ORDER_KEY]))
    customer = pc.mode(moved[ORDER_KEY])[0]["mode"]
    rows = moved.filter(pc.equal(moved[ORDER_KEY], customer)).sort_by("o_orderkey")
    shown = ("o_orderkey", "c_address", VERSION)
    some = [*rows.slice(0, 2).to_pylist(), *rows.slice(max(len(rows) - 2, 2)).to_pylist()]
    title = f"Some results: orders of customer {customer}, who moved"
    return text_table(
        title, dict.fromkeys(shown, "left"), ([str(row[name]) for name in shown] for row in some)
    )


def _batches(observed: ObservedEnrichment, warehouse: Warehouse) -> Table:
    made = Table(
        title=f"Batch by batch, beside {observed.other}",
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
        made.add_column(name, justify="right")
    for number, (seen, other) in enumerate(zip(observed.batches, observed.other_bytes, strict=True)):
        held = (seen.segment_bytes, seen.waiting_bytes, seen.cache_bytes)
        made.add_row(
            str(number + 1),
            str(warehouse.version_at(number)),
            f"{seen.hit_percent:.0f} %",
            f"{seen.waiting:,}",
            *(f"{each / 1e3:,.0f}" for each in held),
            f"{seen.bytes_read / 1e6:.1f}",
            f"{other / 1e6:.1f}",
            end_section=number + 1 == warehouse.switch,
        )
    return made


def _pictures(observed: ObservedEnrichment, warehouse: Warehouse) -> Column:
    numbers, seen = list(range(1, len(observed.batches) + 1)), observed.batches
    held = {
        "the segment being read": [one.segment_bytes / 1e3 for one in seen],
        "orders that wait": [one.waiting_bytes / 1e3 for one in seen],
        "cached customers": [one.cache_bytes / 1e3 for one in seen],
    }
    read = {
        "this join": [one.bytes_read / 1e6 for one in seen],
        observed.other: [other / 1e6 for other in observed.other_bytes],
    }
    hits = {"hits": [one.hit_percent for one in seen]}
    return Column(
        (
            Chart("Orders answered from the cache, at once", "batch", "% of a batch", _over(numbers, hits)),
            Areas(
                f"Memory of the join, at most 1/{MEMORY_SHARE} of the customers",
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
