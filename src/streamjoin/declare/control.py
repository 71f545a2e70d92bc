"""Control streams: punctuations that come on a stream of their own, each with the time at which it acts.

A punctuation acts when the watermark of its input is past its time; until then it is state
(`join.scheduled_punctuations`). Rows become scheduled punctuations in `join.scheduled_intake`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import pyarrow as pa

from streamjoin.columnar.types import orderable, plain, widen
from streamjoin.declare.checks import check_column
from streamjoin.declare.punctuation_source import PunctuationSource
from streamjoin.errors import InvalidJoin

if TYPE_CHECKING:
    from streamjoin.declare.stream import Stream

KeyForm: TypeAlias = Literal["value", "list", "range"]


@dataclass(frozen=True, slots=True)
class Control(PunctuationSource):
    """A separate stream of punctuations, each acting when its input's watermark is past its time.

    A key column stands in it as `<key>`, a value or a list, or as `<key>_from` and `<key>_to`, a range
    with both ends; null is a wildcard or a missing end. `schema` is what the source delivers, known
    once the stream is declared.
    """

    source: Any
    time: str
    schema: pa.Schema | None = field(default=None, compare=False, repr=False)
    name: ClassVar[str] = "control"

    def __post_init__(self) -> None:
        check_column(self.time, "control: time")

    @property
    def control(self) -> Control:
        """Itself."""
        return self

    @property
    def columns(self) -> pa.Schema:
        """The schema of a control that belongs to a stream."""
        if self.schema is None:
            raise InvalidJoin(
                f"control(…, time={self.time!r}) has no schema; give it a Spark DataFrame or a pyarrow.Schema"
            )
        return self.schema

    def type_of(self, column: str) -> pa.DataType:
        """The Arrow type of one column of the control stream."""
        return self.columns.field(column).type

    def form(self, key: str, dtype: pa.DataType) -> KeyForm:
        """Whether punctuations close values, lists or ranges of a key column of this type."""
        if key not in self.columns.names:
            return "range"
        return "list" if _list_depth(self.type_of(key)) > _list_depth(dtype) else "value"

    def describe(self, stream: Stream) -> str:
        """The control stream."""
        return f"the control stream of {stream.name} (as event time moves on {stream.name})"

    def waiting(self, stream: Stream) -> str:
        """Punctuations whose time has not come."""
        return (
            f"punctuations of its control stream are state until the watermark of {stream.name} passes "
            "their time"
        )

    def check(self, stream: Stream) -> None:
        """Refuse a control stream that lacks columns; their types are checked against the join's."""
        missing = [
            f"{what}="
            for what, value in (("time", stream.time), ("lateness", stream.lateness_us))
            if value is None
        ]
        if missing:
            raise InvalidJoin(
                f"stream {stream.name!r}: punctuations of control(…) act as its event time goes on; "
                f'add {" and ".join(missing)} (lateness may be "0 seconds")'
            )
        names = self.columns.names
        listed = f"the control source of stream {stream.name!r} has the columns {', '.join(names) or 'none'}"
        if len(set(names)) != len(names):
            raise InvalidJoin(
                f"stream {stream.name!r}: the control source names a column twice ({', '.join(names)}); "
                "name each once"
            )
        if self.time not in names:
            raise InvalidJoin(f"{listed}; its time column {self.time!r} is missing, add it")
        dtype = self.type_of(self.time)
        if not (pa.types.is_timestamp(dtype) or pa.types.is_date(dtype)):
            raise InvalidJoin(
                f"the control source of stream {stream.name!r}: time column {self.time!r} is {dtype}; "
                "give a timestamp or date column"
            )
        for key in stream.key:
            ends = [end for end in (f"{key}_from", f"{key}_to") if end not in stream.key]
            found = [end for end in ends if end in names]
            if key in names and found:
                raise InvalidJoin(
                    f"{listed}; of {key!r} and {', '.join(map(repr, found))} keep one form only"
                )
            if key not in names and len(found) < 2:
                raise InvalidJoin(
                    f"{listed}; for key column {key!r} add {key!r}, or {key + '_from'!r} and {key + '_to'!r}"
                )

    def check_key_types(self, stream: Stream, key_types: Sequence[pa.DataType]) -> None:
        """Each column must widen to the join's key type without loss, and a range needs an order."""
        self._check_zone(stream)
        for key, dtype in zip(stream.key, key_types, strict=True):
            form = self.form(key, dtype)
            for column in (f"{key}_from", f"{key}_to") if form == "range" else (key,):
                found = self.type_of(column)
                if widen(dtype, plain(found.value_type if form == "list" else found)) != dtype:
                    instead = f"{dtype}, or a list of it" if form != "range" else f"{dtype}"
                    raise InvalidJoin(
                        f"stream {stream.name!r}: control column {column!r} is {found}, "
                        f"the join's key {key!r} is {dtype}; cast {column!r} to {instead}"
                    )
            if form == "range" and not orderable(dtype):
                raise InvalidJoin(
                    f"stream {stream.name!r}: {key!r} is {dtype}, which has no order, so a range from "
                    f"{key + '_from'!r} to {key + '_to'!r} has no meaning; close values in a column {key!r}"
                )

    def _check_zone(self, stream: Stream) -> None:
        """Locally, times with and without a zone cannot be compared; Spark knows its session's zone."""
        if stream.time is None or stream.source is not None:
            return
        own, theirs = stream.type_of(stream.time), self.type_of(self.time)
        if not (pa.types.is_timestamp(own) and pa.types.is_timestamp(theirs)):
            return
        if (own.tz is None) != (theirs.tz is None):
            raise InvalidJoin(
                f"stream {stream.name!r}: its time column {stream.time!r} is {own}, that of its control "
                f"source, {self.time!r}, is {theirs}; give both a zone, or neither"
            )


def _list_depth(dtype: pa.DataType) -> int:
    """How many lists are nested."""
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return 1 + _list_depth(dtype.value_type) if any(is_list(dtype) for is_list in lists) else 0


def control(source: Any, *, time: str) -> Control:
    """A separate stream of punctuations; each acts when the input's watermark is past its `time`.

    `source` is what the stream's own is: a Spark DataFrame, or a `pyarrow.Schema` for a local run. For each
    key column it has `<key>`, a value or a list of values, or `<key>_from` and `<key>_to`, a range with both
    ends; a null value is a wildcard, a null end is missing. The stream needs time= and lateness=.
    """
    return Control(source, time)
