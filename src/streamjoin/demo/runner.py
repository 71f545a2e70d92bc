"""The demos' shared runner: a demo is run locally or on Spark, checked against the batch join, and reported.

A demo gives its data, its joins and its report (`Demo`). What all of them do stands here once: the session,
micro-batches from files, following a query, the comparison with the batch join, tables, and the picture.
PySpark is imported only for a run on Spark, so a local run needs no JVM.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from streamjoin.errors import InvariantBroken
from streamjoin.plan.figures import joins
from streamjoin.plot import TerminalPicture

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Tick = Callable[[int], None]  # called with the number of steps that are done
Observed = TypeVar("Observed")
SPARK_LOG = Path("out/spark.log")  # Spark's own messages would cut the picture to pieces


@dataclass
class ObservedJoin:
    """What one join was seen to do, batch by batch."""

    label: str
    rows_in: list[int] = field(default_factory=list)  # input rows up to the end of each batch
    state_rows: list[int] = field(default_factory=list)
    closed_keys: list[int] = field(default_factory=list)  # keys remembered as closed on some inputs
    results: list[pa.Table] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)  # `<input>_<counter>` over all batches

    @property
    def rows(self) -> pa.Table:
        """All results."""
        return pa.concat_tables(self.results)


class Demo(Protocol[Observed]):
    """One demo: its data, its joins, and what it reports of them."""

    name: str  # of the picture's file and of the Spark application
    unit: str  # of the progress bar

    def introduction(self) -> Iterator[str]: ...

    def prepare(self, folder: Path) -> None:
        """Generate what the runs read; `folder` lives as long as the runs."""

    def explain(self) -> str: ...

    def steps(self) -> int:
        """The length of the progress bar."""

    def run_local(self, tick: Tick) -> Observed: ...

    def run_spark(self, spark: SparkSession, tick: Tick) -> Observed: ...

    def check(self, observed: Observed) -> None:
        """Raises `InvariantBroken` where an answer differs from the batch join's."""

    def report(self, observed: Observed) -> Iterator[str | Table]: ...

    def picture(self, observed: Observed) -> TerminalPicture: ...


def show(demo: Demo[Any], console: Console, out: Path, *, local: bool) -> None:
    """Run a demo and report it on the terminal, with its picture in the folder `out`."""

    def say(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    for text in demo.introduction():
        say(text + "\n")
    with TemporaryDirectory(prefix=f"streamjoin-{demo.name}-", ignore_cleanup_errors=True) as folder:
        with console.status("generating the data"):
            demo.prepare(Path(folder))
        say(demo.explain() + "\n")
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console) as progress:
            task = progress.add_task(demo.unit, total=demo.steps())
            observed = _run(demo, lambda done: progress.update(task, completed=done), local=local)
            progress.update(task, completed=demo.steps())
    demo.check(observed)
    for part in demo.report(observed):
        if isinstance(part, str):
            say(part + "\n")
        else:
            console.print(part)
    picture = demo.picture(observed)
    console.print(picture.terminal(), highlight=False, markup=False, soft_wrap=True)
    say(f"\nPicture: {picture.png(out / f'demo-{demo.name}.png')}")


def _run(demo: Demo[Observed], tick: Tick, *, local: bool) -> Observed:
    if local:
        return demo.run_local(tick)
    from streamjoin.spark.session import session

    spark = session(cores=2, memory="2g", name=f"{demo.name} demo", log=SPARK_LOG)
    try:
        return demo.run_spark(spark, tick)
    finally:
        spark.stop()


def check_rows(who: str, found: pa.Table, expected: pa.Table, by: Iterable[str]) -> None:
    """Raises unless both have the same rows; the columns `by` order them."""
    order = [(name, "ascending") for name in by]
    rows = found.select(expected.column_names).cast(expected.schema)
    if not rows.sort_by(order).equals(expected.sort_by(order)):
        raise InvariantBroken(
            f"{who} gave {len(rows):,} rows that differ from the batch join's {len(expected):,}; "
            "please report this with the command you ran"
        )


def text_table(title: str, columns: Mapping[str, str], rows: Iterable[Iterable[str]]) -> Table:
    """A table for the terminal; `columns` maps each heading to left or right."""
    made = Table(title=title, title_justify="left")
    for name, side in columns.items():
        made.add_column(name, justify="right" if side == "right" else "left")
    for row in rows:
        made.add_row(*row)
    return made


# On Spark


def write_files(batches: Iterable[Mapping[str, pa.Table]], folder: Path) -> int:
    """One file for each stream and batch, `folder/<stream>/<batch>.parquet`; returns the batches.

    Spark's file source takes the oldest file first.
    """
    count = 0
    for batch in batches:
        for name, rows in batch.items():
            path = folder / name / f"{count:06}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(rows, path)
            os.utime(path, (1_000_000_000 + count,) * 2)
        count += 1
    return count


def read_files(spark: SparkSession, schema: pa.Schema, path: Path) -> DataFrame:
    """The files as a stream, one file a micro-batch."""
    from pyspark.sql.pandas.types import from_arrow_schema

    reader = spark.readStream.schema(from_arrow_schema(schema)).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(path))


def start(frame: DataFrame, sink: Callable[[DataFrame, int], None], checkpoint: Path) -> StreamingQuery:
    """Run a query over all that is there."""
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


def collect(observed: ObservedJoin) -> Callable[[DataFrame, int], None]:
    """A sink that keeps the result rows."""
    return lambda frame, _: observed.results.append(frame.toArrow())


def follow(query: StreamingQuery, observed: ObservedJoin, tick: Tick, inputs: Iterable[str] = ()) -> None:
    """Follow a query to its end, batch by batch; `inputs`: whose counters are added up.

    Of this library's join it takes the figures that the join reports, of Spark's own joins the rows of their
    state stores.
    """
    for progress in batches(query):
        before = observed.rows_in[-1] if observed.rows_in else 0
        observed.rows_in.append(before + progress.numInputRows)
        found = next(iter(joins(progress).values()), None)
        if found is None:
            observed.state_rows.append(sum(int(one.numRowsTotal) for one in progress.stateOperators))
        else:
            observed.state_rows.append(found["state_rows"])
            observed.closed_keys.append(found["closed_keys"])
            for name in inputs:
                for counter in ("rows", "not_stored", "purged", "invalidated"):
                    observed.counted[f"{name}_{counter}"] += found[f"{name}_{counter}"]
        tick(len(observed.rows_in))


def batches(query: StreamingQuery) -> Iterator[Any]:
    """The progress of each batch that had rows, until the query ends; raises what went wrong with it."""
    last = -1
    while True:
        running = query.isActive
        for progress in query.recentProgress:
            if progress.batchId > last and progress.numInputRows > 0:
                last = progress.batchId
                yield progress
        if not running:
            query.awaitTermination()
            return
        time.sleep(0.2)
