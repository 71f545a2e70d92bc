"""The paper on driver inputs of multi-way joins, replayed: figures 6 to 8, Tables 4 and 5.

Each data set, period and seed is a case (`driver_runs`), worked through by every policy in one process, two
cases at a time; its answer is compared with a batch join. Cases are kept, so the tables cost nothing once the
figures are there. Two forms: tuple by tuple, which is how the paper's operator works, by the reference engine
at the paper's size (`driver_reference`) with the product in steps of one tuple beside it, at 1/100 of the
size; and in whole buffers at the paper's size, which is how this library works. Cost: in full 20 minutes for
two repeats of the reference engine, 4 for the product in single tuples, 4 for two of whole buffers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import isnan
from statistics import mean
from typing import cast

from lab.generators.driver_sets import SetName
from lab.papers.cached_answers import cached_answers
from lab.papers.driver_claims import (
    ALIKE,
    ALL,
    BURSTY,
    BY_OUTPUT,
    FIGURE_6,
    FIGURE_7,
    FIGURE_8,
    TABLE_4,
    TABLE_5,
)
from lab.papers.driver_printed import AT_HALF, RUNNING_TIME, printed
from lab.papers.driver_printed import Table as Printed
from lab.papers.driver_reference import CHOSEN_BEFORE, REFERENCE, REFERENCE_QUICK, reference_case
from lab.papers.driver_runs import (
    BASE,
    BUFFERS,
    GRID,
    POLICIES,
    TUPLES,
    CaseResult,
    DriverCase,
    RunHalf,
    StepSize,
    case,
)
from lab.papers.driver_statement import (
    BOTH,
    SUFFIX,
    Cases,
    Key,
    PaperStatement,
    Value,
    consumed,
    lookups,
    produced,
    time,
)
from lab.papers.driver_tables import SEED, tables
from lab.report.figures import Context, Figure, ReportPart, Table
from streamjoin.plot import Bars, Chart, Panels, Picture

_REPEATS = {TUPLES: 1, BUFFERS: 2}
_REPEATS_OF_REFERENCE = 2
_ENGINES = {TUPLES: (REFERENCE, TUPLES), BUFFERS: (BUFFERS,)}  # who runs a form; the first decides
_QUICK = {  # sets and periods of the short form, one repeat
    TUPLES: [("V", "1M"), ("VI", "1M")],
    BUFFERS: [("I", "1M"), ("IV", "1M"), *product(("V", "VI"), BOTH)],
}
_FORMS = {
    TUPLES: "Tuple by tuple: the reference engine runs the paper's loops on hash tables in plain Python, "
    "with the paper's 3 million tuples (1.1 million in V and VI; a tenth in the short form); the product "
    "takes steps of a single tuple, with 1/100 of them.",
    BUFFERS: "Whole buffers: the paper's 3 million tuples (1.1 million in V and VI); timestamp and round "
    "robin take steps of 1,000 tuples, all others a whole buffer a step, as this library does by default.",
}
_DATA = (
    "Three streams are joined on one key; they arrive in 100 batches (period 0.1M) or 10 (1M), and a policy "
    "says in which order the tuples of a batch are worked through. The first 20 % of the batches are not "
    "counted."
)
_TIME = "Times are CPU seconds, by those of the timestamp policy in the same case."
_LABELS = {policy: policy.replace("_", " ") for policy in POLICIES} | {"adaptive": "adaptive (ours)"}


@dataclass(frozen=True)
class Curves:
    """A figure of the paper that shows results over time: which sets, which batches, what it says."""

    number: str
    title: str
    sets: Sequence[str]
    about: str
    half: RunHalf
    asked: Sequence[PaperStatement]
    statement: str


SIX = Curves(
    "6",
    "results over time, steady rates",
    ALIKE,
    "In sets I to III all streams are of equal size and selectivity, with rates that vary: in steps against "
    "each other or as a sine.",
    "all",
    FIGURE_6,
    "Timestamp and round robin act similarly and finish almost at the same time (less than 0.2 % apart). "
    "Initial output size and output rate produce 60 % of the results in less than 30 % of the time that "
    "timestamp needs for a batch, and their total running time is about 20 % lower.",
)
_BURSTS = (
    "Sets IV to VI have a third stream that comes in bursts; in V and VI the streams have 10^4, 10^5 and "
    "10^6 tuples, and those of the small ones give more results each."
)
SEVEN = Curves(
    "7",
    "results over time, bursts",
    BURSTY,
    _BURSTS,
    "first half",
    FIGURE_7,
    "Set IV: timestamp and round robin finish almost at the same time, round robin slightly faster in the "
    "first half; initial output size and output rate need about 25 % less time (0.1M) and 20 % less (1M), "
    "more so in the first half. Set V: these two produce 80 % of the results in the first 20 to 30 % of the "
    "time, much faster than any other.",
)
EIGHT = Curves(
    "8",
    "results over time, bursts",
    BURSTY,
    _BURSTS,
    "second half",
    FIGURE_8,
    "Set V: consumption rate produces a very small portion up to 70 % of the time, yet lowers the running "
    "time as output rate does; initial output size with a period of 1M halves it, and is the fastest for set "
    "VI too, where timestamp is inferior to all three.",
)


def cases(context: Context, form: StepSize, sets: Sequence[str]) -> Cases:
    """What was found for some sets in a form, by form, set and period: one of each seed."""
    wanted = [
        DriverCase(form, cast("SetName", name), period, SEED + repeat)
        for repeat in range(1 if context.quick else _REPEATS[form])
        for name, period in product(sets, BOTH)
        if not context.quick or (name, period) in _QUICK[form]
    ]
    found: dict[Key, list[CaseResult]] = {}
    answers = cached_answers(context.folder / "driver", wanted, case, context.step)
    if form == TUPLES:
        answers |= _reference(context, sets)
    for what, one in answers.items():
        found.setdefault((what.form.name, what.name, what.period), []).append(one)
    return found


def _reference(context: Context, sets: Sequence[str]) -> dict[DriverCase, CaseResult]:
    """The same by the reference engine; in the short form all sets too, at a tenth of the size."""
    engine, repeats = (REFERENCE_QUICK, 1) if context.quick else (REFERENCE, _REPEATS_OF_REFERENCE)
    wanted = [
        DriverCase(engine, cast("SetName", name), period, SEED + repeat)
        for repeat in range(repeats)
        for name, period in product(sets, BOTH)
    ]
    workers = 2 if context.quick else 1  # at the paper's size a case takes 4 GB
    folder = context.folder / "driver-reference"
    return cached_answers(folder, wanted, reference_case, context.step, workers=workers)


# Figures 6 to 8: results against time


def figure_6(context: Context, form: StepSize) -> list[Figure]:
    """Production of results, sets I to III."""
    return [_figure(SIX, form, cases(context, form, ALIKE))]


def figures_7_8(context: Context, form: StepSize) -> list[Figure]:
    """Production of results, sets IV to VI: the first and the second half of the batches."""
    found = cases(context, form, BURSTY)
    return [_figure(each, form, found) for each in (SEVEN, EIGHT)]


def _figure(curves: Curves, form: StepSize, found: Cases) -> Figure:
    half = "" if curves.half == "all" else f", {curves.half} of the batches"
    pictures: list[Picture] = []
    for engine, period in product(_ENGINES[form], BOTH):
        shown = {name: found.get((engine.name, name, period)) for name in curves.sets}
        panels = [
            _curves(f"Set {name}, period {period}, {engine.name}", runs, curves.half)
            for name, runs in shown.items()
            if runs is not None
        ]
        pictures += [Panels(panels)] if panels else []
    return Figure(
        f"driver-{curves.number}{SUFFIX[form.name]}",
        f"Driver inputs, figure {curves.number}: {curves.title} ({form.name}{half})",
        f"{_DATA} {curves.about} {_FORMS[form]} The curves show which share of a batch's results is there "
        f"after which share of the time that timestamp takes for the batch, mean of the batches. {_TIME}",
        curves.statement,
        [one.claim(found, form) for one in curves.asked],
        pictures,
        notes=_notes(found, form),
        series={"tables": tables({key: list(runs) for key, runs in found.items()})},
    )


def _curves(title: str, runs: Sequence[CaseResult], half: RunHalf) -> Chart:
    lines = {}
    for policy, label in _labels(runs).items():
        curves = [run.policies[policy].produced[half] for run in runs]
        shares = [100 * mean(each) for each in zip(*curves, strict=True)]
        lines[label] = ([100 * float(x) for x in GRID], shares)
    return Chart(title, "% of timestamp's time", "% of the results", lines)


def _labels(runs: Sequence[CaseResult]) -> dict[str, str]:
    """Of the policies that were run: the reference engine has the paper's only."""
    return {policy: label for policy, label in _LABELS.items() if policy in runs[0].policies}


