"""Figures of a join: what its buckets report of one micro-batch, as text, and together.

A bucket reports all its figures in one text, `label:figure,figure,…` in the order of the names, nothing for a
zero. Spark observes the list of these texts and the names once for a micro-batch; they are parsed and added
up here, when someone looks. So a result row costs one test for null, and the query has two aggregates however
many figures there are.

Worked case: the names results,a_slack of two buckets `7:3,` and `9:2,5` are {"results": 5, "a_slack": 5}: a
slack is the maximum over the buckets, everything else the sum.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

PREFIX = "streamjoin_"  # of the name under which the figures of a join are observed
NAMES, BUCKETS = "names", "buckets"  # the two fields of what is observed
MONITOR = "monitor"  # the figures of the constraint monitor are a mapping of their own
_OF_MONITOR = f"{MONITOR}."

Figures = dict[str, Any]


def names_text(names: Sequence[str], monitor: Sequence[str] = ()) -> str:
    """The names of the figures, those of the monitor last."""
    return ",".join([*names, *(f"{_OF_MONITOR}{name}" for name in monitor)])


def bucket_text(label: int, values: Sequence[int]) -> str:
    """The figures of one bucket.

    >>> bucket_text(7, [3, 0, 12])
    '7:3,,12'
    """
    return f"{label}:{','.join(str(value) if value else '' for value in values)}"


def by_bucket(observed: Any) -> dict[int, dict[str, int]]:
    """The figures of each bucket, by its label."""
    fields = _fields(observed)
    names = fields[NAMES].split(",")
    found = {}
    for text in fields[BUCKETS]:
        label, _, values = text.partition(":")
        numbers = [int(value) if value else 0 for value in values.split(",")]
        found[int(label)] = dict(zip(names, numbers, strict=True))
    return found


def figures(observed: Any) -> Figures:
    """The figures over all buckets: those of the join by name, and in `monitor` those of its monitor.

    `observed` is what Spark observed, a row or a mapping, or figures already.

    >>> figures({"names": "results,monitor.a_slack", "buckets": ["7:3,", "9:2,5"]})
    {'results': 5, 'monitor': {'a_slack': 5}}
    >>> schema = {"fields": [{"name": "names"}, {"name": "buckets"}]}
    >>> figures({"values": ["results", ["7:3"]], "schema": schema})
    {'results': 3}
    """
    fields = _fields(observed)
    if NAMES not in fields:
        return dict(fields)
    names = fields[NAMES].split(",")
    totals = dict.fromkeys(names, 0)
    for bucket in by_bucket(fields).values():
        for name, value in bucket.items():
            totals[name] = max(totals[name], value) if name.endswith("_slack") else totals[name] + value
    found: Figures = {name: value for name, value in totals.items() if not name.startswith(_OF_MONITOR)}
    monitor = {
        name.removeprefix(_OF_MONITOR): value
        for name, value in totals.items()
        if name.startswith(_OF_MONITOR)
    }
    return {**found, MONITOR: monitor} if monitor else found


def joins(progress: Any) -> dict[str, Figures]:
    """The figures of each join of a query in one micro-batch: a progress, its dict or its JSON text."""
    observed = _observed(progress)
    return {
        name.removeprefix(PREFIX): figures(value)
        for name, value in observed.items()
        if name.startswith(PREFIX) and value is not None
    }


def _observed(progress: Any) -> Mapping[str, Any]:
    if progress is None:
        return {}
    if isinstance(progress, str):
        progress = json.loads(progress)
    found = progress.get("observedMetrics") if isinstance(progress, Mapping) else progress.observedMetrics
    return found or {}


def _fields(observed: Any) -> Mapping[str, Any]:
    """By name; over Spark Connect a row is the list of its values beside its schema."""
    found = observed if isinstance(observed, Mapping) else observed.asDict(recursive=True)
    if found.keys() != {"values", "schema"}:
        return found
    names = [field["name"] for field in found["schema"]["fields"]]
    return dict(zip(names, found["values"], strict=True))
