"""Upstream join: a join whose results are an input of another join, as `sj.stream(joined, …)` declares."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class UpstreamJoin:
    """The join that a stream is the result of, and which of its punctuations close keys of the stream.

    `key_positions` says which column of the join's key each key column of the stream is; None where the
    stream has another key, of which the join's punctuations say nothing. `finishes_keys`: what is declared
    of the join's inputs makes it finish keys. Each of its `buckets` sends ranges and the end of the stream
    for itself. `propagates` describes the punctuations of its inputs that it propagates where they are
    about the stream's key.
    """

    join: str
    key_positions: tuple[int, ...] | None
    finishes_keys: bool
    buckets: int = 1
    plan: Any = field(default=None, compare=False, repr=False)
    propagates: str | None = None
