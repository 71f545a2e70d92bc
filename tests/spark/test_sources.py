"""The Spark sources: the same rows as the plain generator and Convert, once each, whatever the batches are.

Most tests drive a reader by hand as Spark does, with a new reader for every batch and offsets through JSON,
so that every batch is a restart. Those marked `spark` see that Spark does so.
"""

import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict, DataSource
from pyspark.sql.pandas.types import from_arrow_schema

from streamjoin.demo.generators.news import ACCESS_SCHEMA, NEWS_SCHEMA, NewsStreams
from streamjoin.demo.spark_sources.registry import NewsSource, XmlSource, register
from streamjoin.errors import BadInput, InvalidJoin
from streamjoin.sources.xml_rows import FILE_SPAN
from streamjoin.spark.versions import ReadAllAvailable
from tests.spark.versions import _read_as_from_4_2, needs_read_limits  # noqa: F401 - a fixture

SEED = {"seed": 3}
STREAMS = NewsStreams(seed=3, items=60, records_per_item=5, order="random")
OPTIONS = {"seed": 3, "items": 60, "records_per_item": 5, "order": "random"}
XML = {"record": "record", "key": "sno"}


def whole(tables: Any) -> pa.Table:
    return pa.concat_tables(tables).combine_chunks()


def rows(table: pa.Table) -> list[tuple]:
    return [tuple(row.values()) for row in table.to_pylist()]


def source(kind: type[DataSource], **options: Any) -> DataSource:
    return kind(CaseInsensitiveDict({name: str(value) for name, value in options.items()}))


def news_reader(stream: str = "access", **options: Any) -> Any:
    schema = from_arrow_schema(NEWS_SCHEMA if stream == "news" else ACCESS_SCHEMA)
    return source(NewsSource, stream=stream, **options).streamReader(schema)


def xml_reader(path: Path, schema: pa.Schema = ACCESS_SCHEMA, **options: Any) -> Any:
    return source(XmlSource, path=path, **(XML | options)).streamReader(from_arrow_schema(schema))


def batches(make: Callable[[], Any], start: Any = None) -> Iterator[tuple[Any, pa.Table]]:
    """Micro-batches until nothing is new: the offset at the end of each, and its rows."""
    offset = make().initialOffset() if start is None else start
    while True:
        planner, reader = make(), make()
        end = json.loads(json.dumps(planner.latestOffset(offset, planner.getDefaultReadLimit())))
        if end == offset:
            return
        parts = pickle.loads(pickle.dumps(list(reader.partitions(offset, end))))
        found = [batch for part in parts for batch in reader.read(part)]
        if found:
            yield end, pa.Table.from_batches(found)
        offset = end


def drain(found: list[Any], more: Iterator[Any]) -> None:
    for each in more:
        found.append(each)  # noqa: PERF402 - keeps what came before an error


# ---------------------------------------------------------------- news, by hand


@pytest.mark.usefixtures("_read_as_from_4_2")
@pytest.mark.parametrize("stream", ["news", "access"])
@pytest.mark.parametrize(("items_per_batch", "partitions"), [(7, 1), (20, 3), (1_000, 2)])
def test_news_in_any_batches_are_the_whole_stream(stream, items_per_batch, partitions):
    split = {"items_per_batch": items_per_batch, "partitions": partitions}
    found = list(batches(lambda: news_reader(stream, **OPTIONS, **split)))
    assert whole(table for _, table in found).equals(whole(getattr(STREAMS, stream)()))
    assert found[-1][0]["item"] <= STREAMS.end_item
    assert len(found) >= 60 // items_per_batch


@pytest.mark.usefixtures("_read_as_from_4_2")
def test_all_that_is_available_of_a_stream_that_never_ends_is_one_batch():
    endless, finite = news_reader(**SEED), news_reader(**SEED, items=1_000)
    start = endless.initialOffset()
    assert endless.latestOffset(start, ReadAllAvailable())["item"] == 100
    assert finite.latestOffset(finite.initialOffset(), ReadAllAvailable())["item"] == 1_009


