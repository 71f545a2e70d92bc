"""The first rows of a work's files, for a query that warms a Spark session before the one that counts.

A stream runs for weeks, so what the first micro-batch costs once (code is generated and loaded, Python
workers start) is start-up. This library and Spark's own joins are warmed alike, by the same query on a few
rows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

ROWS = 2_000


@contextmanager
def first_rows(folder: str, inputs: Iterable[str]) -> Iterator[str]:
    """A folder like a work's, with one short file for each input; it goes when it is left."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as short:
        for name in inputs:
            first = min((Path(folder) / name).iterdir())
            place = Path(short) / name
            place.mkdir()
            with first.open("rb") as rows:
                (place / first.name).write_bytes(b"".join(islice(rows, ROWS)))
        yield short
