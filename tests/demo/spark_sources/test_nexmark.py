"""NEXMark as a Spark source: the generator's rows, once each, whatever the batches; at a rate when live.

As in test_sources.py most tests drive a reader by hand, with a new reader for every batch.
"""

import json
import pickle
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.pandas.types import from_arrow_schema

from streamjoin.demo.generators.nexmark import Nexmark, nexmark_schema
from streamjoin.demo.spark_sources.registry import NexmarkSource, register
from streamjoin.errors import InvalidJoin
from streamjoin.spark.versions import ReadAllAvailable
from tests.spark.versions import _read_as_from_4_2, needs_read_limits  # noqa: F401 - a fixture

STREAMS = Nexmark(seed=3, events=12_345, rate=5_000)
OPTIONS = {"seed": 3, "events": 12_345, "rate": 5_000}


def source(**options: Any) -> NexmarkSource:
    return NexmarkSource(CaseInsensitiveDict({name: str(value) for name, value in options.items()}))


def reader(table: str = "bid", punctuations: bool = False, **options: Any) -> Any:
    schema = from_arrow_schema(nexmark_schema(table, punctuations=punctuations))
    return source(table=table, punctuations=punctuations, **options).streamReader(schema)


def batches(*args: Any, **options: Any) -> Iterator[tuple[Any, pa.Table]]:
    """Micro-batches until nothing is new, each with its end; every one is a restart."""
    offset = reader(*args, **options).initialOffset()
    while True:
        planner, reading = reader(*args, **options), reader(*args, **options)
        end = json.loads(json.dumps(planner.latestOffset(offset, planner.getDefaultReadLimit())))
        if end == offset:
            return
        parts = pickle.loads(pickle.dumps(list(reading.partitions(offset, end))))
        yield end, pa.Table.from_batches([batch for part in parts for batch in reading.read(part)])
        offset = end


@pytest.mark.usefixtures("_read_as_from_4_2")
@pytest.mark.parametrize(
    ("table", "punctuations"), [("person", False), ("auction", True), ("bid", False), ("bid", True)]
)
@pytest.mark.parametrize(("events_per_batch", "partitions"), [(777, 1), (5_000, 3), (100_000, 2)])
def test_any_batches_are_the_whole_stream(table, punctuations, events_per_batch, partitions):
    split = {"events_per_batch": events_per_batch, "partitions": partitions}
    found = list(batches(table, punctuations, **OPTIONS, **split))
    whole = STREAMS.between(table, 0, 12_345, punctuations=punctuations)
    assert pa.concat_tables(rows for _, rows in found).combine_chunks().equals(whole.combine_chunks())
    assert [end["event"] for end, _ in found] == [*range(events_per_batch, 12_345, events_per_batch), 12_345]


@pytest.mark.usefixtures("_read_as_from_4_2")
def test_a_batch_read_has_the_rows_of_the_streaming_read():
    schema = from_arrow_schema(nexmark_schema("bid", punctuations=True))
    whole = source(table="bid", punctuations="TRUE", partitions=4, **OPTIONS).reader(schema)
    parts = whole.partitions()
    assert [(part.start, part.end) for part in parts][1:3] == [(3_087, 6_174), (6_174, 9_261)]
    found = pa.Table.from_batches([batch for part in parts for batch in whole.read(part)])
    streamed = pa.concat_tables(rows for _, rows in batches("bid", True, **OPTIONS, events_per_batch=999))
    assert found.combine_chunks().equals(streamed.combine_chunks())


@pytest.mark.usefixtures("_read_as_from_4_2")
def test_available_now_takes_one_batch_of_a_stream_that_never_ends():
    for options, size in (({}, 50_000), ({"events_per_batch": 30}, 30), ({"live": "true", "rate": 70}, 70)):
        endless = reader(seed=3, **options)
        endless.prepareForTriggerAvailableNow()
        start = endless.initialOffset() | {"event": 500}
        end = endless.latestOffset(start, endless.getDefaultReadLimit())
        assert end["event"] == 500 + size
        assert endless.latestOffset(end, endless.getDefaultReadLimit()) == end
    assert reader(seed=3).latestOffset(reader(seed=3).initialOffset(), ReadAllAvailable())["event"] == 50_000


@pytest.mark.usefixtures("_read_as_from_4_2")
@pytest.mark.parametrize("limit", [None, 600])
def test_live_events_become_due_by_the_clock_since_the_query_began(monkeypatch, limit):
    now = [1_000.0]
    monkeypatch.setattr("streamjoin.demo.spark_sources.generated.monotonic", lambda: now[0])
    live = {"live": "true", "seed": 3, "rate": 400, "events": 10_000} | (
        {} if limit is None else {"events_per_batch": limit}
    )

    def run(start: int, *seconds: float) -> list[int]:
        query = reader(**live)
        offset, places = query.initialOffset() | {"event": start}, []
        for step in seconds:
            now[0] += step
            offset = query.latestOffset(offset, query.getDefaultReadLimit())
            places.append(offset["event"])
        return places

    assert run(0, 5, 0.5, 0, 1, 0.001) == [0, 200, 200, 600, 600]
    assert run(600, 7, 2, 0) == ([600, 1_400, 1_400] if limit is None else [600, 1_200, 1_400])  # a restart
    assert run(9_900, 0, 3, 3) == [9_900, 10_000, 10_000]


