"""Where the columns of a stream come from: by which a restart knows them.

A column of a source is known by its name. One of a join's results is known by the stream that brings it and
its name there, `news.title`, however many joins it has passed: its name in the result may change when another
input gets a column of the same name (`output`).
"""

from __future__ import annotations

from typing import Any

from streamjoin.declare.stream import Stream


def origins(stream: Stream) -> tuple[str, ...]:
    """The origin of key and payload columns; none where these are columns of a source."""
    if stream.upstream is None:
        return ()
    return tuple(origin(stream, column) for column in (*stream.key, *stream.payload))


def origin(stream: Stream, column: str) -> str:
    """Where a column of a stream comes from."""
    if stream.upstream is None:
        return column
    plan: Any = stream.upstream.plan
    found = None if plan.spec.grouping is not None else _below(plan, column)
    if found is None:
        return f"{plan.spec.name}.{column}"
    below, name = found
    return origin(below, name) if below.upstream is not None else f"{below.name}.{name}"


def _below(plan: Any, column: str) -> tuple[Stream, str] | None:
    """The input of a join that brings an output column, and its name there."""
    spec = plan.spec
    if column in spec.key_names:
        return plan.streams[0], plan.streams[0].key[spec.key_names.index(column)]
    for number, stream in enumerate(plan.streams):
        payload = spec.payload_names(number)
        if column in payload:
            return stream, stream.payload[payload.index(column)]
        if spec.own_keys:
            first = spec.first_column(number)
            keys = spec.output.names[first : first + len(stream.key)]
            if column in keys:
                return stream, stream.key[keys.index(column)]
    return None
