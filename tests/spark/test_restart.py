"""Kill the JVM, the driver or Python workers at random moments; nothing is lost or doubled."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark.streams import write_batches

pytestmark = pytest.mark.spark

BATCHES = 12
KEYS = 60


def make_input(folder: Path, seed: int, *, wide: int = 0) -> Counter[tuple[object, ...]]:
    """Two streams that close their keys, and the bag of their batch join; names are `wide` longer."""
    rng = np.random.default_rng(seed)
    ones, manys, expected = [], [], Counter()
    names = {}
    for i in range(BATCHES):
        keys = np.arange(i * KEYS, (i + 1) * KEYS)
        names |= {int(key): f"name-{key}{rng.bytes(wide // 2).hex()}" for key in keys}
        ones.append(pa.table({"k": keys, "a": [names[int(key)] for key in keys]}))
        low = max(0, (i - 2) * KEYS)
        k = rng.integers(low, (i + 1) * KEYS, 400)
        b = rng.integers(0, 1000, 400)
        expected.update((int(key), names[int(key)], int(value)) for key, value in zip(k, b, strict=True))
        ended = np.arange(max(0, (i - 2) * KEYS), max(0, (i - 1) * KEYS))
        rows = pa.table({"k": k, "b": b, "is_end": np.zeros(len(k), bool)})
        ends = pa.table(
            {"k": ended, "b": pa.nulls(len(ended), pa.int64()), "is_end": np.ones(len(ended), bool)}
        )
        manys.append(pa.concat_tables([rows, ends]))
    write_batches(folder / "one", ones)
    write_batches(folder / "many", manys)
    return expected


@dataclass
class Attempt:
    """One child process, its JVM and its workers."""

    process: subprocess.Popen

    @classmethod
    def start(cls, folder: Path, *, within: Sequence[str] = ()) -> "Attempt":
        command = [*within, sys.executable, "-m", "tests.spark.restart_child", str(folder)]
        with (folder / "errors.log").open("wb") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        return cls(process)

    def wait_for_batch(self) -> str | None:
        """The next line the child prints, None when it ends."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        return line or None

    def victims(self, kind: str) -> list[int]:
        """Process ids of one kind now; processes come and go meanwhile."""
        if self.process.poll() is not None:
            return []
        if kind == "driver":
            return [self.process.pid]
        found: dict[str, dict[int, int]] = {"jvm": {}, "worker": {}}  # process id: its parent's
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if process.name() == "java":
                    found["jvm"][process.pid] = process.ppid()
                elif "spark.daemon" in " ".join(process.cmdline()):
                    found["worker"][process.pid] = process.ppid()
        if kind == "worker":  # those whose parent is the daemon, not the daemon itself
            return [pid for pid, parent in found["worker"].items() if parent in found["worker"]]
        return list(found["jvm"])

    def kill(self, kind: str, delay: float) -> list[int]:
        """Kill what there is of a kind, `delay` seconds after the first of it was seen.

        The first Python worker starts a second or two after the first batch began.
        """
        limit = time.monotonic() + 60
        while not self.victims(kind) and time.monotonic() < limit:
            time.sleep(0.05)
        time.sleep(delay)
        killed = []
        for pid in self.victims(kind):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
        if kind == "worker":
            with contextlib.suppress(subprocess.TimeoutExpired):  # its query fails, and so the command
                self.process.wait(5)
        return killed

    def end(self) -> None:
        tree = [self.process.pid]
        with contextlib.suppress(psutil.Error):
            tree += [child.pid for child in psutil.Process(self.process.pid).children(recursive=True)]
        for pid in tree:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def kill_until_done(folder: Path, kills: int, seed: int, *, after: int = 1) -> list[str]:
    """Kill `kills` attempts, each at a seeded moment after its first batch began; then let one finish.

    With `after`, up to so many lines are read first: two for every batch.
    """
    moments = random.Random(seed)
    kinds = (["worker", "jvm", "driver"] * kills)[:kills]
    moments.shuffle(kinds)
    log = []
    for number, kind in enumerate(kinds):
        attempt = Attempt.start(folder)
        delay = moments.uniform(0, 1.5)
        line = None
        for _ in range(moments.randint(1, after) if after > 1 else 1):
            line = attempt.wait_for_batch()
        assert line is not None, f"attempt {number} gave no batch (seed {seed}): {errors(folder)}"
        assert line != "done", f"attempt {number} had nothing left to do (seed {seed}, {log})"
        killed = attempt.kill(kind, delay)
        assert killed, f"attempt {number} found no {kind} to kill (seed {seed}, {log})"
        log.append(f"{len(killed)} {kind} {delay:.2f} s after {line!r}")
        attempt.end()
    last = Attempt.start(folder)
    lines = []
    while (line := last.wait_for_batch()) is not None:
        lines.append(line)
    assert lines[-1:] == ["done"], f"the last attempt failed (seed {seed}, {log}): {errors(folder)}"
    last.end()
    return log


