"""Presets: the papers' operators, each one line of configuration of the one operator.

They differ in what they know of the data and in the order in which they work, not in what they
compute. A preset ignores the constraints that its operator does not use: SHJ and XJoin ignore punctuations
and unique keys. A window is part of the query, so a preset without windows refuses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamjoin.declare.stream import Stream
from streamjoin.errors import InvalidJoin
from streamjoin.join.strategies.driver import FollowClusters, Priority, RoundRobin, Timestamp
from streamjoin.join.strategies.order import Sequential, ValueOriented
from streamjoin.join.strategies.purge import NoPurge, PurgeImmediately


@dataclass(frozen=True)
class Preset:
    """An operator of the papers: what it knows, how it works, and what it is in words."""

    says: str
    knows: frozenset[str]
    driver: Any = field(default_factory=RoundRobin)
    order: Any = field(default_factory=Sequential)
    purge: Any = field(default_factory=PurgeImmediately)


def _knowing(*facts: str) -> frozenset[str]:
    return frozenset(facts)


PRESETS: dict[str, Preset] = {
    "shj": Preset("symmetric hash join: keeps everything", _knowing(), purge=NoPurge()),
    "xjoin": Preset("XJoin: keeps everything, spills when memory is short", _knowing(), purge=NoPurge()),
    "pjoin": Preset("PJoin: punctuations purge tuples", _knowing("punctuation")),
    "wjoin": Preset("window join: windows evict tuples", _knowing("window"), purge=NoPurge()),
    "pwjoin": Preset(
        "PWJoin: punctuations and windows",
        _knowing("punctuation", "window"),
        Timestamp(quota=1, turns=64),  # tuple by tuple, but for batches that would take too many turns
    ),
    "mjoin_1np": Preset(
        "MJoin 1-NP: one-to-many with punctuations",
        _knowing("punctuation", "window", "unique"),
        Priority(quota=10_000),
        ValueOriented(),
    ),
    "mjoin_1nc": Preset(
        "MJoin 1-NC: one-to-many with clustered arrival",
        _knowing("punctuation", "window", "unique", "arrival"),
        FollowClusters(quota=10_000),
        ValueOriented(),
    ),
}


def preset(name: Any) -> Preset:
    """The preset of a name."""
    if not isinstance(name, str) or name not in PRESETS:
        raise InvalidJoin(f"operator={name!r}; give one of {', '.join(PRESETS)}")
    return PRESETS[name]


def as_known(streams: Sequence[Stream], name: str) -> list[Stream]:
    """The streams with only those declarations that the preset knows; refused where it needs others."""
    chosen = preset(name)
    for stream in streams:
        if stream.window_us is not None and "window" not in chosen.knows:
            raise InvalidJoin(
                f"operator={name!r} knows no windows, and {stream.name} has one; "
                "take wjoin or pwjoin, or leave operator= out"
            )
    if "unique" in chosen.knows and not any(stream.unique for stream in streams):
        raise InvalidJoin(f"operator={name!r} is a one-to-many join: declare unique=True on one input")
    if "arrival" in chosen.knows and all(stream.arrival is None for stream in streams):
        raise InvalidJoin(
            f"operator={name!r} follows clusters: declare arrival=sj.clustered(…) or sj.ordered(…) "
            "on one input"
        )
    return [
        replace(
            stream,
            unique=stream.unique and "unique" in chosen.knows,
            arrival=stream.arrival if "arrival" in chosen.knows else None,
            uses_punctuations="punctuation" in chosen.knows,
        )
        for stream in streams
    ]
