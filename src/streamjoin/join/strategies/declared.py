"""Declared selectivities: what a driver policy is told instead of what the join measures.

The paper on the adaptive driver takes the selectivities as known, by statistics or by monitoring. Keys are
names of inputs: one name for the results by row of that input (σ_Sj of Table 1), two or more for the share of
the combinations of their tuples that join. Worked number: {("a", "b"): 0.002} says that of 10 x 200 pairs 4
match. Sets of three and more inputs that are not declared are made of the pairs as if they were independent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeAlias

from streamjoin.errors import InvalidJoin
from streamjoin.join.statistics.selectivity import Selectivities

Declared: TypeAlias = Mapping[str | tuple[str, ...], float]
ADVICE = 'give a share for each pair of inputs, such as {("a", "b"): 0.001}'


def check_declared(given: Any) -> None:
    """Refuse what cannot be a mapping of inputs to shares."""
    if given is None:
        return
    if not isinstance(given, Mapping) or not given:
        raise InvalidJoin(f"selectivities={given!r}; {ADVICE}")
    for names, share in given.items():
        for name in _names(names):
            if not isinstance(name, str):
                raise InvalidJoin(f"selectivities of {names!r}; {ADVICE}")
        number = isinstance(share, int | float) and not isinstance(share, bool) and math.isfinite(share)
        if not number or share < 0 or (share > 1 and len(_names(names)) > 1):
            raise InvalidJoin(
                f"selectivities: {names!r} has {share!r}; give a share of the combinations, from 0 to 1, "
                "or for a single input its results by row"
            )


def check_complete(given: Declared | None, names: Sequence[str], *, per_row: bool) -> None:
    """Whether a driver finds what it needs: the results by row of each input, or the share of each pair."""
    if given is None:
        return
    said = [frozenset(_names(one)) for one in given]
    unknown = sorted({name for one in said for name in one} - set(names))
    if unknown:
        raise InvalidJoin(
            f"selectivities name {', '.join(unknown)}; the inputs of this join are {', '.join(names)}"
        )
    needed = [(name,) for name in names] if per_row else list(combinations(names, 2))
    missing = [one for one in needed if frozenset(one) not in said]
    if missing:
        listed = ", ".join("(" + ", ".join(one) + ")" for one in missing)
        raise InvalidJoin(f"selectivities lack {listed}; declare them too, or none, to have them measured")


@dataclass(frozen=True, slots=True)
class DriverStatistics:
    """What a driver goes by: selectivities, and the results by row of each input where they were declared."""

    selectivities: Selectivities
    per_row: Mapping[int, float] | None = None

    @classmethod
    def of(cls, driver: Any, measured: Selectivities) -> DriverStatistics:
        """As declared at the driver, else as measured."""
        given: Declared | None = getattr(driver, "selectivities", None)
        if not given:
            return cls(measured)
        number = {name: i for i, name in enumerate(driver.inputs)}
        shares = {tuple(number[name] for name in _names(one)): float(share) for one, share in given.items()}
        sets = {inputs: share for inputs, share in shares.items() if len(inputs) > 1}
        per_row = {inputs[0]: share for inputs, share in shares.items() if len(inputs) == 1}
        return cls(Selectivities.declared(measured.inputs, sets) if sets else measured, per_row or None)

    @property
    def known(self) -> bool:
        """Whether a driver need not wait until rows of all inputs have met."""
        return self.per_row is not None or self.selectivities.known


def _names(given: Any) -> tuple[Any, ...]:
    return given if isinstance(given, tuple) else (given,)
