"""The Python blocks of the pages run, and print what stands below them."""

import json
import re

import pytest

from tests.docs.pages import LOCAL, ROOT, regenerated
from tests.tables import unbounded_is_meant


@unbounded_is_meant
@pytest.mark.parametrize("page", LOCAL)
def test_a_page_prints_what_it_shows(page):
    text, _ = regenerated(page)
    assert text == (ROOT / page).read_text(), "python -m tests.docs.update rewrites the printed blocks"


def test_the_example_of_the_readme_does_what_it_says():
    _, names = regenerated("README.md")
    assert names["rows"].to_pylist() == [{"id": 7, "customer": "Ada", "item": "pen"}]
    assert [one.text() for one in names["finished"]] == ["<7>"]
    assert names["state"].empty


def test_the_readme_stays_short():
    assert len((ROOT / "README.md").read_bytes()) <= 7_000


def test_the_numbers_of_the_readme_are_those_of_the_stored_run():
    stored = json.loads((ROOT / "docs/results/peers.json").read_text())["series"]
    rows = (ROOT / "README.md").read_text().split("| --- | --- | --- | --- | --- |\n")[1].splitlines()
    for query, row in zip(("q20", "q23"), rows, strict=False):
        report = (
            (ROOT / "docs/results/peers.md").read_text().split(f"### NEXMark {query}:")[1].split("###")[0]
        )
        for number in re.findall(r"\d[\d,]*", row.split("|", 2)[2]):
            assert number in report, f"{query}: {number}"
    narrow = stored["basics-two-way"]["found"]
    for engine in ("streamjoin", "spark-rocksdb"):
        ends = [end for end, _, _ in narrow[engine]["state"]]
        steady = 3 * 550_000 / (ends[-1] - ends[1])  # the last three of five micro-batches
        assert f"{float(f'{steady:.3g}'):,.0f}; {narrow[engine]['rows_per_s']:,.0f}" in rows[2]
    assert f"{narrow['flink-rocksdb']['rows_per_s']:,.0f}" in rows[2]
