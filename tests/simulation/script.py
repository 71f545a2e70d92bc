"""A script: what is declared, how the engine is set, and what happens, all as plain data.

Its `repr` is Python that makes it again, so a failing one can be pasted into a test. Times are
small whole numbers (units after a fixed instant), keys are plain values of the widened type,
and every data row has an `id` of its own by which results, violations and state are told apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

START = datetime.fromisoformat("2024-02-28")  # without a zone, close to a leap day


class Row(NamedTuple):
    """A row of an input; with `flag` a punctuation (marked) or the last of its key (closing)."""

    key: tuple[Any, ...]
    t: int | None
    id: int
    x: Any = None
    flag: bool = False
    offset: int = 0
    partition: int = 0

    def __repr__(self) -> str:
        return f"Row({_arguments(list(self), list(Row._field_defaults.values()))})"


# The five patterns, as data.


class Eq(NamedTuple):
    value: Any


class In(NamedTuple):
    values: tuple[Any, ...]


class Between(NamedTuple):
    low: Any
    high: Any
    low_closed: bool = True
    high_closed: bool = True


class Star(NamedTuple):
    pass


class Nothing(NamedTuple):
    pass


Pattern = Eq | In | Between | Star | Nothing


def rank(value: Any) -> tuple[int, Any]:
    """What is compared in place of a value: one NaN, above all numbers; null below everything."""
    if value is None:
        return (-1, 0)
    if value != value:  # noqa: PLR0124 - only a NaN differs from itself
        return (1, 0)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return (0, value.astimezone(UTC))  # in other zones, the two 02:30 of a clock change are equal
    return (0, value)


def matches(pattern: Pattern, value: Any) -> bool:
    """Whether a pattern speaks of a value; `value` is already a `rank`."""
    if isinstance(pattern, Star):
        return True
    if isinstance(pattern, Eq):
        return value == rank(pattern.value)
    if isinstance(pattern, In):
        return value in [rank(each) for each in pattern.values]
    if isinstance(pattern, Nothing):
        return False
    low, high = rank(pattern.low), rank(pattern.high)
    above = pattern.low is None or value > low or (pattern.low_closed and value == low)
    return above and (pattern.high is None or value < high or (pattern.high_closed and value == high))


# What happens.


class Push(NamedTuple):
    """One batch; rows by the number of their input."""

    rows: Mapping[int, tuple[Row, ...]]


class Punctuate(NamedTuple):
    """`form`: "key" by the names of the key columns, "whole" as a punctuation over all columns,
    "partial" as one that also speaks of another column, which closes nothing."""

    input: int
    patterns: tuple[Pattern, ...]
    form: str = "key"


class Control(NamedTuple):
    """Rows of an input's control source: patterns of the key columns, and the time after which they act."""

    input: int
    punctuations: tuple[tuple[tuple[Pattern, ...], int], ...]


class Advance(NamedTuple):
    input: int
    t: int


class End(NamedTuple):
    input: int


class Restart(NamedTuple):
    pass


class Finish(NamedTuple):
    pass


Operation = Push | Punctuate | Control | Advance | End | Restart | Finish


# What is declared.


class _Compact:
    """A repr without what is as usual."""

    def __repr__(self) -> str:
        given = [(f.name, getattr(self, f.name)) for f in fields(self) if getattr(self, f.name) != f.default]  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in given)})"


@dataclass(frozen=True, repr=False)
class Input(_Compact):
    """One input. Durations are in units; types by their names in `play.TYPES`."""

    types: tuple[str, ...]
    time: str | None = None
    window: int | None = None
    lateness: int | None = None
    idle: int | None = None
    unique: bool = False
    clustered: int | None = None  # slack
    ordered: int | None = None  # slack
    descending: bool = False
    sequence: int = 0  # how many columns it has
    punctuation: str | None = None  # "marked" or "closing"
    control: tuple[str, ...] = ()  # by key column: "value", "list" or "range"
    wildcard: bool = False  # a marked row with a null key column is allowed
    partitions: int = 1
    on_violation: str = "drop"
    x: str = "int64"
    ttl: int | None = None

    @property
    def ordered_rows(self) -> bool:
        """Whether it is known which of two rows of a batch came first."""
        return self.sequence > 0 or self.follows

    @property
    def follows(self) -> bool:
        """Whether an order of arrival is declared."""
        return self.clustered is not None or self.ordered is not None


