"""Rebucketing: a checkpoint for another number of buckets, written beside the old one and verified.

    old state ─▶ files ─▶ split by hash range ─▶ files ─▶ a query of one batch ─▶ state store

The state store's own files are made by a seeding query: the same state variable and settings, the same
number of partitions, one group for each new bucket, whose processor puts the bucket's values. Its first
version is the new checkpoint's version of the last committed batch; everything else (offsets, commits,
sources, the query's id) is a copy. So the query goes on at the same offsets with the same batch ids, and
a batch that was planned but not committed runs again as planned. The old checkpoint stays as it was:
go on from one of them only.

The new checkpoint is read back and compared with the old state, input by input, before it gets its name.
All work is done in `<name>.partial`, which a crash may leave behind.
"""

from __future__ import annotations

import errno
import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from streamjoin.errors import InvalidJoin, InvariantBroken, LimitExceeded
from streamjoin.join.operator import StreamJoin
from streamjoin.join.persistence.rebucket import Totals, rebucketed
from streamjoin.join.persistence.snapshot import store
from streamjoin.spark.checkpoint.reader import (
    STATE_STORE,
    Checkpoint,
    StoredEnrich,
    StoredJoin,
    metadata_files,
    stored_joins,
)
from streamjoin.spark.exchange import GUARD, bucket_labels
from streamjoin.spark.state_store import MANIFEST, BucketStore
from streamjoin.state.manifest import Manifest
from streamjoin.state.run import Run
from streamjoin.state.stores import encoded

Say = Callable[[str], None]
_MADE = "checkpoint"  # the new one, in the working folder
_FIRST_SNAPSHOT = re.compile(r"^(\.?)1((?:_[0-9a-f-]+)?\.zip(?:\.crc)*)$")


