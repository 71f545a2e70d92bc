"""Random streams as the reference algorithms take them, and the product's local runs on the same."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from datetime import UTC, datetime, timedelta

import pyarrow as pa

import streamjoin as sj
from lab.reference.elements import End, Row

EPOCH = datetime(2004, 3, 14, tzinfo=UTC)
SCHEMA = pa.schema({"k": pa.int64(), "t": pa.timestamp("us", "UTC"), "v": pa.int64()})
NAMES = "abc"


def table(rows):
    """Rows of one input, a time unit taken for a second."""
    times = [EPOCH + timedelta(seconds=row.time) for row in rows]
    return pa.table([[r.key for r in rows], times, [r.number for r in rows]], schema=SCHEMA)


def numbers(results):
    """Results by the numbers of their rows, whatever their order."""
    return Counter(tuple(row.number for row in sorted(result)) for result in results)


class ProductRun:
    """A local run that takes elements one by one; `rows` as `numbers` has them, `ends` in order."""

    def __init__(self, *declared, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", sj.UnboundedState)
            streams = [
                sj.stream(SCHEMA, name=name, key="k", time="t", **one)
                for name, one in zip(NAMES, declared, strict=False)
            ]
            self.run = sj.join(*streams, **options).local()
        self.names, self.rows, self.ends = NAMES[: len(declared)], Counter(), []

    def take(self, element):
        name = self.names[element.input]
        if isinstance(element, End):
            self._add(self.run.punctuate(name, k=element.key))
        else:
            self._add(self.run.push(name, table([element])))

    def step(self, batch):
        """A batch with rows of each input."""
        some = zip(self.names, batch, strict=True)
        self._add(self.run.step({name: table(rows) for name, rows in some if rows}))

    def finish(self):
        self._add(self.run.finish())

    def _add(self, results):
        if results is not None and len(results):
            columns = [results[f"{name}_v"].to_pylist() for name in self.names]
            self.rows.update(zip(*columns, strict=True))
        self.ends += [int(one.text().strip("<>")) for one in self.run.punctuations()]

    @property
    def state(self):
        return [self.run.state().rows[name] for name in self.names]


def punctuated(seed, *, keys=12, rows=150, inputs=(0, 1), at_once=True, gap=2):
    """Rows of two inputs in order of time, with a punctuation after the last row of most keys.

    `at_once`: directly after it, as section 5.1 of PWJoin has it; otherwise somewhere later.
    """
    draw = random.Random(seed)
    time, made = 0, []
    for number in range(rows):
        time += draw.randrange(gap)
        low = keys * number // (2 * rows)  # keys drift, so that some are over early
        made.append(Row(draw.randrange(2), draw.randrange(low, min(low + keys // 2, keys)), time, number))
    last = {(row.input, row.key): place for place, row in enumerate(made)}
    after: dict[int, list[End]] = {}
    for (side, key), place in last.items():
        if side in inputs and draw.random() < 0.8:
            later = place if at_once else draw.randrange(place, rows)
            after.setdefault(later, []).append(End(side, key))
    return [element for place, row in enumerate(made) for element in (row, *after.get(place, ()))]


def one_to_many(seed, *, keys=15, rows=120, clustered=False, draw_news=None):
    """Each key once on input 0, up to 20 places off; records on input 1 with punctuations of their keys."""
    draw = random.Random(seed)
    records = sorted(draw.randrange(keys) for _ in range(rows))
    if not clustered:
        records = [
            key for _, key in sorted((place + draw.randrange(30), k) for place, k in enumerate(records))
        ]
    news = [key for _, key in sorted((key * rows / keys + draw.uniform(-20, 20), key) for key in range(keys))]
    many = []
    last = {key: place for place, key in enumerate(records)}
    for place, key in enumerate(records):
        many.append(Row(1, key, place, place))
        if last[key] == place and not clustered and draw.random() < 0.9:
            many.append(End(1, key))
    one = [Row(0, key, place, place) for place, key in enumerate(news)]
    made = []
    while one or many:
        queue = draw.choices((one, many), (len(one), len(many)))[0]
        made.append(queue.pop(0))
    return made
