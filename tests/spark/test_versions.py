"""Differences between Spark versions, each seen from both sides whichever Spark is there."""

import ast
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import types as T
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.pandas.types import from_arrow_schema

import streamjoin as sj
from streamjoin.demo.generators.news import ACCESS_SCHEMA
from streamjoin.demo.spark_sources.registry import NewsSource, XmlSource
from streamjoin.enrich.segments import VersionStore
from streamjoin.spark import versions
from streamjoin.spark.sources.ticks import OffsetLog, TickReader

SRC = Path(sj.__file__).parent
SCHEMA = T.StructType(
    [
        T.StructField("t", T.TimestampType()),
        T.StructField("n", T.TimestampNTZType()),
        T.StructField("l", T.ArrayType(T.StructType([T.StructField("u", T.TimestampType())]))),
        T.StructField("m", T.MapType(T.StringType(), T.TimestampType())),
    ]
)


@pytest.fixture
def before_4_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "HAS_READ_LIMITS", False)


def test_schemas_have_the_zone_at_every_depth() -> None:
    found = versions.arrow_schema_of(SCHEMA, "Europe/Rome")
    rome = pa.timestamp("us", tz="Europe/Rome")
    assert found.field("t").type == rome
    assert found.field("n").type == pa.timestamp("us")
    assert found.field("l").type.value_type.field("u").type == rome
    assert found.field("m").type.item_type == rome


def test_a_zone_put_in_afterwards_is_the_same() -> None:
    direct = versions.arrow_schema_of(SCHEMA, "Europe/Rome")
    utc = versions.arrow_schema_of(SCHEMA, "UTC")
    assert (
        pa.schema([field.with_type(versions._in_zone(field.type, "Europe/Rome")) for field in utc]) == direct
    )


def test_what_a_version_cannot_do_is_refused_with_the_one_that_can() -> None:
    error = versions.needs("4.2", "the option 'x'")
    assert str(error) == (
        f"the option 'x' needs Spark 4.2 or later, and this is PySpark {pyspark.__version__}; "
        "use Spark 4.2, or do without"
    )


def news(**options: Any) -> Any:
    given = {"stream": "access", "seed": "3"} | {name: str(value) for name, value in options.items()}
    return NewsSource(CaseInsensitiveDict(given)).streamReader(from_arrow_schema(ACCESS_SCHEMA))


@pytest.mark.usefixtures("before_4_2")
def test_before_4_2_a_finite_stream_is_one_batch_from_wherever_it_goes_on() -> None:
    reader = news(items=60)
    end = json.loads(json.dumps(reader.latestOffset()))
    assert reader.latestOffset() == end  # nothing is new
    again = news(items=60)  # a restart: Spark does not say that it goes on from there
    assert again.latestOffset() == end
    middle = {**end, "item": 30}
    rows = sum(batch.num_rows for part in again.partitions(middle, end) for batch in again.read(part))
    whole = list(again.partitions(again.initialOffset(), end))
    assert 0 < rows < sum(batch.num_rows for part in whole for batch in again.read(part))
    assert list(again.partitions(end, end)) == []


@pytest.mark.usefixtures("before_4_2")
def test_before_4_2_limits_are_refused_and_an_endless_stream_does_not_go_back() -> None:
    with pytest.raises(sj.InvalidJoin, match=r"the option 'items_per_batch' .* needs Spark 4\.2"):
        news(items_per_batch=20)
    reader = news()
    end = reader.latestOffset()
    with pytest.raises(sj.InvalidJoin, match=r"stream without an end needs Spark 4\.2"):
        reader.partitions({**end, "item": end["item"] + 500}, end)


@pytest.mark.usefixtures("before_4_2")
def test_before_4_2_xml_goes_on_unless_its_files_were_numbered_otherwise(tmp_path: Path) -> None:
    def reader() -> Any:
        options = {"path": str(tmp_path), "record": "r", "columns": "a long"}
        made = XmlSource(CaseInsensitiveDict(options))
        return made.streamReader(T.StructType([T.StructField("a", T.LongType())]))

    def rows(start: Any, end: Any) -> list[int]:
        parts = reader().partitions(start, end)
        return [value for part in parts for batch in reader().read(part) for value in batch["a"].to_pylist()]

    (tmp_path / "b.xml").write_text("<s><r><a>1</a></r></s>")
    first = reader().latestOffset()
    assert rows(reader().initialOffset(), first) == [1]
    (tmp_path / "c.xml").write_text("<s><r><a>2</a></r></s>")
    second = reader().latestOffset()
    assert rows(first, second) == [2]
    (tmp_path / "a.xml").write_text("<s><r><a>3</a></r></s>")
    with pytest.raises(sj.InvalidJoin, match=r"go on from a checkpoint .* needs Spark 4\.2"):
        rows(second, reader().latestOffset())


NOTHING_LOGGED = OffsetLog(Path("nowhere"))


class Versions(VersionStore):
    """A store that only has names."""

    def __init__(self, *names: str) -> None:
        super().__init__(Path("nowhere"), "t")
        self.there = list(names)

    def versions(self) -> list[str]:
        return list(self.there)

    def remove(self, version: str) -> None:
        self.there.remove(version)


def test_ticks_that_do_not_know_where_they_go_on_remove_old_versions_too() -> None:
    store = Versions("1", "2")
    reader = versions.Unlimited(TickReader(store, 1, 1, NOTHING_LOGGED))
    end = reader.latestOffset()
    assert end["version"] == "2"
    assert [part.version for part in reader.partitions({"tick": 57, "version": "1", "old": []}, end)] == ["2"]
    reader.commit(end)
    assert store.there == ["2"]
    assert reader.latestOffset() == end  # no batch without rows or a new version


def test_ticks_of_a_cycle_go_on_in_the_next_run_and_keep_what_rows_may_wait_for(monkeypatch) -> None:
    now = [1_700_000_000.0]
    monkeypatch.setattr("streamjoin.spark.sources.ticks.time", lambda: now[0])
    store = Versions("1", "2")
    first = versions.Unlimited(TickReader(store, 3, 3, NOTHING_LOGGED)).latestOffset()
    now[0] += 2
    reader = versions.Unlimited(TickReader(store, 3, 3, NOTHING_LOGGED))  # a later run of the same query
    end = reader.latestOffset()
    assert end != first
    reader.commit(end)
    assert store.there == ["1", "2"]
    reader.commit({**end, "tick": end["tick"] + 3})
    assert store.there == ["2"]


def test_only_one_file_knows_of_versions_and_none_reaches_into_the_jvm() -> None:
    # files.py reaches Hadoop's file systems, for which there is no other way; Connect does without it
    allowed = {"spark/versions.py", "spark/jvm_watcher.py", "spark/files.py", "demo/warehouse.py"}
    private = {"_jdf", "_jvm", "_jsc", "_jsparkSession", "sparkContext", "_gateway"}
    for path in SRC.rglob("*.py"):
        if str(path.relative_to(SRC)) in allowed:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                assert node.attr not in private, f"{path}: {node.attr}"
            if isinstance(node, ast.ImportFrom | ast.Import):
                names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
                assert not any(
                    name.startswith(("py4j", "pyspark.sql.streaming.datasource")) for name in names
                ), path
