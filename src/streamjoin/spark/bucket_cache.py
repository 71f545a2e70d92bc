"""Caches of a bucket's state: right or absent, never stale; nothing that must survive is here.

Two levels, both checkable because names and manifests say exactly what they stand for:

- the worker's memory keeps a join between micro-batches, under the digest of the manifest it was
  stored with. A bucket that moved, a retried or a speculative task has another digest and finds
  nothing;
- run files (`state.keepers.RunFiles`) on the executor's local disk, shared by its workers and
  memory-mapped, so that a new worker (idle ones are stopped after a minute) need not ask the state
  store. A file's name holds the content hash of its run. The folder is limited in size; the longest
  unused go first.
"""

from __future__ import annotations

import hashlib
from typing import Any


def digest(manifest: bytes) -> str:
    """Stands for one state of one bucket of one join."""
    return hashlib.blake2b(manifest, digest_size=16).hexdigest()


class JoinCache:
    """The joins of this worker, one for each bucket it has had, under the digest of their state.

    A bucket often moves to another worker and comes back later; then the digest differs. What is
    kept is small: the rows of a stored join are mapped files that all workers share.
    """

    def __init__(self) -> None:
        self._joins: dict[tuple[str, int], tuple[str, Any]] = {}

    def take(self, name: str, bucket: int, state: str) -> Any:
        """The join in exactly this state, or None; taken out: it changes as soon as it works."""
        kept, join = self._joins.pop((name, bucket), (None, None))
        return join if kept == state else None

    def put(self, name: str, bucket: int, state: str, join: Any) -> None:
        self._joins[name, bucket] = (state, join)


JOINS = JoinCache()  # lives as long as the worker's process: this module is imported, not shipped
