"""Metrics log: a listener that writes a join's observed metrics as JSON lines, and the curve of its state.

One line per micro-batch and join, so that the log can be read while the query runs: counters
`<input>_<counter>` of that batch, gauges over all buckets, and in `monitor` the figures of the constraint
monitor. docs/metrics.md says what each is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from streamjoin.plan.figures import joins
from streamjoin.plot import Chart


class MetricsLog(StreamingQueryListener):
    """Writes the metrics of every join of this session; add it with `spark.streams.addListener`."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing to keep yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """One line for each join of the query."""
        progress = json.loads(event.progress.json)
        lines = [json.dumps(line) + "\n" for line in batch_lines(progress)]
        if lines:
            with self.path.open("a") as log:
                log.writelines(lines)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing happened."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The log is complete."""


def batch_lines(progress: dict[str, Any]) -> list[dict[str, Any]]:
    """The metrics of one micro-batch, one dictionary for each join."""
    about = {
        "query": progress["id"],
        "batch": progress["batchId"],
        "time": progress["timestamp"],
        "trigger_ms": progress["durationMs"].get("triggerExecution"),
        "input_rows": progress["numInputRows"],
    }
    return [{**about, "join": name, **figures} for name, figures in joins(progress).items()]


def read_log(path: str | Path) -> list[dict[str, Any]]:
    """All lines of a log."""
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def state_chart(lines: Iterable[dict[str, Any]], title: str = "State size") -> Chart:
    """State size, predicted size and closed keys over the micro-batches, for each join of a log."""
    gauges = {"state_rows": "tuples", "predicted_rows": "tuples predicted", "closed_keys": "closed keys"}
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for line in lines:
        for gauge, what in gauges.items():
            x, y = curves.setdefault(f"{line['join']}: {what}", ([], []))
            x.append(line["batch"])
            y.append(line.get(gauge, 0))
    return Chart(title, "micro-batch", "state", curves)
