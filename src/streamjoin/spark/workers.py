"""Workers: whether the Python of the executors has this library, found before a query starts.

Spark starts its workers with the Python that PYSPARK_PYTHON or spark.pyspark.python names, on every machine.
If that one lacks the library, a query fails in its first batch with a trace of Spark's. So once per session
one task imports it, which also warms a worker up; later joins of the session ask nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pyspark.sql import SparkSession

from streamjoin.errors import InvalidJoin

PACKAGE = "streamjoin"
_asked: set[str] = set()  # applications whose workers have the library


def check_workers(spark: SparkSession) -> None:
    """Refuse a session whose workers cannot import the library, or import another version of it."""
    application = str(spark.conf.get("spark.app.id", ""))
    if application in _asked:
        return
    python = spark.conf.get("spark.pyspark.python", None) or os.environ.get("PYSPARK_PYTHON", "python3")
    try:
        (row,) = spark.range(1).mapInArrow(_importing(PACKAGE), "version string").collect()
    except Exception as error:  # a classic session raises what py4j raises, Connect what pyspark does
        text = str(error)
        if "ModuleNotFoundError" not in text and "ImportError" not in text:
            raise
        raise InvalidJoin(_refusal(python, text)) from error
    here = _version()
    if row.version not in (here, None):
        raise InvalidJoin(
            f"the workers of this session have {PACKAGE} {row.version}, this process has {here}; install the "
            f"same for {python} on every machine of the cluster"
        )
    _asked.add(application)


def _refusal(python: str, error: str) -> str:
    if f"No module named '{PACKAGE}'" in error or f"No module named {PACKAGE}" in error:
        reason = f"the Python of this session's workers, {python}, does not have {PACKAGE}"
    else:
        line = next(
            one for one in reversed(error.splitlines()) if "ModuleNotFound" in one or "ImportE" in one
        )
        reason = f"the Python of this session's workers, {python}, cannot import {PACKAGE} ({line.strip()})"
    return (
        f"{reason}; install it there with `{python} -m pip install {PACKAGE}`, or set PYSPARK_PYTHON (or "
        "spark.pyspark.python) to a Python that has it before the session starts"
    )


def _importing(package: str) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """A task that says which version of a package its worker has; sent by value, so that it arrives there."""

    def task(batches: Iterable[Any]) -> Iterator[Any]:
        import importlib  # noqa: PLC0415
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

        import pyarrow as pa  # noqa: PLC0415

        for _ in batches:
            importlib.import_module(f"{package}.spark.processor")
            try:
                found = version(package)
            except PackageNotFoundError:
                found = None
            yield pa.RecordBatch.from_pydict({"version": pa.array([found], pa.string())})

    return task


def _version() -> str | None:
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return None
