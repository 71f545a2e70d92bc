"""A join's state as a manifest and runs, and back.

`store` saves only runs that were not stored before, so a batch writes what it added; `restore`
fetches the rows of a run when they are first needed. Both runtimes use these two: the local one puts
everything into one value (`to_bytes`), Spark puts each run and the manifest into its state store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from streamjoin.columnar.batch import Layout, concat
from streamjoin.join.deferred import DeferredMatches
from streamjoin.join.operator import StreamJoin
from streamjoin.join.outputs import Counters
from streamjoin.join.spec import JoinSpec
from streamjoin.join.statistics.forecast import Calibration
from streamjoin.join.statistics.monitor import Monitor
from streamjoin.join.statistics.selectivity import Selectivities
from streamjoin.punctuation import Punctuation
from streamjoin.state.closed_ranges import ClosedRanges
from streamjoin.state.codec import SNAPSHOT, batch_bytes, decode, decode_batch, decode_run, encode, encode_run
from streamjoin.state.manifest import Manifest, RunEntry
from streamjoin.state.memory import MemoryManager, RunStore
from streamjoin.state.run import Extent, Run
from streamjoin.state.sorted_runs import SortedRuns
from streamjoin.state.stores import SpillFolder, Values, encoded

_ANYWHERE = (-(1 << 63), (1 << 63) - 1)  # bounds of a run that was written before bounds were


def sides_of(join: StreamJoin) -> Iterator[SortedRuns]:
    """Everything of a join that is made of runs."""
    yield from join.sides
    for closed_keys in join.closed_keys:
        yield closed_keys.constants.side
        yield closed_keys.seen.side
    for partial_punctuations in join.partial_punctuations:
        yield partial_punctuations.side
    for scheduled in join.scheduled:
        yield scheduled.side
    yield join.propagated.side
    if join.groups is not None:
        yield from join.groups.sides


def store(join: StreamJoin, save: Callable[[Run], str]) -> Manifest:
    """The manifest of the present state; `save` says under which name each run is stored."""
    _settle_as_run(join)
    tiers = {
        side.tag: [[entry_of(run, save(run)) for run in tier] for tier in side.tiers]
        for side in sides_of(join)
    }
    return Manifest(join.spec.identity(), tiers, _facts(join))


def entry_of(run: Run, stored_as: str) -> RunEntry:
    """A run as a manifest knows it."""
    extent = run.extent
    known = extent.rows, extent.nbytes, run.collided
    marks = run.tombstones, run.matched
    return RunEntry(stored_as, *known, *marks, extent.hashes, extent.times, run.arrived, run.left)


def _settle_as_run(join: StreamJoin) -> None:
    """Keys whose promises are not carried out yet are few; the manifest carries them itself."""
    if len(join.unsettled) > 1:
        join.unsettled = [concat(join.unsettled[0].layout, join.unsettled)]


def _facts(join: StreamJoin) -> dict[str, Any]:
    told = {} if join.range_propagation is None else {"told": join.range_propagation.to_json()}
    forwarded = [encode_run(one.rows).hex() if len(one) else None for one in join.forwarded]
    return {
        **told,
        **({"forwarded": forwarded} if any(forwarded) else {}),
        "step": join.step,
        "own progress": join.own_watermarks.own,
        "ended": join.own_watermarks.ended,
        "watermarks": join.watermarks,
        "counters": [asdict(counters) for counters in join.counters],
        "results": join.results,
        "propagated_keys": join.propagated_keys,
        "fallbacks": join.fallbacks,
        "measured": join.measured.to_json(),
        "closed_keys": [
            {
                "ended": closed_keys.ended,
                "ranges": None if closed_keys.ranges is None else closed_keys.ranges.to_json(),
                "patterns": [Punctuation(patterns).text() for patterns in closed_keys.patterns],
            }
            for closed_keys in join.closed_keys
        ],
        "pledged patterns": [
            partial_punctuations.patterns for partial_punctuations in join.partial_punctuations
        ],
        "scheduled patterns": [
            [[time_us, Punctuation(patterns).text()] for time_us, patterns in scheduled.patterns]
            for scheduled in join.scheduled
        ],
        **({} if join.deferred is None else {"deferred": join.deferred.to_json()}),
        "seen": [monitor.to_json() for monitor in join.monitors],
        "calibration": join.calibration.to_json(),
        "unsettled": [encode_run(batch).hex() for batch in join.unsettled],
        "followed": [
            None if one is None else [one.widest_slack, batch_bytes(one.state()).to_pybytes().hex()]
            for one in join.followers
        ],
    }


def restore(spec: JoinSpec, manifest: Manifest, run_store: RunStore) -> StreamJoin:
    """The join as it was when the manifest was made; the keeper has the runs it names."""
    manifest.check_identity(spec.identity())
    join = StreamJoin(spec)
    join.names.memory_manager.run_store = run_store
    for side in sides_of(join):
        side.tiers = [
            [run_of(entry, side.layout, side.names.memory_manager) for entry in tier]
            for tier in manifest.tiers.get(side.tag, [])
        ]
    facts = manifest.facts
    join.step = facts["step"]
    join.own_watermarks.own, join.own_watermarks.ended = list(facts["own progress"]), list(facts["ended"])
    join.watermarks = list(facts["watermarks"])
    join.counters = [Counters(**counters) for counters in facts["counters"]]
    join.results, join.propagated_keys = facts["results"], facts["propagated_keys"]
    join.fallbacks = facts.get("fallbacks", 0)
    join.measured = Selectivities.from_json(len(spec.inputs), facts.get("measured", ()))
    for closed_keys, saved in zip(join.closed_keys, facts["closed_keys"], strict=True):
        closed_keys.ended = saved["ended"]
        if saved["ranges"] is not None:
            closed_keys.ranges = ClosedRanges.from_json(spec.key_types[0], saved["ranges"])
        closed_keys.patterns = [
            Punctuation.parse(text, spec.key_types).patterns for text in saved["patterns"]
        ]
    for partial_punctuations, partials in zip(
        join.partial_punctuations, facts["pledged patterns"], strict=True
    ):
        partial_punctuations.patterns = partials
    # a state from before there were control streams says nothing of them
    for scheduled, timed in zip(join.scheduled, facts.get("scheduled patterns", ()), strict=False):
        scheduled.patterns = [
            (time_us, Punctuation.parse(text, spec.key_types).patterns) for time_us, text in timed
        ]
    if (
        "deferred" in facts
    ):  # also where joining need not wait any more: then the next batch gives what is owed
        join.deferred = DeferredMatches()
        join.deferred.restore(facts["deferred"])
        join.names.memory_manager.turn = join.deferred.turn
    if join.range_propagation is not None:
        join.range_propagation.restore(facts["told"])
    if "seen" in facts:
        join.monitors = [Monitor.from_json(saved) for saved in facts["seen"]]
    if "calibration" in facts:
        join.calibration = Calibration.from_json(spec, facts["calibration"])
    for one, waiting in zip(join.forwarded, facts.get("forwarded", ()), strict=False):
        one.rows = decode_run(bytes.fromhex(waiting), one.layout) if waiting else one.rows
    keys_only = spec.inputs[0].layout.keys_only
    join.unsettled = [decode_run(bytes.fromhex(value), keys_only) for value in facts["unsettled"]]
    for follower, saved in zip(join.followers, facts.get("followed", []), strict=False):
        if follower is not None:
            follower.widest_slack = saved[0]
            follower.restore(decode_batch(bytes.fromhex(saved[1])))
    return join


def run_of(entry: RunEntry, layout: Layout, memory_manager: MemoryManager) -> Run:
    """The run that a manifest knows; its rows are fetched when they are needed."""
    name = entry.stored_as.rpartition("-")[0]
    run = Run(name, None, entry.tombstones, entry.matched, entry.stored_as, entry.collided)
    bounds = entry.hashes or _ANYWHERE, entry.times or _ANYWHERE
    run.known_extent = Extent(layout, entry.rows, entry.nbytes, *bounds)
    run.home = memory_manager
    run.arrived, run.left = entry.arrived, entry.left
    return run


def to_bytes(join: StreamJoin) -> bytes:
    """The whole state as one value."""
    return as_value(lambda save: store(join, save))


def as_value(stored: Callable[[Callable[[Run], str]], Manifest]) -> bytes:
    """A manifest and the runs that it saves as one value."""
    runs: dict[str, bytes] = {}

    def save(run: Run) -> str:
        name, runs[name] = encoded(run)
        return name

    manifest = stored(save)
    return encode(SNAPSHOT, {"runs": list(runs)}, [manifest.encode(), *runs.values()])


def from_bytes(spec: JoinSpec, value: bytes, run_store: Values | SpillFolder | None = None) -> StreamJoin:
    """The join that `to_bytes` wrote; its runs go to the keeper."""
    run_store = run_store or Values()
    header, (manifest, *parts) = decode(SNAPSHOT, value)
    for name, part in zip(header["runs"], parts, strict=True):
        run_store.put(name, part)
    return restore(spec, Manifest.decode(manifest), run_store)
