"""Weather-like data: a many-to-many join on a bounded domain, both sides far from uniform.

The SSBJ and MESHJOIN papers join cloud reports of ships and land stations on their longitude, 0 to 36,000
(hundredths of a degree): April and August as master data (20 million rows) with December as the stream (6
million tuples), 128 bytes each. How their longitudes are spread is not printed. Here half of the reports are
of land stations, which stand at 2,000 fixed longitudes and report unequally (Zipf 0.5 over a random order of
them); the others are of ships, which sail everywhere, more in six wide lanes. In the months of the stream the
same stations and lanes are there, but each longitude's weight is drawn anew within a factor of four. So the
two sides are alike and not equal. Worked number: of 1 million rows of master data the most reported longitude
has 8,000 and the median one 5; a tuple has 308 results on average (28 if both sides were uniform).

Each row follows from the seed and its number. Cost: about 1 µs a row, most of it its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from streamjoin.demo.generators.noise import Ints, Noise
from streamjoin.demo.generators.zipf import TABLE_SCHEMA, Floats
from streamjoin.errors import InvalidJoin

STREAM_SCHEMA = pa.schema({"k": pa.int64(), "id": pa.int64(), "pad": pa.binary()})
LONGITUDES = 36_001
ROW_BYTES = 128
_STATIONS, _STATION_SHARE = 2_000, 0.5
_LANES, _LANE_WIDTH = 6, 900.0
_CHUNK = 100_000


@dataclass(frozen=True)
class WeatherStreams:
    """Master data with columns k, m, pad, and a stream with k, id, pad; k is a longitude."""

    seed: int = 1
    rows: int = 1_000_000  # of master data

    def __post_init__(self) -> None:
        if not 1 <= self.rows <= 1 << 31 or self.seed < 0:
            raise InvalidJoin(
                f"Weather streams got rows={self.rows!r} and seed={self.seed!r}; give 1 to 2^31 rows and a "
                f"seed of 0 or more."
            )

    table_schema = TABLE_SCHEMA
    stream_schema = STREAM_SCHEMA

    @cached_property
    def _weights(self) -> tuple[Floats, Floats]:
        """Sums of the probabilities of the longitudes, for master data and stream."""
        noise = Noise.of(self.seed, np.arange(LONGITUDES))
        order = np.argsort(noise.words("stations"), kind="stable")[:_STATIONS]
        stations = np.zeros(LONGITUDES)
        stations[order] = np.arange(1, _STATIONS + 1) ** -0.5
        lanes = np.ones(LONGITUDES)
        for middle in Noise.of(self.seed, np.arange(_LANES)).below("lanes", LONGITUDES).tolist():
            away = np.abs(np.arange(LONGITUDES) - middle)
            lanes += 20 * np.exp(-((np.minimum(away, LONGITUDES - away) / _LANE_WIDTH) ** 2))
        year = _STATION_SHARE * stations / stations.sum() + (1 - _STATION_SHARE) * lanes / lanes.sum()
        months = (year * 4.0 ** (noise.share(months) - 0.5) for months in ("master", "stream"))
        table, stream = (np.cumsum(weights) / weights.sum() for weights in months)
        return table, stream

    def _longitudes(self, numbers: Ints, *, of_stream: bool) -> Ints:
        purpose = "longitude of a tuple" if of_stream else "longitude of a row"
        drawn = Noise.of(self.seed, numbers).share(purpose)
        found = np.searchsorted(self._weights[of_stream], drawn, side="right")
        return np.minimum(found, LONGITUDES - 1)

    def table_rows(self, first: int, count: int) -> pa.Table:
        """Some rows of master data."""
        return self._reports(first, count, TABLE_SCHEMA, of_stream=False)

    def tuples(self, first: int, count: int) -> pa.Table:
        """Some tuples of the stream, which has no end."""
        return self._reports(first, count, STREAM_SCHEMA, of_stream=True)

    def table(self) -> Iterator[pa.Table]:
        """All master data, in parts."""
        for first in range(0, self.rows, _CHUNK):
            yield self.table_rows(first, min(_CHUNK, self.rows - first))

    def _reports(self, first: int, count: int, schema: pa.Schema, *, of_stream: bool) -> pa.Table:
        numbers = np.arange(first, first + count)
        pad = Noise.of(self.seed, numbers).binary(schema.names[1], ROW_BYTES - 16)
        columns = [pa.array(self._longitudes(numbers, of_stream=of_stream)), pa.array(numbers), pad]
        return pa.Table.from_arrays(columns, schema=schema)
