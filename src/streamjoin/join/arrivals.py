"""Arrivals: what one input brings in one batch: rows, punctuations and its watermark.

Positions order rows and punctuations. They are known only where the input has a sequence, and only
within one source partition; without them every punctuation acts after the batch's rows, which is
always correct.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin.columnar.batch import Batch, Ints, Layout, Mask
from streamjoin.columnar.match import expand
from streamjoin.join.scheduled_punctuations import TimedPatterns
from streamjoin.join.statistics.monitor import Order
from streamjoin.punctuation import ANY
from streamjoin.state.closed_keys import KeyPatterns, is_everything, pattern_mask
from streamjoin.state.run import Run, match


@dataclass(frozen=True, slots=True)
class Positions:
    """Where each element stands: `offset[i]` within source partition `partition[i]`."""

    partition: Ints
    offset: Ints

    def take(self, rows: Ints) -> Positions:
        return Positions(self.partition[rows], self.offset[rows])

    def slice(self, start: int, stop: int) -> Positions:
        return Positions(self.partition[start:stop], self.offset[start:stop])


@dataclass(frozen=True, slots=True)
class ShareSummary:
    """The summary of a share of one source partition, from which arrival orders derive punctuations.

    `first` and `last` are offsets, `size` is counted in tuples. Where keys are ordered: `values` are
    the greatest of all but the last `slack` tuples, if there are so many, and then those last ones;
    `widest` is how many places too late a tuple came within the share.
    """

    partition: int
    first: int
    last: int
    size: int
    widest: int = 0
    values: Any = None


@dataclass(frozen=True)
class Arrivals:
    """One input's share of a batch.

    `rows` and `keys` (closed single keys) have no null keys; `patterns` are punctuations that are
    not single keys. `latest_us` is the greatest event time among all rows of the input in this
    batch, in every bucket; `unkeyed` are the rows with null keys, where they leave padded;
    `null_punctuations` are punctuations that name no key, and so violations;
    no row earlier than `watermark_us` will come; `scheduled` keys and patterns are punctuations that
    wait for a time. `forwarded` punctuations are on the key of a later operator.

    Where the order of arrival is declared, `summaries` cover all rows of the batch, in every bucket;
    `rank` is each row's position in its share, and rows `behind` violate the order: on the map side those
    that do so within their share, in the join all. Where it is not, `order` describes the first rows.
    """

    rows: Batch
    keys: Batch
    patterns: tuple[KeyPatterns, ...] = ()
    latest_us: int | None = None
    watermark_us: int | None = None
    null_keys: int = 0
    unkeyed: Batch | None = None
    null_punctuations: Batch | None = None
    control_rows_with_data: int = 0
    rows_at: Positions | None = None
    keys_at: Positions | None = None
    patterns_at: Positions | None = None
    rank: Ints | None = None
    behind: Mask | None = None
    scheduled: Batch | None = None
    scheduled_patterns: tuple[TimedPatterns, ...] = ()
    summaries: tuple[ShareSummary, ...] = ()
    order: Order | None = None
    forwarded: pa.RecordBatch | None = None

    @classmethod
    def nothing(cls, layout: Layout) -> Arrivals:
        return cls(layout.empty(), layout.keys_only.empty())

    def and_nothing_more(self) -> Arrivals:
        """The same, and the input has ended."""
        everything: KeyPatterns = tuple(ANY for _ in self.rows.layout.key_types)
        return replace(self, patterns=(*self.patterns, everything), patterns_at=None)

    @property
    def brings(self) -> bool:
        """Whether there is anything in it but a watermark."""
        return bool(len(self.rows) or len(self.keys) or self.patterns)

    def without_punctuations(self) -> Arrivals:
        """The same for an operator of the papers that ignores punctuations, except the end of an input."""
        ends = np.flatnonzero([is_everything(patterns) for patterns in self.patterns])
        return replace(
            self,
            keys=self.keys.slice(0, 0),
            keys_at=None,
            patterns=tuple(self.patterns[i] for i in ends),
            patterns_at=None if self.patterns_at is None else self.patterns_at.take(ends),
            scheduled=None,
            forwarded=None,
            null_punctuations=None,
            scheduled_patterns=tuple(each for each in self.scheduled_patterns if is_everything(each[1])),
        )

    def after_own_punctuation(self) -> Mask:
        """Rows that come after a punctuation of this same batch that covers them."""
        behind: Mask = np.zeros(len(self.rows), np.bool_) if self.behind is None else self.behind
        if self.rows_at is None:
            return behind
        if self.keys_at is not None and len(self.keys) and len(self.rows):
            behind = behind | self._behind_keys(self.rows_at, self.keys_at)
        if self.patterns_at is not None:
            for i, patterns in enumerate(self.patterns):
                later = (self.rows_at.partition == self.patterns_at.partition[i]) & (
                    self.rows_at.offset > self.patterns_at.offset[i]
                )
                behind = behind | (later & pattern_mask(patterns, self.rows.keys))
        return behind

    def _behind_keys(self, rows_at: Positions, keys_at: Positions) -> Mask:
        behind: Mask = np.zeros(len(self.rows), np.bool_)
        row_order, key_order = self.rows.sort_order(), self.keys.sort_order()
        rows, keys = self.rows.take(row_order), self.keys.take(key_order)
        hit = match(keys, Run("arrivals", rows))
        pair, key = expand(keys.groups.start[hit.probe], keys.groups.count[hit.probe])
        parent, row = expand(hit.start[pair], hit.count[pair])
        row, key = row_order[row], key_order[key[parent]]
        later = (rows_at.partition[row] == keys_at.partition[key]) & (
            rows_at.offset[row] > keys_at.offset[key]
        )
        behind[row[later]] = True
        return behind
