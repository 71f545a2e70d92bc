"""Retry of a source whose connection was lost: from its beginning, since no snapshot outlives it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from streamjoin.errors import SourceLost

T = TypeVar("T")


@dataclass(frozen=True)
class Retries:
    """How long to pause before each further try, in seconds."""

    pauses: tuple[float, ...] = (1, 2, 4, 8, 16)
    sleep: Callable[[float], None] = time.sleep

    def of(self, read: Callable[[], T]) -> T:
        """What `read` gives, tried again while the source is lost; failing, it leaves nothing behind."""
        for pause in self.pauses:
            try:
                return read()
            except SourceLost:
                self.sleep(pause)
        try:
            return read()
        except SourceLost as lost:
            tries = len(self.pauses) + 1
            raise SourceLost(
                f"{lost} Tried {tries} times from the beginning. "
                "Restart the query when it is back: nothing staged so far is used"
            ) from lost
