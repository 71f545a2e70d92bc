"""Spark sessions: the settings that a stream join is fastest with, and checks of a session of the user's.

Nothing here is required of a session, classic or Connect: a setting that cannot be read or set is left as the
platform has it. One that a join cannot run without (RocksDB as the state store) is set, one with which an
answer could be wrong is refused, and what is only faster with another value is said once in the log.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streamjoin.errors import InvalidJoin
from streamjoin.spark import versions
from streamjoin.spark.jvm_watcher import watch
from streamjoin.spark.versions import IS_BEFORE_4_1, checkpoint_file_manager, needs
from streamjoin.spark.workers import check_workers

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_ROCKSDBS = "RocksDBStateStoreProvider"  # a platform may have its own
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"

_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"

SETTINGS = {
    _PROVIDER: ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": checkpoint_file_manager(),
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
    **versions.settings(),
}

_FASTER = (
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
    "spark.sql.execution.arrow.maxBytesPerBatch",
    "spark.python.daemon.module",
    "spark.executorEnv.MIMALLOC_PURGE_DELAY",
    *versions.settings(),
)
_LOG = logging.getLogger("streamjoin")
_said: set[str] = set()


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


def setting(spark: Any, name: str, otherwise: str) -> str:
    """A setting of a session, or `otherwise` where it is not set or may not be read."""
    try:  # with a default, Spark would give that in place of its own
        value = spark.conf.get(name) if name.startswith("spark.sql.") else spark.conf.get(name, otherwise)
    except Exception:  # noqa: BLE001  # each platform refuses in a way of its own
        return otherwise
    return str(value or otherwise)


def default_buckets(spark: Any) -> int:
    """One bucket for each partition of a shuffle; 200 where the platform chooses their number (`auto`)."""
    partitions = setting(spark, "spark.sql.shuffle.partitions", "200")
    return int(partitions) if partitions.isdigit() else 200


def check_session(spark: Any) -> None:
    """Make a session fit for a streaming join, or refuse it where the join would fail or be wrong."""
    provider = setting(spark, _PROVIDER, _ROCKSDBS)
    if not provider.endswith(_ROCKSDBS):
        _use_rocksdb(spark, provider)
    speculation = setting(spark, "spark.speculation", "false")
    if speculation == "true" and setting(spark, _FORMAT, "2") == "1":
        raise InvalidJoin(
            f"spark.speculation is true while {_FORMAT} is 1: two tasks could write the same version of the "
            f"state; set {_FORMAT} to 2, or spark.speculation to false"
        )
    slower = [name for name in _FASTER if setting(spark, name, "") != SETTINGS[name]]
    if slower:
        given = ", ".join(f"{name}={SETTINGS[name]}" for name in slower)
        _say_once(logging.INFO, f"joins are faster in a session with {given}")
    check_workers(spark)


def _use_rocksdb(spark: Any, provider: str) -> None:
    """Other state stores cannot hold what Python keeps in `transformWithState`."""
    try:
        spark.conf.set(_PROVIDER, ROCKSDB)
    except Exception as error:
        raise InvalidJoin(
            f"this session stores streaming state in {provider}, which cannot hold a join's, and does not "
            f"let it be changed ({type(error).__name__}); set {_PROVIDER} to {ROCKSDB} where it is made"
        ) from error
    _say_once(
        logging.WARNING,
        f"{_PROVIDER} of this session was {provider}, which cannot hold a join's state; it is {ROCKSDB} now",
    )


def _say_once(level: int, text: str) -> None:
    if text not in _said:
        _said.add(text)
        _LOG.log(level, text)


def is_connect(frame: Any) -> bool:
    """Whether a DataFrame or a session is of Spark Connect: the JVM is a server's."""
    return ".connect." in type(frame).__module__


def check_connect(frame: Any, name: str) -> None:
    """Refuse Spark Connect where its server or this client cannot run a join."""
    if not is_connect(frame):
        return
    server = _server_version(frame.sparkSession)
    if IS_BEFORE_4_1 or server < (4, 1):
        raise needs("4.1", f"stream {name!r}: a join over Spark Connect")


def _server_version(spark: Any) -> tuple[int, ...]:
    """The first two numbers of the server's version; (4, 1) where it has none, as Databricks's may."""
    try:
        return tuple(int(part) for part in str(spark.version).split(".")[:2])
    except (PySparkException, ValueError):
        return (4, 1)
