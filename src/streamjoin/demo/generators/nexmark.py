"""The NEXMark streams of persons, auctions and bids, from a seed.

Events are numbered from 0. Of 50 that follow each other the first is a person, three are auctions and 46 are
bids; ids count up from 1000 in each table. Event n happens n / rate seconds after the start. Half of the bids
go to the hot auction, `last // 100 * 100`, the others to any from 100 before the last to 10 after it, which
do not exist yet; 3 of 4 sellers and bidders are the hot person (bidders the one after), the others any of
the last 1000 persons or of the 10 to come. Worked number: event 5050 is person 1101, the next three are the
auctions 1303 to 1305, and the 46 bids after them go to 1300 or to any of 1205 to 1315.

Each value of a row is a hash of the seed, the number of its event and its column, so any slice of events can
be made alone and is the same as in the whole. Cost: a million events take about 0.9 s, 1.4 s with
punctuations, most of it for the filler `extra`, which brings a row to its usual size: 200 bytes for a person,
500 for an auction, 100 for a bid, with 8 for each number and time and without a bid's channel and url.

Punctuations. A bid goes to no auction before `last − 100`, so when auction a + 101 opens, a has had its bids;
in the same way a seller's auctions are over when the 1000th person after has come. `expires` closes
nothing: a quarter of the bids come later.

    between("bid", first, last, punctuations=True)   a marked row for each auction a, where a + 101 opens
    punctuations("bid", first, last)                 the same as ranges, auction ≤ a, with the time of that

What the last events leave open stays open: the end of a stream is no punctuation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin.demo.generators.noise import Noise
from streamjoin.errors import InvalidJoin

Ints: TypeAlias = npt.NDArray[np.int64]
Name: TypeAlias = Literal["person", "auction", "bid"]

_NUMBER, _TEXT, _TIME = pa.int64(), pa.string(), pa.timestamp("us", "UTC")
PERSON_SCHEMA = pa.schema(
    {"id": _NUMBER}
    | dict.fromkeys(("name", "email_address", "credit_card", "city", "state"), _TEXT)
    | {"date_time": _TIME, "extra": _TEXT}
)
AUCTION_SCHEMA = pa.schema(
    {"id": _NUMBER, "item_name": _TEXT, "description": _TEXT, "initial_bid": _NUMBER, "reserve": _NUMBER}
    | {"date_time": _TIME, "expires": _TIME, "seller": _NUMBER, "category": _NUMBER, "extra": _TEXT}
)
BID_SCHEMA = pa.schema(
    {"auction": _NUMBER, "bidder": _NUMBER, "price": _NUMBER, "channel": _TEXT, "url": _TEXT}
    | {"date_time": _TIME, "extra": _TEXT}
)
FIRST_ID = 1000

_FIRST_NAMES = (
    "peter", "paul", "luke", "john", "saul", "vicky", "kate", "julie", "sarah", "deiter", "walter",
)  # fmt: skip
_LAST_NAMES = ("shultz", "abrams", "spencer", "white", "bartels", "walton", "smith", "jones", "noris")
_CITIES = (
    "phoenix", "los angeles", "san francisco", "boise", "portland", "bend", "redmond", "seattle", "kent",
    "cheyenne",
)  # fmt: skip
_STATES = ("az", "ca", "id", "or", "wa", "wy")
_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_CHANNELS = 10_000  # beside the hot ones

_ROUND = 50  # events, of which these are the persons', the auctions' and the bids'
_PLACES: Mapping[str, tuple[int, int]] = {"person": (0, 1), "auction": (1, 4), "bid": (4, 50)}
_HOT = 100  # every so many there is a hot one
_IN_FLIGHT = 100  # auctions before the last that still get bids
_ACTIVE = 1_000  # persons who still sell and bid
_LEAD = 10  # not yet there, but known
_BLOCK_EVENTS = 1 << 16


@dataclass(frozen=True, slots=True)
class _End:
    """Values of `column` are over when the `lag`th after them has come to the table `opens`."""

    column: str
    opens: Name
    lag: int


TABLES: tuple[Name, ...] = ("person", "auction", "bid")
_SCHEMAS = {"person": PERSON_SCHEMA, "auction": AUCTION_SCHEMA, "bid": BID_SCHEMA}
_PUNCTUATION_COLUMNS = {
    "bid": _End("auction", "auction", _IN_FLIGHT + 1),
    "auction": _End("seller", "person", _ACTIVE),
}


def nexmark_schema(table: str, *, punctuations: bool = False) -> pa.Schema:
    """The columns of a table; with punctuations also `is_end`, true on the rows that end a value."""
    if table not in _SCHEMAS:
        raise InvalidJoin(f"NEXMark has no table {table!r}. Give 'person', 'auction' or 'bid'.")
    if punctuations:
        _punctuation(table)
        return _SCHEMAS[table].append(pa.field("is_end", pa.bool_()))
    return _SCHEMAS[table]


@dataclass(frozen=True, slots=True)
class Nexmark:
    """The three streams; `events=None` never ends. `rate`: events in a second of event time.

    >>> streams = Nexmark(seed=7, events=100)
    >>> streams.between("auction", 50, 100)["id"].to_pylist()
    [1003, 1004, 1005]
    """

    seed: int
    events: int | None = None
    rate: int = 10_000
    start: datetime = datetime(2015, 7, 15, tzinfo=UTC)

    def __post_init__(self) -> None:
        wanted = {
            "seed": self.seed >= 0,
            "events": self.events is None or 0 <= self.events < 1 << 40,
            "rate": 1 <= self.rate <= 1_000_000_000,
            "start": self.start.tzinfo is not None,
        }
        for name, fits in wanted.items():
            if not fits:
                raise InvalidJoin(
                    f"Nexmark got {name}={getattr(self, name)!r}. Give no negative numbers, at most 2^40 "
                    f"events, a rate from 1 to 10^9 in a second, and a start with a time zone."
                )

    def between(self, table: Name, first: int, last: int, *, punctuations: bool = False) -> pa.Table:
        """The rows of one table whose events lie in [first, last), in their order.

        With punctuations a row with `is_end` follows the event that ends a value: of bids the auction, of
        auctions the seller. It has that value, the time of the event, and else nulls.
        """
        schema = nexmark_schema(table, punctuations=punctuations)
        blocks = [self._block(table, events) for events in self._blocks(table, first, last)]
        rows = pa.concat_tables([_SCHEMAS[table].empty_table(), *(pa.table(each) for each in blocks)])
        if not punctuations:
            return rows
        rows = rows.append_column("is_end", pa.array(np.zeros(len(rows), np.bool_)))
        openings, ended = self._ended(table, first, last)
        marks = {
            _punctuation(table).column: pa.array(ended),
            "date_time": self._times(openings),
            "is_end": pa.array(np.ones(len(ended), np.bool_)),
        }
        nulls = {field.name: pa.nulls(len(ended), field.type) for field in schema}
        both = pa.concat_tables([rows, pa.table(nulls | marks, schema=schema)])
        events = np.concatenate([*self._blocks(table, first, last), openings])
        return both.take(pa.array(np.argsort(events, kind="stable")))

    def punctuations(self, table: Name, first: int, last: int) -> pa.Table:
        """What the events in [first, last) end, as a control stream: each row a range, from null to `to`.

        Of bids `auction_from`, `auction_to` and `time`; of auctions `seller_from`, `seller_to` and `time`.
        No row of the table that is later than `time` lies in the range.

        >>> Nexmark(seed=7).punctuations("bid", 0, 1702)["auction_to"].to_pylist()
        [1000, 1001]
        """
        openings, ended = self._ended(table, first, last)
        column = _punctuation(table).column
        return pa.table(
            {
                f"{column}_from": pa.nulls(len(ended), pa.int64()),
                f"{column}_to": pa.array(ended),
                "time": self._times(openings),
            }
        )

    def tables(
        self, table: Name, batch_events: int = 100_000, *, punctuations: bool = False
    ) -> Iterator[pa.Table]:
        """One table from its beginning, in pieces of so many events of all three."""
        if batch_events < 1:
            raise InvalidJoin(f"batch_events is {batch_events}. Give 1 or more.")
        nexmark_schema(table, punctuations=punctuations)
        at = 0
        while self.events is None or at < self.events:
            yield self.between(table, at, at + batch_events, punctuations=punctuations)
            at += batch_events

    # ------------------------------------------------------------ events

    def _blocks(self, table: str, first: int, last: int) -> Iterator[Ints]:
        """Numbers of the table's events in [first, last), block by block."""
        begin, end = _PLACES[table]
        stop = last if self.events is None else min(last, self.events)
        for at in range(max(first, 0), stop, _BLOCK_EVENTS):
            events = np.arange(at, min(at + _BLOCK_EVENTS, stop))
            place = events % _ROUND
            yield events[(place >= begin) & (place < end)]

    def _ended(self, table: str, first: int, last: int) -> tuple[Ints, Ints]:
        """The events in [first, last) that end a value of the table, and the value."""
        punctuation = _punctuation(table)
        events = np.concatenate([np.empty(0, np.int64), *self._blocks(punctuation.opens, first, last)])
        ended = _number(punctuation.opens, events) - punctuation.lag
        return events[ended >= 0], ended[ended >= 0] + FIRST_ID

    def _times(self, events: Ints) -> Any:
        return _time(self._micros(events))

    def _micros(self, events: Ints) -> Ints:
        start = (self.start - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        seconds, rest = events // self.rate, events % self.rate  # so that no number becomes too large
        return start + seconds * 1_000_000 + rest * 1_000_000 // self.rate

    def _block(self, table: str, events: Ints) -> dict[str, Any]:
        make = {"person": self._persons, "auction": self._auctions, "bid": self._bids}[table]
        return make(events, Noise.of(self.seed, events))

    # ------------------------------------------------------------ rows

    def _persons(self, events: Ints, noise: Noise) -> dict[str, Any]:
        names = [noise.pick("first name", _FIRST_NAMES), noise.pick("last name", _LAST_NAMES)]
        mail = [noise.text(part, 3 + noise.below(f"{part} length", 5)) for part in ("mailbox", "host")]
        card = [noise.digits(f"card {place}", 4) for place in range(4)]
        texts = {
            "name": pc.binary_join_element_wise(*names, " "),
            "email_address": pc.binary_join_element_wise(pc.binary_join_element_wise(*mail, "@"), "com", "."),
            "credit_card": pc.binary_join_element_wise(*card, " "),
            "city": noise.pick("city", _CITIES),
            "state": noise.pick("state", _STATES),
        }
        return {
            "id": pa.array(_number("person", events) + FIRST_ID),
            **texts,
            "date_time": self._times(events),
            "extra": _filler(noise, 200 - 16, *texts.values()),
        }

    def _auctions(self, events: Ints, noise: Noise) -> dict[str, Any]:
        item = noise.text("item", 3 + noise.below("item length", 17), blanks=True)
        description = noise.text("description", 3 + noise.below("description length", 97), blanks=True)
        first_bid, opened = _price(noise, "initial bid"), self._micros(events)
        open_us = 1_000 + noise.below("length", 2 * (1_666 * 1_000_000 // self.rate))
        person = events // _ROUND
        return {
            "id": pa.array(_number("auction", events) + FIRST_ID),
            "item_name": item,
            "description": description,
            "initial_bid": pa.array(first_bid),
            "reserve": pa.array(first_bid + _price(noise, "reserve")),
            "date_time": _time(opened),
            "expires": _time(opened + open_us),
            "seller": pa.array(FIRST_ID + _person(noise, person, hot=person // _HOT * _HOT)),
            "category": pa.array(10 + noise.below("category", 5)),
            "extra": _filler(noise, 500 - 56, item, description),
        }

    def _bids(self, events: Ints, noise: Noise) -> dict[str, Any]:
        person = events // _ROUND
        last = 3 * person + 2  # the auctions of a round come before its bids
        lowest = np.maximum(last - _IN_FLIGHT, 0)
        any_auction = lowest + noise.below("auction", last - lowest + 1 + _LEAD)
        hot_auction = noise.below("hot auction", 2) == 0
        hot_channel = noise.below("hot channel", 2) == 0
        channel = np.where(
            hot_channel,
            noise.below("which hot channel", len(_HOT_CHANNELS)),
            len(_HOT_CHANNELS) + noise.below("channel", _CHANNELS),
        )
        names, urls = _channels()
        return {
            "auction": pa.array(FIRST_ID + np.where(hot_auction, last // _HOT * _HOT, any_auction)),
            "bidder": pa.array(FIRST_ID + _person(noise, person, hot=person // _HOT * _HOT + 1)),
            "price": pa.array(_price(noise, "price")),
            "channel": names.take(pa.array(channel)),
            "url": urls.take(pa.array(channel)),
            "date_time": self._times(events),
            "extra": _filler(noise, 100 - 32),
        }


def _punctuation(table: str) -> _End:
    if table not in _PUNCTUATION_COLUMNS:
        raise InvalidJoin(f"The table {table!r} has no punctuations. Ask for those of 'bid' or 'auction'.")
    return _PUNCTUATION_COLUMNS[table]


def _number(table: str, events: Ints) -> Ints:
    """The number of the table's row that an event makes, from 0."""
    begin, end = _PLACES[table]
    return events // _ROUND * (end - begin) + events % _ROUND - begin


def _person(noise: Noise, last: Ints, *, hot: Ints) -> Ints:
    """Who sells or bids: the hot person in 3 of 4 cases, else any of the last ones or of those to come."""
    active = np.minimum(last + 1, _ACTIVE)
    anyone = last + 1 - active + noise.below("person", active + _LEAD)
    return np.where(noise.below("hot person", 4) > 0, hot, anyone)


def _price(noise: Noise, purpose: str) -> Ints:
    return np.round(10 ** (6 * noise.share(purpose)) * 100).astype(np.int64)


def _time(micros: Ints) -> Any:
    return pa.array(micros).cast(_TIME)


def _filler(noise: Noise, size: int, *texts: Any) -> Any:
    """Letters up to `size` bytes together with the texts, give or take a fifth of what is missing."""
    missing = np.full(len(noise.things), size)
    for each in texts:
        missing -= pc.binary_length(each).to_numpy()
    fifth = (missing + 2) // 5
    return noise.text("extra", missing - fifth + noise.below("extra length", 2 * fifth + 1))


@cache
def _channels() -> tuple[Any, Any]:
    """Names and urls of all channels, the hot ones first; the same for every seed."""
    number = np.arange(-len(_HOT_CHANNELS), _CHANNELS)
    noise = Noise.of(0, number + len(_HOT_CHANNELS))
    is_hot = pa.array(number < 0)
    path = [noise.text(f"path {part}", np.full(len(number), 4)) for part in range(3)]
    plain = [f"channel-{each}" for each in range(_CHANNELS)]
    page = pc.binary_join_element_wise("https://www.nexmark.com", *path, "item.htm?query=1", "/")
    channel_id = pa.array(noise.below("channel id", 1 << 31)).cast(pa.string())
    with_id = pc.binary_join_element_wise(page, channel_id, "&channel_id=")
    return pa.array([*_HOT_CHANNELS, *plain]), pc.if_else(is_hot, page, with_id)
