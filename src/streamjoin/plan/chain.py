"""A join as an input of another: `sj.stream(joined, name="ab", key="k")`.

The rows of such a stream are the join's results. If its key is the join's key, the join's punctuations
are punctuations of the stream: no result for a finished key follows. If it has another key they do not
apply, and only the join's end is propagated, which closes every key.

If its time is the time of one of the join's inputs, whose tuples a window evicts, the join sends a watermark
for it in every batch: results with a stored or padded tuple come as late as that tuple was evicted, which is
no fixed lateness. Worked number: the input is at 100 with a window of 10, another at 60: no later result has
a time before 50.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from streamjoin.declare.punctuation_source import PunctuationSource
from streamjoin.declare.stream import Stream
from streamjoin.declare.upstream import UpstreamJoin, UpstreamTime
from streamjoin.errors import InvalidJoin
from streamjoin.join.spec import JoinSpec
from streamjoin.join.strategies.purge import NoPurge
from streamjoin.plan.bounds import Bound, closes_keys


def upstream_of(
    plan: Any, name: str, key: Sequence[str], declared: dict[str, Any], *, buckets: int = 1
) -> UpstreamJoin:
    """The upstream join of the stream `name` with this key, which is its result."""
    spec: JoinSpec = plan.spec
    # a null in a propagated punctuation is a wildcard, so a key that may be null is not propagated
    own = spec.propagate and sorted(key) == sorted(spec.key_names) and not plan.options.null_safe
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


def upstream_time(plan: Any, name: str, time: str | None, lateness_us: int | None) -> UpstreamTime | None:
    """Whose event time a stream of a join's results goes by; None where it is no input's.

    A time that is null in padded rows is refused.
    """
    spec: JoinSpec = plan.spec
    if time is None or spec.grouping is not None or time not in spec.output.names:
        return None
    place, preserved = spec.output.names.index(time), set(spec.how.preserved)
    emitted = len(spec.inputs) if spec.how.combinations else 1
    number = next((i for i in reversed(range(emitted)) if place >= spec.first_column(i)), None)
    if number is None or place < len(spec.key_types):
        return None
    stream, one = plan.streams[number], spec.inputs[number]
    if spec.how.combinations and preserved - {number}:
        kept = [plan.streams[i].name for i in preserved]
        instead = f"the time of {kept[0]}" if len(kept) == 1 else "that of the left input of a left join"
        raise InvalidJoin(
            f"stream {name!r}: time={time!r} comes from {stream.name}, and is null where join {spec.name!r} "
            f"({plan.options.how}) has no row of it; give {instead}, or leave out time="
        )
    payload = dict(zip(spec.payload_names(number), stream.payload, strict=True))
    if stream.time is None or payload.get(time) != stream.time:
        return None
    others = [m for m in range(len(spec.inputs)) if m != number]
    known = all(one.reach_to(m) is not None for m in others)
    return UpstreamTime(number, stream.name, known, bool(preserved), lateness_us if known else None)


def check_window_above(stream: Stream, upstream: UpstreamJoin, windowed: str) -> None:
    """Refuse a window over results that may come at any time after the tuples they are made of."""
    time = upstream.time
    if time is not None and time.pads and not time.watermark:
        raise InvalidJoin(
            f"{windowed} has a window, and {stream.name} goes by {stream.time}, the time of {time.input} in "
            f"join {upstream.join!r}: without a window on {time.input} its rows may leave padded at any "
            f"time, and no lateness is enough; add window= to {time.input}, with time= "
            f"and lateness= on every input of join {upstream.join!r}"
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
