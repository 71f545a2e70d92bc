"""How settings of the SSBJ paper become claims, lines and tables; what every figure says of its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lab.experiment import Claim, Op, Statement
from lab.papers.cached_answers import cached_answers
from lab.papers.ssbj_bench import MESHJOIN, OURS, SSBJ
from lab.papers.ssbj_runs import (
    ALL,
    LABELS,
    ROWS,
    Run,
    SsbjSetting,
    TimedCycles,
    hit_rate,
    rate,
    run,
    series_of,
)
from lab.report.figures import Context, Table

MESH, PAPER, THIS = MESHJOIN.name, SSBJ.name, OURS.name
JOINS = (
    "A stream is joined with master data on disk that is larger than the memory; the service rate is how "
    "many stream tuples a second a join can take. All joins have the same memory, just full. Time is CPU "
    "seconds plus what a disk of 100 MB/s takes for what is read. MESHJOIN reads the master data in an "
    "endless cycle, without a cache; SSBJ also caches the rows of frequent values; this library's form is "
    "SSBJ with the master data in the order of its hashes, so a tuple needs one segment of it only (it looks "
    "up no single keys here, as the paper has no index)."
)
DATA = (
    f"Synthetic data: {ROWS:,} rows of 120 bytes (the paper: 100 million), stream tuples of 20 bytes whose "
    f"values follow Zipf's law."
)
NOT_QUICK = "needs more settings: run without --quick"


def settings(context: Context, wanted: Mapping[Any, SsbjSetting]) -> dict[Any, Run]:
    """What was found for some settings, by what distinguishes them."""
    repeats = 1 if context.quick else 2
    these = {what: replace(one, repeats=repeats) for what, one in wanted.items()}
    found = cached_answers(context.folder / "ssbj", list(these.values()), run, context.step)
    return {what: found[one] for what, one in these.items()}


def together(context: Context, *wanted: Mapping[Any, SsbjSetting]) -> None:
    """Settings of several figures at once, so that no process waits for the last one of a figure."""
    settings(context, {one: one for some in wanted for one in some.values()})


@dataclass(frozen=True)
class FigureClaims:
    """The statements of one figure."""

    figure: str  # "5a"

    def claim(self, name: str, says: str, wanted: tuple[Op, float, str], values: Sequence[float]) -> Claim:
        return self._statement(name, says, wanted).measured(values)

    def open(self, name: str, says: str, wanted: tuple[Op, float, str], why: str = NOT_QUICK) -> Claim:
        return self._statement(name, says, wanted).open(why)

    def _statement(self, name: str, says: str, wanted: tuple[Op, float, str]) -> Statement:
        op, target, unit = wanted
        source = f"SSBJ, figure {self.figure[0]}({self.figure[1]})"
        return Statement(f"ssbj-{self.figure}-{name}", says, source, op, target, unit)


def because(claim: Claim, why: str) -> Claim:
    """With a reason, where it does not hold."""
    return replace(claim, why=why) if claim.holds is False else claim


def at_least(target: float, unit: str = "times") -> tuple[Op, float, str]:
    """What is wanted of a number."""
    return ">=", target, unit


def at_most(target: float, unit: str = "times") -> tuple[Op, float, str]:
    """What is wanted of a number."""
    return "<=", target, unit


def lines(
    found: Mapping[float, Run], value: Callable[[Run, str], float], scale: float = 1.0
) -> dict[str, tuple[list[float], list[float]]]:
    """A line for each form over what distinguishes the settings."""
    made = {}
    for name in ALL:
        points = [(scale * what, value(one, name)) for what, one in sorted(found.items()) if name in one]
        if points:
            made[LABELS[name]] = ([x for x, _ in points], [y for _, y in points])
    return made


def series(found: Mapping[Any, Run]) -> dict[str, Any]:
    """The numbers behind the pictures."""
    return {f"{what}": {name: series_of(some) for name, some in one.items()} for what, one in found.items()}


def table(found: Mapping[str, Run], first: str) -> Table:
    """Service rates, the ratio to MESHJOIN's, and hits."""
    rows: list[list[str | float | int | None]] = []
    for what, one in found.items():
        for name in one:
            by = round(rate(one, name) / rate(one, MESH), 2) if MESH in one else None
            hits = round(100 * hit_rate(one, name), 1)
            rows.append([what, LABELS[name], round(rate(one, name)), by, hits])
    return Table([first, "join", "tuples/s", "times MESHJOIN's", "% answered by the cache"], rows)


def turn_of(one: TimedCycles) -> str:
    """What a turn takes."""
    turns = one.stretch.turns
    cpu, disk = 1e3 * one.stretch.cpu_s / turns, 1e3 * one.disk_s / turns
    return f"{one.stretch.w:,} tuples in {cpu:.1f} ms of CPU and {disk:.1f} ms of the disk"


def turns(found: Run, *names: str) -> str:
    """What a turn of some forms takes, and who hits the cache."""
    each = [f"{LABELS[name]} {turn_of(found[name][-1])} ({hit_rate(found, name):.0%} hits)" for name in names]
    return "a turn takes, with " + ", with ".join(each)


def why_paper_form(found: Run) -> str:
    """Where the time of the paper's form goes on this code."""
    return (
        f"{turns(found, MESH, PAPER)}: what waits stands in one sorted chunk a turn, and each segment is "
        f"matched with every chunk, which costs by the chunk more than by the tuple, so fewer waiting tuples "
        f"save little; a third of the cycles also move values into the cache"
    )