def _notes(found: Cases, form: StepSize) -> list[str]:
    engine = _ENGINES[form][0]
    mine = {key: runs for key, runs in found.items() if key[0] == engine.name}
    pairs = {
        period: mean(one.in_one_batch for key, runs in mine.items() if key[2] == period for one in runs)
        for period in sorted({key[2] for key in mine})
    }
    every = [one for runs in mine.values() for one in runs]
    if not every:
        return ["Not run in the short form."]
    most = max(abs(one.lookups(policy) - 1) for one in every for policy in one.policies)
    told = " and ".join(f"{share:.1%} of all pairs with period {period}" for period, share in pairs.items())
    ordered = (
        f"Which of two tuples drives is open only where both come in one batch: {told}. So no policy's "
        f"lookups differ from timestamp's by more than {most:.1%} ({engine.name})."
    )
    return [ordered, *(_of_reference(every) if form == TUPLES else _of_buffers(every))]


def _of_reference(every: Sequence[CaseResult]) -> list[str]:
    listed = mean(one.time(CHOSEN_BEFORE) for one in every)
    whole = mean(one.time(policy) for one in every for policy in BY_OUTPUT)
    reasons = (
        f"The paper gives two reasons for timestamp's time: more probes, and more changes of the driver. The "
        f"first is not there. The second is: whole buffers take {whole:.2f} of timestamp's time, and "
        f"timestamp's own order, taken from a list that was made before, {listed:.2f}. So what is saved is "
        f"looking at all buffers for every tuple; the order itself changes little."
    )
    beside = (
        "In steps of one tuple on arrays (the product beside it) that does not show: a step costs some "
        "0.3 ms, a thousand times what the choice does."
    )
    return [reasons, beside]


