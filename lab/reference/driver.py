"""MJoin in batches, with the five policies for the driver input (the paper on driver inputs, section 3).

Each input has a buffer, in which a batch's tuples wait in order of time, and a hash table. A policy says
which buffer gives the next tuple; the tuple is put into its input's table and probes the others, the most
selective first, until nothing is left of it or it is a result. Whichever drives first, each result is made
once, by the last of its tuples.

- `timestamp` (figure 2): the buffer with the oldest tuple, for every tuple.
- `round_robin` (section 4.2): the buffers in turn, a tuple of each.
- `consumption_rate` (figure 3): whole buffers by ascending σ of the input.
- `initial_output` (figure 4): whole buffers, the greatest |buffer| · σ · product of the other tables first.
- `output_rate`: the same by tuple of the buffer.

Selectivities are given, as the paper assumes. A probe is a lookup of a tuple, or of a partial result, in the
next table. The rows of a result stand in the order of the probes, the driver's first. Worked number: a tuple
that finds 2 matches in the first table and none in the second is 3 probes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lab.reference.elements import Output, Row, Work

Buffers: TypeAlias = Sequence[deque[Row]]


@dataclass(frozen=True)
class Selectivities:
    """What is known of the data.

    `pair[i, j]`: the share of the pairs of two inputs that match, i < j; `whole`: the share of all
    combinations that are results; `of`: results by tuple of each input.
    """

    pair: Mapping[tuple[int, int], float]
    whole: float
    of: Sequence[float]


class DriverJoin:
    """`process` a batch by a policy; `sampled` is called behind every so many tuples, where it is given."""

    def __init__(self, selectivities: Selectivities, policy: str) -> None:
        self.work, self.output = Work(), Output()
        self.selectivities = selectivities
        inputs = range(len(selectivities.of))
        self.tables: list[dict[int, list[Row]]] = [{} for _ in inputs]
        self.sizes = [0 for _ in inputs]
        self._sequences = [self._sequence(driver) for driver in inputs]
        self._policy = POLICIES[policy]

    def process(
        self,
        batch: Sequence[Iterable[Row]],
        sampled: Callable[[], None] | None = None,
        every: int = 1,
        order: Iterable[int] | None = None,
    ) -> None:
        """All tuples of a batch, a sequence of rows of each input; `order`: who drives was chosen before."""
        buffers = [deque(rows) for rows in batch]
        previous, left = None, every
        for driver in self._policy(self, buffers) if order is None else order:
            if driver != previous:
                self.work.switches += 1
                previous = driver
            self._process_next_tuple(driver, buffers[driver])
            left -= 1
            if left == 0:
                left = every
                if sampled is not None:
                    sampled()

    def order_of(self, batch: Sequence[Iterable[Row]]) -> list[int]:
        """The driver of every tuple of a batch, without joining; for policies that look at buffers only."""
        buffers = [deque(rows) for rows in batch]
        order = []
        for driver in self._policy(self, buffers):
            order.append(driver)
            buffers[driver].popleft()
        return order

    def _sequence(self, driver: int) -> list[int]:
        """The other inputs, the most selective first."""
        others = [other for other in range(len(self.tables)) if other != driver]
        pair = self.selectivities.pair
        return sorted(others, key=lambda other: pair[min(driver, other), max(driver, other)])

    def _process_next_tuple(self, driver: int, buffer: deque[Row]) -> None:
        row = buffer.popleft()
        key = row.key
        self.tables[driver].setdefault(key, []).append(row)
        self.sizes[driver] += 1
        self.work.inserted += 1
        partial: list[tuple[Row, ...]] = [(row,)]
        for other in self._sequences[driver]:
            self.work.probes += len(partial)
            found = self.tables[other].get(key)
            if found is None:
                return
            partial = [(*one, match) for one in partial for match in found]
        self.output.rows += partial


# Policies: which input drives, asked again behind every tuple, as the paper's loops are printed


def _timestamp(buffers: Buffers) -> Iterator[int]:
    while any(buffers):
        yield _input_stream_ts(buffers)


def _input_stream_ts(buffers: Buffers) -> int:
    """The input whose buffer has the oldest tuple."""
    oldest, chosen = 0, -1
    for j, buffer in enumerate(buffers):
        if buffer and (chosen < 0 or buffer[0].time < oldest):
            oldest, chosen = buffer[0].time, j
    return chosen


def _round_robin(buffers: Buffers) -> Iterator[int]:
    chosen = -1
    while any(buffers):
        chosen = _next_in_turn(buffers, chosen)
        yield chosen


def _next_in_turn(buffers: Buffers, previous: int) -> int:
    """The next input behind the previous one that has a tuple."""
    chosen = (previous + 1) % len(buffers)
    while not buffers[chosen]:
        chosen = (chosen + 1) % len(buffers)
    return chosen


def _whole_buffers(buffers: Buffers, value: Callable[[int], float]) -> Iterator[int]:
    """The buffer with the greatest value, to its end; then the values anew."""
    while any(buffers):
        chosen = max((j for j, buffer in enumerate(buffers) if buffer), key=value)
        while buffers[chosen]:
            yield chosen


def _consumption_rate(join: DriverJoin, buffers: Buffers) -> Iterator[int]:
    return _whole_buffers(buffers, lambda j: -join.selectivities.of[j])


def out_rate(join: DriverJoin, j: int) -> float:
    """Results expected of a tuple: equation 1 by tuple of the buffer."""
    expected = join.selectivities.whole
    for other, size in enumerate(join.sizes):
        if other != j:
            expected *= size
    return expected


def _initial_output(join: DriverJoin, buffers: Buffers) -> Iterator[int]:
    return _whole_buffers(buffers, lambda j: len(buffers[j]) * out_rate(join, j))


def _output_rate(join: DriverJoin, buffers: Buffers) -> Iterator[int]:
    return _whole_buffers(buffers, lambda j: out_rate(join, j))


POLICIES: Mapping[str, Callable[[DriverJoin, Buffers], Iterator[int]]] = {
    "timestamp": lambda _, buffers: _timestamp(buffers),
    "round_robin": lambda _, buffers: _round_robin(buffers),
    "consumption_rate": _consumption_rate,
    "initial_output": _initial_output,
    "output_rate": _output_rate,
}
