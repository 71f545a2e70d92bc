"""A stream joined with a table: it equals the batch join, whatever the segments, memory and versions."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streamjoin as sj
from streamjoin.columnar.batch import Batch, Layout
from streamjoin.columnar.keys import hash_keys
from streamjoin.columnar.match import expand
from streamjoin.enrich.cache import TableCache
from streamjoin.enrich.operator import EnrichJoin, EnrichSpec
from streamjoin.enrich.paper_scan import PaperScan
from streamjoin.enrich.read_costs import ReadCosts
from streamjoin.enrich.scan import OrderedScan, Scan
from streamjoin.enrich.snapshot import from_bytes, to_bytes
from streamjoin.state.run import Run, match

STREAM = Layout((pa.int64(),), payload_types=(pa.int64(),))
TABLE = Layout((pa.int64(),), payload_types=(pa.int64(), pa.string()))
OUTPUT = pa.schema({"k": pa.int64(), "id": pa.int64(), "row": pa.int64(), "version": pa.string()})
PLENTY = EnrichSpec(STREAM, TABLE, OUTPUT, memory_bytes=1 << 20, access="scan")


def batch(layout: Layout, *columns: Any) -> Batch:
    arrays = [pa.array(values, dtype) for values, dtype in zip(columns, layout.schema.types[1:], strict=True)]
    return layout.batch([pa.array(hash_keys(arrays[:1])), *arrays])


def tuples(keys: list[int], first: int = 0) -> Batch:
    return batch(STREAM, keys, list(range(first, first + len(keys))))


@dataclass(frozen=True)
class Table:
    """A table in memory, cut into segments; in order of their hashes, or as it is."""

    keys: tuple[int, ...]
    version: str = "v1"
    rows_per_segment: int = 3
    ordered: bool = False
    costs: ReadCosts = field(default_factory=ReadCosts)
    read_segments: list[int] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return len(self.keys)

    @cached_property
    def segments(self) -> list[Batch]:
        count = len(self.keys)
        whole = batch(TABLE, list(self.keys), list(range(count)), [self.version] * count)
        cuts = list(range(0, count, self.rows_per_segment))
        if self.ordered:
            whole = whole.sorted()
            firsts = whole.groups.start
            cuts = sorted({int(firsts[np.searchsorted(firsts, cut, side="right") - 1]) for cut in cuts})
        return [whole.slice(a, b - a).sorted() for a, b in itertools.pairwise([*cuts, count])]

    @property
    def starts(self) -> Any:
        return np.array([segment.hash[0] for segment in self.segments], np.int64) if self.ordered else None

    @property
    def segment_bytes(self) -> tuple[int, ...]:
        return tuple(segment.nbytes for segment in self.segments)

    @property
    def row_bytes(self) -> float:
        return sum(self.segment_bytes) / max(len(self.keys), 1)

    def read(self, segment: int) -> Batch:
        self.read_segments.append(segment)
        return self.segments[segment]

    def find(self, segment: int, keys: Batch) -> Batch:
        rows = self.segments[segment]
        hit = match(keys, Run("segment", rows))
        return rows.take(np.sort(expand(hit.start, hit.count)[1]))


def told(frames: Any) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for frame in frames for row in frame.to_pylist())


def naive(rows: list[tuple[int, int]], table: Table, *, left: bool) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for key, number in rows:
        partners = [n for n, each in enumerate(table.keys) if each == key]
        found.update((key, number, n, table.version) for n in partners)
        if left and not partners:
            found[key, number, None, None] += 1
    return found


def fed(join: EnrichJoin, rows: Batch, segments: int) -> Counter[tuple[Any, ...]]:
    """Tuples come, then so many segments are read."""
    return told(join.process(rows)) + told(join.read(segments))


def cached(join: EnrichJoin) -> list[int]:
    return sorted({key for side in join.cache.sides for key in side.live().keys[0].to_pylist()})


def test_a_tuple_waits_until_it_has_met_every_segment():
    join = EnrichJoin(PLENTY, Table((1, 2, 3, 1, 5, 6, 7, 1)))
    assert fed(join, tuples([1]), 1) == {(1, 0, 0, "v1"): 1}
    assert fed(join, tuples([6], 1), 1) == {(1, 0, 3, "v1"): 1, (6, 1, 5, "v1"): 1}
    assert fed(join, tuples([]), 1) == {(1, 0, 7, "v1"): 1}
    assert join.waiting == 1  # 6 has not met the first segment yet
    assert fed(join, tuples([]), 1) == {}
    assert join.waiting == 0


def test_where_segments_are_in_order_a_tuple_waits_for_its_own():
    table = Table((1, 2, 3, 1, 5, 6, 7, 1), ordered=True)
    join = EnrichJoin(PLENTY, table)
    last = table.segments[-1].keys[0][0].as_py()
    first = table.segments[0].keys[0][0].as_py()
    answers = [fed(join, tuples([first, last]), 1), *(told(join.read(1)) for _ in table.segments[1:])]
    assert {row[0] for row in answers[0]} == {first}
    assert {row[0] for row in answers[-1]} == {last}
    assert not any(answers[1:-1])
    assert table.read_segments == [0, len(table.segments) - 1]  # the others were of no use
    assert join.waiting == 0


def test_few_keys_are_looked_up_and_many_are_scanned():
    """Two of ten segments are due in a batch; a lookup costs as much as reading half a segment."""
    table = Table(tuple(range(60)), rows_per_segment=6, ordered=True)
    table = replace(table, costs=ReadCosts(1.0, max(table.segment_bytes) / 2, 0.0))
    join = EnrichJoin(replace(PLENTY, access="auto", cycle_batches=5, caches=False), table)
    assert len(told(join.process(tuples([1, 2, 3]))) + told(join.step())) == 3
    assert (join.counts.keys_found, join.counts.segments_read, join.waiting) == (3, 0, 0)
    many = list(range(60))
    assert len(told(join.process(tuples(many))) + told(join.step())) == 12
    assert (join.counts.keys_found, join.counts.segments_read, join.waiting) == (3, 2, 48)


def test_a_frequent_value_moves_into_the_cache_with_all_its_rows():
    """1 comes five times a batch and has two rows, in different segments; 2 comes once."""
    join = EnrichJoin(replace(PLENTY, switching_factor=2.0), Table((1, 2, 3, 1)))
    for number in range(12):
        found = fed(join, tuples([1] * 5 + [2], 6 * number), 1)
        if join.counts.hits:
            break
    assert cached(join) == [1]
    assert sorted(join.cache.rows.live().payload[0].to_pylist()) == [0, 3]
    assert Counter(row[0] for row in found)[1] >= 10
    assert join.waiting == 1  # the last 2


@pytest.mark.parametrize("ordered", [False, True])
def test_a_value_moves_also_where_every_batch_reads_the_whole_table(ordered):
    join = EnrichJoin(PLENTY, Table((1, 2, 3, 1), ordered=ordered))
    for number in range(4):
        rows = tuples([1] * 40 + [2], 41 * number)
        assert len(told(join.process(rows)) + told(join.step())) == 81
        assert join.waiting == 0
    assert join.counts.hits > 0


@pytest.mark.parametrize("ordered", [False, True])
def test_a_value_without_table_rows_is_remembered_as_such(ordered):
    join = EnrichJoin(replace(PLENTY, preserves=True), Table((1, 2, 3, 4), ordered=ordered))
    assert fed(join, tuples([9] * 8), 4) == {(9, n, None, None): 1 for n in range(8)}
    assert cached(join) == [9]
    assert fed(join, tuples([9], 8), 0) == {(9, 8, None, None): 1}


@pytest.mark.parametrize("ordered", [False, True])
def test_what_is_no_longer_frequent_leaves_the_cache(ordered):
    """As in the paper always; where segments are in order, when memory is short."""
    join = EnrichJoin(PLENTY, Table((1, 2, 3, 4), ordered=ordered))
    for number in range(70):
        join.short_at = join.clock
        keys = [1] * 20 + [2] if number < 30 else [2, 3]
        fed(join, tuples(keys, 30 * number), 1)
        if number == 29:
            assert 1 in cached(join)
    assert 1 not in cached(join)


def test_where_keys_are_looked_up_the_most_frequent_stay_in_a_full_cache():
    table = Table(tuple(range(400)), rows_per_segment=20, ordered=True)
    limit = 3 * max(table.segment_bytes)
    join = EnrichJoin(replace(PLENTY, access="lookup", memory_bytes=limit), table)
    rng = np.random.default_rng(1)
    for number in range(300):
        keys = [int(key) for key in rng.zipf(1.6, 20) % 400]
        assert len(told(join.process(tuples(keys, 20 * number))) + told(join.step())) == 20
        assert join.division().total <= limit
    assert join.counts.evicted > 0
    assert set(range(1, 6)) <= set(cached(join))
    assert join.counts.hits > 0.6 * join.counts.rows


def test_a_value_that_pays_is_cached_although_others_have_taken_the_spare_memory():
    """Segments that are read first fill the cache; the most frequent value is in the last one."""
    table = Table(tuple(range(400)), rows_per_segment=20, ordered=True)
    frequent = table.segments[-1].keys[0][0].as_py()
    join = EnrichJoin(replace(PLENTY, memory_bytes=40_000, cycle_batches=4), table)
    for number in range(4):
        keys = [*range(400), *[frequent] * 50]
        told([*join.process(tuples(keys, 450 * number)), *join.step()])
    assert not join.is_short
    assert frequent in cached(join)


def test_nothing_is_read_where_nothing_waits():
    table = Table((1, 2, 3, 4))
    join = EnrichJoin(PLENTY, table)
    fed(join, tuples([]), 5)
    assert table.read_segments == []
    fed(join, tuples([1]), 5)
    assert sorted(table.read_segments) == [0, 1]


def test_memory_too_small_for_a_segment_is_refused_with_the_minimum():
    with pytest.raises(sj.InvalidJoin, match=r"memory=10 bytes is too small: .* need [0-9,]+; give that"):
        EnrichJoin(replace(PLENTY, memory_bytes=10), Table((1, 2, 3)))


@pytest.mark.parametrize("ordered", [False, True])
def test_memory_stays_within_its_limit(ordered):
    table = Table(tuple(range(40)), rows_per_segment=4, ordered=ordered)
    limit = 3 * max(table.segment_bytes)
    join = EnrichJoin(replace(PLENTY, memory_bytes=limit, access="auto"), table)
    rng = np.random.default_rng(5)
    for number in range(40):
        keys = [int(key) for key in rng.zipf(1.5, 30) % 50]
        for frames in (join.process(tuples(keys, 30 * number)), join.read(1)):
            for _ in frames:
                assert join.division().total <= limit
            assert join.division().total <= limit


@pytest.mark.parametrize("ordered", [False, True])
def test_more_is_read_for_a_stream_that_is_faster_than_the_memory_allows(ordered):
    """400 rows in a batch, memory for about twenty: segments are read before they are due, none is lost."""
    table = Table(tuple(range(40)), rows_per_segment=4, ordered=ordered)
    join = EnrichJoin(
        replace(PLENTY, memory_bytes=2 * max(table.segment_bytes) + 600, cycle_batches=10), table
    )
    keys = list(range(40)) * 10
    found = told(join.process(tuples(keys)))
    assert join.counts.segments_forced > 0
    assert join.waiting > 0
    found += told(join.finish())
    assert found == naive(list(zip(keys, range(400), strict=True)), table, left=False)


TIMED = Layout((pa.int64(),), timed=True, payload_types=(pa.int64(),))
LATE = replace(PLENTY, stream=TIMED, wait_us=10, preserves=True)


def timed(keys: list[int], times: list[int]) -> Batch:
    arrays = [pa.array(keys), pa.array(times)]
    return TIMED.batch([pa.array(hash_keys(arrays[:1])), pa.array(times), *arrays])


@pytest.mark.parametrize("ordered", [False, True])
def test_a_tuple_without_a_table_row_waits_for_a_version_that_has_it(ordered):
    """Tuple 9 came at 100 and waits until 110; 8 came at 104. A version with both comes at 112."""
    join = EnrichJoin(LATE, Table((1,), ordered=ordered))
    assert told(join.process(timed([9, 1, 8], [100, 101, 104]))) + told(join.step()) == {(1, 101, 0, "v1"): 1}
    assert told(join.advance(104)) == {}
    assert join.in_waiting_room == 2
    assert told(join.advance(111)) == {(9, 100, None, None): 1}
    join.use(Table((8, 9), "v2", ordered=ordered))
    assert told(join.step()) == {(8, 104, 0, "v2"): 1}
    assert (join.in_waiting_room, join.counts.retried, join.counts.unmatched) == (0, 1, 1)


BATCHES = st.lists(st.lists(st.integers(0, 12), max_size=12), min_size=1, max_size=25)
TABLES = st.lists(st.lists(st.integers(0, 12), max_size=14), min_size=1, max_size=3)
WAYS = st.tuples(
    st.booleans(),  # left
    st.booleans(),  # caches
    st.booleans(),  # ordered
    st.sampled_from(["auto", "scan", "lookup"]),
    st.integers(1, 4),  # cycle_batches
    st.sampled_from([0.1, 100.0, 1000.0]),  # bytes for which a lookup is paid
    st.integers(0, 3),  # a restart every so many batches
)


def equals_the_batch_join(
    batches: list[list[int]], keys_of_versions: list[list[int]], cut: int, memory: int, ways: tuple[Any, ...]
) -> None:
    left, caches, ordered, access, cycle_batches, per_key, restarts = ways
    costs = ReadCosts(1.0, per_key, per_key / 2)
    tables = [Table(tuple(keys), f"v{n}", cut, ordered, costs) for n, keys in enumerate(keys_of_versions)]
    least = 2 * max(max(table.segment_bytes, default=0) for table in tables)
    spec = replace(
        PLENTY,
        memory_bytes=least + memory,
        preserves=left,
        caches=caches,
        frame_rows=5,
        access=access,
        cycle_batches=cycle_batches,
    )
    join = EnrichJoin(spec, tables[0])
    found: Counter[tuple[Any, ...]] = Counter()
    expected: Counter[tuple[Any, ...]] = Counter()
    number = 0
    for at, keys in enumerate(batches):
        table = tables[at * len(tables) // len(batches)]
        join.names.begin(at)
        join.use(table)
        found += told(join.process(tuples(keys, number))) + told(join.step())
        expected += naive(list(zip(keys, range(number, number + len(keys)), strict=True)), table, left=left)
        number += len(keys)
        assert join.division().total <= spec.memory_bytes
        if cycle_batches == 1:
            assert (join.waiting, found) == (0, expected)
        if restarts and at % restarts == 0:
            join = from_bytes(spec, to_bytes(join), {one.version: one for one in tables}.__getitem__)
    for _ in range(cycle_batches - 1):
        found += told(join.step())
    assert found == expected
    assert join.waiting == 0


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(BATCHES, TABLES, st.integers(1, 6), st.integers(80, 3000), WAYS)
def test_it_equals_the_batch_join(batches, keys_of_versions, cut, memory, ways):
    equals_the_batch_join(batches, keys_of_versions, cut, memory, ways)


def a_value_enters_with_a_part_of_its_rows() -> Any:
    good = TableCache.add

    def add(self: TableCache, rows: Batch, absent: Batch, met: Any, since: int) -> int:
        fewer = max(len(rows) - 1, 0)
        return good(self, rows.slice(0, fewer), absent, (met[0][:fewer], met[1]), since)

    return patch.object(TableCache, "add", add)


def a_value_enters_twice() -> Any:
    return patch.object(TableCache, "_contains", lambda self, rows: np.zeros(len(rows.groups), np.bool_))


def the_cache_outlives_its_version() -> Any:
    return patch.object(TableCache, "clear", lambda self: None)


def chunks_leave_one_segment_early(kind: type[Scan]) -> Any:
    good = kind.visit

    def visit(self: Any, join: Any) -> Any:
        for chunk in self.chunks:
            if chunk.segments_left == 2:
                chunk.segments_left = 1
        return good(self, join)

    return patch.object(kind, "visit", visit)


BUGS = {
    "a value enters with a part of its rows": a_value_enters_with_a_part_of_its_rows,
    "a value enters twice": a_value_enters_twice,
    "the cache outlives its version": the_cache_outlives_its_version,
    "chunks leave early": lambda: chunks_leave_one_segment_early(PaperScan),
    "chunks leave early where segments are in order": lambda: chunks_leave_one_segment_early(OrderedScan),
}


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS)
def test_a_planted_bug_is_found(bug):
    rng = np.random.default_rng(0)
    for _ in range(400):
        batches = [[int(key) for key in rng.zipf(1.7, rng.integers(0, 60)) % 12] for _ in range(20)]
        keys_of_versions = [[int(key) for key in rng.integers(0, 12, 14)] for _ in range(2)]
        ways = True, True, bool(rng.integers(2)), "scan", int(rng.integers(1, 4)), 1.0, int(rng.integers(3))
        given_ = (batches, keys_of_versions, int(rng.integers(1, 6)), int(rng.integers(80, 3000)), ways)
        try:
            with bug():
                equals_the_batch_join(*given_)
        except AssertionError:
            equals_the_batch_join(*given_)
            return
    pytest.fail("not found")
