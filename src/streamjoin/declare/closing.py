"""Closing rows: data rows that are the last ones of their keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow.compute as pc

from streamjoin.declare.punctuation_source import ClosingRows, Condition, PunctuationSource, Read

if TYPE_CHECKING:
    from streamjoin.declare.stream import Stream


@dataclass(frozen=True, slots=True)
class Closing(PunctuationSource):
    """A data row for which the condition holds is the last one of its key."""

    condition: Any
    name: ClassVar[str] = "closing"

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

    A boolean column's name; on Spark also an SQL condition, locally also a pyarrow expression.
    """
    return Closing(condition)
