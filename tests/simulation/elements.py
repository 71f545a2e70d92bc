"""What the model works on: keys as ranks, punctuations, and the order in which a batch is worked through."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.simulation.script import Between, Eq, In, Input, Nothing, Pattern, Row, Star, matches, rank

Key = tuple[Any, ...]
NEVER = -(10**9)


class Stand(NamedTuple):
    """A row and where it stands in its input, if known; and whether it breaks what was declared."""

    row: Row
    at: tuple[int, int] | None
    violates: bool = False


@dataclass
class Took:
    """A row that takes part: where, when and as what."""

    input: int
    row: Row
    key: Key
    epoch: int
    operation: int
    violates: bool


@dataclass
class SortedRuns:
    """What is known of one input."""

    declared: Input
    live: dict[Key, list[Took]] = field(default_factory=dict)
    single: dict[Key, int] = field(default_factory=dict)  # and the time its input had reached
    wide: list[tuple[Pattern, ...]] = field(default_factory=list)
    seen: dict[Key, int] = field(default_factory=dict)
    partial_punctuations: set[tuple[Closure, int]] = field(
        default_factory=set
    )  # with the partition that made it
    waiting: list[tuple[int, Closure]] = field(default_factory=list)  # until watermark is past the time
    # clustered: by partition, the tuples since each open key
    recent: dict[int, dict[Key, int]] = field(default_factory=dict)
    # ordered: by partition, every value that came, as it came
    values: dict[int, list[Any]] = field(default_factory=dict)
    own: int = NEVER  # watermark by its own rows
    reached: int = NEVER  # the greatest event time of its rows
    counts: Counter[str] = field(default_factory=Counter)

    def punctuated(self, key: Key) -> bool:
        return key in self.single or any(covers(patterns, key) for patterns in self.wide)

    def closed(self, key: Key) -> bool:
        return key in self.seen or self.punctuated(key)

    def knows(self, punctuation: Closure) -> bool:
        """Whether a punctuation says nothing new."""
        if punctuation.key is not None and self.closed(punctuation.key):
            return True
        return any(wider(patterns, punctuation) for patterns in self.wide)

    def drop_partial(self, key: Key) -> None:
        self.partial_punctuations = {
            partial_key for partial_key in self.partial_punctuations if partial_key[0].key != key
        }

    @property
    def ended(self) -> bool:
        return any(all(isinstance(pattern, Star) for pattern in patterns) for patterns in self.wide)

    @property
    def live_ids(self) -> list[int]:
        return sorted(took.row.id for rows in self.live.values() for took in rows)


@dataclass(frozen=True)
class Closure:
    """Single keys have a `key`, the others `patterns`; `at` is None where order is not known."""

    key: Key | None
    patterns: tuple[Pattern, ...]
    at: tuple[int, int] | None = None

    def before(self, at: tuple[int, int] | None) -> bool:
        """Whether a row that stands there is known to come later; only within one partition."""
        return bool(self.at and at and self.at[0] == at[0] and self.at[1] < at[1])

    def covers(self, key: Key) -> bool:
        return key == self.key if self.key is not None else covers(self.patterns, key)


def covers(patterns: tuple[Pattern, ...], key: Key) -> bool:
    return all(matches(pattern, value) for pattern, value in zip(patterns, key, strict=True))


def wider(wide: tuple[Pattern, ...], punctuation: Closure) -> bool:
    """Whether a punctuation of constants and wildcards says nothing that `wide` does not say."""
    if punctuation.key is not None:
        return covers(wide, punctuation.key)
    return all(
        isinstance(pattern, Star) or (isinstance(one, Eq) and matches(pattern, rank(one.value)))
        for pattern, one in zip(wide, punctuation.patterns, strict=True)
    )


def key_of(row: Row) -> Key:
    return tuple(map(rank, row.key))


def singles(patterns: tuple[Pattern, ...]) -> list[Closure]:
    """A punctuation that names only constants and lists is as many single keys."""
    plain = [_plain(pattern) for pattern in patterns]
    if any(isinstance(pattern, Nothing) for pattern in plain):
        return []
    plain = [In(()) if _crossed(pattern) else pattern for pattern in plain]
    if In(()) in plain:
        return []
    listed = [pattern.values for pattern in plain if isinstance(pattern, In)]
    if len(listed) == len(plain):
        return [Closure(tuple(map(rank, key)), ()) for key in itertools.product(*listed)]
    return [Closure(None, tuple(plain))]


def exploded(patterns: tuple[Pattern, ...]) -> list[tuple[Pattern, ...]]:
    """A control row with lists is as many rows without."""
    parts = [[Eq(value) for value in one.values] if isinstance(one, In) else [one] for one in patterns]
    return list(itertools.product(*parts))


def _crossed(pattern: Pattern) -> bool:
    return (
        isinstance(pattern, Between)
        and None not in (pattern.low, pattern.high)
        and rank(pattern.low) > rank(pattern.high)
    )


def _plain(pattern: Pattern) -> Pattern:
    """A list for one value, one value for a range from it to itself, all for a range without ends."""
    if isinstance(pattern, Eq):
        return In((pattern.value,))
    if isinstance(pattern, Between):
        if pattern.low is None and pattern.high is None:
            return Star()
        if rank(pattern.low) == rank(pattern.high) and pattern.low_closed and pattern.high_closed:
            return In((pattern.low,))
    return pattern


# The order of arrival


def follow(side: SortedRuns, arrived: list[Stand]) -> tuple[set[int], list[Closure]]:
    """Ids of rows that break the declared order of arrival, and what it closes after the batch."""
    if side.declared.clustered is not None:
        return _follow_clusters(side, arrived, side.declared.clustered)
    if side.declared.ordered is not None:
        return _follow_order(side, arrived, side.declared.ordered)
    return set(), []


def _follow_clusters(side: SortedRuns, arrived: list[Stand], slack: int) -> tuple[set[int], list[Closure]]:
    behind, gone = set(), set()
    for stand in sorted(arrived, key=lambda each: each.at or ()):
        key, partition = key_of(stand.row), _partition(stand)
        recent = side.recent.setdefault(partition, {})
        if (key, partition) in gone or recent.get(key, 0) > slack:
            gone.add((key, partition))
            behind.add(stand.row.id)
        for other in recent:
            recent[other] += 1
        if (key, partition) not in gone:
            recent[key] = 0
    closed = []
    for partition, recent in side.recent.items():
        closed += [key for key, passed in recent.items() if passed > slack]
        side.recent[partition] = {key: passed for key, passed in recent.items() if passed <= slack}
    return behind, [Closure(key, ()) for key in closed]


def _follow_order(side: SortedRuns, arrived: list[Stand], slack: int) -> tuple[set[int], list[Closure]]:
    """A partition closes what is beyond all its tuples but the last few; the input, what all have closed."""
    down = side.declared.descending

    def beyond(limit: Any) -> tuple[Pattern, ...]:
        return (Between(limit, None, low_closed=False) if down else Between(None, limit, high_closed=False),)

    def limit_of(values: list[Any]) -> Any:
        settled = values[: max(len(values) - slack, 0)]
        return (min if down else max)(settled, key=rank, default=None)

    behind = set()
    for stand in sorted(arrived, key=lambda each: each.at or ()):
        values = side.values.setdefault(_partition(stand), [])
        limit = limit_of(values)
        if limit is not None and covers(beyond(limit), key_of(stand.row)):
            behind.add(stand.row.id)
        values.append(stand.row.key[0])
    limits = list(map(limit_of, side.values.values()))
    if not limits or None in limits:
        return behind, []
    return behind, [Closure(None, beyond((max if down else min)(limits, key=rank)))]


def _partition(stand: Stand) -> int:
    return stand.at[0] if stand.at else 0


# The order of work in a batch

Queue = tuple[list[Stand], list[tuple[int, Closure]]]


def queue(declared: Input, taking: list[Stand], says: list[Closure]) -> Queue:
    """Rows in order, and each punctuation with the number of rows before it.

    Where the order is not known, or rows of several partitions are mixed, punctuations act last.
    """
    partitions = {each.at[0] for each in (*taking, *says) if each.at is not None}
    if not declared.ordered_rows or len(partitions) > 1:
        return taking, [(len(taking), punctuation) for punctuation in says]
    rows = sorted(taking, key=lambda each: each.at or ())
    due = [sum(not punctuation.before(each.at) for each in rows) for punctuation in says]
    return rows, list(zip(due, says, strict=True))


def take(queue: Queue, quota: int | None) -> tuple[list[Stand], list[Closure], Queue]:
    """The next rows and the punctuations that then act; and what is left."""
    rows, says = queue
    size = len(rows) if quota is None else min(quota, len(rows))
    now = [punctuation for due, punctuation in says if due <= size]
    later = [(due - size, punctuation) for due, punctuation in says if due > size]
    return rows[:size], now, (rows[size:], later)
