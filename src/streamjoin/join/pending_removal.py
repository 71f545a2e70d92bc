"""Pending removal: keys that are purged, and whose tuples are still in the runs (MJoin's batch purging).

A purge has two parts. The first decides: which keys are finished, which padded rows and final groups leave.
The second removes tuples that nothing matches any more. Only the second may wait across batches, for the
purge strategy; then a few large steps remove what many small ones would. Nothing depends on when it is done:

- a row of such a key comes only as a violation, or as a new key after all inputs have closed it; before
  it takes part, the tuples of all pending keys are removed;
- so they are before ranges and patterns are applied, which look at the keys of the runs;
- tuples of preserved inputs are removed at once, since they may leave padded.

Cost: for each batch, its hashes are searched in those of the pending keys.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from streamjoin.join.arrivals import Arrivals
from streamjoin.join.operator_state import OperatorState


def removal_may_wait(state: OperatorState) -> bool:
    """Whether tuples that are purged may stay in the runs: where nothing looks at what is stored.

    A ttl counts what it loses, deferred matches and forwarded punctuations go by stored tuples.
    """
    spec = state.spec
    return not (
        spec.purges_whole
        or state.deferred.active
        or any(one.ttl_us is not None or one.forwarded for one in spec.inputs)
    )


def pending_keys(state: OperatorState) -> int:
    """The keys that wait for the purge strategy."""
    return len(state.pending_purge) + max(map(len, state.pending_removal))


def come_again(state: OperatorState, arrivals: Iterable[Arrivals]) -> bool:
    """Whether a batch has rows of keys whose tuples are to be removed."""
    pending = [keys.hash for waiting in state.pending_removal for keys in waiting.batches]
    if not pending:
        return False
    hashes = np.concatenate(pending)
    return any(bool(np.isin(one.rows.hash, hashes).any()) for one in arrivals)


def remove_purged(state: OperatorState) -> None:
    """Remove the tuples of all pending keys."""
    for waiting, side, counters in zip(
        state.pending_removal, state.sides, state.counters.inputs, strict=True
    ):
        if len(waiting):
            for hit in side.match(waiting.take()):
                counters.purged += hit.run.delete_groups(hit.start, hit.count)
