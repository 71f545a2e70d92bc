"""The papers' news streams, from a seed (MJoin, sections 2 and 6.1).

    NewsGeneral    sno, title, keyword          one tuple for each news item
    AccessRecord   sno, ipaddr, is_end          many for each item, then its punctuation (is_end, no ipaddr)

Time is counted in news items. Item k is published at time k and is open while it is among the latest
`open_items`, that is until just before item k + open_items is published: then its punctuation comes. Its
access records, Poisson many, fall anywhere between, so the records of up to `open_items` items are mixed.
Worked number: with 10 open items, the records between the punctuations of 3 and 4 are of the items 4 to 13.

`order` is that of NewsGeneral. "ordered": each item comes when it is published, ascending by sno. "random":
up to shuffle / 2 items' time before or after that, so that the order is mixed, some items come after their
first access records, and yet the stream can go on for ever; with `shuffle` above 2 · open_items some come
even after their punctuation. AccessRecord is the same in both.

The streams are made block by block, each block from the seed and its number, so their rows depend on nothing
else: neither on the size of the tables nor on what was read before (but numpy may change its generators from
one version to the next). So a stream can be taken up anywhere: `between` gives the rows of a stretch of time.
Cost: a million access records take about 0.2 s. Memory: a block of about 100,000 rows, and the records of the
items that are open at its end.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from math import ceil
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin.errors import InvalidJoin

Ints: TypeAlias = npt.NDArray[np.int64]
Target: TypeAlias = BinaryIO | str | PathLike[str]
Maker: TypeAlias = Callable[[int, Ints], tuple[Ints, pa.Table]]  # a block's number and items → ticks, rows

NEWS_SCHEMA = pa.schema({"sno": pa.int64(), "title": pa.string(), "keyword": pa.string()})
ACCESS_SCHEMA = pa.schema({"sno": pa.int64(), "ipaddr": pa.string(), "is_end": pa.bool_()})

KEYWORDS = (
    "Smart Card", "Elections", "Central Banks", "Climate", "Space Flight", "Football", "Public Health",
    "Mergers & Acquisitions", "Energy Prices", "Wildfires", "Film Festivals", "Housing", "Cyber Security",
    "Trade Talks", "Archaeology", "Robotics", "Railways", "Schools", "Migration", "Chess", "Vaccines",
    "Semiconductors", "Fisheries", "Literature",
)  # fmt: skip
_OPENINGS = (
    "Cashless society", "New report on the sector", "Long-awaited reform", "Pilot project", "Minister's plan",
    "Small-town initiative", "Record investment", "Early forecast", "Court ruling", "Joint venture",
    "Annual congress", "Independent study",
)  # fmt: skip
_CLOSINGS = (
    "gets mixed reviews", "divides experts", "beats expectations", "is delayed again", "wins broad support",
    "raises new questions", "draws record crowds", "faces a vote on Friday", "moves to the next round",
    "costs more than planned",
)  # fmt: skip

_TICK = 1 << 32  # ticks between the publication of two items
_BLOCK_ROWS = 100_000
_NEWS, _ACCESS, _READERS = range(3)  # what a block's random numbers are for


@dataclass(frozen=True, slots=True)
class NewsStreams:
    """The two streams; `items=None` never ends.

    >>> streams = NewsStreams(seed=7, items=3, records_per_item=2)
    >>> next(streams.news())["sno"].to_pylist()
    [1, 2, 3]
    >>> ends = [sno for table in streams.access() for sno in table.filter(table["is_end"])["sno"].to_pylist()]
    >>> ends
    [1, 2, 3]
    """

    seed: int
    items: int | None
    records_per_item: float = 10.0
    order: Literal["ordered", "random"] = "ordered"
    open_items: int = 10
    shuffle: int = 10
    readers: int = 5_000
    first_sno: int = 1

    def __post_init__(self) -> None:
        wanted = {
            "seed": self.seed >= 0,
            "items": self.items is None or 0 <= self.items < 1 << 30,
            "records_per_item": 0 <= self.records_per_item <= 10_000_000,
            "order": self.order in ("ordered", "random"),
            "open_items": 1 <= self.open_items <= 1 << 20,
            "shuffle": 1 <= self.shuffle <= 1 << 20,
            "readers": 1 <= self.readers <= 1 << 24,
        }
        for name, fits in wanted.items():
            if not fits:
                raise InvalidJoin(
                    f"NewsStreams got {name}={getattr(self, name)!r}. Give an order of 'ordered' or "
                    f"'random', no negative numbers, and at least one open item, reader and place to shuffle."
                )

    def news(self, batch_rows: int = 10_000) -> Iterator[pa.Table]:
        """NewsGeneral, in tables of `batch_rows` (the last may be shorter)."""
        return _cut((table for _, table in self._news_spans()), batch_rows)

    def access(self, batch_rows: int = 10_000) -> Iterator[pa.Table]:
        """AccessRecord with its punctuations as marked rows, in tables of `batch_rows`."""
        return _cut((table for _, table in self._access_spans()), batch_rows)

    def arrivals(self, batch_rows: int = 10_000) -> Iterator[tuple[str, pa.Table]]:
        """Both streams as they arrive in time: ("news", table) and ("access", table) in turn.

        The common time line is cut after at most `batch_rows` rows; of each piece the news come first. With
        `batch_rows=1` this is the exact order of arrival.
        """
        _check_rows(batch_rows)
        return self._interleaved(batch_rows)

    def _interleaved(self, batch_rows: int) -> Iterator[tuple[str, pa.Table]]:
        for news, access in zip(self._news_spans(), self._access_spans(), strict=True):
            ticks = np.concatenate([news[0], access[0]])
            is_access = np.argsort(ticks, kind="stable") >= len(news[0])
            starts = np.arange(0, len(ticks) + batch_rows, batch_rows).clip(max=len(ticks))
            access_at = np.concatenate([[0], np.cumsum(is_access)])[starts]
            news_at = starts - access_at
            for piece in range(len(starts) - 1):
                for name, (_, table), at in (("news", news, news_at), ("access", access, access_at)):
                    if at[piece + 1] > at[piece]:
                        yield name, table.slice(at[piece], at[piece + 1] - at[piece])

    @property
    def start_item(self) -> int:
        """The time, in items, before which neither stream has a row; below 0 when the order is random."""
        return -self._early_items

    @property
    def end_item(self) -> int | None:
        """The time, in items, from which on neither stream has a row; None = never."""
        if self.items is None:
            return None
        if self.items == 0:
            return self.start_item
        return self.items - 1 + max(self.open_items, self._early_items)

    @property
    def block_items(self) -> int:
        """How many items are made at once; the smallest piece that costs what it holds."""
        return min(max(_BLOCK_ROWS // max(ceil(self.records_per_item), 1), 1), 1 << 14)

    def between(self, stream: Literal["news", "access"], start: int, end: int) -> pa.Table:
        """The rows of one stream whose time lies in [start, end), counted in items.

        Ranges that follow each other from `start_item` to `end_item` give the whole stream, row by row. Cost:
        the blocks of the items that can have a row there, however few of their rows are taken.

        >>> streams = NewsStreams(seed=7, items=3, open_items=1)
        >>> [streams.between("news", at, at + 1)["sno"].to_pylist() for at in range(3)]
        [[1], [2], [3]]
        """
        make: Maker
        if stream == "news":
            schema, make = NEWS_SCHEMA, self._news_block
            first, last = start - self._early_items, end + self._early_items
        elif stream == "access":
            schema, make = ACCESS_SCHEMA, self._access_maker()
            first, last = start - self.open_items + 1, end
        else:
            raise InvalidJoin(f"There is no stream {stream!r}. Give 'news' or 'access'.")
        ticks, rows = [np.empty(0, np.int64)], [schema.empty_table()]
        for block, items in self._blocks(first, last):
            new_ticks, new_rows = make(block, items)
            inside = (new_ticks >= start * _TICK) & (new_ticks < end * _TICK)
            ticks.append(new_ticks[inside])
            rows.append(new_rows.filter(pa.array(inside)))
        order = np.argsort(np.concatenate(ticks), kind="stable")  # as in `_spans`: ties by block, then place
        return pa.concat_tables(rows).take(pa.array(order)).combine_chunks()

    def write_xml(self, news_file: Target, access_file: Target) -> None:
        """Both streams in the papers' XML format (figures 2 and 3), which `convert` reads back."""
        if self.items is None:
            raise InvalidJoin(
                "A stream without an end cannot be written to a file. Give NewsStreams items=n."
            )
        with ExitStack() as files:
            for target, root, record, spans in (
                (news_file, "stream:NewsGeneral", "info", self._news_spans()),
                (access_file, "stream:AccessRecord", "record", self._access_spans()),
            ):
                file: Any = target
                if isinstance(target, str | PathLike):
                    file = files.enter_context(Path(target).open("wb"))
                file.write(f"<{root}>\n".encode())
                for _, table in spans:
                    file.write(_xml(table, record))
                file.write(f"</{root}>\n".encode())

    # ------------------------------------------------------------ blocks

    def _blocks(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Ints]]:
        """Numbers of the items of each block, counted from 0; only blocks with items of [first, last)."""
        size = self.block_items
        stop = self.items if last is None else last if self.items is None else min(last, self.items)
        block = max(first, 0) // size
        while stop is None or block * size < stop:
            end = (block + 1) * size if self.items is None else min((block + 1) * size, self.items)
            yield block, np.arange(block * size, end, dtype=np.int64)
            block += 1

    @property
    def _early_items(self) -> int:
        """How many items' time, at most, a row comes before or after the publication of its news."""
        return (self.shuffle + 1) // 2 if self.order == "random" else 0

    def _random(self, purpose: int, block: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, purpose, block])

    def _news_spans(self) -> Iterator[tuple[Ints, pa.Table]]:
        return self._spans(NEWS_SCHEMA, self._news_block)

    def _access_spans(self) -> Iterator[tuple[Ints, pa.Table]]:
        return self._spans(ACCESS_SCHEMA, self._access_maker())

    def _spans(self, schema: pa.Schema, make: Maker) -> Iterator[tuple[Ints, pa.Table]]:
        """Rows with their ticks, ascending, one span of time for each block and one for the rest.

        Both streams are cut at the same ticks. A block's items begin no earlier than half a shuffle before
        the block's first publication, so everything before that of the next block is known by then.
        """
        early = self.shuffle * _TICK // 2
        ticks, rows = np.empty(0, np.int64), schema.empty_table()
        for block, items in self._blocks():
            new_ticks, new_rows = make(block, items)
            ticks = np.concatenate([ticks, new_ticks])
            rows = pa.concat_tables([rows, new_rows])
            order = np.argsort(ticks, kind="stable")
            ticks, rows = ticks[order], rows.take(pa.array(order)).combine_chunks()
            known = int(np.searchsorted(ticks, (items[-1] + 1) * _TICK - early))
            yield ticks[:known], rows.slice(0, known)
            ticks, rows = ticks[known:], rows.slice(known)
        yield ticks, rows

    def _news_block(self, block: int, items: Ints) -> tuple[Ints, pa.Table]:
        random = self._random(_NEWS, block)
        keyword, opening, closing = (
            pa.array(words).take(pa.array(random.integers(0, len(words), len(items))))
            for words in (KEYWORDS, _OPENINGS, _CLOSINGS)
        )
        title = pc.binary_join_element_wise(keyword, pc.binary_join_element_wise(opening, closing, " "), ": ")
        ticks = items * _TICK
        if self.order == "random":
            ticks = ticks + random.integers(0, self.shuffle * _TICK, len(items)) - self.shuffle * _TICK // 2
        return ticks, pa.Table.from_arrays([items + self.first_sno, title, keyword], schema=NEWS_SCHEMA)

    def _access_maker(self) -> Maker:
        addresses = self._addresses()
        return lambda block, items: self._access_block(block, items, addresses)

    def _access_block(self, block: int, items: Ints, addresses: Any) -> tuple[Ints, pa.Table]:
        random = self._random(_ACCESS, block)
        of_item = np.repeat(items, random.poisson(self.records_per_item, len(items)))
        until_end = self.open_items * _TICK - 1  # its punctuation comes one tick before the next item does
        ticks = np.concatenate(
            [of_item * _TICK + random.integers(0, until_end, len(of_item)), items * _TICK + until_end]
        )
        reader = pa.array(random.integers(0, self.readers, len(of_item)))
        columns = [
            pa.array(np.concatenate([of_item, items]) + self.first_sno),
            pa.concat_arrays([addresses.take(reader), pa.nulls(len(items), pa.string())]),
            pa.array(np.arange(len(ticks)) >= len(of_item)),
        ]
        return ticks, pa.Table.from_arrays(columns, schema=ACCESS_SCHEMA)

    def _addresses(self) -> Any:
        """One address for each reader, no two the same."""
        random = self._random(_READERS, 0)
        numbers = np.unique(random.integers(1 << 24, 224 << 24, self.readers * 2))
        chosen = random.permutation(numbers)[: self.readers]
        octets = [pa.array(chosen >> shift & 255).cast(pa.string()) for shift in (24, 16, 8, 0)]
        return pc.binary_join_element_wise(*octets, ".")


