"""Manifest: the only mutable value of an operator's stored state.

It names the live sorted runs, in their tiers, with their metadata and the flags of their rows; it holds
the JSON parts of the state components (`facts`); and the identity of the join, by which a restart as
another join is refused (`join.persistence.restart`).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamjoin.columnar.batch import Ints, Mask, Places
from streamjoin.state.codec import MANIFEST, decode, encode


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A run as the manifest knows it: where it is stored, its metadata, the flags of its rows.

    `hashes` and `times` are inclusive bounds.
    """

    stored_as: str
    rows: int
    nbytes: int
    collided: bool
    hashes: tuple[int, int]
    times: tuple[int, int]
    tombstones: Mask | None = None
    matched: Mask | None = None
    arrived: Ints | None = None  # the turn of each row, where matches may be deferred
    spilled_at: int | None = None
    places: Places | None = None  # of the payload columns, where the run was written with other ones


@dataclass(frozen=True, slots=True)
class Manifest:
    """`tiers[tag]` are the tiers of the sorted runs with that tag, each a list of runs in hash order."""

    identity: dict[str, Any]
    tiers: dict[str, list[list[RunEntry]]]
    facts: dict[str, Any] = field(default_factory=dict)

    def run_names(self) -> set[str]:
        """The runs this state needs; whatever else is stored can be deleted."""
        return {run.stored_as for tiers in self.tiers.values() for tier in tiers for run in tier}

    def encode(self) -> bytes:
        parts: list[bytes] = []
        tiers = {
            tag: [[_entry_to_json(run, parts) for run in tier] for tier in tiers]
            for tag, tiers in self.tiers.items()
        }
        return encode(MANIFEST, {"identity": self.identity, "tiers": tiers, "facts": self.facts}, parts)

    @classmethod
    def decode(cls, value: Any) -> Manifest:
        header, parts = decode(MANIFEST, value)
        tiers = {
            tag: [[_entry_from_json(run, parts) for run in tier] for tier in tiers]
            for tag, tiers in header["tiers"].items()
        }
        return cls(header["identity"], tiers, header["facts"])


def _entry_to_json(run: RunEntry, parts: list[bytes]) -> list[Any]:
    flags = _put(run.tombstones, parts), _put(run.matched, parts)
    turns = None if run.arrived is None else _put_bytes(run.arrived.tobytes(), parts)
    known = run.stored_as, run.rows, run.nbytes, run.collided
    return [*known, run.hashes, run.times, *flags, turns, run.spilled_at, run.places]


def _put(flags: Mask | None, parts: list[bytes]) -> int | None:
    if flags is None:
        return None
    return _put_bytes(np.packbits(flags).tobytes(), parts)


def _put_bytes(value: bytes, parts: list[bytes]) -> int:
    parts.append(zlib.compress(value, 1))
    return len(parts) - 1


def _entry_from_json(entry: list[Any], parts: list[Any]) -> RunEntry:
    stored_as, rows, nbytes, collided, hashes, times, tombstones, matched, turns, spilled_at, places = entry
    return RunEntry(
        stored_as,
        rows,
        nbytes,
        collided,
        tuple(hashes),
        tuple(times),
        _get(tombstones, rows, parts),
        _get(matched, rows, parts),
        None if turns is None else np.frombuffer(zlib.decompress(parts[turns]), np.int64),
        spilled_at,
        None if places is None else tuple(places),
    )


def _get(part: int | None, rows: int, parts: list[Any]) -> Mask | None:
    if part is None:
        return None
    bits = np.frombuffer(zlib.decompress(parts[part]), np.uint8)
    flags: Mask = np.unpackbits(bits, count=rows).astype(np.bool_)
    return flags
