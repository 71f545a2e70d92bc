"""On Spark: a ttl counted as loss in the metrics, and what is predicted beside what is measured."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import streamjoin as sj
from tests.spark.streams import run, stream_of

pytestmark = [pytest.mark.spark]

STEPS, KEYS = 11, 400
SECOND = 1_000_000


def at(step: int, numbers: np.ndarray, column: str) -> pa.Table:
    """Rows of one second of event time."""
    times = step * SECOND + np.linspace(0, SECOND - 1, len(numbers)).astype(np.int64)
    return pa.table({"k": numbers, column: numbers, "t": pa.array(times, pa.timestamp("us", "UTC"))})


@pytest.mark.systems
def test_a_ttl_and_a_forecast(spark: SparkSession, tmp_path: Path) -> None:
    """Rows of `a` wait for a partner that comes 2 s later, or, every fourth one, 8 s later: too late."""
    numbers = [np.arange(step * KEYS, (step + 1) * KEYS) for step in range(-8, STEPS)]
    soon = [each[each % 4 != 0] for each in numbers]
    late = [each[each % 4 == 0] for each in numbers]
    a = [at(step, numbers[step + 8], "x") for step in range(STEPS)]
    b = [at(step, np.concatenate([soon[step + 6], late[step]]), "y") for step in range(STEPS)]
    declared = {"key": "k", "time": "t", "lateness": "0 seconds"}
    joined = sj.join(
        sj.stream(stream_of(spark, tmp_path / "a", a), name="a", ttl="5 seconds", columns=["x"], **declared),
        sj.stream(stream_of(spark, tmp_path / "b", b), name="b", ttl="5 seconds", columns=["y"], **declared),
        how="left",
        strict=True,
        buckets=2,
    )
    assert "a: bounded by loss" in joined.explain()
    found = run(joined, tmp_path / "checkpoint")
    metrics = [each["join"] for each in found.progress]
    pairs = sorted((row.k, row.y) for row in found.rows if row.y is not None)
    met = np.concatenate(soon[8 : 8 + STEPS - 2])
    assert pairs == [(k, k) for k in sorted(met.tolist())]
    lost = sorted(row.k for row in found.rows if row.y is None)
    # progress ends 1 µs before a whole second, so one row is just not too old
    assert sum(each["a_expired"] for each in metrics) == KEYS * (STEPS - 5) - 1
    assert lost == sorted(np.concatenate(late[8 : 8 + STEPS - 5]).tolist())
    settled = metrics[-3:]
    for predicted, measured in (("predicted_rows", "state_rows"), ("predicted_bytes", "state_bytes")):
        ours, theirs = (sum(each[name] for each in settled) for name in (predicted, measured))
        assert ours == pytest.approx(theirs, rel=0.2)
    monitor = metrics[-1]["monitor"]
    assert monitor["a_state_rows"] + monitor["b_state_rows"] == metrics[-1]["state_rows"]
    assert not any("the model expects" in said for said in joined.advice(metrics[-1]))
