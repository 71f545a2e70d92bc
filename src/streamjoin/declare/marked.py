"""Marked punctuations: rows of a stream that a boolean column marks as punctuations, not data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from streamjoin.declare.checks import check_column, check_flag, check_number
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
    ignore_data: bool = False
    name: ClassVar[str] = "marked"

    def __post_init__(self) -> None:
        check_column(self.column, "marked: the column of the flag")
        check_flag(self.null_is_wildcard, "marked: null_is_wildcard")
        check_number(self.partitions, "marked: partitions")
        check_flag(self.ignore_data, "marked: ignore_data")

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
    def declared(self) -> str:
        """The line that declares it."""
        return f'sj.{self.name}("{self.column}")'

    @property
    def instead(self) -> str:
        """Rows that are the last data rows of their keys are closing rows."""
        return (
            f'If it is the last data row of its key, declare punctuation=sj.closing("{self.column}"); if its '
            f'data is to be ignored, sj.{self.name}("{self.column}", ignore_data=True). '
        )

    @property
    def ignores_data(self) -> bool:
        """As declared."""
        return self.ignore_data

    def remark(self) -> str | None:
        """That the rows are no data."""
        return f"rows marked {self.column} are control rows, never joined"

    @property
    def hidden_columns(self) -> tuple[str, ...]:
        """The flag."""
        return (self.column,)

    @property
    def has_own_rows(self) -> bool:
        """Marked rows are no data."""
        return True


def marked(
    column: str, *, null_is_wildcard: bool = False, partitions: int = 1, ignore_data: bool = False
) -> Marked:
    """Rows flagged true in `column` are punctuations: no more rows with their key will come.

    They are control rows, never joined: only their key counts. Where the flag is on the last *data* row of a
    key, declare `sj.closing(column)`, or that row is lost. A marked row with data is counted
    (`control_rows_with_data`), stands in `advice`, and is warned about (`sj.DataInControlRow`), unless its
    data is meant to be ignored (`ignore_data=True`).
    With `null_is_wildcard` a null key column stands for every value, so a row without any key ends the input;
    else such a row is a violation (`null_punctuation`). A key is closed once so many `partitions` of the
    source have sent its punctuation.

    >>> import pyarrow as pa
    >>> import streamjoin as sj
    >>> columns = pa.schema({"id": pa.int64(), "qty": pa.int64(), "over": pa.bool_()})
    >>> lines = sj.stream(columns, name="lines", key="id", punctuation=sj.marked("over"))
    >>> lines.payload
    ('qty',)
    """
    return Marked(column, null_is_wildcard, partitions, ignore_data)
