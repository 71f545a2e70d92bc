"""The columns of a result: the key columns under the first input's names, then each input's other
columns in declared order. A key column keeps its name; any other name that occurs twice, or
equals a key's, is prefixed on every side with its input's name.

Worked case: news(sno, title) with access(sno, title, ip) gives sno, news_title, access_title, ip.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from streamjoin.columnar.types import plain
from streamjoin.errors import InvalidJoin


class Columns(Protocol):
    """What a result takes of an input: a stream, or a table."""

    @property
    def name(self) -> str: ...
    @property
    def key(self) -> tuple[str, ...]: ...
    @property
    def payload(self) -> tuple[str, ...]: ...
    def type_of(self, column: str) -> pa.DataType: ...


def joined_schema(streams: Sequence[Columns], key_types: Sequence[pa.DataType]) -> pa.Schema:
    """Names and types of the columns of a joined row."""
    keys = streams[0].key
    seen = Counter([*keys, *(column for stream in streams for column in stream.payload)])
    fields = [pa.field(name, dtype) for name, dtype in zip(keys, key_types, strict=True)]
    for stream in streams:
        for column in stream.payload:
            name = column if seen[column] == 1 else f"{stream.name}_{column}"
            fields.append(pa.field(name, plain(stream.type_of(column))))
    check_names(fields)
    return pa.schema(fields)


def check_names(fields: Sequence[pa.Field]) -> None:
    """Refuse a result that has two columns of one name."""
    names = Counter(field.name for field in fields)
    clashing = sorted(name for name, count in names.items() if count > 1)
    if clashing:
        raise InvalidJoin(
            f"the result would have more than one column {', '.join(map(repr, clashing))}; "
            "rename a column or an input, or choose columns=[…]"
        )