def _of_buffers(every: Sequence[CaseResult]) -> list[str]:
    whole = [policy for policy in POLICIES if policy not in (BASE, "round_robin")]
    steps = mean(one.steps(policy) for one in every for policy in whole)
    fewer = (
        f"Here the gain is in steps: policies that take whole buffers take {steps:.2f} of timestamp's steps, "
        f"and a step on arrays costs little more for many tuples than for few. It is a gain of the size of "
        f"steps; tuple by tuple shows what the order alone does."
    )
    turns = (
        "Where one stream has long stretches to itself (V and VI, 1M), timestamp takes such a stretch in one "
        "step, round robin 1,000 tuples at a time: so it takes longer than timestamp."
    )
    return [fewer, turns]


# Tables 4 and 5


def both_tables(context: Context) -> list[Figure]:
    """All cases once more, as tables beside the paper's."""
    found = {key: runs for form in _REPEATS for key, runs in cases(context, form, ALL).items()}
    setting = f"{_DATA} {' '.join(_FORMS.values())} {_TIME}"
    by_then = (
        "Whole buffers have nearly all results by then because all their work is done by then. Tuple by "
        "tuple the order brings results forward where few tuples give most of them (V and VI), not where "
        "each buffer gives a third of the results in a third of the time (I to IV): there the share of the "
        "results is the share of the work that is done."
    )
    return [
        Figure(
            "driver-table-4",
            "Driver inputs, Table 4: running time of the policies",
            f"{setting} Lookups stand beside the times: each driving tuple looks into the first other "
            f"stream, each partial result into the next.",
            "On average over the sets initial output size needs 0.832 (0.1M) and 0.714 (1M) of timestamp's "
            "running time, output rate 0.874 and 0.803, consumption rate (V and VI) 0.824 and 0.768.",
            [one.claim(found, form) for form in _REPEATS for one in TABLE_4],
            [
                *_bars(found, time, "CPU time", "times timestamp's"),
                *_bars(found, consumed(0.5), "Input consumed at half of timestamp's time", "share of tuples"),
            ],
            _table(found, {"CPU time": time, "lookups": lookups, "consumed": consumed(0.5)}, RUNNING_TIME),
            [note for form in _REPEATS for note in _notes(found, form)],
        ),
        Figure(
            "driver-table-5",
            "Driver inputs, Table 5: results at half of timestamp's time",
            setting,
            "On average initial output size has 0.82 (0.1M) and 0.84 (1M) of a batch's results after half of "
            "the time that timestamp needs for the batch, output rate 0.78 and 0.79; consumption rate (V and "
            "VI) 0.25 and 0.2.",
            [one.claim(found, form) for form in _REPEATS for one in TABLE_5],
            _bars(found, produced(0.5), "Results at half of timestamp's time", "share of the results"),
            _table(found, {"results": produced(0.5)}, AT_HALF),
            [by_then],
        ),
    ]