@pytest.mark.usefixtures("_read_as_from_4_2")
def test_available_now_ends_a_stream_that_never_ends_after_one_batch():
    reader = news_reader(**SEED, items_per_batch=30)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset() | {"item": 500}
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end["item"] == 530
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end


@pytest.mark.usefixtures("_read_as_from_4_2")
def test_a_checkpoint_of_another_stream_is_refused():
    start = news_reader("access", **OPTIONS).initialOffset()
    for other in (news_reader("news", **OPTIONS), news_reader("access", **(OPTIONS | {"seed": 4}))):
        with pytest.raises(
            InvalidJoin, match=r"of the stream <access seed=3 items=60 .*same options, or another"
        ):
            other.latestOffset(start, other.getDefaultReadLimit())


# ---------------------------------------------------------------- XML, by hand


@pytest.fixture
def access_xml(tmp_path: Path) -> Path:
    STREAMS.write_xml(tmp_path / "news.xml", tmp_path / "access.xml")
    return tmp_path / "access.xml"


@pytest.mark.usefixtures("_read_as_from_4_2")
@pytest.mark.parametrize("limit", [1, 1_000, 16 << 20])
def test_xml_in_any_batches_is_the_whole_file(access_xml, limit):
    found = list(batches(lambda: xml_reader(access_xml, max_bytes_per_batch=limit)))
    assert whole(table for _, table in found).equals(whole(STREAMS.access()))
    elements, size = sum(table.num_rows for _, table in found), access_xml.stat().st_size
    expected = {1: elements, 1_000: size // 1_000 + 1, 16 << 20: 1}[limit]
    assert expected <= len(found) <= expected * 1.2


@pytest.mark.usefixtures("_read_as_from_4_2")
def test_a_folder_is_read_by_name_and_a_later_file_is_not_forgotten(tmp_path):
    def write(name: str, *numbers: int, end: str = "</s>") -> None:
        elements = "".join(f"<record><sno>{number}</sno></record>" for number in numbers)
        (tmp_path / name).write_text(f"<s>{elements}{end}")

    schema = ACCESS_SCHEMA.append(pa.field("at", pa.int64()))

    def read(start: Any = None) -> tuple[Any, list[int], list[int]]:
        reader = lambda: xml_reader(tmp_path, schema, sequence="at", max_bytes_per_batch=20)  # noqa: E731
        found = list(batches(reader, start))
        numbers = [sno for _, table in found for sno in table["sno"].to_pylist()]
        files = [at // FILE_SPAN for _, table in found for at in table["at"].to_pylist()]
        return (found[-1][0] if found else start), numbers, files

    write("b.xml", 1, 2)
    write("c.xml", 3, end="")
    write("d.xml", 6)
    write("_e.xml", 99)
    (tmp_path / "folder").mkdir()
    offset, numbers, files = read()
    assert (numbers, files) == ([1, 2, 3], [0, 0, 1])  # d waits until c is closed
    write("a.xml", 5)
    write("c.xml", 3, 4)
    offset, numbers, files = read(offset)
    assert (numbers, files) == ([4, 5, 6], [1, 2, 3])
    assert read(offset) == (offset, [], [])
    for name in "abc":
        (tmp_path / f"{name}.xml").unlink()
    write("f.xml", 7)
    offset, numbers, files = read(offset)
    assert (numbers, files) == ([7], [4])
    assert set(offset["files"]) == {"d.xml", "f.xml"}


@pytest.mark.usefixtures("_read_as_from_4_2")
def test_available_now_reads_what_was_there_when_it_began(access_xml):
    text = access_xml.read_bytes()
    access_xml.write_bytes(text[:3_000])
    reader = xml_reader(access_xml, max_bytes_per_batch=1_000)
    reader.prepareForTriggerAvailableNow()
    access_xml.write_bytes(text)
    found = list(batches(lambda: reader))
    assert len(found) >= 3
    assert 2_800 < found[-1][0]["files"]["access.xml"]["byte"] <= 3_000


@pytest.mark.usefixtures("_read_as_from_4_2")
def test_malformed_xml_fails_after_what_came_before_and_goes_on_when_repaired(access_xml):
    text = access_xml.read_bytes()
    at = text.index(b"<record>", 2_000)
    access_xml.write_bytes(text[:at] + b"</oops>" + text[at:])
    found = []
    with pytest.raises(BadInput, match=rf"access.xml: .* not well-formed at byte {at + 2}: mismatched tag"):
        drain(found, batches(lambda: xml_reader(access_xml, max_bytes_per_batch=500)))
    assert len(found) >= 4
    assert found[-1][0]["files"]["access.xml"]["byte"] == text[:at].rindex(b">") + 1
    access_xml.write_bytes(text)
    found += batches(lambda: xml_reader(access_xml), found[-1][0])
    assert whole(table for _, table in found).equals(whole(STREAMS.access()))


@pytest.mark.usefixtures("_read_as_from_4_2")
def test_a_file_that_became_shorter_or_went_away_is_refused(access_xml):
    offset, _ = next(batches(lambda: xml_reader(access_xml.parent, max_bytes_per_batch=1_000)))
    reader = xml_reader(access_xml.parent)
    for spoil in (lambda: access_xml.write_bytes(b"<s>"), access_xml.unlink):
        spoil()
        with pytest.raises(BadInput, match=r"access.xml is missing or shorter than the .* Restore it"):
            reader.latestOffset(offset, reader.getDefaultReadLimit())


# ---------------------------------------------------------------- options


@pytest.mark.usefixtures("_read_as_from_4_2")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "needs the option 'stream'. Give 'news' or 'access'"),
        ({"stream": "news"}, "needs the option 'seed'. Give a whole number"),
        ({"stream": "clicks", "seed": 1}, "got stream='clicks'. Give 'news' or 'access'"),
        ({"stream": "news", "seed": "x"}, "got seed='x'. Give a whole number"),
        ({"stream": "news", "seed": 1, "records_per_item": "many"}, "got records_per_item='many'"),
        ({"stream": "news", "seed": 1, "order": "down"}, "NewsStreams got order='down'"),
        ({"stream": "news", "seed": 1, "items_per_batch": 0}, "got items_per_batch='0'. .* 1 or more"),
        ({"stream": "news", "seed": 1, "partitions": 0}, "got partitions='0'. .* 1 or more"),
        ({"stream": "news", "seed": 1, "item": 5}, "has no option 'item'. Give stream: .*; items: how many"),
    ],
)
def test_wrong_options_of_the_news_are_refused(options, says):
    with pytest.raises(InvalidJoin, match=says):
        source(NewsSource, **options).schema()


