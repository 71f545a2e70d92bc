"""The news demo on local Spark: this library's join, then Spark's own over the same streams.

Both queries read the seeded news source in micro-batches until its end; state is what each
reports of itself (`observedMetrics` here, `stateOperators` of Spark's join).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from streamjoin.demo.generators.news import NewsStreams
from streamjoin.demo.news import Watched, news_join
from streamjoin.demo.spark_sources.registry import register
from streamjoin.demo.watching import batches, rows_of_operators
from streamjoin.spark.session import session

_JOIN = "streamjoin_news_access"


def run_spark(streams: NewsStreams, batch_rows: int, tick: Callable[[int], None]) -> tuple[Watched, Watched]:
    """Both joins, one after the other, on one session."""
    items_per_batch = max(1, round(batch_rows / (streams.records_per_item + 2)))
    knowing, ignorant = Watched("keys and punctuations declared"), Watched("Spark's own join")
    log = Path("out/spark.log")  # Spark's own messages would cut the picture to pieces
    spark = session(cores=2, memory="2g", name="news demo", log=log)
    try:
        register(spark)
        news, access = (_stream(spark, streams, name, items_per_batch) for name in ("news", "access"))
        with tempfile.TemporaryDirectory() as folder:
            start = news_join(news, access).write(
                rows=_collect(knowing), checkpoint=f"{folder}/ours", trigger={"availableNow": True}
            )
            _watch(start, knowing, lambda seen: tick(seen // 2), _our_state)
            rows = access.where("not is_end").select("sno", "ipaddr")
            own = news.select("sno", "keyword").join(rows, "sno")
            writer = own.writeStream.foreachBatch(_collect(ignorant))
            query = writer.option("checkpointLocation", f"{folder}/own").trigger(availableNow=True).start()
            half = knowing.rows_in[-1] // 2
            _watch(query, ignorant, lambda seen: tick(half + seen // 2), rows_of_operators)
            tick(knowing.rows_in[-1])
    finally:
        spark.stop()
    return knowing, ignorant


def _stream(spark: SparkSession, streams: NewsStreams, name: str, items_per_batch: int) -> DataFrame:
    reader = spark.readStream.format("streamjoin_news").option("stream", name)
    for field in fields(streams):
        if getattr(streams, field.name) is not None:
            reader = reader.option(field.name, getattr(streams, field.name))
    return reader.option("items_per_batch", items_per_batch).load()


def _collect(watched: Watched) -> Callable[[DataFrame, int], None]:
    return lambda frame, _: watched.results.append(frame.toArrow())


def _watch(query: Any, watched: Watched, tick: Callable[[int], None], state_of: Callable[[Any], int]) -> None:
    """Follow a query to its end."""
    for progress in batches(query):
        before = watched.rows_in[-1] if watched.rows_in else 0
        watched.rows_in.append(before + progress.numInputRows)
        watched.state_rows.append(state_of(progress))
        tick(watched.rows_in[-1])


def _our_state(progress: Any) -> int:
    return int(progress.observedMetrics[_JOIN]["state_rows"])
