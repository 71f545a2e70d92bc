"""The auction streams of the PWJoin paper's example, from a seed (sections 1.2 and 6.3).

    Open   item_id, seller, description, start_price, open_time    one tuple for each item put up for auction
    Bid    item_id, bidder, price, bid_time, is_end                many for each item, then its punctuation

A recording of `hours` of event time; each stream is in the order of its time. Items open at random moments.
An auction lasts between 1/12 and all of the window; a share of them is closed early by the seller, and a
share lasts longer than the window, up to twice as long. Its bids, Poisson many, fall anywhere between, and
then comes its punctuation (is_end, no bidder, no price), if the recording goes on for so long. A share of
the items gets no bid.

Worked number: 4,000 items in 48 hours are 83 an hour; with 6 bids each, a window of 12 hours holds 1,000
items and up to 5,000 bids. Cost: a million bids take about half a second, all of them at once in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin.errors import InvalidJoin

Ints: TypeAlias = npt.NDArray[np.int64]

_TIME = pa.timestamp("us", tz="UTC")
OPEN_SCHEMA = pa.schema(
    {
        "item_id": pa.int64(),
        "seller": pa.string(),
        "description": pa.string(),
        "start_price": pa.float64(),
        "open_time": _TIME,
    }
)
BID_SCHEMA = pa.schema(
    {
        "item_id": pa.int64(),
        "bidder": pa.string(),
        "price": pa.float64(),
        "bid_time": _TIME,
        "is_end": pa.bool_(),
    }
)

HOUR_US = 3_600_000_000
START_US = 1_068_422_400_000_000  # 10 November 2003, midnight UTC: the day of the paper's figure 1
FIRST_ITEM = 180  # the item of the paper's example
_KINDS = ("Brass", "Carved", "Painted", "Silver", "Folding", "Antique", "Signed", "Glass", "Toy", "Leather")
_THINGS = (
    "telescope", "chess set", "clock", "music box", "globe", "typewriter", "violin", "lamp", "atlas",
    "camera", "locomotive", "armchair", "mirror", "barometer", "tea set", "sextant",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Auctions:
    """When each item opens and ends, in microseconds since the start, by place: item FIRST_ITEM + i."""

    open_us: Ints
    end_us: Ints


@dataclass(frozen=True, slots=True)
class AuctionStreams:
    """The two streams.

    >>> streams = AuctionStreams(seed=7, items=3, hours=30)
    >>> streams.open()["item_id"].to_pylist()
    [180, 181, 182]
    >>> bids = streams.bids()
    >>> bids.filter(bids["is_end"])["item_id"].to_pylist()  # 182 is open when the recording ends
    [180, 181]
    """

    seed: int
    items: int
    bids_per_item: float = 6.0
    hours: float = 48.0
    window_hours: float = 12.0
    early_share: float = 0.2
    long_share: float = 0.1
    unwanted_share: float = 0.1

    def __post_init__(self) -> None:
        wanted = {
            "seed": self.seed >= 0,
            "items": 0 <= self.items <= 10_000_000,
            "bids_per_item": 0 <= self.bids_per_item <= 1_000_000,
            "hours": 0 < self.hours <= 100_000,
            "window_hours": 0.01 <= self.window_hours <= 100_000,
            "early_share": 0 <= self.early_share <= 1,
            "long_share": 0 <= self.long_share <= 1,
            "unwanted_share": 0 <= self.unwanted_share <= 1,
        }
        for name, fits in wanted.items():
            if not fits:
                raise InvalidJoin(
                    f"AuctionStreams got {name}={getattr(self, name)!r}. Give shares between 0 and 1, no "
                    f"negative numbers, and at least a little time."
                )

    @property
    def window_us(self) -> int:
        """The window: bids later than this after their item opened do not count."""
        return round(self.window_hours * HOUR_US)

    def auctions(self) -> Auctions:
        """When items open and end; ends may lie after the end of the recording."""
        random = self._random("auctions")
        open_us = np.sort(random.integers(0, self._length_us, self.items))
        kind = random.random(self.items)
        share = random.uniform(1 / 12, 1, self.items)  # of the window
        share = np.where(kind < self.early_share, share * random.uniform(0.1, 0.6, self.items), share)
        share = np.where(kind >= 1 - self.long_share, random.uniform(1, 2, self.items), share)
        return Auctions(open_us, open_us + (share * self.window_us).astype(np.int64) + 1)

    def open(self) -> pa.Table:
        """Open, in the order of its time."""
        random = self._random("open")
        kind, thing = (
            pa.array(words).take(pa.array(random.integers(0, len(words), self.items)))
            for words in (_KINDS, _THINGS)
        )
        columns = [
            pa.array(np.arange(self.items) + FIRST_ITEM),
            _names("seller", random.integers(1, 500, self.items)),
            pc.binary_join_element_wise(kind, thing, " "),
            pa.array(self._start_cents() / 100),
            _times(self.auctions().open_us),
        ]
        return pa.Table.from_arrays(columns, schema=OPEN_SCHEMA)

    def bids(self) -> pa.Table:
        """Bid with its punctuations as marked rows, in the order of its time."""
        random, auctions = self._random("bids"), self.auctions()
        counts = random.poisson(self.bids_per_item, self.items)
        counts[random.random(self.items) < self.unwanted_share] = 0
        of_item = np.repeat(np.arange(self.items), counts)
        until_end = (auctions.end_us - auctions.open_us)[of_item]
        bid_us = auctions.open_us[of_item] + random.integers(1, np.maximum(until_end, 2))
        bid_us = bid_us[np.lexsort((bid_us, of_item))]
        # every bid is above the one before: sums of the raises since the item's first
        total = np.concatenate([[0], np.cumsum(random.integers(50, 1_000, len(of_item)))])
        raised = total[1:] - np.repeat(total[np.cumsum(counts) - counts], counts)
        price = (self._start_cents()[of_item] + raised) / 100
        bidder = _names("bidder", random.integers(1, 5_000, len(of_item)))
        time = np.concatenate([bid_us, auctions.end_us])
        recorded = np.argsort(time, kind="stable")
        recorded = recorded[time[recorded] < self._length_us]
        columns = [
            pa.array(np.concatenate([of_item, np.arange(self.items)]) + FIRST_ITEM),
            pa.concat_arrays([bidder, pa.nulls(self.items, pa.string())]),
            pa.concat_arrays([pa.array(price), pa.nulls(self.items, pa.float64())]),
            _times(time),
            pa.array(np.arange(len(time)) >= len(of_item)),
        ]
        return pa.Table.from_arrays(columns, schema=BID_SCHEMA).take(pa.array(recorded))

    def batches(self, hours: float) -> Iterator[dict[str, pa.Table]]:
        """The recording in pieces of so much event time, {"open": table, "bid": table} each."""
        cuts = self.cuts_us(hours)
        whole = {"open": (self.open(), "open_time"), "bid": (self.bids(), "bid_time")}
        places = {
            name: np.searchsorted(since_start_us(table[time]), [0, *cuts])
            for name, (table, time) in whole.items()
        }
        for piece in range(len(cuts)):
            yield {
                name: table.slice(places[name][piece], places[name][piece + 1] - places[name][piece])
                for name, (table, _) in whole.items()
            }

    def cuts_us(self, hours: float) -> Ints:
        """The event time at which each piece of `batches` ends, since the start, exclusive."""
        if hours <= 0:
            raise InvalidJoin(f"a batch of {hours} hours of event time. Give more than 0.")
        step = max(round(hours * HOUR_US), 1)
        return np.append(np.arange(step, self._length_us, step), self._length_us)

    @property
    def _length_us(self) -> int:
        return round(self.hours * HOUR_US)

    def _start_cents(self) -> Ints:
        return self._random("prices").integers(1, 200, self.items) * 50

    def _random(self, purpose: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, *purpose.encode()])


def since_start_us(times: Any) -> Ints:
    """A column of event times as microseconds since the start of the recording."""
    micros: Ints = times.cast(pa.int64()).to_numpy()
    return micros - START_US


def _times(us: Ints) -> Any:
    return pa.array(us + START_US).cast(_TIME)


def _names(what: str, numbers: Ints) -> Any:
    return pc.binary_join_element_wise(what, pa.array(numbers).cast(pa.string()), " ")
