"""What the figures of the scale experiment say: title, setting and statement of each, and their claim."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from lab.experiment import Claim, Statement

SEED = 8
ISSUE = "issue 8"
FULL_ONLY = "needs 50 million tuples: run without --quick"


def slope(name: str, says: str) -> Statement:
    """A claim about growth, the issue's: "below 1.5 per tenfold"."""
    text = f"{says}: time of a batch, as a factor per tenfold"
    return Statement(name, text, ISSUE, "<", 1.5, "times")


def explained(claim: Claim) -> Claim:
    """Where a slope of the operator alone is too steep: the reason, as seen in a profile."""
    return replace(claim, why=_WHY) if claim.holds is False else claim


_WHY = (
    "a key is looked up in one run of each tier; a tenfold state has more tiers, and their runs leave the "
    "CPU's caches"
)


class Text(NamedTuple):
    """For someone who has not seen the code."""

    title: str
    setting: str
    statement: str


STATE = Text(
    "State growing to 50 million tuples, the operator alone",
    "A join of two streams on a long key, of which nothing is declared, so nothing is ever evicted. A "
    "batch has 100,000 rows: 50,000 new keys on one side, and on the other a row for each of 50,000 keys "
    "from anywhere in the state. So a batch asks the same of every size. CPU seconds of one thread: the "
    "median over the batches of the last half before each size, and the mean, in which merging takes part.",
    "The slope of time per batch against state size is below 1.5 per tenfold.",
)
KEYS = Text(
    "A million distinct open keys",
    "Each batch of 100,000 rows opens 10,000 keys (a unique key on one input), has 8 rows for each of 10,000 "
    "open keys, anywhere among them, on the other, and ends the 10,000 oldest by punctuations. So the number "
    "of open keys stays the same: each is a tuple held and a key remembered, and nothing else is held "
    "(checked). 20 batches, CPU seconds of one thread.",
    "The slope of time per batch against the number of open keys is below 1.5 per tenfold.",
)
HOT = Text(
    "One key that holds a third of all tuples",
    "As for the state, but a third of all tuples have the same key, all on one side, so that each row still "
    "has one result. The operator alone to 5 million tuples; and on Spark with 8 buckets "
    "as 8 tasks on 2 cores, 220,000 rows a micro-batch. There the hot key's bucket has 42 % of all rows"
    " and each other one 8 %: 5 times as many.",
    "The slope of time per batch is below 1.5 per tenfold with a hot key too; on Spark its task takes "
    "at most as many times another's as it has rows.",
)
SPARK = Text(
    "State growing to 50 million tuples, on Spark",
    "The same join on local Spark with two cores and two buckets, 550,000 rows a micro-batch; the time "
    "is that of the whole micro-batch, with scan, shuffle, join, state store and commit; the median of "
    "three around each size. The peaks are merges: every 16 micro-batches a bucket merges 16 runs of an "
    "input into one. A query of eight micro-batches went before it, so that the JVM is warm.",
    "The slope of time per batch against state size is below 1.5 per tenfold.",
)
BUCKETS = Text(
    "1 to 32 buckets on Spark",
    "The same join in two tasks on two cores, 220,000 rows a micro-batch; then micro-batches of 20 "
    "rows, which tell what a bucket costs that has nothing to do. Every bucket runs in every micro-"
    "batch, because watermarks and punctuations move in all of them.",
    "The slope of time per batch against the number of buckets, from 2 on, is below 1.5 per tenfold.",
)
