"""The queries under examples/nexmark as streams on Spark: q3, q8 and q20 over the shared cases, in files cut
at random, the others over generated events, against the same query in SQL over the whole tables.
"""

import itertools
import runpy
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lab.peers.nexmark_data import Pieces
from tests.examples.test_nexmark_cases import TYPES, WHEN, read, table
from tests.spark.streams import stream_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]
EXAMPLES = Path(__file__).parents[2] / "examples" / "nexmark"
IN_TIME = (
    "b.auction = a.id AND b.date_time BETWEEN a.date_time AND a.expires AND NOT a.is_end AND NOT b.is_end"
)
SQL = {
    "q4": f"SELECT a.id, category, max(price) FROM auction a JOIN bid b ON {IN_TIME} GROUP BY a.id, category",
    "q7": """SELECT auction, bid.price, bidder, date_time, extra FROM bid JOIN (
        SELECT window(date_time, '10 seconds') AS w, max(price) AS price FROM bid WHERE NOT is_end GROUP BY w
        ) top ON bid.price = top.price AND date_time >= w.start AND date_time < w.end""",
    "q9": f"""SELECT id, seller, category, bidder, price, at FROM (
        SELECT a.*, bidder, price, b.date_time AS at,
        row_number() OVER (PARTITION BY a.id ORDER BY price DESC, b.date_time, bidder DESC) AS place
        FROM auction a JOIN bid b ON {IN_TIME}) WHERE place = 1""",
    "q13": "SELECT auction, bidder, price, date_time, value FROM bid JOIN side ON auction % 10000 = key "
    "WHERE NOT is_end",
    "q23": """SELECT p.id, name, city, state, a.id, item_name, category, auction, price, channel, b.date_time
        FROM person p JOIN auction a ON a.seller = p.id JOIN bid b ON b.bidder = p.id
        WHERE NOT a.is_end AND NOT b.is_end""",
}  # fmt: skip


def query(name: str) -> Any:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))["query"]


def bag(rows: DataFrame, checkpoint: str | None = None) -> Counter[tuple[Any, ...]]:
    """What a query gives until its files are read."""
    found: list[Any] = []
    writer = rows.writeStream.foreachBatch(lambda frame, _: found.extend(frame.collect()))
    if checkpoint is not None:
        writer = writer.option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    return Counter(map(tuple, found))


def cut(rows: pa.Table, rng: Random) -> list[pa.Table]:
    places = [0, *sorted(rng.randint(0, len(rows)) for _ in range(2)), len(rows)]
    return [rows.slice(a, b - a) for a, b in itertools.pairwise(places)]


@pytest.fixture(scope="module")
def case(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, DataFrame]:
    """The shared tables in files cut at random, nothing marked."""
    frames = {}
    for name in TYPES:
        rows = table(name).append_column("is_end", pa.array([False] * len(table(name))))
        frames[name] = stream_of(spark, tmp_path_factory.mktemp(name), cut(rows, Random(name)))
    return frames


@pytest.mark.filterwarnings("ignore::streamjoin.UnboundedState")
def test_shared_cases(case: dict[str, DataFrame]) -> None:
    person, auction, bid = (case[name] for name in ("person", "auction", "bid"))
    found = {
        "q3": bag(query("q3")(person.drop("is_end"), auction)),
        "q8": bag(query("q8")(person.drop("is_end"), auction, lateness="1 minute")),
    }
    bids = {**TYPES["bid"], **TYPES["auction"], "bid_date_time": WHEN, "auction_date_time": WHEN}
    types = {"q3": {"id": pa.int64()}, "q8": {"id": pa.int64(), "starttime": WHEN}, "q20": bids}
    expected = {name: read(f"{name}.expected", types[name]) for name in types}
    found["q20"] = bag(query("q20")(auction, bid).select(*expected["q20"].column_names))
    for name, rows in expected.items():
        assert found[name] == Counter(zip(*(c.to_pylist() for c in rows.columns), strict=True)), name
        assert len(rows) > 0


@pytest.fixture(scope="module")
def generated(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, DataFrame]:
    """The tables of 20,000 events in 20 s as streams, and whole as views of the same names."""
    pieces = [*Pieces(20_000, per_piece=7_000, rate=1_000)]
    frames = {}
    for name in ("person", "auction", "bid"):
        folder = tmp_path_factory.mktemp(name)
        frames[name] = stream_of(spark, folder, [_timed(piece[name]) for piece in pieces])
        spark.read.parquet(str(folder)).createOrReplaceTempView(name)
    frames["side"] = spark.range(9_000).select(F.col("id").alias("key"), F.hex("id").alias("value"))
    frames["side"].createOrReplaceTempView("side")
    return frames


def _timed(rows: pa.Table) -> pa.Table:
    """Milliseconds as times again."""
    for name in {"date_time", "expires"} & {*rows.column_names}:
        times = rows[name].cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
        rows = rows.set_column(rows.column_names.index(name), name, times)
    return rows


@pytest.mark.parametrize("name", SQL)
def test_generated_events(name: str, generated: Any, spark: SparkSession, tmp_path: Path) -> None:
    person, auction, bid, side = generated.values()
    checkpoint = str(tmp_path)
    inputs: dict[str, Sequence[Any]] = {
        "q4": (auction, bid),
        "q7": (bid,),
        "q9": (auction, bid),
        "q13": (bid, side, checkpoint),
        "q23": (person.drop("is_end"), auction, bid),
    }
    wanted = Counter(map(tuple, spark.sql(SQL[name]).collect()))
    assert wanted
    assert bag(query(name)(*inputs[name]), checkpoint) == wanted
