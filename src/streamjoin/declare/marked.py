"""Marked punctuations: rows of a stream that a boolean column marks as punctuations, not data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from streamjoin.declare.punctuation_source import ClosingRows, PunctuationSource, Read
from streamjoin.errors import InvalidJoin

if TYPE_CHECKING:
    from streamjoin.declare.stream import Stream


@dataclass(frozen=True, slots=True)
class Marked(PunctuationSource):
    """Rows whose `column` is true are punctuations, not data."""

    column: str
    null_is_wildcard: bool = False
    partitions: int = 1
    name: ClassVar[str] = "marked"

    def __post_init__(self) -> None:
        if self.partitions < 1:
            raise InvalidJoin(f"marked(partitions={self.partitions!r}); give a whole number of 1 or more")

    def describe(self, stream: Stream) -> str:
        """The marked rows."""
        return f"punctuations of {stream.name} (rows marked {self.column})"

    def reads(self, stream: Stream) -> Mapping[str, Read]:
        """The flag."""
        return {"mark": self.column}

    def closing_rows(self, columns: Mapping[str, Any]) -> ClosingRows:
        """Marked rows close keys and are not data; a null flag marks nothing."""
        marks = pc.fill_null(columns["mark"], False).to_numpy(zero_copy_only=False)
        return ClosingRows(marks, data=~marks)

    def check(self, stream: Stream) -> None:
        """Refuse a flag that is no boolean or is a key, and partitions that no row names."""
        stream.require("marked", self.column)
        dtype = stream.type_of(self.column)
        if not pa.types.is_boolean(dtype):
            raise InvalidJoin(
                f"stream {stream.name!r}: marked column {self.column!r} is {dtype}; give a boolean column"
            )
        if self.column in stream.key:
            raise InvalidJoin(
                f"stream {stream.name!r}: the marked column {self.column!r} is a key; mark by another column"
            )
        if self.partitions > 1 and len(stream.sequence) != 2:
            raise InvalidJoin(
                f"stream {stream.name!r}: marked(partitions={self.partitions}) needs to know each row's "
                "partition; add sequence=[partition column, offset column]"
            )

    @property
    def hidden_columns(self) -> tuple[str, ...]:
        """The flag."""
        return (self.column,)

    @property
    def has_own_rows(self) -> bool:
        """Marked rows are no data."""
        return True


def marked(column: str, *, null_is_wildcard: bool = False, partitions: int = 1) -> Marked:
    """Rows flagged true in `column` are punctuations: no more rows with their key will come."""
    return Marked(column, null_is_wildcard, partitions)
