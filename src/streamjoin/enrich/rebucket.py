"""Rebucketing an enrichment: its state, and its staged table, for another number of hash buckets.

A bucket is a range of the hash space. The staged table is sorted by hash, so a version for other buckets is
cut from the old one, under the same id: state and ticks name versions by it. Tuples that wait for a segment
of the newest version wait for all segments of their new bucket, from its beginning; those that were answered
are left out. The waiting room is cut by hash, counters go to the first new bucket, and the cache begins
empty: what is cached changes no result.

Not rebucketed: scans as in the papers, where a waiting tuple has met some segments and not others; and
tuples that wait for a version that is not the newest any more, because it may be removed before they have
seen all of it.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin.columnar.batch import Batch, Layout, concat
from streamjoin.columnar.keys import checksum
from streamjoin.enrich.operator import EnrichJoin
from streamjoin.enrich.scan import OrderedScan
from streamjoin.enrich.segments import Segment, StagedBucket, StagedVersion, write_segments
from streamjoin.enrich.snapshot import restore
from streamjoin.enrich.spec import EnrichCounters, EnrichSpec
from streamjoin.errors import InvalidJoin
from streamjoin.join.persistence.rebucket import hash_ranges
from streamjoin.join.wire import bucket_bounds
from streamjoin.state.component import HashRange
from streamjoin.state.manifest import Manifest
from streamjoin.state.stores import InMemoryRuns

_PLENTY = 1 << 60


def declared(spec: EnrichSpec, table: str) -> dict[str, Any]:
    """What a reader of the state needs beside its identity, as plain JSON."""
    schemas = {"stream": spec.stream.schema, "rows": spec.table.schema}
    return {
        "name": spec.name,
        "table": table,
        "columns": spec.stream_columns,
        "table columns": spec.table_columns,
        "time": spec.time,
        **{name: schema.serialize().to_pybytes().hex() for name, schema in schemas.items()},
    }


def read_spec(identity: dict[str, Any], facts: dict[str, Any]) -> EnrichSpec:
    """A specification with which a stored state can be restored, not joined with."""
    return EnrichSpec(
        _layout(facts["stream"]),
        _layout(facts["rows"]),
        pa.schema([]),
        _PLENTY,
        preserves=identity["how"] == "left",
        wait_us=0 if identity["waiting room"] else None,
        stream_columns=tuple(facts["columns"]),
        table_columns=tuple(facts["table columns"]),
        time=facts["time"],
        name=identity["name"],
        buckets=identity["buckets"],
        hash=identity["hash"],
    )


def _layout(schema: str) -> Layout:
    found = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(schema)))
    types: dict[str, list[pa.DataType]] = {"k": [], "p": []}
    for field in found:
        if field.name[0] in types:
            types[field.name[0]].append(field.type)
    return Layout(tuple(types["k"]), "t" in found.names, tuple(types["p"]))


def cut_version(version: StagedVersion, buckets: int, folder: Path, segment_bytes: int) -> StagedVersion:
    """A staged version for another number of buckets, in a folder of its own; of one segment at a time."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    bounds = bucket_bounds(buckets)
    made: list[Segment] = []
    for number, segment in enumerate(version.segments):
        rows = StagedBucket(version, (segment,)).read(0)
        cuts = [0, *np.searchsorted(rows.hash, bounds).tolist(), len(rows)]
        for bucket, (start, stop) in enumerate(pairwise(cuts)):
            if stop > start:
                part, stem = rows.slice(start, stop - start), f"{number:05d}-{bucket:05d}"
                made += write_segments(part, bucket, folder, stem, segment_bytes)
    ordered = sorted(made, key=lambda one: (one.bucket, one.first))
    cut = replace(
        version, folder=folder, form=replace(version.form, buckets=buckets), segments=tuple(ordered)
    )
    cut.save()
    return cut


