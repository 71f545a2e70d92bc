"""Every call to Spark's state store: one manifest value and the runs it names, per bucket.

All of it is one MapState, because each state variable costs about 20 ms per task and batch to set
up; the manifest is the entry "manifest". A batch reads the manifest once and writes it once;
beside that there is one call for each run that is loaded, added or dropped. `calls` counts them,
and a test holds them to that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from streamjoin.columnar.batch import Batch, Layout
from streamjoin.errors import StateFormatError
from streamjoin.spark import fast_put as fast_state
from streamjoin.state.codec import decode_run
from streamjoin.state.manifest import Manifest
from streamjoin.state.run import Run
from streamjoin.state.stores import RunFiles, encoded

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


@dataclass
class BucketRunStore:
    """Runs of one bucket and batch: in the state store, and as files that all workers map."""

    store: BucketStore
    files: RunFiles
    saved: set[str] = field(default_factory=set)  # in this batch

    def save(self, run: Run) -> str:
        name, value = encoded(run)
        self.store.put_run(name, value)
        self.saved.add(name)
        self.files.put(name, value)
        mapped = self.files.get(name)
        if mapped is not None:  # from now on the run is a file that all workers share
            run.held = decode_run(mapped, run.layout, check=False)
        return name

    def saved_as(self, run: Run) -> str:
        """The name under which a run is stored; it is saved now if it never was."""
        if run.stored_as is None:
            run.stored_as = self.save(run)
        return run.stored_as

    def load(self, name: str, layout: Layout) -> Batch:
        mapped = self.files.get(name)
        if mapped is not None:
            return decode_run(mapped, layout, check=False)
        value = self.store.run(name)
        self.files.put(name, value)
        return decode_run(value, layout)

    def commit(self, manifest: Manifest, stored: bytes | None) -> bytes:
        """Store the new manifest, and drop the runs that only the one before it needs; returns its bytes."""
        before = set() if stored is None else Manifest.decode(stored).run_names()
        self.drop((before | self.saved) - manifest.run_names())
        value = manifest.encode()
        self.store.put_manifest(value)
        return value

    def drop(self, names: Iterable[str]) -> None:
        """Runs that the state does not need any more."""
        for name in names:
            self.store.drop_run(name)
            self.files.drop(name)
