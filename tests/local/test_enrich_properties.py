"""A stream enriched in this process equals the batch join, however it is cut, stopped and refreshed.

What is expected is computed row by row, from the words of the semantics: a row meets the version that was
current when it came; where it may wait, it meets each later version that came while event time had not
passed its own by more than the wait. A row is answered within `cycle_batches` calls.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

import streamjoin as sj
from streamjoin.columnar.keys import hash_keys
from streamjoin.declare.table import Table
from streamjoin.enrich.operator import EnrichJoin
from streamjoin.join.intake import Intake
from streamjoin.local.enrich import EnrichRun, _EnrichStep
from streamjoin.state.sorted_runs import SortedRuns
from tests.tables import one_hash

ORDERS = pa.schema({"k": pa.int64(), "n": pa.int64(), "t": pa.timestamp("us")})
WAIT, LATENESS = 6, 1  # seconds
Answers = Counter[tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    """What is declared, and what happens: ("push", [(key, second), …]) or ("refresh" | "tick" | "stop",)."""

    happens: list[tuple[Any, ...]]
    versions: list[list[int]]  # the keys of each version's rows
    memory: int = 1 << 20
    cycle_batches: int = 1
    operator: str | None = None
    left: bool = False
    waits: bool = False
    segment_bytes: int = 64
    collide: bool = False
    access: str = "auto"

    def table(self, version: int) -> Table:
        keys = self.versions[version]
        rows = [f"{version}.{i}" for i in range(len(keys))]
        table = pa.table({"k": pa.array(keys, pa.int64()), "row": pa.array(rows, pa.string())})
        return sj.table(
            table,
            name="customers",
            key="k",
            memory=self.memory,
            cycle_batches=self.cycle_batches,
            version=f"v{version}",
            wait=f"{WAIT} seconds" if self.waits else None,
            how="left" if self.left else "inner",
        )

    def run(self, folder: str, version: int = 0, snapshot: bytes | None = None) -> EnrichRun:
        timed = {"time": "t", "lateness": f"{LATENESS} seconds"} if self.waits else {}
        orders = sj.stream(ORDERS, name="orders", key="k", **timed)
        plan = sj.enrich(orders, self.table(version), operator=self.operator).plan
        if self.operator is None:
            plan = replace(plan, spec=replace(plan.spec, access=self.access))
        hash_function = one_hash if self.collide else hash_keys
        return EnrichRun(
            plan,
            folder=folder,
            snapshot=snapshot,
            hash_function=hash_function,
            segment_bytes=self.segment_bytes,
        )


@dataclass
class Naive:
    """Row by row: what has left, and who still waits for a table row that comes late."""

    case: Case
    version: int = 0
    latest: float = -np.inf
    answered: Answers = field(default_factory=Counter)
    alone: list[tuple[Any, ...]] = field(default_factory=list)

    def push(self, rows: list[tuple[Any, ...]]) -> None:
        self.latest = max([self.latest, *(second for _, _, second in rows)])
        self.alone += [row for row in rows if not self._meets(row)]

    def refresh(self) -> None:
        self.version += 1
        if self.case.waits:
            self.alone = [row for row in self.alone if self._passed(row) or not self._meets(row)]

    def _passed(self, row: tuple[Any, ...]) -> bool:
        return bool(row[2] + WAIT < self.latest - LATENESS)

    def _meets(self, row: tuple[Any, ...]) -> bool:
        keys = self.case.versions[self.version]
        found = [f"{self.version}.{i}" for i, key in enumerate(keys) if key == row[0]]
        self.answered.update((*row[:2], each) for each in found)
        return bool(found)

    def all_answers(self) -> Answers:
        padded = Counter((*row[:2], None) for row in self.alone) if self.case.left else Counter()
        return self.answered + padded


def orders(rows: list[tuple[Any, ...]]) -> pa.Table:
    key, number, second = zip(*rows, strict=True) if rows else ([], [], [])
    return pa.table([key, number, [at * 1_000_000 for at in second]], schema=ORDERS)


def told(result: pa.Table) -> Answers:
    return Counter((row["k"], row["n"], row["row"]) for row in result.to_pylist())


def check(case: Case) -> dict[str, int]:
    """Whether it answers as it should; what it counted."""
    with tempfile.TemporaryDirectory() as folder:
        return _check(case, folder)


def _check(case: Case, folder: str) -> dict[str, int]:
    run, naive = case.run(folder), Naive(case)
    found: Answers = Counter()
    due: list[Answers] = []  # what the naive join had answered after each call
    number = 0
    for at, (what, *given_) in enumerate(case.happens):
        if what == "push":
            rows = [(key, number + i, second + at) for i, (key, second) in enumerate(given_[0])]
            number += len(rows)
            naive.push(rows)
            found += told(run.push("orders", orders(rows)))
        elif what == "tick":
            found += told(run.tick())
        elif what == "refresh" and naive.version + 1 < len(case.versions):
            naive.refresh()
            found += told(run.refresh(case.table(naive.version)))
        else:
            if what == "stop":
                run = case.run(folder, naive.version, run.snapshot())
            continue
        due.append(naive.answered.copy())
        if len(due) >= case.cycle_batches and not case.waits:
            assert not due[-case.cycle_batches] - found, "a row waited longer than cycle_batches"
        assert sum(one.memory_bytes for one in run.state().values()) <= case.memory
    found += told(run.finish())
    assert found == naive.all_answers()
    assert (run.waiting, run.in_waiting_room) == (0, 0)
    counted = run.counters()
    assert (counted["orders_rows"], counted["results"]) == (number, found.total())
    return counted


KEYS = st.one_of(st.integers(0, 3), st.integers(0, 12), st.integers(0, 12), st.none())
PUSH = st.tuples(st.just("push"), st.lists(st.tuples(KEYS, st.integers(0, 9)), min_size=1, max_size=12))
OTHER = st.sampled_from([("refresh",), ("refresh",), ("tick",), ("stop",)])
TABLES = st.one_of(
    st.lists(st.integers(0, 12), max_size=3), st.lists(st.integers(0, 12), min_size=8, max_size=14)
)


@st.composite
def cases(draw: Any) -> Case:
    waits = draw(st.booleans())
    cycle = draw(st.sampled_from([1, 2, 4, 7]))
    # A version that comes and goes while a row waits for an earlier one is not met: two are enough there.
    most = 2 if waits and cycle > 1 else 3
    return Case(
        draw(st.lists(st.one_of(PUSH, PUSH, OTHER), min_size=5, max_size=20)),
        draw(st.lists(TABLES, min_size=most - 1, max_size=most)),
        draw(st.integers(900, 4000)),
        cycle,
        draw(st.sampled_from([None, None, "ssbj", "meshjoin"])),
        draw(st.booleans()),
        waits,
        draw(st.sampled_from([1, 1, 60, 400])),
        draw(st.integers(0, 9)) == 0,
        draw(st.sampled_from(["auto", "scan", "lookup"])),
    )


MEANT = pytest.mark.filterwarnings("ignore::streamjoin.EmptyTable")


@MEANT
@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(cases())
def test_it_equals_the_batch_join(case):
    counted = check(case)
    for kind in ("hits", "keys_found", "segments_read", "retried"):
        event(f"{kind}: {counted[kind] > 0}")


TWO = st.lists(st.integers(0, 6), max_size=10)
HOW = st.sampled_from(["inner", "left"])


@MEANT
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.lists(st.one_of(st.integers(0, 8), st.none()), max_size=8), min_size=1, max_size=6),
    st.tuples(TWO, TWO),
    st.tuples(HOW, HOW),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
)
def test_two_tables_equal_two_batch_joins(batches, tables, how, cycles):
    """Stopped after each batch; padded rows of the first join meet the second as all others do."""
    found: Answers = Counter()
    expected: Answers = Counter()
    with tempfile.TemporaryDirectory() as folder:
        declared = [
            sj.table(
                pa.table({"k": pa.array(keys, pa.int64()), name: pa.array(range(len(keys)), pa.int64())}),
                name=name,
                key="k",
                memory="1 MB",
                how=how[at],
                cycle_batches=cycles[at],
            )
            for at, (name, keys) in enumerate(zip("xy", tables, strict=True))
        ]
        stream = sj.stream(pa.schema({"k": pa.int64(), "n": pa.int64()}), name="orders", key="k")
        joined = sj.enrich(stream, *declared)
        snapshot = None
        for at, keys in enumerate(batches):
            run = joined.local(folder=folder, snapshot=snapshot)
            rows = pa.table([pa.array(keys, pa.int64()), [at] * len(keys)], schema=stream.schema)
            found.update(tuple(row.values()) for row in run.push("orders", rows).to_pylist())
            snapshot = run.snapshot()
        found.update(tuple(row.values()) for row in run.finish().to_pylist())
    for at, keys in enumerate(batches):
        for key in keys:
            sides = []
            for table, kept in zip(tables, how, strict=True):
                hits = [i for i, each in enumerate(table) if each == key]
                sides.append(hits or ([None] if kept == "left" else []))
            expected.update((key, at, x, y) for x in sides[0] for y in sides[1])
    assert found == expected


def event_time_moves_only_at_the_end() -> Any:
    def advance(self: EnrichJoin, latest_us: int, good: Any = EnrichJoin.advance) -> Any:
        return good(self, latest_us) if latest_us == np.iinfo(np.int64).max else iter(())

    return patch.object(EnrichJoin, "advance", advance)


def a_version_is_removed_while_rows_wait_for_it() -> Any:
    newest = property(lambda self: (self.join.newest.table.version,))
    return patch.object(_EnrichStep, "in_use", newest)


def the_waiting_room_is_not_tried_again() -> Any:
    def use(self: EnrichJoin, table: Any, good: Any = EnrichJoin.use) -> None:
        waiting_room, self.waiting_room = (
            self.waiting_room,
            SortedRuns("none", self.spec.stream, self.names, self.waiting_room.policy),
        )
        good(self, table)
        self.waiting_room = waiting_room

    return patch.object(EnrichJoin, "use", use)


def rows_without_a_key_are_lost() -> Any:
    def init(self: Intake, good: Any = Intake.__post_init__) -> None:
        good(self)
        self.keep_unkeyed = False

    return patch.object(Intake, "__post_init__", init)


BUGS = (
    event_time_moves_only_at_the_end,
    a_version_is_removed_while_rows_wait_for_it,
    the_waiting_room_is_not_tried_again,
    rows_without_a_key_are_lost,
)


@MEANT
@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda each: each.__name__)
def test_a_planted_bug_is_found(bug):
    quick = settings(
        max_examples=400,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )

    @quick
    @given(cases())
    def holds(case: Case) -> None:
        check(case)

    with bug(), pytest.raises((AssertionError, sj.StreamJoinError)):
        holds()