def errors(folder: Path, characters: int = 3000) -> str:
    return (folder / "errors.log").read_text(errors="replace")[-characters:]


def content(folder: Path, kind: str) -> Counter[tuple[object, ...]]:
    bag: Counter[tuple[object, ...]] = Counter()
    for path in sorted((folder / "out").glob(f"{kind}*.parquet")):
        table = pq.read_table(path)
        bag.update(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return bag


def check(folder: Path, kills: int, seed: int, memory: str | None = None) -> None:
    expected = make_input(folder, seed, wide=0 if memory is None else 20_000)
    if memory is not None:
        (folder / "memory").write_text(memory)
    log = kill_until_done(folder, kills, seed)
    print(log)
    assert content(folder, "rows") == expected, f"seed {seed}: {log}"
    propagated = Counter(row[0] for row in content(folder, "punctuations").elements())
    ended = set(range((BATCHES - 2) * KEYS))
    assert propagated == Counter(ended), f"seed {seed}: {log}"


def grouped(rows: Counter[tuple[object, ...]]) -> Counter[tuple[object, ...]]:
    """The final rows of the keys that end."""
    groups: dict[tuple[int, object], list[int]] = {}
    for k, a, b in rows.elements():
        if k < (BATCHES - 2) * KEYS:
            groups.setdefault((k, a), []).append(b)
    return Counter((*group, len(bs), sum(bs), max(bs)) for group, bs in groups.items())


@pytest.mark.systems
@pytest.mark.parametrize("seed", [4, pytest.param(5, marks=pytest.mark.slow)])
def test_five_kills_lose_and_double_no_group(tmp_path: Path, seed: int) -> None:
    expected = grouped(make_input(tmp_path, seed))
    (tmp_path / "grouped").touch()
    log = kill_until_done(tmp_path, 5, seed)
    assert content(tmp_path, "rows") == expected, f"seed {seed}: {log}"


@pytest.mark.systems
def test_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    check(tmp_path, kills=3, seed=2026)


@pytest.mark.systems
@pytest.mark.parametrize("seed", [6, pytest.param(7, marks=pytest.mark.slow)])
def test_five_kills_lose_and_double_nothing_that_left_memory(tmp_path: Path, seed: int) -> None:
    check(tmp_path, kills=5, seed=seed, memory="3 MB")


@pytest.mark.systems
@pytest.mark.parametrize("seed", [9, pytest.param(10, marks=pytest.mark.slow)])
def test_kills_lose_and_double_nothing_of_four_streams_on_two_keys(tmp_path: Path, seed: int) -> None:
    expected = make_input(tmp_path, seed)
    for i, name in enumerate(("color", "shape")):
        b = np.random.default_rng([seed, i]).permutation(1000)
        parts = [pa.table({"b": some, name: [f"{name}{one}" for one in some]}) for some in np.split(b, 10)]
        write_batches(tmp_path / name, parts)
    log = kill_until_done(tmp_path, 3, seed)
    wider = Counter({(*row, f"color{row[2]}", f"shape{row[2]}"): n for row, n in expected.items()})
    assert content(tmp_path, "rows") == wider, f"seed {seed}: {log}"


# All of Spark's local files on a disk of 14 MB, in a mount namespace of its own; the checkpoint is elsewhere.
SMALL_DISK = """
set -e
mount -t tmpfs -o size=14m small "$1"
export SPARK_LOCAL_DIRS="$1" TMPDIR="$1"
shift
exec "$@"
"""


@pytest.mark.systems
def test_a_full_disk_fails_the_query_and_a_restart_goes_on(tmp_path: Path) -> None:
    probe = ["unshare", "-rm", "mount", "-t", "tmpfs", "small", str(tmp_path)]
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("needs unshare and user namespaces, to mount a small disk")
    expected = make_input(tmp_path, 8, wide=40_000)
    (tmp_path / "memory").write_text("3 MB")
    (tmp_path / "small").mkdir()
    within = ["unshare", "-rm", "sh", "-c", SMALL_DISK, "sh", str(tmp_path / "small")]
    attempt = Attempt.start(tmp_path, within=within)
    lines = []
    while (line := attempt.wait_for_batch()) is not None:
        lines.append(line)
    assert attempt.process.wait(60) != 0, "the disk was never full"
    attempt.end()
    assert "No space left on device" in errors(tmp_path, characters=1_000_000)
    assert lines, "it failed before its first batch"
    kill_until_done(tmp_path, 0, seed=8)
    assert content(tmp_path, "rows") == expected


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3, 2026])
def test_five_more_kills_lose_and_double_nothing(tmp_path: Path, seed: int) -> None:
    check(tmp_path, kills=5, seed=seed)
