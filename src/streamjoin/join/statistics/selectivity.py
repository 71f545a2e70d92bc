"""Selectivities of a join, measured while it works: how often tuples of some inputs meet.

For a set T of inputs, the selectivity is the size of their join over the product of their sizes (Table 1
of the paper on the adaptive driver). Rows of a driving input that look into the others give a sample of
it: `matched` combinations of `tried` possible ones. Both are sums that fade, so what is measured follows
data that drifts. Worked number: 10 rows that find 4 partners among 200 tuples give 4 / (10 * 200) = 0.002
for the pair; against 500 tuples, 20 rows are expected to find 20 * 500 * 0.002 = 20.

All sets are kept for up to `MOST_INPUTS` inputs; for more only pairs, and larger sets are made of them as
if they were independent. Counted are keys, not windows. Cost of a probe: a look at one in `EVERY` of its
keys; at more, up to `SAMPLE`, while fewer than `SAMPLE` were looked at lately.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from streamjoin.columnar.batch import Ints
from streamjoin.state.component import StateComponent

MOST_INPUTS = 6
SAMPLE = 512  # keys that say enough
EVERY = 53  # one key in so many is looked at where enough is known
_FADE = 0.95  # what a batch leaves of the batches before it
_NOTHING: frozenset[int] = frozenset()


class Selectivities(StateComponent):
    """How often tuples of each set of inputs had a common key lately."""

    name = "selectivities"

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs
        self._matched: dict[frozenset[int], float] = {}
        self._tried: dict[frozenset[int], float] = {}

    @classmethod
    def declared(cls, inputs: int, shares: Mapping[tuple[int, ...], float]) -> Selectivities:
        """Selectivities that someone knows, by the numbers of their inputs."""
        found = cls(inputs)
        for chosen, share in shares.items():
            found._add(frozenset(chosen), share, 1.0)
        return found

    @property
    def known(self) -> bool:
        """Whether combinations of all inputs were tried and found."""
        return self.of(range(self.inputs)) not in (None, 0.0)

    def every(self, keys: int) -> int:
        """One in how many of a probe's keys to look at; the empty set counts those that were."""
        enough = self._tried.get(_NOTHING, 0.0) >= SAMPLE and self.known
        return max(EVERY if enough else 1, keys // SAMPLE)

    def learn(self, driver: int, rows: Ints, counts: Mapping[int, Ints], sizes: Sequence[int]) -> None:
        """For some keys of a driving input: how many `rows` it has of each, and `counts` of the others."""
        total = float(rows.sum())
        self._add(_NOTHING, 0.0, float(len(rows)))
        for others in self._sets(sorted(counts)):
            tried = total
            found = rows.astype(np.float64)
            for other in others:
                tried *= sizes[other]
                found = found * counts[other]
            self._add(frozenset((driver, *others)), float(found.sum()), tried)

    def _sets(self, others: Sequence[int]) -> Iterator[tuple[int, ...]]:
        largest = len(others) if self.inputs <= MOST_INPUTS else 1
        for size in range(1, largest + 1):
            yield from combinations(others, size)

    def _add(self, inputs: frozenset[int], matched: float, tried: float) -> None:
        if tried > 0:
            self._matched[inputs] = self._matched.get(inputs, 0.0) + matched
            self._tried[inputs] = self._tried.get(inputs, 0.0) + tried

    def end_batch(self) -> None:
        """What was measured so far counts a little less."""
        for sums in (self._matched, self._tried):
            for inputs in sums:
                sums[inputs] *= _FADE

    def of(self, inputs: Sequence[int] | range) -> float | None:
        """The selectivity of the join of some inputs; None where nothing is known of it."""
        chosen = frozenset(inputs)
        tried = self._tried.get(chosen, 0.0)
        if tried > 0:
            return self._matched[chosen] / tried
        if len(chosen) <= 2:
            return None
        first, *rest = sorted(chosen)
        pairs = [self.of((first, other)) for other in rest]
        return None if any(one is None for one in pairs) else math.prod(one or 0.0 for one in pairs)

    def sequence(self, driver: int, others: Sequence[int], sizes: Sequence[float]) -> list[int] | None:
        """The others, always the one next that leaves the fewest partial results; None: not known yet."""
        left, found = list(others), [driver]
        while left:
            expected = {other: self._partial([*found, other], driver, sizes) for other in left}
            known = {other: size for other, size in expected.items() if size is not None}
            if len(known) < len(left):
                return None
            best = min(left, key=lambda other: (known[other], sizes[other], other))
            found.append(best)
            left.remove(best)
        return found[1:]

    def _partial(self, inputs: Sequence[int], driver: int, sizes: Sequence[float]) -> float | None:
        """Partial results for each row of the driver that has visited some inputs."""
        share = self.of(inputs)
        if share is None:
            return None
        return share * math.prod(float(sizes[one]) for one in inputs if one != driver)

    def lookups(self, driver: int, rows: float, sizes: Sequence[float]) -> float:
        """Lookups that rows of an input are expected to need: one each, and one for each partial result
        that is not yet whole.
        """
        others = [other for other in range(self.inputs) if other != driver]
        sequence = self.sequence(driver, others, sizes) or others
        visited, found = [driver], rows
        for other in sequence[:-1]:
            visited.append(other)
            found += rows * (self._partial(visited, driver, sizes) or 0.0)
        return found

    def output(self, driver: int, rows: int, sizes: Sequence[int]) -> float | None:
        """Equation 1: results expected from rows of an input, given how much the others hold."""
        share = self._partial(range(self.inputs), driver, sizes)
        return None if share is None else rows * share

    def to_json(self) -> list[list[Any]]:
        return [[sorted(inputs), self._matched[inputs], tried] for inputs, tried in self._tried.items()]

    def restore(self, part: Any) -> None:
        for chosen, matched, tried in part:
            self._add(frozenset(chosen), matched, tried)

    def merge(self, parts: Sequence[Any]) -> None:
        """Other buckets measure anew."""