def _bars(found: Cases, value: Value, title: str, y: str) -> list[Picture]:
    pictures: list[Picture] = []
    engines = [engine for some in _ENGINES.values() for engine in some]
    for engine, period in product(engines, BOTH):
        shown = {
            name: runs
            for name in ALL
            if (runs := found.get((engine.name, name, period))) is not None
            and not isnan(value(runs[0], BASE))  # not seen by this engine
        }
        if not shown:
            continue
        bars = {
            label: [mean(value(run, policy) for run in runs) for runs in shown.values()]
            for policy, label in _labels(next(iter(shown.values()))).items()
        }
        groups = [f"set {name}" for name in shown]
        pictures.append(Bars(f"{title}, {engine.name}, period {period}", y, groups, bars))
    return pictures


def _table(found: Cases, values: Mapping[str, Value], paper: Printed) -> Table:
    """For each set, period and number: the paper's, where it has it, then ours by each engine."""
    rows: list[list[str | float | int | None]] = []
    first = next(iter(values))
    for name, period, what in product(ALL, BOTH, values):
        if what == first:
            said = [printed(paper, name, policy, period) for policy in POLICIES]
            base = 1.0 if said[0] is None else said[0]  # Table 4 is by timestamp's time
            rows.append([name, period, what, "the paper", base, *said[1:]])
        for engine in (engine for some in _ENGINES.values() for engine in some):
            runs = found.get((engine.name, name, period))
            if runs is not None:
                ours = [_mean(values[what], runs, policy) for policy in POLICIES]
                rows += [] if ours[0] is None else [[name, period, what, engine.name, *ours]]
    return Table(["set", "period", "number", "of", *_LABELS.values()], rows)


def _mean(value: Value, runs: Sequence[CaseResult], policy: str) -> float | None:
    """None where it was not run, or not seen."""
    if policy not in runs[0].policies:
        return None
    found = mean(value(run, policy) for run in runs)
    return None if isnan(found) else round(found, 3)


def parts() -> Sequence[ReportPart]:
    """What the papers' run does of this paper."""
    said = "driver inputs, sets"
    return [
        ReportPart(
            "driver-6-tuples", f"{said} I to III, tuple by tuple", (30, 900), lambda c: figure_6(c, TUPLES)
        ),
        ReportPart(
            "driver-6", f"{said} I to III in whole buffers", (28, 180), lambda c: figure_6(c, BUFFERS)
        ),
        ReportPart(
            "driver-7-8-tuples", f"{said} IV to VI, tuples", (40, 500), lambda c: figures_7_8(c, TUPLES)
        ),
        ReportPart("driver-7-8", f"{said} IV to VI, buffers", (33, 90), lambda c: figures_7_8(c, BUFFERS)),
        ReportPart("driver-tables", "driver inputs, Tables 4 and 5", (3, 3), both_tables),
    ]
