"""A join of four inputs, killed at random moments, gives the bag of Spark's batch join, and batch by batch
what it gives where nobody kills it.
"""

import re
from collections import Counter
from itertools import takewhile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.spark.streams import write_batches
from tests.spark.test_restart import content, kill_until_done

pytestmark = pytest.mark.spark

BATCHES, KEYS = 14, 40
MINUTE_US = 60_000_000
INPUTS = {"one": "a", "two": "b", "three": "c", "four": "d"}
ENDING = ("three", "four")


def make_input(folder: Path, seed: int) -> None:
    """A batch is a minute; a key begins with its tuple of `one` and ends two minutes later."""
    rng = np.random.default_rng(seed)
    for name, value in INPUTS.items():
        batches = []
        for i in range(BATCHES):
            keys = np.arange(i * KEYS, (i + 1) * KEYS)
            if name != "one":
                keys = rng.integers(max(0, (i - 2) * KEYS), (i + 1) * KEYS, 80)
            ended = np.arange(max(0, (i - 2) * KEYS), max(0, (i - 1) * KEYS)) if name in ENDING else keys[:0]
            is_end = np.arange(len(keys) + len(ended)) >= len(keys)
            time = i * MINUTE_US + rng.integers(0, MINUTE_US, len(is_end))
            columns = {
                "k": pa.array(np.concatenate([keys, ended])),
                f"t_{value}": pa.array(time, mask=is_end).cast(pa.timestamp("us", "UTC")),
                value: pa.array(rng.integers(0, 1000, len(is_end)), mask=is_end),
            }
            batches.append(pa.table(columns | ({"is_end": is_end} if name in ENDING else {})))
        write_batches(folder / name, batches)


def offsets(folder: Path, batch: int) -> list[str]:
    """How far Spark's file sources had come with a batch.

    A query killed after a source noted its files and before the batch was planned has them in its next batch
    too: Spark then cuts the rest of the stream otherwise, and the batches cannot be compared one by one.
    """
    planned = (folder / "checkpoint" / "offsets" / str(batch)).read_text()
    return re.findall(r'"logOffset":\d+', planned)


def batch_join(spark: SparkSession, folder: Path) -> Counter[tuple[object, ...]]:
    """The answer of Spark's own join over all rows."""
    one, *others = (spark.read.parquet(str(folder / name)) for name in INPUTS)
    for other in others:
        readings = other.where("not is_end").drop("is_end") if "is_end" in other.columns else other
        one = one.join(readings, "k")
    latest = "greatest(t_a, t_b, t_c, t_d)"
    inside = [("t_a", "3 minutes"), ("t_b", "90 seconds"), ("t_d", "2 minutes")]
    table = one.where(" and ".join(f"{latest} - {t} <= interval {w}" for t, w in inside)).toArrow()
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.systems
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_four_kills_of_a_join_of_four_lose_and_double_nothing(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    calm, killed = tmp_path / "calm", tmp_path / "killed"
    for folder in (calm, killed):
        make_input(folder, seed)
    expected = batch_join(spark, killed)
    assert len(expected) > 1000
    kill_until_done(calm, 0, seed)
    log = kill_until_done(killed, 4, seed, after=6)
    print(log)
    assert content(killed, "rows") == expected, f"seed {seed}: {log}"
    propagated = Counter(row[0] for row in content(killed, "punctuations").elements())
    assert set(propagated.values()) == {1}
    assert len(propagated) >= (BATCHES - 4) * KEYS
    alike = list(takewhile(lambda batch: offsets(calm, batch) == offsets(killed, batch), range(BATCHES)))
    assert alike
    for kind in (f"{what}-{batch:05}" for what in ("rows", "punctuations") for batch in alike):
        same = content(killed, kind) == content(calm, kind)
        assert same, f"{kind}, seed {seed}: {log}"
