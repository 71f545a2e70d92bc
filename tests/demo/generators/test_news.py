"""The news streams: the same from the same seed, and true to section 6.1 of the paper."""

import io
from contextlib import contextmanager
from itertools import islice, pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamjoin.demo.generators.news import ACCESS_SCHEMA, KEYWORDS, NEWS_SCHEMA, NewsStreams
from streamjoin.errors import InvalidJoin
from streamjoin.punctuation import Punctuation
from streamjoin.sources.xml import convert

STREAMS = NewsStreams(seed=3, items=500, records_per_item=20)
RANDOM = NewsStreams(seed=3, items=500, records_per_item=20, order="random")


def whole(tables) -> pa.Table:
    return pa.concat_tables(tables).combine_chunks()


def rows(table: pa.Table) -> list[tuple]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


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


@contextmanager
def blocks_of(size: int):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamjoin.demo.generators.news._BLOCK_ROWS", size)
        yield


# ---------------------------------------------------------------- the same seed


def test_the_same_seed_gives_the_same_streams_and_another_seed_others():
    again = NewsStreams(seed=3, items=500, records_per_item=20)
    assert whole(again.news()).equals(whole(STREAMS.news()))
    assert whole(again.access()).equals(whole(STREAMS.access()))
    other = NewsStreams(seed=4, items=500, records_per_item=20)
    assert not whole(other.news()).equals(whole(STREAMS.news()))
    assert not whole(other.access()).equals(whole(STREAMS.access()))


@pytest.mark.parametrize("streams", [STREAMS, RANDOM], ids=["ordered", "random"])
@pytest.mark.parametrize("batch_rows", [1, 7, 1_000, 1_000_000])
def test_the_size_of_the_tables_changes_nothing_but_the_cuts(streams, batch_rows):
    for read, schema in ((streams.news, NEWS_SCHEMA), (streams.access, ACCESS_SCHEMA)):
        tables = list(read(batch_rows=batch_rows))
        assert whole(tables).equals(whole(read()))
        assert {table.num_rows for table in tables[:-1]} <= {batch_rows}
        assert 0 < tables[-1].num_rows <= batch_rows
        assert all(table.schema == schema for table in tables)


@steady
@given(any_streams, st.integers(1, 50), block_sizes)
def test_arrivals_are_the_two_streams_woven_together(streams, batch_rows, size):
    parts: dict = {"news": [], "access": []}
    with blocks_of(size):
        for name, table in streams.arrivals(batch_rows):
            assert 0 < table.num_rows <= batch_rows
            parts[name] += rows(table)
        assert parts["news"] == [row for table in streams.news() for row in rows(table)]
        assert parts["access"] == [row for table in streams.access() for row in rows(table)]


def test_a_stream_without_an_end_begins_as_one_with_an_end_and_goes_on():
    endless = NewsStreams(seed=3, items=None, records_per_item=2_000)
    finite = NewsStreams(seed=3, items=400, records_per_item=2_000)
    for read, other in ((endless.news, finite.news), (endless.access, finite.access)):
        assert whole(islice(read(50), 4)).equals(whole(islice(other(50), 4)))
    assert len(list(islice(endless.arrivals(5_000), 500))) == 500


# ---------------------------------------------------------------- section 6.1


@steady
@given(any_streams.filter(lambda streams: streams.order == "ordered"), block_sizes)
def test_each_item_is_open_among_the_latest_and_then_ends_once(streams, size):
    published, ended = [], set()
    with blocks_of(size):
        arrivals = [(name, *row) for name, table in streams.arrivals(batch_rows=1) for row in rows(table)]
    for name, sno, text, mark in arrivals:
        if name == "news":
            published.append(sno)
        elif mark:
            assert text is None
            assert sno == streams.first_sno + len(ended)  # ascending, each once
            ended.add(sno)
        else:
            assert sno not in ended  # no record after its punctuation
            assert sno in published[-streams.open_items :]  # nor of an item that is not open
            assert text is not None
        assert len(published) - len(ended) <= streams.open_items
    assert published == list(range(streams.first_sno, streams.first_sno + streams.items))
    assert ended == set(published)


@steady
@given(any_streams, block_sizes)
def test_news_come_within_half_a_shuffle_of_their_publication(streams, size):
    with blocks_of(size):
        came = [sno for table in streams.news() for sno in table["sno"].to_pylist()]
    in_order = list(range(streams.first_sno, streams.first_sno + streams.items))
    assert sorted(came) == in_order
    assert streams.order == "random" or came == in_order
    for at, sno in enumerate(came):
        assert all(other < sno + streams.shuffle for other in came[:at])


@steady
@given(any_streams, block_sizes)
def test_time_never_runs_back_nor_differs_between_the_streams(streams, size):
    with blocks_of(size):
        spans = zip(streams._news_spans(), streams._access_spans(), strict=True)
        past = -(2**63)
        for (news, _), (access, _) in spans:
            assert (np.diff(news) >= 0).all()
            assert (np.diff(access) >= 0).all()
            both = np.concatenate([news, access, [past]])
            assert both.min() == past
            past = both.max()


