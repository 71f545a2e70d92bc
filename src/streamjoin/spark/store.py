"""Every call to Spark's state store: one manifest value and the runs it names, per bucket.

All of it is one MapState, because each state variable costs about 20 ms per task and batch to set
up; the manifest is the entry "manifest". A batch reads the manifest once and writes it once;
beside that there is one call for each run that is loaded, added or dropped. `calls` counts them,
and a test holds them to that.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from streamjoin.errors import StateFormatError
from streamjoin.spark import fast_state

_NAME = StructType([StructField("name", StringType())])
_VALUE = StructType([StructField("value", BinaryType())])
STATE = "state"  # the name of the MapState
MANIFEST = "manifest"


class BucketStore:
    """The state of one bucket; the handle decides which (Spark's implicit key)."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._values = handle.getMapState(STATE, _NAME, _VALUE)
        self.calls: Counter[str] = Counter()

    def manifest(self) -> bytes | None:
        """The manifest of the last committed batch, None for a new bucket."""
        self.calls["manifest"] += 1
        return self._get(MANIFEST)

    def put_manifest(self, value: bytes) -> None:
        self.calls["manifest"] += 1
        fast_state.put(self._values, (MANIFEST,), value)

    def run(self, name: str) -> bytes:
        """The bytes of a run the manifest names."""
        self.calls["run"] += 1
        value = self._get(name)
        if value is None:
            raise StateFormatError(f"run {name} is missing from the state store; restore the checkpoint")
        return value

    def put_run(self, name: str, value: bytes) -> None:
        self.calls["run"] += 1
        fast_state.put(self._values, (name,), value)

    def drop_run(self, name: str) -> None:
        self.calls["run"] += 1
        self._values.removeKey((name,))

    def _get(self, name: str) -> bytes | None:
        value: Any = self._values.getValue((name,))
        return None if value is None else bytes(value[0])
