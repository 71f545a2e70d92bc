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
_LIMIT_S = 0.4


@dataclass(frozen=True)
class ReadCosts:
    """Seconds; the defaults are for a local disk whose pages are cached."""

    read_s_per_byte: float = 5e-10
    find_s_per_key: float = 5e-6


def measure(version: StagedVersion) -> ReadCosts:
    """The costs of reading this version's pieces, the medians of up to eight of them."""
    stays_cached = version.nbytes <= _memory_bytes() // 2
    reads, finds = [], []
    until = time.perf_counter() + _LIMIT_S
    for master, piece in _spread(version):
        keys = master.read(piece).distinct_keys()  # the first reading checks the piece, later ones do not
        keys = keys.take(np.unique(np.linspace(0, len(keys) - 1, _KEYS, dtype=np.int64)))
        if not stays_cached:
            _drop_pages(master, piece)
        began = time.perf_counter()
        master.read(piece)
        reads.append((time.perf_counter() - began) / max(master.piece_bytes[piece], 1))
        if not stays_cached:
            _drop_pages(master, piece)
        began = time.perf_counter()
        master.find(piece, keys)
        finds.append((time.perf_counter() - began) / len(keys))
        if time.perf_counter() > until:
            break
    return ReadCosts(float(np.median(reads)), float(np.median(finds))) if reads else ReadCosts()


def _spread(version: StagedVersion) -> Iterator[tuple[StagedMaster, int]]:
    """Pieces from all over a version, with the bucket each belongs to."""
    wanted = np.unique(np.linspace(0, len(version.pieces) - 1, _PIECES, dtype=np.int64))
    for number in wanted.tolist() if version.pieces else ():
        piece = version.pieces[number]
        bucket = version.bucket(piece.bucket)
        yield bucket, bucket.pieces.index(piece)


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _drop_pages(master: StagedMaster, piece: int) -> None:
    if hasattr(os, "posix_fadvise"):
        with master.path(piece).open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
