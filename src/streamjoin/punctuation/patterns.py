"""The patterns of a punctuation, as frozen, hashable values (Tucker et al.; MJoin section 3.2).

    *         Wildcard      every value, null included
    180       Constant      one value
    [1, 5)    Range         an interval; an end may be missing
    {1, 2}    Enumeration   a list of values, sorted, without repeats
    {}        Empty         no value
    null      Null          null alone, for keys that are null-safe; not one of the papers' five

A pattern is tested for one value (`matches`) and for a column (`mask`) with the same result. Two patterns
combine in `intersect` and compare in `covers`. Worked number: `[1, 5)` and `{3, 5, 9}` intersect in 3.

    >>> between(1, 5, high_closed=False).intersect(Enumeration((3, 5, 9)))
    Constant(value=3)

`simplify` gives the canonical form, in which patterns that match the same values are equal; a `Punctuation`
has only simplified patterns. `covers` is conservative: True is certain, but it may be False for a range whose
gaps only the type knows. {1, 2} does not cover [1, 2], since a pattern does not know the type of its column.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamjoin.errors import BadInput
from streamjoin.punctuation import masks
from streamjoin.punctuation.masks import Column, Mask
from streamjoin.punctuation.values import Value, below, canonical, convert, rank, write


class Pattern(ABC):
    """Base of the patterns. Equality and hash follow `values.rank`: one NaN, one zero."""

    __slots__ = ()

    @abstractmethod
    def matches(self, value: Value | None) -> bool:
        """Whether the pattern matches the value; only the wildcard and `Null` match null."""

    @abstractmethod
    def mask(self, column: Column) -> Mask:
        """`matches` for each row of an Arrow column."""

    @abstractmethod
    def text(self) -> str:
        """The text form, which `parse_pattern` reads back."""

    @abstractmethod
    def identity(self) -> tuple[Any, ...]:
        """The value by which two patterns of one class are equal."""

    def intersect(self, other: "Pattern") -> "Pattern":
        """The simplified pattern that matches the values that both match."""
        one, two = simplify(self), simplify(other)
        if isinstance(one, Null) and isinstance(two, Null):
            return one
        if isinstance(one, Range) and isinstance(two, Range):
            low = one if _starts_within(one, two) else two
            high = one if _ends_within(one, two) else two
            return simplify(Range(low.low, high.high, low.low_closed, high.high_closed))
        for this, that in ((one, two), (two, one)):
            if isinstance(this, Wildcard):
                return that
            if isinstance(this, Constant | Enumeration):
                return simplify(Enumeration(tuple(v for v in _listed(this) if that.matches(v))))
        return Empty()

    def covers(self, other: "Pattern") -> bool:
        """True only when every value that `other` matches is matched by this pattern too."""
        one, two = simplify(self), simplify(other)
        if isinstance(one, Wildcard) or isinstance(two, Empty):
            return True
        if isinstance(two, Null):
            return one.matches(None)
        if isinstance(two, Constant | Enumeration):
            return all(one.matches(value) for value in _listed(two))
        if isinstance(one, Range) and isinstance(two, Range):
            return _starts_within(two, one) and _ends_within(two, one)
        return False

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Pattern):
            return NotImplemented
        return type(self) is type(other) and self.identity() == other.identity()

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.identity()))

    def __str__(self) -> str:
        return self.text()


@dataclass(frozen=True, slots=True, eq=False)
class Wildcard(Pattern):
    """Every value, null included: `*`."""

    def matches(self, value: Value | None) -> bool:
        """Always."""
        return True

    def mask(self, column: Column) -> Mask:
        """Every row."""
        return masks.everything(column)

    def text(self) -> str:
        """A star."""
        return "*"

    def identity(self) -> tuple[Any, ...]:
        """All wildcards are equal."""
        return ()


ANY = Wildcard()


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Pattern):
    """One value: `180`."""

    value: Value

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", canonical(self.value))

    def matches(self, value: Value | None) -> bool:
        """Whether it is the value."""
        return value is not None and bool(rank(value) == rank(self.value))

    def mask(self, column: Column) -> Mask:
        """Rows equal to the value."""
        return masks.equal(column, self.value)

    def text(self) -> str:
        """The value."""
        return write(self.value)

    def identity(self) -> tuple[Any, ...]:
        """The value's rank."""
        return (rank(self.value),)


@dataclass(frozen=True, slots=True, eq=False)
class Range(Pattern):
    """An interval: `[1, 5)`. An end of None is missing and never closed.

    Without both ends it equals the wildcard once simplified, and matches null too.
    """

    low: Value | None
    high: Value | None
    low_closed: bool = True
    high_closed: bool = True

    def __post_init__(self) -> None:
        for end in ("low", "high"):
            value, closed = getattr(self, end), getattr(self, f"{end}_closed")
            object.__setattr__(self, end, None if value is None else canonical(value))
            object.__setattr__(self, f"{end}_closed", bool(closed) and value is not None)
        if self.low is not None and self.high is not None:
            below(self.low, self.high)  # refuses ends of different kinds

    def matches(self, value: Value | None) -> bool:
        """Whether it lies between the ends."""
        if value is None:
            return self.low is None and self.high is None
        return self._after_low(value) and self._before_high(value)

    def _after_low(self, value: Value) -> bool:
        if self.low is None:
            return True
        return not below(value, self.low) if self.low_closed else below(self.low, value)

    def _before_high(self, value: Value) -> bool:
        if self.high is None:
            return True
        return not below(self.high, value) if self.high_closed else below(value, self.high)

    def mask(self, column: Column) -> Mask:
        """Rows between the ends."""
        if self.low is None and self.high is None:
            return masks.everything(column)
        closed = {"low_closed": self.low_closed, "high_closed": self.high_closed}
        return masks.within(column, low=self.low, high=self.high, **closed)

    def text(self) -> str:
        """Square brackets include the end, round ones exclude it or mark it missing."""
        low = "" if self.low is None else write(self.low)
        high = "" if self.high is None else write(self.high)
        return f"{'[' if self.low_closed else '('}{low}, {high}{']' if self.high_closed else ')'}"

    def identity(self) -> tuple[Any, ...]:
        """The ends, and whether each is closed."""
        return rank(self.low), rank(self.high), self.low_closed, self.high_closed


