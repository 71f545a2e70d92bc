"""Observed metrics: the figures of a join's buckets, taken out of its results and observed with each
micro-batch.

They are `observedMetrics["streamjoin_<join name>"]` of a batch's progress; docs/metrics.md says what each is.

Spark evaluates an observed metric for every row, results too: each sum costs 8 ns a row, and more beyond
about 40 of them (104 sums took a third of a micro-batch of NEXMark's q23). So a metric that is always zero in
a join is a constant, and the figures of the constraint monitor are collected in one list (13 ns a row) and
added up at the end: one field `monitor`, a map with a number for each name.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamjoin.spark.metrics_log import PREFIX
from streamjoin.spark.outputs import METRIC

VALUE = "_m"


def observed(
    emitted: DataFrame,
    join: str,
    metrics: Sequence[str],
    *,
    monitor: Sequence[str] = (),
    always_zero: Collection[str] = (),
) -> DataFrame:
    """The rows that the buckets of a join emit, without their metrics: those are observed."""
    measures = [
        (F.lit(0).cast("long") if name in always_zero else _over_buckets(i, name)).alias(name)
        for i, name in enumerate(metrics)
    ]
    if monitor:
        measures.append(_by_name(len(metrics), monitor).alias("monitor"))
    found = emitted.observe(f"{PREFIX}{join}", *measures)
    return found.where(F.col(METRIC).isNull()).drop(METRIC, VALUE)


def _over_buckets(number: int, name: str) -> Column:
    """One metric, over all buckets."""
    own = F.when(F.col(METRIC) == number, F.col(VALUE))
    return F.coalesce(F.max(own) if _is_maximum(name) else F.sum(own), F.lit(0))


def _by_name(first: int, names: Sequence[str]) -> Column:
    """The metrics from number `first` on, as a map."""
    emitted = F.struct((F.col(METRIC) - first).alias("number"), F.col(VALUE).alias("value"))
    maxima = F.array(*(F.lit(_is_maximum(name)) for name in names))

    def with_one(totals: Any, one: Any) -> Any:
        def grown(total: Any, number: Any) -> Any:
            both = F.when(maxima[number], F.greatest(total, one["value"])).otherwise(total + one["value"])
            return F.when(number == one["number"], both).otherwise(total)

        return F.transform(totals, grown)

    return F.aggregate(
        F.collect_list(F.when(F.col(METRIC) >= first, emitted)),
        F.array_repeat(F.lit(0).cast("long"), len(names)),
        with_one,
        lambda totals: F.map_from_arrays(F.array(*map(F.lit, names)), totals),
    )


def _is_maximum(name: str) -> bool:
    """Whether buckets are combined by maximum, not by sum."""
    return name.endswith("_slack")
