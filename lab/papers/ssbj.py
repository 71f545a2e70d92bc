"""The paper on semi-stream joins (SSBJ), replayed: figures 4 to 6 on this library's local operator.

Each point of a picture is a setting (`ssbj_runs`) that MESHJOIN, SSBJ as in the paper and this library's form
run in one process, two settings at a time; answers are compared with a batch join. The paper's statements
about SSBJ are tested on this library's form, which keeps the master data in order; the paper's form has
claims of its own. Settings are kept, so figures share them. Cost: in full about 10 minutes on two cores.
"""

from __future__ import annotations

from collections.abc import Sequence

from lab.papers.ssbj_claims import together
from lab.papers.ssbj_model import LARGER, computed, memory_by_rate
from lab.papers.ssbj_rates import (
    by_memory,
    by_size,
    by_skew,
    memory_settings,
    other_data,
    size_settings,
    skew_settings,
)
from lab.papers.ssbj_sensitivity import factor_settings, segment_settings, segment_size, switching
from lab.report.figures import Context, Figure, ReportPart


def memories(context: Context) -> list[Figure]:
    """Figures 4(a), 5(a) and 5(f): more and less memory."""
    together(context, memory_settings(context), LARGER)
    return [*memory_by_rate(context), *by_memory(context)]


def sizes_and_skews(context: Context) -> list[Figure]:
    """Figures 5(b) and 5(c)."""
    together(context, skew_settings(context), size_settings(context))
    return [*by_size(context), *by_skew(context)]


def sensitivity(context: Context) -> list[Figure]:
    """Figures 6(a) and 6(b)."""
    together(context, segment_settings(context), factor_settings(context))
    return [*switching(context), *segment_size(context)]


def parts() -> Sequence[ReportPart]:
    """What the papers' run does of this paper."""
    return [
        ReportPart("ssbj-memory", "semi-stream join: memories", (48, 170), memories),
        ReportPart("ssbj-size-skew", "semi-stream join: sizes and skews", (40, 150), sizes_and_skews),
        ReportPart("ssbj-data", "semi-stream join: TPC-H and weather", (25, 100), other_data),
        ReportPart(
            "ssbj-sensitivity", "semi-stream join: switching factor and disk buffer", (60, 190), sensitivity
        ),
        ReportPart("ssbj-model", "semi-stream join: the cost model", (1, 110), computed),
    ]