@dataclass(frozen=True, slots=True, eq=False)
class Enumeration(Pattern):
    """A list of values, kept sorted and without repeats: `{1, 2}`."""

    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        once = {rank(value): value for value in map(canonical, self.values)}
        try:
            ordered = tuple(once[key] for key in sorted(once))
        except TypeError as error:
            raise BadInput(
                f"The values {tuple(self.values)!r} have no common order. Give a list of values of one type."
            ) from error
        object.__setattr__(self, "values", ordered)

    def matches(self, value: Value | None) -> bool:
        """Whether it is one of the values; a binary search."""
        if value is None:
            return False
        try:
            at = bisect_left(self.values, rank(value), key=rank)
        except TypeError:  # a value of another kind is none of these
            return False
        return at < len(self.values) and bool(rank(self.values[at]) == rank(value))

    def mask(self, column: Column) -> Mask:
        """Rows equal to one of the values."""
        return masks.member(column, self.values)

    def text(self) -> str:
        """The values in curly brackets."""
        return "{" + ", ".join(map(write, self.values)) + "}"

    def identity(self) -> tuple[Any, ...]:
        """The values' ranks."""
        return tuple(map(rank, self.values))


@dataclass(frozen=True, slots=True, eq=False)
class Empty(Pattern):
    """No value: `{}`."""

    def matches(self, value: Value | None) -> bool:
        """Never."""
        return False

    def mask(self, column: Column) -> Mask:
        """No row."""
        return masks.nothing(column)

    def text(self) -> str:
        """Empty curly brackets."""
        return "{}"

    def identity(self) -> tuple[Any, ...]:
        """All empty patterns are equal."""
        return ()


@dataclass(frozen=True, slots=True, eq=False)
class Null(Pattern):
    """Null and nothing else: `null`."""

    def matches(self, value: Value | None) -> bool:
        """Whether it is null."""
        return value is None

    def mask(self, column: Column) -> Mask:
        """Rows that are null."""
        return masks.nulls(column)

    def text(self) -> str:
        """The word."""
        return "null"

    def identity(self) -> tuple[Any, ...]:
        """All are equal."""
        return ()


NULL = Null()


def between(
    low: Value | None, high: Value | None, *, low_closed: bool = True, high_closed: bool = True
) -> Range:
    """The values from low to high; None for an end that is missing.

    >>> between(1, None).text()
    '[1, )'
    """
    return Range(low, high, low_closed, high_closed)


def pattern(given: Any) -> Pattern:
    """The pattern for what a user gives: a pattern, a value, or a list, tuple or set of values.

    >>> pattern([2, 1, 2])
    Enumeration(values=(1, 2))
    """
    if isinstance(given, Pattern):
        return given
    if isinstance(given, list | tuple | set | frozenset):
        return Enumeration(tuple(given))
    return Constant(given)


def simplify(given: Pattern) -> Pattern:
    """The simplest pattern that matches the same values.

    >>> simplify(between(5, 5)), simplify(Enumeration(())), simplify(between(None, None))
    (Constant(value=5), Empty(), Wildcard())
    """
    if isinstance(given, Enumeration) and len(given.values) < 2:
        return Constant(given.values[0]) if given.values else Empty()
    if not isinstance(given, Range):
        return given
    if given.low is None or given.high is None:
        return ANY if given.low is None and given.high is None else given
    if below(given.low, given.high):
        return given
    one_value = not below(given.high, given.low) and given.low_closed and given.high_closed
    return Constant(given.low) if one_value else Empty()


def check(given: Pattern, dtype: pa.DataType) -> Pattern:
    """The pattern with its values converted to the type of a column, or `BadInput` with type and value.

    >>> check(Constant(5), pa.decimal128(10, 2))
    Constant(value=Decimal('5.00'))
    """
    if isinstance(given, Constant):
        return Constant(convert(given.value, dtype))
    if isinstance(given, Enumeration):
        return Enumeration(tuple(convert(value, dtype) for value in given.values))
    if isinstance(given, Range):
        ends = [None if end is None else convert(end, dtype) for end in (given.low, given.high)]
        return Range(ends[0], ends[1], given.low_closed, given.high_closed)
    return given


def _listed(given: Constant | Enumeration) -> tuple[Value, ...]:
    return (given.value,) if isinstance(given, Constant) else given.values


def _starts_within(one: Range, other: Range) -> bool:
    """Whether `one` begins no earlier than `other`."""
    if one.low is None or other.low is None:
        return other.low is None
    if below(other.low, one.low) or below(one.low, other.low):
        return below(other.low, one.low)
    return other.low_closed or not one.low_closed


def _ends_within(one: Range, other: Range) -> bool:
    """Whether `one` ends no later than `other`."""
    if one.high is None or other.high is None:
        return other.high is None
    if below(one.high, other.high) or below(other.high, one.high):
        return below(one.high, other.high)
    return other.high_closed or not one.high_closed
