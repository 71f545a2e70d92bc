"""One attempt of a query that somebody will kill: `python -m tests.spark.restart_child FOLDER`.

Reads FOLDER/one and FOLDER/many, joins, and writes each micro-batch to a file of its own, so that
a batch that runs again replaces what it wrote before. Prints "batch N" when a batch begins and
"done" when all files are read. If there is a FOLDER/grouped, the join is grouped by key; if there is a
FOLDER/memory, that is its memory limit; if there are FOLDER/color and FOLDER/shape, they are joined too; if
there is a FOLDER/two, four streams on one key are joined: one to four. If there is a FOLDER/table, it is
joined with FOLDER/orders; with batch 3 it gets the content of FOLDER/newer.
"""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame

import streamjoin as sj


def main(folder: Path) -> None:
    spark = sj.session(cores=2, memory="1g")

    def stream(side: str, schema: str) -> DataFrame:
        return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / side))

    if (folder / "table").exists():
        enrich(stream, folder)
        return
    joined = four(stream) if (folder / "two").exists() else two(stream, folder)
    if (folder / "grouped").exists():
        joined = joined.group_by("k", "a").agg(n=("*", "count"), total=("b", "sum"), most=("b", "max"))
    query = joined.write(
        rows=sink(folder, "rows"),
        punctuations=sink(folder, "punctuations"),
        checkpoint=str(folder / "checkpoint"),
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    print("done", flush=True)


def sink(folder: Path, kind: str) -> Callable[[DataFrame, int], None]:
    """Each batch as a file of its own."""
    out = folder / "out"
    out.mkdir(exist_ok=True)

    def write(frame: DataFrame, batch_id: int) -> None:
        print(f"batch {batch_id}", flush=True)
        table = frame.toArrow()
        part = out / f".{kind}-{batch_id}.tmp"
        pq.write_table(table, part)
        part.rename(out / f"{kind}-{batch_id:05}.parquet")

    return write


def enrich(stream: Callable[[str, str], DataFrame], folder: Path) -> None:
    """Orders with customers, of which a newer version comes in the middle."""
    checkpoint = str(folder / "checkpoint")
    joined = sj.enrich(
        sj.stream(stream("orders", "k long, id long"), name="orders", key="k"),
        sj.table(
            str(folder / "table"),
            name="customers",
            key="k",
            memory="300 KB",
            cycle_batches=3,
            columns=["name", "_version"],
            how="left",
        ),
        buckets=3,
    )
    write = sink(folder, "rows")

    def each(frame: DataFrame, batch_id: int) -> None:
        write(frame, batch_id)
        if batch_id == 3:
            for file in (folder / "newer").iterdir():
                shutil.copy(file, folder / "table" / file.name)
            joined.refresh(checkpoint=checkpoint)

    def start(frame: DataFrame) -> Any:
        writer = frame.writeStream.foreachBatch(each).option("checkpointLocation", checkpoint)
        return writer.trigger(availableNow=True).start()

    joined.run_until_done(start, checkpoint=checkpoint)
    print("done", flush=True)


def two(stream: Callable[[str, str], DataFrame], folder: Path) -> sj.Joined:
    """A unique input, and one that ends its keys; and two more on another key, where they are there."""
    inputs = [
        sj.stream(stream("one", "k long, a string"), name="one", key="k", unique=True),
        sj.stream(
            stream("many", "k long, b long, is_end boolean"),
            name="many",
            key="k",
            punctuation=sj.marked("is_end"),
        ),
    ]
    edges = None
    if (folder / "color").exists():
        edges = "one.k = many.k and many.b = color.b and many.b = shape.b"
        inputs += [
            sj.stream(stream(name, f"b long, {name} string"), name=name, key="b", unique=True)
            for name in ("color", "shape")
        ]
    return sj.join(
        *inputs,
        on=edges,
        buckets=3,
        memory=(folder / "memory").read_text() if (folder / "memory").exists() else None,
    )


def four(stream: Callable[[str, str], DataFrame]) -> sj.Joined:
    """Keys end by a unique tuple, by a window, by marked rows, and by both of these."""

    def declared(name: str, value: str, **more: Any) -> Any:
        marks = ", is_end boolean" if "punctuation" in more else ""
        source = stream(name, f"k long, t_{value} timestamp, {value} long{marks}")
        return sj.stream(source, name=name, key="k", time=f"t_{value}", lateness="1 minute", **more)

    marked = sj.marked("is_end")
    return sj.join(
        declared("one", "a", unique=True, window="3 minutes"),
        declared("two", "b", window="90 seconds"),
        declared("three", "c", punctuation=marked),
        declared("four", "d", window="2 minutes", punctuation=marked),
        driver="adaptive",
        buckets=3,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
