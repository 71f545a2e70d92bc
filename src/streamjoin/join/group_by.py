"""Group by: aggregates of the results of a key, emitted the moment the key is finished.

The rows that a join gives become accumulators (`aggregates`), one row per group and batch, and are
stored like everything else: as sorted runs (`SortedRuns`), in the same manifest. When the join
says that a key is finished its accumulators are taken out, combined, and leave as the final rows of
its groups, before the punctuation for the key. Worked case: item 180 gets 2 bids, then 1, then "no
more bids for item 180": partial rows (180, 2) and (180, 1) are stored, then (180, 3) leaves and
nothing is stored.

Whenever runs are compacted their rows are combined, and they are compacted four at a time: a key that
stays open for 10,000 batches has at most three partial rows per size class of its runs.

A null key is never finished. The rows that have one (outer and anti joins) are stored apart, and
leave when every input that can bring such rows has ended.

Cost of a batch of b results against n partial rows: b to combine, b amortised log(n / b) to compact; a
finished key costs a lookup per run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from streamjoin.columnar.batch import Batch, Ints, concat
from streamjoin.columnar.keys import valid
from streamjoin.join.group_spec import Grouping
from streamjoin.join.outputs import FinishedKeys, Output, Results
from streamjoin.state.component import Holds, StateComponent
from streamjoin.state.run import Run
from streamjoin.state.sorted_runs import CompactionPolicy, MarkedRows, RunNames, SortedRuns, Tier

KEYED = "g"  # the tag of the side whose rows have a key
UNKEYED = "gn"  # the tag of the side whose rows have no key
_FANOUT = 4
_PENDING_ROWS = 1 << 16  # results that wait to be combined together
_FRAME_BYTES = 8 << 20  # of final rows: lists can be long


class Partials(SortedRuns):
    """Partial rows; whatever becomes one run is combined first."""

    def __init__(self, tag: str, grouping: Grouping, names: RunNames, policy: CompactionPolicy) -> None:
        super().__init__(tag, grouping.layout, names, replace(policy, fanout=min(policy.fanout, _FANOUT)))
        self._grouping = grouping

    def _cut(self, sorted_parts: Iterable[MarkedRows]) -> Tier:
        return super()._cut(MarkedRows(self._grouping.combine(part.rows)) for part in sorted_parts)

    def take_out(self, runs: Iterable[tuple[Run, Ints]]) -> Batch:
        """Live rows of some runs leave, combined."""
        parts = []
        for run, rows in runs:
            parts.append(run.batch.take(rows))
            run.delete(rows)
        return self._grouping.combine(concat(self.layout, parts).sorted(in_runs=True))


class GroupBy(StateComponent):
    """The groups of a join, or of one hash bucket of it, that are not final yet."""

    name = "groups"
    holds: Holds = "groups"

    def __init__(
        self, grouping: Grouping, names: RunNames, policy: CompactionPolicy, *, null_safe: bool = False
    ) -> None:
        self.grouping = grouping
        self._null_safe = null_safe  # a null key is a key
        self._keyed = Partials(KEYED, grouping, names, policy)
        self._unkeyed = Partials(UNKEYED, grouping, names, policy)
        self._unkeyed.by_hash = False
        self._pending: list[Batch] = []

    def __len__(self) -> int:
        """How many partial rows are stored."""
        return sum(side.live_rows for side in self.sides) + sum(map(len, self._pending))

    @property
    def sides(self) -> tuple[SortedRuns, SortedRuns]:
        return self._keyed, self._unkeyed

    def sorted_runs(self) -> Sequence[SortedRuns]:
        return self.sides

    @property
    def state_rows(self) -> int:
        return len(self)

    def keyed(self) -> SortedRuns:
        """The partial rows that have a key."""
        self._put_away()
        return self._keyed

    def absorb(self, results: Results) -> None:
        """Rows of the join, added to their groups."""
        self._pending.append(self.grouping.lift(results.rows, results.components))
        if sum(map(len, self._pending)) >= _PENDING_ROWS:
            self._put_away()

    def _put_away(self) -> None:
        if not self._pending:
            return
        rows = concat(self.grouping.layout, self._pending)
        self._pending = []
        has_key = np.ones(len(rows), np.bool_) if self._null_safe else valid(rows.keys)
        self._keyed.append(rows.where(has_key).sorted())
        self._unkeyed.append(rows.where(~has_key).sorted())

    def finish(self, keys: Batch) -> Iterator[Results]:
        """The final rows of finished keys (a sorted batch); nothing is stored of them any more."""
        hits = self.keyed().match(keys)
        yield from self._final(self._keyed.take_out((hit.run, hit.live()[1]) for hit in hits))

    def finish_unkeyed(self) -> Iterator[Results]:
        """The final rows of groups without a key."""
        self._put_away()
        runs = ((run, np.flatnonzero(run.live_mask())) for run in self._unkeyed.runs)
        yield from self._final(self._unkeyed.take_out(runs))

    def _final(self, rows: Batch) -> Iterator[Results]:
        step = max(1, len(rows) * _FRAME_BYTES // max(rows.nbytes, 1))
        for start in range(0, len(rows), step):
            yield Results(self.grouping.finish(rows.slice(start, min(step, len(rows) - start))))

    def over(self, outputs: Iterable[Output]) -> Iterator[Output]:
        """What a join gives in a batch, with final rows in place of its results."""
        for output in outputs:
            if isinstance(output, Results):
                self.absorb(output)
                continue
            if isinstance(output, FinishedKeys):
                yield from self.finish(output.keys)
            yield output

    def end_batch(self) -> None:
        """Leave nothing that only this batch knows."""
        self._put_away()
        for side in self.sides:
            side.drop_tombstoned()
