"""The news join of the MJoin paper at work: when how many results were there, and what was held meanwhile.

NewsGeneral joins AccessRecord on sno. Both queues are filled a stretch of items at a time and worked off,
so they are never empty while something is measured (the paper's "CPU-limited mode"). `rounds` runs
contenders on the same batches, their order rotated, and compares every answer with a batch join, pair by
pair. `SingleTuples` makes every tuple a step of its own, as in the paper.

Worked number: 100 items with 10 records each are queues of 100 and 1,100 (1,000 records, 100 punctuations).
Times are CPU seconds of this process, the end of the inputs included. Cost: a turn takes some 0.5 ms, so
1,000 items in single tuples take 6 s; 400,000 items in batches of 10,000 take 2 s.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lab.experiment import Claim, Statement
from streamjoin.api.join import join, stream
from streamjoin.declare.marked import marked
from streamjoin.demo.generators.news import ACCESS_SCHEMA, NEWS_SCHEMA, NewsStreams
from streamjoin.errors import InvariantBroken
from streamjoin.join.strategies.driver import Driver, Queue
from streamjoin.local.join import LocalRun
from streamjoin.plan.bounds import UnboundedState

Ints: TypeAlias = npt.NDArray[np.int64]
Order: TypeAlias = Literal["ordered", "random"]
Batch: TypeAlias = Mapping[str, pa.Table]

SEED = 8
SHUFFLE = 100  # random arrival: a news item comes up to 50 items before or after its place
_ADDED = [pa.field("seq", pa.int64()), pa.field("number", pa.int64())]  # the place of a row: known, and kept
PAIR = 1 << 32
_SAMPLES = 200  # of the tuples held
_ROWS_OF_ITEM = 12  # the item, ten records, a punctuation
_SCHEMAS = {"news": NEWS_SCHEMA, "access": ACCESS_SCHEMA}


@dataclass(frozen=True)
class News:
    """Both streams in stretches of time, and the pairs (number of news, number of record) of their join."""

    batches: Sequence[Batch]
    pairs: Ints


def news(items: int, order: Order, items_a_batch: int) -> News:
    """So many items, with ten records each, in stretches of about so many items."""
    made = NewsStreams(seed=SEED, items=items, order=order, shuffle=SHUFFLE)
    batches: list[dict[str, pa.Table]] = []
    numbered = dict.fromkeys(_SCHEMAS, 0)
    for name, rows in made.arrivals(items_a_batch * _ROWS_OF_ITEM):
        if not batches or name in batches[-1]:
            batches.append({})
        place = pa.array(np.arange(numbered[name], numbered[name] + len(rows)))
        numbered[name] += len(rows)
        batches[-1][name] = rows.append_column(_ADDED[0], place).append_column(_ADDED[1], place)
    return News(batches, _batch_join(batches))


def _batch_join(batches: Sequence[Batch]) -> Ints:
    one, many = (pa.concat_tables([batch[name] for batch in batches if name in batch]) for name in _SCHEMAS)
    many = many.filter(pc.invert(many["is_end"])).select(["sno", "number"])
    both = one.select(["sno", "number"]), many
    one, many = (t.rename_columns(["sno", f"{name}_number"]) for name, t in zip(_SCHEMAS, both, strict=True))
    return _pairs([one.join(many, "sno", join_type="inner")])


def _pairs(results: Iterable[pa.Table]) -> Ints:
    """The pairs of a result, sorted, each as one number."""
    found = [rows["news_number"].to_numpy() * PAIR + rows["access_number"].to_numpy() for rows in results]
    return np.sort(np.concatenate([np.empty(0, np.int64), *found]))


@dataclass
class SingleTuples:
    """The turns of a driver, but each tuple of them a step of its own; a batch begins with a new turn."""

    of: Driver
    name: str = "single tuples"
    _input: int = field(default=0, init=False)
    _left: int = field(default=0, init=False)

    def for_batch(self, queues: Sequence[Queue]) -> Driver:
        return SingleTuples(self.of)

    def choose(self, queues: Sequence[Queue], previous: int | None) -> tuple[int, int]:
        if self._left == 0 or self._input not in {queue.input for queue in queues}:
            self._input, self._left = self.of.choose(queues, previous)
        self._left -= 1
        return self._input, 1


def local(operator: str, **options: Any) -> LocalRun:
    """The news join; a punctuation acts behind the records before it."""
    declared: dict[str, Any] = {"key": "sno", "sequence": "seq"}
    schemas = {name: pa.schema([*schema, *_ADDED]) for name, schema in _SCHEMAS.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnboundedState)  # that XJoin's state grows is what is shown
        return join(
            stream(schemas["news"], name="news", unique=True, columns=["keyword", "number"], **declared),
            stream(
                schemas["access"],
                name="access",
                columns=["ipaddr", "number"],
                punctuation=marked("is_end", ignore_data=True),  # each has a number
                **declared,
            ),
            operator=operator,
            **options,
        ).local()


@dataclass(frozen=True)
class NewsRun:
    """What a run did: results so far with the CPU seconds; the same after each batch, and tuples held."""

    rows: Sequence[int]
    cpu_s: Sequence[float]
    rows_then: Sequence[int]
    cpu_then: Sequence[float]
    held: Sequence[int]
    samples: tuple[Sequence[int], Sequence[int]]  # results so far and tuples held, also within batches
    counters: Mapping[str, int]
    turns: int

    def seconds_to(self, marks: Sequence[int]) -> list[float]:
        """CPU seconds until so many results were there; the last mark: until all was done."""
        places = np.searchsorted(self.rows, marks[:-1], side="left")
        return [*(self.cpu_s[place] for place in places), self.cpu_s[-1]]

    def growth(self) -> float:
        """CPU time of a result in the last fifth of the batches, in multiples of one in the first fifth."""
        rows, spent = self.rows_then, self.cpu_then
        fifth = max(len(rows) // 5, 1)
        last = (spent[-1] - spent[-1 - fifth]) / (rows[-1] - rows[-1 - fifth])
        return last / (spent[fifth - 1] / rows[fifth - 1])


def work(run: LocalRun, data: News) -> NewsRun:
    """All batches through a run, then the end of both; raises unless the answer is the batch join's."""
    rows, cpu_s, rows_then, cpu_then, held, pairs = [0], [0.0], [], [], [], []
    sampled: tuple[list[int], list[int]] = ([0], [0])
    for batch in (*data.batches, None):
        results = []
        spent, began = cpu_s[-1], time.process_time()
        for table in [run.finish()] if batch is None else run.produce(batch):
            results.append(table)
            rows.append(rows[-1] + len(table))
            cpu_s.append(spent + time.process_time() - began)
            if rows[-1] - sampled[0][-1] >= len(data.pairs) / _SAMPLES:
                sampled[0].append(rows[-1])
                sampled[1].append(sum(side.live_rows for side in run.join.sides))
        rows.append(rows[-1])
        cpu_s.append(spent + time.process_time() - began)
        pairs.append(_pairs(results))
        if batch is not None:
            rows_then.append(rows[-1])
            cpu_then.append(cpu_s[-1])
            held.append(sum(run.state().rows.values()))
    check(np.sort(np.concatenate(pairs)), data)
    return NewsRun(rows, cpu_s, rows_then, cpu_then, held, sampled, run.counters(), run.join.turns)


