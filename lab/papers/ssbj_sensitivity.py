"""Figures 6(a) and 6(b) of the SSBJ paper: the switching factor, and the size of a segment."""

from __future__ import annotations

from lab.papers.ssbj_claims import (
    DATA,
    JOINS,
    PAPER,
    THIS,
    FigureClaims,
    at_most,
    because,
    lines,
    series,
    settings,
    table,
)
from lab.papers.ssbj_runs import PAIR, ROWS, Run, SsbjSetting, hit_rate, rate
from lab.report.figures import Context, Figure
from streamjoin.plot import Chart

_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
_SEGMENTS = (42, 60, 100, 200, 300)


def factor_settings(context: Context) -> dict[float, SsbjSetting]:
    """Switching factors; the short form has three."""
    factors, forms = ((0.25, 1.0, 4.0), (THIS,)) if context.quick else (_FACTORS, (PAPER, THIS))
    return {factor: SsbjSetting(0.02, forms, ROWS // 2, switching=factor) for factor in factors}


def segment_settings(context: Context) -> dict[int, SsbjSetting]:
    """Numbers of segments; with the most MESHJOIN would take minutes."""
    counts = (42, 100, 200) if context.quick else _SEGMENTS
    alone = (THIS,)
    return {
        segments: SsbjSetting(0.05, alone if context.quick or segments > 200 else PAIR, segments=segments)
        for segments in counts
    }


def switching(context: Context) -> list[Figure]:
    """Figure 6(a)."""
    said = FigureClaims("6a")
    found = settings(context, factor_settings(context))
    paper = "SSBJ as in the paper: the best rate with another factor by that with 1"
    return [
        Figure(
            "ssbj-6a",
            "SSBJ, figure 6(a): service rate for different switching factors",
            f"{JOINS} {DATA} Here {ROWS // 2:,} rows, skew 1, memory 2 % of them (the paper: 20 million, 1 "
            f"%). A value moves into the cache when its waiting tuples take more memory than its rows, "
            f"times the switching factor.",
            "The optimal switching factor is 1, which is as having none; with any other the service rate "
            "deteriorates quite markedly.",
            [
                because(
                    said.claim(
                        "one",
                        "the best rate with another factor by that with 1",
                        at_most(1),
                        _others(found, THIS),
                    ),
                    _why(found, THIS),
                ),
                because(
                    said.claim(
                        "markedly",
                        "with a factor of 4 the rate is lower: by that with 1",
                        ("<", 1, "times"),
                        [a.rate / b.rate for a, b in zip(found[4.0][THIS], found[1.0][THIS], strict=True)],
                    ),
                    _why(found, THIS),
                ),
                because(
                    said.claim("paper-form", paper, at_most(1), _others(found, PAPER)), _why(found, PAPER)
                )
                if PAPER in found[1.0]
                else said.open("paper-form", paper, at_most(1)),
            ],
            [
                Chart(
                    "Service rate, skew 1, memory 2 %",
                    "switching factor",
                    "tuples a second",
                    lines(found, rate),
                )
            ],
            table({f"{factor:g}": one for factor, one in found.items()}, "switching factor"),
            series=series(found),
        )
    ]


def _others(found: dict[float, Run], form: str) -> list[float]:
    repeats = range(len(found[1.0][form]))
    return [
        max(one[form][i].rate for factor, one in found.items() if factor != 1) / found[1.0][form][i].rate
        for i in repeats
    ]


def _why(found: dict[float, Run], form: str) -> str:
    each = [
        f"{factor:g}: {one[form][-1].stretch.w:,} tuples a turn, {hit_rate(one, form):.0%} hits, "
        f"{1e3 * one[form][-1].loop_s:.1f} ms"
        for factor, one in sorted(found.items())
    ]
    return f"by factor: {'; '.join(each)}"


def segment_size(context: Context) -> list[Figure]:
    """Figure 6(b)."""
    said = FigureClaims("6b")
    found = settings(context, segment_settings(context))
    by_size = {100 / 0.05 / segments: one for segments, one in found.items()}  # % of the memory
    sizes = sorted(by_size)
    ours = [_waiting_rate(by_size[size], THIS) for size in sizes]
    best = max(ours)
    largest, smallest = "the largest segment", "the smallest segment"
    peak = f"{sizes[ours.index(best)]:.0f} % of the memory is best"
    return [
        Figure(
            "ssbj-6b",
            "SSBJ, figure 6(b): service rate of the disk phase for different disk buffers",
            f"{JOINS} {DATA} Skew 1, memory 5 % of the master data (the paper: 1 %). The disk buffer holds "
            f"the segment of master data that was read last. Only tuples that waited for a segment count.",
            "The service rate grows with the disk buffer, as a read is shared by more tuples, up to a "
            "certain size; a larger one takes memory from the waiting tuples, and the rate sinks.",
            [
                because(
                    said.claim(
                        "smaller",
                        f"{smallest}: rate by that of the best",
                        ("<", 1, "times"),
                        [ours[0] / best],
                    ),
                    peak,
                ),
                because(
                    said.claim(
                        "larger", f"{largest}: rate by that of the best", ("<", 1, "times"), [ours[-1] / best]
                    ),
                    peak,
                ),
            ],
            [
                Chart(
                    "Tuples that waited, skew 1, memory 5 %",
                    "disk buffer, % of the memory",
                    "tuples a second",
                    lines(by_size, _waiting_rate),
                )
            ],
            table({f"{size:.0f} %": by_size[size] for size in sizes}, "disk buffer, of the memory"),
            series=series(found),
        )
    ]


def _waiting_rate(found: Run, form: str) -> float:
    return (1 - hit_rate(found, form)) * rate(found, form)
