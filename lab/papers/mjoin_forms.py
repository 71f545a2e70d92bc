"""What the figures of the MJoin paper share: the forms in which tuples are taken, sizes, charts, reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lab.experiment import Claim, Op, Statement
from lab.papers.news_reference import BUCKETS, QUOTA, SIZES
from lab.papers.news_runs import (
    News,
    NewsRun,
    Order,
    SingleTuples,
    medians,
    news,
)
from streamjoin.join.strategies.driver import Driver, Priority, RandomInput
from streamjoin.plot import Chart

ORDERS: tuple[Order, ...] = ("ordered", "random")
MARKS = 10
_MANY = 100_000  # results, above which an axis counts millions
ENGINE = "reference engine"
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

STREAMS = (
    "News items are joined with the records of who read them, about 10 for each item; an item's records are "
    "over when it leaves the 10 latest, and a punctuation says so. "
)
_SIZES = (
    "Single tuples: {0:,} items, every tuple a step of its own, as in the paper. Whole batches: {1:,} items, "
    "10,000 of them in a batch, of which all news (or all records) are one vectorised step, as this library "
    "works. Reference engine: the paper's algorithm in plain Python, until {4:,} results are there, queues "
    "never empty, {5} news and {6} records a turn, {7} hash buckets. Time is CPU time of the process; median "
    "of {2}, {3} and {8} rounds with the order rotated."
)


def sizes_in_words(*, quick: bool) -> str:
    """What was run, in a sentence."""
    at = 0 if quick else 1
    ours = (SINGLE.items[at], BATCHES.items[at], SINGLE.rounds[at], BATCHES.rounds[at])
    return _SIZES.format(*ours, SIZES[quick].results, *QUOTA, BUCKETS, SIZES[quick].rounds)


def statement(figure: str, name: str, text: str, op: Op, target: float, unit: str = "times") -> Statement:
    """A statement of this paper."""
    return Statement(f"mjoin-{figure}-{name}", text, f"MJoin, figure {figure}", op, target, unit)


def short(form: NewsGrouping) -> str:
    """The form in an id of a claim."""
    return "single" if form.single else "batches"


def time_chart(title: str, runs: Mapping[str, Sequence[NewsRun]], marks: Sequence[int]) -> Chart:
    """CPU time until so many results are there."""
    unit, by = ("million result tuples", 1e6) if marks[-1] > _MANY else ("result tuples", 1.0)
    x = [0, *(mark / by for mark in marks)]
    lines = {name: (x, [0, *(1000 * s for s in medians(each, marks))]) for name, each in runs.items()}
    return Chart(title, unit, "CPU milliseconds", lines)


def held_chart(title: str, runs: Mapping[str, NewsRun]) -> Chart:
    """Tuples held when so many results are there."""
    many = max(run.rows[-1] for run in runs.values()) > _MANY
    unit, by = ("million result tuples", 1e6) if many else ("result tuples", 1.0)
    lines = {name: ([r / by for r in run.samples[0]], run.samples[1]) for name, run in runs.items()}
    return Chart(title, unit, "tuples held", lines)


def opened(claim: Claim, why: str) -> Claim:
    """Without its measurement."""
    return replace(claim, measured=None, low=None, high=None, runs=0, holds=None, why=why)


def explained(claim: Claim, why: str) -> Claim:
    """A reason where the claim does not hold."""
    return claim if claim.holds is not False else replace(claim, why=why)