def test_records_of_all_open_items_are_mixed():
    access = whole(STREAMS.access())
    sno, is_end = access["sno"].to_numpy(), access["is_end"].to_numpy()
    ends = np.flatnonzero(is_end)
    between = [set(sno[start + 1 : end]) for start, end in pairwise(ends[50:-50])]
    assert max(map(len, between)) == 10
    assert all(max(items) - min(items) < 10 for items in between if items)
    assert (np.diff(sno[~is_end]) < 0).mean() > 0.3


def test_the_number_of_records_is_poisson_around_the_mean():
    access = whole(STREAMS.access())
    counts = np.bincount(access.filter(pa.compute.invert(access["is_end"]))["sno"].to_numpy(), minlength=501)[
        1:
    ]
    assert abs(counts.mean() - 20) < 1
    assert 12 < counts.var() < 30


def test_random_order_permutes_the_news_within_its_bound_and_leaves_the_access_alone():
    ordered, random = whole(STREAMS.news()), whole(RANDOM.news())
    sno = random["sno"].to_numpy()
    assert ordered["sno"].to_pylist() == list(range(1, 501))
    assert sorted(sno) == list(range(1, 501))
    assert (np.diff(sno) < 0).mean() > 0.3
    displaced = np.abs(sno - np.arange(1, 501))
    assert 3 < displaced.max() <= RANDOM.shuffle
    assert rows(random.sort_by("sno")) == rows(ordered)
    assert whole(RANDOM.access()).equals(whole(STREAMS.access()))


@pytest.mark.parametrize(("streams", "some"), [(STREAMS, False), (RANDOM, True)], ids=["ordered", "random"])
def test_accesses_come_before_their_news_only_in_random_order(streams, some):
    known, early = set(), 0
    for name, table in streams.arrivals(batch_rows=1):
        if name == "news":
            known.update(table["sno"].to_pylist())
        else:
            early += table["sno"][0].as_py() not in known
    assert (early > 0) is some


def test_a_wide_shuffle_lets_news_come_after_their_punctuation():
    late, ended = 0, set()
    for name, table in NewsStreams(seed=1, items=200, order="random", shuffle=60).arrivals(batch_rows=1):
        (row,) = rows(table)
        if name == "access" and row[2]:
            ended.add(row[0])
        late += name == "news" and row[0] in ended
    assert late > 0


def test_the_words_are_those_of_news():
    news = whole(STREAMS.news())
    assert len(KEYWORDS) == len(set(KEYWORDS)) == 24
    assert set(news["keyword"].to_pylist()) == set(KEYWORDS)
    for _, title, keyword in rows(news):
        assert title.startswith(keyword + ": ")
    addresses = set(whole(STREAMS.access())["ipaddr"].drop_null().to_pylist())
    assert all(len(parts := a.split(".")) == 4 and all(0 <= int(p) < 256 for p in parts) for a in addresses)


# ---------------------------------------------------------------- XML


@steady
@given(any_streams)
def test_xml_is_read_back_to_the_same_rows(streams):
    news_file, access_file = io.BytesIO(), io.BytesIO()
    streams.write_xml(news_file, access_file)

    found = list(convert(news_file.getvalue(), record="info", schema=NEWS_SCHEMA))
    assert rows(whole([NEWS_SCHEMA.empty_table(), *found])) == [r for t in streams.news() for r in rows(t)]

    found = []
    for element in convert(access_file.getvalue(), record="record", schema=ACCESS_SCHEMA.remove(2)):
        if isinstance(element, Punctuation):
            assert element.closes_key([0])
            found.append((element.patterns[0].value, None, True))
        else:
            found += [(*row, False) for row in rows(element)]
    assert found == [row for table in streams.access() for row in rows(table)]


def test_xml_goes_to_paths_in_the_form_of_the_paper(tmp_path):
    one = NewsStreams(seed=3, items=1, records_per_item=1, first_sno=79)
    one.write_xml(tmp_path / "news.xml", str(tmp_path / "access.xml"))
    news, access = ((tmp_path / name).read_text() for name in ("news.xml", "access.xml"))
    assert news.startswith("<stream:NewsGeneral>\n  <info>\n    <sno> 79 </sno>\n    <title> ")
    assert news.endswith(" </keyword>\n  </info>\n</stream:NewsGeneral>\n")
    over = "  <punct:record>\n    <sno> 79 </sno>\n    <ipaddr> * </ipaddr>\n  </punct:record>\n"
    assert access.endswith(over + "</stream:AccessRecord>\n")


# ---------------------------------------------------------------- refused


@pytest.mark.parametrize(
    "wrong",
    [
        {"seed": -1},
        {"items": -1},
        {"records_per_item": -1},
        {"records_per_item": float("nan")},
        {"order": "descending"},
        {"open_items": 0},
        {"shuffle": 0},
        {"readers": 0},
    ],
)
def test_what_makes_no_stream_is_refused_by_name(wrong):
    with pytest.raises(InvalidJoin, match=f"NewsStreams got {next(iter(wrong))}="):
        NewsStreams(**({"seed": 1, "items": 1} | wrong))


def test_a_batch_of_no_rows_and_a_file_without_an_end_are_refused():
    for read in (STREAMS.news, STREAMS.access, STREAMS.arrivals):
        with pytest.raises(InvalidJoin, match="batch_rows is 0"):
            read(batch_rows=0)
    with pytest.raises(InvalidJoin, match="items=n"):
        NewsStreams(seed=1, items=None).write_xml(io.BytesIO(), io.BytesIO())
