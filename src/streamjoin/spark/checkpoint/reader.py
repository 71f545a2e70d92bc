"""Checkpoint reader: the last committed batch of a query that is not ours to run, and the state of its joins.

A batch that was planned and not committed runs again, so only the last committed one counts. Parallel tasks
copy the state value by value out of Spark's state store into a folder of files, so that a state larger than
memory can be read: a bucket is opened from those files, memory-mapped.

    folder/<bucket's label>/manifest, folder/<bucket's label>/<run>…

The checkpoint is not changed. A query may be running on it: a batch that ends meanwhile is not seen.
Checkpoints must be on a local disk.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamjoin.enrich.spec import KIND
from streamjoin.errors import InvalidJoin, StateFormatError
from streamjoin.join.operator import StreamJoin
from streamjoin.join.persistence.snapshot import restore
from streamjoin.join.persistence.stored_spec import read_spec
from streamjoin.join.spec import JoinSpec
from streamjoin.spark.exchange import GUARD, bucket_labels
from streamjoin.spark.frame import COMPACTION_FANOUT, RUN_BYTES
from streamjoin.spark.state_store import MANIFEST, STATE
from streamjoin.state.codec import RUN, decode, decode_batch
from streamjoin.state.manifest import Manifest
from streamjoin.state.sorted_runs import CompactionPolicy
from streamjoin.state.stores import Values

STATE_STORE = "spark.sql.streaming.stateStore."
_OURS = (
    "struct<key:struct<bucket:int>,user_map_key:struct<name:string>,user_map_value:struct<value:binary>,"
    "partition_id:int>"
)
_BATCH_BYTES = str(64 << 20)  # what travels to a worker at once: a few of the largest runs


@dataclass(frozen=True)
class StatefulOperator:
    """A stateful operator of a query, from its metadata."""

    number: int
    partitions: int
    variables: tuple[str, ...]


@dataclass(frozen=True)
class Checkpoint:
    """A query's checkpoint folder. `planned`: a batch that was not committed and will run again."""

    folder: Path
    committed: int
    planned: int | None

    @classmethod
    def at(cls, path: str | Path) -> Checkpoint:
        """Refused where there is no checkpoint, or none with a finished batch."""
        folder = Path(str(path).removeprefix("file:")).absolute()
        if not (folder / "metadata").is_file() or not (folder / "offsets").is_dir():
            raise StateFormatError(
                f"{path} is no checkpoint of a streaming query on a local disk (it has no `metadata` and "
                "`offsets`); give the folder that the query has as checkpoint, or a copy of it"
            )
        commits, offsets = (_numbers(folder / name) for name in ("commits", "offsets"))
        if not commits:
            raise StateFormatError(
                f"{path} has no finished batch yet, so there is no state; let the query finish one"
            )
        planned = max(offsets, default=-1)
        return cls(folder, max(commits), planned if planned > max(commits) else None)

    def operators(self) -> list[StatefulOperator]:
        """All stateful operators, by number."""
        return [
            _operator(number, self.folder / "state" / str(number))
            for number in sorted(_numbers(self.folder / "state"))
        ]

    def conf(self) -> dict[str, str]:
        """The settings with which the last committed batch ran, those that must stay."""
        lines = (self.folder / "offsets" / str(self.committed)).read_text().splitlines()
        settings: dict[str, str] = json.loads(lines[1])["conf"]
        return settings

    def state_ids(self) -> dict[str, Any]:
        """The ids of the state's versions by operator, where Spark gives them any (checkpoint format 2)."""
        text = (self.folder / "commits" / str(self.committed)).read_text().split("\n", 1)[1]
        ids: dict[str, Any] = json.loads(text).get("stateUniqueIds") or {}
        return ids

    def session(self, spark: SparkSession) -> SparkSession:
        """A session of its own that reads and writes state as this checkpoint has it."""
        session = spark.newSession()
        for name, value in self.conf().items():
            session.conf.set(name, value)
        session.conf.set(f"{STATE_STORE}checkpointFormatVersion", "2" if self.state_ids() else "1")
        return session


def _numbers(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.glob("*") if path.name.isdigit()]


def metadata_files(operator: Path) -> list[Path]:
    """The files that describe an operator, the newest last."""
    newer = operator / "_metadata" / "v2"
    files = sorted((newer / str(number) for number in _numbers(newer)), key=lambda path: int(path.name))
    return files or [path for path in [operator / "_metadata" / "metadata"] if path.is_file()]


def _operator(number: int, folder: Path) -> StatefulOperator:
    files = metadata_files(folder)
    if not files:
        return StatefulOperator(number, 0, ())
    about = json.loads(files[-1].read_text().splitlines()[1])
    properties = json.loads(about.get("operatorPropertiesJson", "{}") or "{}")
    variables = tuple(each["stateName"] for each in properties.get("stateVariables", ()))
    return StatefulOperator(number, about["stateStoreInfo"][0]["numPartitions"], variables)


