"""The stream join in one bucket: its `BucketWork`, and the names of its metrics.

Decoded blobs of each input become one `Arrivals`; the operator processes them and emits what it emits in a
local run. docs/metrics.md says what each metric counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, fields, replace

import pandas as pd

from streamjoin.join.arrivals import Arrivals
from streamjoin.join.counters import Counters
from streamjoin.join.notices import Notices
from streamjoin.join.operator import StreamJoin
from streamjoin.join.outputs import FinishedPatterns, Output
from streamjoin.join.persistence.snapshot import restore, store
from streamjoin.join.persistence.stored_spec import declared
from streamjoin.join.spec import JoinSpec
from streamjoin.join.statistics.forecast import Outlook
from streamjoin.join.statistics.monitor import Seen
from streamjoin.join.wire import from_bytes, together
from streamjoin.spark.exchange import first_label
from streamjoin.spark.processor import CALLS, TIMES
from streamjoin.spark.state_store import BucketRunStore
from streamjoin.state.manifest import Manifest
from streamjoin.state.run import Run

_NOTICES = Notices()  # of this worker process, over all its buckets
COUNTERS = tuple(field.name for field in fields(Counters))
STATE = ("state_rows", "state_bytes", "closed_keys", "deferred", "resident_bytes", "groups")
GAUGES = (*STATE, "predicted_rows", "predicted_bytes")
MONITOR = tuple(field.name for field in (*fields(Seen), *fields(Outlook)))
TOTALS = ("results", "propagated_keys", "driver_fallbacks")


def metric_names(spec: JoinSpec) -> list[str]:
    """The metrics of one bucket and batch, as a bucket reports them; `monitor_names` follow."""
    counted = [f"{one.name}_{counter}" for one in spec.inputs for counter in COUNTERS]
    return [*counted, *TOTALS, *CALLS, *TIMES, *GAUGES]


def monitor_names(spec: JoinSpec) -> list[str]:
    """What the constraint monitor measured of each input, and its forecast."""
    return [f"{one.name}_{figure}" for one in spec.inputs for figure in MONITOR]


@dataclass(frozen=True)
class JoinBucket:
    """The stream join's part of the bucket processor; `ends`: batch inputs, after which nothing follows."""

    spec: JoinSpec
    cache_name: str
    ends: bool = False

    @property
    def limits_memory(self) -> bool:
        return self.spec.memory_share is not None

    def identity(self) -> Manifest:
        return Manifest(self.spec.identity(), {}, declared(self.spec))

    def receive(self, frames: Iterator[pd.DataFrame]) -> dict[int, Arrivals]:
        """What arrived on each input."""
        shares: dict[int, list[Arrivals]] = {}
        for frame in frames:
            for number, blob in zip(frame["input"], frame["blob"], strict=True):
                shares.setdefault(number, []).append(from_bytes(blob, self.spec.inputs[number].layout))
        arrivals = {
            number: together(self.spec.inputs[number].layout, found)
            for number, found in sorted(shares.items())
        }
        if not self.ends:
            return arrivals
        return {number: arrived.and_nothing_more() for number, arrived in arrivals.items()}

    def create(self, label: int, received: dict[int, Arrivals]) -> StreamJoin:
        return StreamJoin(self.spec)

    def fits(self, operator: StreamJoin) -> bool:
        """Whether nothing was changed that a restart may change: a ttl, the memory, strategies.

        Conditions cannot be compared; that they are the same is part of the cache's name.
        """
        return replace(operator.spec, where=None) == replace(self.spec, where=None)

    def restore(self, label: int, manifest: Manifest, run_store: BucketRunStore) -> StreamJoin:
        return restore(self.spec, manifest, run_store)

    def process(
        self,
        operator: StreamJoin,
        received: dict[int, Arrivals],
        label: int,
    ) -> Iterator[Output]:
        """One batch; ranges leave every bucket in the same batch, so the first one speaks for all."""
        outputs = _NOTICES.watched(self.spec, operator.process(received))
        if self.spec.feeds_join or label == first_label(self.spec.buckets):
            return outputs
        return (one for one in outputs if not isinstance(one, FinishedPatterns))

    def store(self, operator: StreamJoin, save: Callable[[Run], str]) -> Manifest:
        return store(operator, save)

    def totals(self, operator: StreamJoin) -> list[int]:
        counted = [getattr(counters, name) for counters in operator.counters for name in COUNTERS]
        return [*counted, operator.results, operator.propagated_keys, operator.fallbacks]

    def arrived(self, received: dict[int, Arrivals]) -> list[int]:
        """The operator counts everything itself."""
        return []

    def gauges(self, operator: StreamJoin) -> list[int]:
        outlook = operator.outlook()
        predicted_rows = sum(one.predicted_rows for one in outlook)
        predicted_bytes = round(operator.calibration.predicted_bytes())
        monitor = [
            value
            for seen, forecast in zip(operator.seen(), outlook, strict=True)
            for value in (*astuple(seen), *astuple(forecast))
        ]
        return [*astuple(operator.state_size()), predicted_rows, predicted_bytes, *monitor]
