"""NEXMark: the facts of shared/cases/README.md, true punctuations, and any slice as in the whole."""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamjoin as sj
from streamjoin.demo.generators.nexmark import (
    AUCTION_SCHEMA,
    BID_SCHEMA,
    PERSON_SCHEMA,
    TABLES,
    Nexmark,
    nexmark_schema,
)
from streamjoin.demo.generators.noise import Noise
from streamjoin.errors import InvalidJoin

SEEDS = range(20)
MANY = Nexmark(seed=3, events=200_000)


@pytest.fixture(scope="module")
def many() -> dict[str, pa.Table]:
    return {name: MANY.between(name, 0, 200_000).combine_chunks() for name in TABLES}


def numbers(table: pa.Table, column: str) -> np.ndarray:
    return table[column].cast(pa.int64()).to_numpy()


def bid_events(events: int) -> np.ndarray:
    every = np.arange(events)
    return every[every % 50 >= 4]


# ---------------------------------------------------------------- slices


@settings(deadline=None, max_examples=20)
@given(
    st.integers(0, 2**70),
    st.sampled_from([1, 777, 10_000, 10**9]),
    st.booleans(),
    st.lists(st.integers(-10, 9_000), max_size=6),
    st.sampled_from([49, 1_000, 1 << 16]),
)
def test_slices_that_follow_each_other_give_the_whole(seed, rate, punctuations, cuts, block):
    streams = Nexmark(seed=seed, events=8_000, rate=rate)
    cuts = sorted([-10, *cuts, 9_000])
    for name in TABLES:
        marked = punctuations and name != "person"
        whole = streams.between(name, 0, 8_000, punctuations=marked)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("streamjoin.demo.generators.nexmark._BLOCK_EVENTS", block)
            pieces = [streams.between(name, *cut, punctuations=marked) for cut in pairwise(cuts)]
        assert pa.concat_tables(pieces).combine_chunks().equals(whole.combine_chunks())
        assert whole.schema == nexmark_schema(name, punctuations=marked)
    punctuations = [streams.punctuations("bid", *cut) for cut in pairwise(cuts)]
    assert pa.concat_tables(punctuations).combine_chunks().equals(streams.punctuations("bid", 0, 8_000))


def test_pieces_of_a_stream_with_and_without_an_end():
    endless = Nexmark(seed=3)
    for name in TABLES:
        first = islice(endless.tables(name, 30_000), 3)
        assert pa.concat_tables(first).equals(MANY.between(name, 0, 90_000))
        assert pa.concat_tables(MANY.tables(name, 64_000)).equals(MANY.between(name, 0, 10**9))
    assert list(Nexmark(seed=3, events=0).tables("bid")) == []


def test_the_same_seed_gives_the_same_rows_and_another_seed_others(many):
    for name in TABLES:
        assert Nexmark(seed=3).between(name, 0, 200_000).equals(many[name])
        other = Nexmark(seed=4).between(name, 0, 200_000)
        same = {column for column in other.column_names if other[column].equals(many[name][column])}
        assert same <= {"id", "date_time"}


def test_values_are_the_same_for_ever():
    """A seed in a report must give the report's data: these were read off when this was written."""
    person, auction, bid = (Nexmark(seed=1).between(name, 0, 5).slice(0, 1).to_pylist()[0] for name in TABLES)
    assert (person["name"], person["credit_card"], person["state"]) == (
        "sarah smith",
        "9468 2469 8935 5049",
        "ca",
    )
    assert (auction["item_name"], auction["initial_bid"], auction["category"]) == (
        "emttekipwfhb cmperl",
        2935194,
        10,
    )
    assert (bid["auction"], bid["price"], bid["channel"], bid["extra"][:8]) == (
        1000,
        25294,
        "Facebook",
        "dlclcdqd",
    )


# ---------------------------------------------------------------- the facts


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_rest_bids(many):
    assert {name: len(table) for name, table in many.items()} == {
        "person": 4_000,
        "auction": 12_000,
        "bid": 184_000,
    }
    assert np.array_equal(numbers(many["person"], "id"), np.arange(1000, 5_000))
    assert np.array_equal(numbers(many["auction"], "id"), np.arange(1000, 13_000))
    one_round = [MANY.between(name, 5_050, 5_100) for name in TABLES]
    assert list(map(len, one_round)) == [1, 3, 46]
    assert [
        MANY.between(name, at, at + 1)["id"].to_pylist()
        for name, at in (("person", 5_050), ("auction", 5_053))
    ] == [
        [1101],
        [1305],
    ]


