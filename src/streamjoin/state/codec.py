"""Codec: stored state as bytes, versioned, checksummed and readable in place.

    offset  size  what
    0       4     kind: "SJRN" a run, "SJMF" a manifest, "SJSN" a snapshot of a whole join
    4       2     format version, little endian
    6       2     flags: 1 = no checksum (values that only travel, never stored)
    8       4     CRC-32 of the prefix with this field zero, and of everything after it
    12      4     length of the header
    16      …     header (JSON), padded with blanks so that the first part starts at a multiple of 64
    …       …     parts, each padded to a multiple of 64; their lengths stand in the header

Arrow data starts at a multiple of 64, so a memory-mapped run is used without a copy. A state of
another version is refused with what to do.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from streamjoin.columnar.batch import Batch, Layout, Places
from streamjoin.columnar.types import stored_type
from streamjoin.errors import StateFormatError

VERSION = 1
RUN, MANIFEST, SNAPSHOT = b"SJRN", b"SJMF", b"SJSN"
_PREFIX = struct.Struct("<4sHHII")
_ALIGN = 64
_UNCHECKED = 1


def encode(kind: bytes, header: dict[str, Any], parts: Sequence[Any] = (), *, checksum: bool = True) -> bytes:
    """One value for storage; `parts` are bytes-like.

    Without a checksum (written as zero) for what only travels within a batch, where the carrier
    checks.
    """
    sizes = [memoryview(part).nbytes for part in parts]
    text = json.dumps({**header, "parts": sizes}, separators=(",", ":")).encode()
    text += b" " * (-(_PREFIX.size + len(text)) % _ALIGN)
    pieces: list[Any] = [text]
    for part, size in zip(parts, sizes, strict=True):
        pieces += [part, b"\0" * (-size % _ALIGN)]
    flags = 0 if checksum else _UNCHECKED
    crc = zlib.crc32(_PREFIX.pack(kind, VERSION, flags, 0, len(text)))
    for piece in pieces if checksum else ():
        crc = zlib.crc32(piece, crc)
    return b"".join([_PREFIX.pack(kind, VERSION, flags, crc, len(text)), *pieces])


def decode(kind: bytes, value: Any, *, check: bool = True) -> tuple[dict[str, Any], list[Any]]:
    """Header and parts (views, not copies) of a stored value."""
    try:
        view = memoryview(value)
    except TypeError as error:
        raise StateFormatError(f"stored state is bytes, not a {type(value).__name__}") from error
    if view.nbytes < _PREFIX.size:
        raise StateFormatError(f"stored state is cut off after {view.nbytes} bytes; restore it from a backup")
    found, version, flags, checksum, length = _PREFIX.unpack_from(view)
    if found != kind:
        raise StateFormatError(
            f"stored state is of kind {found!r}, not {kind!r}; is this the right file or checkpoint?"
        )
    if version != VERSION:
        raise StateFormatError(
            f"stored state has format {version}, this version of streamjoin reads format {VERSION}; "
            "go on with the version that wrote it, or start with a new checkpoint"
        )
    body = view[_PREFIX.size :]
    crc = zlib.crc32(_PREFIX.pack(kind, version, flags, 0, length))
    if flags == 0 and check:
        crc = zlib.crc32(body, crc)
    if crc != checksum and (check or flags):
        raise StateFormatError("stored state is damaged (its checksum is wrong); restore it from a backup")
    if flags not in (0, _UNCHECKED) or (flags and kind in (RUN, MANIFEST, SNAPSHOT)):
        raise StateFormatError(f"stored state has unknown flags {flags}; restore it from a backup")
    header = json.loads(bytes(body[:length]))
    parts, at = [], length
    for size in header.pop("parts"):
        parts.append(body[at : at + size])
        at += size + (-size % _ALIGN)
    return header, parts


def batch_bytes(batch: pa.RecordBatch) -> pa.Buffer:
    """A record batch as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def decode_batch(part: Any) -> pa.RecordBatch:
    """The record batch of `batch_bytes`, in place."""
    with pa.ipc.open_stream(pa.py_buffer(part)) as reader:
        return reader.read_next_batch()


def encode_run(batch: Batch) -> bytes:
    """The rows of a run."""
    return encode(RUN, {"rows": len(batch)}, [batch_bytes(batch.data)])


def decode_run(value: Any, layout: Layout, *, places: Places | None = None, check: bool = True) -> Batch:
    """The rows of a run, in place: `value` (bytes or a memory map) must outlive the batch."""
    header, (part,) = decode(RUN, value, check=check)
    data = decode_batch(part)
    if data.num_rows != header["rows"]:
        raise StateFormatError("stored state is damaged (a run has another number of rows); restore a backup")
    return in_layout(data, layout, places)


def in_layout(data: pa.RecordBatch, layout: Layout, places: Places | None = None) -> Batch:
    """Stored columns as the layout of today has them, uncopied: each payload column from its place among the
    stored ones, null where they have none; a time with a zone in the zone of today.
    """
    if places is not None:
        fixed = layout.first_key + len(layout.key_types)
        payload = [
            pa.nulls(data.num_rows, dtype) if place < 0 else data.column(fixed + place)
            for place, dtype in zip(places, layout.payload_types, strict=True)
        ]
        names = layout.schema.names
        data = pa.RecordBatch.from_arrays([*data.columns[:fixed], *payload], names)
    if data.schema.equals(layout.schema):
        return Batch(layout, data)
    types, wanted = (
        [stored_type(dtype) for dtype in schema.types] for schema in (data.schema, layout.schema)
    )
    if (data.schema.names, types) != (layout.schema.names, wanted):
        raise StateFormatError(
            f"a stored run has columns {_columns(data.schema)}, this join has "
            f"{_columns(layout.schema)}; restart with the inputs and columns it began with"
        )
    return layout.batch([column.cast(dtype) for column, dtype in zip(data, layout.schema.types, strict=True)])


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
