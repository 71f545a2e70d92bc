"""The PWJoin paper's figures 8 to 12 on this code: what windows and punctuations together are worth.

PWJoin (both), the window join WJoin (windows only) and PJoin (punctuations only) on the paper's streams:
tuples held, results over CPU time, punctuations out. Equation 1 and its best case are in
`pwjoin_cost`. Cost on 2 quiet cores: some 4 minutes in full, 75 s in the short form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import mean, median

import numpy as np

from lab.experiment import Claim, Op, Statement
from lab.generators.patterns import StreamPattern, punctuated, uniform
from lab.papers.pattern_reference import ReferenceContender
from lab.papers.pattern_runs import (
    PATTERN,
    WINDOWS_S,
    Contender,
    ObservedBatches,
    Runs,
    StreamPair,
    Window,
    answer,
    cut,
    local,
    observe,
    rounds,
    time_ratio,
)
from lab.papers.pwjoin_cost import cost_model
from lab.report.figures import Context, Figure, ReportPart
from streamjoin.plot import Chart, Panels

SEED = 5
PWJOIN, WJOIN, PJOIN = "PWJoin", "WJoin (windows only)", "PJoin (punctuations only)"
ASCENDING, RANDOM = punctuated("asc", 30, 40), punctuated("random", 30, 40)
_SMALL_S, _LARGE_S = 5, 15
_SLIGHTLY, _INSIGNIFICANT, _THE_SAME = 1.2, 1.08, 1.05  # what the paper's words are taken for


@dataclass(frozen=True)
class TupleGrouping:
    """How tuples are taken, how many of them there are, and how often it is run."""

    name: str
    short: str
    single: bool
    gap: str
    step_s: float
    rows: tuple[int, int]  # of each stream: quick, full
    rounds: tuple[int, int]

    def streams(self, a: StreamPattern, b: StreamPattern, *, quick: bool) -> StreamPair:
        rows = self.rows[0 if quick else 1]
        tables = [replace(one, gap=self.gap).table(rows=rows, seed=SEED + i) for i, one in enumerate((a, b))]
        return cut(tables[0], tables[1], self.step_s)


SINGLE = TupleGrouping("single tuples", "single", True, "10 milliseconds", 0.5, (2_000, 4_000), (1, 3))
BATCHES = TupleGrouping("whole batches", "batches", False, "50 microseconds", 1.0, (400_000, 400_000), (2, 5))
FORMS = (SINGLE, BATCHES)
# The paper's streams by the reference engine, which decides what is said of single tuples
ENGINE = replace(SINGLE, name="reference engine", rows=(3_000, 12_000), rounds=(3, 7))

_GENERAL = (
    "A stream punct-asc-100-40 has a punctuation after about 100 tuples, which ends a key, in ascending "
    "order; about 40 of the 100 tuples have that key, the others one that ends later. "
)


def _forms(*, quick: bool) -> str:
    at = 0 if quick else 1
    return (
        f"Single tuples: {SINGLE.rows[at]:,} tuples of each stream, one every 10 ms on average, each a step "
        f"of its own, as in the paper. Whole batches: {BATCHES.rows[at]:,} tuples of each stream, one every "
        "0.05 ms, a second of them in one vectorised step. CPU time of the process, median of "
        f"{SINGLE.rounds[at]} and {BATCHES.rounds[at]} rounds with the order rotated. Reference engine: the "
        f"paper's lists and nodes in plain Python, {ENGINE.rows[at]:,} tuples of each stream, one every 10 "
        f"ms, {ENGINE.rounds[at]} rounds; it decides what is said of single tuples."
    )


def _says(figure: str, name: str, text: str, op: Op, target: float, unit: str = "times") -> Statement:
    return Statement(f"pwjoin-{figure}-{name}", text, f"PWJoin, figure {figure}", op, target, unit)


def _explained(claim: Claim, why: str) -> Claim:
    """A reason where the claim does not hold."""
    return claim if claim.holds is not False else replace(claim, why=why)


def _telling(context: Context, what: str) -> Callable[[str], None]:
    return lambda text: context.step(f"{what}: {text}")


def _watched(operator: str, data: StreamPair, window_a: Window, window_b: Window) -> ObservedBatches:
    return observe(local(operator, window_a, window_b), data.batches, answer(data, window_a, window_b))


# Figure 8


def memory(context: Context) -> Sequence[Figure]:
    """Tuples held by PWJoin and the window join, for windows of three lengths."""
    data = cut(PATTERN.table(rows=12_000, seed=SEED), PATTERN.table(rows=12_000, seed=SEED + 1), 0.5)
    lines, savings, claims = {}, {}, []
    for window in WINDOWS_S:
        tuples = {}
        for label, operator in ((WJOIN, "wjoin"), (PWJOIN, "pwjoin")):
            context.step(f"{label}, window {window} s")
            tuples[label] = _watched(operator, data, window, window).tuples
            lines[f"{label}, {window} s"] = ([0, *data.seconds], [0, *tuples[label]])
        fewer = mean(tuples[PWJOIN]) / mean(tuples[WJOIN])
        savings[window] = mean(tuples[WJOIN]) - mean(tuples[PWJOIN])
        says = f"tuples PWJoin holds by those the window join holds, window of {window} s"
        claims.append(_says("8", f"fewer-{window}", says, "<", 1).measured([fewer]))
    for (short, few), (long, many) in pairwise(savings.items()):
        says = f"tuples saved with a window of {long} s by those saved with {short} s"
        claims.append(_says("8", f"grows-{long}", says, ">", 1).measured([many / few]))
    return [
        Figure(
            "pwjoin-8",
            "PWJoin, figure 8: tuples held with and without punctuations",
            _GENERAL + "Two such streams of 12,000 tuples, one tuple every 10 ms on average, are joined with "
            "windows of 1, 5 and 15 seconds on both, by the window join and by PWJoin, which lets tuples go "
            "by punctuations too. State after each half second.",
            "As the window becomes larger, the memory savings by PWJoin become more and more significant.",
            claims,
            [Chart("Tuples held in both states", "seconds of the streams", "tuples held", lines)],
            series={"mean tuples saved": {str(window): saved for window, saved in savings.items()}},
        )
    ]


# Figures 9 and 10


def output_rate(context: Context) -> Sequence[Figure]:
    """Results over CPU time, for a small and a large window."""
    claims: list[Claim] = []
    pictures = []
    for form in (ENGINE, *FORMS):
        charts = []
        data = form.streams(PATTERN, PATTERN, quick=context.quick)
        for window in (_SMALL_S, _LARGE_S):
            found = rounds(
                {
                    PWJOIN: _contender("pwjoin", data, window, form),
                    WJOIN: _contender("wjoin", data, window, form),
                },
                form.rounds[0 if context.quick else 1],
                _telling(context, f"{form.name}, {window} s"),
            )
            lines = {name: _curve(runs) for name, runs in found.items()}
            title = f"window of {window} s, {form.name}"
            charts.append(Chart(title, "CPU milliseconds", "result tuples", lines))
            claims += _rate_claims(form, window, found)
        pictures.append(Panels(charts))
    return [
        Figure(
            "pwjoin-9",
            "PWJoin, figure 9: results over time",
            _GENERAL + "Two such streams, windows of 5 and 15 s. " + _forms(quick=context.quick),
            "When the window is small, the cost of purging exceeds the saving in probing, so that the window "
            "join performs slightly better. As the window becomes larger, PWJoin performs apparently better.",
            _decided(claims),
            pictures,
            notes=(f'"Slightly" is taken as: at most {_SLIGHTLY} times.',),
        )
    ]


def _contender(operator: str, data: StreamPair, window: float, form: TupleGrouping) -> Runs:
    if form is ENGINE:
        return ReferenceContender(operator, data, window)
    return Contender(operator, data, window, form.single)


def _decided(claims: Sequence[Claim]) -> list[Claim]:
    """Of two claims with one id the first decides, and the second, the product's, stands beside it."""
    found: dict[str, Claim] = {}
    for claim in claims:
        first = found.get(claim.id)
        found[claim.id] = claim if first is None else first.beside(claim)
    return list(found.values())


