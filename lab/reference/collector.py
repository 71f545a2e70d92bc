"""Python's cycle collector off while a reference algorithm is timed.

It walks all live objects now and then, at times that have nothing to do with the algorithm. Worked number: a
PWJoin with 300,000 results took 0.34 s with it and 0.08 s without.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """Collect first, then not again until the end."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
