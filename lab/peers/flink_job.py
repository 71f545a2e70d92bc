"""One Flink job, in a process and a JVM of its own; run by the Python of Flink's environment.

It imports nothing of this library. It reads its task as JSON from the first argument (tables, views, a
query, settings), runs the query in a local cluster with parallelism 2, and prints one line of JSON as
`work.Measured` describes it. The query's rows are counted and summed by an aggregate on top of it, which
prints to stdout: its last row is the answer, the time of its first is the time to the first result (Flink
collects up to two seconds of rows in a mini-batch). The job begins when Flink calls it RUNNING, what comes
before is start-up, and ends with its last result: at the end of its input Flink waits for one more
checkpoint, which is left out.

State over time: what Flink's REST interface says of each completed checkpoint, in bytes; it does not count
rows. CPU: of the JVM since the job was submitted.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from threading import Event, Thread
from typing import Any

BEGAN = time.time()
ANSWER = "CREATE TABLE `answer` (`rows` BIGINT, `sum` BIGINT, `mix` BIGINT) WITH ('connector' = 'print')"
BACKENDS = {"heap": "hashmap", "rocksdb": "rocksdb"}
SETTINGS = {
    "parallelism.default": "2",
    "pipeline.object-reuse": "true",
    "restart-strategy.type": "none",
    "taskmanager.memory.managed.size": "2g",
    "taskmanager.numberOfTaskSlots": "2",
    "execution.checkpointing.interval": "10 s",
    "execution.checkpointing.incremental": "true",
    "execution.checkpointing.storage": "filesystem",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "50000",
    "table.local-time-zone": "UTC",
    "rest.address": "127.0.0.1",
    "rest.bind-address": "127.0.0.1",
}


class Watch:
    """What a running job says of itself, asked every 100 ms, until `over`."""

    def __init__(self, jobs: str, job: str, printed: Path) -> None:
        self.url, self.printed, self.over = f"{jobs}/{job}", printed, Event()
        self.running: float | None = None
        self.first: float | None = None
        self.checkpoints: dict[int, tuple[float, int]] = {}
        self.thread = Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _watch(self) -> None:
        turn = 0
        while not self.over.wait(0.1):
            if self.first is None and self.printed.exists() and self.printed.stat().st_size:
                self.first = time.time()
            turn += 1
            if self.running is None or turn % 5 == 0:
                self._ask()

    def _ask(self) -> None:
        try:
            if self.running is None:
                self.running = self._get("")["timestamps"]["RUNNING"] / 1000 or None
            for each in self._get("/checkpoints")["history"]:
                if each["status"] == "COMPLETED":
                    at = (each["trigger_timestamp"] + each["end_to_end_duration"]) / 1000
                    self.checkpoints[each["id"]] = (at, each["state_size"])
        except (OSError, ValueError, KeyError):
            return  # not up yet, or gone with its job

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=5) as reply:  # noqa: S310  # of loopback
            return json.load(reply)

    def stop(self) -> None:
        self.over.set()
        self.thread.join()


def environment(task: dict[str, Any], folder: Path, port: int) -> Any:
    """A table environment with the settings of this task; starts the JVM."""
    from pyflink.common import Configuration
    from pyflink.table import EnvironmentSettings, TableEnvironment

    chosen = {
        **SETTINGS,
        "state.backend.type": BACKENDS[task["backend"]],
        "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
        "io.tmp.dirs": str(folder),
        "rest.port": str(port),
        "rest.bind-port": str(port),
        **({"pipeline.jars": ";".join(Path(jar).as_uri() for jar in task["jars"])} if task["jars"] else {}),
        **task["settings"],
    }
    configuration = Configuration()
    for name, value in chosen.items():
        configuration.set_string(name, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration)
    return TableEnvironment.create(settings.build())


def cpu_seconds() -> float:
    """Of the JVM and this process."""
    from pyflink.java_gateway import get_gateway

    info = get_gateway().jvm.java.lang.ProcessHandle.current().info()
    return float(info.totalCpuDuration().get().toMillis()) / 1000 + time.process_time()


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def run(task: dict[str, Any], folder: Path, printed: Path) -> dict[str, Any]:
    """Start, run until the files are read, measure."""
    port = free_port()
    tables = environment(task, folder, port)
    for statement in [*task["tables"], ANSWER]:
        tables.execute_sql(statement)
    query = (
        f"SELECT COUNT(*), COALESCE(SUM({task['plain']}), 0), COALESCE(SUM({task['mixed']}), 0) "  # noqa: S608
        f"FROM ({task['query']})"
    )
    plan = tables.explain_sql(query)
    before, submitted = cpu_seconds(), time.time()
    result = tables.execute_sql(f"INSERT INTO `answer` {query}")
    watch = Watch(f"http://127.0.0.1:{port}/jobs", str(result.get_job_client().get_job_id()), printed)
    result.wait()
    ended = time.time()
    watch.stop()
    cpu = cpu_seconds() - before
    running = watch.running or submitted
    rows = [line for line in printed.read_text().splitlines() if line.startswith(("+I[", "+U["))]
    found = [int(number) for number in rows[-1][3:-1].split(",")] if rows else [0, 0, 0]
    last = printed.stat().st_mtime if rows else ended
    first = watch.first or (last if rows else None)
    return {
        "engine": task["engine"],
        "detail": task["detail"],
        "startup_s": running - BEGAN,
        "wall_s": last - running,
        "cpu_s": cpu,
        "answer": dict(zip(("rows", "sum", "mix"), found, strict=True)),
        "first_result_s": None if first is None else first - running,
        "state": [(at - running, None, size) for at, size in sorted(watch.checkpoints.values())],
        "extra": {"until_finished_s": ended - running, "plan": plan.partition("Execution Plan ==")[2]},
    }


def main() -> None:
    """Run the task of the first argument and print what was seen."""
    task = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="streamjoin-flink-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        printed = folder / "printed"
        os.environ["FLINK_LOG_DIR"] = name
        os.environ["JVM_ARGS"] = "-Xmx6g"
        terminal = os.dup(1)
        with printed.open("wb") as file:
            os.dup2(file.fileno(), 1)  # before the JVM starts: its print connector writes there
        try:
            found = run(task, folder, printed)
        except Exception as error:  # noqa: BLE001  # a Java error is a hundred lines: its causes are enough
            causes = [line for line in str(error).splitlines() if line.startswith("Caused by")]
            sys.exit("\n".join(causes[-3:]) or repr(error)[-2000:])
        os.write(terminal, (json.dumps(found) + "\n").encode())


if __name__ == "__main__":
    main()
