"""Stream: one input of a join with its declared constraints, a frozen value checked when it is made.

A `Stream` has the key of an input, its event time and window, its arrival order and its punctuation
source. Nothing here touches data; durations are integer microseconds (`_us`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import pyarrow as pa

from streamjoin.declare.arrival import Arrival, ArrivalOrder
from streamjoin.declare.checks import check_flag
from streamjoin.declare.control import Control
from streamjoin.declare.durations import duration_text
from streamjoin.declare.punctuation_source import Condition, PunctuationSource
from streamjoin.declare.short_lists import few
from streamjoin.declare.upstream import UpstreamJoin
from streamjoin.errors import InvalidJoin

OnViolation: TypeAlias = Literal["drop", "keep", "fail"]
_FIELDS = {"time": "time", "lateness": "lateness_us"}  # as declared, and the name of the field


@dataclass(frozen=True, repr=False)
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
    uses_punctuations: bool = True  # False: for an operator of the papers that ignores punctuations
    punctuation_key: tuple[str, ...] | None = None  # the columns that punctuations name, if not the key
    forwarded: tuple[str, ...] = ()  # columns that punctuations name for a later operator
    later_keys: tuple[tuple[str, ...], ...] = ()  # the keys of later operators that they may name
    stamps: tuple[str, ...] = ()  # of a join's results: columns of the latest time, and until when they count
    null_safe: bool = False  # as its join says: a null key is a key like any other
    upstream: UpstreamJoin | None = None
    source: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        name: Any = self.name
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise InvalidJoin(
                f"stream name {name!r}; give a name of letters, digits and _ that starts with a letter"
            )
        if not self.key:
            raise InvalidJoin(f"stream {self.name!r} has no key; name at least one key column")
        _check_unrepeated(self.name, "key", self.key)
        self._check_columns_exist()
        self._check_kinds()
        self._check_time()
        self._check_ttl()
        self._check_sequence()
        if self.punctuation is not None:
            self.punctuation.check(self)
            for read in self.punctuation.reads(self).values():
                if isinstance(read, Condition):
                    read.check(self, self.punctuation.name)
        if self.on_violation not in get_args(OnViolation):
            raise InvalidJoin(
                f"stream {self.name!r}: on_violation is {self.on_violation!r}; give 'drop', 'keep' or 'fail'"
            )

    def __repr__(self) -> str:
        said = [f"key {', '.join(self.key)}"]
        said += ["unique"] if self.unique else []
        said += [f"time {self.time}"] if self.time is not None else []
        said += [f"window {duration_text(self.window_us)}"] if self.window_us is not None else []
        said += [f"{self.arrival.name} arrival"] if self.arrival is not None else []
        said += [f"{self.punctuation.name} punctuations"] if self.punctuation is not None else []
        return f"<Stream {self.name}({few(self.schema.names)}): {', '.join(said)}>"

    def _check_columns_exist(self) -> None:
        names = self.schema.names
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise InvalidJoin(
                f"stream {self.name!r} has more than one column {', '.join(map(repr, repeated))}; rename one"
            )
        times = () if self.time is None else (self.time,)
        named = {"key": self.key, "sequence": self.sequence, "columns": self.columns or (), "time": times}
        for what, columns in named.items():
            for column in columns:
                self.require(what, column)

    def require(self, what: str, column: str) -> None:
        """Refuse a column that does not exist; `what` it was declared as goes into the message."""
        if column not in self.schema.names:
            raise InvalidJoin(
                f"stream {self.name!r}: {what} column {column!r} does not exist; "
                f"its columns are {', '.join(self.schema.names)}"
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
        check_flag(self.unique, f"stream {self.name!r}: unique")
        arrival: Any = self.arrival
        if arrival is not None and not isinstance(arrival, ArrivalOrder):
            raise InvalidJoin(
                f"stream {self.name!r}: arrival is {arrival!r}; give clustered(…) or ordered(…)"
            )
        source: Any = self.punctuation
        if source is not None and not isinstance(source, PunctuationSource):
            raise InvalidJoin(
                f"stream {self.name!r}: punctuation is {source!r}; give marked(…), closing(…), control(…) "
                "or another PunctuationSource"
            )

    def _check_sequence(self) -> None:
        if len(self.sequence) > 2:
            raise InvalidJoin(
                f"stream {self.name!r}: sequence has {len(self.sequence)} columns; "
                "give [offset column] or [partition column, offset column]"
            )
        if self.sequence and not pa.types.is_integer(self.type_of(self.sequence[-1])):
            raise InvalidJoin(
                f"stream {self.name!r}: the offset column {self.sequence[-1]!r} must be a whole number, "
                f"it is {self.type_of(self.sequence[-1])}; cast it"
            )

    def type_of(self, column: str) -> pa.DataType:
        """The Arrow type of one column."""
        return self.schema.field(column).type

    @property
    def control(self) -> Control | None:
        """The control stream that brings its punctuations; None where its own rows do."""
        return None if self.punctuation is None else self.punctuation.control

    @property
    def punctuated_columns(self) -> tuple[str, ...]:
        """The columns that a punctuation of this stream has patterns for."""
        return self.key if self.punctuation_key is None else self.punctuation_key

    @property
    def wildcards_for_key(self) -> tuple[str, ...]:
        """The columns for which a punctuation must have wildcards to close keys of this stream.

        Worked case: with key x, <5, *> of (x, y) closes 5, <5, 7> closes nothing, and so y is one of them.
        """
        named = self.punctuated_columns
        return tuple(c for c in named if c not in self.key) if set(self.key) <= set(named) else named

    @property
    def wildcards_for_later(self) -> tuple[str, ...]:
        """The columns for which a punctuation must have wildcards to close keys here or in a later join."""
        return tuple(name for name in self.punctuated_columns if name not in (*self.key, *self.forwarded))

    @property
    def hidden_columns(self) -> tuple[str, ...]:
        """Columns that are no data: a row's position in its source, or that it is a punctuation."""
        return self.sequence + (() if self.punctuation is None else self.punctuation.hidden_columns)

    @property
    def payload(self) -> tuple[str, ...]:
        """The columns of a result that this input brings beside the key, in declared order."""
        left_out = {*self.key, *self.stamps, *self.hidden_columns}
        chosen = self.schema.names if self.columns is None else self.columns
        return tuple(name for name in chosen if name not in left_out)


def column_names(given: Any, what: str) -> tuple[str, ...]:
    """One column's name or several, as a tuple."""
    listed = isinstance(given, Sequence) and not isinstance(given, str | bytes)
    names = tuple(given) if listed else (given,)
    if not all(isinstance(name, str) for name in names):
        raise InvalidJoin(f"{what} is {given!r}; give a column's name or a list of names")
    return names


def _check_unrepeated(stream: str, what: str, names: tuple[str, ...]) -> None:
    if len(set(names)) != len(names):
        raise InvalidJoin(
            f"stream {stream!r}: {what} names a column twice ({', '.join(names)}); name each once"
        )
