"""The rooms demo on local Spark: one operator for three streams, then Spark's own two joins.

A micro-batch is one file of each stream, so both queries move through event time in step. Spark joins two
by two and keeps the pairs of temperature and humidity as state of its second join. State is what each
query reports of itself (`observedMetrics` here, `stateOperators` of Spark's joins).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from streamjoin.demo.auction_spark import write_files
from streamjoin.demo.generators.rooms import VALUES, RoomStreams, room_schema
from streamjoin.demo.rooms import KEY, KNOWING, NAME, Watched, rooms_join
from streamjoin.demo.watching import batches, rows_of_operators
from streamjoin.spark.session import session


def run_spark(
    streams: RoomStreams, batch_minutes: float, tick: Callable[[int], None]
) -> tuple[Watched, Watched]:
    """Both queries, one after the other, on one session."""
    log = Path("out/spark.log")  # Spark's own messages would cut the picture to pieces
    spark = session(cores=2, memory="2g", name="rooms demo", log=log)
    knowing, ignorant = Watched(KNOWING), Watched("Spark's own two joins")
    try:
        with tempfile.TemporaryDirectory() as folder:
            written = write_files(streams.batches(batch_minutes), Path(folder))
            follow(start_ours(spark, Path(folder), knowing), knowing, lambda done: tick(done // 2))
            both = written // 2
            follow(start_own(spark, Path(folder), ignorant), ignorant, lambda done: tick(both + done // 2))
            tick(written)
    finally:
        spark.stop()
    return knowing, ignorant


def start_ours(spark: SparkSession, folder: Path, watched: Watched) -> StreamingQuery:
    """This library's join over the files."""
    return rooms_join(**_sources(spark, folder)).write(
        rows=_collect(watched), checkpoint=str(folder / "ours"), trigger={"availableNow": True}
    )


def start_own(spark: SparkSession, folder: Path, watched: Watched) -> StreamingQuery:
    """Spark's joins over the readings in the files, two by two."""
    first, *others = (
        source.where("not is_end").select(*KEY, VALUES[name])
        for name, source in _sources(spark, folder).items()
    )
    for other in others:
        first = first.join(other, list(KEY))
    writer = first.writeStream.foreachBatch(_collect(watched))
    return writer.option("checkpointLocation", str(folder / "own")).trigger(availableNow=True).start()


def _sources(spark: SparkSession, folder: Path) -> dict[str, DataFrame]:
    return {
        name: spark.readStream.schema(from_arrow_schema(room_schema(name)))
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / name))
        for name in VALUES
    }


def _collect(watched: Watched) -> Callable[[DataFrame, int], None]:
    return lambda frame, _: watched.results.append(frame.toArrow())


def follow(query: StreamingQuery, watched: Watched, tick: Callable[[int], None]) -> None:
    """Watch a query to its end, batch by batch."""
    for progress in batches(query):
        _note(progress, watched)
        tick(len(watched.state_rows))


def _note(progress: Any, watched: Watched) -> None:
    """What a batch's progress says of the state, and of why tuples left it."""
    metrics = progress.observedMetrics.get(f"streamjoin_{NAME}")
    if metrics is None:
        watched.state_rows.append(rows_of_operators(progress))
        return
    found = metrics.asDict()
    watched.state_rows.append(int(found["state_rows"]))
    watched.closed_keys.append(int(found["closed_keys"]))
    for name in VALUES:
        for counter in ("rows", "dropped", "purged", "invalidated"):
            watched.counted[f"{name}_{counter}"] += int(found[f"{name}_{counter}"])
