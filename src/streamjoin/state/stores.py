"""Run stores: where runs are stored outside of memory; as bytes of a snapshot, or as memory-mapped files.

A mapped file costs memory only for the pages that a probe touches, and only while it is mapped.
Spark's state store is the third place; it is in `spark.state_store`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamjoin.columnar.batch import Batch, Layout, Places
from streamjoin.errors import LimitExceeded
from streamjoin.state.codec import decode_run, encode_run
from streamjoin.state.run import Run

DISK_BYTES = 8 << 30


def encoded(run: Run) -> tuple[str, bytes]:
    """The rows of a run as bytes, and the name under which no other bytes are ever stored."""
    value = encode_run(run.batch)
    return f"{run.name}-{hashlib.blake2b(value, digest_size=8).hexdigest()}", value


@dataclass
class InMemoryRuns:
    """Runs as the bytes of a snapshot, in memory."""

    values: dict[str, Any] = field(default_factory=dict)

    def put(self, name: str, value: Any) -> None:
        self.values[name] = value

    def save(self, run: Run) -> str:
        name, value = encoded(run)
        self.put(name, value)
        return name

    def load(self, name: str, layout: Layout, places: Places | None = None) -> Batch:
        return decode_run(self.values[name], layout, places=places)


@dataclass
class RunFiles:
    """Runs as files that several workers map; written once, whole, under their own name."""

    folder: Path
    limit_bytes: int = DISK_BYTES

    def get(self, name: str) -> pa.Buffer | None:
        """A run's bytes, mapped into memory; None where there is no such file."""
        path = self.folder / name
        try:
            with pa.memory_map(str(path)) as source:
                os.utime(path)
                return source.read_buffer()
        except (FileNotFoundError, OSError):
            return None

    def write(self, name: str, value: Any) -> None:
        """Store a run; raises OSError where that fails, and leaves nothing behind."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self.folder, prefix=".", delete=False) as file:
            try:
                file.write(value)
                file.flush()
            except OSError:
                Path(file.name).unlink(missing_ok=True)
                raise
        Path(file.name).replace(self.folder / name)

    def put(self, name: str, value: Any) -> None:
        """Store a run; a full disk only means that it is not stored."""
        try:
            self.write(name, value)
        except OSError:
            return

    def drop(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    def keep_only(self, names: Collection[str | None]) -> None:
        """Remove every file but these."""
        for path in self.folder.iterdir() if self.folder.exists() else ():
            if path.name not in names:
                path.unlink(missing_ok=True)

    def shrink(self) -> None:
        """Remove the longest unused files beyond the limit."""
        try:
            files = [(entry.stat(), entry.path) for entry in os.scandir(self.folder)]
        except OSError:
            return
        total = sum(stat.st_size for stat, _ in files)
        for stat, path in sorted(files, key=lambda file: file[0].st_mtime):
            if total <= self.limit_bytes:
                return
            Path(path).unlink(missing_ok=True)
            total -= stat.st_size


class SpillFolder:
    """The disk-resident part of a local run: files in a folder of its own, deleted with this object."""

    def __init__(self) -> None:
        try:
            folder = tempfile.mkdtemp(prefix="streamjoin-spill-")
        except OSError as error:
            raise LimitExceeded(
                f"no folder to spill to in {tempfile.gettempdir()} ({error.strerror}); set TMPDIR to a "
                "folder that can be written, or leave memory= out"
            ) from error
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.files = RunFiles(Path(folder))

    def put(self, name: str, value: Any) -> None:
        """Write a run; what cannot be written ends the run, whose last snapshot stays good."""
        try:
            self.files.write(name, value)
        except OSError as error:
            raise LimitExceeded(
                f"no room to spill {memoryview(value).nbytes:,} bytes to {self.files.folder} "
                f"({error.strerror}); free some disk or set TMPDIR to another one, and go on from the "
                "last snapshot"
            ) from error

    def save(self, run: Run) -> str:
        name, value = encoded(run)
        self.put(name, value)
        return name

    def load(self, name: str, layout: Layout, places: Places | None = None) -> Batch:
        mapped = self.files.get(name)
        if mapped is None:
            raise LimitExceeded(
                f"the spilled run {name} is missing from {self.files.folder}; go on from the last snapshot"
            )
        return decode_run(mapped, layout, places=places, check=False)
