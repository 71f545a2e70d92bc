"""A punctuation: no tuple that matches it follows on its stream.

One pattern for each column, in the stream's order (MJoin, section 3.2). A punctuation matches tuples that
match **every** pattern. It closes a key only when it matches all tuples of that key, that is, when the
patterns outside of the key are wildcards: after `<79, *>` no access record of item 79 follows; after
`<79, "64.58.76.224">` only records of one address stop, so key 79 stays open.

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
    """One pattern for each column of a stream, in its order; simplified, so that equal ones compare equal."""

    patterns: tuple[Pattern, ...]

    def __post_init__(self) -> None:
        given = tuple(self.patterns)
        if not given or not all(isinstance(each, Pattern) for each in given):
            raise BadInput(
                f"A punctuation is made of one pattern for each column, not of {given!r}. "
                f"Turn values into patterns with pattern(value), and use ANY where every value matches."
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
        """Whether this tuple matches."""
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
        """True only when every tuple that `other` matches is matched by this punctuation too."""
        self._same_width(len(other.patterns), "the other punctuation has")
        pairs = zip(self.patterns, other.patterns, strict=True)
        return other.says_nothing or all(mine.covers(theirs) for mine, theirs in pairs)

    def intersect(self, other: "Punctuation") -> "Punctuation":
        """The punctuation that matches the tuples that both match."""
        self._same_width(len(other.patterns), "the other punctuation has")
        pairs = zip(self.patterns, other.patterns, strict=True)
        return Punctuation(tuple(mine.intersect(theirs) for mine, theirs in pairs))

    @property
    def says_nothing(self) -> bool:
        """Whether it matches no tuple, because one column's pattern is empty."""
        return any(isinstance(each, Empty) for each in self.patterns)

    def closes_key(self, key_positions: Sequence[int]) -> bool:
        """Whether it closes whole keys: every pattern outside of the key is a wildcard."""
        key = frozenset(key_positions)
        return all(isinstance(each, Wildcard) for at, each in enumerate(self.patterns) if at not in key)

    def key_patterns(self, key_positions: Sequence[int]) -> tuple[Pattern, ...]:
        """The patterns of the key columns, in the key's order."""
        return tuple(self.patterns[at] for at in key_positions)

    def _same_width(self, width: int, who: str) -> None:
        if width != len(self.patterns):
            raise BadInput(
                f"The punctuation {self.text()} has {len(self.patterns)} columns, {who} {width}. "
                f"Give one pattern for each column of the stream, ANY where every value matches."
            )

    def __str__(self) -> str:
        return self.text()
