"""Closing rows: data rows that are the last ones of their keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow.compute as pc

from streamjoin.declare.punctuation_source import ClosingRows, Condition, PunctuationSource, Read
from streamjoin.errors import InvalidJoin

if TYPE_CHECKING:
    from streamjoin.declare.stream import Stream


@dataclass(frozen=True, slots=True)
class Closing(PunctuationSource):
    """A data row for which the condition holds is the last one of its key."""

    condition: Any
    name: ClassVar[str] = "closing"

    def __post_init__(self) -> None:
        given = self.condition
        if not isinstance(given, pc.Expression) and not (isinstance(given, str) and given.strip()):
            raise InvalidJoin(
                f"closing: the condition is {given!r}; give a boolean column's name, SQL text, or in "
                "a local run a pyarrow expression"
            )

    def describe(self, stream: Stream) -> str:
        """The closing rows."""
        return f"closing rows of {stream.name}"

    def reads(self, stream: Stream) -> Mapping[str, Read]:
        """The condition, as tested on each row."""
        return {"last": Condition(self.condition)}

    def closing_rows(self, columns: Mapping[str, Any]) -> ClosingRows:
        """Rows that pass the test; all rows are data."""
        return ClosingRows(pc.fill_null(columns["last"], False).to_numpy(zero_copy_only=False))


def closing(condition: Any) -> Closing:
    """A data row for which `condition` holds is the last of its key.

    It is joined like any other row. A boolean column's name or SQL text over the stream's columns; in a local
    run also a pyarrow expression.

    >>> import pyarrow as pa
    >>> import streamjoin as sj
    >>> columns = pa.schema({"id": pa.int64(), "qty": pa.int64(), "last": pa.bool_()})
    >>> lines = sj.stream(columns, name="lines", key="id", punctuation=sj.closing("last"))
    >>> lines.payload
    ('qty', 'last')
    """
    return Closing(condition)
