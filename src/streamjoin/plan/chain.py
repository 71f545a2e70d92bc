"""A join as an input of another: `sj.stream(joined, name="ab", key="k")`.

The rows of such a stream are the join's results. If its key is the join's key, the join's punctuations
are punctuations of the stream: no result for a finished key follows. If it has another key they do not
apply, and only the join's end is propagated, which closes every key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from streamjoin.declare.punctuation_source import PunctuationSource
from streamjoin.declare.stream import Stream
from streamjoin.declare.upstream import UpstreamJoin
from streamjoin.errors import InvalidJoin
from streamjoin.join.spec import JoinSpec
from streamjoin.join.strategies.purge import NoPurge
from streamjoin.plan.bounds import Bound, closes_keys


def upstream_of(
    plan: Any, name: str, key: Sequence[str], declared: dict[str, Any], *, buckets: int = 1
) -> UpstreamJoin:
    """The upstream join of the stream `name` with this key, which is its result."""
    spec: JoinSpec = plan.spec
    own = spec.propagate and sorted(key) == sorted(spec.key_names)
    if own and declared["punctuation"] is not None:
        raise InvalidJoin(
            f"stream {name!r} takes over the punctuations of join {spec.name!r}, whose key it has; leave out "
            f"punctuation=, or declare the join with propagate=False"
        )
    source: PunctuationSource | None = declared["punctuation"]
    if source is not None and source.null_is_wildcard:
        raise InvalidJoin(
            f"stream {name!r} is the result of join {spec.name!r}, which ends when its inputs do; "
            "leave out null_is_wildcard=True"
        )
    for what in ("arrival", "sequence"):
        if declared[what] is not None:
            raise InvalidJoin(
                f"stream {name!r} is the result of join {spec.name!r}, whose rows come in no order; "
                f"leave out {what}="
            )
    key_positions = tuple(spec.key_names.index(column) for column in key) if own else None
    return UpstreamJoin(
        spec.name, key_positions, _finishes_keys(plan.streams, spec, plan.bounds), buckets, plan
    )


def _finishes_keys(streams: Sequence[Stream], spec: JoinSpec, bounds: Sequence[Bound]) -> bool:
    """Whether keys get finished: an input closes them, its tuples are evicted, no other input pads them."""
    closing = [closes_keys(stream) is not None for stream in streams]
    return (
        not isinstance(spec.strategies.purge, NoPurge)
        and all(closing[number] for number in spec.how.preserved)
        and any(closes and bound.tuples for closes, bound in zip(closing, bounds, strict=True))
    )


def check_chain(streams: Sequence[Stream], name: str) -> None:
    """Names must be unique in the whole tree of joins, and all of it must run in one place."""
    if all(stream.upstream is None for stream in streams):
        return
    local = [stream.source is None for stream in streams]
    if any(local) and not all(local):
        here, there = ([s.name for s, mine in zip(streams, local, strict=True) if mine == w] for w in (1, 0))
        raise InvalidJoin(
            f"{', '.join(here)} has a schema and {', '.join(there)} a DataFrame; give all inputs of a join "
            "of joins the same, schemas for local() or DataFrames for Spark"
        )
    _refuse_twice([name, *_joins(streams)], "join")
    _refuse_twice([stream.name for stream in all_streams(streams)], "stream")


def _refuse_twice(names: Sequence[str], what: str) -> None:
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise InvalidJoin(
            f"in this join of joins, several {what}s have the name {', '.join(twice)}; give each {what} "
            "its own name= (a join is joined with itself by declaring it again, from streams of other names)"
        )


def all_streams(streams: Sequence[Stream]) -> Iterator[Stream]:
    """The inputs of a join, and those of the joins among them."""
    for stream in streams:
        yield stream
        if stream.upstream is not None:
            yield from all_streams(stream.upstream.plan.streams)


def _joins(streams: Sequence[Stream]) -> list[str]:
    return [stream.upstream.join for stream in all_streams(streams) if stream.upstream is not None]
