"""From what the user declared to an operator with strategies, and the reasons for each choice.

Everything that can be wrong with a join as written is found here, before any data flows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streamjoin.batch import Layout
from streamjoin.errors import InvalidJoin
from streamjoin.metadata import Control, Marked, Ordered, Stream
from streamjoin.operators.spec import InputSpec, JoinSpec
from streamjoin.operators.strategies import (
    FewestRowsFirst,
    KeepInMemory,
    PurgeImmediately,
    RoundRobin,
    Sequential,
    Strategies,
)
from streamjoin.plan.output import output_schema
from streamjoin.plan.safety import Bound, check
from streamjoin.plan.types import common_type, plain
from streamjoin.state.side import MergePolicy

GOALS = ("throughput", "memory", "punctuation")
_STRATEGIES: dict[str, dict[str, Any]] = {
    "driver": {"round_robin": RoundRobin},
    "order": {"sequential": Sequential},
    "purge": {"immediate": PurgeImmediately},
    "probe": {"fewest_rows": FewestRowsFirst},
}
_VERBS = {"driver": "choose", "order": "arrange", "purge": "due", "probe": "sequence"}


@dataclass(frozen=True)
class JoinOptions:
    """What the user said of the join itself; None means: the planner chooses."""

    name: str = "join"
    how: str = "inner"
    where: Any = None
    goal: str = "throughput"
    operator: str | None = None
    driver: Any = None
    order: Any = None
    purge: Any = None
    probe: Any = None
    memory: Any = None
    propagate: bool = True
    buckets: int | None = None


@dataclass(frozen=True)
class Plan:
    """A join ready to run: its operator's specification, why it is so, and what bounds its state."""

    streams: tuple[Stream, ...]
    options: JoinOptions
    spec: JoinSpec
    reasons: tuple[tuple[str, str], ...]
    bounds: tuple[Bound, ...]


def plan_join(streams: Sequence[Stream], options: JoinOptions) -> Plan:
    """Check the join and choose how it runs."""
    _check_options(options)
    _check_inputs(streams)
    _check_times(streams)
    width = len(streams[0].key)
    key_types = tuple(
        common_type(
            [s.name for s in streams], [s.key[i] for s in streams], [s.type_of(s.key[i]) for s in streams]
        )
        for i in range(width)
    )
    timed = any(stream.window_us is not None for stream in streams)
    inputs = tuple(_input_spec(stream, key_types, timed=timed) for stream in streams)
    strategies, reasons = _choose_strategies(options)
    merging = MergePolicy(dead_share=0.2 if options.goal == "memory" else 0.5)
    spec = JoinSpec(
        options.name,
        inputs,
        output_schema(streams, key_types),
        strategies,
        merging,
        propagate=options.propagate,
    )
    return Plan(tuple(streams), options, spec, tuple(reasons), tuple(check(streams)))


def _check_options(options: JoinOptions) -> None:
    built = {"how": ("inner",), "where": (None,), "operator": (None,), "memory": (None,)}
    for what, values in built.items():
        value = getattr(options, what)
        if not any(value is known or (isinstance(value, str) and value == known) for known in values):
            raise InvalidJoin(f"{what}={value!r} is not built yet; leave it out")
    if options.goal not in GOALS:
        raise InvalidJoin(f"goal={options.goal!r}; give one of {', '.join(GOALS)}")
    if options.buckets is not None and options.buckets < 1:
        raise InvalidJoin(f"buckets={options.buckets!r}; give a whole number of 1 or more")
    if not options.name.isidentifier():
        raise InvalidJoin(f"name={options.name!r}; give a name of letters, digits and _")