@pytest.mark.usefixtures("_read_as_from_4_2")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "needs the option 'table'. Give 'person', 'auction' or 'bid'"),
        ({"table": "bid"}, "needs the option 'seed'. Give a whole number"),
        ({"table": "seller", "seed": 1}, "got table='seller'. Give 'person', 'auction' or 'bid'"),
        ({"table": "bid", "seed": "x"}, "got seed='x'. Give a whole number"),
        ({"table": "bid", "seed": 1, "rate": 0}, "Nexmark got rate=0"),
        ({"table": "bid", "seed": 1, "live": "yes"}, "got live='yes'. Give 'true' or 'false'"),
        ({"table": "bid", "seed": 1, "punctuations": ""}, "got punctuations=''. Give 'true' or 'false'"),
        ({"table": "person", "seed": 1, "punctuations": "true"}, "'person' has no punctuations"),
        ({"table": "bid", "seed": 1, "events_per_batch": 0}, "got events_per_batch='0'. .* 1 or more"),
        ({"table": "bid", "seed": 1, "event": 5}, "has no option 'event'. Give table: .*; events: how many"),
    ],
)
def test_wrong_options_are_refused(options, says):
    with pytest.raises(InvalidJoin, match=says):
        source(**options).schema()


@pytest.mark.usefixtures("_read_as_from_4_2")
def test_a_checkpoint_of_another_stream_a_schema_and_a_batch_without_end_are_refused():
    start = reader(**OPTIONS).initialOffset()
    for other in (
        reader("auction", **OPTIONS),
        reader(punctuations=True, **OPTIONS),
        reader(**(OPTIONS | {"seed": 4})),
    ):
        with pytest.raises(InvalidJoin, match="of the stream <bid seed=3 events=12345 rate=5000>, and"):
            other.latestOffset(start, other.getDefaultReadLimit())
    reader(live="true", partitions=3, **OPTIONS).latestOffset(start, ReadAllAvailable())  # the same stream
    schema = from_arrow_schema(nexmark_schema("person"))
    with pytest.raises(
        InvalidJoin, match=r"gives auction long, .* date_time timestamp, extra string for <bid"
    ):
        source(table="bid", seed=1).streamReader(schema)
    with pytest.raises(InvalidJoin, match=r"'events' never ends. Give events, or use readStream"):
        source(table="person", seed=1).reader(schema)


# ---------------------------------------------------------------- on Spark


@needs_read_limits
@pytest.mark.spark
def test_batch_and_stream_on_spark_are_the_same_rows_and_go_on_from_a_checkpoint(
    spark: SparkSession, tmp_path
):
    register(spark)
    options = {name: str(value) for name, value in OPTIONS.items()} | {"punctuations": "true", "table": "bid"}
    whole = STREAMS.between("bid", 0, 12_345, punctuations=True).combine_chunks()
    in_batch = spark.read.format("streamjoin_nexmark").options(**options).load()
    assert in_batch.toArrow().cast(whole.schema).combine_chunks().equals(whole)
    found: dict[int, pa.Table] = {}

    def keep(frame: DataFrame, batch: int) -> None:
        found[batch] = frame.toArrow().cast(whole.schema)

    def start(**trigger: Any) -> Any:
        read = spark.readStream.format("streamjoin_nexmark").options(**options, events_per_batch=3_000)
        writer = read.load().writeStream.option("checkpointLocation", str(tmp_path))
        return writer.foreachBatch(keep).trigger(**trigger).start()

    query = start(processingTime="0 seconds")
    while len(found) < 2 and query.isActive:
        query.awaitTermination(0.05)
    query.stop()
    start(availableNow=True).awaitTermination()
    assert sorted(found) == [0, 1, 2, 3, 4]
    assert pa.concat_tables(found[batch] for batch in sorted(found)).combine_chunks().equals(whole)


@pytest.mark.spark
def test_live_events_on_spark_come_at_their_rate(spark: SparkSession, tmp_path):
    register(spark)
    read = spark.readStream.format("streamjoin_nexmark").options(
        table="person", seed=3, rate=50_000, live=True
    )
    found: list[int] = []
    writer = read.load().writeStream.option("checkpointLocation", str(tmp_path))
    began = time.monotonic()
    query = writer.foreachBatch(lambda frame, _: found.append(frame.count())).start()
    while len(found) < 3 and query.isActive and time.monotonic() < began + 120:
        query.awaitTermination(0.05)
    query.stop()
    assert len(found) >= 3
    assert 0 < sum(found) <= 1_000 * (time.monotonic() - began) + 1
