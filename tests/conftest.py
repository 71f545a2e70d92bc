"""One Spark session for the run: tests that use it go to the same worker, one JVM that is warm."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import streamjoin as sj

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Queries of a few rows: what the JVM would win by compiling more, or collecting in parallel, never comes in.
QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    session = sj.session(cores=2, memory="2g", conf=QUICK)
    yield session
    session.stop()


def pytest_configure(config: pytest.Config) -> None:
    """Older PySpark leaves sockets to the garbage collector."""
    from streamjoin.spark.versions import HAS_READ_LIMITS

    if not HAS_READ_LIMITS:
        config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")
        config.addinivalue_line(
            "filterwarnings", "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
        )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Who shares a session, a server or an environment shares a worker (`--dist loadgroup`)."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
