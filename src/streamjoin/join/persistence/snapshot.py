"""Snapshot: a join's state as a manifest and sorted runs, and back.

`store` saves only runs that were not stored before, so a batch writes what it added; `restore` loads the
rows of a run when they are first needed. Both runtimes use these two: the local one puts everything into
one value (`to_bytes`), Spark puts each run and the manifest into its state store.

Both iterate over the components of the operator's state (`state.component`). A part of a stored state
that no component knows is refused by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamjoin.columnar.batch import Layout, Places
from streamjoin.errors import StateFormatError
from streamjoin.join.operator import StreamJoin
from streamjoin.join.persistence.restart import check_restart, moved, through
from streamjoin.join.spec import JoinSpec
from streamjoin.state.codec import SNAPSHOT, decode, encode
from streamjoin.state.manifest import Manifest, RunEntry
from streamjoin.state.memory import MemoryManager, RunStore
from streamjoin.state.run import Run, RunMetadata
from streamjoin.state.stores import InMemoryRuns, SpillFolder, encoded


def store(join: StreamJoin, save: Callable[[Run], str]) -> Manifest:
    """The manifest of the present state; `save` says under which name each run is stored."""
    tiers = {
        side.tag: [[entry_of(run, save(run)) for run in tier] for tier in side.tiers]
        for side in join.state.sorted_runs()
    }
    return Manifest(join.spec.identity(), tiers, json_parts(join))


def json_parts(join: StreamJoin) -> dict[str, Any]:
    """The JSON part of every component that has one, by name."""
    parts = {component.name: component.to_json() for component in join.state.components()}
    return {name: part for name, part in parts.items() if part is not None}


def restore(spec: JoinSpec, manifest: Manifest, run_store: RunStore) -> StreamJoin:
    """The join as it was when the manifest was made; the run store has the runs it names.

    Where an input has other columns since, its tuples are read as if they always had these (`restart`).
    """
    check_restart(manifest.identity, spec.identity())
    join = StreamJoin(spec)
    memory_manager = join.names.memory_manager
    memory_manager.run_store = run_store
    components = join.state.components()
    unknown = sorted(manifest.facts.keys() - {component.name for component in components})
    if unknown:
        raise StateFormatError(
            f"this state holds {', '.join(unknown)}, which this version does not know; "
            "use the version of streamjoin that wrote it"
        )
    columns = manifest.identity["columns"], spec.identity()["columns"]
    places = {
        side.tag: moved(*(one[name] for one in columns))
        for side, name in zip(join.sides, manifest.identity["inputs"], strict=True)
    }
    for side in join.state.sorted_runs():
        side.tiers = [
            [run_of(entry, side.layout, memory_manager, places.get(side.tag)) for entry in tier]
            for tier in manifest.tiers.get(side.tag, [])
        ]
    for component in components:
        if component.name in manifest.facts:
            component.restore(manifest.facts[component.name])
    return join


def entry_of(run: Run, stored_as: str) -> RunEntry:
    """A run as a manifest knows it."""
    known = run.metadata
    marks = run.tombstones, run.matched
    bounds = known.hashes, known.times
    places = run.places if stored_as == run.stored_as else None  # stored anew: as its rows are now
    turns = run.arrived, run.spilled_at
    return RunEntry(stored_as, known.rows, known.nbytes, run.collided, *bounds, *marks, *turns, places)


def run_of(
    entry: RunEntry, layout: Layout, memory_manager: MemoryManager, places: Places | None = None
) -> Run:
    """The run that a manifest knows; its rows are loaded when they are needed.

    `places`: where the columns of today were when the manifest was made.
    """
    name = entry.stored_as.rpartition("-")[0]
    run = Run(name, None, entry.tombstones, entry.matched, entry.stored_as, entry.collided)
    run.known_metadata = RunMetadata(layout, entry.rows, entry.nbytes, entry.hashes, entry.times)
    run.memory_manager = memory_manager
    run.arrived, run.spilled_at = entry.arrived, entry.spilled_at
    run.places = through(entry.places, places)
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


def from_bytes(
    spec: JoinSpec, value: bytes, run_store: InMemoryRuns | SpillFolder | None = None
) -> StreamJoin:
    """The join that `to_bytes` wrote; its runs go to the run store."""
    run_store = run_store or InMemoryRuns()
    header, (manifest, *parts) = decode(SNAPSHOT, value)
    for name, part in zip(header["runs"], parts, strict=True):
        run_store.put(name, part)
    return restore(spec, Manifest.decode(manifest), run_store)