def _check_inputs(streams: Sequence[Stream]) -> None:
    if len(streams) < 2:
        raise InvalidJoin(
            f"a join needs at least two inputs, this one has {len(streams)}; add another stream"
        )
    for stream in streams:
        if not isinstance(stream, Stream):
            raise InvalidJoin(f"{stream!r} is not a stream; wrap it with sj.stream(…)")
        if isinstance(stream.punctuation, Control):
            raise InvalidJoin(
                f"stream {stream.name!r}: punctuation=control(…) is not built yet; use marked or closing"
            )
        if (
            stream.arrival is not None
            and isinstance(stream.punctuation, Marked)
            and stream.punctuation.partitions > 1
        ):
            raise InvalidJoin(
                f"stream {stream.name!r}: arrival= means that a key's tuples come through one partition, "
                f"marked(partitions={stream.punctuation.partitions}) that they come through several; "
                "leave out one of them"
            )
        if isinstance(stream.arrival, Ordered) and len(stream.key) > 1:
            raise InvalidJoin(
                f"stream {stream.name!r}: ordered arrival needs a key of one column, "
                f"it has {len(stream.key)}; declare clustered arrival instead"
            )
    names = [stream.name for stream in streams]
    if len(set(names)) != len(names):
        raise InvalidJoin(
            f"two inputs have the same name ({', '.join(names)}); give each stream its own name"
        )
    widths = {len(stream.key) for stream in streams}
    if len(widths) > 1:
        listed = "; ".join(f"{stream.name}: {', '.join(stream.key)}" for stream in streams)
        raise InvalidJoin(f"inputs have keys of different width ({listed}); name as many columns each")


def _check_times(streams: Sequence[Stream]) -> None:
    windows = [stream for stream in streams if stream.window_us is not None]
    if not windows:
        return
    for stream in streams:
        if stream.time is None:
            raise InvalidJoin(
                f"{windows[0].name} has a window, so every input needs an event time: "
                f"add time= to {stream.name}"
            )
        if stream.lateness_us is None:
            raise InvalidJoin(
                f"{windows[0].name} has a window, so every input needs a lateness: "
                f'add lateness="0 seconds" (or how late its rows may be) to {stream.name}'
            )


def _input_spec(stream: Stream, key_types: tuple[Any, ...], *, timed: bool) -> InputSpec:
    payload_types = tuple(plain(stream.type_of(name)) for name in stream.payload)
    source = stream.punctuation
    return InputSpec(
        stream.name,
        Layout(key_types, timed or stream.time is not None, payload_types),
        (*stream.key, *stream.payload),
        window_us=stream.window_us,
        lateness_us=stream.lateness_us or 0,
        idle_us=stream.idle_us,
        unique=stream.unique,
        partitions=source.partitions if isinstance(source, Marked) else 1,
        on_violation=stream.on_violation,
        arrival=stream.arrival,
        partitioned=stream.arrival is not None and len(stream.sequence) == 2,
    )


def _choose_strategies(options: JoinOptions) -> tuple[Strategies, list[tuple[str, str]]]:
    reasons = {
        "driver": "whole buffers in the declared order: one probe per input and batch",
        "order": "rows as they came: nothing asks for another order",
        "purge": "promises are carried out at once: least state, earliest announcements",
        "probe": "the input with the fewest live tuples first: it most likely ends the search",
    }
    chosen: dict[str, Any] = {}
    why = []
    for seam, known in _STRATEGIES.items():
        asked = getattr(options, seam)
        if asked is None:
            chosen[seam] = next(iter(known.values()))()
        elif isinstance(asked, str):
            if asked not in known:
                raise InvalidJoin(f"{seam}={asked!r} is not built yet; give one of {', '.join(known)}")
            chosen[seam] = known[asked]()
        elif isinstance(asked, type) or not callable(getattr(asked, _VERBS[seam], None)):
            raise InvalidJoin(
                f"{seam}={asked!r} is no {seam} strategy; give one of {', '.join(known)}, "
                f"or an object with a method {_VERBS[seam]}"
            )
        else:
            chosen[seam] = asked
        why.append((f"{seam}: {chosen[seam].name}", reasons[seam] if asked is None else "as you asked"))
    return Strategies(**chosen, spill=KeepInMemory()), why
