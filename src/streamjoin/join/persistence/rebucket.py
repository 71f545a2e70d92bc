"""A join's state for another number of hash buckets.

A bucket is a slice of the hash space (`wire`), so a new bucket is a stretch of a few old ones and
takes its rows from their runs by cutting. Worked number: from 3 buckets to 5, the second new one covers
[1/5, 2/5) of the hashes, which is the end of the first old bucket and the beginning of the second.

What is not rows is divided by what it is:

- what went to every bucket alike (event time, ranges, wide promises, the values that ordered arrival
  carries) is copied to all; buckets that disagree on it are refused;
- what belongs to keys (promises that wait to be carried out, the last keys of clustered arrival) goes
  where its key's hash goes;
- counters are summed, and the first new bucket has the sums;
- the monitor's samples are cut by hash. A stretch beyond an old sample begins with an empty one: what is
  then seen of its keys is seen from now on. It is advice only; so are forecasts, which begin again.

A fact that is not known here is refused by name, never left behind. Cost: every live row is copied
once; of the old buckets only those that the present new one needs are open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain, zip_longest
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from streamjoin.columnar.batch import Batch, Ints, concat
from streamjoin.columnar.keys import hash_keys
from streamjoin.declare.stream import Clustered
from streamjoin.errors import StateFormatError
from streamjoin.join.group_by import UNKEYED
from streamjoin.join.operator import StreamJoin
from streamjoin.join.persistence.snapshot import restore, sides_of
from streamjoin.join.spec import JoinSpec
from streamjoin.join.statistics.monitor import SAMPLED_KEYS, Monitor, Order
from streamjoin.join.wire import bucket_bounds
from streamjoin.state.codec import batch_bytes, decode_batch, decode_run, encode_run
from streamjoin.state.manifest import Manifest
from streamjoin.state.run import Run
from streamjoin.state.sorted_runs import Part, SortedRuns
from streamjoin.state.stores import Values

Facts = dict[str, Any]
_LOWEST, _HIGHEST = (int(end) for end in (np.iinfo(np.int64).min, np.iinfo(np.int64).max))
_ALIKE = ("own progress", "ended", "watermarks", "closed_keys", "pledged patterns", "scheduled patterns")
_SUMMED = ("counters", "results", "propagated_keys", "fallbacks")
_DIVIDED = ("step", "seen", "unsettled", "followed")
_BEGUN_AGAIN = ("calibration", "measured")
KNOWN = frozenset((*_ALIKE, *_SUMMED, *_DIVIDED, *_BEGUN_AGAIN))


@dataclass(frozen=True, slots=True)
class Stretch:
    """Hashes from `first` to `last`, both inclusive."""

    first: int
    last: int

    def of(self, hashes: Ints) -> slice:
        """Where the stretch lies among ascending hashes."""
        start, stop = np.searchsorted(hashes, self.first), np.searchsorted(hashes, self.last, side="right")
        return slice(int(start), int(stop))

    def mask(self, hashes: Ints) -> Any:
        return (hashes >= self.first) & (hashes <= self.last)


def stretches(buckets: int) -> list[Stretch]:
    """The hashes of each bucket.

    >>> [stretch.first for stretch in stretches(2)] == [-(2**63), 0]
    True
    """
    firsts = [_LOWEST, *bucket_bounds(buckets).tolist()]
    lasts = [*(first - 1 for first in firsts[1:]), _HIGHEST]
    return [Stretch(first, last) for first, last in zip(firsts, lasts, strict=True)]


def rebucketed(
    spec: JoinSpec, manifests: Sequence[Manifest], open_bucket: Callable[[int], StreamJoin], buckets: int
) -> Iterator[StreamJoin]:
    """The joins of `buckets` new buckets, in order; `open_bucket` gives an old one with its runs."""
    whole = Whole.of(spec, [manifest.facts for manifest in manifests])
    unknown = unknown_sides(spec, manifests)
    if unknown:
        _refuse(f"rows of {', '.join(unknown)}")
    target = replace(spec, buckets=buckets)
    bounds = bucket_bounds(len(manifests))
    opened: dict[int, StreamJoin] = {}
    for number, stretch in enumerate(stretches(buckets)):
        ends = np.searchsorted(bounds, [stretch.first, stretch.last], side="right").tolist()
        needed = range(ends[0], ends[1] + 1)
        opened = {bucket: opened.get(bucket) or open_bucket(bucket) for bucket in needed}
        join = restore(target, Manifest(target.identity(), {}, whole.share(number, stretch)), Values())
        join.names.begin(join.step)
        old = zip(*(sides_of(each) for each in opened.values()), strict=True)
        for side, parts in zip(sides_of(join), old, strict=True):
            if side.tag != UNKEYED:
                _take_over(side, parts, stretch)
            elif number == 0:  # rows without a key are the first bucket's, whatever their hash
                _take_over(side, parts[:1], Stretch(_LOWEST, _HIGHEST))
        yield join


def unknown_sides(spec: JoinSpec, manifests: Iterable[Manifest]) -> dict[str, int]:
    """Rows that are stored for sides this join does not have, by tag."""
    known = {side.tag for side in sides_of(StreamJoin(spec))}
    found: Counter[str] = Counter()
    for manifest in manifests:
        for tag in manifest.tiers.keys() - known:
            found[tag] += sum(run.rows for tier in manifest.tiers[tag] for run in tier)
    return {tag: rows for tag, rows in sorted(found.items()) if rows}


def _refuse(what: str) -> NoReturn:
    raise StateFormatError(
        f"this state holds {what}, which this version cannot divide among buckets; "
        "use the version of streamjoin that wrote it"
    )


def _take_over(side: SortedRuns, parts: Sequence[SortedRuns], stretch: Stretch) -> None:
    """The live rows of a stretch, tier by tier; neighbours' tiers follow each other in hash order."""
    for tiers in zip_longest(*(part.tiers for part in parts), fillvalue=()):
        rows, flags = [], []
        for run in chain.from_iterable(tiers):
            batch = run.batch
            here = stretch.of(batch.hash)
            live = run.live_mask()[here]
            rows.append(batch.slice(here.start, here.stop - here.start).where(live))
            flags.append(run.matched_between(here.start, here.stop))
        matched, merged = np.concatenate(flags), concat(side.layout, rows)
        if len(merged):
            side.adopt(Part(merged, matched if matched.any() else None))


