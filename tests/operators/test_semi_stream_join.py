"""A stream joined with master data: it equals the batch join, whatever the pieces, memory and versions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streamjoin as sj
from streamjoin.batch import Batch, Layout
from streamjoin.keys import hash_keys
from streamjoin.operators.master_cache import MasterCache
from streamjoin.operators.semi_stream_join import SemiSpec, SemiStreamJoin

STREAM = Layout((pa.int64(),), payload_types=(pa.int64(),))
MASTER = Layout((pa.int64(),), payload_types=(pa.int64(), pa.string()))
OUTPUT = pa.schema({"k": pa.int64(), "id": pa.int64(), "row": pa.int64(), "version": pa.string()})
PLENTY = SemiSpec(STREAM, MASTER, OUTPUT, memory_bytes=1 << 20)


def batch(layout: Layout, *columns: Any) -> Batch:
    arrays = [pa.array(values, dtype) for values, dtype in zip(columns, layout.schema.types[1:], strict=True)]
    return layout.batch([pa.array(hash_keys(arrays[:1])), *arrays])


def tuples(keys: list[int], first: int = 0) -> Batch:
    return batch(STREAM, keys, list(range(first, first + len(keys))))


@dataclass(frozen=True)
class Table:
    """Master data in memory, cut into pieces."""

    keys: tuple[int, ...]
    version: str = "v1"
    rows_per_piece: int = 3
    read_pieces: list[int] = field(default_factory=list)

    @property
    def pieces(self) -> list[Batch]:
        step, count = self.rows_per_piece, len(self.keys)
        numbers = [range(at, min(at + step, count)) for at in range(0, count, step)]
        return [
            batch(MASTER, [self.keys[n] for n in each], list(each), [self.version] * len(each)).sorted()
            for each in numbers
        ]

    @property
    def piece_bytes(self) -> tuple[int, ...]:
        return tuple(piece.nbytes for piece in self.pieces)

    @property
    def row_bytes(self) -> float:
        return sum(self.piece_bytes) / max(len(self.keys), 1)

    def read(self, piece: int) -> Batch:
        self.read_pieces.append(piece)
        return self.pieces[piece]


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


def test_a_tuple_waits_until_it_has_met_every_piece():
    join = SemiStreamJoin(PLENTY, Table((1, 2, 3, 1, 5, 6, 7, 1)))
    assert told(join.process(tuples([1]), steps=1)) == {(1, 0, 0, "v1"): 1}
    assert told(join.process(tuples([6], 1), steps=1)) == {(1, 0, 3, "v1"): 1, (6, 1, 5, "v1"): 1}
    assert told(join.process(tuples([]), steps=1)) == {(1, 0, 7, "v1"): 1}
    assert join.waiting == 1  # 6 has not met the first piece yet
    assert told(join.process(tuples([]), steps=1)) == {}
    assert join.waiting == 0


def test_a_frequent_value_moves_into_the_cache_with_all_its_rows():
    """1 comes five times a batch and has two rows, in different pieces; 2 comes once."""
    join = SemiStreamJoin(PLENTY, Table((1, 2, 3, 1)))
    for number in range(12):
        keys = [1] * 5 + [2]
        found = told(join.process(tuples(keys, 6 * number), steps=1))
        if join.cached_tuples:
            break
    assert join.cache.keys.keys[0].to_pylist() == [1]
    assert join.cache.rows.payload[0].to_pylist() == [0, 3]
    assert Counter(row[0] for row in found)[1] >= 10
    assert join.waiting == 1  # the last 2


def test_a_value_moves_also_where_every_batch_reads_the_whole_table():
    join = SemiStreamJoin(PLENTY, Table((1, 2, 3, 1)))
    for number in range(4):
        assert len(told(join.process(tuples([1] * 5 + [2], 6 * number), steps=2))) == 11
        assert join.waiting == 0
    assert join.cached_tuples > 0


def test_a_value_without_master_rows_is_remembered_as_such():
    join = SemiStreamJoin(replace(PLENTY, preserves=True), Table((1, 2, 3, 4)))
    assert told(join.process(tuples([9] * 8), steps=2)) == {(9, n, None, None): 1 for n in range(8)}
    assert join.cache.keys.keys[0].to_pylist() == [9]
    assert told(join.process(tuples([9], 8), steps=0)) == {(9, 8, None, None): 1}


def test_what_is_no_longer_frequent_leaves_the_cache():
    join = SemiStreamJoin(PLENTY, Table((1, 2, 3, 4)))
    for number in range(70):
        keys = [1] * 5 + [2] if number < 30 else [2, 3]
        list(join.process(tuples(keys, 10 * number), steps=1))
        if number == 29:
            assert 1 in join.cache.keys.keys[0].to_pylist()
    assert 1 not in join.cache.keys.keys[0].to_pylist()


def test_nothing_is_read_where_nothing_waits():
    table = Table((1, 2, 3, 4))
    join = SemiStreamJoin(PLENTY, table)
    list(join.process(tuples([]), steps=5))
    assert table.read_pieces == []
    list(join.process(tuples([1]), steps=5))
    assert table.read_pieces == [0, 1]


def test_memory_too_small_for_a_piece_is_refused_with_the_minimum():
    with pytest.raises(sj.InvalidJoin, match=r"memory=10 bytes is too small: .* need [0-9,]+; give that"):
        SemiStreamJoin(replace(PLENTY, memory_bytes=10), Table((1, 2, 3)))


def test_memory_stays_within_its_limit():
    table = Table(tuple(range(40)), rows_per_piece=4)
    limit = 3 * max(table.piece_bytes)
    join = SemiStreamJoin(replace(PLENTY, memory_bytes=limit), table)
    rng = np.random.default_rng(5)
    for number in range(40):
        keys = [int(key) for key in rng.zipf(1.5, 30) % 50]
        for _ in join.process(tuples(keys, 30 * number), steps=1):
            assert join.division().total <= limit
        assert join.division().total <= limit


BATCHES = st.lists(st.lists(st.integers(0, 12), max_size=12), min_size=1, max_size=25)
MASTERS = st.lists(st.lists(st.integers(0, 12), max_size=14), min_size=1, max_size=3)


def equals_the_batch_join(
    batches: list[list[int]], masters: list[list[int]], cut: int, memory: int, steps: int, kind: int
) -> None:
    tables = [Table(tuple(keys), f"v{n}", cut) for n, keys in enumerate(masters)]
    least = 2 * max(max(table.piece_bytes, default=0) for table in tables)
    left, caches = bool(kind & 1), bool(kind & 2)
    spec = replace(PLENTY, memory_bytes=least + memory, preserves=left, caches=caches, frame_rows=5)
    join = SemiStreamJoin(spec, tables[0])
    found: Counter[tuple[Any, ...]] = Counter()
    expected: Counter[tuple[Any, ...]] = Counter()
    number = 0
    for at, keys in enumerate(batches):
        table = tables[at * len(tables) // len(batches)]
        join.use(table)
        found += told(join.process(tuples(keys, number), steps))
        expected += naive(list(zip(keys, range(number, number + len(keys)), strict=True)), table, left=left)
        number += len(keys)
    found += told(join.finish())
    assert found == expected
    assert join.waiting == 0


@settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(BATCHES, MASTERS, st.integers(1, 6), st.integers(0, 3000), st.integers(0, 4), st.integers(0, 3))
def test_it_equals_the_batch_join(batches, masters, cut, memory, steps, kind):
    equals_the_batch_join(batches, masters, cut, memory, steps, kind)


def a_value_enters_with_a_part_of_its_rows() -> Any:
    good = MasterCache.add
    return patch.object(
        MasterCache, "add", lambda self, keys, rows: good(self, keys, rows.slice(0, max(len(rows) - 1, 0)))
    )


def the_cache_outlives_its_version() -> Any:
    def use(self: SemiStreamJoin, master: Any) -> None:
        cache = self.cache
        if master.version != self.readings[-1].master.version:
            self.readings.append(type(self.readings[-1])(master))
        self.cache = cache

    return patch.object(SemiStreamJoin, "use", use)


def chunks_leave_one_piece_early() -> Any:
    good = SemiStreamJoin._read_piece

    def read(self: SemiStreamJoin, reading: Any) -> Any:
        for chunk in reading.chunks:
            if chunk.pieces_left == 2:
                chunk.pieces_left = 1
        return good(self, reading)

    return patch.object(SemiStreamJoin, "_read_piece", read)


@pytest.mark.parametrize(
    "bug",
    [a_value_enters_with_a_part_of_its_rows, the_cache_outlives_its_version, chunks_leave_one_piece_early],
    ids=lambda each: each.__name__,
)
def test_a_planted_bug_is_found(bug):
    rng = np.random.default_rng(0)
    for _ in range(300):
        batches = [[int(key) for key in rng.zipf(1.7, rng.integers(0, 12)) % 12] for _ in range(40)]
        masters = [[int(key) for key in rng.integers(0, 12, 14)] for _ in range(2)]
        given_ = (batches, masters, 5, 3000, int(rng.integers(1, 4)), 3)
        try:
            with bug():
                equals_the_batch_join(*given_)
        except AssertionError:
            equals_the_batch_join(*given_)
            return
    pytest.fail("not found")
