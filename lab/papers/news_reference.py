"""The news join by the reference engine: MJoin and XJoin as the paper prints them, tuple by tuple.

The streams are longer than what is read of them, and a run ends at a number of results: so the queues are
never empty (the paper's "CPU-limited mode"), and an operator that reads news as often as records stores news
far ahead of their records. XJoin reads either queue at random, MJoin by its settings. The results must be all
pairs of the rows that were read, or the part stops. The paper is silent about quotas and hash buckets:
`QUOTA` has about as many records for a news item as there are, `BUCKETS` as many as one takes for some
thousand tuples.

Worked number: 10,000 results take MJoin some 1,100 news and 11,000 records and punctuations; XJoin 10,000 of
each. Cost: 0.1 s for MJoin, 0.3 s for XJoin, which scans buckets that fill up.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Protocol, TypeAlias

import numpy as np

from lab.papers.news_runs import PAIR, Batch, News, NewsRun, Order, check, news
from lab.reference.buckets import HashState
from lab.reference.collector import without_collector
from lab.reference.elements import Element, End, Output, Row, Work
from lab.reference.mjoin import MJoin, Settings
from lab.reference.xjoin import XJoin

QUOTA = (100, 1_000)
BUCKETS = 64
Queues: TypeAlias = Sequence[Sequence[Element]]
_PARTS = 50  # of a run, after each of which the state is looked at
_EVERY = 10  # steps between two looks at the clock


class Stepwise(Protocol):
    """An operator that takes one element from its queues at a time."""

    work: Work
    output: Output
    states: tuple[HashState, HashState]
    queues: tuple[deque[Element], deque[Element]]

    def offer(self, element: Element) -> None: ...
    def step(self) -> bool: ...


class QueuedXJoin(XJoin):
    """XJoin behind two queues, read at random."""

    def __init__(self, *, buckets: int = BUCKETS, memory: int | None = None, seed: int = 0) -> None:
        super().__init__(buckets=buckets, memory=memory)
        self.queues: tuple[deque[Element], deque[Element]] = (deque(), deque())
        self._random = Random(seed)

    def offer(self, element: Element) -> None:
        self.queues[element.input].append(element)

    def step(self) -> bool:
        """One element of either queue; False once both are empty."""
        waiting = [queue for queue in self.queues if queue]
        if not waiting:
            return False
        self.take(self._random.choice(waiting).popleft())
        return True


def queues_of(batches: Sequence[Batch]) -> Queues:
    """Both streams as the reference engine takes them, punctuations where they come."""
    items: list[Element] = []
    access: list[Element] = []
    for batch in batches:
        if "news" in batch:
            keys, numbers = (batch["news"][name].to_pylist() for name in ("sno", "number"))
            items += [Row(0, key, number, number) for key, number in zip(keys, numbers, strict=True)]
        if "access" in batch:
            columns = (batch["access"][name].to_pylist() for name in ("sno", "number", "is_end"))
            access += [
                End(1, key) if is_end else Row(1, key, number, number)
                for key, number, is_end in zip(*columns, strict=True)
            ]
    return items, access


def reference_work(join: Stepwise, queues: Queues, data: News, results: int) -> NewsRun:
    """Until so many results are there; raises unless they are all pairs of what was read."""
    for queue in queues:
        for element in queue:
            join.offer(element)
    made = join.output.rows
    rows, cpu_s, held = [0], [0.0], [0]
    steps, more = 0, True
    began = time.process_time()
    while more and len(made) < results:
        more = join.step()
        steps += 1
        if steps % _EVERY == 0 or len(made) >= results:
            rows.append(len(made))
            cpu_s.append(time.process_time() - began)
            held.append(sum(map(len, join.states)))
    _check(join, queues, data)
    counters = {
        "access_stored": join.states[1].inserted,
        "news_reordered": join.work.waited,
        "access_reordered": 0,
        "scanned": join.work.scanned,
    }
    parts = [int(np.searchsorted(rows, results * part // _PARTS)) for part in range(1, _PARTS + 1)]
    return NewsRun(
        rows,
        cpu_s,
        [rows[part] for part in parts],
        [cpu_s[part] for part in parts],
        [held[part] for part in parts],
        (rows, held),
        counters,
        steps,
    )


def _check(join: Stepwise, queues: Queues, data: News) -> None:
    """All pairs of rows that were read, but for news in the waiting pool, and no others."""
    left = [len(queue) for queue in join.queues]
    read = [queue[: len(queue) - rest] for queue, rest in zip(queues, left, strict=True)]
    waiting = {row.number for row in getattr(join, "pool", ())}
    one, many = (np.zeros(len(queue), np.bool_) for queue in queues)
    one[[row.number for row in read[0] if isinstance(row, Row) and row.number not in waiting]] = True
    many[[row.number for row in read[1] if isinstance(row, Row)]] = True
    expected = data.pairs[one[data.pairs // PAIR] & many[data.pairs % PAIR]]
    pairs = np.array([a.number * PAIR + b.number for a, b in join.output.rows], np.int64)
    check(np.sort(pairs), News(data.batches, expected))


def reference_rounds(
    contenders: Mapping[str, Callable[[int], MJoin | QueuedXJoin]],
    data: News,
    results: int,
    count: int,
    step: Callable[[str], None],
) -> dict[str, list[NewsRun]]:
    """Each contender so many times, the order rotated; a contender is given the number of its round."""
    queues = queues_of(data.batches)
    found: dict[str, list[NewsRun]] = {name: [] for name in contenders}
    names = list(contenders)
    for turn in range(-1, count):  # the first round warms up
        shift = turn % len(names)
        for name in (*names[shift:], *names[:shift]):
            step(f"reference engine: {name}, round {turn + 1} of {count}")
            with without_collector():
                run = reference_work(contenders[name](turn), queues, data, results)
            if turn >= 0:
                found[name].append(run)
    return found


# The contenders of figures 8 to 11, by the names they have there


@dataclass(frozen=True)
class ReferenceSize:
    """Up to how many results, how often."""

    results: int
    rounds: int

    def marks(self, count: int) -> list[int]:
        return [self.results * i // count for i in range(1, count + 1)]

    def data(self, order: Order) -> News:
        """Streams that are not read to their end: of news at most one for each result."""
        return news(round(1.1 * self.results) + 100, order, 1_000)


SIZES = {True: ReferenceSize(3_000, 2), False: ReferenceSize(10_000, 5)}  # quick, full


def schedulers(ours: str, default: str) -> dict[str, Callable[[int], MJoin | QueuedXJoin]]:
    """Figure 8: at once purged and propagated."""
    plain = Settings(buckets=BUCKETS, streams="random", tuples="sequential")
    return {
        ours: lambda _: MJoin(Settings(buckets=BUCKETS, quota=QUOTA)),
        default: lambda turn: MJoin(replace(plain, seed=turn + 1)),
    }


def operators(mjoin: str, xjoin: str, immediate: str) -> dict[str, Callable[[int], MJoin | QueuedXJoin]]:
    """Figures 9 to 11: nothing is propagated."""
    settings = Settings(buckets=BUCKETS, quota=QUOTA, propagate=False)
    return {
        mjoin: lambda _: MJoin(replace(settings, purge_every=100)),
        xjoin: lambda turn: QueuedXJoin(seed=turn + 1),
        immediate: lambda _: MJoin(settings),
    }
