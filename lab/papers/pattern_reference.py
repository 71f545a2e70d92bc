"""The PWJoin paper's streams through the reference engine: PWJoin, WJoin and PJoin as printed, by tuples.

Both streams as one sequence in order of time, each punctuation behind the tuple before it, go through
`lab.reference.pwjoin`. What is seen after each stretch is what `pattern_runs` sees of the product, and the
answer is compared with the same batch join. Worked number: 4,000 tuples of each stream with windows of 15 s
hold up to 3,000 tuples in WJoin. Cost: some 2 µs a tuple and 0.3 µs a result.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from lab.papers.pattern_runs import ObservedBatches, PairSum, StreamPair, Window, answer
from lab.reference.collector import without_collector
from lab.reference.elements import Element, End, Row
from lab.reference.pwjoin import PWJoin
from streamjoin.errors import InvariantBroken


def elements_of(data: StreamPair) -> list[list[Element]]:
    """The elements of each batch in order of time."""
    return [
        [
            element
            for _, _, _, element in sorted(one for i, name in enumerate("ab") for one in _of(batch[name], i))
        ]
        for batch in data.batches
    ]


def _of(table: pa.Table, number: int) -> list[tuple[int, int, int, Element]]:
    """(time, input, place, element): sorted, these are in order of arrival."""
    columns = (
        table["k"].to_numpy().tolist(),
        table["t"].cast(pa.int64()).to_numpy().tolist(),
        table["v"].to_pylist(),
        table["is_end"].to_pylist(),
    )
    return [
        (at, number, place, End(number, key) if is_end else Row(number, key, at, v))
        for place, (key, at, v, is_end) in enumerate(zip(*columns, strict=True))
    ]


@dataclass(frozen=True)
class ReferenceContender:
    """An operator of the paper on some streams, by the reference engine; as `pattern_runs.Contender`."""

    operator: str  # pwjoin, wjoin or pjoin
    data: StreamPair
    window: Window

    @cached_property
    def _elements(self) -> list[list[Element]]:
        return elements_of(self.data)

    def join(self) -> PWJoin:
        window = None if self.window is None else int(self.window * 1e6)
        return PWJoin((window, window), punctuations=self.operator != "wjoin")

    def warm_up(self) -> None:
        join = self.join()
        for batch in self._elements[:3]:
            for element in batch:
                join.take(element)

    def run(self) -> ObservedBatches:
        """All batches; raises unless the answer is the batch join's."""
        with without_collector():
            return self._run()

    def _run(self) -> ObservedBatches:
        join, spent, found = self.join(), 0.0, PairSum(0, 0)
        results, cpu_s, punctuations = list[int](), list[float](), list[int]()
        held: dict[str, list[int]] = {"a": [], "b": []}
        for batch in self._elements:
            began = time.process_time()
            for element in batch:
                join.take(element)
            spent += time.process_time() - began
            numbers = np.array([(a.number, b.number) for a, b in join.output.rows], np.uint64).reshape(-1, 2)
            found = PairSum(
                found.rows + len(numbers), (found.mix + int(numbers.prod(axis=1).sum())) % (1 << 64)
            )
            join.output.rows.clear()
            results.append(found.rows)
            cpu_s.append(spent)
            punctuations.append(len(join.output.ends))
            for name, state in zip("ab", join.states, strict=True):
                held[name].append(state.rows)
        wanted = answer(self.data, self.window, self.window)
        if found != wanted:
            raise InvariantBroken(
                f"the reference engine's {self.operator} gave {found}, the batch join {wanted}; nothing is "
                "reported. Please report this with the command you ran"
            )
        return ObservedBatches(results, cpu_s, held, punctuations)
