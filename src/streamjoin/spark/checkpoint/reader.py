"""Checkpoint reader: the last committed batch of a query that is not ours to run, and the state of its joins.

A batch that was planned and not committed runs again, so only the last committed one counts. Parallel tasks
copy the state value by value out of Spark's state store into a folder of files, so that a state larger than
memory can be read: a bucket is opened from those files, memory-mapped.

    folder/<bucket's label>/manifest, folder/<bucket's label>/<run>…

The checkpoint is not changed, and may be on any file system that Spark reads. A query may be running on it: a
batch that ends meanwhile is not seen.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamjoin.enrich.spec import KIND
from streamjoin.errors import InvalidJoin, StateFormatError
from streamjoin.join.operator import StreamJoin
from streamjoin.join.persistence.snapshot import restore
from streamjoin.join.persistence.stored_spec import read_spec
from streamjoin.join.spec import JoinSpec
from streamjoin.spark.exchange import GUARD, bucket_labels
from streamjoin.spark.files import Files
from streamjoin.spark.frame import COMPACTION_FANOUT, RUN_BYTES
from streamjoin.spark.state_store import MANIFEST, STATE
from streamjoin.spark.versions import prepare_state_reader
from streamjoin.state.manifest import Manifest
from streamjoin.state.sorted_runs import CompactionPolicy
from streamjoin.state.stores import InMemoryRuns

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

    files: Files
    folder: str
    committed: int
    planned: int | None

    @classmethod
    def at(cls, spark: SparkSession, path: str | Path) -> Checkpoint:
        """Refused where there is no checkpoint, or none with a finished batch."""
        files, folder = Files(spark), str(path).rstrip("/")
        if not files.exists(f"{folder}/metadata") or not files.exists(f"{folder}/offsets"):
            raise StateFormatError(
                f"{path} is no checkpoint of a streaming query (it has no `metadata` and `offsets`); give "
                "the folder that the query has as checkpoint"
            )
        commits, offsets = (files.numbers(f"{folder}/{name}") for name in ("commits", "offsets"))
        if not commits:
            raise StateFormatError(
                f"{path} has no finished batch yet, so there is no state; let the query finish one"
            )
        planned = max(offsets, default=-1)
        return cls(files, folder, max(commits), planned if planned > max(commits) else None)

    def operators(self) -> list[StatefulOperator]:
        """All stateful operators, by number."""
        return [self._operator(number) for number in self.files.numbers(f"{self.folder}/state")]

    def _operator(self, number: int) -> StatefulOperator:
        described = metadata_files(self.files, f"{self.folder}/state/{number}")
        if not described:
            return StatefulOperator(number, 0, ())
        about = json.loads((self.files.read(described[-1]) or "").splitlines()[1])
        properties = json.loads(about.get("operatorPropertiesJson", "{}") or "{}")
        variables = tuple(each["stateName"] for each in properties.get("stateVariables", ()))
        return StatefulOperator(number, about["stateStoreInfo"][0]["numPartitions"], variables)

    def conf(self) -> dict[str, str]:
        """The settings with which the last committed batch ran, those that must stay."""
        lines = (self.files.read(f"{self.folder}/offsets/{self.committed}") or "").splitlines()
        settings: dict[str, str] = json.loads(lines[1])["conf"]
        return settings

    @property
    def commit(self) -> str:
        """The file of the last committed batch."""
        return f"{self.folder}/commits/{self.committed}"

    def state_ids(self) -> dict[str, Any]:
        """The ids of the state's versions by operator, where Spark gives them any (checkpoint format 2)."""
        text = (self.files.read(self.commit) or "").split("\n", 1)[1]
        ids: dict[str, Any] = json.loads(text).get("stateUniqueIds") or {}
        return ids

    def session(self) -> SparkSession:
        """A session of its own that reads and writes state as this checkpoint has it."""
        prepare_state_reader(self.files.spark)
        session = self.files.spark.newSession()
        for name, value in self.conf().items():
            session.conf.set(name, value)
        session.conf.set(f"{STATE_STORE}checkpointFormatVersion", "2" if self.state_ids() else "1")
        return session


def metadata_files(files: Files, operator: str) -> list[str]:
    """The files that describe an operator, the newest last."""
    newer = [f"{operator}/_metadata/v2/{number}" for number in files.numbers(f"{operator}/_metadata/v2")]
    return newer or [path for path in [f"{operator}/_metadata/metadata"] if files.exists(path)]


@dataclass(frozen=True)
class StoredEnrich:
    """An enrich join in a checkpoint: its identity and the manifests of its buckets."""

    operator: StatefulOperator
    folder: Path
    guard: Manifest
    labels: tuple[int, ...]
    manifests: dict[int, Manifest]

    @property
    def identity(self) -> dict[str, Any]:
        return self.guard.identity

    @property
    def name(self) -> str:
        return str(self.identity["name"])

    @property
    def buckets(self) -> int:
        return int(self.identity["buckets"])

    def runs(self, bucket: int) -> InMemoryRuns:
        """The runs of a bucket, mapped from the files."""
        return _runs(self.folder / str(self.labels[bucket]), self.manifests[bucket])


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
        return restore(self.spec, manifest, _runs(self.folder / str(self.labels[bucket]), manifest))

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def buckets(self) -> int:
        return self.spec.buckets


