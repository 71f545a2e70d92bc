"""Pages whose Python blocks run, and whose printed output is real.

The Python blocks of a page run in order in one namespace. A `text` block that directly follows a Python
block is what that block prints. `regenerated` gives the page with those blocks as they are printed now; a
test compares it with the page, and `python -m tests.docs.update` rewrites the page.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LOCAL = (
    "README.md",
    "docs/declarations.md",
    "docs/explain.md",
    "docs/local.md",
    "docs/many-streams.md",
    "docs/contributing/purge-strategy.md",
)
ON_SPARK = ("docs/spark.md",)  # a test gives them their streams

_BLOCK = re.compile(
    r"```python\n(?P<code>.*?)```(?P<gap>\n\n```text\n)?(?P<printed>(?(gap).*?(?=```)))", re.DOTALL
)


def regenerated(page: str, names: Mapping[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
    """The page with printed blocks as they come out now, and the names that its Python blocks leave."""
    found: dict[str, Any] = dict(names or {})

    def run(block: re.Match[str]) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(block["code"], page, "exec"), found)
        if block["gap"] is None:
            return block.group()
        return f"```python\n{block['code']}```{block['gap']}{out.getvalue()}"

    return _BLOCK.sub(run, (ROOT / page).read_text()), found
