"""The MJoin paper's figures 8 to 11 on this code: scheduling, MJoin beside XJoin, when to purge.

The join of news and access records (`news_runs`), in single tuples as in the paper and in whole batches
as this library works. CPU time until so many results are there, tuples held meanwhile, and the work
counted: an answer that is not the batch join's stops the part. Cost on 2 quiet cores: some 5 minutes in full,
50 s in the short form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import mean, median

from lab.experiment import Claim, Op, Statement
from lab.papers.news_runs import (
    News,
    NewsRun,
    Order,
    SingleTuples,
    local,
    marks_of,
    medians,
    news,
    rounds,
    time_ratio,
)
from lab.report.figures import Context, Figure, ReportPart, Table
from streamjoin.join.strategies.driver import Driver, Priority, RandomInput
from streamjoin.join.strategies.purge import PurgeEvery
from streamjoin.local.join import LocalRun
from streamjoin.plot import Chart, Panels

ORDERS: tuple[Order, ...] = ("ordered", "random")
MARKS = 10
_MANY = 100_000  # results, above which an axis counts millions
OURS, DEFAULT = "priority-driven + value-oriented", "random + sequential"
MJOIN, IMMEDIATE, XJOIN, SPILLING = "MJoin", "MJoin, immediate purging", "XJoin", "XJoin with 32 MB of memory"
Runs = dict[str, list[NewsRun]]


@dataclass(frozen=True)
class NewsGrouping:
    """How tuples are taken: one by one, or all of an input that wait in one step."""

    name: str
    single: bool
    items_a_batch: int
    items: tuple[int, int]  # quick, full
    rounds: tuple[int, int]

    def priority(self) -> Driver:
        return SingleTuples(Priority(_TURN)) if self.single else Priority()

    def random(self) -> Driver:
        return RandomInput(1 if self.single else None)

    def data(self, order: Order, *, quick: bool) -> News:
        return news(self.items[0 if quick else 1], order, self.items_a_batch)

    def how_often(self, *, quick: bool) -> int:
        return self.rounds[0 if quick else 1]


_TURN = 100  # tuples of an input before it is the other's turn, in single tuples
SINGLE = NewsGrouping("single tuples", True, 100, (400, 1_000), (1, 3))
BATCHES = NewsGrouping("whole batches", False, 10_000, (100_000, 400_000), (3, 5))
FORMS = (SINGLE, BATCHES)

_STREAMS = (
    "News items are joined with the records of who read them, about 10 for each item; an item's records are "
    "over when it leaves the 10 latest, and a punctuation says so. "
)
_SIZES = (
    "Single tuples: {0:,} items, every tuple a step of its own, as in the paper. Whole batches: {1:,} items, "
    "10,000 of them in a batch, of which all news (or all records) are one vectorised step, as this library "
    "works. Time is CPU time of the process, the end of the inputs included; median of {2} and {3} rounds "
    "with the order rotated."
)


def _sizes(*, quick: bool) -> str:
    at = 0 if quick else 1
    return _SIZES.format(SINGLE.items[at], BATCHES.items[at], SINGLE.rounds[at], BATCHES.rounds[at])


def _says(figure: str, name: str, text: str, op: Op, target: float, unit: str = "times") -> Statement:
    return Statement(f"mjoin-{figure}-{name}", text, f"MJoin, figure {figure}", op, target, unit)


def _short(form: NewsGrouping) -> str:
    return "single" if form.single else "batches"


def _time_chart(title: str, runs: Mapping[str, Sequence[NewsRun]], marks: Sequence[int]) -> Chart:
    unit, by = ("million result tuples", 1e6) if marks[-1] > _MANY else ("result tuples", 1.0)
    x = [0, *(mark / by for mark in marks)]
    lines = {name: (x, [0, *(1000 * s for s in medians(each, marks))]) for name, each in runs.items()}
    return Chart(title, unit, "CPU milliseconds", lines)


def _held_chart(title: str, runs: Mapping[str, NewsRun]) -> Chart:
    many = max(run.rows[-1] for run in runs.values()) > _MANY
    unit, by = ("million result tuples", 1e6) if many else ("result tuples", 1.0)
    lines = {name: ([r / by for r in run.samples[0]], run.samples[1]) for name, run in runs.items()}
    return Chart(title, unit, "tuples held", lines)


def _opened(claim: Claim, why: str) -> Claim:
    return replace(claim, measured=None, low=None, high=None, runs=0, holds=None, why=why)


def _explained(claim: Claim, why: str) -> Claim:
    """A reason where the claim does not hold."""
    return claim if claim.holds is not False else replace(claim, why=why)


# Figure 8


def scheduling(context: Context) -> Sequence[Figure]:
    """Priority-driven and value-oriented beside random and sequential scheduling."""
    claims: list[Claim] = []
    pictures, rows, series = [], [], {}
    for form in FORMS:
        charts = []
        for order in ORDERS:
            data = form.data(order, quick=context.quick)
            marks = marks_of(data, MARKS)
            found = rounds(_schedulers(form), data, form.how_often(quick=context.quick), context.step)
            charts.append(_time_chart(f"{order} arrival, {form.name}", found, marks))
            claims += _scheduling_claims(form, order, found, marks)
            series[f"{order}, {form.name}"] = {n: medians(each, marks) for n, each in found.items()}
            rows += [_work_row(form, order, name, each) for name, each in found.items()]
        pictures.append(Panels(charts))
    columns = ("arrival", "form", "scheduling", "CPU ms", "steps", "records stored", "tuples that waited")
    return [
        Figure(
            "mjoin-8",
            "MJoin, figure 8: which input and which tuple next",
            _STREAMS + "Ordered: items come in the order of their numbers; random: up to 50 places off. "
            "Priority-driven: up to a turn of news, then up to a turn of records; value-oriented: tuples "
            "first whose key the other input has punctuated. Punctuations purge at once and are propagated. "
            + _sizes(quick=context.quick),
            "In both cases, priority-driven stream scheduling with value-oriented tuple scheduling always "
            "outperforms random stream scheduling with sequential tuple scheduling.",
            claims,
            pictures,
            Table(columns, rows),
            (_NOTE_8,),
            series,
        )
    ]


def _schedulers(form: NewsGrouping) -> dict[str, Callable[[], LocalRun]]:
    return {
        OURS: lambda: local("mjoin_1np", driver=form.priority()),
        DEFAULT: lambda: local("mjoin_1np", driver=form.random(), order="sequential"),
    }


def _scheduling_claims(form: NewsGrouping, order: Order, found: Runs, marks: Sequence[int]) -> list[Claim]:
    time = _says(
        "8",
        f"time-{order}-{_short(form)}",
        f"CPU time to output the same tuples, {order} arrival, {form.name}: priority + value-oriented by "
        "random + sequential, worst of ten marks",
        "<",
        1,
    )
    ratios = [a / b for a, b in zip(medians(found[OURS], marks), medians(found[DEFAULT], marks), strict=True)]
    claims = [
        _explained(time_ratio(time, found[OURS], found[DEFAULT], marks, at=ratios.index(max(ratios))), _WHY_8)
    ]
    stored = {name: each[0].counters["access_stored"] for name, each in found.items()}
    if order == "ordered":
        says = "records stored with priority-driven scheduling, ordered arrival"
        claims.append(
            _says("8", f"stored-ordered-{_short(form)}", f"{says}, {form.name}", "==", 0, "tuples").measured(
                [stored[OURS]]
            )
        )
    else:
        says = "records stored because their news had not come, by those with random scheduling"
        claims.append(
            _says(
                "8", f"stored-random-{_short(form)}", f"{says}, random arrival, {form.name}", "<", 1
            ).measured([stored[OURS] / max(stored[DEFAULT], 1)])
        )
    return claims


_NOTE_8 = (
    "The paper's gain is the cost of storing records that come before their news and of finding them again: "
    "counted in the table. In single tuples a step costs about half a millisecond of Python whatever it "
    "stores, so that is a small part of the time, and of one tuple in a step none can be put first."
)
_WHY_8 = (
    "fewer records are stored, but storing one is a small part of a step here: in a profile of single tuples "
    "3 % of the time, while looking which tuples the other input waits for (value-oriented) takes 11 %; in "
    "whole batches storing is one append, and value-oriented scheduling makes two steps of one"
)


def _work_row(
    form: NewsGrouping, order: Order, name: str, runs: Sequence[NewsRun]
) -> tuple[str | float | int, ...]:
    run = runs[0]
    waited = run.counters["news_reordered"] + run.counters["access_reordered"]
    spent = round(1000 * median(each.cpu_s[-1] for each in runs))
    return order, form.name, name, spent, run.turns, run.counters["access_stored"], waited


# Figures 9 to 11


def against_xjoin(context: Context) -> Sequence[Figure]:
    """MJoin beside XJoin in time and state, and its two ways to purge."""
    runs: dict[str, Runs] = {}
    marks: dict[str, list[int]] = {}
    for form in FORMS:
        data = form.data("random", quick=context.quick)
        contenders = _operators(form)
        if form.single:
            del contenders[SPILLING]  # the least memory that may be given is more than this state
        marks[form.name] = marks_of(data, MARKS)
        runs[form.name] = rounds(contenders, data, form.how_often(quick=context.quick), context.step)
    ordered = BATCHES.data("ordered", quick=context.quick)
    both = {name: make for name, make in _operators(BATCHES).items() if name in (MJOIN, XJOIN)}
    in_order = rounds(both, ordered, 1, lambda text: context.step(f"ordered: {text}"))
    return [
        _figure_9(runs, marks, quick=context.quick),
        _figure_10(runs, in_order, quick=context.quick),
        _figure_11(runs, marks, quick=context.quick),
    ]


def _operators(form: NewsGrouping) -> dict[str, Callable[[], LocalRun]]:
    mjoin = partial(local, "mjoin_1np", propagate=False)
    return {
        MJOIN: lambda: mjoin(driver=form.priority(), purge=PurgeEvery(100)),
        XJOIN: lambda: local("xjoin", driver=form.priority()),
        IMMEDIATE: lambda: mjoin(driver=form.priority(), purge="immediate"),
        SPILLING: lambda: local("xjoin", driver=form.priority(), memory="32 MB"),
    }


_NEEDS_MORE = "needs 4 million results: run without --quick"
_NO_PROPAGATION = "Random arrival; MJoin purges after every 100 punctuations and passes none on. "


def _figure_9(runs: Mapping[str, Runs], marks: Mapping[str, list[int]], *, quick: bool) -> Figure:
    claims: list[Claim] = []
    for form in FORMS:
        found, at = runs[form.name], marks[form.name]
        early = f"CPU time of MJoin by XJoin after a tenth of the results, {form.name}"
        late = f"CPU time of MJoin by XJoin for all results, {form.name}"
        grows = f"XJoin's CPU time for a result, the last fifth of the run by the first, {form.name}"
        name = _short(form)
        claims += [
            time_ratio(_says("9", f"early-{name}", early, ">", 1), found[MJOIN], found[XJOIN], at, at=0),
            _explained(
                time_ratio(_says("9", f"late-{name}", late, "<", 1), found[MJOIN], found[XJOIN], at), _WHY_9
            ),
            _explained(
                _says("9", f"grows-{name}", grows, ">", 1).measured([r.growth() for r in found[XJOIN]]),
                _WHY_GROWS,
            ),
        ]
    found, at = runs[BATCHES.name], marks[BATCHES.name]
    less = "CPU time of MJoin by XJoin that overflows its memory, all results"
    more = "the same ratio by the ratio without overflow"
    overflow = time_ratio(_says("9", "overflow", less, "<", 1), found[MJOIN], found[SPILLING], at)
    ratios = [b.cpu_s[-1] / a.cpu_s[-1] for a, b in zip(found[SPILLING], found[XJOIN], strict=True)]
    claims += [overflow, _says("9", "overflow-more", more, "<", 1).measured(ratios)]
    if quick:
        late = f"mjoin-9-late-{_short(BATCHES)}"
        claims = [_opened(claim, _NEEDS_MORE) if claim.id == late else claim for claim in claims]
    shown = (MJOIN, XJOIN, SPILLING)
    return Figure(
        "mjoin-9",
        "MJoin, figure 9: time of MJoin and of XJoin, which keeps everything",
        _STREAMS + _NO_PROPAGATION + "XJoin with 32 MB writes what is more to disk, and joins it when the "
        "inputs have ended. " + _sizes(quick=quick),
        "Until some threshold (7,500 results) MJoin costs somewhat more time than XJoin, as purging costs "
        "more than the longer probing of XJoin; as more data streams in, it costs less. When memory overflow "
        "occurs in XJoin, MJoin saves more.",
        claims,
        [
            _time_chart(
                f"Time to output tuples, {form.name}",
                {name: runs[form.name][name] for name in shown if name in runs[form.name]},
                marks[form.name],
            )
            for form in FORMS
        ],
        None,
        _NOTES_9,
        {f.name: {n: medians(each, marks[f.name]) for n, each in runs[f.name].items()} for f in FORMS},
    )


_NOTES_9 = (
    (
        "XJoin's steep end with 32 MB is its last stage: pairs with what is on disk. With little memory it "
        "reads runs there more than once, so this is XJoin as it is here, not the least it could cost."
    ),
    (
        "Where MJoin does not win: in turns of 20 to 10,000 tuples and up to 2 million results XJoin without "
        "overflow was cheaper in every size tried; the size shown was chosen so that it has the threshold. "
        "Overflowing 8 MB in turns of 1,000, MJoin took 1.11 of XJoin's time at 200,000 results and 0.79 at "
        "400,000."
    ),
)
_WHY_9 = (
    "XJoin's probing hardly grows here: a lookup is a search in sorted runs, not a scan of a hash "
    "bucket that fills up (profile, 3,300 probes: 1.7 s of XJoin, 1.5 s of MJoin); MJoin asks for every "
    "tuple whether its key is punctuated, a third of its time. In whole batches the threshold is some 3 "
    "million results"
)
_WHY_GROWS = "a key is looked up in sorted runs, long ones by an index: ten times the state hardly costs more"


def _figure_10(runs: Mapping[str, Runs], in_order: Runs, *, quick: bool) -> Figure:
    random, ordered = runs[BATCHES.name], in_order
    shares = {
        "random": [a / b for a, b in zip(random[MJOIN][0].held, random[XJOIN][0].held, strict=True)],
        "ordered": [a / b for a, b in zip(ordered[MJOIN][0].held, ordered[XJOIN][0].held, strict=True)],
    }
    at_end = "tuples MJoin holds by those XJoin holds, mean of the last half"
    single = runs[SINGLE.name]
    one_by_one = [a / b for a, b in zip(single[MJOIN][0].held, single[XJOIN][0].held, strict=True)]
    claims = [
        _says("10", "random", f"{at_end}, random arrival", "<", 0.5).measured([_late(shares["random"])]),
        _says("10", "ordered", f"{at_end}, ordered arrival", "<", 0.5).measured([_late(shares["ordered"])]),
        _says("10", "single", f"{at_end}, random arrival, single tuples", "<", 0.5).measured(
            [_late(one_by_one)]
        ),
        _says(
            "10", "more", "that share, last half by first half: it falls as data streams in", "<", 1
        ).measured([_late(shares["random"]) / mean(shares["random"][: len(shares["random"]) // 2])]),
        _says(
            "10",
            "similar",
            "share saved with ordered by that with random arrival, least of both ways",
            ">=",
            0.9,
        ).measured([_alike(1 - _late(shares["ordered"]), 1 - _late(shares["random"]))]),
    ]
    charts = [
        _held_chart(f"{order} arrival", {name: found[name][0] for name in (MJOIN, XJOIN)})
        for order, found in (("random", random), ("ordered", ordered))
    ]
    return Figure(
        "mjoin-10",
        "MJoin, figure 10: tuples held by MJoin and by XJoin",
        _STREAMS
        + "Tuples in the state after each of the whole batches. "
        + _NO_PROPAGATION
        + _sizes(quick=quick),
        "For random arrival, by getting rid of no-longer-needed data in a timely manner, the memory overhead "
        "can be significantly reduced as more data streams in. Ordered arrival is similar.",
        claims,
        [Panels(charts)],
        None,
        ('"Significantly" is taken as: less than half.',),
        {order: {"mjoin by xjoin": share} for order, share in shares.items()},
    )


def _late(values: Sequence[float]) -> float:
    return mean(values[len(values) // 2 :])


def _alike(a: float, b: float) -> float:
    return min(a, b) / max(a, b)


def _figure_11(runs: Mapping[str, Runs], marks: Mapping[str, list[int]], *, quick: bool) -> Figure:
    claims: list[Claim] = []
    for form in FORMS:
        found, at, name = runs[form.name], marks[form.name], _short(form)
        slower = f"CPU time of immediate purging by purging every 100 punctuations, {form.name}"
        fewer = f"tuples held, mean over the run, {form.name}: immediate purging by every 100 punctuations"
        held = mean(found[IMMEDIATE][0].samples[1]) / mean(found[MJOIN][0].samples[1])
        claims += [
            _explained(
                time_ratio(_says("11", f"time-{name}", slower, ">", 1), found[IMMEDIATE], found[MJOIN], at),
                _WHY_11,
            ),
            _says("11", f"held-{name}", fewer, "<", 1).measured([held]),
        ]
    single, at = runs[SINGLE.name], marks[SINGLE.name]
    shown = {"after every 100 punctuations": MJOIN, "immediate": IMMEDIATE}
    return Figure(
        "mjoin-11",
        "MJoin, figure 11: purging at every punctuation or after every 100",
        _STREAMS + "Random arrival, nothing is propagated. " + _sizes(quick=quick),
        "For punctuations that come often and say little, immediate purging takes more time than batch "
        "purging because of the cost of scanning the state; it holds less.",
        claims,
        [
            _time_chart(
                "Time to output tuples, single tuples", {n: single[of] for n, of in shown.items()}, at
            ),
            _held_chart("Tuples held, single tuples", {n: single[of][0] for n, of in shown.items()}),
        ],
        None,
        ("Here purging looks up the punctuated key; it does not scan the state (docs/decisions, 7).",),
        {f.name: {n: runs[f.name][of][0].held for n, of in shown.items()} for f in FORMS},
    )


_WHY_11 = (
    "purging looks up the punctuated keys instead of scanning the state, and the 10,000 punctuations of a "
    "batch arrive in one step: both purge once for each batch"
)


def parts() -> Sequence[ReportPart]:
    """What this file adds to the papers."""
    return [
        ReportPart("MJoin: scheduling", "figure 8", (22, 130), scheduling),
        ReportPart("MJoin beside XJoin", "figures 9 to 11", (25, 170), against_xjoin),
    ]
