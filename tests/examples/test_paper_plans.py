"""The papers' query plans, whole, over the data that their figures show."""

from __future__ import annotations

import runpy
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import streamjoin as sj
from streamjoin.demo.spark_sources.registry import register
from streamjoin.sources.xml import convert
from tests.spark.streams import Collected, run, stream_of

EXAMPLES = Path(__file__).parents[2] / "examples" / "papers"
NEWS, AUCTION = (runpy.run_path(str(EXAMPLES / f"{name}.py")) for name in ("news", "auction"))
DATA = Counter(
    {("Smart Card", ip): 1 for ip in ("64.58.76.224", "207.68.172.234", "202.112.39.8")}
    | {("Schools", "10.0.0.2"): 1}
)


def news_plan() -> sj.Joined:
    """The plan of the example over schemas."""
    news = pa.schema({"sno": pa.int64(), "title": pa.string(), "keyword": pa.string()})
    access = pa.schema({"sno": pa.int64(), "ipaddr": pa.string(), "is_end": pa.bool_()})
    joined: sj.Joined = NEWS["plan"](news, access)
    return joined


def test_the_news_plan_forgets_an_item_when_its_punctuation_comes() -> None:
    local = news_plan().local()
    schema = pa.schema({"sno": pa.int64(), "title": pa.string(), "keyword": pa.string()})
    for element in convert([NEWS["NEWS"].encode()], record="info", schema=schema):
        local.push("news", element)
    found: Counter[tuple[Any, ...]] = Counter()
    said = []
    records = pa.schema({"sno": pa.int64(), "ipaddr": pa.string()})
    for element in convert([NEWS["ACCESS"].encode()], record="record", schema=records):
        if isinstance(element, sj.Punctuation):
            local.punctuate("access", sno=79)
            said += [one.text() for one in local.punctuations()]
            assert local.state().rows == {"news": 1, "access": 1}  # 80, and the record of 81
        else:
            rows = element.append_column("is_end", pa.array([False] * len(element)))
            found.update((row["keyword"], row["ipaddr"]) for row in local.push("access", rows).to_pylist())
    assert found == DATA
    assert said == ["<79>"]


@pytest.mark.spark
@pytest.mark.systems
def test_the_news_plan_on_spark_from_xml_to_xml(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    for name in ("NEWS", "ACCESS"):
        (tmp_path / f"{name}.xml").write_text(NEWS[name])
    elements = NEWS["query"](spark, str(tmp_path / "NEWS.xml"), str(tmp_path / "ACCESS.xml"))
    out = tmp_path / "out"
    writer = elements.writeStream.format("text").option("checkpointLocation", str(tmp_path / "state"))
    writer.trigger(availableNow=True).start(str(out)).awaitTermination()
    text = "".join(path.read_text() for path in sorted(out.glob("*.txt")))
    root = ET.fromstring(f"<stream>{text}</stream>")
    assert {one.tag for one in root} == {"data"}
    assert [child.tag for child in root[0]] == ["keyword", "ipaddr"]
    assert Counter(tuple((child.text or "").strip() for child in one) for one in root) == DATA


def test_the_auction_plan_counts_each_item_once_and_as_early_as_it_can() -> None:
    local = AUCTION["plan"](AUCTION["AUCTION"], AUCTION["BID"]).local()
    local.push("auction", AUCTION["auction_table"](AUCTION["AUCTIONS"]))
    found = []
    for bid in AUCTION["BIDS"]:
        rows = local.push("bid", AUCTION["bid_table"]([bid])).to_pylist()
        found.append((bid[3], [(row["item_id"], row["bids"]) for row in rows]))
    assert found == [
        ("18:27", []),
        ("18:30", []),
        ("18:57", []),
        (None, [(180, 2)]),  # the moment its punctuation has come
        ("21:59", []),
        ("22:01", [(182, 2)]),  # time is past 22:00, and the bid of 22:01 is outside
        ("22:31", []),  # 12 hours and a minute after the opening of 184
    ]
    assert not any(local.state().rows.values())


@pytest.mark.spark
@pytest.mark.systems
def test_the_auction_plan_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    auctions = [AUCTION["auction_table"](AUCTION["AUCTIONS"])]
    auctions += [auctions[0].slice(0, 0)] * len(AUCTION["BIDS"])
    bids = [AUCTION["bid_table"](AUCTION["BIDS"][:1]).slice(0, 0)]
    bids += [AUCTION["bid_table"]([bid]) for bid in AUCTION["BIDS"]]
    joined = AUCTION["plan"](
        stream_of(spark, tmp_path / "auction", auctions), stream_of(spark, tmp_path / "bid", bids)
    )
    found: Collected = run(joined, tmp_path / "state")
    assert found.bag() == {(180, 2): 1, (182, 2): 1}
