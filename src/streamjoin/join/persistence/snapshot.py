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
from streamjoin.join.deferred import Debts
from streamjoin.join.operator import StreamJoin
from streamjoin.join.outputs import Counters
from streamjoin.join.spec import JoinSpec
from streamjoin.join.statistics.forecast import Calibration
from streamjoin.join.statistics.monitor import Monitor
from streamjoin.join.statistics.selectivity import Selectivities
from streamjoin.punctuation import Punctuation
from streamjoin.state.closed_ranges import RangeSet
from streamjoin.state.codec import SNAPSHOT, batch_bytes, decode, decode_batch, decode_run, encode, encode_run
from streamjoin.state.manifest import Manifest, RunEntry
from streamjoin.state.memory import Keeper, Residency
from streamjoin.state.run import Extent, Run
from streamjoin.state.sorted_runs import Side
from streamjoin.state.stores import SpillFolder, Values, encoded

_ANYWHERE = (-(1 << 63), (1 << 63) - 1)  # bounds of a run that was written before bounds were


def sides_of(join: StreamJoin) -> Iterator[Side]:
    """Everything of a join that is made of runs."""
    yield from join.sides
    for promises in join.promises:
        yield promises.constants.side
        yield promises.seen.side
    for pledges in join.pledges:
        yield pledges.side
    for scheduled in join.scheduled:
        yield scheduled.side
    yield join.announced.side
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
    marks = run.dead, run.matched
    return RunEntry(stored_as, *known, *marks, extent.hashes, extent.times, run.arrived, run.left)


def _settle_as_run(join: StreamJoin) -> None:
    """Keys whose promises are not carried out yet are few; the manifest carries them itself."""
    if len(join.unsettled) > 1:
        join.unsettled = [concat(join.unsettled[0].layout, join.unsettled)]


def _facts(join: StreamJoin) -> dict[str, Any]:
    told = {} if join.telling is None else {"told": join.telling.to_json()}
    carried = [encode_run(one.rows).hex() if len(one) else None for one in join.carried]
    return {
        **told,
        **({"carried": carried} if any(carried) else {}),
        "step": join.step,
        "own progress": join.progress.own,
        "ended": join.progress.ended,
        "reached": join.reached,
        "counters": [asdict(counters) for counters in join.counters],
        "results": join.results,
        "announcements": join.announcements,
        "fallbacks": join.fallbacks,
        "measured": join.measured.to_json(),
        "promises": [
            {
                "ended": promises.ended,
                "ranges": None if promises.ranges is None else promises.ranges.to_json(),
                "patterns": [Punctuation(patterns).text() for patterns in promises.patterns],
            }
            for promises in join.promises
        ],
        "pledged patterns": [pledges.patterns for pledges in join.pledges],
        "scheduled patterns": [
            [[time_us, Punctuation(patterns).text()] for time_us, patterns in scheduled.patterns]
            for scheduled in join.scheduled
        ],
        **({} if join.debts is None else {"debts": join.debts.to_json()}),
        "seen": [monitor.to_json() for monitor in join.monitors],
        "calibration": join.calibration.to_json(),
        "unsettled": [encode_run(batch).hex() for batch in join.unsettled],
        "followed": [
            None if one is None else [one.widest_slack, batch_bytes(one.state()).to_pybytes().hex()]
            for one in join.followers
        ],
    }


def restore(spec: JoinSpec, manifest: Manifest, keeper: Keeper) -> StreamJoin:
    """The join as it was when the manifest was made; the keeper has the runs it names."""
    manifest.check_identity(spec.identity())
    join = StreamJoin(spec)
    join.names.residency.keeper = keeper
    for side in sides_of(join):
        side.tiers = [
            [run_of(entry, side.layout, side.names.residency) for entry in tier]
            for tier in manifest.tiers.get(side.tag, [])
        ]
    facts = manifest.facts
    join.step = facts["step"]
    join.progress.own, join.progress.ended = list(facts["own progress"]), list(facts["ended"])
    join.reached = list(facts["reached"])
    join.counters = [Counters(**counters) for counters in facts["counters"]]
    join.results, join.announcements = facts["results"], facts["announcements"]
    join.fallbacks = facts.get("fallbacks", 0)
    join.measured = Selectivities.from_json(len(spec.inputs), facts.get("measured", ()))
    for promises, saved in zip(join.promises, facts["promises"], strict=True):
        promises.ended = saved["ended"]
        if saved["ranges"] is not None:
            promises.ranges = RangeSet.from_json(spec.key_types[0], saved["ranges"])
        promises.patterns = [Punctuation.parse(text, spec.key_types).patterns for text in saved["patterns"]]
    for pledges, pledged in zip(join.pledges, facts["pledged patterns"], strict=True):
        pledges.patterns = pledged
    # a state from before there were control streams says nothing of them
    for scheduled, timed in zip(join.scheduled, facts.get("scheduled patterns", ()), strict=False):
        scheduled.patterns = [
            (time_us, Punctuation.parse(text, spec.key_types).patterns) for time_us, text in timed
        ]
    if "debts" in facts:  # also where joining need not wait any more: then the next batch gives what is owed
        join.debts = Debts()
        join.debts.restore(facts["debts"])
        join.names.residency.turn = join.debts.turn
    if join.telling is not None:
        join.telling.restore(facts["told"])
    if "seen" in facts:
        join.monitors = [Monitor.from_json(saved) for saved in facts["seen"]]
    if "calibration" in facts:
        join.calibration = Calibration.from_json(spec, facts["calibration"])
    for one, waiting in zip(join.carried, facts.get("carried", ()), strict=False):
        one.rows = decode_run(bytes.fromhex(waiting), one.layout) if waiting else one.rows
    keys_only = spec.inputs[0].layout.keys_only
    join.unsettled = [decode_run(bytes.fromhex(value), keys_only) for value in facts["unsettled"]]
    for follower, saved in zip(join.followers, facts.get("followed", []), strict=False):
        if follower is not None:
            follower.widest_slack = saved[0]
            follower.restore(decode_batch(bytes.fromhex(saved[1])))
    return join


def run_of(entry: RunEntry, layout: Layout, residency: Residency) -> Run:
    """The run that a manifest knows; its rows are fetched when they are needed."""
    name = entry.stored_as.rpartition("-")[0]
    run = Run(name, None, entry.dead, entry.matched, entry.stored_as, entry.collided)
    bounds = entry.hashes or _ANYWHERE, entry.times or _ANYWHERE
    run.known_extent = Extent(layout, entry.rows, entry.nbytes, *bounds)
    run.home = residency
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


def from_bytes(spec: JoinSpec, value: bytes, keeper: Values | SpillFolder | None = None) -> StreamJoin:
    """The join that `to_bytes` wrote; its runs go to the keeper."""
    keeper = keeper or Values()
    header, (manifest, *parts) = decode(SNAPSHOT, value)
    for name, part in zip(header["runs"], parts, strict=True):
        keeper.put(name, part)
    return restore(spec, Manifest.decode(manifest), keeper)
