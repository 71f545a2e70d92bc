"""Is the state bounded? For each input: what lets its tuples and its promises go, under which
assumption; and where nothing does, which declaration would, the most useful first.

A tuple of input i can leave when every other input is closed for its key or has passed its
window. So its tuples are bounded by a window on i itself, or when every other input has some way
to close keys; failing both, by a ttl on i, which loses tuples.

Advice is ordered by what it costs: saying how a key ends loses no result, keeps the least and also
finishes keys; a window changes the question; a ttl loses part of the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from streamjoin.declare.stream import (
    Closing,
    Clustered,
    Control,
    Inner,
    Marked,
    Ordered,
    Stream,
    duration_text,
)

ORDER_OF_ADVICE = (
    "the most useful first: saying how a key ends keeps every result and lets go earliest, "
    "a window changes what is asked, a ttl loses results"
)


@dataclass(frozen=True, slots=True)
class Reason:
    """Something that bounds state or keeps it, and what must hold for that."""

    says: str
    provided: str = ""

    def __str__(self) -> str:
        return f"{self.says}, provided {self.provided}" if self.provided else self.says


@dataclass(frozen=True, slots=True)
class Bound:
    """Whether one input's state is bounded, why, and what would help if not.

    `loses`: what is lost where only a ttl bounds its tuples, or acts before what else does.
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
    """A join was started whose state nothing bounds."""


def closes_keys(stream: Stream) -> str | None:
    """What closes keys on this input, in words; None where nothing does."""
    source = stream.punctuation if stream.uses_punctuations and punctuates_keys(stream) else None
    if stream.uses_punctuations and (inner := finishing_join(stream)) is not None:
        passed = f"{inner.passes}, passed on by join {inner.join}"
        return f"punctuations of join {inner.join}" if inner.passes is None else passed
    if isinstance(source, Marked):
        return f"punctuations of {stream.name} (rows marked {source.column})"
    if isinstance(source, Closing):
        return f"closing rows of {stream.name}"
    if isinstance(source, Control):
        return f"the control stream of {stream.name} (as event time moves on {stream.name})"
    if isinstance(stream.arrival, Clustered):
        return f"clustered arrival of {stream.name}"
    if isinstance(stream.arrival, Ordered):
        return f"ordered arrival of {stream.name}"
    if stream.unique:
        return f"the unique key of {stream.name}"
    return None


def punctuates_keys(stream: Stream) -> bool:
    """Whether a promise of this stream can say something of its key; of other columns it says nothing."""
    source = stream.punctuation
    by_column = (
        isinstance(source, Marked) and source.null_is_wildcard and set(stream.key) <= {*stream.speaks_of}
    )
    return stream.punctuated is None or by_column


def finishing_join(stream: Stream) -> Inner | None:
    """The join whose result the stream is, where it closes keys of the stream.

    It finishes keys and has the stream's key, or passes on what its inputs promise of that one.
    """
    inner = stream.inner
    if inner is None or (inner.passes is None and (inner.places is None or not inner.finishes)):
        return None
    return inner


def check(streams: Sequence[Stream], *, purges: bool = True) -> list[Bound]:
    """The verdict for every input; where nothing `purges`, promises let no tuple go."""
    if not purges and any(map(closes_keys, streams)):
        stripped = [
            replace(stream, unique=False, arrival=None, uses_punctuations=False) for stream in streams
        ]
        would = "a purge= that carries promises out, so that what is declared lets tuples go"
        return [
            bound if bound.tuples else replace(bound, advice=(would, *bound.advice))
            for bound in check(stripped)
        ]
    return [_bound(stream, [other for other in streams if other is not stream]) for stream in streams]


