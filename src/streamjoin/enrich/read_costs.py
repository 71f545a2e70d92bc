"""Read costs of staged segments in their folder, measured once when a version is staged.

Some segments are read whole, and few and many of their keys are looked up, each twice: the faster counts. A
version of at most half of this machine's memory will be in the page cache and is measured there; the first
lookup, which maps the file, does not count. Of a larger one the pages are dropped from the cache before each
reading, where the system allows that. It takes a fraction of a second: reading stops after `_LIMIT_S`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from streamjoin.columnar.batch import Batch
    from streamjoin.enrich.segments import StagedBucket, StagedVersion

_SEGMENTS = 8
_FEW, _MANY = 8, 512  # keys looked up in each segment
_LIMIT_S = 0.4
_TIMES = 2


@dataclass(frozen=True)
class ReadCosts:
    """Seconds; the defaults are for a local disk whose pages are cached.

    >>> round(ReadCosts(1e-9, 1e-6, 3e-4).find(keys=1000, segments=100), 3)
    0.031
    """

    read_s_per_byte: float = 5e-10
    find_s_per_key: float = 1e-6
    find_s_per_segment: float = 3e-4

    def read(self, nbytes: float) -> float:
        """To read so many bytes of whole segments."""
        return nbytes * self.read_s_per_byte

    def find(self, keys: float, segments: int) -> float:
        """To find the rows of so many keys, spread over so many segments."""
        return keys * self.find_s_per_key + min(keys, segments) * self.find_s_per_segment

    def break_even(self, nbytes: float, segments: int) -> int:
        """The keys that are found in the time in which so many bytes are read."""
        seconds = self.read(nbytes)
        few = seconds / (self.find_s_per_key + self.find_s_per_segment)
        return int(
            few if few < segments else (seconds - segments * self.find_s_per_segment) / self.find_s_per_key
        )


def measure(version: StagedVersion) -> ReadCosts:
    """The costs of reading this version's segments, the medians of up to eight of them."""
    stays_cached = version.nbytes <= _memory_bytes() // 2
    reads: list[float] = []
    finds: dict[int, list[float]] = {_FEW: [], _MANY: []}
    until = time.perf_counter() + _LIMIT_S
    for table, segment in _spread(version):
        keys = table.read(segment).distinct_keys()  # the first read verifies the segment, later ones do not
        timed = _Timed(table, segment, stays_cached)
        reads.append(timed.of(table.read) / max(table.segment_bytes[segment], 1))
        table.find(segment, keys.slice(0, 1))
        for count, times in finds.items():
            chosen = keys.take(np.unique(np.linspace(0, len(keys) - 1, count, dtype=np.int64)))
            times.append(timed.of(table.find, chosen))
        if time.perf_counter() > until:
            break
    if not reads:
        return ReadCosts()
    few, many = (float(np.median(times)) for times in finds.values())
    per_key = max(many - few, 0.0) / (_MANY - _FEW) + 1e-8
    return ReadCosts(float(np.median(reads)), per_key, max(few - _FEW * per_key, 0.0))


@dataclass(frozen=True)
class _Timed:
    """Seconds of what is done with a segment, the less of two times."""

    table: StagedBucket
    segment: int
    stays_cached: bool

    def of(self, work: Callable[..., Batch], *what: Batch) -> float:
        times = []
        for _ in range(_TIMES):
            if not self.stays_cached:
                _drop_pages(self.table, self.segment)
            began = time.perf_counter()
            work(self.segment, *what)
            times.append(time.perf_counter() - began)
        return min(times)


def _spread(version: StagedVersion) -> Iterator[tuple[StagedBucket, int]]:
    """Segments from all over a version, with the bucket each belongs to."""
    wanted = np.unique(np.linspace(0, len(version.segments) - 1, _SEGMENTS, dtype=np.int64))
    for number in wanted.tolist() if version.segments else ():
        segment = version.segments[number]
        bucket = version.bucket(segment.bucket)
        yield bucket, bucket.segments.index(segment)


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _drop_pages(table: StagedBucket, segment: int) -> None:
    if hasattr(os, "posix_fadvise"):
        with table.path(segment).open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
