"""What reading staged pieces costs on this folder, measured once when a version is staged.

Some pieces are read whole, and some of their keys are looked up. A version of at most half of this machine's
memory will be in the page cache and is measured there. Of a larger one the pages are dropped from the cache
before each reading, where the system allows that. It takes a fraction of a second: reading stops after
`_LIMIT_S`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from streamjoin.state.pieces import StagedMaster, StagedVersion

_PIECES = 8
_KEYS = 64  # looked up in each piece
_LIMIT_S = 0.2


@dataclass(frozen=True)
class ReadCosts:
    """Seconds; the defaults are for a local disk whose pages are cached."""

    read_s_per_byte: float = 5e-10
    find_s_per_key: float = 5e-6


def measure(version: StagedVersion) -> ReadCosts:
    """The costs of reading this version's pieces, from up to eight of them."""
    chosen = list(_spread(version))
    if not chosen:
        return ReadCosts()
    read_s, read_bytes, batches = 0.0, 0, []
    prepare = _read_once if version.nbytes <= _memory_bytes() // 2 else _drop_pages
    for master, piece in chosen:
        prepare(master, piece)
        began = time.perf_counter()
        batches.append((master, piece, master.read(piece)))
        read_s += time.perf_counter() - began
        read_bytes += master.piece_bytes[piece]
        if read_s > _LIMIT_S:
            break
    find_s, found = 0.0, 0
    for master, piece, batch in batches:
        keys = batch.distinct_keys()
        keys = keys.take(np.unique(np.linspace(0, len(keys) - 1, _KEYS, dtype=np.int64)))
        prepare(master, piece)
        began = time.perf_counter()
        master.find(piece, keys)
        find_s += time.perf_counter() - began
        found += len(keys)
        if find_s > _LIMIT_S:
            break
    return ReadCosts(read_s / max(read_bytes, 1), find_s / found)


def _spread(version: StagedVersion) -> Iterator[tuple[StagedMaster, int]]:
    """Pieces from all over a version, with the bucket each belongs to."""
    wanted = np.unique(np.linspace(0, len(version.pieces) - 1, _PIECES, dtype=np.int64))
    for number in wanted.tolist() if version.pieces else ():
        piece = version.pieces[number]
        bucket = version.bucket(piece.bucket)
        yield bucket, bucket.pieces.index(piece)


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _read_once(master: StagedMaster, piece: int) -> None:
    master.path(piece).read_bytes()


def _drop_pages(master: StagedMaster, piece: int) -> None:
    if hasattr(os, "posix_fadvise"):
        with master.path(piece).open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