@pytest.mark.parametrize("rate", [1, 777, 10_000, 3_000_000])
def test_event_time_goes_by_the_rate(rate):
    start = datetime(2020, 2, 29, tzinfo=UTC)
    streams = Nexmark(seed=1, rate=rate, start=start)
    at = streams.between("person", 700_000, 700_001)["date_time"][0].as_py()
    assert at == start + timedelta(microseconds=700_000 * 1_000_000 // rate)
    auctions = streams.between("auction", 0, 50_000)
    open_us = numbers(auctions, "expires") - numbers(auctions, "date_time")
    horizon = 1_666 * 1_000_000 // rate
    assert 1_000 <= open_us.min() <= 1_000 + 0.01 * horizon + 1
    assert 0.99 * 2 * horizon - 1 <= open_us.max() - 1_000 < 2 * horizon
    assert abs((open_us - 1_000).mean() / horizon - 1) < 0.05 or horizon < 1_000


def test_bids_go_to_the_hot_auction_or_to_those_in_flight(many):
    last = bid_events(200_000) // 50 * 3 + 2
    auction = numbers(many["bid"], "auction") - 1000
    hot = last // 100 * 100
    in_flight = last >= 100
    cold = in_flight & (auction != hot)
    assert 0.49 < (auction == hot).mean() < 0.52
    distance = (auction - last)[cold]
    assert (distance.min(), distance.max()) == (-100, 10)
    counts = np.bincount(distance + 100)
    assert len(counts) == 111
    assert counts.min() > 0.75 * counts.max()  # uniform: each of them about 820 times
    assert 0.04 < (auction > last).mean() < 0.05
    assert auction.min() == 0


def test_three_of_four_sellers_and_bidders_are_hot(many):
    for table, column, events, one_after in (
        ("auction", "seller", np.repeat(np.arange(4_000), 3), 0),
        ("bid", "bidder", bid_events(200_000) // 50, 1),
    ):
        person = numbers(many[table], column) - 1000
        hot = events // 100 * 100 + one_after
        assert 0.74 < (person == hot).mean() < 0.77
        late = (events >= 1_000) & (person != hot)
        distance = (person - events)[late]
        assert -999 <= distance.min() < -980
        assert 5 < distance.max() <= 10
        assert abs(distance.mean() - (-999 + 10) / 2) < 20


def test_bids_come_after_the_end_of_their_auction_and_before_its_beginning(many):
    bids, auctions = many["bid"], many["auction"]
    auction = numbers(bids, "auction") - 1000
    known = auction < len(auctions)
    at = numbers(bids, "date_time")[known]
    opened, expires = (numbers(auctions, column)[auction[known]] for column in ("date_time", "expires"))
    assert 0.2 < (at > expires).mean() < 0.3
    assert 0.04 < (at < opened).mean() < 0.05


def test_prices_and_categories(many):
    price = numbers(many["bid"], "price")
    assert 100 <= price.min() < 110
    assert 99_000_000 < price.max() <= 100_000_000
    assert 90_000 < np.median(price) < 110_000
    assert np.bincount(numbers(many["auction"], "category")).tolist()[:10] == [0] * 10
    assert np.bincount(numbers(many["auction"], "category"))[10:].min() > 2_200
    assert len(np.bincount(numbers(many["auction"], "category"))) == 15
    assert (numbers(many["auction"], "reserve") > numbers(many["auction"], "initial_bid")).all()


def test_columns_texts_and_sizes(many):
    for name, schema, size in (
        ("person", PERSON_SCHEMA, 200),
        ("auction", AUCTION_SCHEMA, 500),
        ("bid", BID_SCHEMA, 100),
    ):
        table = many[name]
        assert table.schema == schema
        assert all(column.null_count == 0 for column in table.columns)
        left_out = ("channel", "url")
        texts = [field.name for field in schema if field.type == pa.string() and field.name not in left_out]
        fixed = 8 * sum(field.type != pa.string() for field in schema)
        lengths = sum(pc.binary_length(table[text]).to_numpy() for text in texts) + fixed
        assert abs(lengths.mean() - size) < 0.01 * size
        assert 0.05 * size < lengths.std() < 0.2 * size
        assert len(table["extra"].unique()) == len(table)
    person, bid = many["person"], many["bid"]
    for column, form in (
        ("name", "^[a-z]+ [a-z]+$"),
        ("email_address", "^[a-z]{3,7}@[a-z]{3,7}[.]com$"),
        ("credit_card", "^[0-9]{4}( [0-9]{4}){3}$"),
        ("state", "^(az|ca|id|or|wa|wy)$"),
        ("extra", "^[a-z]+$"),
    ):
        assert pc.all(pc.match_substring_regex(person[column], form)).as_py()
    assert pc.all(
        pc.match_substring_regex(bid["url"], "^https://www.nexmark.com(/[a-z]{4}){3}/item.htm")
    ).as_py()
    hot = pc.is_in(bid["channel"], pa.array(["Google", "Facebook", "Baidu", "Apple"]))
    assert 0.49 < pc.mean(pc.cast(hot, pa.int64())).as_py() < 0.51
    assert 9_990 < len(bid["channel"].unique()) <= 10_004
    pairs = set(zip(bid["channel"].to_pylist(), bid["url"].to_pylist(), strict=True))
    assert len(pairs) == len(bid["channel"].unique()) == len(bid["url"].unique())


def test_columns_of_one_row_do_not_depend_on_each_other(many):
    bid = many["bid"]
    columns = np.array(
        [np.log(numbers(bid, "price")), numbers(bid, "auction") % 100 == 0, pc.binary_length(bid["extra"])]
    )
    assert np.abs(np.corrcoef(columns) - np.eye(3)).max() < 0.01
    following = np.corrcoef(columns[0][1:], columns[0][:-1])[0, 1]
    assert abs(following) < 0.01


# ---------------------------------------------------------------- punctuations


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("table", "column", "events", "tight"),
    [("bid", "auction", 30_000, 1), ("auction", "seller", 150_000, 10)],
)
def test_no_row_comes_after_the_end_of_its_value(table, column, events, tight, seed):
    rows = Nexmark(seed=seed).between(table, 0, events, punctuations=True)
    value, is_end = numbers(rows, column), rows["is_end"].to_numpy()
    ended = value[is_end]
    assert np.array_equal(ended, np.arange(1000, 1000 + len(ended)))  # each value once, ascending
    over = 999 + np.cumsum(is_end)  # up to here nothing may come any more
    assert (value > over)[~is_end].all()
    slack = (value - over)[~is_end & (over > 1000)]
    assert 1 <= slack.min() <= tight  # and the punctuation could be no stronger; few sellers are that old
    ends = rows.filter(rows["is_end"])
    filled = {name for name in ends.column_names if ends[name].null_count < len(ends)}
    assert filled == {column, "date_time", "is_end"}
    assert (np.diff(numbers(rows, "date_time")) >= 0).all()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rate", [10_000, 7_000_000])
def test_no_bid_breaks_a_punctuation_by_its_time(seed, rate):
    streams = Nexmark(seed=seed, rate=rate)
    bids, punctuations = streams.between("bid", 0, 30_000), streams.punctuations("bid", 0, 30_000)
    assert punctuations.column_names == ["auction_from", "auction_to", "time"]
    assert punctuations["auction_from"].null_count == len(punctuations) == 1_800 - 101
    assert punctuations.schema.field("time").type == BID_SCHEMA.field("date_time").type
    made = np.searchsorted(numbers(punctuations, "time"), numbers(bids, "date_time"), side="left")
    highest = np.concatenate([[0], numbers(punctuations, "auction_to")])[made]  # closed before
    assert (numbers(bids, "auction") > highest).all()


def test_an_auction_ends_where_the_101st_after_it_opens():
    streams = Nexmark(seed=1)
    opened = streams.between("auction", 0, 20_000)
    ends = streams.between("bid", 0, 20_000, punctuations=True)
    ends = ends.filter(ends["is_end"])
    assert np.array_equal(numbers(ends, "auction"), numbers(opened, "id")[101:] - 101)
    assert np.array_equal(numbers(ends, "date_time"), numbers(opened, "date_time")[101:])
    assert np.array_equal(
        numbers(streams.punctuations("bid", 0, 20_000), "auction_to"), numbers(ends, "auction")
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_join_of_bids_with_their_auction_sees_no_violation_and_holds_little(seed):
    streams = Nexmark(seed=seed)
    schemas = {"auction": AUCTION_SCHEMA, "bid": nexmark_schema("bid", punctuations=True)}
    run = sj.join(
        sj.stream(
            schemas["bid"], name="bid", key="auction", columns=["price"], punctuation=sj.marked("is_end")
        ),
        sj.stream(schemas["auction"], name="auction", key="id", columns=["category"], unique=True),
    ).local()
    rows = 0
    for at in range(0, 30_000, 1_000):
        step = {name: streams.between(name, at, at + 1_000, punctuations=name == "bid") for name in schemas}
        rows += len(run.step(step))
        assert run.state().rows["auction"] <= 101
        assert run.state().rows["bid"] <= 1_000  # those that wait for one of the ten auctions to come
    bids = numbers(streams.between("bid", 0, 30_000), "auction")
    assert rows == (bids < 1000 + 1_800).sum()
    assert run.violations() == []


# ---------------------------------------------------------------- refused


@pytest.mark.parametrize(
    "wrong",
    [
        {"seed": -1},
        {"events": -1},
        {"events": 1 << 41},
        {"rate": 0},
        {"rate": 10**10},
        {"start": datetime(2020, 1, 1)},  # noqa: DTZ001
    ],
)
def test_what_makes_no_stream_is_refused_by_name(wrong):
    with pytest.raises(InvalidJoin, match=f"Nexmark got {next(iter(wrong))}="):
        Nexmark(**({"seed": 1} | wrong))


def test_other_tables_and_punctuations_are_refused():
    with pytest.raises(InvalidJoin, match=r"no table 'seller'. Give 'person', 'auction' or 'bid'"):
        MANY.between("seller", 0, 1)
    for ask in (
        lambda: MANY.between("person", 0, 1, punctuations=True),
        lambda: MANY.punctuations("person", 0, 1),
    ):
        with pytest.raises(
            InvalidJoin, match=r"'person' has no punctuations. Ask for those of 'bid' or 'auction'"
        ):
            ask()
    with pytest.raises(InvalidJoin, match="batch_events is 0"):
        next(MANY.tables("bid", 0))


def test_noise_is_even():
    noise = Noise.of(5, np.arange(100_000))
    assert abs(noise.share("a").mean() - 0.5) < 0.005
    assert np.abs(np.bincount(noise.below("b", 10)) / 10_000 - 1).max() < 0.05
    bits = np.unpackbits(noise.words("c").view(np.uint8)).mean()
    assert abs(bits - 0.5) < 0.001
    joined = "".join(noise.text("d", np.full(100_000, 13)).to_pylist())
    letters = np.bincount(np.frombuffer(joined.encode(), np.uint8))
    assert len(letters) == ord("z") + 1
    assert np.abs(letters[ord("a") :] / 50_000 - 1).max() < 0.1  # 256 bytes for 26 letters: 9 or 10 for each


def test_texts_have_the_lengths_asked_for_and_are_their_own():
    noise = Noise.of(5, np.arange(1_000))
    lengths = np.arange(1_000) % 37
    texts = noise.text("a", lengths).to_pylist()
    assert list(map(len, texts)) == lengths.tolist()
    longer = noise.text("a", lengths + 5).to_pylist()
    assert all(more.startswith(text) for more, text in zip(longer, texts, strict=True))
    assert Noise.of(5, np.array([700])).text("a", lengths[700:701]).to_pylist() == [texts[700]]
    assert noise.text("a", np.zeros(1_000, np.int64)).to_pylist() == [""] * 1_000
    assert {len(each) for each in noise.digits("b", 4).to_pylist()} == {4}
    assert Noise.of(5, np.empty(0, np.int64)).text("a", np.empty(0, np.int64)).to_pylist() == []
