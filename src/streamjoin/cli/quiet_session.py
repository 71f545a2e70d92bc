"""A Spark session for commands that read checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def quiet_session() -> Iterator[Any]:
    """A local Spark session whose own messages stay off the terminal."""
    import tempfile

    from streamjoin.spark.session import session

    with tempfile.TemporaryDirectory() as folder:
        spark = session(name="streamjoin", log=Path(folder) / "spark.log")
        try:
            yield spark
        finally:
            spark.stop()
