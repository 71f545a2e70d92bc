"""A stretch of the news streams: consecutive ranges are the whole stream, and cost the blocks they touch."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamjoin.demo.generators.news import NEWS_SCHEMA, NewsStreams
from streamjoin.errors import InvalidJoin

any_streams = st.builds(
    NewsStreams,
    seed=st.integers(0, 2**40),
    items=st.integers(0, 60),
    records_per_item=st.sampled_from([0, 0.5, 3, 40]),
    order=st.sampled_from(["ordered", "random"]),
    open_items=st.integers(1, 12),
    shuffle=st.integers(1, 40),
    readers=st.integers(1, 50),
    first_sno=st.integers(-5, 1000),
)
steady = settings(deadline=None, max_examples=60)
block_sizes = st.sampled_from([1, 7, 100, 100_000])  # the rows of a block; small ones put many in a stream


@steady
@given(any_streams, block_sizes, st.lists(st.integers(-20, 100)))
def test_ranges_that_follow_each_other_give_the_whole_stream(streams, size, cuts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamjoin.demo.generators.news._BLOCK_ROWS", size)
        begin, end = streams.start_item, streams.end_item
        cuts = [begin, *sorted(min(max(cut, begin), end) for cut in cuts), end]
        for name, read in (("news", streams.news), ("access", streams.access)):
            pieces = [streams.between(name, start, stop) for start, stop in pairwise(cuts)]
            found = pa.concat_tables([streams.between(name, begin, begin), *pieces]).combine_chunks()
            whole = pa.concat_tables([found.schema.empty_table(), *read()]).combine_chunks()
            assert found.equals(whole)


@steady
@given(any_streams, st.integers(-20, 100), st.integers(0, 30))
def test_rows_of_a_range_are_those_of_its_time(streams, start, length):
    spans = {"news": streams._news_spans(), "access": streams._access_spans()}
    for name, pieces in spans.items():
        ticks, tables = zip(*pieces, strict=True)
        item = np.floor_divide(np.concatenate(ticks), 1 << 32)
        inside = (item >= start) & (item < start + length)
        expected = pa.concat_tables(tables).filter(pa.array(inside))
        assert streams.between(name, start, start + length).equals(expected.combine_chunks())
        assert all(streams.start_item <= at < streams.end_item for at in item)


def test_a_range_far_out_makes_only_the_blocks_it_touches(monkeypatch):
    made = []
    real = NewsStreams._access_block
    monkeypatch.setattr(
        NewsStreams,
        "_access_block",
        lambda self, block, *more: made.append(block) or real(self, block, *more),
    )
    endless = NewsStreams(seed=3, items=None, records_per_item=100)
    assert endless.end_item is None
    size = endless.block_items
    assert size == 1_000
    assert endless.between("access", 5_000 * size + 20, 5_000 * size + 40).num_rows > 1_000
    assert made == [5_000]
    assert endless.between("access", 5_000 * size, 5_000 * size + 40).num_rows > 1_000
    assert made == [5_000, 4_999, 5_000]


def test_a_stream_of_no_items_ends_where_it_begins():
    nothing = NewsStreams(seed=1, items=0, order="random")
    assert nothing.start_item == nothing.end_item == -5
    assert nothing.between("news", -5, 50).equals(NEWS_SCHEMA.empty_table())


def test_another_stream_is_refused():
    with pytest.raises(InvalidJoin, match="Give 'news' or 'access'"):
        NewsStreams(seed=1, items=1).between("clicks", 0, 1)
