"""Rebucketing: a join's state for another number of hash buckets.

A bucket is a range of the hash space (`wire`), so a new bucket covers parts of a few old ones and takes
its rows from their runs by cutting. Worked number: from 3 buckets to 5, the second new one covers
[1/5, 2/5) of the hashes, which is the end of the first old bucket and the beginning of the second.

What is not rows is merged and split by each component (`state.component`), by what it is: what every
bucket has alike (watermarks, ranges) is copied to all, what belongs to keys goes where its key's hash
goes, counters are summed into the first new bucket, forecasts begin again.

A part that no component knows is refused by name, never left behind. Cost: every live row is copied
once; of the old buckets only those that the present new one needs are open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin.columnar.batch import concat
from streamjoin.columnar.keys import checksum
from streamjoin.join.operator import StreamJoin
from streamjoin.join.persistence.snapshot import restore
from streamjoin.join.spec import JoinSpec
from streamjoin.join.wire import bucket_bounds
from streamjoin.state.component import HashRange, StateComponent, refuse
from streamjoin.state.manifest import Manifest
from streamjoin.state.run import Run
from streamjoin.state.sorted_runs import MarkedRows, SortedRuns
from streamjoin.state.stores import InMemoryRuns

JsonParts = dict[str, Any]  # by the name of the component
Senders = Mapping[int, int]  # inputs that a rebucketed join feeds: how many buckets that one has now
NONE_REFED: Senders = MappingProxyType({})


def hash_ranges(buckets: int) -> list[HashRange]:
    """The hashes of each bucket.

    >>> [one.first for one in hash_ranges(2)] == [-(2**63), 0]
    True
    """
    everything = HashRange()
    firsts = [everything.first, *bucket_bounds(buckets).tolist()]
    lasts = [*(first - 1 for first in firsts[1:]), everything.last]
    return [HashRange(first, last) for first, last in zip(firsts, lasts, strict=True)]


def rebucketed(
    spec: JoinSpec,
    manifests: Sequence[Manifest],
    open_bucket: Callable[[int], StreamJoin],
    buckets: int,
    refed: Senders = NONE_REFED,
) -> Iterator[StreamJoin]:
    """The joins of `buckets` new buckets, in order; `open_bucket` gives an old one with its runs."""
    whole = WholeState.of(spec, [manifest.facts for manifest in manifests], refed)
    unknown = unknown_runs(spec, manifests)
    if unknown:
        refuse(f"rows of {', '.join(unknown)}")
    inputs = tuple(replace(one, partitions=refed.get(i, one.partitions)) for i, one in enumerate(spec.inputs))
    target = replace(spec, buckets=buckets, inputs=inputs)
    bounds = bucket_bounds(len(manifests))
    opened: dict[int, StreamJoin] = {}
    for hashes in hash_ranges(buckets):
        ends = np.searchsorted(bounds, [hashes.first, hashes.last], side="right").tolist()
        needed = range(ends[0], ends[1] + 1)
        opened = {bucket: opened.get(bucket) or open_bucket(bucket) for bucket in needed}
        join = restore(target, Manifest(target.identity(), {}, whole.share(hashes)), InMemoryRuns())
        join.names.begin(join.state.counters.step)
        old = zip(*(_copied_runs(each, refed) for each in opened.values()), strict=True)
        for side, parts in zip(_copied_runs(join, refed), old, strict=True):
            if side.by_hash:
                _copy_rows(side, parts, hashes)
            elif hashes.of_first_bucket:
                _copy_rows(side, parts[:1], HashRange())
        yield join


def _copied_runs(join: StreamJoin, refed: Senders) -> Iterator[SortedRuns]:
    """The sorted runs of the components that do not count senders which are no longer there."""
    for component in join.state.components():
        if not (component.by_sender and component.input in refed):
            yield from component.sorted_runs()


def unknown_runs(spec: JoinSpec, manifests: Iterable[Manifest]) -> dict[str, int]:
    """Rows that are stored for sorted runs this join does not have, by tag."""
    known = {side.tag for side in StreamJoin(spec).state.sorted_runs()}
    found: Counter[str] = Counter()
    for manifest in manifests:
        for tag in manifest.tiers.keys() - known:
            found[tag] += sum(run.rows for tier in manifest.tiers[tag] for run in tier)
    return {tag: rows for tag, rows in sorted(found.items()) if rows}


def _copy_rows(side: SortedRuns, parts: Sequence[SortedRuns], hashes: HashRange) -> None:
    """The live rows of a hash range, tier by tier; neighbors' tiers follow each other in hash order."""
    for tiers in zip_longest(*(part.tiers for part in parts), fillvalue=()):
        rows, flags = [], []
        for run in chain.from_iterable(tiers):
            batch = run.batch
            here = hashes.slice_of(batch.hash)
            live = run.live_mask()[here]
            rows.append(batch.slice(here.start, here.stop - here.start).where(live))
            flags.append(run.matched_between(here.start, here.stop))
        matched, together = np.concatenate(flags), concat(side.layout, rows)
        if len(together):
            side.adopt(MarkedRows(together, matched if matched.any() else None))


