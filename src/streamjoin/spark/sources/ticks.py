"""Tick source: a stream that says which version of the table a micro-batch uses, and triggers batches.

Each micro-batch takes at most one tick. An offset names the version, so a batch that is run again uses the
same one, in every bucket. Where rows may wait for several batches (`cycle_batches` above 1) there is a tick
every second, so that the cycle goes on when no new rows come. Under `availableNow` there is one in every
batch, and then as many more as a row may wait, counted from the last batch in which another source moved; so
such a query ends, and nothing waits when it does. The query's own log of offsets says which sources moved.
Before Spark 4.2 no source is told of `availableNow`, and there is one tick. Else there is a tick only for
a new version.

Options: `folder` and `table`, the place of the staged versions; `cycle_batches`; `checkpoint`, where the log
is; `settling`, how many batches a row may wait after its own, over all joins it passes. A version is removed
when a newer one has been in use for as many ticks as a cycle has batches: no tuple can wait for it any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from streamjoin.enrich.segments import VersionStore
from streamjoin.errors import BadInput
from streamjoin.spark.versions import (
    LimitedReader,
    ReadAllAvailable,
    ReadLimit,
    stream_reader,
)

TICK = "streamjoin_tick"
_SECONDS = 1.0
_START: dict[str, Any] = {"tick": 0, "version": "", "old": [], "moved": 0}
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
        log = OffsetLog(Path(self.options["checkpoint"]) / "offsets")
        settling = int(self.options["settling"])
        return stream_reader(TickReader(store, int(self.options["cycle_batches"]), settling, log))


@dataclass(frozen=True)
class OffsetLog:
    """The log of a query's offsets: a file a batch, with a line of metadata and then one for each source."""

    folder: Path

    def sources_moved(self) -> bool:
        """Whether the last batch moved any source but ticks, or changed the version."""
        numbers = sorted(int(file.name) for file in self.folder.glob("[0-9]*") if file.name.isdigit())
        if not numbers:
            raise BadInput(
                f"the query writes no checkpoint to {self.folder.parent}, so it cannot be seen when its rows "
                "are all answered; give dataframe(checkpoint=…) the checkpointLocation of the query"
            )
        last = [self._others(number) for number in numbers[-2:]]
        return len(last) == 1 or last[0] != last[1]

    def _others(self, number: int) -> list[str]:
        lines = (self.folder / str(number)).read_text().splitlines()[2:]
        return [_without_count(line) for line in lines]


def _without_count(line: str) -> str:
    """An offset as the log has it; of a tick only the version."""
    try:
        offset = json.loads(line)
    except ValueError:
        return line
    is_tick = isinstance(offset, dict) and offset.keys() == _START.keys()
    return str(offset["version"]) if is_tick else line


class TickReader(LimitedReader):
    """Offsets are `tick`, the `version` it brings, `old` versions, each with the tick it was last of, and the
    tick in which other sources last `moved`.
    """

    def __init__(self, store: VersionStore, cycle_batches: int, settling: int, log: OffsetLog) -> None:
        self._store, self._cycle, self._settling, self._log = store, cycle_batches, settling, log
        self._ends = False  # the query ends when no source has more
        self._is_first = True
        self._last = monotonic() - _SECONDS

    def initialOffset(self) -> dict[str, Any]:
        return _START

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._ends = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        ids = self._store.versions()
        if not ids:
            raise BadInput(
                f"table {self._store.table!r}: no staged version is in {self._store.folder}; restore the "
                "folder, or begin with a new checkpoint"
            )
        version, moved = ids[-1], self._moved(start)
        if version == start["version"] and not self._due(start["tick"] - moved):
            return start
        tick = start["tick"] + 1
        old = [[one, last] for one, last in start["old"] if one != version]
        if start["version"] == "":  # a new query, or one that goes on where Spark does not say from where
            tick = int(time()) if self._cycle > 1 else tick  # so that it differs from that of a run before
            old, moved = [[one, tick - 1] for one in ids[:-1]], tick
        elif start["version"] != version:
            old.append([start["version"], start["tick"]])
        return {"tick": tick, "version": version, "old": old[-16:], "moved": moved}

    def _moved(self, start: dict[str, Any]) -> int:
        """The tick in which rows last came, as far as it matters; a query that is begun again may have some
        that wait.
        """
        if not self._ends or self._cycle == 1:
            return 0
        moved = self._is_first or self._log.sources_moved()
        self._is_first = False
        return int(start["tick"] if moved else start["moved"])

    def _due(self, since: int) -> bool:
        """Whether the cycle needs another tick, so many after rows last came."""
        if self._ends:
            return self._cycle > 1 and since < self._settling
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
