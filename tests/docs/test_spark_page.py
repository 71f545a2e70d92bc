"""The blocks of docs/spark.md run on a Spark session."""

import pyarrow as pa
import pytest

import streamjoin as sj
from tests.docs.pages import ON_SPARK, ROOT, regenerated
from tests.spark.streams import stream_of

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("page", ON_SPARK)
def test_a_page_prints_what_it_shows(spark, tmp_path, monkeypatch, page):
    monkeypatch.setattr(sj, "session", lambda: spark)
    orders = [pa.table({"id": [7], "customer": ["Ada"]})]
    lines = [pa.table({"order_id": [7, 7], "item": ["pen", None], "is_end": [False, True]})]
    given = {
        "orders_df": stream_of(spark, tmp_path / "orders", orders),
        "lines_df": stream_of(spark, tmp_path / "lines", lines),
        "checkpoint": str(tmp_path),
    }
    text, names = regenerated(page, given)
    assert text == (ROOT / page).read_text()
    assert names["state"] == 0
