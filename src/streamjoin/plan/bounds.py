"""State bounds: for each input, what evicts its tuples and its closed keys, under which assumption;
and where nothing does, which declaration would, the most useful first.

A tuple of input i can be evicted when every other input has closed its key or has passed its
window. So its tuples are bounded by a window on i itself, or when every other input has some way
to close keys; failing both, by a ttl on i, which loses tuples.

A closed key of input i is remembered until every other input has closed it too, or, where every input has a
window, until the watermarks are past all that its tuples could match.

Advice is ordered by what it costs: a way to close keys loses no result, keeps the least state and also
finishes keys; a window changes the query; a ttl loses results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from streamjoin.declare.durations import duration_text
from streamjoin.declare.stream import Stream
from streamjoin.declare.upstream import UpstreamJoin

ORDER_OF_ADVICE = (
    "the most useful first: closing keys keeps every result and evicts earliest, "
    "a window changes the query, a ttl loses results"
)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why state is bounded or not, and the assumption behind it."""

    says: str
    provided: str = ""

    def __str__(self) -> str:
        return f"{self.says}, provided {self.provided}" if self.provided else self.says


@dataclass(frozen=True, slots=True)
class Bound:
    """Whether one input's state is bounded, why, and what would help if not.

    `loses`: what is lost where only a ttl bounds its tuples, or acts before anything else.
    """

    stream: str
    tuples: bool
    closed_keys: bool
    why: tuple[Reason, ...]
    advice: tuple[str, ...]
    loses: str | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        """Each reason as a sentence."""
        return tuple(map(str, self.why))


class UnboundedState(UserWarning):
    """A join was started whose state is not bounded."""


def closes_keys(stream: Stream) -> str | None:
    """What closes keys on this input, in words; None where nothing does."""
    if stream.uses_punctuations:
        if (upstream := finishing_join(stream)) is not None:
            propagated = f"{upstream.propagates}, propagated by join {upstream.join}"
            return f"punctuations of join {upstream.join}" if upstream.propagates is None else propagated
        if stream.punctuation is not None and stream.punctuation.closes_keys(stream):
            return stream.punctuation.describe(stream)
    if stream.arrival is not None:
        return stream.arrival.describe(stream)
    return f"the unique key of {stream.name}" if stream.unique else None


def finishing_join(stream: Stream) -> UpstreamJoin | None:
    """The join whose result the stream is, where it closes keys of the stream.

    It finishes keys and has the stream's key, or it propagates punctuations of its inputs on that key.
    """
    upstream = stream.upstream
    if upstream is None or upstream.propagates is not None:
        return upstream
    return upstream if upstream.key_positions is not None and upstream.finishes_keys else None


def check(
    streams: Sequence[Stream],
    ranges_us: Sequence[Sequence[int | None]] = (),
    *,
    purges: bool = True,
    forgets: bool = False,
) -> list[Bound]:
    """The verdict for every input; where nothing `purges`, punctuations evict no tuple.

    `ranges_us` has for each input and other input what conditions on their event times say. `forgets`:
    watermarks let closed keys go.
    """
    if not purges and any(map(closes_keys, streams)):
        stripped = [
            replace(stream, unique=False, arrival=None, uses_punctuations=False) for stream in streams
        ]
        would = "a purge= that applies punctuations, so that what is declared evicts tuples"
        return [
            bound if bound.tuples else replace(bound, advice=(would, *bound.advice))
            for bound in check(stripped, ranges_us, forgets=forgets)
        ]
    found = []
    for i, stream in enumerate(streams):
        ranges = ranges_us[i] if ranges_us else (None,) * len(streams)
        spans = {other.name: span for other, span in zip(streams, ranges, strict=True) if span is not None}
        others = [other for other in streams if other is not stream]
        found.append(_bound(stream, others, spans, forgets=forgets))
    return found


def _bound(stream: Stream, others: list[Stream], spans: Mapping[str, int], *, forgets: bool) -> Bound:
    """`spans`: by other input, how much later than a tuple's its matches may be."""
    open_ended = [other for other in others if closes_keys(other) is None]
    kept_whole = stream.window_us is not None or all(other.name in spans for other in open_ended)
    why = [*_evicts_tuples(stream, others), *_evicted_by_range(spans), *_keeps_punctuations(stream)]
    loses = None
    if stream.ttl_us is not None:
        reason, loses = _ttl(stream, bounded=kept_whole)
        why.append(reason)
    tuples = kept_whole or stream.ttl_us is not None
    closed_keys = closes_keys(stream) is None or not open_ended or forgets
    why += _forgets_closed_keys(stream, others, open_ended, forgets=forgets)
    advice: list[str] = []
    if not tuples:
        advice = [*_how_keys_end(open_ended), *_last_resorts(stream)]
    elif not closed_keys:
        forgotten = f"so that closed keys of {stream.name} are forgotten"
        ways = [
            _how_keys_of_end(other) if _below(other) else f"punctuation= or arrival= on {other.name}"
            for other in open_ended
        ]
        if stream.window_us is not None:
            ways += [f"window= on {other.name}" for other in others if other.window_us is None]
        advice = [f"{way}, {forgotten}" for way in ways]
    return Bound(stream.name, tuples, closed_keys, tuple(why), tuple(advice), loses)


