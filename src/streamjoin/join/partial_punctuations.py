"""Partial punctuations: those that not all source partitions have sent yet.

Where the tuples of one key can come through n partitions of a source, a partition's punctuation holds
for that partition alone: `marked(column, partitions=n)` closes a key when n different partitions have
sent it. Until then it is partial: a key with the partition that sent it, stored as state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin.columnar.batch import Batch, Ints, Layout, concat
from streamjoin.join.arrivals import Positions
from streamjoin.punctuation import Punctuation
from streamjoin.state.closed_keys import ClosedKeys, KeyPatterns, covers, drop_matching
from streamjoin.state.component import Contents, Holds, StateComponent, agreed
from streamjoin.state.sorted_runs import CompactionPolicy, RunNames, SortedRuns


class PartialPunctuations(StateComponent):
    """Keys by the partitions that have sent them; each (key, partition) once."""

    holds: Holds = "punctuations"
    by_sender = True

    def __init__(self, tag: str, layout: Layout, names: RunNames, partitions: int, number: int = 0) -> None:
        self.name, self.input = f"partial_punctuations {number}", number
        self.partitions = partitions
        self.layout = Layout(layout.key_types, payload_types=(pa.int64(),))
        self.side = SortedRuns(tag, self.layout, names, CompactionPolicy(tombstone_share=0.0))
        self.patterns: dict[str, list[int]] = {}  # text of a pattern: the partitions that sent it

    def __len__(self) -> int:
        return self.side.live_rows + sum(map(len, self.patterns.values()))

    def sorted_runs(self) -> Sequence[SortedRuns]:
        return (self.side,)

    @property
    def state_rows(self) -> int:
        return len(self)

    def contents(self) -> Iterator[Contents]:
        if len(self):
            yield Contents("partial punctuations", len(self), self.side.live())

    def to_json(self) -> Any:
        return self.patterns

    def restore(self, part: Any) -> None:
        self.patterns = part

    def merge(self, parts: Sequence[Any]) -> Any:
        """Patterns reach every bucket, in any order."""
        in_order = [{text: sorted(made) for text, made in sorted(part.items())} for part in parts]
        return agreed(self.name, in_order)

    def refed(self, whole: Any, senders: int) -> Any:
        return {}

    def forget(self, keys: Batch) -> None:
        """Keys (of a sorted batch) that are closed in another way."""
        self.side.forget(keys)

    def forget_matching(self, patterns: KeyPatterns) -> None:
        """Keys and patterns that a wider punctuation covers."""
        drop_matching(self.side, patterns)
        for text in list(self.patterns):
            if covers(patterns, Punctuation.parse(text, self.layout.key_types).patterns):
                del self.patterns[text]

    def fulfilled_patterns(
        self, patterns: tuple[KeyPatterns, ...], at: Positions | None, closed_keys: ClosedKeys
    ) -> tuple[tuple[KeyPatterns, ...], Positions | None]:
        """The patterns that all partitions have now sent; those that `closed_keys` cover are done already."""
        if self.partitions == 1 or at is None:
            return patterns, at
        enough = []
        for pattern, partition in zip(patterns, at.partition.tolist(), strict=True):
            if closed_keys.covers(pattern):
                continue
            text = Punctuation(pattern).text()
            made = self.patterns.setdefault(text, [])
            if partition not in made:
                made.append(partition)
            if len(made) >= self.partitions:
                del self.patterns[text]
                enough.append(pattern)
        return tuple(enough), None

    def fulfilled(self, keys: Batch, at: Positions | None) -> tuple[Batch, Positions | None]:
        """The keys that all partitions have now sent; with one partition, all keys.

        A punctuation without a position is one of the whole input, not of one of its partitions.
        """
        if self.partitions == 1 or at is None or len(keys) == 0:
            return keys, at
        new = self.layout.batch([keys.data.column(0), *keys.keys, pa.array(at.partition)])
        distinct = new.sorted().distinct_keys()
        known = []
        for hit in self.side.match(distinct):
            rows = hit.live()[1]
            known.append(hit.run.batch.take(rows))
            hit.run.delete(rows)
        all_partials = concat(self.layout, [*known, new]).sorted()
        group = all_partials.groups.of_rows()
        first = first_of_each(group, all_partials.payload[0].to_numpy())
        made = np.bincount(group[first], minlength=len(all_partials.groups))
        enough = made >= self.partitions
        self.side.drop_tombstoned()
        self.side.append(all_partials.take(first[~enough[group[first]]]))
        return all_partials.distinct_keys().where(enough), None


def first_of_each(group: Ints, partition: Ints) -> Ints:
    """The rows that show a (group, partition) for the first time, ascending."""
    order = np.lexsort((partition, group))
    repeated = np.zeros(len(order), np.bool_)
    repeated[1:] = (group[order][1:] == group[order][:-1]) & (partition[order][1:] == partition[order][:-1])
    return np.sort(order[~repeated])
