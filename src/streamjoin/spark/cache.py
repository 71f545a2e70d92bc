"""Caches of a bucket's state: right or absent, never stale; nothing that must survive is here.

Two levels, both checkable because names and manifests say exactly what they stand for:

- the worker's memory keeps a join between micro-batches, under the digest of the manifest it was
  stored with. A bucket that moved, a retried or a speculative task has another digest and finds
  nothing;
- run files on the executor's local disk, shared by its workers and memory-mapped, so that a new
  worker (idle ones are stopped after a minute) need not ask the state store. A file's name holds
  the content hash of its run. The folder is limited in size; the longest unused go first.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from streamjoin.operators.stream_join import StreamJoin

DISK_BYTES = 8 << 30


def digest(manifest: bytes) -> str:
    """Stands for one state of one bucket of one join."""
    return hashlib.blake2b(manifest, digest_size=16).hexdigest()


class JoinCache:
    """The joins of this worker, one for each bucket it has had, under the digest of their state.

    A bucket often moves to another worker and comes back later; then the digest differs. What is
    kept is small: the rows of a stored join are mapped files that all workers share.
    """

    def __init__(self) -> None:
        self._joins: dict[tuple[str, int], tuple[str, StreamJoin]] = {}

    def take(self, name: str, bucket: int, state: str) -> StreamJoin | None:
        """The join in exactly this state, taken out: it changes as soon as it works."""
        kept, join = self._joins.pop((name, bucket), (None, None))
        return join if kept == state else None

    def put(self, name: str, bucket: int, state: str, join: StreamJoin) -> None:
        self._joins[name, bucket] = (state, join)


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

    def put(self, name: str, value: bytes) -> None:
        """Keep a run; a full disk only means that it is not kept."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.folder, prefix=".", delete=False) as file:
                file.write(value)
            Path(file.name).replace(self.folder / name)
        except OSError:
            return

    def drop(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

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


JOINS = JoinCache()  # lives as long as the worker's process: this module is imported, not shipped
