"""No process outlives its command, however the command ends."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

pytestmark = [pytest.mark.spark, pytest.mark.systems]

QUERY = """
import sys, time
import streamjoin as sj
spark = sj.session(cores=1, memory="1g")
query = spark.readStream.format("rate").load().writeStream.format("noop").start()
while not query.lastProgress:
    time.sleep(0.1)
print("running", flush=True)
{end}
"""
ENDS = {
    "finished": "query.stop(); spark.stop()",
    "left without stopping": "sys.exit(0)",
    "failed": "raise ValueError('on purpose')",
    "interrupted": "time.sleep(600)",
    "killed": "time.sleep(600)",
}
SIGNALS = {"interrupted": signal.SIGINT, "killed": signal.SIGKILL}


@pytest.mark.parametrize(
    "end",
    ENDS,
)
def test_no_jvm_is_left_behind(end: str) -> None:
    command = [sys.executable, "-c", QUERY.format(end=ENDS[end])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    started = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    if end in SIGNALS:
        os.kill(process.pid, SIGNALS[end])
    process.wait(60)
    process.stdout.read()  # ends when nobody holds the pipe any more
    process.stdout.close()
    deadline = time.monotonic() + 30
    while any(one.is_running() for one in started) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert [one.name() for one in started if one.is_running()] == []
