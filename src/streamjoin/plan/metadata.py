"""Metadata of a join by its dimensions (MJoin, figure 5).

- granularity: what it speaks of: the `query` (a window), the `schema` (a key that is unique), or an
  `instance`, that is tuples of the stream (a punctuation);
- time: when it is known: `static`, before the join runs, or at `runtime`;
- scope: for how much of the stream it holds: `global` for all of it from then on, `local` for a part.

Worked case, the paper's own: `unique=True` is schema, static, global; a punctuation instance, runtime,
global. Static and global together are the paper's static constraints, all others dynamic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from streamjoin.declare.durations import duration_text
from streamjoin.declare.stream import Stream
from streamjoin.plan.bounds import closes_keys
from streamjoin.plan.planner import Plan

QUERY, SCHEMA, INSTANCE = "query", "schema", "instance"
STATIC, RUNTIME = "static", "runtime"
GLOBAL, LOCAL = "global", "local"


@dataclass(frozen=True, slots=True)
class Metadata:
    """One thing that is known of an input, or of all of them (`input` None)."""

    input: str | None
    says: str
    granularity: str
    time: str
    scope: str


def metadata(plan: Plan) -> list[dict[str, Any]]:
    """What the join knows before it runs, and what it will learn, as plain values."""
    found = [one for stream in plan.streams for one in _of_stream(stream)]
    if plan.options.where is not None:
        found.append(Metadata(None, "the condition where=", QUERY, STATIC, GLOBAL))
    if plan.spec.monitored:
        found.append(Metadata(None, "rates, lifetimes and selectivities lately", SCHEMA, RUNTIME, LOCAL))
    return [asdict(one) for one in found]


def _of_stream(stream: Stream) -> Iterator[Metadata]:
    for what, micros in (
        ("window", stream.window_us),
        ("time to live", stream.ttl_us),
        ("idle", stream.idle_us),
    ):
        if micros is not None:
            yield Metadata(stream.name, f"{what} {duration_text(micros)}", QUERY, STATIC, GLOBAL)
    if stream.unique:
        yield Metadata(stream.name, "one tuple per key", SCHEMA, STATIC, GLOBAL)
    if stream.arrival is not None:
        scope = LOCAL if len(stream.sequence) == 2 else GLOBAL
        says = f"{stream.arrival.name} arrival" + (" in each partition" if scope == LOCAL else "")
        yield Metadata(stream.name, says, SCHEMA, STATIC, scope)
    if stream.lateness_us is not None:
        yield Metadata(stream.name, f"lateness {duration_text(stream.lateness_us)}", SCHEMA, STATIC, GLOBAL)
        yield Metadata(stream.name, "watermark", INSTANCE, RUNTIME, GLOBAL)
    if stream.punctuation is not None and stream.uses_punctuations:
        partial = stream.punctuation.partitions > 1
        says = "punctuations, each of one partition until all have sent it" if partial else "punctuations"
        yield Metadata(
            stream.name, f"{says}: {closes_keys(stream)}", INSTANCE, RUNTIME, LOCAL if partial else GLOBAL
        )
    if stream.upstream is not None:
        says = f"what join {stream.upstream.join} propagates"
        yield Metadata(stream.name, says, INSTANCE, RUNTIME, GLOBAL)


def metadata_lines(found: Sequence[dict[str, Any]]) -> list[str]:
    """The same as lines of text."""
    return [
        f"  {one['input'] or 'all'}: {one['says']} ({one['granularity']}, {one['time']}, {one['scope']})"
        for one in found
    ]
