"""Figures 5(a) to 5(f) of the SSBJ paper: service rates by memory, size, skew and data; the cache."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from lab.experiment import Claim
from lab.papers.ssbj_ceiling import impossible
from lab.papers.ssbj_claims import (
    DATA,
    JOINS,
    MESH,
    PAPER,
    THIS,
    FigureClaims,
    at_least,
    at_most,
    because,
    lines,
    series,
    settings,
    table,
    turns,
    why_paper_form,
)
from lab.papers.ssbj_runs import ALL, LABELS, PAIR, ROWS, Run, SsbjSetting, hit_rate, rate, ratios
from lab.report.figures import Context, Figure
from streamjoin.errors import BadInput, InvalidJoin
from streamjoin.plot import Bars, Chart

MEMORIES = (0.01, 0.02, 0.05, 0.1)
_BY_MESH = "service rate in multiples of MESHJOIN's"
_FEWER = (
    "The paper has 100 times as many rows: a memory of the same share then holds the rows of a smaller part "
    "of all tuples by Zipf's law. So more tuples hit here."
)
_PAPER_FORM = "SSBJ as in the paper"


def by_memory(context: Context) -> list[Figure]:
    """Figures 5(a) and 5(f)."""
    found = settings(context, memory_settings(context))
    return [_rate_by_memory(found), _hits(found)]


def memory_settings(context: Context) -> dict[float, SsbjSetting]:
    """Memories at skew 1; the short form has two, and the paper's form only with the larger."""
    if context.quick:
        return {0.01: SsbjSetting(0.01, PAIR), 0.1: SsbjSetting(0.1)}
    return {memory: SsbjSetting(memory) for memory in MEMORIES}


def _rate_by_memory(found: dict[float, Run]) -> Figure:
    said = FigureClaims("5a")
    least, most = found[0.01], found[0.1]
    grows = [ten / one for ten, one in zip(ratios(most, THIS), ratios(least, THIS), strict=True)]
    small = f"{_PAPER_FORM}, memory 1 %: {_BY_MESH}"
    claims = [
        because(
            said.claim("1", f"memory 1 %: {_BY_MESH}", at_least(7), ratios(least, THIS)), turns(least, *PAIR)
        ),
        because(
            said.claim("10", f"memory 10 %: {_BY_MESH}", at_least(8), ratios(most, THIS)), turns(most, *PAIR)
        ),
        because(
            said.claim(
                "grows", "the advantage grows with memory: that at 10 % by that at 1 %", at_least(1), grows
            ),
            f"memory 1 %: {turns(least, *PAIR)}; memory 10 %: {turns(most, *PAIR)}",
        ),
        because(
            said.claim(
                "paper-form-10", f"{_PAPER_FORM}, memory 10 %: {_BY_MESH}", at_least(8), ratios(most, PAPER)
            ),
            why_paper_form(most),
        ),
        replace(
            because(
                said.claim("paper-form-1", small, at_least(7), ratios(least, PAPER)), why_paper_form(least)
            ),
            impossible=impossible(ROWS, 0.01, 7),
        )
        if PAPER in least
        else said.open("paper-form-1", small, at_least(7)),
    ]
    return Figure(
        "ssbj-5a",
        "SSBJ, figure 5(a): service rate for different memories",
        f"{JOINS} {DATA} Skew 1, memory 1 % to 10 % of the master data.",
        "SSBJ is 7 times faster than MESHJOIN with 1 % of the master data as memory, and 8 times with 10 %: "
        "the impact of the cache increases slightly with larger memory.",
        claims,
        [
            Chart(
                "Service rate, skew 1",
                "memory, % of the master data",
                "tuples a second",
                lines(found, rate, 100),
            )
        ],
        table({f"{memory:.0%}": one for memory, one in found.items()}, "memory"),
        series=series(found),
    )


