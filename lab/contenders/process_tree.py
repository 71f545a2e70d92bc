"""CPU time and resident memory of a contender: its own process, the JVM, and Spark's Python workers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np
import psutil
from pyspark.sql import SparkSession

from streamjoin.api.join import join, stream


def cpu_seconds() -> float:
    """CPU time of this process and everything it started."""
    total = 0.0
    here = psutil.Process()
    for process in [here, *here.children(recursive=True)]:
        try:
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
        except psutil.Error:
            continue
    return total


class CpuClock:
    """Samples the CPU seconds of the process tree over time."""

    def __init__(self) -> None:
        self._at: list[float] = [time.time()]
        self._cpu: list[float] = [cpu_seconds()]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            self._sample()

    def _sample(self) -> None:
        self._at.append(time.time())
        self._cpu.append(cpu_seconds())

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        self._sample()

    def at(self, moments: Sequence[float]) -> list[float]:
        """CPU seconds up to some moments, since this clock was made."""
        sampled = np.maximum.accumulate(self._cpu)
        return [float(each) for each in np.interp(moments, self._at, sampled) - sampled[0]]


def idle_worker_bytes(spark: SparkSession) -> int:
    """What a worker takes that has run this library once, on a few rows, and has nothing to do."""
    few = [
        stream(spark.range(10).withColumnRenamed("id", "k"), name=name, key="k") for name in ("one", "two")
    ]
    join(*few).dataframe().count()
    return min(int(process.memory_info().rss) for process in _workers())


def _workers() -> Iterator[psutil.Process]:
    """Spark's Python workers: forked by a Python process that is a child of the JVM."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            parent = process.parent()
            if parent is not None and parent.name().startswith("python") and parent.pid != os.getpid():
                yield process


class WorkerMemory:
    """Samples the workers' resident memory; `stop` gives the most that one took, beside an idle one."""

    def __init__(self, idle_bytes: int) -> None:
        self.idle_bytes, self._peak, self._over = idle_bytes, 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            for process in _workers():
                with suppress(psutil.Error):
                    self._peak = max(self._peak, process.memory_info().rss)

    def stop(self) -> dict[str, int]:
        self._over.set()
        self._thread.join()
        return {"idle": self.idle_bytes, "peak": self._peak}
