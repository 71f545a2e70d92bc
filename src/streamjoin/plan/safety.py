"""Is the state bounded? For each input: what lets its tuples and its promises go, under which
assumption; and where nothing does, which declaration would, the most useful first.

A tuple of input i can leave when every other input is closed for its key or has passed its
window. So its tuples are bounded by a window on i itself, or when every other input has some way
to close keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from streamjoin.metadata import Closing, Clustered, Control, Inner, Marked, Ordered, Stream


@dataclass(frozen=True, slots=True)
class Bound:
    """Whether one input's state is bounded, why, and what would help if not."""

    stream: str
    tuples: bool
    promises: bool
    reasons: tuple[str, ...]
    advice: tuple[str, ...]


class UnboundedState(UserWarning):
    """A join was started whose state nothing bounds."""


def closes_keys(stream: Stream) -> str | None:
    """What closes keys on this input, in words; None where nothing does."""
    source = stream.punctuation if stream.heeded else None
    if stream.heeded and (inner := finishing_join(stream)) is not None:
        return f"punctuations of join {inner.join}"
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


def finishing_join(stream: Stream) -> Inner | None:
    """The join whose result the stream is, where it finishes keys and has the stream's key."""
    inner = stream.inner
    return inner if inner is not None and inner.places is not None and inner.finishes else None


def check(streams: Sequence[Stream], *, purges: bool = True) -> list[Bound]:
    """The verdict for every input; where nothing `purges`, promises let no tuple go."""
    if not purges:
        streams = [
            replace(stream, unique=False, arrival=None, heeded=False) if closes_keys(stream) else stream
            for stream in streams
        ]
    return [_bound(stream, [other for other in streams if other is not stream]) for stream in streams]


def _bound(stream: Stream, others: list[Stream]) -> Bound:
    reasons, advice, tuples = [], [], True
    open_ended = [other for other in others if closes_keys(other) is None]
    if stream.window_us is not None:
        reasons.append(
            f"its window of {stream.window_us / 1e6:g} s lets tuples go, provided event time moves on "
            + " and ".join(other.name for other in others)
        )
    for other in others:
        way = closes_keys(other)
        if way is not None:
            reasons.append(f"{way} let its tuples go{_provided(stream, other)}")
    if stream.window_us is None and open_ended:
        tuples = False
        advice += [
            f"punctuation=, arrival= or unique=True on {other.name}, if a key of {other.name} ever ends"
            for other in open_ended
        ]
        advice.append(f"window= on {stream.name} (with time= and lateness= on every input)")
    ways = (stream.punctuation, stream.arrival, finishing_join(stream))
    if stream.unique and any(way is not None for way in ways):
        reasons.append(
            f"{stream.name} closes keys in two ways: bounded provided the second never comes after the key "
            "is finished, when it would be remembered as that of a new key"
        )
    if isinstance(stream.punctuation, Control):
        reasons.append(
            f"promises of its control stream are remembered until event time on {stream.name} is past theirs"
        )
    promises = closes_keys(stream) is None or not open_ended
    if not promises:
        reasons.append(
            f"what {stream.name} promises is remembered until "
            + " and ".join(other.name for other in open_ended)
            + " also close the key, which nothing declares"
        )
        if tuples:
            forgotten = f"so that closed keys of {stream.name} are forgotten"
            advice += [f"punctuation= or arrival= on {other.name}, {forgotten}" for other in open_ended]
    return Bound(stream.name, tuples, promises, tuple(reasons), tuple(advice))


def _provided(stream: Stream, other: Stream) -> str:
    """What must hold for `other` to let tuples of `stream` go."""
    needs = ""
    inner = finishing_join(other)
    if inner is not None and not other.unique:
        needs += f", provided every key of {stream.name} appears in an input of join {inner.join}"
    if other.unique or (other.punctuation is None and isinstance(other.arrival, Clustered)):
        needs += f", provided every key of {stream.name} appears in {other.name}"
    if isinstance(other.arrival, Ordered) and len(other.sequence) == 2:
        needs += f", provided every partition of {other.name} goes on: what the slowest has reached counts"
    return needs


def warning_text(bounds: Sequence[Bound]) -> str | None:
    """One paragraph that says what grows for ever and what to declare; None where all is bounded."""
    growing = [bound for bound in bounds if not (bound.tuples and bound.promises)]
    if not growing:
        return None
    parts = [f"{bound.stream}: declare {'; or '.join(bound.advice)}" for bound in growing]
    return "the state of this join grows with its input. " + ". ".join(parts)
