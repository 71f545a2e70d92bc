"""State inspection: the state size of the joins of a checkpoint and what bounds it, bucket by bucket."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamjoin.errors import InvalidJoin
from streamjoin.join.persistence.inspect import InspectedState, inspect
from streamjoin.join.persistence.rebucket import unknown_runs
from streamjoin.plan.enrich.state_report import EnrichSize, EnrichState
from streamjoin.plan.state_report import JoinState
from streamjoin.spark.checkpoint.reader import Checkpoint, StoredEnrich, StoredJoin, stored_joins


def join_states(
    checkpoint: Checkpoint, *, join: str | None = None, bucket: int | None = None
) -> list[JoinState | EnrichState]:
    """The state of every join, or of the one that is named; of all buckets, or of one."""
    with tempfile.TemporaryDirectory(prefix="streamjoin-state-") as folder:
        found = stored_joins(checkpoint, Path(folder), bucket=bucket)
        states = [_state(stored) for stored in found if join in (None, stored.name)]
        names = [stored.name for stored in found]
        if join is not None and join not in names:
            raise InvalidJoin(f"there is no join {join!r} here; give one of {', '.join(names)}")
        return states


def _state(stored: StoredJoin | StoredEnrich) -> JoinState | EnrichState:
    if isinstance(stored, StoredEnrich):
        held_by = {number: EnrichSize.of(manifest) for number, manifest in stored.manifests.items()}
        return EnrichState(stored.operator.number, stored.identity, held_by)
    buckets: dict[int, InspectedState] = {}
    watermarks: tuple[int, ...] = ()
    for number, manifest in stored.manifests.items():
        opened = stored.open(number)
        found, more = inspect(opened), unknown_runs(stored.spec, [manifest])
        buckets[number] = replace(found, other_rows={**found.other_rows, **more})
        watermarks = tuple(opened.watermarks)
    return JoinState(stored.operator.number, stored.spec, watermarks, buckets, stored.guard.facts)


def about(checkpoint: Checkpoint) -> dict[str, Any]:
    """The committed and the planned batch of the checkpoint, as plain JSON."""
    return {
        "checkpoint": checkpoint.folder,
        "batch": checkpoint.committed,
        "planned_batch": checkpoint.planned,
    }
