"""Strategies: decisions the operator leaves open, each a small object. They change when work is done and
in which order, never what is computed.

| seam   | decides                                        | module   |
| ------ | ---------------------------------------------- | -------- |
| driver | which input gives the next rows, how many      | `driver` |
| order  | which rows of an input's turn come first       | `order`  |
| purge  | when punctuations are applied to the state     | `purge`  |
| probe  | in which order a row visits the other inputs   | `probe`  |
| spill  | how much is in memory, and what is spilled     | `spill`  |

Each module opens with the protocol of its seam.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamjoin.join.strategies.driver import Driver
from streamjoin.join.strategies.order import TupleOrder
from streamjoin.join.strategies.probe import ProbeSequence
from streamjoin.join.strategies.purge import Purge
from streamjoin.join.strategies.spill import Spill


@dataclass(frozen=True, slots=True)
class Strategies:
    """One choice for each seam."""

    driver: Driver
    order: TupleOrder
    purge: Purge
    probe: ProbeSequence
    spill: Spill
