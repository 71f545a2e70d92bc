"""Pending purge: keys that punctuations have closed and that are not purged yet.

They wait for the purge strategy (batch purging), or for deferred matches of their key. They are few, so
they are part of the manifest itself, not runs. A key may stand here more than once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamjoin.columnar.batch import Batch, Layout, Mask, concat
from streamjoin.columnar.keys import checksum
from streamjoin.state.closed_keys import KeyPatterns, pattern_mask
from streamjoin.state.codec import decode_run, encode_run
from streamjoin.state.component import HashRange, Holds, StateComponent
from streamjoin.state.run import Run, match


class PendingPurge(StateComponent):
    """Batches of keys in the order in which they were closed; none is empty."""

    holds: Holds = "pending"

    def __init__(self, layout: Layout, name: str = "pending_purge") -> None:
        self.layout, self.name = layout.keys_only, name
        self.batches: list[Batch] = []

    def __len__(self) -> int:
        return sum(map(len, self.batches))

    @property
    def state_rows(self) -> int:
        return len(self)

    def add(self, keys: Batch) -> None:
        """Keys that wait from now on."""
        if len(keys):
            self.batches.append(keys)

    def take(self) -> Batch:
        """The distinct keys, sorted; none waits any more."""
        keys = concat(self.layout, self.batches).sorted().distinct_keys()
        self.batches = []
        return keys

    def among(self, keys: Batch) -> Mask:
        """Which keys of a sorted batch without repeats wait."""
        waits: Mask = np.zeros(len(keys), np.bool_)
        for batch in self.batches:
            waits[match(keys, Run("pending", batch.sorted())).probe] = True
        return waits

    def take_matching(self, chosen: Sequence[KeyPatterns]) -> Batch:
        """The distinct keys, sorted, that match one of these patterns; they wait no longer."""
        if not chosen or not self.batches:
            return self.layout.empty()
        keys = self.take()
        mask: Mask = np.zeros(len(keys), np.bool_)
        for patterns in chosen:
            mask |= pattern_mask(patterns, keys.keys)
        self.add(keys.where(~mask))
        return keys.where(mask)

    def discard(self, over: Batch) -> None:
        """Keys (sorted, distinct) that need no purge any more."""
        self.batches = [left for batch in self.batches if len(left := _without(batch, over))]

    def to_json(self) -> Any:
        return [encode_run(concat(self.layout, self.batches)).hex()] if self.batches else []

    def restore(self, part: Any) -> None:
        self.batches = [decode_run(bytes.fromhex(value), self.layout) for value in part]

    def merge(self, parts: Sequence[Any]) -> Any:
        return [value for part in parts for value in part]

    def split(self, whole: Any, hashes: HashRange) -> Any:
        """A key goes to the bucket of its hash."""
        keys = self._decoded(whole)
        here = keys.where(hashes.mask(keys.hash))
        return [encode_run(here).hex()] if len(here) else []

    def digest(self, whole: Any) -> Any:
        return checksum(self._decoded(whole).data.columns)

    def _decoded(self, part: Any) -> Batch:
        return concat(self.layout, [decode_run(bytes.fromhex(value), self.layout) for value in part])


def _without(keys: Batch, over: Batch) -> Batch:
    """The keys that are not among others (sorted)."""
    by_key = keys.sorted()
    hit = match(by_key, Run("over", over))
    rest: Mask = np.ones(len(by_key.groups), np.bool_)
    rest[hit.probe] = False
    return by_key.where(rest[by_key.groups.of_rows()])
