"""What a user types: `stream`, `join`, and the join they give.

Nothing happens until a join is started, by `local()` in this process or on Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamjoin.errors import InvalidJoin
from streamjoin.local import LocalRun
from streamjoin.metadata import Arrival, Duration, OnViolation, PunctuationSource, Stream, duration_us
from streamjoin.plan.explain import explain
from streamjoin.plan.planner import JoinOptions, Plan, plan_join


def stream(
    source: Any,
    *,
    name: str,
    key: str | Sequence[str],
    time: str | None = None,
    window: Duration | None = None,
    lateness: Duration | None = None,
    idle: Duration | None = None,
    unique: bool = False,
    arrival: Arrival | None = None,
    sequence: str | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    punctuation: PunctuationSource | None = None,
    on_violation: OnViolation = "drop",
) -> Stream:
    """Declare one input of a join and what is known of it.

    `source` is a Spark DataFrame, or a `pyarrow.Schema` for a join that runs in this process.

    >>> import pyarrow as pa
    >>> news = stream(
    ...     pa.schema({"sno": pa.int64(), "title": pa.string()}), name="news", key="sno", unique=True
    ... )
    >>> news.payload
    ('title',)
    """

    def micros(what: str, value: Duration | None) -> int | None:
        return None if value is None else duration_us(value, what=f"stream {name!r}: {what}")

    if not isinstance(source, pa.Schema):
        raise InvalidJoin(f"stream {name!r}: give a pyarrow.Schema, not a {type(source).__name__}")
    return Stream(
        name,
        source,
        (key,) if isinstance(key, str) else tuple(key),
        time,
        micros("window", window),
        micros("lateness", lateness),
        micros("idle", idle),
        unique,
        arrival,
        () if sequence is None else (sequence,) if isinstance(sequence, str) else tuple(sequence),
        None if columns is None else tuple(columns),
        punctuation,
        on_violation,
    )


def join(
    *inputs: Stream,
    name: str = "join",
    how: str = "inner",
    where: Any = None,
    goal: str = "throughput",
    operator: str | None = None,
    driver: Any = None,
    order: Any = None,
    purge: Any = None,
    probe: Any = None,
    memory: Any = None,
    propagate: bool = True,
    buckets: int | None = None,
) -> Joined:
    """Join two or more streams on their keys, matched by position."""
    options = JoinOptions(
        name, how, where, goal, operator, driver, order, purge, probe, memory, propagate, buckets
    )
    return Joined(plan_join(inputs, options))


@dataclass(frozen=True)
class Joined:
    """A join that was planned and checked; start it where the data is."""

    plan: Plan

    def explain(self) -> str:
        """What joins, how, why, and whether its state is bounded."""
        return explain(self.plan)

    def local(self, *, snapshot: bytes | None = None) -> LocalRun:
        """Run in this process; with a `snapshot`, go on from it."""
        return LocalRun(self.plan, snapshot=snapshot)