def _check_rows(batch_rows: int) -> None:
    if batch_rows < 1:
        raise InvalidJoin(f"batch_rows is {batch_rows}. Give 1 or more.")


def _cut(tables: Iterator[pa.Table], batch_rows: int) -> Iterator[pa.Table]:
    """The same rows in tables of exactly `batch_rows`, the last one shorter."""
    _check_rows(batch_rows)
    return _recut(tables, batch_rows)


def _recut(tables: Iterator[pa.Table], batch_rows: int) -> Iterator[pa.Table]:
    held: list[pa.Table] = []
    rows = 0
    for table in tables:
        held.append(table)
        rows += table.num_rows
        if rows >= batch_rows:
            whole = pa.concat_tables(held)
            full = rows - rows % batch_rows
            for start in range(0, full, batch_rows):
                yield whole.slice(start, batch_rows).combine_chunks()
            held, rows = [whole.slice(full)], rows - full
    if rows:
        yield pa.concat_tables(held).combine_chunks()


def _xml(table: pa.Table, record: str) -> bytes:
    """The rows as elements; a row marked as an end becomes a punctuation of its first column."""
    columns = [name for name in table.column_names if name != "is_end"]
    prefix = pa.scalar("")
    if "is_end" in table.column_names:
        prefix = pc.if_else(table["is_end"], "punct:", "")
    pieces: list[Any] = ["  <", prefix, f"{record}>\n"]
    for name in columns:
        text = table[name].cast(pa.string()).fill_null("*")
        for sign, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
            text = pc.replace_substring(text, sign, safe)
        pieces += [f"    <{name}> ", text, f" </{name}>\n"]
    pieces += ["  </", prefix, f"{record}>\n"]
    return "".join(pc.binary_join_element_wise(*pieces, "").to_pylist()).encode()
