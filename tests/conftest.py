from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import streamjoin as sj


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = sj.session(cores=2, memory="2g")
    yield session
    session.stop()