def check(found: Ints, data: News) -> None:
    """Refuse an answer that is not the batch join's."""
    if not np.array_equal(found, data.pairs):
        raise InvariantBroken(
            f"the news join gave {len(found):,} pairs, not the {len(data.pairs):,} of the batch join; "
            "nothing is reported. Please report this with the command you ran"
        )


def rounds(
    contenders: Mapping[str, Callable[[], LocalRun]],
    data: News,
    count: int,
    step: Callable[[str], None],
) -> dict[str, list[NewsRun]]:
    """Each contender so many times on the same batches, the order rotated; one stretch first warms up."""
    warm = News(data.batches[:1], _batch_join(data.batches[:1]))
    for make in contenders.values():
        _warm_up(make(), warm)
    found: dict[str, list[NewsRun]] = {name: [] for name in contenders}
    names = list(contenders)
    for turn in range(count):
        shift = turn % len(names)
        for name in (*names[shift:], *names[:shift]):
            step(f"{name}, round {turn + 1} of {count}")
            found[name].append(work(contenders[name](), data))
    return found


def _warm_up(run: LocalRun, data: News) -> None:
    for batch in data.batches:
        run.step(batch)


# What is compared


def medians(runs: Sequence[NewsRun], marks: Sequence[int]) -> list[float]:
    """Median CPU seconds of the runs to each mark."""
    return [median(each) for each in zip(*(run.seconds_to(marks) for run in runs), strict=True)]


def time_ratio(
    says: Statement, ours: Sequence[NewsRun], theirs: Sequence[NewsRun], marks: Sequence[int], at: int = -1
) -> Claim:
    """CPU time to one mark by theirs: the ratio of the medians, with the spread of the rounds.

    Undecided where the rounds lie on both sides of the bound.
    """
    each = [a.seconds_to(marks)[at] / b.seconds_to(marks)[at] for a, b in zip(ours, theirs, strict=True)]
    return replace(says.decided(each), measured=medians(ours, marks)[at] / medians(theirs, marks)[at])


def marks_of(data: News, count: int) -> list[int]:
    """Evenly spaced numbers of results, the last one all of them.

    >>> marks_of(News([], np.arange(10)), 2)
    [5, 10]
    """
    return [len(data.pairs) * i // count for i in range(1, count + 1)]