def _hits(found: dict[float, Run]) -> Figure:
    said = FigureClaims("5f")
    hits = {memory: hit_rate(one, THIS) for memory, one in found.items()}
    of_tuples = "stream tuples answered by the cache"
    flat = "it flattens: growth from 5 to 10 % of memory by growth from 1 to 2 % (both double it)"
    paper = hit_rate(found[0.1], PAPER)
    claims = [
        said.claim("1", f"memory 1 %: {of_tuples}", at_least(0.39, "share"), [hits[0.01]]),
        said.claim("10", f"memory 10 %: {of_tuples}", at_least(0.54, "share"), [hits[0.1]]),
        said.claim("paper-form-10", f"{_PAPER_FORM}, 10 %: {of_tuples}", at_least(0.54, "share"), [paper]),
    ]
    if 0.05 in hits:
        late, early = hits[0.1] - hits[0.05], hits[0.02] - hits[0.01]
        claims.append(said.claim("flattens", flat, ("<", 1, "times"), [late / max(early, 1e-9)]))
    else:
        claims.append(said.open("flattens", flat, ("<", 1, "times")))
    cached = {label: line for label, line in lines(found, _percent, 100).items() if label != LABELS[MESH]}
    return Figure(
        "ssbj-5f",
        "SSBJ, figure 5(f): stream tuples answered by the cache",
        f"{JOINS} {DATA} Skew 1. Counted are tuples that were answered without waiting for master data.",
        "39 % of the stream tuples are processed through the cache with 1 % of the master data as memory, "
        "growing to 54 % with 9 %, from where on the share does not grow.",
        [because(each, _hit_rates(found)) for each in claims],
        [Chart("Answered by the cache, skew 1", "memory, % of the master data", "% of the tuples", cached)],
        notes=[_FEWER],
        series={f"{memory}": {name: hit_rate(one, name) for name in one} for memory, one in found.items()},
    )


def _hit_rates(found: dict[float, Run]) -> str:
    each = [
        f"{memory:.0%}: "
        + ", ".join(f"{LABELS[name]} {hit_rate(one, name):.0%}" for name in one if name != MESH)
        for memory, one in sorted(found.items())
    ]
    return f"hits by memory: {'; '.join(each)}"


def _percent(found: Run, name: str) -> float:
    return 100 * hit_rate(found, name)


# Size and skew


