"""The arrival patterns of the punctuation papers, from a seed (PWJoin, sections 5.1 and 6.1).

    cluster-[order]-[size]            equal keys come together, Poisson `size` of them, then their punctuation
    punct-[order]-[segment]-[match]   Poisson `segment` tuples between two punctuations, of which Poisson
                                      `match` percent carry the key that the second one ends
    unique-[order]                    each key once, followed by its punctuation
    uniform-[keys]                    any of so many keys, without punctuations (section 6.3)

`order` is that of the punctuations: asc, desc or random. A table has the columns k (key), t (time), v (the
number of the tuple, from 0) and is_end: true on a punctuation, which has the time of the tuple before it and
no v. Worked number: 10,000 rows of punct-asc-100-40 are 100 segments of about 100 tuples, about 40 of them
with the key of the punctuation that follows, and 100 punctuations, on 0 to 99.

The papers leave open which keys the other tuples of a segment carry, beyond that no key may come after its
punctuation. Here they are drawn from the keys that end later: from all of them, or from the next `spread`
in order of punctuation. So every key of a stream is ended once, also one that Poisson gave no tuple, and the
last segment, after which no key is left, has tuples of its own key only.

Sizes are Poisson given their sum, so that `rows` is exact and two streams of equal `rows` and `size` have the
same keys whatever their seeds. Arrival is a Poisson process: the time between two tuples is exponential with
the mean `gap`. Cost: a million rows take about 0.3 s; the whole table is in memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin.declare.durations import Duration, duration_us
from streamjoin.errors import InvalidJoin

Ints: TypeAlias = npt.NDArray[np.int64]
Order: TypeAlias = Literal["asc", "desc", "random"]

TIME = pa.timestamp("us", "UTC")
PATTERN_SCHEMA = pa.schema({"k": pa.int64(), "t": TIME, "v": pa.int64(), "is_end": pa.bool_()})
NOWHERE = 1 << 40  # what an irrelevant punctuation adds to its key: no stream has such keys

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_START = datetime(2004, 3, 14, tzinfo=UTC)
_NAMES = re.compile(
    r"cluster-(?P<cluster>asc|desc|random)-(?P<size>\d+(?:\.\d+)?)"
    r"|punct(?:uation)?-(?P<punct>asc|desc|random)-(?P<segment>\d+(?:\.\d+)?)-(?P<match>\d+(?:\.\d+)?)"
    r"|unique-(?P<unique>asc|desc|random)"
    r"|uniform-(?P<keys>\d+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPattern:
    """How tuples and punctuations of a stream arrive; `table` gives as many as wanted.

    `size`: tuples of a segment, on average; None = exactly one. `match`: percent of them with the key that
    ends there, on average; 100 = always all. `spread`: among how many of the next keys the others lie; None =
    all that are still to end. `irrelevant`: the share of the punctuations that speak of a key that occurs
    nowhere, in place of the one that ends. `punctuations=False`: the same tuples alone.

    >>> stream = punctuated("desc", 100, 40, spread=5).table(rows=300, seed=7)
    >>> stream.filter(stream["is_end"])["k"].to_pylist()
    [2, 1, 0]
    """

    order: Order = "asc"
    size: float | None = None
    match: float = 100.0
    spread: int | None = None
    irrelevant: float = 0.0
    punctuations: bool = True
    gap: Duration = "10 milliseconds"
    start: datetime = _START
    first_key: int = 0

    def __post_init__(self) -> None:
        wanted = {
            "order": self.order in get_args(Order),
            "size": self.size is None or 0 < self.size <= 1e9,
            "match": 0 <= self.match <= 100,
            "spread": self.spread is None or self.spread >= 1,
            "irrelevant": 0 <= self.irrelevant <= 1,
            "first_key": abs(self.first_key) < NOWHERE // 2,
        }
        for name, fits in wanted.items():
            if not fits:
                raise InvalidJoin(
                    f"StreamPattern got {name}={getattr(self, name)!r}. Give an order of 'asc', 'desc' or "
                    f"'random', a size above 0, a match of 0 to 100 percent, a spread of 1 or more, a share "
                    f"of irrelevant punctuations from 0 to 1, and a first key below 2^39."
                )
        _micros(self.start)
        duration_us(self.gap, what="gap")

    def keys(self, rows: int) -> int:
        """How many keys that many tuples have, each of them ended by one punctuation."""
        return rows if self.size is None else max(round(rows / self.size), min(rows, 1))

    def table(self, *, rows: int, seed: int) -> pa.Table:
        """`rows` tuples and the punctuations between them, in order of arrival."""
        random = _random(rows, seed)
        keys = self.keys(rows)
        sizes = self._sizes(random, rows, keys)
        segment = np.repeat(np.arange(keys), sizes)
        ends_in = np.where(self._own(random, sizes, segment), segment, self._later(random, segment, keys))
        key_of = self._keys_in_order(random, keys)
        time = _arrivals(random, rows, self.gap, self.start)
        columns = (key_of[ends_in], time, np.arange(rows), np.zeros(rows, np.bool_))
        if not self.punctuations:
            return _table(*columns)
        after = np.cumsum(sizes)  # the place of each punctuation among the tuples
        ended = key_of + NOWHERE * (random.random(keys) < self.irrelevant)
        then = np.concatenate([[_micros(self.start)], time])[after]
        marks = (ended, then, np.full(keys, -1), np.ones(keys, np.bool_))
        return _table(*(np.insert(of, after, mark) for of, mark in zip(columns, marks, strict=True)))

    def _sizes(self, random: np.random.Generator, rows: int, keys: int) -> Ints:
        """How many tuples each segment has: independent Poisson numbers, given that their sum is `rows`."""
        if self.size is None:
            return np.ones(keys, np.int64)
        return np.bincount(random.integers(0, max(keys, 1), rows), minlength=keys)

    def _own(self, random: np.random.Generator, sizes: Ints, segment: Ints) -> npt.NDArray[np.bool_]:
        """Which tuples carry the key that ends with their segment; the last one does, if any does."""
        if self.match == 100:
            return np.ones(len(segment), np.bool_)
        share = np.minimum(random.poisson(self.match, len(sizes)), 100) / 100
        wanted = np.floor(sizes * share + random.random(len(sizes)))
        wanted[-1:] = sizes[-1:]
        after = np.cumsum(sizes)
        lot = random.random(len(segment))
        lot[after[sizes > 0] - 1] = -1
        drawn = np.lexsort((lot, segment))
        rank = np.empty(len(segment), np.int64)
        rank[drawn] = np.arange(len(segment)) - (after - sizes)[segment]
        return rank < wanted[segment]

    def _later(self, random: np.random.Generator, segment: Ints, keys: int) -> Ints:
        """For each tuple a segment after its own, where there is one."""
        reach = keys - 1 - segment
        if self.spread is not None:
            reach = np.minimum(reach, self.spread)
        return np.minimum(segment + 1 + (random.random(len(segment)) * reach).astype(np.int64), keys - 1)

    def _keys_in_order(self, random: np.random.Generator, keys: int) -> Ints:
        numbers = np.arange(self.first_key, self.first_key + keys)
        if self.order == "random":
            return random.permutation(numbers)
        return numbers if self.order == "asc" else numbers[::-1]


def clustered(order: Order, size: float, **options: Any) -> StreamPattern:
    """cluster-[order]-[size]: the tuples of a key come together, Poisson `size` of them."""
    return StreamPattern(order=order, size=size, **options)


def punctuated(order: Order, segment: float, match: float, **options: Any) -> StreamPattern:
    """punct-[order]-[segment]-[match]: the general punctuated stream."""
    return StreamPattern(order=order, size=segment, match=match, **options)


def unique(order: Order, **options: Any) -> StreamPattern:
    """unique-[order]: each key once."""
    return StreamPattern(order=order, **options)


def uniform(
    keys: int, *, rows: int, seed: int, gap: Duration = "10 milliseconds", start: datetime = _START
) -> pa.Table:
    """`rows` tuples with any of the keys 0 to `keys` − 1, without punctuations."""
    if keys < 1:
        raise InvalidJoin(f"uniform got keys={keys!r}. Give 1 or more.")
    random = _random(rows, seed)
    key = random.integers(0, keys, rows)
    return _table(key, _arrivals(random, rows, gap, start), np.arange(rows), np.zeros(rows, np.bool_))


def pattern(name: str, *, rows: int, seed: int, **options: Any) -> pa.Table:
    """The stream that the papers call by this name; `options` are those of `StreamPattern` or `uniform`.

    >>> pattern("unique-desc", rows=2, seed=7).select(["k", "is_end"]).to_pydict()
    {'k': [1, 1, 0, 0], 'is_end': [False, True, False, True]}
    """
    found = _NAMES.fullmatch(name)
    if found is None:
        raise InvalidJoin(
            f"There is no pattern {name!r}. Give cluster-[order]-[size], punct-[order]-[segment]-[match %], "
            f"unique-[order] or uniform-[keys], with the order asc, desc or random: punct-asc-100-40."
        )
    part: dict[str, Any] = found.groupdict()
    if part["keys"]:
        if options.keys() - {"gap", "start"}:
            raise InvalidJoin(f"{name} has no {', '.join(options)}. Give gap and start, or no option.")
        return uniform(int(part["keys"]), rows=rows, seed=seed, **options)
    if part["cluster"]:
        chosen = clustered(part["cluster"], float(part["size"]), **options)
    elif part["punct"]:
        chosen = punctuated(part["punct"], float(part["segment"]), float(part["match"]), **options)
    else:
        chosen = unique(part["unique"], **options)
    return chosen.table(rows=rows, seed=seed)


def _random(rows: int, seed: int) -> np.random.Generator:
    if rows < 0 or seed < 0:
        raise InvalidJoin(f"A pattern got rows={rows!r} and seed={seed!r}. Give no negative numbers.")
    return np.random.default_rng(seed)


def _arrivals(random: np.random.Generator, rows: int, gap: Duration, start: datetime) -> Ints:
    """Microseconds at which tuples come, ascending."""
    gaps = random.exponential(duration_us(gap, what="gap"), rows)
    return _micros(start) + np.cumsum(gaps).astype(np.int64)


def _micros(when: datetime) -> int:
    if when.tzinfo is None:
        raise InvalidJoin(f"start={when!r} has no time zone. Give one: datetime(2004, 3, 14, tzinfo=UTC).")
    return (when - _EPOCH) // timedelta(microseconds=1)


def _table(key: Ints, time: Ints, number: Ints, is_end: npt.NDArray[np.bool_]) -> pa.Table:
    columns = [
        pa.array(key),
        pa.array(time).cast(TIME),
        pa.array(number, mask=is_end),
        pa.array(is_end),
    ]
    return pa.Table.from_arrays(columns, schema=PATTERN_SCHEMA)
