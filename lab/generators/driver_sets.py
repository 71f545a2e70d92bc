"""The six data sets of the paper on driver inputs of multi-way joins, from a seed (section 4.1).

Three streams s1, s2 and s3 with the columns k (key), t (time) and v (the number of the tuple, from 0).

    set   tuples of s1, s2, s3   arrival of s2               arrival of s3                     results
    I     10^6, 10^6, 10^6       uniform                     1 per 5 and 1 per 15 in turn      5 * 10^5
    II    10^6, 10^6, 10^6       1 per 15 and 5 in turn      1 per 5 and 1 per 15 in turn      5 * 10^5
    III   10^6, 10^6, 10^6       1 per 15 and 5 in turn      a sine                            5 * 10^5
    IV    10^6, 10^6, 10^6       uniform                     b-model 20-80                     5 * 10^5
    V     10^4, 10^5, 10^6       uniform                     b-model 80-20                     10^6
    VI    10^4, 10^5, 10^6       uniform                     b-model 20-80                     10^6

s1 is uniform everywhere. All streams last 10^7 time units: 100 batches of 0.1M units, 10 of 1M. The paper's
unit is a nanosecond; here it is a microsecond, the finest time a join knows.

The scan of the paper lost exponents and has no figure 5. What was chosen, and why:

- Sizes of pairs. I to IV: |s1 s2| = |s2 s3| = 5 * 10^5, |s1 s3| = 10^6; that is σ = 5 * 10^-7 and 10^-6, and
  then σ(12)3 = σ(23)1 = 10^-6, σ(13)2 = 5 * 10^-7 and |result| / |stream| = 5 * 10^-1, digits that stand in
  Table 2. V and VI: every σ of a pair 10^-5, |result| / |stream| = 100, 10, 1; so every σ of a pair with the
  third stream is 10^-4, whatever the scan says.
- Keys. A share of each stream has keys of a common domain, spread over it as evenly as can be; all others
  have a key of their own. I to IV: 10^6 common keys, all of s1, half of s2, all of s3. V and VI: 1,000 common
  keys, a tenth of each stream. The spread is even, not drawn, because at a scale of 0.01 a tenth of s1 is 10
  tuples: drawn, the result would vary by a third. Here every size is exact, for every seed.
- "Each quarter of the input" is a quarter of the tuples: 250,000 tuples at 1 per 5 and 250,000 at 1 per 15,
  twice, take 10^7 units, so all streams end together. Quarters of the time would need 1.33 * 10^6 tuples.
- The sine has two waves, and its rate is between half and one and a half times the mean.
- The b-model halves the time 10 times and gives 20 % of the tuples to one half, 80 % to the other. 20-80 and
  80-20 say which half of the whole run is meant; below it, where the burst lies is drawn, as in Wang et al.

Tuples of a stream are spread evenly along its rate: number i of n comes at a random place of the i-th of n
equal shares. A scale f multiplies tuples, common keys, time and periods, so every size of a join scales with
f and the number of batches stays. Worked number: set V at scale 0.01 has 100, 1,000 and 10,000 tuples, 10
common keys with 1, 10 and 100 tuples each, and 10 * 1 * 10 * 100 = 10,000 results. Cost: a full set takes
about 0.5 s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin.errors import InvalidJoin

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
SetName: TypeAlias = Literal["I", "II", "III", "IV", "V", "VI"]

STREAMS = ("s1", "s2", "s3")
UNITS = 10_000_000  # how long every stream lasts
PERIODS = {"0.1M": 100_000, "1M": 1_000_000}  # the paper's two, in units
DRIVER_SCHEMA = pa.schema({"k": pa.int64(), "t": pa.timestamp("us", "UTC"), "v": pa.int64()})

_START_US = int(datetime(2014, 7, 7, tzinfo=UTC).timestamp()) * 1_000_000
_HALVINGS = 10
_WAVES, _SWING = 2, 0.5


@dataclass(frozen=True, slots=True)
class Curve:
    """How a stream comes: which share of its tuples is there at which share of its time."""

    tuples: Floats
    time: Floats

    def when(self, tuples: Floats) -> Floats:
        """At which share of the time that share of the tuples is there."""
        return np.interp(tuples, self.tuples, self.time)


Arrival: TypeAlias = Callable[[np.random.Generator], Curve]


def uniform(_: np.random.Generator) -> Curve:
    """The same rate all the time."""
    return Curve(np.array([0.0, 1.0]), np.array([0.0, 1.0]))


def alternating(*gaps: float) -> Arrival:
    """One tuple in so many units, another rate for each equal part of the tuples."""
    time = np.cumsum([0.0, *gaps]) / sum(gaps)
    return lambda _: Curve(np.linspace(0, 1, len(gaps) + 1), time)


def sinusoidal(_: np.random.Generator) -> Curve:
    """A rate of 1 + sin / 2 times the mean, two waves."""
    time = np.linspace(0, 1, 2001)
    turn = 2 * np.pi * _WAVES
    return Curve(time + _SWING * (1 - np.cos(turn * time)) / turn, time)


def b_model(first: float) -> Arrival:
    """The first half of the run has the share `first` of the tuples, and so on within, on either side."""

    def curve(random: np.random.Generator) -> Curve:
        share = np.array([first, 1 - first])
        for _ in range(_HALVINGS - 1):
            left = np.where(random.random(len(share)) < 0.5, first, 1 - first)
            share = np.column_stack([share * left, share * (1 - left)]).ravel()
        return Curve(np.concatenate([[0.0], np.cumsum(share)]), np.linspace(0, 1, len(share) + 1))

    return curve


@dataclass(frozen=True, slots=True)
class DriverSet:
    """One data set: for each stream how many tuples, which share of them has common keys, how they come."""

    tuples: tuple[int, int, int]
    common: tuple[float, float, float]
    keys: int
    arrival: tuple[Arrival, Arrival, Arrival]

    def streams(self, *, scale: float = 1.0, seed: int = 1) -> DriverStreams:
        """The three tables."""
        if not 0.001 <= scale <= 10 or seed < 0:
            raise InvalidJoin(
                f"A driver set got scale={scale!r} and seed={seed!r}. Give a scale from 0.001, below which a "
                f"stream of V has no common key, to 10, and a seed of 0 or more."
            )
        tables = {}
        for i, name in enumerate(STREAMS):
            random = np.random.default_rng([seed, i])
            rows = round(self.tuples[i] * scale)
            key = self._keys(random, i, rows, round(self.keys * scale))
            place = (np.arange(rows) + random.random(rows)) / rows
            time = (self.arrival[i](random).when(place) * UNITS * scale).astype(np.int64)
            columns = [key, pa.array(time + _START_US).cast(DRIVER_SCHEMA.field("t").type), np.arange(rows)]
            tables[name] = pa.Table.from_arrays([pa.array(each) for each in columns], schema=DRIVER_SCHEMA)
        return DriverStreams(tables, scale)

    def _keys(self, random: np.random.Generator, stream: int, rows: int, keys: int) -> Ints:
        """Common keys are 0 and more; below 0 each tuple has its own."""
        common = round(rows * self.common[stream])
        shared = np.resize(random.permutation(keys), common)
        own = -1 - stream - len(STREAMS) * np.arange(rows - common)
        return random.permutation(np.concatenate([shared, own]))


@dataclass(frozen=True, slots=True)
class DriverStreams:
    """The tables of one data set, in order of time."""

    tables: dict[str, pa.Table]
    scale: float

    def batches(self, period: int) -> Iterator[dict[str, pa.Table]]:
        """What comes in each period of so many units (times the scale): a table for each stream."""
        count = -(-UNITS // period)
        ends = np.arange(count + 1) * (period * self.scale)
        cuts = {
            name: np.searchsorted(units(table["t"]), ends).tolist() for name, table in self.tables.items()
        }
        for i in range(count):
            yield {
                name: table.slice(cuts[name][i], cuts[name][i + 1] - cuts[name][i])
                for name, table in self.tables.items()
            }


def units(time: pa.ChunkedArray) -> Ints:
    """Times as units since the start."""
    since: Ints = time.cast(pa.int64()).to_numpy() - _START_US
    return since


_EQUAL = ((1_000_000, 1_000_000, 1_000_000), (1.0, 0.5, 1.0), 1_000_000)
_UNEQUAL = ((10_000, 100_000, 1_000_000), (0.1, 0.1, 0.1), 1_000)
_FAST_FIRST, _SLOW_FIRST = alternating(5, 15, 5, 15), alternating(15, 5, 15, 5)

DRIVER_SETS: dict[SetName, DriverSet] = {
    "I": DriverSet(*_EQUAL, (uniform, uniform, _FAST_FIRST)),
    "II": DriverSet(*_EQUAL, (uniform, _SLOW_FIRST, _FAST_FIRST)),
    "III": DriverSet(*_EQUAL, (uniform, _SLOW_FIRST, sinusoidal)),
    "IV": DriverSet(*_EQUAL, (uniform, uniform, b_model(0.2))),
    "V": DriverSet(*_UNEQUAL, (uniform, uniform, b_model(0.8))),
    "VI": DriverSet(*_UNEQUAL, (uniform, uniform, b_model(0.2))),
}
