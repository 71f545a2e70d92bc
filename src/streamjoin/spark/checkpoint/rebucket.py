"""Rebucketing: a checkpoint for another number of buckets, written beside the old one and verified.

    old state ─▶ files ─▶ split by hash range ─▶ files ─▶ a query of one batch ─▶ state store

The state store's own files are made by a seeding query: the same state variable and settings, the same
number of partitions, one group for each new bucket, whose processor puts the bucket's values. Its first
version is the new checkpoint's version of the last committed batch; everything else (offsets, commits,
sources, the query's id) is a copy. So the query goes on at the same offsets with the same batch ids, and
a batch that was planned but not committed runs again as planned.

All joins of a query are cut, or the one that is named. A join that feeds another sends it range punctuations
by bucket; when it is cut, the other forgets those that only some buckets have sent, and all new buckets send
them (`StateComponent.refed`).

The new checkpoint is read back and compared with the old state, join by join, before it gets its name, or
before it takes the old one's place (`in_place`). Checkpoints may be on any file system that Spark writes;
the work is done in a folder of this machine, which a crash may leave behind.
"""

from __future__ import annotations

import errno
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from streamjoin.errors import InvalidJoin, InvariantBroken, LimitExceeded
from streamjoin.spark.checkpoint.cut import TABLES, CutEnrich, CutJoin
from streamjoin.spark.checkpoint.in_place import Switch, check_no_copy, keep_copy
from streamjoin.spark.checkpoint.reader import (
    STATE_STORE,
    Checkpoint,
    StatefulOperator,
    StoredEnrich,
    StoredJoin,
    stored_joins,
)
from streamjoin.spark.checkpoint.schemas import point_schemas_to
from streamjoin.spark.checkpoint.starts import NAME, Starts
from streamjoin.spark.exchange import GUARD, bucket_labels
from streamjoin.spark.files import Files
from streamjoin.spark.state_store import MANIFEST, BucketStore

Say = Callable[[str], None]
Cut = CutJoin | CutEnrich
_FIRST_SNAPSHOT = re.compile(r"^(\.?)1((?:_[0-9a-f-]+)?\.zip(?:\.crc)*)$")