_WHY_ENGINE = (
    "what a punctuation purges has a key that no tuple of the other stream will probe again, so with an "
    "I-Node for each key nothing is scanned less (counted, 6,000 tuples of each stream, window of 15 s: "
    "577,613 tuples scanned by PWJoin, 570,953 by the window join); what is saved is 1,333 of 12,000 "
    "insertions"
)
_WHY_9 = (
    "in whole batches making the results takes four fifths of the time of both (profile, window of 15 s: 4.9 "
    "of 5.8 s) and probing, which a smaller state could save, 2 %: a probe is a search, not a walk "
    "along a list. Looking arriving tuples up among the punctuations and purging take 10 to 15 %"
)


def _rate_claims(form: TupleGrouping, window: int, found: Mapping[str, list[ObservedBatches]]) -> list[Claim]:
    text = f"CPU time of PWJoin by the window join, window of {window} s, {_said(form)}"
    why = _WHY_ENGINE if form is ENGINE else _WHY_9
    if window == _SMALL_S:
        more = _says("9", f"small-{form.short}", text, ">", 1)
        little = _says("9", f"slightly-{form.short}", f"{text}: only slightly more", "<=", _SLIGHTLY)
        return [_explained(time_ratio(says, found[PWJOIN], found[WJOIN]), why) for says in (more, little)]
    less = _says("9", f"large-{form.short}", text, "<", 1)
    return [_explained(time_ratio(less, found[PWJOIN], found[WJOIN]), why)]