def size_settings(context: Context) -> dict[int, SsbjSetting]:
    """Sizes with the memory that is 10 % of the largest."""
    sizes, forms = ((ROWS // 5,), PAIR) if context.quick else ((ROWS // 5, ROWS // 2), ALL)
    return {rows: SsbjSetting(0.1 * ROWS / rows, forms, rows) for rows in sizes} | {ROWS: SsbjSetting(0.1)}


def by_size(context: Context) -> list[Figure]:
    """Figure 5(b): the memory stays, the master data grows."""
    said = FigureClaims("5b")
    found = settings(context, size_settings(context))
    sizes = list(found)
    small, large = found[sizes[0]], found[ROWS]
    sinks = [one / other for one, other in zip(ratios(large, THIS), ratios(small, THIS), strict=True)]
    return [
        Figure(
            "ssbj-5b",
            "SSBJ, figure 5(b): service rate for different sizes of the master data",
            f"{JOINS} {DATA} Skew 1; the memory is always 13 MB: 50 % of {sizes[0]:,} rows, 10 % of "
            f"{ROWS:,}.",
            "With the same memory SSBJ performs 7 times better than MESHJOIN for 20 million rows and 5.7 "
            "times better for 100 million: the advantage sinks as the master data grows.",
            [
                because(
                    said.claim(
                        "small",
                        f"the smallest (memory 50 % of it): {_BY_MESH}",
                        at_least(7),
                        ratios(small, THIS),
                    ),
                    turns(small, *PAIR),
                ),
                because(
                    said.claim(
                        "large", f"five times as large: {_BY_MESH}", at_least(5.7), ratios(large, THIS)
                    ),
                    turns(large, *PAIR),
                ),
                because(
                    said.claim(
                        "sinks",
                        "the advantage sinks as the master data grows: large by small",
                        at_most(1),
                        sinks,
                    ),
                    f"the smallest: {turns(small, *PAIR)}; the largest: {turns(large, *PAIR)}",
                ),
            ],
            [
                Chart(
                    "Service rate, memory 13 MB, skew 1",
                    "rows of master data",
                    "tuples a second",
                    lines(found, rate),
                )
            ],
            table({f"{rows:,}": one for rows, one in found.items()}, "rows"),
            series=series(found),
        )
    ]


def skew_settings(context: Context) -> dict[float, SsbjSetting]:
    """Skews with 10 % of memory; the paper's form at some."""
    if context.quick:
        return {0.0: SsbjSetting(0.1, PAIR, skew=0.0), 1.0: SsbjSetting(0.1)}
    skews = {0.0: ALL, 0.25: PAIR, 0.5: ALL, 0.75: PAIR, 1.0: ALL}
    return {skew: SsbjSetting(0.1, forms, skew=skew) for skew, forms in skews.items()}


def by_skew(context: Context) -> list[Figure]:
    """Figure 5(c)."""
    said = FigureClaims("5c")
    found = settings(context, skew_settings(context))
    even, most = found[0.0], found[1.0]
    mesh = [one.rate / other.rate for one, other in zip(most[MESH], even[MESH], strict=True)]
    slight = f"with even a slight skew (0.25) SSBJ is faster: {_BY_MESH}"
    rising = "the advantage grows with every step of skew: the least growth of its ratio"
    by_mesh = [rate(one, THIS) / rate(one, MESH) for _, one in sorted(found.items())]
    return [
        Figure(
            "ssbj-5c",
            "SSBJ, figure 5(c): service rate for different skews of the stream",
            f"{JOINS} {DATA} Exponent 0 (all values alike) to 1, memory 10 % of the master data.",
            "As soon as the data has even a slight skew SSBJ performs better than MESHJOIN, the more the "
            "more skew; at skew 1 about 8 times better. MESHJOIN does not exploit skew, its service rate "
            "decreases slightly.",
            [
                because(
                    said.claim("1", f"skew 1: {_BY_MESH}", at_least(8), ratios(most, THIS)),
                    turns(most, *PAIR),
                ),
                said.claim("slight", slight, (">", 1, "times"), ratios(found[0.25], THIS))
                if 0.25 in found
                else said.open("slight", slight, (">", 1, "times")),
                because(
                    said.claim(
                        "grows", rising, (">", 1, "times"), [min(b / a for a, b in pairwise(by_mesh))]
                    ),
                    f"multiples by skew: {', '.join(f'{each:.1f}' for each in by_mesh)}",
                ),
                because(
                    said.claim(
                        "meshjoin", "MESHJOIN does not gain by skew: skew 1 by skew 0", at_most(1), mesh
                    ),
                    f"skew 0: {turns(even, MESH)}; skew 1: {turns(most, MESH)}: equal values of a chunk are "
                    f"matched once for all of them, so fewer keys are searched",
                ),
                because(
                    said.claim(
                        "paper-form", f"{_PAPER_FORM}, skew 1: {_BY_MESH}", at_least(8), ratios(most, PAPER)
                    ),
                    why_paper_form(most),
                ),
                because(
                    said.claim(
                        "paper-form-faster",
                        f"{_PAPER_FORM} is faster than MESHJOIN at skew 1",
                        (">", 1, "times"),
                        ratios(most, PAPER),
                    ),
                    why_paper_form(most),
                ),
            ],
            [
                Chart(
                    "Service rate, memory 10 %",
                    "skew (Zipf's exponent)",
                    "tuples a second",
                    lines(found, rate),
                )
            ],
            table({f"{skew:g}": one for skew, one in found.items()}, "skew"),
            series=series(found),
        )
    ]


# Other data


def other_data(context: Context) -> list[Figure]:
    """Figures 5(d) and 5(e)."""
    return [on_tpch(context), on_weather(context)]


def on_tpch(context: Context) -> Figure:
    """Figure 5(d)."""
    said = FigureClaims("5d")
    says = {0.1: f"memory 10 %: {_BY_MESH}", 0.01: f"memory 1 %: {_BY_MESH}"}
    targets = {0.1: 7.4, 0.01: 3.4}
    customers, forms = 150_000, PAIR if context.quick else ALL
    wanted = {
        memory: SsbjSetting(memory, forms, customers, 0.0, "tpch")
        for memory in ((0.1,) if context.quick else (0.01, 0.1))
    }
    zipf = {} if context.quick else {"10 %, skew 1": SsbjSetting(0.1, ALL, customers, 1.0, "tpch-zipf")}
    title = "SSBJ, figure 5(d): service rate on TPC-H"
    statement = (
        "SSBJ performs 7.4 times better than MESHJOIN with 10 % of the customers as memory, and 3.4 times "
        "better with 1 %."
    )
    setting = (
        f"{JOINS} TPC-H at scale factor 1: {customers:,} customers of 223 bytes are the master data (the "
        f"paper: 15 million), orders of 138 bytes the stream. The benchmark draws an order's customer "
        f"evenly from two thirds of all; beside it orders whose customers follow Zipf's law."
    )
    try:
        found = settings(context, wanted)
        others = settings(context, zipf)
    except (InvalidJoin, BadInput) as why:
        gone = [
            said.open(f"{memory:.0%}".rstrip("%"), says[memory], at_least(target), str(why))
            for memory, target in targets.items()
        ]
        return Figure("ssbj-5d", title, setting, statement, gone)
    claims: list[Claim] = []
    for memory, target in targets.items():
        name = f"{memory:.0%}".rstrip("%")
        if memory not in found:
            claims.append(said.open(name, says[memory], at_least(target)))
            continue
        made = said.claim(name, says[memory], at_least(target), ratios(found[memory], THIS))
        even = "orders come evenly from two thirds of the customers: hardly one pays for a place in the cache"
        claims.append(because(made, f"{even}; {turns(found[memory], *PAIR)}"))
    skewed = f"orders with skew 1, memory 10 %: {_BY_MESH}"
    if others:
        made = said.claim("skewed", skewed, at_least(7.4), ratios(others["10 %, skew 1"], THIS))
        claims.append(because(made, turns(others["10 %, skew 1"], *PAIR)))
    else:
        claims.append(said.open("skewed", skewed, at_least(7.4)))
    shown = {f"{memory:.0%}": one for memory, one in found.items()} | others
    return _bars("ssbj-5d", title, setting, statement, claims, shown)


def on_weather(context: Context) -> Figure:
    """Figure 5(e)."""
    said = FigureClaims("5e")
    memories = (0.1,) if context.quick else (0.05, 0.1)
    forms = PAIR if context.quick else ALL
    found = settings(
        context, {memory: SsbjSetting(memory, forms, 100_000, 0.0, "weather") for memory in memories}
    )
    least = min(memories, key=lambda memory: min(ratios(found[memory], THIS)))
    claims = [
        because(
            said.claim(
                "ours",
                f"under all memory settings: the least {_BY_MESH}",
                (">", 1, "times"),
                ratios(found[least], THIS),
            ),
            turns(found[least], *PAIR),
        )
    ]
    paper = f"{_PAPER_FORM}, memory 10 %: {_BY_MESH}"
    if PAPER in found[0.1]:
        made = said.claim("paper-form", paper, (">", 1, "times"), ratios(found[0.1], PAPER))
        claims.append(because(made, why_paper_form(found[0.1])))
    else:
        claims.append(said.open("paper-form", paper, (">", 1, "times")))
    return _bars(
        "ssbj-5e",
        "SSBJ, figure 5(e): service rate on weather reports",
        f"{JOINS} Weather-like reports, made from a seed as the paper's files are not at hand: 100,000 rows "
        f"of 128 bytes (the paper: 20 million) joined with a stream on their longitude, 0 to 36,000, many "
        f"to many: a tuple has about 30 results.",
        "SSBJ outperforms MESHJOIN under all memory settings.",
        claims,
        {f"{memory:.0%}": one for memory, one in found.items()},
    )


def _bars(
    id_: str, title: str, setting: str, statement: str, claims: list[Claim], shown: dict[str, Run]
) -> Figure:
    forms = [name for name in ALL if all(name in one for one in shown.values())]
    bars = {LABELS[name]: [rate(one, name) / rate(one, MESH) for one in shown.values()] for name in forms}
    groups = [f"memory {what}" for what in shown]
    picture = Bars("Service rate with the same memory", "times MESHJOIN's", groups, bars)
    return Figure(
        id_, title, setting, statement, claims, [picture], table(shown, "memory"), series=series(shown)
    )