@dataclass(frozen=True)
class EnrichBuckets:
    """The stored buckets of an enrichment; `runs` gives the runs of each, `versions` the staged table."""

    spec: EnrichSpec
    manifests: Sequence[Manifest]
    runs: Callable[[int], InMemoryRuns]
    versions: Callable[[str], StagedVersion]

    def open(self, bucket: int) -> EnrichJoin:
        """One bucket; refused where its waiting tuples cannot be cut."""
        manifest = self.manifests[bucket]
        manifest = replace(manifest, identity=self.spec.identity())
        if any("state" in scan for scan in manifest.facts["scans"]):
            raise InvalidJoin(
                f"{self.spec.name} scans its table as in a paper (operator=), and its rows wait for segments "
                "of their bucket; its number of buckets stays, begin with a new checkpoint"
            )
        join = restore(
            self.spec, manifest, self.runs(bucket), lambda version: self.versions(version).bucket(bucket)
        )
        old = [scan.table.version for scan in join.scans[:-1]]
        if old:
            raise InvalidJoin(
                f"rows of {self.spec.name} wait for version {old[0]} of the table, which is not the newest; "
                "let the query run until they are answered, then rebucket it"
            )
        return join

    def into(self, buckets: int, cut: Callable[[str], StagedVersion]) -> Iterator[EnrichJoin]:
        """The joins of the new buckets, in order; `cut` gives a version of the table for these."""
        opened = [self.open(bucket) for bucket in range(len(self.manifests))]
        waiting = concat(self.spec.stream, [rows for one in opened for rows in _unanswered(one)]).sorted()
        room = concat(self.spec.stream, [one.waiting_room.live() for one in opened]).sorted()
        target = replace(self.spec, buckets=buckets)
        table = cut(opened[0].newest.table.version)
        for number, hashes in enumerate(hash_ranges(buckets)):
            join = EnrichJoin(target, table.bucket(number))
            _take_over(join, opened)
            if hashes.of_first_bucket:
                join.counts = _summed(opened)
            join.names.begin(max(one.names.step for one in opened) + 1)
            share = _share(waiting, hashes)
            if len(share):
                join.newest.add(join.new_run("waiting", share))
            join.waiting_room.append(_share(room, hashes))
            yield join

    def totals(self) -> dict[str, Any]:
        """What must be the same before and after: tuples as bags, counters, the watermark."""
        opened = [self.open(bucket) for bucket in range(len(self.manifests))]
        rows = {
            "waiting rows": [rows for one in opened for rows in _unanswered(one)],
            "waiting room": [one.waiting_room.live() for one in opened],
        }
        bags = {what: concat(self.spec.stream, found) for what, found in rows.items()}
        return {
            **{what: checksum(list(bag.data.columns)) for what, bag in bags.items()},
            "counters": astuple(_summed(opened)),
            "watermark": max((one.latest_us for one in opened if one.latest_us is not None), default=None),
        }


def _unanswered(join: EnrichJoin) -> list[Batch]:
    return [rows for scan in join.scans if isinstance(scan, OrderedScan) for rows in scan.unanswered()]


def _share(rows: Batch, hashes: HashRange) -> Batch:
    here = hashes.slice_of(rows.hash)
    return rows.slice(here.start, here.stop - here.start)


def _summed(joins: Sequence[EnrichJoin]) -> EnrichCounters:
    names = [field.name for field in fields(EnrichCounters)]
    total: Counter[str] = Counter()
    for join in joins:
        total.update({name: getattr(join.counts, name) for name in names})
    return EnrichCounters(**{name: total[name] for name in names})


def _take_over(join: EnrichJoin, old: Sequence[EnrichJoin]) -> None:
    """What every bucket has alike, or about alike."""
    join.steps = max(one.steps for one in old)
    times = [one.latest_us for one in old if one.latest_us is not None]
    join.latest_us = max(times, default=None)
    join.newest.began_us = old[0].newest.began_us
    join.tuple_bytes = max(one.tuple_bytes for one in old)
