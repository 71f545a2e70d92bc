"""A punctuation: the promise that no tuple matching it will come any more on its stream.

One pattern for each column, in the stream's order (MJoin, section 3.2). The promise holds for tuples that
match **every** pattern. It ends a join value only when it speaks of all tuples of that value, that is, when
the columns outside of the key are wildcards: after `<79, *>` no access record of item 79 comes; after
`<79, "64.58.76.224">` only one address is silent, and the item must be kept.

    >>> from streamjoin.punctuation import ANY, Constant
    >>> over = Punctuation((Constant(79), ANY))
    >>> over.text(), over.matches((79, "64.58.76.224")), over.closes_key([0])
    ('<79, *>', True, True)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamjoin.errors import BadInput
from streamjoin.punctuation.masks import Column, Mask
from streamjoin.punctuation.patterns import Empty, Pattern, Wildcard, simplify
from streamjoin.punctuation.text import parse_patterns
from streamjoin.punctuation.values import Value


@dataclass(frozen=True, slots=True)
class Punctuation:
    """Patterns for the columns of a stream, in its order; kept simple, so equal promises are equal values."""

    patterns: tuple[Pattern, ...]

    def __post_init__(self) -> None:
        given = tuple(self.patterns)
        if not given or not all(isinstance(each, Pattern) for each in given):
            raise BadInput(
                f"A punctuation is made of one pattern for each column, not of {given!r}. "
                f"Turn values into patterns with pattern(value) and use ANY where nothing is promised."
            )
        object.__setattr__(self, "patterns", tuple(map(simplify, given)))

    @classmethod
    def parse(cls, text: str, types: Sequence[pa.DataType]) -> "Punctuation":
        """Read the text form, for columns of these types.

        >>> Punctuation.parse("<[1, 5), *>", [pa.int64(), pa.string()]).matches((4, None))
        True
        """
        return cls(parse_patterns(text, types))

    def text(self) -> str:
        """The text form, `<180, *>`."""
        return "<" + ", ".join(each.text() for each in self.patterns) + ">"

    def matches(self, row: Sequence[Value | None]) -> bool:
        """Whether the promise speaks of this tuple."""
        self._same_width(len(row), "the row has")
        return all(each.matches(value) for each, value in zip(self.patterns, row, strict=True))

    def mask(self, columns: Sequence[Column]) -> Mask:
        """`matches` for each row of equally long Arrow columns."""
        self._same_width(len(columns), "there are")
        kept = np.ones(len(columns[0]), np.bool_)
        for each, column in zip(self.patterns, columns, strict=True):
            if not isinstance(each, Wildcard):
                kept &= each.mask(column)
        return kept

    def covers(self, other: "Punctuation") -> bool:
        """True only when every tuple that `other` speaks of is one this promise speaks of."""
        self._same_width(len(other.patterns), "the other punctuation has")
        pairs = zip(self.patterns, other.patterns, strict=True)
        return other.says_nothing or all(mine.covers(theirs) for mine, theirs in pairs)

    def intersect(self, other: "Punctuation") -> "Punctuation":
        """The promise about the tuples that both speak of."""
        self._same_width(len(other.patterns), "the other punctuation has")
        pairs = zip(self.patterns, other.patterns, strict=True)
        return Punctuation(tuple(mine.intersect(theirs) for mine, theirs in pairs))

    @property
    def says_nothing(self) -> bool:
        """Whether no tuple can match: one column's pattern is empty."""
        return any(isinstance(each, Empty) for each in self.patterns)

    def closes_key(self, key_positions: Sequence[int]) -> bool:
        """Whether it ends whole join values: every pattern outside of the key is a wildcard."""
        key = frozenset(key_positions)
        return all(isinstance(each, Wildcard) for at, each in enumerate(self.patterns) if at not in key)

    def key_patterns(self, key_positions: Sequence[int]) -> tuple[Pattern, ...]:
        """The patterns of the key columns, in the key's order."""
        return tuple(self.patterns[at] for at in key_positions)

    def _same_width(self, width: int, who: str) -> None:
        if width != len(self.patterns):
            raise BadInput(
                f"The punctuation {self.text()} has {len(self.patterns)} columns, {who} {width}. "
                f"Give one pattern for each column of the stream, ANY where nothing is promised."
            )

    def __str__(self) -> str:
        return self.text()
