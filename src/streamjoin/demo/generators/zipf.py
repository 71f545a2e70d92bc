"""Master data and a Zipf stream over its values: the synthetic data of the SSBJ paper (section 4.1).

Master data has N rows of 120 bytes, whose values are drawn from 1 to N with repetition. So 1/e of the values
have no row, and a value has one row on average: 0, 1, 2, 3 rows for 37, 37, 18 and 6 % of them. Stream tuples
have 20 bytes. The value of rank r (1 is the most frequent) comes with a probability proportional to
r ^ -skew; which value has which rank is a permutation that follows from the seed, and from tuple `shift_at`
on another one. Worked number: skew 1, N = 10^6: the first value has 1 / 14.4 = 6.9 % of the tuples, the first
1,000 have 52 %.

Each row and tuple follows from the seed and its number, so any stretch can be made alone. Ranks are drawn by
the inverse of the distribution: exact for the first 65,536; beyond, the sum over ranks is taken as the
integral from half a rank below to half a rank above, whose relative error is below 10^-10 there, and is
inverted in closed form. So no table of N entries is made. The permutation is rank -> a * rank + c modulo N
with a and N coprime: hot values lie far apart, and as rows are drawn at random, neighbours mean nothing.
Cost: about 0.3 µs for a tuple, 1 µs for a row of master data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin.demo.generators.noise import Ints, Noise
from streamjoin.errors import InvalidJoin

Floats: TypeAlias = npt.NDArray[np.float64]

TABLE_SCHEMA = pa.schema({"k": pa.int64(), "m": pa.int64(), "pad": pa.binary()})
STREAM_SCHEMA = pa.schema({"k": pa.int64(), "id": pa.int64(), "x": pa.int32()})
_HEAD = 65_536  # ranks whose probabilities stand in a table
_CHUNK = 100_000  # rows made at once


@dataclass(frozen=True)
class Zipf:
    """Ranks 1 to `values`, with probabilities proportional to rank ^ -skew.

    >>> Zipf(4, 1.0).ranks(np.array([0.0, 0.47, 0.49, 0.99])).tolist()
    [1, 1, 2, 4]
    """

    values: int
    skew: float

    def __post_init__(self) -> None:
        if self.values < 1 or not 0 <= self.skew <= 2:
            raise InvalidJoin(
                f"A Zipf distribution got {self.values!r} values and skew={self.skew!r}; give at least one "
                f"value and a skew from 0 (uniform) to 2."
            )

    @cached_property
    def _head(self) -> Floats:
        """Sums of the weights of the first ranks."""
        return np.cumsum(np.arange(1, min(self.values, _HEAD) + 1, dtype=np.float64) ** -self.skew)

    def _tail(self, upto: Floats) -> Floats:
        """The sum of the weights beyond the head, up to some (fractional) rank."""
        low = len(self._head) + 0.5
        if self.skew == 1:
            return np.log(upto / low)
        power = 1 - self.skew
        found: Floats = (upto**power - low**power) / power
        return found

    @cached_property
    def _total(self) -> float:
        return float(self._head[-1] + self._tail(np.array([self.values + 0.5]))[0])

    def share(self, ranks: int) -> float:
        """The probability of the first ranks together."""
        ranks = min(ranks, self.values)
        if ranks <= len(self._head):
            return float(self._head[ranks - 1]) / self._total if ranks else 0.0
        return float(self._head[-1] + self._tail(np.array([ranks + 0.5]))[0]) / self._total

    def probability(self, ranks: Ints) -> Floats:
        """Of each rank."""
        found: Floats = ranks.astype(np.float64) ** -self.skew / self._total
        return found

    def ranks(self, shares: Floats) -> Ints:
        """The ranks of uniform numbers in [0, 1)."""
        target = shares * self._total
        ranks = np.searchsorted(self._head, target, side="right") + 1
        beyond = np.flatnonzero(ranks > len(self._head))
        if len(beyond):
            ranks[beyond] = np.minimum(self._inverse(target[beyond] - self._head[-1]), self.values)
        return ranks

    def _inverse(self, weight: Floats) -> Ints:
        low = len(self._head) + 0.5
        if self.skew == 1:
            upto = low * np.exp(weight)
        else:
            power = 1 - self.skew
            upto = (low**power + weight * power) ** (1 / power)
        return np.floor(upto + 0.5).astype(np.int64)


@dataclass(frozen=True)
class ZipfStreams:
    """Master data and a stream; columns k, m, pad and k, id, x: m and id are the numbers of row and tuple."""

    seed: int = 1
    rows: int = 1_000_000  # of master data, and how many values there are
    skew: float = 1.0
    row_bytes: int = 120
    shift_at: int | None = None  # the first tuple whose hot values are others

    def __post_init__(self) -> None:
        if not 1 <= self.rows <= 1 << 31 or self.row_bytes < 16 or self.seed < 0:
            raise InvalidJoin(
                f"Zipf streams got rows={self.rows!r}, row_bytes={self.row_bytes!r} and seed={self.seed!r}; "
                f"give 1 to 2^31 rows of at least 16 bytes, and a seed of 0 or more."
            )

    table_schema = TABLE_SCHEMA
    stream_schema = STREAM_SCHEMA

    @cached_property
    def zipf(self) -> Zipf:
        return Zipf(self.rows, self.skew)

    def table_keys(self, first: int, count: int) -> Ints:
        """The values of some rows of master data."""
        noise = Noise.of(self.seed, np.arange(first, first + count))
        return noise.below("value of a row", self.rows) + 1

    def table_rows(self, first: int, count: int) -> pa.Table:
        """Some rows of master data."""
        numbers = np.arange(first, first + count)
        pad = Noise.of(self.seed, numbers).binary("pad", self.row_bytes - 16)
        columns = [pa.array(self.table_keys(first, count)), pa.array(numbers), pad]
        return pa.Table.from_arrays(columns, schema=TABLE_SCHEMA)

    def table(self) -> Iterator[pa.Table]:
        """All master data, in parts."""
        for first in range(0, self.rows, _CHUNK):
            yield self.table_rows(first, min(_CHUNK, self.rows - first))

    def stream_keys(self, first: int, count: int) -> Ints:
        """The values of some tuples."""
        numbers = np.arange(first, first + count)
        ranks = self.zipf.ranks(Noise.of(self.seed, numbers).share("rank of a tuple"))
        if self.shift_at is None:
            return self.values_of(ranks)
        return np.where(numbers < self.shift_at, self.values_of(ranks), self.values_of(ranks, shifted=True))

    def tuples(self, first: int, count: int) -> pa.Table:
        """Some tuples of the stream, which has no end."""
        numbers = np.arange(first, first + count)
        extra = Noise.of(self.seed, numbers).below("x", 1 << 31).astype(np.int32)
        columns = [pa.array(self.stream_keys(first, count)), pa.array(numbers), pa.array(extra)]
        return pa.Table.from_arrays(columns, schema=STREAM_SCHEMA)

    def values_of(self, ranks: Ints, *, shifted: bool = False) -> Ints:
        """Which values have these ranks."""
        factor, start = self._permutation(shifted=shifted)
        return (factor * ranks + start) % self.rows + 1

    def _permutation(self, *, shifted: bool) -> tuple[int, int]:
        """A factor that is coprime to the number of values, and a start."""
        drawn = Noise.of(self.seed, np.array([int(shifted)]))
        factor, start = (int(drawn.below(purpose, self.rows)[0]) for purpose in ("factor", "start"))
        while gcd(factor, self.rows) != 1:
            factor += 1
        return factor, start
