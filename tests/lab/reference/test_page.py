"""docs/papers.md names what is there: every name of its reference column is in lab/reference."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import lab.reference

PAGE = Path(__file__).parents[3] / "docs" / "papers.md"
MODULES = [
    importlib.import_module(f"lab.reference.{found.name}")
    for found in pkgutil.iter_modules(lab.reference.__path__)
]
ROWS = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
NAMED = sorted(
    {
        name
        for row in ROWS
        if len(row) == 5
        for name in re.findall(r"`([A-Za-z_]\w*(?:\.\w+)?)(?:\([^`]*\))?`", row[4])
        if not name.endswith(".py")
    }
)


@pytest.mark.parametrize("name", NAMED)
def test_a_name_of_the_page_is_there(name):
    owner, _, member = name.partition(".")
    found = [getattr(module, owner) for module in MODULES if hasattr(module, owner)]
    assert found, f"lab/reference has no {owner}"
    assert not member or re.search(rf"\b(self\.)?{member}\b", inspect.getsource(found[0]))


def test_every_algorithm_is_on_the_page():
    text = PAGE.read_text()
    assert len(NAMED) > 30
    for module in MODULES:
        assert f"{module.__name__.rpartition('.')[2]}.py" in text
