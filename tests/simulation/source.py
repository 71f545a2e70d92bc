"""The next elements of one input: rows that are honest or not, and punctuations of any form."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import Any, NamedTuple

from tests.simulation.script import (
    Advance,
    Between,
    Control,
    End,
    Eq,
    In,
    Input,
    Nothing,
    Pattern,
    Punctuate,
    Row,
    Settings,
    Star,
    matches,
    rank,
)

EXTRAS = {
    "int64": (0, 1, 2, None),
    "string": ("p", "q", "", None),
    "float64": (10.0, 9.5, -1.0, None),
    "decimal2": (Decimal("10.00"), Decimal("9.50"), None),
}


class Shape(NamedTuple):
    """Inputs, settings and the values of each key column."""

    inputs: tuple[Input, ...]
    settings: Settings
    domain: tuple[tuple[Any, ...], ...]


class Habits(NamedTuple):
    """How an input behaves: the share of rows that keep what was declared, the share of punctuations
    that are ranges or wildcards, and how far its times lag behind the clock."""

    honest: float = 1.0
    wide: float = 0.3
    lag: int = 0


class Source:
    """The next elements of one input."""

    def __init__(self, rng: Random, number: int, shape: Shape, habits: Habits) -> None:
        self.rng, self.number, self.habits = rng, number, habits
        self.declared, self.domain = shape.inputs[number], shape.domain
        self.punctuated: list[tuple[Pattern, ...]] = []
        self.controlled: list[tuple[tuple[Pattern, ...], int]] = []
        self.seen: set[Any] = set()
        self.history: list[tuple[Any, ...]] = []
        self.homes: dict[Any, int] = {}  # the partition of each key, where an order of arrival is declared
        self.past: dict[int, list[tuple[Any, ...]]] = {}  # the history of each partition
        self.greatest: int | None = None
        self.count = 0

    def rows(self, size: int, clock: int) -> tuple[Row, ...]:
        """Some rows, in an order that the input's sequence need not follow."""
        made = [row for _ in range(size) if (row := self.row(clock)) is not None]
        if self.declared.sequence and self.habits.honest < 1 and self.rng.random() < 0.2:
            self.rng.shuffle(made)
        return tuple(made)

    def row(self, clock: int) -> Row | None:
        """One row, or none where every key is over."""
        rng, declared = self.rng, self.declared
        honest = rng.random() < self.habits.honest
        if declared.punctuation == "marked" and rng.random() < 0.15 * declared.partitions:
            return self._marked(clock)
        key = self._key(honest=honest)
        if key is None:
            return None
        t = self._time(clock, honest=honest)
        if honest and t is not None and self._over(key, t):
            return None
        if honest and None in key and any(all(isinstance(p, Star) for p in each) for each in self.punctuated):
            return None
        flag = declared.punctuation == "closing" and rng.random() < 0.25
        partition = self._partition(key, honest=honest)
        if None not in key:
            self._remember(key, partition)
            if flag:
                self.punctuation(tuple(map(Eq, key)))
        return self._row(key, t, partition, flag=flag)

    def _partition(self, key: tuple[Any, ...], *, honest: bool) -> int:
        if self.declared.sequence < 2:
            return 0
        if not self.declared.follows or not honest:
            return self.rng.randrange(2)
        return self._home(key)

    def _home(self, key: tuple[Any, ...]) -> int:
        value = tuple(map(rank, key))
        if value not in self.homes:
            self.homes[value] = self.rng.randrange(2) if self.declared.sequence == 2 else 0
        return self.homes[value]

    def _row(self, key: tuple[Any, ...], t: int | None, partition: int, *, flag: bool) -> Row:
        self.count += 1
        x = self.rng.choice(EXTRAS[self.declared.x])
        return Row(key, t, self.number * 1000 + self.count, x, flag, self.count, partition)

    def _marked(self, clock: int) -> Row:
        if self.declared.wildcard and self.rng.random() < 0.3:
            key = tuple(self.rng.choice((None, *values)) for values in self.domain)
        else:
            key = self._any_key()
            if self.habits.honest < 1 and not self.declared.wildcard and self.count % 13 == 7:  # a violation
                key = (*key[:-1], None)
                return self._row(key, clock, self._partition(key, honest=True), flag=True)
        # with two partitions, one's word may not be all
        self.punctuation(tuple(Star() if value is None else Eq(value) for value in key))
        t = self.rng.choice((None, clock, clock + 50))
        return self._row(key, t, self._partition(key, honest=True), flag=True)

    def _any_key(self) -> tuple[Any, ...]:
        return tuple(map(self.rng.choice, self.domain))

    def _key(self, *, honest: bool) -> tuple[Any, ...] | None:
        if self.rng.random() < 0.04:
            key = list(self._any_key())
            key[self.rng.randrange(len(key))] = None
            return tuple(key)
        if not honest:
            return self._any_key()
        if self.declared.clustered is not None and self.history and self.rng.random() < 0.6:
            tries = [self.history[-1]]
        else:
            tries = [self._any_key() for _ in range(6)]
        if self.declared.ordered is not None:
            tries.sort(key=lambda key: rank(key[0]), reverse=self.declared.descending)
        return next((key for key in tries if self._allowed(key)), None)

    def _allowed(self, key: tuple[Any, ...]) -> bool:
        """Whether a row of this key keeps all punctuations of this input."""
        value = tuple(map(rank, key))
        if any(all(map(matches, patterns, value)) for patterns in self.punctuated):
            return False
        if self.declared.unique and value in self.seen:
            return False
        if not self.declared.follows:
            return True
        past = self.past.get(self._home(key), [])
        if self.declared.clustered is not None:
            since = [tuple(map(rank, each)) for each in past[::-1]]
            return value not in since or since.index(value) <= self.declared.clustered
        limit = self._limit(past)
        if limit is None:
            return True
        return value[0] <= rank(limit) if self.declared.descending else value[0] >= rank(limit)

    def _over(self, key: tuple[Any, ...], t: int) -> bool:
        """Whether a control punctuation closes this key from then on. Older rows may still come."""
        value = tuple(map(rank, key))
        return any(t > until and all(map(matches, patterns, value)) for patterns, until in self.controlled)

    def _limit(self, past: list[tuple[Any, ...]]) -> Any:
        settled = [key[0] for key in past[: max(len(past) - (self.declared.ordered or 0), 0)]]
        return (min if self.declared.descending else max)(settled, key=rank, default=None)

    def _remember(self, key: tuple[Any, ...], partition: int) -> None:
        self.seen.add(tuple(map(rank, key)))
        self.history.append(key)
        self.past.setdefault(partition, []).append(key)
        if self.declared.ordered is None or self.declared.sequence < 2:
            return
        limits = list(map(self._limit, self.past.values()))
        if None in limits:
            return
        # what all partitions have passed is closed, also for one that comes later or has slack left
        if self.declared.descending:
            self.punctuation((Between(max(limits, key=rank), None, low_closed=False),))
        else:
            self.punctuation((Between(None, min(limits, key=rank), high_closed=False),))

    def _time(self, clock: int, *, honest: bool) -> int | None:
        if self.declared.time is None:
            return None
        if not honest and self.rng.random() < 0.2:
            return None
        lateness = self.declared.lateness or 0
        t = clock - self.habits.lag + self.rng.randint(-lateness - (0 if honest else 4), 2)
        if honest and self.greatest is not None:
            t = max(t, self.greatest - lateness)
        self.greatest = t if self.greatest is None else max(self.greatest, t)
        return t

    def punctuation(self, patterns: tuple[Pattern, ...]) -> None:
        """From now on this input keeps quiet about what matches."""
        self.punctuated.append(patterns)

    def forget(self, value: tuple[Any, ...]) -> None:
        """A key, as ranks, that is closed on every input: what comes now is a new one."""
        self.seen.discard(value)
        self.punctuated = [
            patterns
            for patterns in self.punctuated
            if not all(isinstance(p, Eq) and matches(p, v) for p, v in zip(patterns, value, strict=True))
        ]

    def end(self) -> End:
        """No more rows."""
        self.punctuation((Star(),) * len(self.domain))
        return End(self.number)

    def punctuate(self) -> Punctuate:
        """A punctuation of its own, of any form."""
        patterns = tuple(self._pattern(values) for values in self.domain)
        form = self.rng.choice(("key", "key", "key", "whole", "partial"))
        if form != "partial":
            self.punctuation(patterns)
        return Punctuate(self.number, patterns, form)

    def control(self, clock: int) -> Control:
        """Punctuations for now, for later, or for a time that is past."""
        rows = []
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            forms = zip(self.declared.control, self.domain, strict=True)
            patterns = tuple(self._controlled(form, values) for form, values in forms)
            rows.append((patterns, clock - self.habits.lag + self.rng.randint(-3, 5)))
        self.controlled += rows
        return Control(self.number, tuple(rows))

    def _controlled(self, form: str, values: tuple[Any, ...]) -> Pattern:
        """What a control column of this form can say; both ends of a range belong to it."""
        rng = self.rng
        if rng.random() < (0.2 if len(self.domain) > 1 else 0.04):
            return Star()
        if form == "value":
            return Eq(rng.choice(values))
        if form == "list":
            return In(tuple(rng.sample(values, rng.randint(0, min(3, len(values))))))
        low, high = (rng.choice((*values, *values, None)) for _ in range(2))
        if low is not None and high is not None and rng.random() < 0.8:
            low, high = sorted((low, high), key=rank)
        return Between(low, high)

    def _pattern(self, values: tuple[Any, ...]) -> Pattern:
        rng = self.rng
        if rng.random() > self.habits.wide:
            some = tuple(rng.sample(values, rng.randint(0, min(3, len(values)))))
            return rng.choice((Eq(rng.choice(values)), Eq(rng.choice(values)), In(some)))
        if rng.random() < (0.3 if len(self.domain) > 1 else 0.03):
            return rng.choice((Star(), Star(), Nothing()))
        near = sorted(values, key=rank)
        first = rng.randrange(len(near))
        last = min(first + rng.choice((0, 1, 1, 2)), len(near) - 1)
        low, high = (None if rng.random() < 0.07 else near[at] for at in (first, last))
        return Between(low, high, rng.random() < 0.7, rng.random() < 0.7)

    def advance(self, t: int) -> Advance:
        """A punctuation that nothing before t will come."""
        self.greatest = max(self.greatest or t, t + (self.declared.lateness or 0))
        return Advance(self.number, t)