@dataclass(frozen=True)
class Rebucketing:
    """What is asked for: this checkpoint, for so many buckets, as that folder; of one join or of all."""

    checkpoint: Checkpoint
    buckets: int
    target: str
    join: str | None = None

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        path: str | Path,
        buckets: int,
        to: str | Path | None = None,
        join: str | None = None,
        *,
        in_place: bool = False,
    ) -> Rebucketing:
        """Refused where it cannot be done, before anything is read."""
        if buckets < 1:
            raise InvalidJoin(f"a state in {buckets} buckets is none; give 1 or more")
        checkpoint = Checkpoint.at(spark, path)
        if in_place:
            return cls(checkpoint, buckets, checkpoint.folder, join)
        target = str(to or f"{checkpoint.folder}-{buckets}").rstrip("/")
        if checkpoint.files.exists(target):
            raise InvalidJoin(f"{target} is there already; give another folder with --to, or remove it")
        whole = [checkpoint.files.full(one) for one in (checkpoint.folder, target)]
        if whole[1].startswith(f"{whole[0]}/"):
            raise InvalidJoin(f"{target} lies in the old checkpoint; give a folder outside of it with --to")
        return cls(checkpoint, buckets, target, join)

    @property
    def files(self) -> Files:
        return self.checkpoint.files

    def run(self, say: Say) -> str | None:
        """Write the new checkpoint; it has its name only when all of it succeeded.

        In place, returns the name of the copy of the old one.
        """
        if self.target == self.checkpoint.folder:
            return self._in_place(say)
        made = f"{self.target}.partial"
        self._make(made, self.target, say)
        if self.files.exists(f"{made}{TABLES}"):
            self.files.remove(f"{self.target}{TABLES}")
            self.files.rename(f"{made}{TABLES}", f"{self.target}{TABLES}")
        self.files.rename(made, self.target)
        return None

    def _in_place(self, say: Say) -> str:
        """Replace the state of the checkpoint itself; a crash before the switch leaves it as it was."""
        folder = self.checkpoint.folder
        made = f"{folder}.rebucketed"
        check_no_copy(self.files, folder)
        cuts = self._make(made, folder, say)
        beside = (TABLES,) if any(isinstance(one, CutEnrich) for one in cuts.values()) else ()
        kept = keep_copy(self.files, folder, beside, say)
        replaced = [
            f"state/{number}/{partition}"
            for number in cuts
            for partition in self.files.numbers(f"{folder}/state/{number}")
        ]
        replaced += [f"commits/{self.checkpoint.committed}"] if self.checkpoint.state_ids() else []
        replaced += [NAME] if self.files.exists(f"{made}/{NAME}") else []
        Switch(folder, made, kept, self.buckets, tuple(replaced), beside).run(self.files, say)
        return kept

    def _make(self, made: str, name: str, say: Say) -> dict[int, Cut]:
        """The whole new checkpoint, compared with the old one, as the folder `made`, to be used as `name`."""
        beside = self.files.local(made)
        work = Path(f"{beside}.work" if beside else tempfile.mkdtemp(prefix="streamjoin-rebucket-"))
        shutil.rmtree(work, ignore_errors=True)
        for leftover in (made, f"{made}{TABLES}"):
            self.files.remove(leftover)
        work.mkdir(parents=True)
        try:
            cuts = self._cut_and_check(work, made, say)
            point_schemas_to(self.files, made, name)
        except BaseException as error:
            for leftover in (made, f"{made}{TABLES}"):
                self.files.remove(leftover)
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise LimitExceeded(
                    f"the new checkpoint could not be written ({error}); nothing was kept of it. It needs "
                    "room for about four copies of the state: free some, or give --to on another disk"
                ) from error
            raise
        finally:
            shutil.rmtree(work, ignore_errors=True)
        return cuts

    def _cut_and_check(self, work: Path, made: str, say: Say) -> dict[int, Cut]:
        say(f"reading the state of batch {self.checkpoint.committed} from {self.checkpoint.folder}")
        tables = work / "tables"
        cuts = self._chosen(stored_joins(self.checkpoint, work / "old"), tables)
        totals: dict[int, Any] = {}
        seeded: dict[int, Path] = {}
        for number, cut in cuts.items():
            totals[number] = cut.write(work / "new" / str(number), say)
            say(f"{cut.stored.name}: writing {cut.buckets} buckets to a state store")
            seeded[number] = self._seed(cut.stored.operator, cut.buckets, work)
        say("putting the new checkpoint together")
        self._assemble(cuts, seeded, made)
        self._copy_other_tables(cuts, tables)
        if tables.exists():
            self.files.copy(tables.as_uri(), f"{made}{TABLES}")
        say("reading it back and comparing")
        point_schemas_to(self.files, made, made)
        found = stored_joins(Checkpoint.at(self.files.spark, made), work / "again")
        again: dict[int, Any] = {one.operator.number: one for one in found}
        for number, cut in cuts.items():
            wrong = cut.differences(totals[number], again[number])
            if wrong:
                raise InvariantBroken(
                    f"the new state of {cut.stored.name} differs from the old one in {', '.join(wrong)}; "
                    "nothing was kept of it, go on from the old checkpoint and report this"
                )
        return cuts

    def _chosen(self, found: list[StoredJoin | StoredEnrich], tables: Path) -> dict[int, Cut]:
        """What must be cut: the joins that are asked for, and those whose inputs they feed."""
        names = [stored.name for stored in found]
        if self.join is not None and self.join not in names:
            raise InvalidJoin(f"there is no join {self.join!r} here; give one of {', '.join(names)}")
        wanted = {
            stored.name: self.buckets if self.join in (None, stored.name) else stored.buckets
            for stored in found
        }
        changed = {stored.name for stored in found if stored.buckets != wanted[stored.name]}
        if not changed:
            raise InvalidJoin(f"the state is in {self.buckets} buckets already; give another number")
        cuts: dict[int, Cut] = {}
        for stored in found:
            number, buckets = stored.operator.number, wanted[stored.name]
            if isinstance(stored, StoredJoin):
                senders = {i: one.fed_by for i, one in enumerate(stored.spec.inputs)}
                refed = {i: wanted[fed] for i, fed in senders.items() if fed is not None and fed in changed}
                if refed or stored.name in changed:
                    cuts[number] = CutJoin(stored, buckets, refed)
            elif stored.name in changed:
                cuts[number] = CutEnrich(stored, buckets, self._tables(), tables)
        return cuts

    def _copy_other_tables(self, cuts: dict[int, Cut], tables: Path) -> None:
        """The staged tables of joins that are not cut."""
        if self.files.exists(f"{self.checkpoint.folder}{TABLES}"):
            cut = {one.stored.name for one in cuts.values()}
            for one in self._tables().iterdir():
                if one.name not in cut:
                    shutil.copytree(one, tables / one.name)

    def _tables(self) -> Path:
        """The staged tables of this checkpoint; they are always on disks that can be mapped."""
        place = self.files.local(f"{self.checkpoint.folder}{TABLES}")
        if place is None:
            raise InvalidJoin(f"{self.checkpoint.folder}{TABLES} is not on a disk of this machine; mount it")
        return Path(place)

    def _seed(self, operator: StatefulOperator, buckets: int, work: Path) -> Path:
        """The new buckets in a state store of version 1; returns its checkpoint."""
        number = str(operator.number)
        session = self.checkpoint.session()
        session.conf.set("spark.sql.shuffle.partitions", str(operator.partitions))
        session.conf.set(f"{STATE_STORE}rocksdb.changelogCheckpointing.enabled", "false")
        labels, seeded = work / "labels" / number, work / "seeded" / number
        seeds = session.createDataFrame(
            [(label,) for label in (GUARD, *bucket_labels(buckets))], "bucket int"
        )
        seeds.coalesce(1).write.parquet(labels.as_uri())
        query = (
            session.readStream.schema("bucket int")
            .parquet(labels.as_uri())
            .groupBy("bucket")
            .transformWithStateInPandas(Seeding(str(work / "new" / number)), "bucket int", "append", "none")
            .writeStream.format("noop")
            .option("checkpointLocation", seeded.as_uri())
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return seeded

    def _assemble(self, cuts: dict[int, Cut], seeded: dict[int, Path], made: str) -> None:
        """Everything of the old checkpoint but the state of the joins, and that from the seeding queries."""
        files, old = self.files, self.checkpoint.folder
        for name in files.names(old):
            if name != "state":
                files.copy(f"{old}/{name}", f"{made}/{name}")
        for number in files.numbers(f"{old}/state"):
            for name in files.names(f"{old}/state/{number}"):
                if number not in seeded or not name.isdigit():
                    files.copy(f"{old}/state/{number}/{name}", f"{made}/state/{number}/{name}")
        ids = self.checkpoint.state_ids()
        for number, scratch in seeded.items():
            state = scratch / "state" / "0"
            for path in (each for each in state.rglob("*") if each.is_file()):
                place = path.relative_to(state)
                if place.parts[0].isdigit() and not place.name.endswith(".crc"):
                    renamed = _FIRST_SNAPSHOT.sub(rf"\g<1>{self.checkpoint.committed + 1}\g<2>", place.name)
                    files.copy(path.as_uri(), f"{made}/state/{number}/{place.with_name(renamed)}")
            ids |= {str(number): Checkpoint.at(files.spark, scratch.as_uri()).state_ids()["0"]} if ids else {}
        if ids:
            version, text = (files.read(self.checkpoint.commit) or "").split("\n", 1)
            changed = json.dumps({**json.loads(text), "stateUniqueIds": ids})
            files.write(f"{made}/commits/{self.checkpoint.committed}", f"{version}\n{changed}")
        record = Starts(files, old).rebucketed({one.stored.name: one.buckets for one in cuts.values()})
        if record is not None:
            files.write(f"{made}/{NAME}", record)


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
