"""Memory that is freed goes back to the system, in workers that have a limit.

Left alone, C's allocator keeps freed blocks of up to 32 MB for later: a worker that works through
batches of 15 MB holds 80 MB that nobody uses. Blocks of a megabyte and more are mapped and unmapped
instead, and what else is free is given back after every bucket. Only glibc can be told so; elsewhere
nothing happens. Cost: under a millisecond a bucket.
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
    """From now on, for this process."""
    pa.set_memory_pool(pa.system_memory_pool())
    set_option = getattr(_glibc(), "mallopt", None)
    if set_option is not None:
        set_option(_MMAP_THRESHOLD, _LARGE)


def return_free_blocks() -> None:
    """What is free now."""
    trim = getattr(_glibc(), "malloc_trim", None)
    if trim is not None:
        trim(0)