def _bound(stream: Stream, others: list[Stream]) -> Bound:
    open_ended = [other for other in others if closes_keys(other) is None]
    kept_whole = stream.window_us is not None or not open_ended
    why = [*_lets_tuples_go(stream, others), *_holds_promises(stream)]
    loses = None
    if stream.ttl_us is not None:
        reason, loses = _ttl(stream, bounded=kept_whole)
        why.append(reason)
    tuples = kept_whole or stream.ttl_us is not None
    closed_keys = closes_keys(stream) is None or not open_ended
    if not closed_keys:
        waits = " and ".join(other.name for other in open_ended)
        close = "closes" if len(open_ended) == 1 else "close"
        why.append(
            Reason(
                f"what {stream.name} promises is remembered until {waits} {close} the key too, "
                "which nothing declares"
            )
        )
    advice: list[str] = []
    if not tuples:
        advice = [*_how_keys_end(open_ended), *_last_resorts(stream)]
    elif not closed_keys:
        forgotten = f"so that closed keys of {stream.name} are forgotten"
        ways = [
            _how_keys_of_end(other) if _below(other) else f"punctuation= or arrival= on {other.name}"
            for other in open_ended
        ]
        advice = [f"{way}, {forgotten}" for way in ways]
    return Bound(stream.name, tuples, closed_keys, tuple(why), tuple(advice), loses)


def _lets_tuples_go(stream: Stream, others: list[Stream]) -> list[Reason]:
    found = []
    if stream.window_us is not None:
        found.append(
            Reason(
                f"its window of {duration_text(stream.window_us)} lets tuples go",
                "event time moves on " + " and ".join(other.name for other in others),
            )
        )
    for other in others:
        way = closes_keys(other)
        if way is not None:
            found.append(Reason(f"its tuples go by {way}", _assumed(stream, other)))
    return found


def _assumed(stream: Stream, other: Stream) -> str:
    """What must hold for `other` to let tuples of `stream` go."""
    source = other.punctuation if other.uses_punctuations else None
    needs = []
    if other.unique or (source is None and isinstance(other.arrival, Clustered)):
        needs.append(f"every key of {stream.name} appears in {other.name}")
    elif (inner := finishing_join(other)) is not None:
        where = "is promised there" if inner.passes else f"appears in an input of join {inner.join}"
        needs.append(f"every key of {stream.name} {where}")
    elif source is not None:
        needs.append(f"every key of {stream.name} is promised there")
    if isinstance(other.arrival, Ordered):
        where = f"every partition of {other.name}" if len(other.sequence) == 2 else other.name
        slowest = ": what the slowest has reached counts" if len(other.sequence) == 2 else ""
        needs.append(f"{where} goes on{slowest}")
    return " and ".join(needs)


def _holds_promises(stream: Stream) -> list[Reason]:
    found = []
    ways = (stream.punctuation, stream.arrival, finishing_join(stream))
    if stream.unique and any(way is not None for way in ways):
        found.append(
            Reason(
                f"{stream.name} closes keys in two ways: bounded",
                "the second never comes after the key is finished, when it would be remembered as that "
                "of a new key",
            )
        )
    if isinstance(stream.punctuation, Control):
        found.append(
            Reason(
                "promises of its control stream are remembered until event time on "
                f"{stream.name} is past theirs"
            )
        )
    return found


def _ttl(stream: Stream, *, bounded: bool) -> tuple[Reason, str | None]:
    """What a ttl does, and what it loses; nothing, where something else should have acted before."""
    ttl_us = stream.ttl_us or 0
    text = f"its ttl of {duration_text(ttl_us)}"
    counted = f"counted as {stream.name}_expired"
    if bounded and (stream.window_us is None or ttl_us >= stream.window_us):
        return Reason(
            f"{text} should never act: tuples {counted} would say that the above does not hold"
        ), None
    loses = f"tuples older than {duration_text(ttl_us)}, whatever they could still join ({counted})"
    return Reason(f"{text} lets tuples go", f"event time moves on {stream.name}"), loses


def _how_keys_end(open_ended: Sequence[Stream]) -> list[str]:
    return [_how_keys_of_end(other) for other in open_ended]


def _how_keys_of_end(other: Stream) -> str:
    if _below(other) is None:
        return f"punctuation=, arrival= or unique=True on {other.name}, if a key of {other.name} ever ends"
    return f"punctuation=sj.marked(…) of {', '.join(other.key)} on the input of {_below(other)} that has it"


def _below(stream: Stream) -> str | None:
    """The operator of the same join whose results the stream is."""
    return stream.inner.join if stream.inner is not None and stream.inner.plan.steps else None


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
    """One paragraph that says what grows for ever and what to declare; None where all is bounded."""
    growing = [bound for bound in bounds if not (bound.tuples and bound.closed_keys)]
    if not growing:
        return None
    parts = [f"{bound.stream}: declare {'; or '.join(bound.advice)}" for bound in growing]
    return "the state of this join grows with its input. " + ". ".join(parts)
