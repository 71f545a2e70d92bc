"""Upstream join: a join whose results are an input of another join, as `sj.stream(joined, …)` declares."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class UpstreamTime:
    """The event time of a stream of results that is the event time of one input of the join.

    `number`: that input. `watermark`: the join sends a watermark for it in every batch, so that no lateness
    is declared; `ignored_us` is one that was. `pads`: the join emits tuples of it that matched nothing.
    """

    number: int
    input: str
    watermark: bool
    pads: bool
    ignored_us: int | None = None


@dataclass(frozen=True)
class UpstreamJoin:
    """The join that a stream is the result of, and which of its punctuations close keys of the stream.

    `key_positions` says which column of the join's key each key column of the stream is; None where the
    stream has another key, of which the join's punctuations say nothing. `finishes_keys`: what is declared
    of the join's inputs makes it finish keys. Each of its `buckets` sends ranges and the end of the stream
    for itself. `propagates` describes the punctuations of its inputs that it propagates where they are
    about the stream's key. `time`: whose event time the stream goes by, where it is that of an input.
    """

    join: str
    key_positions: tuple[int, ...] | None
    finishes_keys: bool
    buckets: int = 1
    plan: Any = field(default=None, compare=False, repr=False)
    propagates: str | None = None
    time: UpstreamTime | None = None
