"""A Python of the workers without the library is found before the query starts, with what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import streamjoin as sj
from streamjoin.spark import workers

SCRIPT = """
import streamjoin as sj
from pyspark.sql import SparkSession
session = sj.session(cores=1, memory="1g", conf={conf}) if {ours} else None
spark = session or SparkSession.builder.master("local[1]").config(
    "spark.sql.streaming.stateStore.providerClass",
    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider").getOrCreate()
rate = spark.readStream.format("rate").load().selectExpr("value as k")
a, b = (sj.stream(rate, name=name, key="k", unique=True) for name in "ab")
try:
    sj.join(a, b).dataframe()
except sj.InvalidJoin as refused:
    print("REFUSED:", refused)
"""


@pytest.mark.spark
@pytest.mark.systems
@pytest.mark.parametrize("ours", [True, False], ids=["session of ours", "session of one's own"])
def test_a_python_without_the_library_is_refused(tmp_path: Path, ours: bool) -> None:
    """With its own daemon module a session of ours cannot even start workers; both say the same."""
    (tmp_path / "streamjoin.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'streamjoin'\", name='streamjoin')\n"
    )
    python = tmp_path / "python"
    lines = ["#!/bin/sh", f'PYTHONPATH="{tmp_path}:$PYTHONPATH" exec {sys.executable} "$@"']
    python.write_text("\n".join(lines) + "\n")
    python.chmod(0o755)
    script = SCRIPT.format(conf={}, ours=ours)
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        env={**os.environ, "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    (line,) = [one for one in found.stdout.splitlines() if one.startswith("REFUSED:")] or [found.stderr]
    assert (
        f"the Python of this session's workers, {python}, does not have streamjoin; install it there" in line
    )
    assert "or set PYSPARK_PYTHON" in line


class Session:
    """Stands for a session whose only task raises, or gives a version."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.asked = answer, 0
        settings = {"spark.app.id": f"app-{id(self)}", "spark.pyspark.python": "/opt/python3"}
        self.conf = SimpleNamespace(get=settings.get)

    def range(self, _: int) -> Session:
        return self

    def mapInArrow(self, task: Any, schema: str) -> Session:  # noqa: N802
        return self

    def collect(self) -> list[Any]:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return [SimpleNamespace(version=self.answer)]


def test_what_to_do_is_said() -> None:
    session: Any = Session(
        PySparkException("trace\nModuleNotFoundError: No module named 'streamjoin'\n more")
    )
    with pytest.raises(sj.InvalidJoin) as refused:
        workers.check_workers(session)
    assert str(refused.value) == (
        "the Python of this session's workers, /opt/python3, does not have streamjoin; install it there with "
        "`/opt/python3 -m pip install streamjoin`, or set PYSPARK_PYTHON (or spark.pyspark.python) to a "
        "Python that has it before the session starts"
    )
    other: Any = Session(PySparkException("ImportError: libarrow.so"))
    with pytest.raises(
        sj.InvalidJoin, match=r"cannot import streamjoin \(ImportError: libarrow.so\); install"
    ):
        workers.check_workers(other)
    lost: Any = Session(PySparkException("Python worker failed to connect back"))
    with pytest.raises(PySparkException, match="failed to connect back"):
        workers.check_workers(lost)


def test_another_version_is_refused_and_the_same_is_asked_for_once() -> None:
    old: Any = Session("0.0.1")
    with pytest.raises(
        sj.InvalidJoin, match=r"have streamjoin 0\.0\.1, this process has .*; install the same"
    ):
        workers.check_workers(old)
    same: Any = Session(workers._version())
    workers.check_workers(same)
    workers.check_workers(same)
    assert same.asked == 1


def test_the_task_says_which_version_it_finds() -> None:
    task = workers._importing("streamjoin")
    (found,) = task([pa.record_batch({"id": [0]})])
    assert found.to_pylist() == [{"version": workers._version()}]
    with pytest.raises(ModuleNotFoundError):
        list(workers._importing("no_such_library")([None]))