def _said(form: TupleGrouping) -> str:
    """The reference engine measures what is said of single tuples."""
    return SINGLE.name if form is ENGINE else form.name


def _curve(runs: Sequence[ObservedBatches]) -> tuple[list[float], list[float]]:
    """Results over the median CPU time."""
    spent = [1000 * median(each) for each in zip(*(run.cpu_s for run in runs), strict=True)]
    return [0, *spent], [0, *runs[0].results]


def irrelevant(context: Context) -> Sequence[Figure]:
    """What punctuations cost that let nothing go, and what PWJoin costs without any."""
    claims: list[Claim] = []
    pictures = []
    for form in (ENGINE, *FORMS):
        useless = form.streams(
            replace(ASCENDING, irrelevant=1.0), replace(RANDOM, irrelevant=1.0), quick=context.quick
        )
        none = form.streams(
            replace(ASCENDING, punctuations=False), replace(RANDOM, punctuations=False), quick=context.quick
        )
        found = rounds(
            {
                PWJOIN: _contender("pwjoin", useless, 5, form),
                WJOIN: _contender("wjoin", useless, 5, form),
                _bare(PWJOIN): _contender("pwjoin", none, 5, form),
                _bare(WJOIN): _contender("wjoin", none, 5, form),
            },
            form.rounds[0 if context.quick else 1],
            _telling(context, form.name),
        )
        claims += _irrelevant_claims(form, found, useless)
        lines = {f"{name}, irrelevant punctuations": _curve(found[name]) for name in (PWJOIN, WJOIN)}
        pictures.append(Chart(f"Results over time, {form.name}", "CPU milliseconds", "result tuples", lines))
    return [
        Figure(
            "pwjoin-10",
            "PWJoin, figure 10: punctuations that let nothing go",
            "Streams punct-asc-30-40 and punct-random-30-40 (a punctuation after about 30 tuples), but every "
            "punctuation names a key that no tuple has; and the same tuples without punctuations. Window: "
            "5 s. " + _forms(quick=context.quick),
            "Even if all punctuations are irrelevant, the extra overhead of PWJoin is insignificant; without "
            "punctuations its cost is almost the same. An irrelevant one costs even less than a tuple.",
            _decided(claims),
            pictures,
            notes=(f'"Insignificant" is taken as {_INSIGNIFICANT}, "almost the same" as {_THE_SAME} times.',),
        )
    ]


def _irrelevant_claims(
    form: TupleGrouping, found: Mapping[str, list[ObservedBatches]], data: StreamPair
) -> list[Claim]:
    text = "CPU time of PWJoin by the window join"
    with_ = _says(
        "10",
        f"irrelevant-{form.short}",
        f"{text}, all punctuations irrelevant, {_said(form)}",
        "<=",
        _INSIGNIFICANT,
    )
    without = _says(
        "10", f"none-{form.short}", f"{text}, streams without punctuations, {_said(form)}", "<=", _THE_SAME
    )
    single = f"CPU time of an irrelevant punctuation by that of a tuple, {_said(form)}"
    marks = sum(int(np.count_nonzero(table["is_end"].to_numpy())) for table in data.whole.values())
    tuples = sum(map(len, data.whole.values())) - marks
    pairs = zip(found[PWJOIN], found[_bare(PWJOIN)], strict=True)
    costs = [(with_marks.cpu_s[-1] / bare.cpu_s[-1] - 1) * tuples / marks for with_marks, bare in pairs]
    one = _says("10", f"one-{form.short}", single, "<", 1).decided(costs)
    if min(costs) < 0:
        one = replace(one, holds=None, why="some rounds took less with punctuations than without: too noisy")
    irrelevant = time_ratio(with_, found[PWJOIN], found[WJOIN])
    none = time_ratio(without, found[_bare(PWJOIN)], found[_bare(WJOIN)])
    why = (_WHY_ENGINE,) * 3 if form is ENGINE else (_WHY_10, _NOT_KNOWN, _WHY_10)
    return [_explained(*each) for each in zip((irrelevant, none, one), why, strict=True)]


def _bare(name: str) -> str:
    return f"{name}, no punctuations"


_NOT_KNOWN = "the reason was not looked for"
_WHY_10 = (
    "a punctuation is remembered until the other stream makes it too, and every tuple is looked up among "
    "them: in single tuples 10 % of the time (profile). In whole batches that is 13 %, and looking the "
    "punctuated keys up in the state, passing them on and remembering them 22 %, when results are few"
)


