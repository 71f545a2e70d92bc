"""malloc settings of workers with a memory limit: freed memory is returned to the operating system.

By default glibc keeps freed blocks of up to 32 MB for reuse: a worker that processes batches of 15 MB keeps
80 MB unused. Here blocks of a megabyte and more are mapped and unmapped, and other free memory is returned
after every bucket. Without glibc these functions do nothing. Cost: under a millisecond a bucket.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import pyarrow as pa

_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of malloc.h
_LARGE = 1 << 20


def _glibc() -> Any:
    return ctypes.CDLL(None) if sys.platform == "linux" else None


def return_large_blocks() -> None:
    """Map large blocks from now on, in this process, so that freeing them returns their memory."""
    pa.set_memory_pool(pa.system_memory_pool())
    set_option = getattr(_glibc(), "mallopt", None)
    if set_option is not None:
        set_option(_MMAP_THRESHOLD, _LARGE)


def return_free_blocks() -> None:
    """Return the memory that is free now."""
    trim = getattr(_glibc(), "malloc_trim", None)
    if trim is not None:
        trim(0)
