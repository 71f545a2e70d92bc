"""Queries of one session, one after another: what each took, after its answer was compared.

A JVM of its own for each contender costs ten seconds and runs cold; where many short queries are compared
with one another, they share one, and the first round only warms it. A query reads prepared files, a file
a micro-batch, into a sink that drops the rows; its frame must observe `answer` (`spark_contender.observed`).
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lab.contenders.micro_batch import answered, file_rows, join_metrics
from lab.contenders.protocol import Answer
from lab.contenders.spark_contender import until_done
from streamjoin.errors import InvariantBroken


@dataclass(frozen=True)
class FinishedQuery:
    """The micro-batches that had rows."""

    batches: tuple[dict[str, Any], ...]

    @property
    def trigger_ms(self) -> list[int]:
        return [int(batch["durationMs"]["triggerExecution"]) for batch in self.batches]

    @property
    def input_rows(self) -> list[int]:
        return [file_rows(batch) for batch in self.batches]

    def rate(self, counted: int) -> float:
        """Rows by second of trigger time, over the last batches that had rows."""
        return 1000 * sum(self.input_rows[-counted:]) / sum(self.trigger_ms[-counted:])

    def gauge(self, name: str) -> list[int]:
        """A metric of this library, by batch."""
        return [int(join_metrics(batch).get(name, 0)) for batch in self.batches]

    def commit_ms(self) -> list[int]:
        """The state store's commits, summed over partitions, by batch."""
        return [sum(int(one["commitTimeMs"]) for one in batch["stateOperators"]) for batch in self.batches]


def run_query(frame: DataFrame, answer: Answer, what: str, checkpoint: str | None = None) -> FinishedQuery:
    """Run a query until its files are read and nothing waits; refused where its answer is not `answer`."""
    with tempfile.TemporaryDirectory(prefix="streamjoin-lab-", ignore_cleanup_errors=True) as folder:
        place = checkpoint or str(Path(folder) / "checkpoint")
        progress = until_done(frame.writeStream.format("noop").option("checkpointLocation", place))
    sums = (sum(answered(batch).get(name) or 0 for batch in progress) for name in ("rows", "sum", "mix"))
    found = Answer(*sums)
    if found != answer:
        raise InvariantBroken(f"{what} answered {found}, the batch join {answer}; no time is reported")
    return FinishedQuery(tuple(batch for batch in progress if file_rows(batch)))


@dataclass(frozen=True)
class Stage:
    """One stage of a query: what its tasks took and wrote to other stages."""

    task_ms: tuple[int, ...]
    shuffle_bytes: int  # written; 0 for the last stage of a job


class Stages:
    """The stages of a session, as its status store knows them; `new` gives those since it was last asked."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark, self._known = spark, -1
        self.new()

    def new(self) -> list[Stage]:
        context: Any = self._spark.sparkContext._jsc.sc()  # noqa: SLF001  # no other way in from Python
        context.listenerBus().waitUntilEmpty()
        gateway: Any = self._spark.sparkContext._gateway  # noqa: SLF001
        store = context.statusStore()
        listed = store.stageList(None, False, False, gateway.new_array(gateway.jvm.double, 0), None)
        stages = sorted((listed.apply(i) for i in range(listed.size())), key=lambda one: one.stageId())
        fresh = [one for one in stages if one.stageId() > self._known and one.numCompleteTasks()]
        self._known = max([self._known, *(one.stageId() for one in fresh)])
        return [
            Stage(_task_ms(store, one.stageId(), one.attemptId()), int(one.shuffleWriteBytes()))
            for one in fresh
        ]


def _task_ms(store: Any, stage: int, attempt: int) -> tuple[int, ...]:
    tasks = store.taskList(stage, attempt, 10_000)
    metrics = [tasks.apply(i).taskMetrics() for i in range(tasks.size())]
    return tuple(int(one.get().executorRunTime()) for one in metrics if one.isDefined())
