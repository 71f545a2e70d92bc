"""Metrics of the buckets of a join, taken out of its results and observed with each micro-batch.

Spark computes what is observed for every row that passes, results too, and each sum costs 8 ns of a row and
more beyond about 40 of them: 104 sums took a third of a micro-batch of NEXMark's q23. So a metric that cannot
be other than zero in a join is a constant, and what the monitor saw is collected in one list (13 ns a row)
and added up at the end: one field `seen`, with a number for each name.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamjoin.spark.outputs import METRIC

VALUE = "_m"


def observed(
    emitted: DataFrame,
    join: str,
    metrics: Sequence[str],
    *,
    seen: Sequence[str] = (),
    always_zero: Collection[str] = (),
) -> DataFrame:
    """What the buckets of a join emit, without their metrics: those are observed."""
    measures = [
        (F.lit(0).cast("long") if name in always_zero else _over_buckets(i, name)).alias(name)
        for i, name in enumerate(metrics)
    ]
    if seen:
        measures.append(_by_name(len(metrics), seen).alias("seen"))
    found = emitted.observe(f"streamjoin_{join}", *measures)
    return found.where(F.col(METRIC).isNull()).drop(METRIC, VALUE)


def _over_buckets(number: int, name: str) -> Column:
    """A metric of all buckets."""
    own = F.when(F.col(METRIC) == number, F.col(VALUE))
    return F.coalesce(F.max(own) if _is_widest(name) else F.sum(own), F.lit(0))


def _by_name(first: int, names: Sequence[str]) -> Column:
    """The metrics from number `first` on, as a map."""
    told = F.struct((F.col(METRIC) - first).alias("number"), F.col(VALUE).alias("value"))
    widest = F.array(*(F.lit(_is_widest(name)) for name in names))

    def with_one(totals: Any, one: Any) -> Any:
        def grown(total: Any, number: Any) -> Any:
            both = F.when(widest[number], F.greatest(total, one["value"])).otherwise(total + one["value"])
            return F.when(number == one["number"], both).otherwise(total)

        return F.transform(totals, grown)

    return F.aggregate(
        F.collect_list(F.when(F.col(METRIC) >= first, told)),
        F.array_repeat(F.lit(0).cast("long"), len(names)),
        with_one,
        lambda totals: F.map_from_arrays(F.array(*map(F.lit, names)), totals),
    )


def _is_widest(name: str) -> bool:
    """Whether the largest of all buckets counts, not their sum."""
    return name.endswith("_slack")
