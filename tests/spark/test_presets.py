"""The papers' operators on Spark: the same seeded streams, the same answer."""

import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

import streamjoin as sj
from streamjoin.plan.presets import PRESETS
from tests.spark.streams import run, stream_of

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::streamjoin.UnboundedState")]

KEYS, FILES = 30, 3


def streams(seed: int) -> tuple[list[pa.Table], list[pa.Table], Counter[tuple[int, int]]]:
    """One row for each key; clusters of rows with their ends, in offset order; and their join."""
    rng = random.Random(seed)
    ones = rng.sample(range(KEYS), KEYS)
    many: list[tuple[int, int, bool]] = []
    for key in rng.sample(range(KEYS), KEYS):
        many += [(key, rng.randint(0, 99), False) for _ in range(rng.randint(0, 5))] + [(key, 0, True)]
    rows = [
        {"k": key, "y": value, "end": end, "part": 0, "off": 3 * i}
        for i, (key, value, end) in enumerate(many)
    ]
    left = [pa.table({"k": ones[i::FILES], "x": [10 * key for key in ones[i::FILES]]}) for i in range(FILES)]
    cuts = [len(rows) * i // FILES for i in range(FILES + 1)]
    right = [pa.Table.from_pylist(rows[cuts[i] : cuts[i + 1]]) for i in range(FILES)]
    return left, right, Counter((10 * key, value) for key, value, end in many if not end)


@pytest.mark.parametrize(
    "operator",
    [pytest.param(name, marks=[] if name == "pwjoin" else pytest.mark.systems) for name in PRESETS],
)
def test_the_answer_is_the_batch_joins(spark: SparkSession, tmp_path: Path, operator: str) -> None:
    left, right, expected = streams(len(operator))
    clustered = operator == "mjoin_1nc"
    if clustered:  # its knowledge of the end is the end of a cluster
        right = [table.filter(pc.invert(table["end"])) for table in right]
    joined = sj.join(
        sj.stream(stream_of(spark, tmp_path / "one", left), name="one", key="k", unique=True),
        sj.stream(
            stream_of(spark, tmp_path / "many", right),
            name="many",
            key="k",
            columns=["y"],
            sequence=["part", "off"],
            arrival=sj.clustered() if clustered else None,
            punctuation=sj.marked("end"),
        ),
        operator=operator,
        buckets=2,
    )
    found = run(joined, tmp_path / "checkpoint")
    assert found.violations == []
    assert Counter((row.x, row.y) for row in found.rows) == expected
    held = found.progress[-1]["join"]["state_rows"]
    rows = expected.total() + KEYS
    if operator in ("shj", "xjoin", "wjoin"):
        assert held == rows  # knows nothing that would let go
    elif operator in ("pjoin", "pwjoin"):
        assert held == expected.total()  # nothing tells that a key of the one side has come
    else:
        assert held < rows / 2
