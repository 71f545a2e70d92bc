"""State store access: every call to Spark's state store, for one manifest and the runs it names, per bucket.

All of it is one MapState, because each state variable costs about 20 ms per task and batch to set up; the
manifest is the entry "manifest". A batch reads the manifest once and writes it once; beside that there is one
call for each run that is loaded, added or dropped. `calls` counts them, and a test limits them to that.

Large values are written without PySpark's five copies (`_put`): it pickles a value, wraps the pickle into
four nested protobuf messages and copies it at each step, 19 ms of CPU for 4 MB where the bytes could simply
be sent.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import PySparkRuntimeError
from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from streamjoin.columnar.batch import Batch, Layout, Places
from streamjoin.errors import StateFormatError
from streamjoin.state.codec import decode_run
from streamjoin.state.manifest import Manifest
from streamjoin.state.run import Run
from streamjoin.state.stores import RunFiles, encoded

_NAME = StructType([StructField("name", StringType())])
_VALUE = StructType([StructField("value", BinaryType())])
STATE = "state"  # the name of the MapState
MANIFEST = "manifest"
_HEADER = struct.Struct("!ii")


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
        _put(self._values, (MANIFEST,), value)

    def run(self, name: str) -> bytes:
        """The bytes of a run the manifest names."""
        self.calls["run"] += 1
        value = self._get(name)
        if value is None:
            raise StateFormatError(f"run {name} is missing from the state store; restore the checkpoint")
        return value

    def put_run(self, name: str, value: bytes) -> None:
        self.calls["run"] += 1
        _put(self._values, (name,), value)

    def drop_run(self, name: str) -> None:
        self.calls["run"] += 1
        self._values.removeKey((name,))

    def _get(self, name: str) -> bytes | None:
        value: Any = self._values.getValue((name,))
        return None if value is None else bytes(value[0])


@dataclass
class BucketRunStore:
    """The runs of one bucket during one batch: in the state store, and as files that all workers map."""

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
            run.loaded = decode_run(mapped, run.layout, check=False)
        return name

    def saved_as(self, run: Run) -> str:
        """The name under which a run is stored; it is saved now if it never was."""
        if run.stored_as is None:
            run.stored_as = self.save(run)
        return run.stored_as

    def load(self, name: str, layout: Layout, places: Places | None = None) -> Batch:
        mapped = self.files.get(name)
        if mapped is not None:
            return decode_run(mapped, layout, places=places, check=False)
        value = self.store.run(name)
        self.files.put(name, value)
        return decode_run(value, layout, places=places)

    def commit(self, manifest: Manifest, stored: bytes | None) -> bytes:
        """Store the new manifest, and drop the runs that only the one before it needs; returns its bytes."""
        before = set() if stored is None else Manifest.decode(stored).run_names()
        self.drop((before | self.saved) - manifest.run_names())
        value = manifest.encode()
        self.store.put_manifest(value)
        return value

    def drop(self, names: Iterable[str]) -> None:
        """Remove runs that no manifest names any more."""
        for name in names:
            self.store.drop_run(name)
            self.files.drop(name)


def _put(state: MapState, key: tuple[str], value: bytes) -> None:
    """`state.updateValue(key, (value,))` for a state whose value is one binary column, sent uncopied.

    Writes PySpark's message by hand: head, value, tail. Where PySpark's private names are not as expected,
    the public call is used, which is slower and does the same.
    """
    try:
        api = state._mapStateClient._stateful_processor_api_client  # noqa: SLF001
        key_bytes = api._serialize_to_bytes(state._mapStateClient.user_key_schema, key)  # noqa: SLF001
        head, tail = _message_around(state._stateName, key_bytes, len(value))  # noqa: SLF001
        file, receive = api.sockfile, api._receive_proto_message  # noqa: SLF001
    except (AttributeError, KeyError, ImportError):
        state.updateValue(key, (value,))
        return
    file.write(head)
    file.write(value)
    file.write(tail)
    file.flush()
    status, message, *_ = receive()
    if status != 0:
        raise PySparkRuntimeError(f"Error updating map state value: {message}")


def _message_around(state_name: str, key: bytes, size: int) -> tuple[bytes, bytes]:
    """The bytes of the message before and after the value."""
    from pyspark.sql.streaming.proto import StateMessage_pb2 as messages  # noqa: PLC0415

    # a pickle of the tuple (value,): PROTO 3, BINBYTES length … TUPLE1, STOP
    head, tail = b"\x80\x03B" + struct.pack("<I", size), b"\x85."
    inside = len(head) + size + len(tail)
    name = state_name.encode()
    for message, part, before in (
        (messages.UpdateValue, "value", _field(messages.UpdateValue, "userKey", len(key)) + key),
        (messages.MapStateCall, "updateValue", _field(messages.MapStateCall, "stateName", len(name)) + name),
        (messages.StateVariableRequest, "mapStateCall", b""),
        (messages.StateRequest, "stateVariableRequest", b""),
    ):
        prefix = before + _field(message, part, inside)
        head, inside = prefix + head, inside + len(prefix)
    return _HEADER.pack(0, inside) + head, tail


def _field(message: Any, name: str, length: int) -> bytes:
    """A length-delimited field's tag and length."""
    return _varint(message.DESCRIPTOR.fields_by_name[name].number << 3 | 2) + _varint(length)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
