"""Matched flags: which tuples took part in the results of one probe, for inputs where that must be known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from streamjoin.columnar.assemble import Component
from streamjoin.columnar.batch import Ints, Mask
from streamjoin.join.probe import Probe
from streamjoin.state.run import Run


class Matches:
    """Notes the components of each result; flags stay with the runs of stored tuples."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.driving: Mask = np.zeros(len(probe.rows) if probe.driver in probe.tracked else 0, np.bool_)
        self._runs = {
            other: [hit.run for hit in probe.hits[other]] for other in probe.tracked if other != probe.driver
        }

    def note(self, frame: Sequence[Component]) -> None:
        """These combinations are results."""
        for i in self.probe.tracked:
            batch, rows = frame[i]
            if i == self.probe.driver:
                self.driving[rows] = True
            else:
                self.probe.run_of(batch).mark_matched(rows)

    def note_keys(self, other: int) -> None:
        """Every tuple with a key that both inputs hold has matched: nothing but the key decides."""
        if self.probe.driver in self.probe.tracked:
            self.driving |= self.probe.present(other)[self.probe.rows.groups.of_rows()]
        else:
            for hit in self.probe.hits[other]:
                hit.run.mark_matched(hit.live()[1])

    def stored(self, other: int) -> Iterator[tuple[Run, Ints]]:
        """Live stored tuples of a tracked input that have matched by now."""
        for run in self._runs.get(other, ()):
            if run.matched is not None:
                yield run, np.flatnonzero(run.matched & run.live_mask())