@pytest.mark.usefixtures("_read_as_from_4_2")
def test_news_have_their_own_columns_and_a_batch_has_an_end():
    with pytest.raises(InvalidJoin, match=r"gives sno long, ipaddr string, is_end boolean .* Leave"):
        source(NewsSource, stream="access", seed=1).streamReader(from_arrow_schema(NEWS_SCHEMA))
    with pytest.raises(InvalidJoin, match=r"never ends. Give items, or use readStream"):
        source(NewsSource, stream="news", seed=1).reader(from_arrow_schema(NEWS_SCHEMA))


@pytest.mark.usefixtures("_read_as_from_4_2")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"record": ""}, "needs the option 'record'"),
        ({"path": ""}, "needs the option 'path'"),
        ({"path": "/nothing/here.xml"}, "finds nothing at /nothing/here.xml. Give a file or a folder"),
        ({"key": "title"}, "key column 'title'"),
        ({"marker": "over"}, "The column 'over', which marks the punctuations, is not in the schema"),
        ({"sequence": "at"}, "The column 'at', which gives the order, is not in the schema"),
        ({"max_bytes_per_batch": "16 MB"}, "got max_bytes_per_batch='16 MB'. .* 1 or more"),
        ({"max_bytes_per_batch": 0}, "got max_bytes_per_batch='0'. .* 1 or more"),
        ({"batch_rows": 5}, "has no option 'batch_rows'"),
    ],
)
def test_wrong_options_of_xml_are_refused(access_xml, options, says):
    with pytest.raises(InvalidJoin, match=says):
        xml_reader(**({"path": access_xml} | options))