@dataclass(frozen=True)
class Rebucketing:
    """What is asked for: this checkpoint, for so many buckets, as that folder; of one join or of all."""

    checkpoint: Checkpoint
    buckets: int
    target: Path
    join: str | None = None

    @classmethod
    def of(
        cls, path: str | Path, buckets: int, to: str | Path | None = None, join: str | None = None
    ) -> Rebucketing:
        """Refused where it cannot be done, before anything is read."""
        if buckets < 1:
            raise InvalidJoin(f"a state in {buckets} buckets is none; give 1 or more")
        checkpoint = Checkpoint.at(path)
        target = Path(to or f"{checkpoint.folder}-{buckets}").absolute()
        if target.exists():
            raise InvalidJoin(f"{target} is there already; give another folder with --to, or remove it")
        if checkpoint.folder in target.parents:
            raise InvalidJoin(f"{target} lies in the old checkpoint; give a folder outside of it with --to")
        return cls(checkpoint, buckets, target, join)

    @property
    def version(self) -> int:
        """The version of the state after the last committed batch."""
        return self.checkpoint.committed + 1

    def run(self, spark: SparkSession, say: Say) -> None:
        """Read, split, write, verify; the target exists only when all of it succeeded."""
        partial = self.target.with_name(f"{self.target.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            self._make(spark, partial, say)
            (partial / _MADE).rename(self.target)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise LimitExceeded(
                f"the new checkpoint could not be written ({error}); nothing was kept of it. It needs room "
                "for about four copies of the state: free some, or give --to on another disk"
            ) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _make(self, spark: SparkSession, work: Path, say: Say) -> None:
        """The whole new checkpoint in the working folder, compared with the old one."""
        say(f"reading the state of batch {self.checkpoint.committed} from {self.checkpoint.folder}")
        totals, seeded = {}, {}
        for stored in self._chosen(stored_joins(spark, self.checkpoint, work / "old")):
            number = stored.operator.number
            totals[number] = self._cut(stored, work / "new" / str(number), say)
            seeded[number] = self._seed(spark, stored, work, say)
        say(f"putting the new checkpoint together for {self.target}")
        made = work / _MADE
        self._assemble(seeded, made)
        say("reading it back and comparing")
        _point_schemas_to(made, made)
        self._check(spark, made, totals, work / "again")
        _point_schemas_to(made, self.target)

    def _chosen(self, found: list[StoredJoin | StoredEnrich]) -> list[StoredJoin]:
        joins = [stored for stored in found if not isinstance(stored, StoredEnrich)]
        names = [stored.spec.name for stored in joins]
        staged = [str(one.identity["name"]) for one in found if isinstance(one, StoredEnrich)]
        if self.join in staged or (staged and self.join is None):
            raise InvalidJoin(
                f"join {', '.join(staged)} has a table, staged for its number of buckets, so that stays; "
                + (f"rebucket the others with --join ({', '.join(names)}), or " if names else "")
                + "begin with a new checkpoint"
            )
        if self.join is not None and self.join not in names:
            raise InvalidJoin(f"there is no join {self.join!r} here; give one of {', '.join(names)}")
        asked = [stored for stored in joins if self.join in (None, stored.spec.name)]
        chosen = [stored for stored in asked if stored.spec.buckets != self.buckets]
        if not chosen:
            raise InvalidJoin(f"the state is in {self.buckets} buckets already; give another number")
        feeding = [stored.spec.name for stored in chosen if stored.spec.feeds_join]
        if feeding:
            others = ", ".join(name for name in names if name not in feeding)
            raise InvalidJoin(
                f"join {', '.join(feeding)} feeds another join, which counts punctuations by bucket, so "
                f"their number stays; rebucket the others with --join ({others}), or begin a new checkpoint"
            )
        return chosen

    def _cut(self, stored: StoredJoin, folder: Path, say: Say) -> Totals:
        """New buckets as files; returns the totals of the old ones."""
        totals, counted = Totals(stored.spec), set()

        def open_bucket(bucket: int) -> StreamJoin:
            join = stored.open(bucket)
            if bucket not in counted:
                counted.add(bucket)
                totals.add(stored.manifests[bucket], join)
            return join

        manifests = [stored.manifests[bucket] for bucket in range(len(stored.labels))]
        labels = bucket_labels(self.buckets)
        new = rebucketed(stored.spec, manifests, open_bucket, self.buckets)
        for bucket, join in enumerate(new):
            say(f"{stored.spec.name}: bucket {bucket + 1} of {self.buckets}, {join.held().rows:,} tuples")
            here = folder / str(labels[bucket])
            here.mkdir(parents=True)
            manifest = _store_in(here, join)
            _write_manifest(here, self._renumbered(stored, manifest))
        guard = folder / str(GUARD)
        guard.mkdir()
        _write_manifest(guard, self._renumbered(stored, stored.guard))
        return totals

    def _renumbered(self, stored: StoredJoin, manifest: Manifest) -> Manifest:
        return Manifest({**stored.guard.identity, "buckets": self.buckets}, manifest.tiers, manifest.facts)

    def _seed(self, spark: SparkSession, stored: StoredJoin, work: Path, say: Say) -> Path:
        """The new buckets in a state store of version 1; returns its checkpoint."""
        number = str(stored.operator.number)
        say(f"{stored.spec.name}: writing {self.buckets} buckets to a state store")
        session = self.checkpoint.session(spark)
        session.conf.set("spark.sql.shuffle.partitions", str(stored.operator.partitions))
        session.conf.set(f"{STATE_STORE}rocksdb.changelogCheckpointing.enabled", "false")
        labels = work / "labels" / number
        seeds = session.createDataFrame(
            [(label,) for label in (GUARD, *bucket_labels(self.buckets))], "bucket int"
        )
        seeds.coalesce(1).write.parquet(str(labels))
        seeded = work / "seeded" / number
        query = (
            session.readStream.schema("bucket int")
            .parquet(str(labels))
            .groupBy("bucket")
            .transformWithStateInPandas(Seeding(str(work / "new" / number)), "bucket int", "append", "none")
            .writeStream.format("noop")
            .option("checkpointLocation", str(seeded))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return seeded

    def _assemble(self, seeded: dict[int, Path], made: Path) -> None:
        """Everything of the old checkpoint but the state of the joins, and that from the seeding queries."""
        states = {str(self.checkpoint.folder / "state" / str(number)) for number in seeded}

        def left_out(folder: str, names: list[str]) -> list[str]:
            return [name for name in names if name.isdigit()] if folder in states else []

        shutil.copytree(self.checkpoint.folder, made, ignore=left_out)
        ids = self.checkpoint.state_ids()
        for number, scratch in seeded.items():
            state = scratch / "state" / "0"
            for path in (each for each in state.rglob("*") if each.is_file()):
                place = path.relative_to(state)
                if place.parts[0].isdigit():
                    renamed = _FIRST_SNAPSHOT.sub(rf"\g<1>{self.version}\g<2>", place.name)
                    there = made / "state" / str(number) / place.with_name(renamed)
                    there.parent.mkdir(parents=True, exist_ok=True)
                    shutil.move(path, there)
            ids |= {str(number): Checkpoint.at(scratch).state_ids()["0"]} if ids else {}
        if ids:
            commit = made / "commits" / str(self.checkpoint.committed)
            version, text = commit.read_text().split("\n", 1)
            _rewrite(commit, f"{version}\n{json.dumps({**json.loads(text), 'stateUniqueIds': ids})}")

    def _check(self, spark: SparkSession, made: Path, totals: dict[int, Totals], folder: Path) -> None:
        """Read what was written, and compare."""
        found = stored_joins(spark, Checkpoint.at(made), folder)
        again = {one.operator.number: one for one in found if isinstance(one, StoredJoin)}
        for number, before in totals.items():
            stored = again[number]
            after = Totals(stored.spec)
            for bucket, manifest in stored.manifests.items():
                after.add(manifest, stored.open(bucket))
            wrong = before.differences(after)
            if wrong or stored.spec.buckets != self.buckets:
                raise InvariantBroken(
                    f"the new state of {stored.spec.name} differs from the old one in {', '.join(wrong)}; "
                    "nothing was kept of it, go on from the old checkpoint and report this"
                )


class Seeding(StatefulProcessor):
    """Puts the values of each group, which lie as files in a folder of its label."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.store = BucketStore(handle)

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        """One bucket; nothing comes out."""
        for _ in rows:  # Spark requires a group's input to be read to its end
            pass
        for path in sorted((Path(self.folder) / str(key[0])).iterdir()):
            if path.name == MANIFEST:
                self.store.put_manifest(path.read_bytes())
            else:
                self.store.put_run(path.name, path.read_bytes())
        return iter(())

    def close(self) -> None:
        """Nothing to release."""


def _store_in(folder: Path, join: StreamJoin) -> Manifest:
    """Runs as files; returns the manifest that names them."""

    def save(run: Run) -> str:
        name, value = encoded(run)
        (folder / name).write_bytes(value)
        return name

    return store(join, save)


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    (folder / MANIFEST).write_bytes(manifest.encode())


def _point_schemas_to(checkpoint: Path, name: Path) -> None:
    """An operator's metadata names files of state schemas by their full path: put in the new folder's."""
    for operator in (checkpoint / "state").iterdir():
        schemas = f"/state/{operator.name}/_stateSchema/"
        for path in metadata_files(operator):
            version, text = path.read_text().split("\n", 1)
            about = json.loads(text)
            for each in about["stateStoreInfo"]:
                if "stateSchemaFilePaths" in each:
                    each["stateSchemaFilePaths"] = [
                        f"file:{name}{schemas}{old.rpartition(schemas)[2]}"
                        for old in each["stateSchemaFilePaths"]
                    ]
            _rewrite(path, f"{version}\n{json.dumps(about)}")


def _rewrite(path: Path, text: str) -> None:
    """Replace the content; remove the checksum that Hadoop keeps beside the file."""
    path.write_text(text)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
