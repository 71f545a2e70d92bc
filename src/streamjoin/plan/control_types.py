"""Whether a control source can speak of the keys of its stream: each of its columns must be of a type
that is widened to the join's key type without loss, and a range needs a type with an order.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from streamjoin.columnar.types import plain, widen
from streamjoin.declare.stream import Control, Stream
from streamjoin.errors import InvalidJoin
from streamjoin.state.closed_ranges import orderable


def check_control(stream: Stream, key_types: Sequence[pa.DataType]) -> None:
    """Refuse a control source whose columns contradict the key's types."""
    source = stream.punctuation
    if not isinstance(source, Control):
        return
    _check_zone(stream, source)
    for key, dtype in zip(stream.key, key_types, strict=True):
        form = source.form(key, dtype)
        for column in (f"{key}_from", f"{key}_to") if form == "range" else (key,):
            found = source.type_of(column)
            if not _fits(found.value_type if form == "list" else found, dtype):
                wanted = f"{dtype}, or a list of it" if form != "range" else f"{dtype}"
                raise InvalidJoin(
                    f"stream {stream.name!r}: control column {column!r} is {found}, "
                    f"the join's key {key!r} is {dtype}; cast {column!r} to {wanted}"
                )
        if form == "range" and not orderable(dtype):
            raise InvalidJoin(
                f"stream {stream.name!r}: {key!r} is {dtype}, which has no order, so a range from "
                f"{key + '_from'!r} to {key + '_to'!r} has no meaning; promise by values in a column {key!r}"
            )


def _fits(found: pa.DataType, dtype: pa.DataType) -> bool:
    return bool(widen(dtype, plain(found)) == dtype)


def _check_zone(stream: Stream, source: Control) -> None:
    """Locally, times with and without a zone have nothing in common; Spark knows its session's zone."""
    if stream.time is None or stream.source is not None:
        return
    own, theirs = stream.type_of(stream.time), source.type_of(source.time)
    if not (pa.types.is_timestamp(own) and pa.types.is_timestamp(theirs)):
        return
    if (own.tz is None) != (theirs.tz is None):
        raise InvalidJoin(
            f"stream {stream.name!r}: its time column {stream.time!r} is {own}, that of its control source, "
            f"{source.time!r}, is {theirs}; give both a zone, or neither"
        )
