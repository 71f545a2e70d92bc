"""Tuple lifetimes: survival curves of tuples, estimated from a sample of live ones.

A tuple is born at the end of the batch in which it came and dies at the end of the batch in which the
punctuations of all other inputs purge it; so its life is the time between, and zero where it was not even
stored. By Little's law the tuples stored at the end of a batch are then, on average,

    rows per second x the integral of the share still needed, over ages from 0 to the window's end.

Worked number: 1,000 rows a second, half of them needed for 4 s and the others dropped on arrival, are
1,000 x 0.5 x 4 = 2,000 tuples stored; with a window of 3 s 1,500.

`Lives` follows a few rows of each batch and keeps a life table by age (bins 9 % wide), so tuples that
are still alive, or left by their window, count for the ages that they reached (Kaplan and Meier).
Cost per batch: some tens of rows, whatever its size. Old observations fade: each `fade` halves them.
Keys are known by their hashes alone, as a wrong guess only blurs an estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamjoin.columnar.batch import Ints, Mask

Floats = npt.NDArray[np.float64]

FOLLOWED_PER_STEP = 24
FOLLOWED = 384  # rows at once, of one input
_LEAST = 1e-200  # a weight; the very old are few, and only their ratio counts
_PER_OCTAVE = 8
_BINS = 62 * _PER_OCTAVE
_EDGES: Floats = np.concatenate([[0.0], 2.0 ** (np.arange(1, _BINS) / _PER_OCTAVE)])


@dataclass(frozen=True, eq=False)
class Life:
    """`shares[j]` of the tuples that came are still needed at `ages[j]`; linear between, then constant.

    >>> half_for_4_seconds = Life(np.array([0.0, 4.0, 4.0]), np.array([0.5, 0.5, 0.0]))
    >>> half_for_4_seconds.stored(10.0), half_for_4_seconds.stored(3.0)
    (2.0, 1.5)
    """

    ages: Floats
    shares: Floats

    @classmethod
    def endless(cls) -> Life:
        """Nothing is ever evicted."""
        return cls(np.zeros(1), np.ones(1))

    @classmethod
    def of_sample(cls, residuals: Floats) -> Life:
        """From lives of equal weight; not above zero: never stored, infinite: for ever."""
        lasting = np.sort(residuals[(residuals > 0) & np.isfinite(residuals)])
        total, forever = max(len(residuals), 1), int(np.isinf(residuals).sum())
        alive = (len(lasting) - np.arange(len(lasting) + 1) + forever) / total
        if len(lasting) == 0:
            return cls(np.zeros(1), alive)
        return cls(np.concatenate([[0.0], lasting.repeat(2)]), alive.repeat(2)[:-1])

    @property
    def lasting(self) -> float:
        """The share that nothing seems to evict: it has long been the same, though others went."""
        last = float(self.shares[-1])
        before = float(np.interp(self.ages[-1] / 4, self.ages, self.shares))
        went = float(self.shares[0]) - last
        return last if before - last <= 0.1 * last and went > 0.1 * self.shares[0] else 0.0

    def stored(self, stay: float) -> float:
        """Tuples stored for each tuple a unit of time, where all leave at the age `stay`."""
        inside = self.ages < stay
        ages = np.append(self.ages[inside], min(stay, max(self.ages[-1], 0.0)))
        end = np.interp(ages[-1], self.ages, self.shares)
        # where the curve falls at one age, the left limit is what ends the integral
        last = self.shares[inside][-1] if inside.any() and self.ages[inside][-1] == ages[-1] else end
        shares = np.append(self.shares[inside], last)
        area = float(np.sum((shares[1:] + shares[:-1]) / 2 * np.diff(ages)))
        rest, left = stay - float(ages[-1]), float(self.shares[-1])
        return area + (left * rest if left > 0 and rest > 0 else 0.0)

    def to_json(self) -> list[list[float]]:
        return [self.ages.tolist(), self.shares.tolist()]

    @classmethod
    def from_json(cls, saved: list[list[float]]) -> Life:
        ages, shares = (np.array(values, np.float64) for values in saved)
        return cls(ages, shares)


class Lives:
    """The life table of one input, and the rows that are followed to fill it.

    Ages are in units of the clock that `tick` is given; every weight is halved by `fade`, also of rows
    that are still followed, so a birth counts the same whether its death was seen or not.
    """

    def __init__(self) -> None:
        self.hash: Ints = np.empty(0, np.int64)
        self.born: Floats = np.empty(0)  # nan: in this step
        self.weight: Floats = np.empty(0)
        self.dying: Mask = np.empty(0, np.bool_)
        self.deaths: Floats = np.zeros(_BINS)
        self.losses: Floats = np.zeros(_BINS)  # no longer followed, alive as far as is known
        self._came = 0
        self._every = 1  # one row in so many is followed
        self._skip = 0

    def came(self, hashes: Ints, stored: Mask) -> None:
        """Rows of this step; those not stored have no life."""
        self._came += len(hashes)
        if self._skip >= len(hashes):
            self._skip -= len(hashes)
            return
        self._every = max(self._every, len(hashes) // FOLLOWED_PER_STEP)
        chosen = np.arange(self._skip, len(hashes), self._every)
        self._skip = self._every - (len(hashes) - int(chosen[-1]))
        kept = chosen[stored[chosen]]
        self.deaths[0] += self._every * (len(chosen) - len(kept))
        self.hash = np.concatenate([self.hash, hashes[kept]])
        self.born = np.concatenate([self.born, np.full(len(kept), np.nan)])
        self.weight = np.concatenate([self.weight, np.full(len(kept), float(self._every))])
        self.dying = np.concatenate([self.dying, np.zeros(len(kept), np.bool_)])

    def evicted(self, hashes: Ints, chosen: Mask | None = None) -> None:
        """All tuples of the (chosen) keys, ascending by hash, are evicted in this step."""
        if len(hashes) == 0 or len(self.hash) == 0:
            return
        place = np.minimum(np.searchsorted(hashes, self.hash), len(hashes) - 1)
        there = hashes[place] == self.hash
        self.dying |= there if chosen is None else there & chosen[place]

    def tick(self, clock: float, stay: float) -> None:
        """The step ends at this time; rows older than `stay` are followed no longer."""
        self.born[np.isnan(self.born)] = clock
        age = clock - self.born
        over = ~self.dying & (age > stay)
        left = self.dying | over
        if left.any():
            np.add.at(self.deaths, _bins(age[self.dying]), self.weight[self.dying])
            np.add.at(self.losses, _bins(age[over]), self.weight[over])
            self._keep(~left)
        if len(self.hash) > FOLLOWED:
            self._thin(seed=abs(int(clock)))
        self._every = max(1, self._came // FOLLOWED_PER_STEP)
        self._came = 0

    def _thin(self, seed: int) -> None:
        """Half of what may be followed goes on, any of the rows alike, for all of them."""
        before = len(self.hash)
        self._keep(np.random.default_rng(seed).permutation(before) < FOLLOWED // 2)
        self.weight *= before / (FOLLOWED // 2)

    def _keep(self, rows: Mask) -> None:
        self.hash, self.born, self.weight = self.hash[rows], self.born[rows], self.weight[rows]
        self.dying = np.zeros(len(self.hash), np.bool_)

    def fade(self) -> None:
        """What has been seen so far counts half from now on."""
        self.deaths /= 2
        self.losses /= 2
        self.weight = np.maximum(self.weight / 2, _LEAST)

    def life(self, clock: float) -> Life:
        """The curve as it is known at this time."""
        left = self.losses.copy()
        np.add.at(left, _bins(clock - self.born), self.weight)
        reached = np.cumsum((self.deaths + left)[::-1])[::-1]
        if reached[0] == 0:
            return Life.endless()
        at_risk = reached - left / 2
        at_risk[0] = reached[0]  # age zero is one moment: who leaves later has survived it
        dies = np.divide(self.deaths, at_risk, out=np.zeros(_BINS), where=at_risk > 0)
        shares = np.cumprod(1 - np.minimum(dies, 1))
        last = int(np.flatnonzero(reached > 0)[-1]) + 1
        ages, shares = _EDGES[:last], shares[:last]
        bend = np.ones(last, np.bool_)
        bend[1:-1] = (shares[1:-1] != shares[:-2]) | (shares[1:-1] != shares[2:])
        return Life(ages[bend], shares[bend])

    def to_json(self) -> dict[str, Any]:
        """Between two steps."""
        used = np.flatnonzero(self.deaths + self.losses)
        return {
            "followed": [self.hash.tolist(), self.born.tolist(), self.weight.tolist()],
            "table": [used.tolist(), self.deaths[used].tolist(), self.losses[used].tolist()],
            "every": self._every,
            "skip": self._skip,
        }

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Lives:
        lives = cls()
        hashes, born, weight = saved["followed"]
        lives.hash, lives.born, lives.weight = np.array(hashes, np.int64), np.array(born), np.array(weight)
        lives.dying = np.zeros(len(hashes), np.bool_)
        used, deaths, losses = saved["table"]
        lives.deaths[used], lives.losses[used] = deaths, losses
        lives._every, lives._skip = saved["every"], saved["skip"]
        return lives


def _bins(ages: Floats) -> Ints:
    """The bin of each age: 0 for age zero, then each up to and including its edge."""
    return np.minimum(np.searchsorted(_EDGES, ages), _BINS - 1)
