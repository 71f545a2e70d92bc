"""The four papers, figure by figure, on this code: `python -m lab run papers`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lab.papers import driver, mjoin, pwjoin, ssbj
from lab.report.figures import ReportedExperiment, ReportPart

_INTRO = (
    "Four papers describe joins over streams. Here each of their experiments runs again on this library, "
    "with the papers' patterns of data, made from seeds. For each figure or table: what the paper says of "
    "it, what was run, our curves, and which of the statements hold. Every answer was compared with a "
    "batch join before a number of it was reported. The papers' machines are twenty and ten years old and "
    "their programs work tuple by tuple, so what is compared is always one way of working with another in "
    "the same run, never seconds with a paper's seconds."
)


def parts() -> Sequence[ReportPart]:
    """Of all four, in the order of the report."""
    return [part for module in (mjoin, pwjoin, driver, ssbj) for part in module.parts()]


def experiments() -> Iterator[ReportedExperiment]:
    """What this file adds to the lab."""
    yield ReportedExperiment(
        "papers",
        "every experiment of the four papers, with a report",
        "Four papers on stream joins, replayed",
        _INTRO,
        {
            "mjoin": "Metadata-aware MJoin",
            "pwjoin": "PWJoin: punctuations and windows",
            "driver": "MJoin: which input drives",
            "ssbj": "SSBJ: a stream and master data",
        },
        parts,
        required=40,
        seed=0,
        said_by="The paper says",
    )
