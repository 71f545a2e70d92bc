"""Observed metrics: the figures of a join's buckets, taken out of its results and observed with each
micro-batch.

Each bucket emits one row whose last column has all its figures as one text; on results that column is null.
Spark evaluates an observed metric for every row, results too: a sum for each figure cost 8 ns a row each,
half of the first micro-batch to compile, and seconds to plan. So there is one list of texts, which
`plan.figures` parses when someone looks.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamjoin.plan.figures import BUCKETS, NAMES, PREFIX, names_text
from streamjoin.spark.outputs import FIGURES


def observed(
    emitted: DataFrame, join: str, metrics: Sequence[str], *, monitor: Sequence[str] = ()
) -> DataFrame:
    """The rows that the buckets of a join emit, without their figures: those are observed."""
    found = emitted.observe(
        f"{PREFIX}{join}",
        F.lit(names_text(metrics, monitor)).alias(NAMES),
        F.collect_list(FIGURES).alias(BUCKETS),
    )
    return found.where(F.col(FIGURES).isNull()).drop(FIGURES)
