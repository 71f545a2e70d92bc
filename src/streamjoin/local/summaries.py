"""What a local run says of itself when it is asked: state, forecast, selectivities, expected output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StateForecast:
    """The state size that the cost model predicts for now, from what was measured up to eight steps before:
    tuples by input, closed keys, and bytes of all runs.
    """

    rows: Mapping[str, float]
    closed_keys: float
    nbytes: float


@dataclass(frozen=True, slots=True)
class Selectivity:
    """The share of the combinations of tuples of some inputs that join; None where it is not known."""

    inputs: tuple[str, ...]
    measured: float | None
    declared: float | None = None


@dataclass(frozen=True, slots=True)
class ExpectedOutput:
    """Results expected of a buffer, by the measured selectivity and by the declared one."""

    measured: float | None
    declared: float | None = None


@dataclass(frozen=True, slots=True)
class StateSummary:
    """The state size of a run.

    `rows`: live tuples by input. `closed_keys`: keys and punctuations it stores. `deferred`: closed keys
    whose purge is deferred, and rows with deferred matches. `nbytes`: bytes of all runs; `resident_bytes`: of
    those in memory. `groups`: partial rows of groups that are not final yet.

    >>> StateSummary({"news": 0, "access": 0}, closed_keys=0, deferred=0, nbytes=0, resident_bytes=0).empty
    True
    """

    rows: Mapping[str, int]
    closed_keys: int
    deferred: int
    nbytes: int
    resident_bytes: int
    groups: int = 0

    @property
    def empty(self) -> bool:
        """Whether there is no tuple, closed key, deferred work or group."""
        return not any(self.rows.values()) and self.closed_keys == self.deferred == self.groups == 0
