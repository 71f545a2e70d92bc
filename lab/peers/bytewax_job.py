"""An equi-join as a bytewax dataflow, two processes of one worker; run by the Python of its environment.

It imports nothing of this library. bytewax's own `join` keeps one value a side for a key, or gives the whole
product again with each value, so the join is written with its `stateful_batch`: for each key a list of values
a side, and a row for each new pair. Inputs are `<input>.csv` with the key first and one value after it.
State is kept for recovery in SQLite, a snapshot of the keys touched every 10 s. Its `join_window` joins what
is in the same window, not what is close in time, so of the works it does two-way and three-way only.

Task, as JSON in the first argument: engine, detail, folder, inputs, weights. Start-up is the imports and the
second process; the job begins when both are ready to run the dataflow.
"""

from __future__ import annotations

import csv
import json
import multiprocessing
import resource
import socket
import sys
import tempfile
import time
from datetime import timedelta
from itertools import islice, product
from pathlib import Path
from typing import Any

BEGAN = time.time()
BATCH_ROWS = 1_000
PROCESSES = 2


def dataflow(task: dict[str, Any], sums: dict[str, Any]) -> Any:
    """The join; what leaves it is added to `sums`."""
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
    from bytewax.operators import StatefulBatchLogic
    from bytewax.outputs import DynamicSink, StatelessSinkPartition

    class Rows(StatefulSourcePartition[Any, int]):  # type: ignore[misc]
        def __init__(self, path: Path, side: int, resume: int | None) -> None:
            self.side, self.read = side, resume or 0
            self.file = path.open(newline="")
            self.rows = islice(csv.reader(self.file), self.read, None)

        def next_batch(self) -> Any:
            batch = [(key, (self.side, int(value))) for key, value in islice(self.rows, BATCH_ROWS)]
            if not batch:
                raise StopIteration
            self.read += len(batch)
            return batch

        def snapshot(self) -> int:
            return self.read

        def close(self) -> None:
            self.file.close()

    class File(FixedPartitionedSource[Any, int]):  # type: ignore[misc]
        def __init__(self, path: Path, side: int) -> None:
            self.path, self.side = path, side

        def list_parts(self) -> list[str]:
            return [self.path.name]

        def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Rows:
            return Rows(self.path, self.side, resume_state)

    class Join(StatefulBatchLogic[Any, Any, Any]):  # type: ignore[misc]
        def __init__(self, resume: Any) -> None:
            self.held = resume or [[] for _ in task["inputs"]]

        def on_batch(self, values: Any) -> tuple[Any, bool]:
            rows: list[Any] = []
            for side, value in values:
                rows.extend(product(*[*self.held[:side], [value], *self.held[side + 1 :]]))
                self.held[side].append(value)
            return rows, StatefulBatchLogic.RETAIN

        def snapshot(self) -> Any:
            return [list(values) for values in self.held]

    class Sums(StatelessSinkPartition[Any]):  # type: ignore[misc]
        def write_batch(self, items: list[Any]) -> None:
            if items and sums["first"] is None:
                sums["first"] = time.time()
            sums["rows"] += len(items)
            for key, values in items:
                weighted = sum(w * v for w, v in zip(task["weights"], values, strict=False))
                sums["sum"] += sum(values)
                sums["mix"] += (weighted % 1_000_003) * (int(key) % 1_009)

    class Out(DynamicSink[Any]):  # type: ignore[misc]
        def build(self, step_id: str, worker_index: int, worker_count: int) -> Sums:
            return Sums()

    flow = Dataflow("join")
    files = [Path(task["folder"]) / f"{name}.csv" for name in task["inputs"]]
    sides = [op.input(path.stem, flow, File(path, side)) for side, path in enumerate(files)]
    op.output("out", op.stateful_batch("joined", op.merge("both", *sides), Join), Out())
    return flow


def work(task: dict[str, Any], number: int, addresses: list[str], ready: Any, results: Any) -> None:
    """One process: its part of the dataflow, then its part of the sums."""
    from bytewax.recovery import RecoveryConfig
    from bytewax.testing import cluster_main

    sums: dict[str, Any] = {"rows": 0, "sum": 0, "mix": 0, "first": None}
    flow = dataflow(task, sums)
    ready.wait()
    began, cpu = time.time(), time.process_time()
    cluster_main(
        flow,
        addresses,
        number,
        epoch_interval=timedelta(seconds=10),
        recovery_config=RecoveryConfig(task["recovery"]),
    )
    results.put({**sums, "began": began, "ended": time.time(), "cpu": time.process_time() - cpu})


def free_addresses(count: int) -> list[str]:
    """Of loopback."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    found = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return found


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Start both processes, wait for them, add up."""
    from bytewax.recovery import init_db_dir

    task["recovery"].mkdir()
    init_db_dir(task["recovery"], PROCESSES)
    context = multiprocessing.get_context("spawn")
    ready, results = context.Barrier(PROCESSES), context.Queue()
    addresses = free_addresses(PROCESSES)
    processes = [
        context.Process(target=work, args=(task, number, addresses, ready, results))
        for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    found = [results.get() for _ in processes]
    for process in processes:
        process.join()
    began, ended = min(one["began"] for one in found), max(one["ended"] for one in found)
    firsts = [one["first"] for one in found if one["first"] is not None]
    size = sum(path.stat().st_size for path in task["recovery"].rglob("*") if path.is_file())
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {
        "engine": task["engine"],
        "detail": task["detail"],
        "startup_s": began - BEGAN,
        "wall_s": ended - began,
        "cpu_s": sum(one["cpu"] for one in found),
        "answer": {name: sum(one[name] for one in found) for name in ("rows", "sum", "mix")},
        "first_result_s": min(firsts) - began if firsts else None,
        "state": [(ended - began, None, size)],
        "extra": {"largest_process_bytes": largest * 1024},
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="streamjoin-bytewax-", ignore_cleanup_errors=True) as folder:
        print(json.dumps(run({**json.loads(sys.argv[1]), "recovery": Path(folder) / "recovery"})))
