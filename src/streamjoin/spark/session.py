"""Spark sessions: the settings that a stream join needs, and checks of a session that the user made."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from streamjoin.errors import InvalidJoin
from streamjoin.spark.jvm_watcher import watch

_STREAMING = "org.apache.spark.sql.execution.streaming."
ROCKSDB = _STREAMING + "state.RocksDBStateStoreProvider"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"

_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"

SETTINGS = {
    _PROVIDER: ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": _STREAMING
    + "checkpointing.FileSystemBasedCheckpointFileManager",
    # Batches of few rows instead of few bytes: Spark would compute the bytes so far for every row.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1),
    # A worker forked from this daemon need not load the library first.
    "spark.python.daemon.module": "streamjoin.spark.daemon",
    # A worker needs the same memory in every micro-batch: Arrow's allocator and C's keep what is free. Left
    # alone they give it back, and asking for each page again is a quarter of a large micro-batch.
    "spark.executorEnv.MIMALLOC_PURGE_DELAY": "-1",
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "spark.executorEnv.MALLOC_TOP_PAD_": str(16 << 20),
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # Otherwise a session that stops waits up to five minutes for the state store's housekeeping.
    "spark.sql.streaming.stateStore.maintenanceShutdownTimeout": "5s",
    "spark.sql.streaming.stateStore.maintenanceForceShutdownTimeout": "5s",
}


def session(
    *,
    cores: int | None = None,
    memory: str = "4g",
    name: str = "streamjoin",
    conf: Mapping[str, str] | None = None,
    log: str | Path | None = None,
) -> SparkSession:
    """A local Spark session with the settings that a stream join needs; `conf` adds or overrides some.

    It listens on loopback only, and its JVM ends with this process, however that ends. With
    `log`, messages of the JVM and its workers go to that file instead of the terminal.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    parallel = cores or os.cpu_count() or 1
    builder = SparkSession.builder.master(f"local[{parallel}]").appName(name)
    chosen = {
        **SETTINGS,
        "spark.driver.memory": memory,
        "spark.sql.shuffle.partitions": str(parallel),
        **(conf or {}),
    }
    for key, value in chosen.items():
        builder = builder.config(key, value)
    with _errors_to(log):
        spark = builder.getOrCreate()
    watch(spark)
    return spark


@contextlib.contextmanager
def _errors_to(log: str | Path | None) -> Iterator[None]:
    """Processes started inside write their errors to a file."""
    if log is None:
        yield
        return
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    terminal = os.dup(2)
    with Path(log).open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


def check_session(spark: Any) -> None:
    """Refuse a session on which a streaming join would fail or be wrong."""
    provider = spark.conf.get(_PROVIDER)
    if provider != ROCKSDB:
        raise InvalidJoin(
            f"this session stores streaming state in {provider}; set {_PROVIDER} to {ROCKSDB}, "
            "or use sj.session()"
        )
    speculation = spark.sparkContext.getConf().get("spark.speculation", "false")
    if speculation == "true" and spark.conf.get(_FORMAT) == "1":
        raise InvalidJoin(
            f"spark.speculation is true while {_FORMAT} is 1: two tasks could write the same version of the "
            f"state; set {_FORMAT} to 2, or spark.speculation to false"
        )


def refuse_connect(frame: Any, name: str) -> None:
    """The join needs a Spark session in this process's own JVM."""
    if ".connect." in type(frame).__module__:
        raise InvalidJoin(
            f"stream {name!r} comes from a Spark Connect session; use a classic session, e.g. sj.session()"
        )