@dataclass(frozen=True)
class WholeState:
    """The JSON parts of all buckets together, merged by component."""

    components: Sequence[StateComponent]
    parts: JsonParts

    @classmethod
    def of(cls, spec: JoinSpec, stored: Sequence[JsonParts], refed: Senders = NONE_REFED) -> WholeState:
        """Merge; refused where buckets disagree or hold a part that no component knows."""
        components = StreamJoin(spec).state.components()
        unknown = sorted(set().union(*stored) - {component.name for component in components})
        if unknown:
            refuse(", ".join(unknown))
        merged = {
            component.name: component.merge(found)
            for component in components
            if (found := [parts[component.name] for parts in stored if component.name in parts])
        }
        for component in components:
            senders = None if component.input is None else refed.get(component.input)
            if senders is not None and merged.get(component.name) is not None:
                merged[component.name] = component.refed(merged[component.name], senders)
        return cls(components, {name: part for name, part in merged.items() if part is not None})

    def share(self, hashes: HashRange) -> JsonParts:
        """The parts of one new bucket."""
        return {one.name: one.split(part, hashes) for one, part in self._known()}

    def digest(self) -> JsonParts:
        """What must be the same before and after rebucketing."""
        return {one.name: one.digest(part) for one, part in self._known()}

    def _known(self) -> Iterator[tuple[StateComponent, Any]]:
        return ((one, self.parts[one.name]) for one in self.components if one.name in self.parts)


class Totals:
    """The contents of all buckets: equal for equal states, however they are cut."""

    def __init__(self, spec: JoinSpec, refed: Senders = NONE_REFED) -> None:
        self.spec, self.refed = spec, refed
        self.sides: dict[str, tuple[int, int]] = {}
        self.stored: list[JsonParts] = []

    def add(self, manifest: Manifest, join: StreamJoin) -> None:
        """One more bucket."""
        self.stored.append(manifest.facts)
        for side in _copied_runs(join, self.refed):
            rows, total = self.sides.get(side.tag, (0, 0))
            for run in side.runs:
                more, number = _live_checksum(run)
                rows, total = rows + more, (total + number) % (1 << 64)
            self.sides[side.tag] = rows, total

    def differences(self, other: Totals) -> list[str]:
        """What is not the same in the other state, by name."""
        ours, theirs = (WholeState.of(each.spec, each.stored, self.refed).digest() for each in (self, other))
        ours |= {f"rows of {tag}": found for tag, found in self.sides.items()}
        theirs |= {f"rows of {tag}": found for tag, found in other.sides.items()}
        return sorted(name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name))


def _live_checksum(run: Run) -> tuple[int, int]:
    live = np.flatnonzero(run.live_mask())
    matched = np.zeros(len(live), np.bool_) if run.matched is None else run.matched[live]
    return checksum([*run.batch.take(live).data.columns, pa.array(matched)])
