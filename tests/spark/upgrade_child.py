"""One leg of an upgrade: a join and an enrich join go on from their checkpoints over the files there are.

`python -m tests.spark.upgrade_child FOLDER` adds its rows to `joined` and `enriched` in the folder, and
prints the version it ran on.
"""

import sys
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession

import streamjoin as sj


def main(folder: Path) -> None:
    spark = sj.session(cores=2, memory="1g")
    orders_df = read(spark, folder / "orders", "id long, customer long")
    lines_df = read(spark, folder / "lines", "order_id long, item string, is_last boolean")
    orders = sj.stream(orders_df, name="orders", key="id", unique=True)
    lines = sj.stream(lines_df, name="lines", key="order_id", punctuation=sj.marked("is_last"))
    joined = sj.join(orders, lines, name="shop", buckets=2)
    run(joined, folder, "joined")
    cities = sj.table(str(folder / "cities"), name="cities", key="id", memory="64 MB")
    stream = sj.stream(orders_df, name="o", key="customer")
    run(sj.enrich(stream, cities, name="where", buckets=2), folder, "enriched")
    spark.stop()
    print(pyspark.__version__)


def run(join: Any, folder: Path, name: str) -> None:
    def append(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(str(folder / name / str(number)))

    checkpoint = str(folder / f"{name}-checkpoint")
    join.write(rows=append, checkpoint=checkpoint, trigger={"availableNow": True}).awaitTermination()


def read(spark: SparkSession, path: Path, schema: str) -> DataFrame:
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(path))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
