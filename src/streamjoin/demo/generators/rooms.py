"""Sensor readings of a building, from a seed: the example of the adaptive-driver paper's introduction.

    temperature   room, minute, celsius, at, is_end    one reading a minute from each room, a few lost
    humidity      room, minute, percent, at, is_end    one every two minutes, sent every three; some lost
    light         room, minute, lux, at, is_end        in bursts, as people come and go (b-model, 80-20)

Each kind of reading goes to a sink of its own, in the order in which the sink gets it, which is up to
`DELAYS_US` after the reading. `minute` is the minute in which it was taken. When a room's sensor has sent
all of a minute it says so: a row with is_end, neither value nor time. A share of the humidity sensors falls
silent once, for an hour or so; their minutes are only over when they are back.

Worked number: 40 rooms in 6 hours give 14,400 minutes, about as many temperatures, half as many humidities
and 2.5 times as many lights; a fifth of the minutes hold four fifths of the lights, and so on inside each.
Cost: a million rows take about a second, all of them at once in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin.errors import InvalidJoin

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
_START_US = 1_247_472_000_000_000  # 13 July 2009, 8 in the morning UTC
_TIME = pa.timestamp("us", tz="UTC")

VALUES: Mapping[str, str] = MappingProxyType(
    {"temperature": "celsius", "humidity": "percent", "light": "lux"}
)
DELAYS_US: Mapping[str, int] = MappingProxyType(
    {"temperature": 5 * SECOND_US, "humidity": 3 * MINUTE_US, "light": 10 * SECOND_US}
)
_BURST = 0.8  # of what a span of time brings, the share of its busier half


def room_schema(name: str) -> pa.Schema:
    """The columns of one of the streams."""
    return pa.schema(
        {
            "room": pa.string(),
            "minute": _TIME,
            VALUES[name]: pa.float64(),
            "at": _TIME,
            "is_end": pa.bool_(),
        }
    )


@dataclass(frozen=True, slots=True)
class _Readings:
    """Readings of one kind in any order; times in microseconds since the start."""

    room: Ints
    at_us: Ints
    got_us: Ints  # when the sink got it
    value: Floats


@dataclass(frozen=True, slots=True)
class RoomStreams:
    """The three streams.

    >>> streams = RoomStreams(seed=7, rooms=3, hours=0.5)
    >>> light = streams.table("light")
    >>> light.column_names
    ['room', 'minute', 'lux', 'at', 'is_end']
    >>> len(light.filter(light["is_end"]))  # 3 rooms, 30 minutes; the last is not over when it ends
    87
    """

    seed: int
    rooms: int = 40
    hours: float = 6.0
    lights_per_minute: float = 2.5
    lost_share: float = 0.02
    silent_share: float = 0.25

    def __post_init__(self) -> None:
        wanted = {
            "seed": self.seed >= 0,
            "rooms": 1 <= self.rooms <= 10_000,
            "hours": 1 / 60 <= self.hours <= 10_000,
            "lights_per_minute": 0 <= self.lights_per_minute <= 10_000,
            "lost_share": 0 <= self.lost_share <= 1,
            "silent_share": 0 <= self.silent_share <= 1,
        }
        for name, fits in wanted.items():
            if not fits:
                raise InvalidJoin(
                    f"RoomStreams got {name}={getattr(self, name)!r}. Give shares between 0 and 1, no "
                    "negative numbers, at least one room and one minute."
                )

    def table(self, name: str) -> pa.Table:
        """A stream with the ends of its minutes, in the order of its sink."""
        return self._recorded(name)[0]

    def batches(self, minutes: float) -> Iterator[dict[str, pa.Table]]:
        """What the three sinks got in each stretch of so many minutes."""
        cuts = self.cuts_us(minutes)
        tables, places = {}, {}
        for name in VALUES:
            tables[name], got_us = self._recorded(name)
            places[name] = np.searchsorted(got_us, [0, *cuts])
        for piece in range(len(cuts)):
            yield {
                name: table.slice(places[name][piece], places[name][piece + 1] - places[name][piece])
                for name, table in tables.items()
            }

    def cuts_us(self, minutes: float) -> Ints:
        """When each piece of `batches` ends, since the start, exclusive."""
        if minutes <= 0:
            raise InvalidJoin(f"a batch of {minutes} minutes. Give more than 0.")
        step = max(round(minutes * MINUTE_US), 1)
        return np.append(np.arange(step, self._length_us, step), self._length_us)

    def _recorded(self, name: str) -> tuple[pa.Table, Ints]:
        """A stream, and when its sink got each row."""
        taken, end_us = {
            "temperature": self._temperature,
            "humidity": self._humidity,
            "light": self._light,
        }[name]()
        count = len(taken.room)
        room = np.concatenate([taken.room, self._each_room])
        minute = np.concatenate([taken.at_us // MINUTE_US, self._each_minute])
        got_us, is_end = np.concatenate([taken.got_us, end_us]), np.arange(len(room)) >= count
        order = np.lexsort((is_end, got_us))  # what comes in one moment: readings, then ends
        order = order[got_us[order] < self._length_us]
        numbers = np.arange(self.rooms)
        labels = pa.array([f"{number // 10 + 1}.{number % 10 + 1:02}" for number in numbers])
        columns = [
            labels.take(pa.array(room)),
            _times(minute * MINUTE_US),
            pa.array(np.append(taken.value, np.zeros(len(end_us))), mask=is_end),
            _times(np.append(taken.at_us, end_us), is_end),
            pa.array(is_end),
        ]
        table = pa.Table.from_arrays(columns, schema=room_schema(name))
        return table.take(pa.array(order)), got_us[order]

    # What each kind of sensor sends: its readings, and when each minute of each room is over

    def _temperature(self) -> tuple[_Readings, Ints]:
        random = self._random("temperature")
        second = random.integers(0, 55, self.rooms)[self._each_room]  # each room has its own in the minute
        at_us = self._each_minute * MINUTE_US + second * SECOND_US + self._delay(random, SECOND_US)
        got_us = at_us + self._delay(random, DELAYS_US["temperature"])
        own = random.normal(0, 1, self.rooms)[self._each_room]
        day = 3 * np.sin(at_us / (12 * 60 * MINUTE_US) * np.pi)
        value = 20 + own + day + random.normal(0, 0.2, len(own))
        sent = random.random(len(own)) >= self.lost_share
        return _chosen(sent, self._each_room, at_us, got_us, value.round(1)), self._over("temperature")

    def _humidity(self) -> tuple[_Readings, Ints]:
        random = self._random("humidity")
        room, minute, period = self._each_room, self._each_minute, DELAYS_US["humidity"]
        phase = random.integers(0, period, self.rooms)[room]  # when a room sends within each three minutes
        silent, back = (each[room] for each in self._silence(random))
        at_us = minute * MINUTE_US + random.integers(0, MINUTE_US, len(room))
        sending = -(-(at_us - phase) // period)  # the next one
        quiet = (silent <= sending) & (sending < back)
        sent = ((minute + room) % 2 == 0) & ~quiet & (random.random(len(room)) >= self.lost_share)
        value = 45 + random.normal(0, 5, self.rooms)[room] + random.normal(0, 1, len(room))
        over = -(-((minute + 1) * MINUTE_US - phase) // period)
        over = np.where((silent <= over) & (over < back), back, over)
        readings = _chosen(sent, room, at_us, phase + sending * period, value.round(0))
        return readings, phase + over * period

    def _silence(self, random: np.random.Generator) -> tuple[Ints, Ints]:
        """From which sending up to which a room's humidity sensor says nothing."""
        sendings = int(self._length_us // DELAYS_US["humidity"])
        start = random.integers(1, max(sendings, 2), self.rooms)
        length = random.integers(10, 30, self.rooms)  # half an hour to one and a half
        return start, np.where(random.random(self.rooms) < self.silent_share, start + length, start)

    def _light(self) -> tuple[_Readings, Ints]:
        random = self._random("light")
        count = round(self.lights_per_minute * len(self._each_room))
        levels = int(np.ceil(np.log2(max(self._minutes, 2))))
        share = np.ones(1)
        for _ in range(levels):  # every span gives most of its own to one of its halves
            left = share * np.where(random.random(len(share)) < 0.5, _BURST, 1 - _BURST)
            share = np.column_stack([left, share - left]).ravel()
        share = share[: self._minutes] / share[: self._minutes].sum()
        minute = np.repeat(np.arange(self._minutes), random.multinomial(count, share))
        at_us = minute * MINUTE_US + random.integers(0, MINUTE_US, count)
        got_us = at_us + self._delay(random, DELAYS_US["light"], count)
        value = random.lognormal(5, 1, count).round(0)
        return _Readings(random.integers(0, self.rooms, count), at_us, got_us, value), self._over("light")

    def _over(self, name: str) -> Ints:
        """A sink has all of a minute once the longest delay after it has passed."""
        return (self._each_minute + 1) * MINUTE_US + DELAYS_US[name]

    def _delay(self, random: np.random.Generator, most_us: int, count: int | None = None) -> Ints:
        return random.integers(0, most_us, len(self._each_room) if count is None else count)

    @property
    def _each_room(self) -> Ints:
        return np.tile(np.arange(self.rooms), self._minutes)

    @property
    def _each_minute(self) -> Ints:
        return np.repeat(np.arange(self._minutes), self.rooms)

    @property
    def _minutes(self) -> int:
        return int(np.ceil(self._length_us / MINUTE_US))

    @property
    def _length_us(self) -> int:
        return round(self.hours * 60 * MINUTE_US)

    def _random(self, purpose: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, *purpose.encode()])


def _chosen(which: npt.NDArray[np.bool_], *columns: Any) -> _Readings:
    return _Readings(*(column[which] for column in columns))


def _times(us: Ints, missing: npt.NDArray[np.bool_] | None = None) -> Any:
    return pa.array(us + _START_US, mask=missing).cast(_TIME)
