"""The worker's cache of bucket operators between micro-batches: exact or absent, never stale.

An operator is cached under the digest of the manifest it was stored with. A bucket that moved, a retried or a
speculative task has another digest, finds nothing and reads the state store. Nothing that must survive is
here.

The second level of the cache is on disk: run files (`state.stores.RunFiles`) on the executor's local disk,
shared by its workers and memory-mapped, so that a new worker (Spark stops idle ones after a minute) need not
ask the state store. A file's name has the content hash of its run. The folder is limited in size; the least
recently used files are removed first.
"""

from __future__ import annotations

import hashlib
from typing import Any


def digest(manifest: bytes) -> str:
    """Stands for one state of one bucket of one join."""
    return hashlib.blake2b(manifest, digest_size=16).hexdigest()


class OperatorCache:
    """The operators of this worker, one for each bucket it has had, under the digest of their state.

    A bucket often moves to another worker and comes back later; then the digest differs. What is
    cached is small: the rows of a stored operator are mapped files that all workers share.
    """

    def __init__(self) -> None:
        self._operators: dict[tuple[str, int], tuple[str, Any]] = {}

    def take(self, name: str, bucket: int, state: str) -> Any:
        """The operator in exactly this state, or None; taken out: it changes as soon as it works."""
        found, operator = self._operators.pop((name, bucket), (None, None))
        return operator if found == state else None

    def put(self, name: str, bucket: int, state: str, operator: Any) -> None:
        self._operators[name, bucket] = (state, operator)


OPERATORS = OperatorCache()  # lives as long as the worker's process: this module is imported, not shipped
