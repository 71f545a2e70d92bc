"""Counters of a join: what happened on each input, and to the join as a whole, since it began.

They are summed over buckets. Rebucketing leaves the sums with the first new bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from streamjoin.state.component import HashRange, StateComponent

_TOTALS = ("results", "propagated_keys", "fallbacks")


@dataclass(slots=True)
class Counters:
    """What happened on one input, in rows unless the name says otherwise."""

    rows: int = 0
    null_keys: int = 0
    stored: int = 0
    not_stored: int = 0  # joined, and nothing that comes later can join them
    purged: int = 0
    invalidated: int = 0
    expired: int = 0  # evicted by the ttl: lost
    punctuations: int = 0
    null_time: int = 0
    late: int = 0
    duplicate_key: int = 0
    after_punctuation: int = 0
    null_punctuation: int = 0
    control_rows_with_data: int = 0  # punctuations that have data, which is not joined
    probes: int = 0  # lookups: of each row in the first other input, of each partial result in the next
    intermediate: int = 0  # combinations of its rows with some, not all others
    padded: int = 0
    filtered: int = 0  # fail a condition on this input alone: they match nothing and are not stored
    reordered: int = 0  # processed after rows of their batch that another input waits for


class JoinCounters(StateComponent):
    """The counters of all inputs, and of the join: results, propagated keys, and batches in which the
    driver did not know what it needs (`fallbacks`). `step` numbers the batches and so names runs.
    """

    name = "counters"

    def __init__(self, inputs: int) -> None:
        self.inputs = [Counters() for _ in range(inputs)]
        self.results = 0
        self.propagated_keys = 0
        self.fallbacks = 0
        self.step = 0

    def to_json(self) -> Any:
        totals = {name: getattr(self, name) for name in _TOTALS}
        return {"inputs": [asdict(one) for one in self.inputs], **totals, "step": self.step}

    def restore(self, part: Any) -> None:
        self.inputs[:] = [Counters(**one) for one in part["inputs"]]
        for name in (*_TOTALS, "step"):
            setattr(self, name, part[name])

    def merge(self, parts: Sequence[Any]) -> Any:
        by_input = zip(*(part["inputs"] for part in parts), strict=True)
        return {
            "inputs": [{name: sum(one[name] for one in found) for name in found[0]} for found in by_input],
            **{name: sum(part[name] for part in parts) for name in _TOTALS},
            "step": max(part["step"] for part in parts),
        }

    def split(self, whole: Any, hashes: HashRange) -> Any:
        if hashes.of_first_bucket:
            return whole
        zeros = [dict.fromkeys(one, 0) for one in whole["inputs"]]
        return {"inputs": zeros, **dict.fromkeys(_TOTALS, 0), "step": whole["step"]}