KNOWS = {
    "shj": (),
    "xjoin": (),
    "pjoin": ("punctuation",),
    "wjoin": ("window",),
    "pwjoin": ("punctuation", "window"),
    "mjoin_1np": ("punctuation", "window", "unique"),
    "mjoin_1nc": ("punctuation", "window", "unique", "arrival"),
}


@dataclass(frozen=True, repr=False)
class Settings(_Compact):
    """How the engine is set, and what kind of join it is; only `how` and `where` change the answer."""

    unit: str = "second"
    fanout: int = 6
    run_bytes: int = 32 << 20
    tombstone_share: float = 0.5
    smallest_class_rows: int = 1024
    frame_rows: int = 1 << 18
    quota: int | None = None
    weak_hash: bool = False
    propagate: bool = True
    driver: str = "round_robin"
    order: str = "sequential"
    probe: str = "most_selective"
    operator: str | None = None
    memory: int | None = None  # bytes of runs in memory; the others are fetched when they are needed
    defer: bool = False  # joining with those others may wait; for conforming streams
    within: bool = False  # windows evict while a batch is at work
    purge: str = "immediate"  # what the model knows; other ways only for conforming streams
    how: str = "inner"
    where: bool = False  # whether `passes` is a condition on the joined row
    group: bool = False  # whether rows leave by key: how many, and their ids

    @property
    def preserved(self) -> tuple[int, ...]:
        """The inputs whose tuples are results also without a match."""
        return {"left": (0,), "right": (1,), "full": (0, 1), "left_anti": (0,)}.get(self.how, ())

    @property
    def forgets_matched(self) -> bool:
        return self.how in ("left_semi", "left_anti")


def known(declared: Input, settings: Settings) -> Input:
    """What the operator uses of what is declared."""
    if settings.operator is None:
        return declared
    knows = KNOWS[settings.operator]
    if "unique" not in knows:
        declared = replace(declared, unique=False)
    if "arrival" not in knows:
        declared = replace(declared, clustered=None, ordered=None)
    return declared


def passes(settings: Settings, ids: Sequence[int]) -> bool:
    """The condition on a joined row, by the ids of its first two components."""
    return not settings.where or (ids[0] ^ ids[1]) & 3 != 0


@dataclass(frozen=True)
class Script:
    inputs: tuple[Input, ...]
    settings: Settings
    operations: tuple[Operation, ...]

    @property
    def windowed(self) -> bool:
        return any(one.window is not None for one in self.inputs)

    @property
    def row_count(self) -> int:
        return sum(len(rows) for op in self.operations if isinstance(op, Push) for rows in op.rows.values())

    def source(self) -> str:
        """Python that makes this script again and checks it."""
        lines = [
            "from datetime import date, datetime, timezone",
            "from decimal import Decimal",
            "from math import inf, nan",
            "from tests.simulation.checks import check",
            "from tests.simulation.script import *",
            "",
            "check(Script(",
            "    inputs=(",
            *(f"        {one!r}," for one in self.inputs),
            "    ),",
            f"    settings={self.settings!r},",
            "    operations=(",
            *(f"        {op!r}," for op in self.operations),
            "    ),",
            "))",
        ]
        return "\n".join(lines).replace("datetime.date", "date").replace("datetime.timezone", "timezone")


def unit_of(settings: Settings) -> timedelta:
    return timedelta(**{settings.unit + "s": 1})


def instant(settings: Settings, t: int) -> datetime:
    return START + t * unit_of(settings)


def _arguments(values: list[Any], defaults: list[Any]) -> str:
    """Positional arguments without the trailing ones that are as usual."""
    needed = len(values) - len(defaults)
    while len(values) > needed and values[-1] == defaults[len(values) - needed - 1]:
        values = values[:-1]
    return ", ".join(map(repr, values))