@dataclass(frozen=True)
class Whole:
    """The facts of all buckets together."""

    spec: JoinSpec
    alike: Facts
    summed: Facts
    step: int
    unsettled: Batch
    monitors: list[Monitor] | None
    followed: list[list[Any] | None] | None  # the widest slack seen, and what is carried

    @classmethod
    def of(cls, spec: JoinSpec, facts: Sequence[Facts]) -> Whole:
        """Put together; refused where buckets disagree or hold what is not known here."""
        unknown = sorted(set().union(*facts) - KNOWN)
        if unknown:
            _refuse(", ".join(unknown))
        keys_only = spec.inputs[0].layout.keys_only
        waiting = [decode_run(bytes.fromhex(one), keys_only) for each in facts for one in each["unsettled"]]
        return cls(
            spec,
            {name: _agreed(name, facts) for name in _ALIKE if name in facts[0]},
            {
                "counters": [
                    _sum(counters) for counters in zip(*(each["counters"] for each in facts), strict=True)
                ],
                **{name: sum(each.get(name, 0) for each in facts) for name in _SUMMED[1:]},
            },
            max(each["step"] for each in facts),
            concat(keys_only, waiting),
            _monitors([each["seen"] for each in facts]) if "seen" in facts[0] else None,
            _followed(spec, [each["followed"] for each in facts]) if "followed" in facts[0] else None,
        )

    def share(self, number: int, stretch: Stretch) -> Facts:
        """What one new bucket knows."""
        nothing = {
            "counters": [dict.fromkeys(counters, 0) for counters in self.summed["counters"]],
            **dict.fromkeys(_SUMMED[1:], 0),
        }
        waiting = self.unsettled.where(stretch.mask(self.unsettled.hash))
        facts = {
            **self.alike,
            **(self.summed if number == 0 else nothing),
            "step": self.step,
            "unsettled": [encode_run(waiting).hex()] if len(waiting) else [],
        }
        if self.monitors is not None:
            facts["seen"] = [_cut_sample(one, stretch, first=number == 0).to_json() for one in self.monitors]
        if self.followed is not None:
            facts["followed"] = [
                None if each is None else [each[0], _as_hex(self._carried(i, each[1], stretch))]
                for i, each in enumerate(self.followed)
            ]
        return facts

    def _carried(self, i: int, forwarded: pa.RecordBatch, stretch: Stretch) -> pa.RecordBatch:
        """Keys of clustered arrival go to their bucket; what ordered arrival carries is everybody's."""
        if not isinstance(self.spec.inputs[i].arrival, Clustered):
            return forwarded
        return forwarded.filter(pa.array(stretch.mask(forwarded.column(0).to_numpy())))

    def in_short(self) -> Facts:
        """What must be the same before and after, monitors' samples aside."""
        short = {**self.alike, **self.summed, "step": self.step, "unsettled": checksum(self.unsettled.data)}
        short["orders"] = None if self.monitors is None else [one.order for one in self.monitors]
        short["followed"] = None
        if self.followed is not None:
            short["followed"] = [
                None if each is None else (each[0], checksum(each[1])) for each in self.followed
            ]
        return short


