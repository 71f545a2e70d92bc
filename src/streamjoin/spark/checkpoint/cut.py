"""Cutting: the stored buckets of a join as files, for another number of buckets.

A join of streams is cut by its components (`join.persistence.rebucket`), an enrichment with its staged table
(`enrich.rebucket`). Both become folders of values, one for each group that the state store will have:

    folder/<bucket's label>/manifest, folder/<bucket's label>/<run>…, folder/<label of the guard>/manifest
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from streamjoin.enrich.rebucket import EnrichBuckets, cut_version, read_spec
from streamjoin.enrich.segments import SEGMENT_BYTES, VersionStore
from streamjoin.enrich.snapshot import store as store_enrich
from streamjoin.errors import InvalidJoin
from streamjoin.join.operator import StreamJoin
from streamjoin.join.persistence.rebucket import Senders, Totals, rebucketed
from streamjoin.join.persistence.snapshot import store
from streamjoin.spark.checkpoint.reader import StoredEnrich, StoredJoin
from streamjoin.spark.exchange import GUARD, bucket_labels
from streamjoin.spark.state_store import MANIFEST
from streamjoin.state.manifest import Manifest
from streamjoin.state.run import Run
from streamjoin.state.stores import encoded

Say = Callable[[str], None]
TABLES = ".tables"  # what the name of the folder of staged tables adds to its checkpoint's


@dataclass(frozen=True)
class CutJoin:
    """A join of streams, for so many buckets; `refed` inputs are fed by joins that are cut too."""

    stored: StoredJoin
    buckets: int
    refed: Senders = field(default_factory=dict)

    def write(self, folder: Path, say: Say) -> Totals:
        """New buckets as files; returns the totals of the old ones."""
        stored, counted = self.stored, set()
        totals = Totals(stored.spec, self.refed)

        def open_bucket(bucket: int) -> StreamJoin:
            join = stored.open(bucket)
            if bucket not in counted:
                counted.add(bucket)
                totals.add(stored.manifests[bucket], join)
            return join

        manifests = [stored.manifests[bucket] for bucket in range(len(stored.labels))]
        labels = bucket_labels(self.buckets)
        new = rebucketed(stored.spec, manifests, open_bucket, self.buckets, self.refed)
        for bucket, join in enumerate(new):
            say(f"{stored.name}: bucket {bucket + 1} of {self.buckets}, {join.state_size().rows:,} tuples")
            here = folder / str(labels[bucket])
            manifest = store(join, saving(here))
            write_manifest(here, self._renumbered(manifest))
        write_manifest(folder / str(GUARD), self._renumbered(self._guard()))
        return totals

    def _renumbered(self, manifest: Manifest) -> Manifest:
        return replace(manifest, identity={**self.stored.guard.identity, "buckets": self.buckets})

    def _guard(self) -> Manifest:
        facts = self.stored.guard.facts
        inputs = [
            {**one, "partitions": self.refed.get(i, one["partitions"])}
            for i, one in enumerate(facts["inputs"])
        ]
        return replace(self.stored.guard, facts={**facts, "inputs": inputs})

    def differences(self, before: Totals, again: StoredJoin) -> list[str]:
        """What is not the same in the state that was read back."""
        after = Totals(again.spec, self.refed)
        for bucket, manifest in again.manifests.items():
            after.add(manifest, again.open(bucket))
        return [*before.differences(after), *([] if again.buckets == self.buckets else ["buckets"])]


@dataclass(frozen=True)
class CutEnrich:
    """An enrichment, for so many buckets; `tables` has its staged versions, `cut_tables` gets new ones."""

    stored: StoredEnrich
    buckets: int
    tables: Path
    cut_tables: Path

    def write(self, folder: Path, say: Say) -> dict[str, Any]:
        """New buckets as files and the staged table for them; returns the totals of the old ones."""
        store = self._versions(self.tables)
        versions = store.versions()
        if not versions:
            raise InvalidJoin(
                f"the staged table of {self.stored.name} is not in {store.folder}; restore the folder"
            )
        there = self._versions(self.cut_tables)
        there.folder.mkdir(parents=True)
        lock = store.folder / ".lock"  # it has the last ordinal that was given
        if lock.exists():
            shutil.copy(lock, there.folder)
        for version in versions:
            say(f"{self.stored.name}: cutting version {version} of its table")
            old_version = store.open(version)
            largest = max(1, min(SEGMENT_BYTES, old_version.largest_segment))
            cut_version(old_version, self.buckets, there.folder / version, largest)
        old = self._buckets(self.stored, store)
        labels = bucket_labels(self.buckets)
        for bucket, join in enumerate(old.into(self.buckets, there.open)):
            say(f"{self.stored.name}: bucket {bucket + 1} of {self.buckets}, {join.waiting:,} rows wait")
            here = folder / str(labels[bucket])
            write_manifest(here, self._renumbered(store_enrich(join, saving(here))))
        write_manifest(folder / str(GUARD), self._renumbered(self.stored.guard))
        return old.totals()

    def differences(self, before: Mapping[str, Any], again: StoredEnrich) -> list[str]:
        """What is not the same in the state that was read back."""
        after = self._buckets(again, self._versions(self.cut_tables)).totals()
        return sorted(what for what in before if before[what] != after[what])

    def _renumbered(self, manifest: Manifest) -> Manifest:
        return replace(manifest, identity={**self.stored.identity, "buckets": self.buckets})

    def _versions(self, tables: Path) -> VersionStore:
        table = str(self.stored.guard.facts["table"])
        return VersionStore(tables / self.stored.name / table, table)

    def _buckets(self, stored: StoredEnrich, store: VersionStore) -> EnrichBuckets:
        spec = read_spec(stored.identity, stored.guard.facts)
        manifests = [stored.manifests[bucket] for bucket in range(len(stored.labels))]
        return EnrichBuckets(spec, manifests, stored.runs, store.open)


def saving(folder: Path) -> Callable[[Run], str]:
    """Stores runs as files in a folder."""
    folder.mkdir(parents=True)

    def save(run: Run) -> str:
        name, value = encoded(run)
        (folder / name).write_bytes(value)
        return name

    return save


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """The manifest of a group, beside its runs."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).write_bytes(manifest.encode())
