"""NEXMark as files that every engine can read: `demo.generators.nexmark` cut into pieces that end.

A piece has the rows of so many events in each of the three tables, all with `is_end`, times as whole
milliseconds. The last piece also ends what the generator leaves open: a marked row for every auction still in
flight, for every seller still active, and in each table one a day later for an id that nobody has (-1), so
that event time passes every window. Engines that know no punctuations leave out rows with `is_end`.

Worked number: 100,000 events in pieces of 50,000 are two pieces; the second ends auctions 6899 to 7009, since
the last is 6999, bids go as far as 100 back, and 10 are known before they open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lab.contenders.protocol import milliseconds
from streamjoin.demo.generators.nexmark import FIRST_ID, TABLES, Name, Nexmark

NOBODY = -1
_ROUND = 50  # events with one person and three auctions
_IN_FLIGHT, _ACTIVE, _LEAD = 100, 1_000, 10
_DAY_MS = 86_400_000


@dataclass(frozen=True)
class Pieces:
    """The three tables of `events` events, `per_piece` at a time."""

    events: int
    per_piece: int = 250_000
    seed: int = 8
    rate: int = 10_000

    @property
    def count(self) -> int:
        return -(-self.events // self.per_piece)

    def __iter__(self) -> Iterator[Mapping[Name, pa.Table]]:
        """Piece by piece, the tables by name."""
        made = Nexmark(self.seed, self.events, self.rate)
        for i in range(self.count):
            first, last = i * self.per_piece, min((i + 1) * self.per_piece, self.events)
            tables: dict[Name, pa.Table] = {}
            for name in TABLES:
                marked = name != "person"
                rows = milliseconds(made.between(name, first, last, punctuations=marked))
                if not marked:
                    rows = rows.append_column("is_end", pa.array(np.zeros(len(rows), np.bool_)))
                if last == self.events:
                    rows = pa.concat_tables([rows, self._ends(name, rows.schema, made)])
                tables[name] = rows
            yield tables

    def _ends(self, name: Name, schema: pa.Schema, made: Nexmark) -> pa.Table:
        """What closes a table: every value that is still open, then nobody's, a day later."""
        rounds = self.events // _ROUND
        open_from = {"bid": 3 * rounds - _IN_FLIGHT - 1, "auction": rounds - _ACTIVE - 1, "person": 0}[name]
        open_to = {"bid": 3 * (rounds + 1) + _LEAD, "auction": rounds + 1 + _LEAD, "person": 0}[name]
        values = np.append(FIRST_ID + np.arange(max(open_from, 0), open_to), NOBODY)
        end_ms = int(made.start.timestamp() * 1000) + self.events * 1000 // self.rate
        times = np.full(len(values), end_ms)
        times[-1] += _DAY_MS
        known: dict[str, Any] = {
            {"bid": "auction", "auction": "seller", "person": "id"}[name]: pa.array(values),
            "date_time": pa.array(times),
            "is_end": pa.array(np.ones(len(values), np.bool_)),
        }
        return pa.table({f.name: known.get(f.name, pa.nulls(len(values), f.type)) for f in schema}, schema)
