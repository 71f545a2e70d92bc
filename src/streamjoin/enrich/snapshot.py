"""Snapshot of a semi-stream join: its state as a manifest and runs, and back.

Runs are the cache, the waiting tuples (one run a chunk), the waiting room, and in a scan as in the paper the
values on their way into the cache. The manifest has the position of each scan. The table is not part of the
state: it is named by its version, and is opened when the join is restored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from streamjoin.columnar.batch import Layout, Places
from streamjoin.enrich.operator import EnrichJoin
from streamjoin.enrich.paper_scan import PaperScan
from streamjoin.enrich.scan import OrderedScan, Scan, WaitingChunk
from streamjoin.enrich.spec import EnrichCounters, EnrichSpec, StagedRows
from streamjoin.join.persistence.restart import check_restart, moved
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
        for side in (*join.cache.sides, join.waiting_room)
    }
    for number, scan in enumerate(join.scans):
        chunks = [chunk.run for chunk in scan.chunks]
        tiers[f"chunks {number}"] = [[entry_of(run, save(run)) for run in chunks]]
        if isinstance(scan, PaperScan):
            coming = [] if scan.candidates is None else [scan.candidates]
            tiers[f"candidates {number}"] = [[entry_of(run, save(run)) for run in coming]]
            tiers[f"switching {number}"] = [[entry_of(run, save(run)) for run in scan.switching]]
    return Manifest(join.spec.identity(), tiers, _facts(join))


def _facts(join: EnrichJoin) -> dict[str, Any]:
    return {
        "step": join.names.step,
        "clock": join.clock,
        "steps": join.steps,
        "shrunk at": join.admission.shrunk_at,
        "latest": join.latest_us,
        "tuple bytes": join.tuple_bytes,
        "looks up": join.looks_up,
        "short at": join.admission.short_at,
        "waited": join.admission.waited_bytes,
        "counts": asdict(join.counts),
        "scans": [_scan_to_json(scan) for scan in join.scans],
    }


def _scan_to_json(scan: Scan) -> dict[str, Any]:
    known: dict[str, Any] = {
        "version": scan.table.version,
        "began": scan.began_us,
        "position": scan.position,
        "cycle": scan.cycle,
        "segments": scan.segments,
        "waiting": scan.waiting,
        "left": [chunk.segments_left for chunk in scan.chunks],
    }
    if isinstance(scan, PaperScan):
        known |= {
            "state": scan.state,
            "rows of": scan.rows_of.tolist(),
            "reserved": scan.reserved_bytes,
        }
    return known


def restore(
    spec: EnrichSpec, manifest: Manifest, run_store: RunStore, table_of: Callable[[str], StagedRows]
) -> EnrichJoin:
    """The join as it was when the manifest was made; `run_store` has its runs, `table_of` its versions."""
    check_restart(manifest.identity, spec.identity())
    since = moved(*(one["columns"]["stream"] for one in (manifest.identity, spec.identity())))
    facts = manifest.facts
    tables = [table_of(saved["version"]) for saved in facts["scans"]]
    join = EnrichJoin(spec, tables[0])
    join.names.memory_manager.run_store = run_store

    def of_stream(layout: Layout) -> Places | None:
        return since if layout is spec.stream else None

    def runs(tag: str, layout: Layout) -> list[list[Run]]:
        return [
            [run_of(entry, layout, join.names.memory_manager, of_stream(layout)) for entry in tier]
            for tier in manifest.tiers.get(tag, ())
        ]

    for side in (*join.cache.sides, join.waiting_room):
        side.tiers = runs(side.tag, side.layout)
    join.names.begin(facts["step"])
    join.clock, join.steps = facts["clock"], facts["steps"]
    join.latest_us, join.tuple_bytes, join.looks_up = facts["latest"], facts["tuple bytes"], facts["looks up"]
    join.admission.shrunk_at, join.admission.short_at = tuple(facts["shrunk at"]), facts["short at"]
    join.admission.waited_bytes = tuple(facts["waited"])
    join.counts = EnrichCounters(**facts["counts"])
    join.scans = [
        _scan(number, saved, table, runs, spec)
        for number, (saved, table) in enumerate(zip(facts["scans"], tables, strict=True))
    ]
    return join


def _scan(
    number: int,
    saved: dict[str, Any],
    table: StagedRows,
    runs: Callable[[str, Layout], Any],
    spec: EnrichSpec,
) -> Scan:
    [waiting] = runs(f"chunks {number}", spec.stream)
    chunks = [WaitingChunk(run, left) for run, left in zip(waiting, saved["left"], strict=True)]
    known = table, saved["began"], saved["position"], saved["cycle"], chunks, saved["waiting"]
    if "state" not in saved:
        return OrderedScan(*known)
    [candidates] = runs(f"candidates {number}", spec.stream.keys_only)
    [switching] = runs(f"switching {number}", spec.table)
    rows_of = np.array(saved["rows of"], np.int64)
    moving = candidates[0] if candidates else None
    return PaperScan(*known, saved["state"], moving, rows_of, switching, saved["reserved"])


def to_bytes(join: EnrichJoin) -> bytes:
    """The whole state as one value."""
    return as_value(lambda save: store(join, save))


def from_bytes(spec: EnrichSpec, value: bytes, table_of: Callable[[str], StagedRows]) -> EnrichJoin:
    """The join that `to_bytes` wrote."""
    header, (manifest, *parts) = decode(SNAPSHOT, value)
    run_store = InMemoryRuns(dict(zip(header["runs"], parts, strict=True)))
    return restore(spec, Manifest.decode(manifest), run_store, table_of)