@dataclass(frozen=True)
class StoredEnrich:
    """An enrich join in a checkpoint: its identity and the manifests of its buckets."""

    operator: StatefulOperator
    identity: dict[str, Any]
    manifests: dict[int, Manifest]


@dataclass(frozen=True)
class StoredJoin:
    """One join's state, copied to files; `manifests` by bucket, of those that were asked for."""

    operator: StatefulOperator
    folder: Path
    spec: JoinSpec
    guard: Manifest
    labels: tuple[int, ...]
    manifests: dict[int, Manifest]

    def open(self, bucket: int) -> StreamJoin:
        """One bucket with its rows, mapped from the files."""
        manifest = replace(self.manifests[bucket], identity=self.spec.identity())
        folder = self.folder / str(self.labels[bucket])
        runs = Values({name: _mapped(folder / name) for name in manifest.run_names()})
        return restore(self.spec, manifest, runs)


def stored_joins(
    spark: SparkSession, checkpoint: Checkpoint, folder: Path, *, bucket: int | None = None
) -> list[StoredJoin | StoredEnrich]:
    """Every join with state in the checkpoint, copied into the folder; of one bucket where given."""
    found: list[StoredJoin | StoredEnrich] = []
    for operator in checkpoint.operators():
        if STATE in operator.variables:
            stored = _stored_join(spark, checkpoint, operator, folder / str(operator.number), bucket)
            found += [] if stored is None else [stored]
    if not found:
        raise StateFormatError(
            f"{checkpoint.folder} has no state of streamjoin; give the checkpoint of a query with a join"
        )
    return found


def _stored_join(
    spark: SparkSession, checkpoint: Checkpoint, operator: StatefulOperator, folder: Path, bucket: int | None
) -> StoredJoin | StoredEnrich | None:
    _copy(spark, checkpoint, operator, folder, None if bucket is None else GUARD)
    guard_file = folder / str(GUARD) / MANIFEST
    if not guard_file.is_file():
        return None
    guard = Manifest.decode(guard_file.read_bytes())
    labels = tuple(bucket_labels(guard.identity["buckets"]))
    if bucket is not None:
        if bucket >= len(labels):
            raise InvalidJoin(
                f"there is no bucket {bucket}; this join has {len(labels)}, "
                f"give one of 0 to {len(labels) - 1}"
            )
        _copy(spark, checkpoint, operator, folder, labels[bucket])
    manifests = {}
    for each in range(len(labels)) if bucket is None else [bucket]:
        file = folder / str(labels[each]) / MANIFEST
        if not file.is_file():
            raise StateFormatError(
                f"bucket {each} has no state although its join has; restore the checkpoint"
            )
        manifests[each] = Manifest.decode(file.read_bytes())
    if guard.identity.get("kind") == KIND:
        return StoredEnrich(operator, guard.identity, manifests)
    compaction = CompactionPolicy(fanout=COMPACTION_FANOUT, run_bytes=RUN_BYTES)
    spec = read_spec(guard.identity, guard.facts, _run_schemas(folder), compaction)
    return StoredJoin(operator, folder, spec, guard, labels, manifests)


def _run_schemas(folder: Path) -> Iterator[pa.Schema]:
    for path in folder.glob("*/*"):
        if path.name != MANIFEST:
            yield decode_batch(decode(RUN, _mapped(path), check=False)[1][0]).schema


def _mapped(path: Path) -> pa.Buffer:
    try:
        with pa.memory_map(str(path)) as file:
            return file.read_buffer()
    except FileNotFoundError:
        raise StateFormatError(
            f"run {path.name} is missing from the state store; restore the checkpoint"
        ) from None


def _copy(
    spark: SparkSession, checkpoint: Checkpoint, operator: StatefulOperator, folder: Path, label: int | None
) -> None:
    """Every value of a group, or of all, as a file, written by the tasks that read the state store."""
    session = checkpoint.session(spark)
    session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", _BATCH_BYTES)
    values = (
        session.read.format("statestore")
        .option("operatorId", operator.number)
        .option("stateVarName", STATE)
        .option("batchId", checkpoint.committed)
        .load(str(checkpoint.folder))
    )
    if values.schema.simpleString() != _OURS:
        return  # another operator's state of the same name
    chosen = values if label is None else values.where(F.col("key.bucket") == label)
    columns = chosen.select("key.bucket", "user_map_key.name", "user_map_value.value")
    columns.mapInArrow(_Writer(str(folder)), "bucket int").collect()


@dataclass(frozen=True)
class _Writer:
    """Writes values to files, in Spark's workers."""

    folder: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What `mapInArrow` calls for every task."""
        for batch in batches:
            for label, name, value in zip(*batch.columns, strict=True):
                path = Path(self.folder) / str(label.as_py()) / name.as_py()
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(value.as_buffer())
            yield pa.RecordBatch.from_pydict({"bucket": pa.array([], pa.int32())})
