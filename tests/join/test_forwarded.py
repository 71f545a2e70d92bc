"""Punctuations about a later key wait until no tuple they speak of is held, and until all have made them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from streamjoin.columnar.batch import Layout
from streamjoin.columnar.keys import hash_keys
from streamjoin.join.forwarded_punctuations import ForwardedPunctuations, punctuation_rows
from streamjoin.join.spec import InputSpec
from streamjoin.state.sorted_runs import RunNames, SortedRuns

LAYOUT = Layout((pa.int64(),), payload_types=(pa.string(), pa.int64()))
# b(x, v, y): the key is x; a punctuation names y (payload 1) for a later key y, or x and y for a later (x, y)
SPEC = InputSpec("b", LAYOUT, ("x", "v", "y"), forwarded=(1,), later=((1,), (0, 1)))


def punctuated(*rows: tuple[int | None, int | None], by: int = 0) -> pa.RecordBatch:
    columns = [pa.array([row[i] for row in rows], pa.int64()) for i in range(2)]
    return punctuation_rows(columns, np.full(len(rows), by))


def side(*rows: tuple[int, int | None]) -> SortedRuns:
    found = SortedRuns("s", LAYOUT, RunNames())
    keys, values = (pa.array([row[i] for row in rows], pa.int64()) for i in range(2))
    batch = LAYOUT.batch([pa.array(hash_keys([keys])), keys, pa.nulls(len(rows), pa.string()), values])
    found.append(batch.sorted())
    return found


def told(
    forwarded: ForwardedPunctuations, held: SortedRuns, gone: int = 0
) -> list[tuple[int | None, int | None]]:
    columns = forwarded.take(held, gone)
    return [] if columns is None else sorted(zip(*(one.to_pylist() for one in columns), strict=True), key=str)


def test_a_punctuation_waits_for_the_tuples_it_speaks_of():
    held, forwarded = side((1, 7), (2, 8), (3, None)), ForwardedPunctuations(SPEC)
    forwarded.add(punctuated((None, 7), (None, 9), (2, 8), (1, 8)))
    assert told(forwarded, held) == [(1, 8), (None, 9)]
    assert len(forwarded) == 2
    run = next(held.runs)
    run.delete(np.flatnonzero(run.batch.payload[1].to_numpy(zero_copy_only=False) == 7))
    assert told(forwarded, held) == []  # nobody said that tuples have left
    assert told(forwarded, held, gone=1) == [(None, 7)]
    assert told(forwarded, held, gone=2) == []


def test_what_no_later_key_can_use_is_not_kept():
    forwarded = ForwardedPunctuations(replace(SPEC, later=((1,),)))
    forwarded.add(punctuated((5, 7), (None, 7), (5, None)))
    assert told(forwarded, side()) == [(None, 7)]
    assert len(forwarded) == 0


@pytest.mark.parametrize("partitions", [2, 3])
def test_a_punctuation_counts_when_all_have_made_it(partitions):
    forwarded = ForwardedPunctuations(replace(SPEC, partitions=partitions))
    for by in range(partitions - 1):
        forwarded.add(punctuated((None, 7), (None, by), by=by))
        forwarded.add(punctuated((None, 7), by=by))  # again: still one of them
        assert told(forwarded, side()) == []
    forwarded.add(punctuated((None, 7), by=partitions))
    assert told(forwarded, side()) == [(None, 7)]
    assert len(forwarded) == partitions - 1