def _agreed(name: str, facts: Sequence[Facts]) -> Any:
    """What every bucket says alike, in one order."""
    said = [_in_order(name, each[name]) for each in facts]
    if any(each != said[0] for each in said[1:]):
        raise StateFormatError(
            f"the buckets of this state disagree on {name}, which a finished batch never leaves; "
            "restore the checkpoint from a backup"
        )
    return said[0]


def _in_order(name: str, value: Any) -> Any:
    """Lists whose order says nothing, and may differ between buckets, sorted."""
    if name == "closed_keys":
        return [{**each, "patterns": sorted(each["patterns"])} for each in value]
    if name == "pledged patterns":
        return [{text: sorted(made) for text, made in sorted(each.items())} for each in value]
    if name == "scheduled patterns":
        return [sorted(each) for each in value]
    return value


def _sum(counters: Sequence[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter(dict.fromkeys(counters[0], 0))
    for each in counters:
        total.update(each)
    return dict(total)


def _monitors(saved: Sequence[list[Any]]) -> list[Monitor]:
    """Of each input the samples of all buckets, which follow each other in hash order."""
    found = []
    for samples in zip(*saved, strict=True):
        parts = [Monitor.from_json(sample) for sample in samples]
        monitor = Monitor()
        monitor.keys = np.concatenate([part.keys for part in parts])
        monitor.counts = np.concatenate([part.counts for part in parts])
        monitor.order = reduce(Order.and_then, [part.order for part in parts])
        found.append(monitor)
    return found


def _cut_sample(whole: Monitor, stretch: Stretch, *, first: bool) -> Monitor:
    here = stretch.of(whole.keys)
    monitor = Monitor()
    monitor.keys, monitor.counts = whole.keys[here][:SAMPLED_KEYS], whole.counts[here][:SAMPLED_KEYS]
    monitor.order = whole.order if first else Order()
    return monitor


def _followed(spec: JoinSpec, saved: Sequence[list[Any]]) -> list[list[Any] | None]:
    found: list[list[Any] | None] = []
    for one, states in zip(spec.inputs, zip(*saved, strict=True), strict=True):
        if one.arrival is None:
            found.append(None)
            continue
        batches = [decode_batch(bytes.fromhex(state[1])) for state in states]
        if isinstance(one.arrival, Clustered):
            forwarded = pa.concat_batches(batches)
        else:
            forwarded = _ordered_alike(one.name, batches)
        found.append([max(state[0] for state in states), forwarded])
    return found


def _ordered_alike(name: str, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """What every bucket carries of an ordered input, by partition; within one its order counts."""
    by_partition = [
        batch.take(pa.array(np.argsort(batch.column(0).to_numpy(), kind="stable"))) for batch in batches
    ]
    hashes = [hash_keys(batch.columns) for batch in by_partition]  # where NaN equals NaN
    if any(not np.array_equal(each, hashes[0]) for each in hashes[1:]):
        raise StateFormatError(
            f"the buckets of this state disagree on how far ordered input {name!r} has got, which a finished "
            "batch never leaves; restore the checkpoint from a backup"
        )
    return by_partition[0]


def _as_hex(batch: pa.RecordBatch) -> str:
    return bytes(batch_bytes(batch)).hex()


# Checked


def checksum(rows: pa.RecordBatch, *beside: Any) -> tuple[int, int]:
    """How many rows, and a number that is the same for the same rows in any order."""
    if rows.num_rows == 0:
        return 0, 0
    return rows.num_rows, int(hash_keys([*rows.columns, *beside]).view(np.uint64).sum(dtype=np.uint64))


class Totals:
    """What is held over all buckets, side by side: equal for equal states, however they are cut."""

    def __init__(self, spec: JoinSpec) -> None:
        self.spec = spec
        self.sides: dict[str, tuple[int, int]] = {}
        self.facts: list[Facts] = []

    def add(self, manifest: Manifest, join: StreamJoin) -> None:
        """One more bucket."""
        self.facts.append(manifest.facts)
        for side in sides_of(join):
            rows, total = self.sides.get(side.tag, (0, 0))
            for run in side.runs:
                more, number = _live_checksum(run)
                rows, total = rows + more, (total + number) % (1 << 64)
            self.sides[side.tag] = rows, total

    def differences(self, other: Totals) -> list[str]:
        """What is not the same in the other state, by name."""
        ours, theirs = (Whole.of(each.spec, each.facts).in_short() for each in (self, other))
        ours |= {f"rows of {tag}": found for tag, found in self.sides.items()}
        theirs |= {f"rows of {tag}": found for tag, found in other.sides.items()}
        return sorted(name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name))


def _live_checksum(run: Run) -> tuple[int, int]:
    live = np.flatnonzero(run.live_mask())
    matched = np.zeros(len(live), np.bool_) if run.matched is None else run.matched[live]
    return checksum(run.batch.take(live).data, pa.array(matched))
