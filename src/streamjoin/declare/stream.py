"""What a user declares of a stream, as frozen values that are checked when they are made.

A `Stream` says what is known of one input of a join: its key, its event time and window, how its
tuples arrive and how it announces that a key is over. Nothing here touches data; durations are
`timedelta` or text at the edge ("12 hours") and integer microseconds (`_us`) inside.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, TypeAlias, get_args

import pyarrow as pa

from streamjoin.errors import InvalidJoin

OnViolation: TypeAlias = Literal["drop", "keep", "fail"]
Duration: TypeAlias = str | timedelta

_UNITS_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_FIELDS = {"time": "time", "lateness": "lateness_us"}  # as they are declared, and as they are held
_DURATION_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+?)s?(?=\s|\d|$|,)\s*,?", re.IGNORECASE)


def duration_us(value: Duration, *, what: str) -> int:
    """A duration as whole microseconds: `"12 hours"`, `"1 minute 30 seconds"` or a timedelta.

    >>> duration_us("1 minute 30 seconds", what="window")
    90000000
    """
    if isinstance(value, timedelta):
        microseconds = value // timedelta(microseconds=1)
    elif isinstance(value, str):
        microseconds = _parse_duration(value, what=what)
    else:
        raise InvalidJoin(f'{what} is {value!r}; give a duration such as "12 hours" or a timedelta')
    if microseconds < 0:
        raise InvalidJoin(f"{what} is {value!r}; a duration cannot be negative, give one of 0 or more")
    return microseconds


def duration_text(micros: float) -> str:
    """A duration in few words, in the unit in which it reads best.

    >>> duration_text(90_000_000), duration_text(7_200_000_000), duration_text(1_500)
    ('90 s', '2 h', '0.0015 s')
    """
    for unit, name, least in (("day", "d", 2), ("hour", "h", 2), ("minute", "min", 2)):
        if micros >= least * _UNITS_US[unit]:
            return f"{micros / _UNITS_US[unit]:.3g} {name}"
    return f"{micros / 1e6:.3g} s"


def _parse_duration(text: str, *, what: str) -> int:
    at, total = 0, 0.0
    while at < len(text):
        part = _DURATION_PART.match(text, at)
        unit = _UNITS_US.get(part.group(2).lower()) if part else None
        if part is None or unit is None:
            break
        total, at = total + float(part.group(1)) * unit, part.end()
    if at == 0 or text[at:].strip():
        raise InvalidJoin(
            f'{what} is {text!r}; give a number and a unit such as "12 hours" (units: {", ".join(_UNITS_US)})'
        )
    return round(total)


@dataclass(frozen=True, slots=True)
class Clustered:
    """Equal keys come together; up to `slack` tuples of other keys may lie between two of one key.

    With `sequence=[partition column, offset column]` this holds within each partition, and all tuples
    of a key come through one.
    """

    slack: int = 0

    def __post_init__(self) -> None:
        _check_slack(self.slack)


@dataclass(frozen=True, slots=True)
class Ordered:
    """Keys ascend (or descend); a smaller key may follow within the next `slack` tuples.

    With `sequence=[partition column, offset column]` this holds within each partition. No partition
    appears later with keys that all others have passed.
    """

    descending: bool = False
    slack: int = 0

    def __post_init__(self) -> None:
        _check_slack(self.slack)


Arrival: TypeAlias = Clustered | Ordered


def _check_slack(slack: Any) -> None:
    if not isinstance(slack, int) or isinstance(slack, bool) or slack < 0:
        raise InvalidJoin(f"slack is {slack!r}; give a whole number of tuples, 0 or more")


def clustered(*, slack: int = 0) -> Clustered:
    """Equal keys arrive together, with `slack` tuples of tolerance."""
    return Clustered(slack)


def ordered(*, descending: bool = False, slack: int = 0) -> Ordered:
    """Keys arrive in order, with `slack` tuples of tolerance."""
    return Ordered(descending, slack)


@dataclass(frozen=True, slots=True)
class Marked:
    """Rows whose `column` is true are punctuations, not data."""

    column: str
    null_is_wildcard: bool = False
    partitions: int = 1

    def __post_init__(self) -> None:
        if self.partitions < 1:
            raise InvalidJoin(f"marked(partitions={self.partitions!r}); give a whole number of 1 or more")


@dataclass(frozen=True, slots=True)
class Closing:
    """A data row for which the condition holds is the last one of its key."""

    condition: Any


ControlForm: TypeAlias = Literal["value", "list", "range"]


@dataclass(frozen=True, slots=True)
class Control:
    """A separate stream of promises, each acting when its input's progress is past its time.

    A key column stands in it as `<key>`, a value or a list, or as `<key>_from` and `<key>_to`, a range
    with both ends; null is a wildcard or a missing end. `schema` is what the source delivers, known
    once the stream is declared.
    """

    source: Any
    time: str
    schema: pa.Schema | None = field(default=None, compare=False, repr=False)

    @property
    def columns(self) -> pa.Schema:
        """The schema of a control that belongs to a stream."""
        if self.schema is None:
            raise InvalidJoin(
                f"control(…, time={self.time!r}) has no schema; give it a Spark DataFrame or a pyarrow.Schema"
            )
        return self.schema

    def type_of(self, column: str) -> pa.DataType:
        return self.columns.field(column).type

    def form(self, key: str, dtype: pa.DataType) -> ControlForm:
        """How promises speak of a key column of this type."""
        if key not in self.columns.names:
            return "range"
        return "list" if _depth(self.type_of(key)) > _depth(dtype) else "value"


def _depth(dtype: pa.DataType) -> int:
    """How many lists are around each other."""
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return 1 + _depth(dtype.value_type) if any(is_list(dtype) for is_list in lists) else 0


PunctuationSource: TypeAlias = Marked | Closing | Control


def marked(column: str, *, null_is_wildcard: bool = False, partitions: int = 1) -> Marked:
    """Rows flagged true in `column` promise that no more rows with their key will come."""
    return Marked(column, null_is_wildcard, partitions)


def closing(condition: Any) -> Closing:
    """A data row for which `condition` holds is the last of its key.

    A boolean column's name; on Spark also an SQL condition, locally also a pyarrow expression.
    """
    return Closing(condition)


def control(source: Any, *, time: str) -> Control:
    """A separate stream of promises; each acts when the input's progress is past its `time`.

    `source` is what the stream's own is: a Spark DataFrame, or a `pyarrow.Schema` for a local run. For each
    key column it has `<key>`, a value or a list of values, or `<key>_from` and `<key>_to`, a range with both
    ends; a null value is a wildcard, a null end is missing. The stream needs time= and lateness=.
    """
    return Control(source, time)


@dataclass(frozen=True)
class Inner:
    """The join whose results are a stream, as `sj.stream(joined, …)` declares it.

    `places` says which column of the join's key each key column of the stream is; None where it is
    another key, of which the join's punctuations say nothing. `finishes`: what is declared of the
    join's inputs makes it finish keys. `buckets` each speak for themselves of ranges and of the end.
    """

    join: str
    places: tuple[int, ...] | None
    finishes: bool
    buckets: int = 1
    plan: Any = field(default=None, compare=False, repr=False)
    passes: str | None = None  # whose promises about the stream's key it passes on, in words


@dataclass(frozen=True)
class Stream:
    """One input of a join and everything declared about it.

    `schema` is what the input delivers; `source` is the DataFrame it comes from, None locally.
    """

    name: str
    schema: pa.Schema
    key: tuple[str, ...]
    time: str | None = None
    window_us: int | None = None
    lateness_us: int | None = None
    idle_us: int | None = None
    unique: bool = False
    arrival: Arrival | None = None
    sequence: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    punctuation: PunctuationSource | None = None
    on_violation: OnViolation = "drop"
    ttl_us: int | None = None
    uses_punctuations: bool = True  # False: an operator that knows no punctuations takes no notice of them
    punctuated: tuple[str, ...] | None = None  # what its promises are about, where that is not its key
    forwarded: tuple[str, ...] = ()  # columns that promises name for a later operator
    later: tuple[tuple[str, ...], ...] = ()  # the keys there that promises may name
    stamps: tuple[str, ...] = ()  # of a join's results: columns of the latest time, and until when they count
    inner: Inner | None = None
    source: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.name or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", self.name):
            raise InvalidJoin(
                f"stream name {self.name!r}; give a name of letters, digits and _ that starts with a letter"
            )
        if not self.key:
            raise InvalidJoin(f"stream {self.name!r} has no key; name at least one key column")
        _check_unrepeated(self.name, "key", self.key)
        self._check_columns_exist()
        self._check_time()
        self._check_ttl()
        self._check_kinds()
        self._check_punctuation()
        if self.on_violation not in get_args(OnViolation):
            raise InvalidJoin(
                f"stream {self.name!r}: on_violation is {self.on_violation!r}; give 'drop', 'keep' or 'fail'"
            )

    def _check_columns_exist(self) -> None:
        names = self.schema.names
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise InvalidJoin(
                f"stream {self.name!r} has more than one column {', '.join(map(repr, repeated))}; rename one"
            )
        wanted: list[tuple[str, str]] = [("key", column) for column in self.key]
        wanted += [("sequence", column) for column in self.sequence]
        wanted += [("columns", column) for column in self.columns or ()]
        if self.time is not None:
            wanted.append(("time", self.time))
        if isinstance(self.punctuation, Marked):
            wanted.append(("marked", self.punctuation.column))
        for what, column in wanted:
            if column not in names:
                raise InvalidJoin(
                    f"stream {self.name!r}: {what} column {column!r} does not exist; "
                    f"its columns are {', '.join(names)}"
                )

    def _check_time(self) -> None:
        if self.time is None:
            for what, value in (
                ("window", self.window_us),
                ("lateness", self.lateness_us),
                ("idle", self.idle_us),
            ):
                if value is not None:
                    raise InvalidJoin(
                        f"stream {self.name!r} declares {what} without a time column; add time=<column>"
                    )
        elif not self.stamps and not (
            pa.types.is_timestamp(self.type_of(self.time)) or pa.types.is_date(self.type_of(self.time))
        ):
            raise InvalidJoin(
                f"stream {self.name!r}: time column {self.time!r} is {self.type_of(self.time)}; "
                "give a timestamp or date column"
            )
        if self.window_us == 0:
            raise InvalidJoin(f"stream {self.name!r} has a window of zero; give a positive duration or none")
        if self.idle_us is not None and self.lateness_us is None:
            raise InvalidJoin(
                f'stream {self.name!r} declares idle without lateness; add lateness="0 seconds"'
            )

    def _check_ttl(self) -> None:
        if self.ttl_us is None:
            return
        missing = [f"{what}=" for what in _FIELDS if getattr(self, _FIELDS[what]) is None]
        if missing:
            raise InvalidJoin(
                f"stream {self.name!r}: a ttl counts on the stream's own event time; "
                f'add {" and ".join(missing)} (lateness may be "0 seconds")'
            )
        if self.ttl_us == 0:
            raise InvalidJoin(f"stream {self.name!r} has a ttl of zero; give a positive duration or none")

    def _check_kinds(self) -> None:
        arrival: Any = self.arrival
        if arrival is not None and not isinstance(arrival, Clustered | Ordered):
            raise InvalidJoin(
                f"stream {self.name!r}: arrival is {arrival!r}; give clustered(…) or ordered(…)"
            )
        source: Any = self.punctuation
        if source is not None and not isinstance(source, Marked | Closing | Control):
            raise InvalidJoin(
                f"stream {self.name!r}: punctuation is {source!r}; give marked(…), closing(…) or control(…)"
            )

    def _check_punctuation(self) -> None:
        source = self.punctuation
        if isinstance(source, Marked):
            if not pa.types.is_boolean(self.type_of(source.column)):
                raise InvalidJoin(
                    f"stream {self.name!r}: marked column {source.column!r} is "
                    f"{self.type_of(source.column)}; give a boolean column"
                )
            if source.column in self.key:
                raise InvalidJoin(f"stream {self.name!r}: the marked column {source.column!r} is a key")
            if source.partitions > 1 and len(self.sequence) != 2:
                raise InvalidJoin(
                    f"stream {self.name!r}: marked(partitions={source.partitions}) needs to know each row's "
                    "partition; add sequence=[partition column, offset column]"
                )
        if isinstance(source, Control):
            self._check_control(source)
        if len(self.sequence) > 2:
            raise InvalidJoin(
                f"stream {self.name!r}: sequence has {len(self.sequence)} columns; "
                "give [offset column] or [partition column, offset column]"
            )
        if self.sequence and not pa.types.is_integer(self.type_of(self.sequence[-1])):
            raise InvalidJoin(
                f"stream {self.name!r}: the offset column {self.sequence[-1]!r} must be a whole number, "
                f"it is {self.type_of(self.sequence[-1])}"
            )

    def _check_control(self, source: Control) -> None:
        """Whether a control source has the columns it needs; their types are the planner's to check."""
        missing = [f"{what}=" for what in ("time", "lateness") if getattr(self, _FIELDS[what]) is None]
        if missing:
            raise InvalidJoin(
                f"stream {self.name!r}: promises of control(…) act as its event time goes on; "
                f'add {" and ".join(missing)} (lateness may be "0 seconds")'
            )
        names = source.columns.names
        listed = f"the control source of stream {self.name!r} has the columns {', '.join(names) or 'none'}"
        _check_unrepeated(self.name, "the control source", tuple(names))
        if source.time not in names:
            raise InvalidJoin(f"{listed}; its time column {source.time!r} is missing, add it")
        dtype = source.type_of(source.time)
        if not (pa.types.is_timestamp(dtype) or pa.types.is_date(dtype)):
            raise InvalidJoin(
                f"the control source of stream {self.name!r}: time column {source.time!r} is {dtype}; "
                "give a timestamp or date column"
            )
        for key in self.key:
            ends = [end for end in (f"{key}_from", f"{key}_to") if end not in self.key]
            found = [end for end in ends if end in names]
            if key in names and found:
                raise InvalidJoin(
                    f"{listed}; of {key!r} and {', '.join(map(repr, found))} keep one form only"
                )
            if key not in names and len(found) < 2:
                raise InvalidJoin(
                    f"{listed}; for key column {key!r} add {key!r}, or {key + '_from'!r} and {key + '_to'!r}"
                )

    def type_of(self, column: str) -> pa.DataType:
        """The Arrow type of one column."""
        return self.schema.field(column).type

    @property
    def speaks_of(self) -> tuple[str, ...]:
        """The columns that a promise of this stream names."""
        return self.key if self.punctuated is None else self.punctuated

    @property
    def unnamed(self) -> tuple[str, ...]:
        """The columns that a promise must leave open to say something of the key.

        Worked case: with key x, <5, *> of (x, y) closes 5, <5, 7> closes nothing, and so y is one of them.
        """
        named = self.speaks_of
        return tuple(c for c in named if c not in self.key) if set(self.key) <= set(named) else named

    @property
    def unheard(self) -> tuple[str, ...]:
        """The columns that a promise must leave open to say something here or to a later operator."""
        return tuple(name for name in self.speaks_of if name not in (*self.key, *self.forwarded))

    @property
    def payload(self) -> tuple[str, ...]:
        """The columns of a result that this input brings beside the key, in declared order."""
        left_out = {*self.key, *self.sequence, *self.stamps}
        if isinstance(self.punctuation, Marked):
            left_out.add(self.punctuation.column)
        chosen = self.schema.names if self.columns is None else self.columns
        return tuple(name for name in chosen if name not in left_out)


def column_names(given: Any, what: str) -> tuple[str, ...]:
    """One column's name or several, as a tuple."""
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Sequence) else (given,)
    if not all(isinstance(name, str) for name in names):
        raise InvalidJoin(f"{what} is {given!r}; give a column's name or a list of names")
    return names


def _check_unrepeated(stream: str, what: str, names: tuple[str, ...]) -> None:
    if len(set(names)) != len(names):
        raise InvalidJoin(
            f"stream {stream!r}: {what} names a column twice ({', '.join(names)}); name each once"
        )
