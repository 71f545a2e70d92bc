"""The page on table sources: its class is a source, on its own and inside an enrichment."""

import re
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pytest

import streamjoin as sj

PAGE = Path(__file__).parents[2] / "docs" / "table-sources.md"
CUSTOMERS = pa.table({"id": range(500), "city": [f"city {i % 7}" for i in range(500)], "rank": range(500)})


@pytest.fixture
def page(tmp_path, monkeypatch):
    """What the page defines, run in a folder with its file."""
    monkeypatch.chdir(tmp_path)
    pa.csv.write_csv(CUSTOMERS, tmp_path / "customers.csv")
    names = {}
    exec("\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)), names)
    return names


def test_the_class_of_the_page_is_a_table_source(page):
    source = page["CsvTable"]("customers.csv")
    assert isinstance(source, sj.TableSource)
    assert "CSV file customers.csv" in page["enriched"].explain()
    assert "the source tells by its content whether it is new" in page["enriched"].explain()


def test_a_stream_enriched_from_it_equals_the_batch_join(page):
    run = page["enriched"].local()
    batches = [
        pa.table(
            {"customer": [(7 * i + n) % 700 for i in range(40)], "item": [f"{n}-{i}" for i in range(40)]}
        )
        for n in range(5)
    ]
    found = [row for batch in batches for row in run.push("orders", batch).to_pylist()]
    found += run.finish().to_pylist()
    joined = pa.concat_tables(batches).join(CUSTOMERS, "customer", "id", join_type="left outer")
    assert Counter(tuple(row.items()) for row in found) == Counter(
        tuple(row.items()) for row in joined.select(["customer", "item", "city", "rank"]).to_pylist()
    )


def test_a_new_file_is_a_new_version(page, tmp_path):
    run = page["enriched"].local()
    order = pa.table({"customer": [3], "item": ["tea"]})
    assert run.push("orders", order).to_pylist()[0]["city"] == "city 3"
    moved = CUSTOMERS.set_column(1, "city", pa.array(["Rome"] * 500))
    pa.csv.write_csv(moved, tmp_path / "customers.csv")
    run.refresh()
    assert run.push("orders", order).to_pylist()[0]["city"] == "Rome"


def test_what_a_source_lacks_is_told():
    class Half:
        def schema(self):
            return pa.schema({"id": pa.int64()})

        def batches(self, columns):
            yield from ()

    with pytest.raises(
        sj.InvalidJoin, match=r"a Half is no table \(as a sj.TableSource it lacks rows, finger"
    ):
        sj.table(Half(), name="half", key="id", memory="1 MB")


def test_a_batch_that_does_not_fit_the_schema_is_told():
    class Wrong(sj.TableSource):
        def schema(self):
            return pa.schema({"id": pa.int64(), "n": pa.int64()})

        def batches(self, columns):
            yield pa.RecordBatch.from_pydict({"id": [1], "n": ["one"]})

    table = sj.table(Wrong(), name="wrong", key="id", memory="1 MB")
    orders = sj.stream(pa.schema({"id": pa.int64()}), name="orders", key="id")
    with pytest.raises(sj.BadInput, match=r"Wrong gave a batch that does not fit its schema .* let batches"):
        sj.enrich(orders, table).local()
