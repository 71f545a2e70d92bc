"""The Python blocks of the pages run, and print what stands below them."""

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