def _forgets_closed_keys(
    stream: Stream, others: list[Stream], open_ended: list[Stream], *, forgets: bool
) -> list[Reason]:
    """How long the keys that an input has closed are remembered."""
    if closes_keys(stream) is None:
        return []
    remembered = f"closed keys of {stream.name} are remembered"
    if forgets:
        names = " and ".join(one.name for one in (stream, *others))
        past = "until event time is past what they could match"
        return [Reason(f"{remembered} {past}", f"event time moves on {names}")]
    if not open_ended and all(one.window_us is None for one in (stream, *others)):
        return []  # as long as its tuples are, which is said already
    waits = " and ".join(other.name for other in open_ended or others)
    until = f"{remembered} until {waits} {'close' if ' and ' in waits else 'closes'} them too"
    if open_ended:
        return [Reason(f"{until}, which nothing declares")]
    return [Reason(until, f"every key that {stream.name} closes is closed there")]


def _evicts_tuples(stream: Stream, others: list[Stream]) -> list[Reason]:
    found = []
    if stream.window_us is not None:
        found.append(
            Reason(
                f"its window of {duration_text(stream.window_us)} evicts tuples",
                "event time moves on " + " and ".join(other.name for other in others),
            )
        )
    for other in others:
        way = closes_keys(other)
        if way is not None:
            found.append(Reason(f"its tuples are purged by {way}", _assumed(stream, other)))
    return found


def _evicted_by_range(spans: Mapping[str, int]) -> list[Reason]:
    found = []
    for other, span in spans.items():
        far = (
            f"at most {duration_text(span)} later" if span >= 0 else f"{duration_text(-span)} earlier or more"
        )
        says = f"where= evicts tuples: they match only rows of {other} that are {far}"
        found.append(Reason(says, f"event time moves on {other}"))
    return found


def _assumed(stream: Stream, other: Stream) -> str:
    """What must hold for `other` to purge the tuples of `stream`."""
    source = other.punctuation if other.uses_punctuations else None
    needs = []
    by_arrival = None if other.arrival is None else other.arrival.assumes(other)
    if other.unique or (source is None and other.arrival is not None and not other.arrival.closes_ranges):
        needs.append(f"every key of {stream.name} appears in {other.name}")
    elif (upstream := finishing_join(other)) is not None:
        appears = f"appears in an input of join {upstream.join}"
        needs.append(
            f"every key of {stream.name} {'is punctuated there' if upstream.propagates else appears}"
        )
    elif source is not None:
        needs.append(f"every key of {stream.name} is punctuated there")
    if by_arrival is not None:
        needs.append(by_arrival)
    return " and ".join(needs)


def _keeps_punctuations(stream: Stream) -> list[Reason]:
    found = []
    ways = (stream.punctuation, stream.arrival, finishing_join(stream))
    if stream.unique and any(way is not None for way in ways):
        found.append(
            Reason(
                f"{stream.name} closes keys in two ways: bounded",
                "the second never comes after the key is finished, when it would close a new key",
            )
        )
    waiting = None if stream.punctuation is None else stream.punctuation.waiting(stream)
    if waiting is not None:
        found.append(Reason(waiting))
    return found


def _ttl(stream: Stream, *, bounded: bool) -> tuple[Reason, str | None]:
    """What a ttl does, and what it loses; nothing, where something else should act before it."""
    ttl_us = stream.ttl_us or 0
    text = f"its ttl of {duration_text(ttl_us)}"
    counted = f"counted as {stream.name}_expired"
    if bounded and (stream.window_us is None or ttl_us >= stream.window_us):
        return Reason(
            f"{text} should never act: tuples {counted} show that an assumption above does not hold"
        ), None
    loses = f"tuples older than {duration_text(ttl_us)}, whatever they could still join ({counted})"
    return Reason(f"{text} evicts tuples", f"event time moves on {stream.name}"), loses


def _how_keys_end(open_ended: Sequence[Stream]) -> list[str]:
    return [_how_keys_of_end(other) for other in open_ended]


def _how_keys_of_end(other: Stream) -> str:
    if _below(other) is None:
        return f"punctuation=, arrival= or unique=True on {other.name}, if a key of {other.name} ever ends"
    return f"punctuation=sj.marked(…) of {', '.join(other.key)} on the input of {_below(other)} that has it"


def _below(stream: Stream) -> str | None:
    """The operator of the same join whose results the stream is."""
    return stream.upstream.join if stream.upstream is not None and stream.upstream.plan.steps else None


def _last_resorts(stream: Stream) -> list[str]:
    missing = " and ".join(
        f"{what}="
        for what, value in (("time", stream.time), ("lateness", stream.lateness_us))
        if value is None
    )
    needs = f" (with {missing} on {stream.name})" if missing else ""
    if _below(stream) is not None:
        return [f"window= on an input of {_below(stream)} (with time= and lateness= on every input)"]
    return [
        f"window= on {stream.name} (with time= and lateness= on every input)",
        f"ttl= on {stream.name} as a last resort, which loses tuples{needs}",
    ]


def warning_text(bounds: Sequence[Bound]) -> str | None:
    """One paragraph on what grows without bound and what to declare; None where all is bounded."""
    growing = [bound for bound in bounds if not (bound.tuples and bound.closed_keys)]
    if not growing:
        return None
    parts = [f"{bound.stream}: declare {'; or '.join(bound.advice)}" for bound in growing]
    return "the state of this join grows with its input. " + ". ".join(parts)
