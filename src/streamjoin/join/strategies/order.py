"""Order strategy (tuple scheduling): which rows of an input come first (MJoin section 4.2).

Value-oriented scheduling is for keys that a punctuation has already closed on another input: the rest of
their rows is joined first, so that they finish and are propagated early, and the other rows wait
(`waiting_pool`), also while other inputs have their turns. At the end of a batch nothing waits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from streamjoin.columnar.batch import Mask


class TupleOrder(Protocol):
    """Which of the rows of a turn and those that wait come first, given which keys other inputs wait for;
    None: all, as they came.
    """

    @property
    def name(self) -> str: ...
    def urgent(self, awaited: Callable[[], Mask]) -> Mask | None: ...


@dataclass(frozen=True, slots=True)
class Sequential:
    """Rows as they came."""

    name: str = "sequential"

    def urgent(self, awaited: Callable[[], Mask]) -> Mask | None:
        return None


@dataclass(frozen=True, slots=True)
class ValueOriented:
    """Rows whose key is closed on another input first, while there are any; the others wait."""

    name: str = "value_oriented"

    def urgent(self, awaited: Callable[[], Mask]) -> Mask | None:
        mask = awaited()
        return None if mask.all() or not mask.any() else mask
