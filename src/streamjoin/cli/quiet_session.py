"""A Spark session for commands that read checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streamjoin.errors import InvalidJoin


@contextmanager
def quiet_session(conf: Sequence[str] = ()) -> Iterator[Any]:
    """A local Spark session whose own messages stay off the terminal; `conf` has settings, `name=value`."""
    import tempfile

    from streamjoin.spark.session import session

    settings = dict(one.partition("=")[::2] for one in conf)
    if not all("=" in one for one in conf):
        raise InvalidJoin(f"--conf {' '.join(conf)}; give NAME=VALUE each time")
    with tempfile.TemporaryDirectory() as folder:
        spark = session(name="streamjoin", conf=settings, log=Path(folder) / "spark.log")
        try:
            yield spark
        finally:
            spark.stop()
