"""The same work on this library and on its peers, in one run: `python -m lab run peers`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lab.peers import basics, nexmark, tpch
from lab.report.figures import ReportedExperiment, ReportPart

_INTRO = (
    "The same joins, from the same files, on the same two cores, in one run: this library, Spark's own "
    "joins (stream-stream on the heap and on RocksDB, stream-static), Apache Flink's SQL (heap and "
    "RocksDB, with checkpoints) and bytewax. Each engine runs in an environment and a process of its own "
    "with the settings its documentation recommends, one at a time, in turn. Every answer is compared "
    "with a batch join before its time counts. A peer that is missing, fails or gives another answer is "
    "named as such and is never counted as slower. Rates are rows of input by the seconds of the job "
    "without the engine's start, which is reported apart, as is the time of reading the files alone."
)


def parts() -> Sequence[ReportPart]:
    """Of all works, in the order of the report."""
    return [part for module in (nexmark, basics, tpch) for part in module.parts()]


def experiments() -> Iterator[ReportedExperiment]:
    """What this file adds to the lab."""
    yield ReportedExperiment(
        "peers",
        "the same work on this library, Spark, Flink and bytewax, with a report",
        "StreamJoin beside Spark, Flink and bytewax",
        _INTRO,
        {
            "nexmark": "NEXMark: an auction house",
            "basics": "One join at a time",
            "tpch": "TPC-H: orders, their lines, and customers",
        },
        parts,
        required=7,
        seed=0,
        said_by="What is asked",
    )