@pytest.mark.usefixtures("_read_as_from_4_2")
def test_xml_needs_columns_and_adds_its_own():
    with pytest.raises(InvalidJoin, match=r"needs the option 'columns'. Give the columns as DDL text"):
        source(XmlSource, path="x", record="r").schema()
    made = source(XmlSource, columns="sno long", key="sno", marker="a`b", sequence="at").schema()
    assert made == "sno long, `a``b` boolean, `at` long"
    assert source(XmlSource, columns="sno long").schema() == "sno long"


@pytest.mark.usefixtures("_read_as_from_4_2")
def test_a_column_that_no_text_can_hold_is_refused(access_xml):
    nested = pa.schema({"sno": pa.int64(), "tags": pa.list_(pa.string()), "is_end": pa.bool_()})
    with pytest.raises(InvalidJoin, match="Column 'tags' cannot be read from XML"):
        xml_reader(access_xml, nested)


# ---------------------------------------------------------------- on Spark


class Sink:
    """The rows of each micro-batch, by its number: a batch that is run again replaces itself."""

    def __init__(self) -> None:
        self.batches: dict[int, pa.Table] = {}

    def run(self, frame: DataFrame, checkpoint: Path, **trigger: Any) -> Any:
        writer = frame.writeStream.option("checkpointLocation", str(checkpoint))
        return writer.foreachBatch(self._take).trigger(**(trigger or {"availableNow": True})).start()

    def _take(self, frame: DataFrame, batch: int) -> None:
        self.batches[batch] = frame.toArrow()

    @property
    def table(self) -> pa.Table:
        return whole(self.batches[batch] for batch in sorted(self.batches))


@pytest.mark.spark
def test_news_on_spark_in_batch(spark: SparkSession):
    register(spark)
    register(spark)
    read = spark.read.format("streamjoin_news").options(**OPTIONS)
    assert whole([read.options(stream="access").load().toArrow()]).equals(whole(STREAMS.access()))
    found = read.options(stream="news", partitions=3).load()
    assert found.rdd.getNumPartitions() == 3
    assert sorted(map(tuple, found.collect())) == sorted(rows(whole(STREAMS.news())))


@needs_read_limits
@pytest.mark.spark
@pytest.mark.systems
def test_both_news_streams_on_spark_stay_in_step(spark: SparkSession, tmp_path):
    register(spark)
    read = spark.readStream.format("streamjoin_news").options(**OPTIONS, items_per_batch=25)
    news = read.options(stream="news").load().selectExpr("'news' AS of", "sno", "title AS text")
    access = read.options(stream="access").load().selectExpr("'access' AS of", "sno", "ipaddr AS text")
    sink = Sink()
    sink.run(news.union(access), tmp_path / "checkpoint").awaitTermination()
    assert len(sink.batches) == 3
    for batch, table in sink.batches.items():
        at = STREAMS.start_item + 25 * batch
        expected = [("news", *row[:2]) for row in rows(STREAMS.between("news", at, at + 25))]
        expected += [("access", *row[:2]) for row in rows(STREAMS.between("access", at, at + 25))]
        assert sorted(rows(table), key=str) == sorted(expected, key=str)


