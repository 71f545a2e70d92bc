"""Probe strategy: in which order the rows of a driver visit the other inputs.

A row is done when one of the others has nothing of its key; so the one that most likely ends the search,
or leaves the fewest partial results, is visited first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from streamjoin.join.statistics.selectivity import Selectivities


class ProbeSequence(Protocol):
    """The order in which a driver's rows visit the other inputs, given the live rows of all inputs and
    what was measured.
    """

    @property
    def name(self) -> str: ...
    def sequence(
        self, driver: int, others: Sequence[int], live_rows: Sequence[int], measured: Selectivities
    ) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class FewestRowsFirst:
    """The input with the least state first."""

    name: str = "fewest_rows"

    def sequence(
        self, driver: int, others: Sequence[int], live_rows: Sequence[int], measured: Selectivities
    ) -> list[int]:
        return sorted(others, key=lambda other: live_rows[other])


@dataclass(frozen=True, slots=True)
class MostSelectiveFirst:
    """The input first that is expected to leave the fewest partial results, as measured lately; planned
    again for every turn. Until something was measured, the input with the least state first.
    """

    name: str = "most_selective"

    def sequence(
        self, driver: int, others: Sequence[int], live_rows: Sequence[int], measured: Selectivities
    ) -> list[int]:
        known = measured.sequence(driver, others, live_rows)
        return known or FewestRowsFirst().sequence(driver, others, live_rows, measured)
