"""Punctuation source: how an input says that no more rows of a key will come.

A source is one class with everything that the library asks of it. It names the columns it reads
(`reads`), checks them against the stream (`check`), says which rows of a batch close keys
(`closing_rows`), and describes itself for explain(), the bounds and the state report (`describe`).
Both runtimes ask through `join.row_intake`, so a source is written once for local runs and for Spark.
`docs/contributing/punctuation-source.md` adds one step by step.

A source is a frozen value: it is compared with its stream and pickled to Spark's workers.

Cost: `closing_rows` is called once per batch and should work on whole columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from streamjoin.columnar.keys import Mask
from streamjoin.errors import InvalidJoin

if TYPE_CHECKING:
    from streamjoin.declare.control import Control
    from streamjoin.declare.stream import Stream


@dataclass(frozen=True, slots=True)
class Condition:
    """A boolean test of each row, evaluated before the source sees it.

    A boolean column's name; on Spark also an SQL condition, locally also a pyarrow expression.
    """

    test: Any

    def check(self, stream: Stream, declared: str) -> None:
        """Refuse a column that is no boolean, and locally whatever else cannot be tested.

        What Spark can test, only Spark knows (`spark.columns.check_tests`).
        """
        names = stream.schema.names
        if stream.source is not None and not (isinstance(self.test, str) and self.test in names):
            return
        said = f"stream {stream.name!r}: {declared}({self.test!s})"
        test = pc.field(self.test) if isinstance(self.test, str) else self.test
        try:
            empty = ds.dataset(stream.schema.empty_table())
            found = empty.scanner(columns={"m": test}).to_table().column(0).type
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidJoin(
                f"{said} cannot be tested ({str(error).partition(chr(10))[0]}); give a boolean column's name "
                f"or a condition over {', '.join(names)}"
            ) from error
        if not pa.types.is_boolean(found):
            raise InvalidJoin(
                f"{said} is {found}, not true or false; give a boolean column, or a condition such as "
                f"{str(self.test) + ' = …'!r}"
            )


Read: TypeAlias = str | Condition  # a column of the stream, or a test of each row


@dataclass(frozen=True, slots=True)
class ClosingRows:
    """Which rows of a batch close the key they have, and which rows are data; None: all are.

    A row that closes and is data is the last one of its key. A row that closes and is not data is a
    punctuation: its null key columns are wildcards where the source allows them, else refused.
    """

    closes: Mask
    data: Mask | None = None


class PunctuationSource(ABC):
    """What the library asks of a punctuation source; `describe` and, mostly, three more are overridden."""

    __slots__ = ()
    name: ClassVar[str]  # the function that declares it, for error messages

    @abstractmethod
    def describe(self, stream: Stream) -> str:
        """What closes keys, such as "closing rows of lines": for explain() and the state report."""

    def reads(self, stream: Stream) -> Mapping[str, Read]:
        """The columns that `closing_rows` gets, each under a label of the source's own."""
        return {}

    def closing_rows(self, columns: Mapping[str, Any]) -> ClosingRows | None:
        """Which rows of a batch close keys, from the Arrow arrays of `reads`; None: rows never do."""
        return None

    def check(self, stream: Stream) -> None:  # noqa: B027  # most have nothing to refuse
        """Refuse a stream that contradicts the source; called when the stream is declared."""

    def check_key_types(  # noqa: B027  # most close any type of key
        self, stream: Stream, key_types: Sequence[pa.DataType]
    ) -> None:
        """Refuse a key type of the join that the source cannot close; called when a join is planned."""

    def closes_keys(self, stream: Stream) -> bool:
        """Whether keys of this stream get closed, which bounds the state of the other inputs.

        Not where an operator joins on other columns than those that punctuations name, unless these
        can leave the further columns open.
        """
        can_name_key = self.null_is_wildcard and set(stream.key) <= set(stream.punctuated_columns)
        return stream.punctuation_key is None or can_name_key

    def waiting(self, stream: Stream) -> str | None:
        """Which of its punctuations are state before they act, for the bounds; None: they act at once."""
        return None

    @property
    def declared(self) -> str:
        """How it was declared, for messages."""
        return f"{self.name}(…)"

    @property
    def instead(self) -> str:
        """What to write where its control rows are data after all: a sentence and a blank, or nothing."""
        return ""

    @property
    def ignores_data(self) -> bool:
        """Whether data in its control rows is meant to be ignored; else it is counted and warned about."""
        return False

    def remark(self) -> str | None:
        """What explain() adds where the source can be misread."""
        return None

    @property
    def hidden_columns(self) -> tuple[str, ...]:
        """Columns that only mark punctuations: they are no data and leave the result."""
        return ()

    @property
    def has_own_rows(self) -> bool:
        """Whether its punctuations are rows of their own.

        Such rows name the stream's key columns also to an operator that joins on other columns.
        """
        return False

    @property
    def null_is_wildcard(self) -> bool:
        """Whether a null key column of a punctuation row stands for any value."""
        return False

    @property
    def partitions(self) -> int:
        """How many source partitions must each send a punctuation before it counts."""
        return 1

    @property
    def control(self) -> Control | None:
        """The control stream that brings the punctuations; None where rows of the stream itself do."""
        return None