# Figures 11 and 12


def punctuations_out(context: Context) -> Sequence[Figure]:
    """Punctuations that leave the join, with windows and without."""
    return [_both_punctuated(context), _one_punctuated(context)]


def _both_punctuated(context: Context) -> Figure:
    data = cut(ASCENDING.table(rows=6_000, seed=SEED), RANDOM.table(rows=6_000, seed=SEED + 1), 0.25)
    context.step("punctuations out, PWJoin and PJoin")
    found = {
        f"{PWJOIN}, window of 1 s": _watched("pwjoin", data, 1, 1),
        PJOIN: _watched("pjoin", data, None, None),
    }
    early, late = (np.array(run.punctuations) for run in found.values())
    middle = np.searchsorted(data.seconds, data.seconds[-1] / 2)
    claims = [
        _says(
            "11", "rate", "punctuations out by PWJoin by those of PJoin, mean over the run", ">", 1
        ).measured([float(early.mean() / late.mean())]),
        _says("11", "half", "the same at half of the run", ">", 1).measured(
            [float(early[middle] / late[middle])]
        ),
        _says(
            "11", "never-later", "moments at which PJoin was ahead of PWJoin", "==", 0, "of the samples"
        ).measured([float((late > early).mean())]),
    ]
    return Figure(
        "pwjoin-11",
        "PWJoin, figure 11: punctuations that leave the join",
        "Streams punct-asc-30-40 and punct-random-30-40 of 6,000 tuples, one every 10 ms on average: both "
        "end the same 200 keys, one in ascending, the other in random order. PJoin has no windows and passes "
        "a punctuation on when both streams have ended the key; PWJoin also when the last tuple of a key "
        "that one stream has ended leaves the window of 1 s.",
        "PWJoin has an overall higher punctuation output rate.",
        claims,
        [_punctuation_chart(data, found)],
        notes=("Both streams end here, and with them both joins have propagated all 200 punctuations.",),
        series={name: run.punctuations for name, run in found.items()},
    )


def _one_punctuated(context: Context) -> Figure:
    data = cut(uniform(15_000, rows=6_000, seed=SEED), ASCENDING.table(rows=6_000, seed=SEED + 1), 0.25)
    context.step("punctuations out, one stream without punctuations")
    found = {
        f"{PWJOIN}, window of 5 s": _watched("pwjoin", data, None, 5),
        PJOIN: _watched("pjoin", data, None, None),
    }
    with_window, without = (run.punctuations for run in found.values())
    each_second = np.diff(with_window[3::4])  # from the end of one second to the end of the next
    after = each_second[6:-1]  # when the first tuples have left the window; the last second is not whole
    claims = [
        _says("12", "pjoin", "punctuations out by PJoin", "==", 0, "punctuations").measured([without[-1]]),
        _says("12", "pwjoin", "punctuations out by PWJoin", ">", 0, "punctuations").measured(
            [with_window[-1]]
        ),
        _says(
            "12", "regular", "seconds with a punctuation out, after the first window", ">=", 0.9, "of them"
        ).measured([float((after > 0).mean())]),
    ]
    return Figure(
        "pwjoin-12",
        "PWJoin, figure 12: only one stream has punctuations",
        "Stream A has no punctuations, its keys are any of 15,000; stream B is punct-asc-30-40, and has a "
        "window of 5 s. 6,000 tuples each, one every 10 ms on average.",
        "PJoin cannot deliver punctuations. However, PWJoin is still able to regularly provide punctuations.",
        claims,
        [_punctuation_chart(data, found)],
        notes=('"Regularly" is taken as: in nine of ten seconds.',),
        series={name: run.punctuations for name, run in found.items()},
    )


def _punctuation_chart(data: StreamPair, found: Mapping[str, ObservedBatches]) -> Chart:
    lines = {name: ([0, *data.seconds], [0, *run.punctuations]) for name, run in found.items()}
    return Chart("Punctuations that left the join", "seconds of the streams", "punctuations", lines)


def parts() -> Sequence[ReportPart]:
    """What this file adds to the papers."""
    return [
        ReportPart("PWJoin: tuples held", "figure 8", (5, 5), memory),
        ReportPart("PWJoin: results over time", "figure 9", (30, 110), output_rate),
        ReportPart("PWJoin: irrelevant punctuations", "figure 10", (20, 85), irrelevant),
        ReportPart("PWJoin: punctuations out", "figures 11 and 12", (4, 4), punctuations_out),
        ReportPart("PWJoin: cost model", "equation 1 and its best case", (15, 20), cost_model),
    ]
