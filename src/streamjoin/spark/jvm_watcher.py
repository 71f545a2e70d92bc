"""The JVM watcher: no JVM outlives the Python process that started it, however that ends.

Spark's JVM reads a pipe from Python and exits when it closes, but its shutdown can take minutes
while a query runs or a forked child keeps the pipe open, and meanwhile it blocks the terminal's
output. So a normal exit waits for the JVM, and for any other exit a small watcher process waits
for Python to end (a pipe again: it closes even on SIGKILL), gives the JVM some seconds to exit by
itself, and then kills it by its process id.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import subprocess
import sys
from typing import Any

GRACE_S = 10
_WATCH = """
import os, signal, sys, time
pipe, pid, grace = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
def started(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return None if fields[0] == "Z" else fields[19]
    except OSError:
        return None
birth = started(pid)
os.read(pipe, 1)
end = time.monotonic() + grace
while birth is not None and started(pid) == birth:
    if time.monotonic() > end:
        os.kill(pid, signal.SIGKILL)
        break
    time.sleep(0.1)
"""
_watched: dict[int, int] = {}


def _worth_telling(record: logging.LogRecord) -> bool:
    """Hide the error of an object that is collected after its JVM has exited."""
    return "Exception while sending command" not in str(record.msg)


def _leave(spark: Any, process: Any, grace_s: float) -> None:
    """At a normal exit: stop the session, close the JVM's pipe, wait for it, kill it if it stays."""
    logging.getLogger().addFilter(_worth_telling)
    with contextlib.suppress(Exception):  # it may be stopped already, or its JVM gone
        spark.stop()
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(grace_s)
    except subprocess.TimeoutExpired:
        process.kill()


def watch(spark: Any, grace_s: float = GRACE_S) -> None:
    """Make this session's JVM end with this process."""
    process = getattr(spark.sparkContext._gateway, "proc", None)  # noqa: SLF001
    if process is None or process.pid in _watched:
        return
    atexit.register(_leave, spark, process, grace_s)
    read_end, write_end = os.pipe()
    watcher = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", _WATCH, str(read_end), str(process.pid), str(grace_s)],
        pass_fds=[read_end],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    watcher.returncode = 0  # it outlives us on purpose: nobody waits for it
    os.close(read_end)
    _watched[process.pid] = write_end  # the pipe stays open as long as this process lives