def _runs(folder: Path, manifest: Manifest) -> InMemoryRuns:
    return InMemoryRuns({name: _mapped(folder / name) for name in manifest.run_names()})


def stored_identities(checkpoint: Checkpoint) -> dict[str, dict[str, Any]]:
    """The identity of every join with state in the checkpoint, by name, in the order of the operators."""
    found = {}
    for operator in checkpoint.operators():
        values = _values(checkpoint, operator) if STATE in operator.variables else None
        if values is not None:
            guards = values.where((F.col("bucket") == GUARD) & (F.col("name") == MANIFEST))
            for row in guards.collect():
                guard = Manifest.decode(bytes(row.value))
                found[str(guard.identity.get("name") or guard.facts["name"])] = guard.identity
    return found


def stored_joins(
    checkpoint: Checkpoint, folder: Path, *, bucket: int | None = None
) -> list[StoredJoin | StoredEnrich]:
    """Every join with state in the checkpoint, copied into the folder; of one bucket where given."""
    found: list[StoredJoin | StoredEnrich] = []
    for operator in checkpoint.operators():
        if STATE in operator.variables:
            stored = _stored_join(checkpoint, operator, folder / str(operator.number), bucket)
            found += [] if stored is None else [stored]
    if not found:
        raise StateFormatError(
            f"{checkpoint.folder} has no state of streamjoin; give the checkpoint of a query with a join"
        )
    return found


def _stored_join(
    checkpoint: Checkpoint, operator: StatefulOperator, folder: Path, bucket: int | None
) -> StoredJoin | StoredEnrich | None:
    _copy(checkpoint, operator, folder, None if bucket is None else GUARD)
    guard = _guard(folder)
    if guard is None:
        return None
    labels = tuple(bucket_labels(guard.identity["buckets"]))
    if bucket is not None:
        if bucket >= len(labels):
            raise InvalidJoin(
                f"there is no bucket {bucket}; this join has {len(labels)}, "
                f"give one of 0 to {len(labels) - 1}"
            )
        _copy(checkpoint, operator, folder, labels[bucket])
    manifests = {}
    for each in range(len(labels)) if bucket is None else [bucket]:
        file = folder / str(labels[each]) / MANIFEST
        if not file.is_file():
            raise StateFormatError(
                f"bucket {each} has no state although its join has; restore the checkpoint"
            )
        manifests[each] = Manifest.decode(file.read_bytes())
    if guard.identity.get("kind") == KIND:
        return StoredEnrich(operator, folder, guard, labels, manifests)
    compaction = CompactionPolicy(fanout=COMPACTION_FANOUT, run_bytes=RUN_BYTES)
    spec = read_spec(guard.identity, guard.facts, compaction)
    return StoredJoin(operator, folder, spec, guard, labels, manifests)


def _guard(folder: Path) -> Manifest | None:
    file = folder / str(GUARD) / MANIFEST
    return Manifest.decode(file.read_bytes()) if file.is_file() else None


def _mapped(path: Path) -> pa.Buffer:
    try:
        with pa.memory_map(str(path)) as file:
            return file.read_buffer()
    except FileNotFoundError:
        raise StateFormatError(
            f"run {path.name} is missing from the state store; restore the checkpoint"
        ) from None


def _values(checkpoint: Checkpoint, operator: StatefulOperator) -> DataFrame | None:
    """Every value of the state by bucket and name; None for another operator's state of the same name."""
    session = checkpoint.session()
    session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", _BATCH_BYTES)
    values = (
        session.read.format("statestore")
        .option("operatorId", operator.number)
        .option("stateVarName", STATE)
        .option("batchId", checkpoint.committed)
        .load(checkpoint.folder)
    )
    if values.schema.simpleString() != _OURS:
        return None
    return values.select("key.bucket", "user_map_key.name", "user_map_value.value")


def _copy(checkpoint: Checkpoint, operator: StatefulOperator, folder: Path, label: int | None) -> None:
    """Every value of a group, or of all, as a file, written by the tasks that read the state store."""
    if not str(checkpoint.files.spark.conf.get("spark.master", "")).startswith("local"):
        raise InvalidJoin(
            "the state is copied to this machine, and the tasks of this session run elsewhere; use a local "
            "session that reaches the same file system, such as sj.session()"
        )
    values = _values(checkpoint, operator)
    if values is not None:
        chosen = values if label is None else values.where(F.col("bucket") == label)
        chosen.mapInArrow(_Writer(str(folder)), "bucket int").collect()


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
