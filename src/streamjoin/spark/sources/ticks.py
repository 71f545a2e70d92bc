"""Tick source: a stream that says which version of the table a micro-batch uses, and triggers batches.

Each micro-batch takes at most one tick. An offset names the version, so a batch that is run again uses the
same one, in every bucket. Where rows may wait for several batches (`cycle_batches` above 1) there is a tick
every second, so that the cycle goes on when no new rows come; under `availableNow` there are as many as a
cycle has batches, then no more, so that such a query ends. Else there is one only for a new version.

Options: `folder` and `table`, the place of the staged versions; `cycle_batches`. A version is removed when a
newer one has been in use for as many ticks as a cycle has batches: no tuple can wait for it any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from streamjoin.enrich.segments import VersionStore
from streamjoin.errors import BadInput

TICK = "streamjoin_tick"
_SECONDS = 1.0
_ROW = pa.schema([pa.field("version", pa.string())])


@dataclass(frozen=True)
class _Tick(InputPartition):
    version: str


class TickSource(DataSource):
    """One row a micro-batch at most: the version to use."""

    @classmethod
    def name(cls) -> str:
        return TICK

    def schema(self) -> str:
        return "version string"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        store = VersionStore(Path(self.options["folder"]), self.options["table"])
        return TickReader(store, int(self.options["cycle_batches"]))


class TickReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are `tick`, the `version` it brings, and `old` versions, each with the tick it was last of."""

    def __init__(self, store: VersionStore, cycle_batches: int) -> None:
        self._store, self._cycle = store, cycle_batches
        self._ticks_left: int | None = None  # None: there is always another
        self._last = monotonic() - _SECONDS

    def initialOffset(self) -> dict[str, Any]:
        return {"tick": 0, "version": "", "old": []}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._ticks_left = self._cycle if self._cycle > 1 else 0

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        ids = self._store.versions()
        if not ids:
            raise BadInput(
                f"table {self._store.table!r}: no staged version is in {self._store.folder}; restore the "
                "folder, or begin with a new checkpoint"
            )
        version = ids[-1]
        if version == start["version"] and not self._due():
            return start
        old = [[one, last] for one, last in start["old"] if one != version]
        if start["version"] not in ("", version):
            old.append([start["version"], start["tick"]])
        return {"tick": start["tick"] + 1, "version": version, "old": old[-16:]}

    def _due(self) -> bool:
        """Whether the cycle needs another tick."""
        if self._ticks_left is not None:
            self._ticks_left -= 1
            return self._ticks_left >= 0
        now = monotonic()
        if self._cycle == 1 or now - self._last < _SECONDS:
            return False
        self._last = now
        return True

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [_Tick(end["version"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        version = partition.version  # type: ignore[attr-defined]
        yield pa.RecordBatch.from_arrays([pa.array([version])], schema=_ROW)

    def commit(self, end: dict[str, Any]) -> None:
        """Remove versions that no tuple can wait for, when a batch is committed."""
        over = end["tick"] - (self._cycle if self._cycle > 1 else 0)
        for version, last in end["old"]:
            if last < over:
                self._store.remove(version)
