"""The state of an input's arrival order: a component around its follower (`arrival_order`).

Of clustered arrival the last few keys are stored, and each goes with the bucket of its hash. Of ordered
arrival the last few values of each partition are stored; every bucket has the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin.columnar.keys import checksum, hash_keys
from streamjoin.join.arrival_order import ClusterFollower, Follower
from streamjoin.state.codec import batch_bytes, decode_batch
from streamjoin.state.component import HashRange, StateComponent, agreed


class FollowerState(StateComponent):
    """What a follower has seen; its JSON part is the widest slack and the rows of its state."""

    def __init__(self, follower: Follower, number: int) -> None:
        self.name, self.input = f"arrival_order {number}", number
        self.follower = follower

    @property
    def _clustered(self) -> bool:
        return isinstance(self.follower, ClusterFollower)

    def to_json(self) -> Any:
        return [self.follower.widest_slack, _encoded(self.follower.state())]

    def restore(self, part: Any) -> None:
        self.follower.widest_slack = part[0]
        self.follower.restore(_decoded(part))

    def merge(self, parts: Sequence[Any]) -> Any:
        rows = [_decoded(part) for part in parts]
        whole = pa.concat_batches(rows) if self._clustered else self._agreed(rows)
        return [max(part[0] for part in parts), _encoded(whole)]

    def _agreed(self, rows: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """The values of an ordered input, by partition; within one their order counts."""
        by_partition = [
            batch.take(pa.array(np.argsort(batch.column(0).to_numpy(), kind="stable"))) for batch in rows
        ]
        agreed(self.name, [hash_keys(batch.columns).tolist() for batch in by_partition])  # NaN equals NaN
        return by_partition[0]

    def split(self, whole: Any, hashes: HashRange) -> Any:
        if not self._clustered:
            return whole
        rows = _decoded(whole)
        return [whole[0], _encoded(rows.filter(pa.array(hashes.mask(rows.column(0).to_numpy()))))]

    def digest(self, whole: Any) -> Any:
        return whole[0], checksum(_decoded(whole).columns)


def _encoded(rows: pa.RecordBatch) -> str:
    return bytes(batch_bytes(rows)).hex()


def _decoded(part: Any) -> pa.RecordBatch:
    return decode_batch(bytes.fromhex(part[1]))