@needs_read_limits
@pytest.mark.spark
@pytest.mark.systems
def test_news_on_spark_go_on_from_a_checkpoint(spark: SparkSession, tmp_path):
    register(spark)
    read = spark.readStream.format("streamjoin_news").options(stream="access", seed=3, items_per_batch=20)
    sink = Sink()
    query = sink.run(read.load(), tmp_path / "checkpoint", processingTime="0 seconds")
    while len(sink.batches) < 3 and query.isActive:
        query.awaitTermination(0.05)
    query.stop()
    before = len(sink.batches)
    sink.run(read.load(), tmp_path / "checkpoint").awaitTermination()
    assert before <= len(sink.batches) - 1 <= before + 1  # the one that was stopped, and one more
    endless = NewsStreams(seed=3, items=None)
    assert sink.table.equals(endless.between("access", 0, 20 * len(sink.batches)))


@needs_read_limits
@pytest.mark.spark
def test_a_growing_xml_file_on_spark(spark: SparkSession, tmp_path, access_xml):
    register(spark)
    text, growing = access_xml.read_bytes(), tmp_path / "growing.xml"
    bad = text.index(b"<record>", 2 * len(text) // 3)
    read = spark.readStream.format("streamjoin_xml").options(**XML, columns="sno long, ipaddr string")
    read = read.options(max_bytes_per_batch=len(text) // 5)
    sink = Sink()
    growing.write_bytes(text[: len(text) // 2])
    sink.run(read.load(str(growing)), tmp_path / "checkpoint").awaitTermination()
    assert len(sink.batches) == 3
    growing.write_bytes(text[:bad] + b"</oops>")
    with pytest.raises(StreamingQueryException, match=f"growing.xml: .* not well-formed at byte {bad + 2}"):
        sink.run(read.load(str(growing)), tmp_path / "checkpoint").awaitTermination()
    assert len(sink.batches) == 4
    growing.write_bytes(text)
    sink.run(read.load(str(growing)), tmp_path / "checkpoint").awaitTermination()
    assert sink.table.equals(whole(STREAMS.access()))


@pytest.mark.spark
def test_xml_on_spark_in_batch_with_types_of_spark(spark: SparkSession, tmp_path):
    register(spark)
    values = "<at>2026-11-15T10:00:00+01:00</at><on>2026-11-15</on><price>1.5</price>"
    for number in (1, 2):
        record = f"<record><sno>{number}</sno>{values}</record>"
        over = f"<punct:record><sno>{number}</sno></punct:record>"
        (tmp_path / f"{number}.xml").write_text(f"<s>{record}{over}</s>")
    read = spark.read.format("streamjoin_xml").options(**XML, path=str(tmp_path), sequence="place")
    types = "sno long, at timestamp, on date, price decimal(10,2), is_end boolean, place long"
    found = (
        read.schema(types)
        .load()
        .selectExpr("sno", "unix_seconds(at)", "on || ' ' || price", "is_end", "place")
    )
    row, over = ("2026-11-15 1.50", False, 3), (None, True)
    length = len(f"<s><record><sno>1</sno>{values}</record>")
    assert [tuple(each) for each in found.collect()] == [
        (1, 1794733200, *row),
        (1, None, *over, length),
        (2, 1794733200, *row[:2], FILE_SPAN + 3),
        (2, None, *over, FILE_SPAN + length),
    ]


@pytest.mark.spark
def test_wrong_options_on_spark_say_what_to_give(spark: SparkSession, tmp_path):
    register(spark)
    with pytest.raises(
        AnalysisException, match=r"InvalidJoin: streamjoin_news needs the option 'seed'. Give"
    ):
        spark.readStream.format("streamjoin_news").options(stream="news").load()
    with pytest.raises(
        AnalysisException, match=r"InvalidJoin: streamjoin_xml needs the option 'columns'. Give"
    ):
        spark.read.format("streamjoin_xml").load(str(tmp_path))
