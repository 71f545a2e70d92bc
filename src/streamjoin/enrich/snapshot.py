"""A semi-stream join's state as a manifest and runs, and back.

Runs are the cache, the tuples that wait (one run a chunk), the waiting room, and in the paper's form the
values on their way into the cache. The manifest says where the cycle stands. Master data is not part of the
state: it is named by its version, and is asked for when the join is restored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from streamjoin.columnar.batch import Layout
from streamjoin.enrich.operator import EnrichJoin
from streamjoin.enrich.paper_scan import PaperReading
from streamjoin.enrich.scan import Chunk, OrderedReading, Reading
from streamjoin.enrich.spec import EnrichCounters, EnrichSpec, Master
from streamjoin.join.persistence.snapshot import as_value, entry_of, run_of
from streamjoin.state.codec import SNAPSHOT, decode
from streamjoin.state.manifest import Manifest, RunEntry
from streamjoin.state.memory import RunStore
from streamjoin.state.run import Run
from streamjoin.state.stores import InMemoryRuns

Tiers = dict[str, list[list[RunEntry]]]


def store(join: EnrichJoin, save: Callable[[Run], str]) -> Manifest:
    """The manifest of the state between two batches; `save` says under which name each run is stored."""
    tiers: Tiers = {
        side.tag: [[entry_of(run, save(run)) for run in tier] for tier in side.tiers]
        for side in (*join.cache.sides, join.room)
    }
    for number, reading in enumerate(join.readings):
        chunks = [chunk.run for chunk in reading.chunks]
        tiers[f"chunks {number}"] = [[entry_of(run, save(run)) for run in chunks]]
        if isinstance(reading, PaperReading):
            coming = [] if reading.candidates is None else [reading.candidates]
            tiers[f"candidates {number}"] = [[entry_of(run, save(run)) for run in coming]]
            tiers[f"switching {number}"] = [[entry_of(run, save(run)) for run in reading.switching]]
    return Manifest(join.spec.identity(), tiers, _facts(join))


def _facts(join: EnrichJoin) -> dict[str, Any]:
    return {
        "step": join.names.step,
        "clock": join.clock,
        "steps": join.steps,
        "shrunk at": join.shrunk_at,
        "latest": join.latest_us,
        "tuple bytes": join.tuple_bytes,
        "looks up": join.looks_up,
        "short at": join.short_at,
        "waited": join.waited_bytes,
        "counts": asdict(join.counts),
        "readings": [_reading_to_json(reading) for reading in join.readings],
    }


def _reading_to_json(reading: Reading) -> dict[str, Any]:
    known: dict[str, Any] = {
        "version": reading.master.version,
        "began": reading.began_us,
        "position": reading.position,
        "cycle": reading.cycle,
        "pieces": reading.pieces,
        "waiting": reading.waiting,
        "left": [chunk.pieces_left for chunk in reading.chunks],
    }
    if isinstance(reading, PaperReading):
        known |= {
            "state": reading.state,
            "rows of": reading.rows_of.tolist(),
            "reserved": reading.reserved_bytes,
        }
    return known


def restore(
    spec: EnrichSpec, manifest: Manifest, run_store: RunStore, master_of: Callable[[str], Master]
) -> EnrichJoin:
    """The join as it was when the manifest was made; the keeper has its runs, `master_of` its versions."""
    manifest.check_identity(spec.identity())
    facts = manifest.facts
    masters = [master_of(saved["version"]) for saved in facts["readings"]]
    join = EnrichJoin(spec, masters[0])
    join.names.memory_manager.run_store = run_store

    def runs(tag: str, layout: Layout) -> list[list[Run]]:
        return [
            [run_of(entry, layout, join.names.memory_manager) for entry in tier]
            for tier in manifest.tiers.get(tag, ())
        ]

    for side in (*join.cache.sides, join.room):
        side.tiers = runs(side.tag, side.layout)
    join.names.begin(facts["step"])
    join.clock, join.steps, join.shrunk_at = facts["clock"], facts["steps"], tuple(facts["shrunk at"])
    join.latest_us, join.tuple_bytes, join.looks_up = facts["latest"], facts["tuple bytes"], facts["looks up"]
    join.short_at, join.waited_bytes = facts["short at"], tuple(facts["waited"])
    join.counts = EnrichCounters(**facts["counts"])
    join.readings = [
        _reading(number, saved, master, runs, spec)
        for number, (saved, master) in enumerate(zip(facts["readings"], masters, strict=True))
    ]
    return join


def _reading(
    number: int, saved: dict[str, Any], master: Master, runs: Callable[[str, Layout], Any], spec: EnrichSpec
) -> Reading:
    [waiting] = runs(f"chunks {number}", spec.stream)
    chunks = [Chunk(run, left) for run, left in zip(waiting, saved["left"], strict=True)]
    known = master, saved["began"], saved["position"], saved["cycle"], chunks, saved["waiting"]
    if "state" not in saved:
        return OrderedReading(*known)
    [candidates] = runs(f"candidates {number}", spec.stream.keys_only)
    [switching] = runs(f"switching {number}", spec.master)
    rows_of = np.array(saved["rows of"], np.int64)
    moving = candidates[0] if candidates else None
    return PaperReading(*known, saved["state"], moving, rows_of, switching, saved["reserved"])


def to_bytes(join: EnrichJoin) -> bytes:
    """The whole state as one value."""
    return as_value(lambda save: store(join, save))


def from_bytes(spec: EnrichSpec, value: bytes, master_of: Callable[[str], Master]) -> EnrichJoin:
    """The join that `to_bytes` wrote."""
    header, (manifest, *parts) = decode(SNAPSHOT, value)
    run_store = InMemoryRuns(dict(zip(header["runs"], parts, strict=True)))
    return restore(spec, Manifest.decode(manifest), run_store, master_of)
