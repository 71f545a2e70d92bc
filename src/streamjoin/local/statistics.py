"""Statistics gatherer: what a local run stores and has done, sampled at every n-th step.

A step is one batch of the run: one call of `push`, `step`, `punctuate` and so on. Worked number: `every=10`
over 95 steps gives ten samples, of step 0, 10, … 90. A sample costs what `run.state()` and `run.counters()`
cost.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamjoin.errors import InvalidJoin
from streamjoin.local.summaries import StateSummary

if TYPE_CHECKING:
    from streamjoin.plot import Chart


class Gatherer:
    """Samples of one run, made by `run.gather(every=…)`; `table()` gives them, `chart()` draws them.

    Columns: `step`; `seconds` since it began; `<input>_state_rows`: its tuples in the state; the gauges
    `closed_keys`, `deferred`, `nbytes`, `resident_bytes`, `groups`; and all counters of `run.counters()`.
    """

    def __init__(self, every: Any) -> None:
        if not isinstance(every, int) or isinstance(every, bool) or every < 1:
            raise InvalidJoin(f"gather(every={every!r}); give the number of steps between samples, 1 or more")
        self.every, self.steps = every, 0
        self._began = time.perf_counter()
        self._samples: list[dict[str, Any]] = []

    def due(self) -> bool:
        """One more step is over: whether it is sampled."""
        self.steps += 1
        return self.steps % self.every == 0

    def sample(self, state: StateSummary, counters: Mapping[str, int]) -> None:
        """Note the run as it is now."""
        gauges = ("closed_keys", "deferred", "nbytes", "resident_bytes", "groups")
        self._samples.append(
            {
                "step": self.steps,
                "seconds": time.perf_counter() - self._began,
                **{f"{name}_state_rows": rows for name, rows in state.rows.items()},
                **{name: getattr(state, name) for name in gauges},
                **counters,
            }
        )

    def table(self) -> pa.Table:
        """One row for each sample, oldest first."""
        return pa.Table.from_pylist(self._samples)

    def chart(self, *columns: str) -> Chart:
        """Some columns over the steps as a picture, the stored tuples of each input where none is named.

        Needs the extra `plot`. `print(stats.chart().terminal())` shows it in the terminal.
        """
        from streamjoin.plot import Chart  # noqa: PLC0415  # needs the extra

        table = self.table()
        chosen = columns or tuple(name for name in table.column_names if name.endswith("_state_rows"))
        unknown = [name for name in chosen if name not in table.column_names]
        if unknown:
            raise InvalidJoin(
                f"no statistics are called {', '.join(unknown)}; there are {', '.join(table.column_names)}"
            )
        steps = table["step"].to_pylist()
        lines: dict[str, tuple[Sequence[float], Sequence[float]]] = {
            name: (steps, table[name].to_pylist()) for name in chosen
        }
        stored = "tuples in the state" if not columns else ", ".join(columns)
        return Chart(f"{stored[0].upper()}{stored[1:]} by step", "step", stored, lines)

    def png(self, path: str | Path, *columns: str) -> Path:
        """Draw `chart` into a file; returns its path."""
        return self.chart(*columns).png(Path(path))
