"""Cost model: the predicted state of a join, from the expected rates of its inputs.

Equation 1 of PWJoin (section 5.2) stands here as printed, and beside it a model of ours for n inputs. Ours
follows a key: input m has its first row of it `first_after` the key begins, rows come evenly for `open_for`,
and `punctuation_delay` later m is closed for the key, for a share `punctuated` of the keys. A tuple of input
i that came at time u is needed until, for every other input m, m is closed for its key or the window has
passed:

    life = max over m of min(closed_m - u, W_i + lateness_m), at most ttl_i + lateness_i, at least 0
    tuples stored = rows per second x mean life        (Little's law)
    closed keys of m = keys per second x mean time from m's punctuation to that of the last input, at most
                       W_m + the greatest lateness where every input has a window

The means are taken over a few thousand keys drawn evenly, the same ones each time. Worked number: 10 auctions
a second, bids for 100 to 300 s: an auction is needed for 200 s on average, so 2,000 are stored; each bid
comes after its auction, which is unique, so none is.

It assumes that the keys of all inputs are the same ones, that rates are steady, and that a punctuation is
applied when it comes. The same law with lives measured while the join runs is `join.statistics.forecast`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamjoin.columnar.batch import Layout
from streamjoin.declare.durations import Duration, duration_us
from streamjoin.declare.stream import Stream
from streamjoin.errors import InvalidJoin
from streamjoin.join.spec import InputSpec
from streamjoin.join.strategies.purge import NoPurge, PurgeEvery
from streamjoin.plan.bounds import closes_keys
from streamjoin.plan.planner import Plan

Floats: TypeAlias = npt.NDArray[np.float64]
Span: TypeAlias = Duration | tuple[Duration, Duration]
MOST = 1e15  # of any number that is expected: above, or not a number, is a mistake
_KEYS = 8192  # drawn for the means: about 1 % of noise
_TEXT_BYTES = 20  # of a text or list: its offset, and a guess at its length


def equation_1(*, rate: float, window: float, closed_keys: float, elapsed: float, keys: float) -> float:
    """Tuples of stream B in the state at time `elapsed`, as PWJoin prints it: λb Tb (1 − λpa T / NKb,T).

    `rate` λb, `window` Tb, `closed_keys` λpa: punctuations of A by unit of time, `keys` NKb,T: distinct join
    values of B so far. A tuple is taken to be purged with the share of all keys so far that are punctuated,
    whenever it came. But every key of a punctuated stream is punctuated in the end, so for general
    punctuated streams this tends to zero, while in truth the latest tuples are always there. Worked number:
    punct-asc-100-40 with 1,000 tuples a second has 10 punctuations a second and, when each key has ended,
    10 new keys a second; with a window of 5 s, after 60 s:

    >>> equation_1(rate=1000, window=5, closed_keys=10, elapsed=60, keys=600)
    0.0

    The join stores about 2,600 tuples of B on average there. Where the keys of B are of a given number and
    uniform, as the paper assumes, time matters: 160 keys and 2 punctuations a second, after 20 s and 40 s:

    >>> [equation_1(rate=1000, window=5, closed_keys=2, elapsed=t, keys=160) for t in (20, 40)]
    [3750.0, 2500.0]
    """
    return rate * window * (1 - closed_keys * elapsed / keys)


@dataclass(frozen=True, slots=True)
class Rate:
    """What is expected of one input of a join, to predict the state of the join.

    `open_for`: how long rows of one key keep coming; a unique input needs none. `first_after`: how long after
    a key begins, on any input, its first row comes here. Both may be a pair, (shortest, longest).
    `punctuation_delay`: from the last row of a key to the punctuation that closes it. `punctuated`: the share
    of the keys that this input ever closes; for a unique input, that ever come. `row_bytes`: of one tuple,
    else guessed from the columns. `keys`: how many distinct keys its rows have, all told, for equation 1 of
    PWJoin; without it, new keys come for ever.
    """

    rows_per_second: float
    rows_per_key: float = 1.0
    open_for: Span | None = None
    first_after: Span = "0 seconds"
    punctuation_delay: Duration = "0 seconds"
    punctuated: float = 1.0
    row_bytes: float | None = None
    keys: float | None = None

    def __post_init__(self) -> None:
        if self.keys is not None and not (_is_number(self.keys) and self.keys > 0):
            raise InvalidJoin(f"{self!r}: give keys above 0, or leave it out")
        size = 1.0 if self.row_bytes is None else self.row_bytes
        if not all(map(_is_number, (self.rows_per_second, self.rows_per_key, self.punctuated, size))):
            raise InvalidJoin(
                f"{self!r}: give rows_per_second, rows_per_key, punctuated and row_bytes as numbers"
            )
        if size <= 0:
            raise InvalidJoin(f"{self!r}: give row_bytes above 0, or leave it out")
        if self.rows_per_second < 0 or self.rows_per_key <= 0 or not 0 <= self.punctuated <= 1:
            raise InvalidJoin(
                f"{self!r}: give rows_per_second of 0 or more, rows_per_key above 0 and "
                "punctuated from 0 to 1"
            )
        _ = self.opening_s, self.first_s, self.delay_s

    @property
    def opening_s(self) -> tuple[float, float] | None:
        return None if self.open_for is None else _seconds(self.open_for, "open_for")

    @property
    def first_s(self) -> tuple[float, float]:
        return _seconds(self.first_after, "first_after")

    @property
    def delay_s(self) -> float:
        return _seconds(self.punctuation_delay, "punctuation_delay")[0]

    def distinct_keys(self, elapsed: float) -> float:
        """Keys that have come so far: NK of equation 1."""
        if self.keys is None:
            return self.keys_per_second * elapsed
        return min(self.keys, self.rows_per_second * elapsed)

    @property
    def keys_per_second(self) -> float:
        return self.rows_per_second / self.rows_per_key


def _is_number(given: Any) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool) and abs(given) <= MOST


def _seconds(given: Span, what: str) -> tuple[float, float]:
    ends = given if isinstance(given, tuple) else (given, given)
    found = [duration_us(end, what=f"Rate: {what}") / 1e6 for end in ends]
    if len(found) != 2 or found[0] > found[1]:
        raise InvalidJoin(f"Rate: {what} is {given!r}; give a duration, or a pair (shortest, longest)")
    return found[0], found[1]


@dataclass(frozen=True, slots=True)
class Predicted:
    """The predicted state of one input, on average: tuples, closed keys, the bytes of both.

    `mean_life_s`: how long a tuple stays needed, so far. `growing`: some stay longer than that, and
    `closed_keys_growing` the same of closed keys. `equation_1`: what PWJoin's formula says, where it applies.
    """

    stream: str
    rows: float
    closed_keys: float
    nbytes: float
    mean_life_s: float
    growing: bool
    equation_1: float | None = None
    equation_1_keys: float | None = None  # the distinct keys that were given for it
    closed_keys_growing: bool = False


def predict(plan: Plan, rates: Mapping[str, Rate | float], after: Duration = "1 day") -> list[Predicted]:
    """The predicted state of each input so long after the start, given what is expected of all of them."""
    names = [stream.name for stream in plan.streams]
    if not isinstance(rates, Mapping):
        raise InvalidJoin(f"rates={rates!r}; give a rate for each of {', '.join(names)}, by name")
    if set(rates) != set(names):
        given = ", ".join(map(str, rates)) or "no input"
        raise InvalidJoin(f"rates are given for {given}; give one for each of {', '.join(names)}")
    found = [rate if isinstance(rate, Rate) else Rate(rate) for rate in (rates[name] for name in names)]
    horizon = duration_us(after, what="after") / 1e6
    keys = [_Keys.of(stream, found[i], i) for i, stream in enumerate(plan.streams)]
    return [_predicted(plan, keys, i, horizon) for i in range(len(keys))]


@dataclass(frozen=True, eq=False)
class _Keys:
    """Some keys as one input sees them: when rows of them come (seconds since they began), when it closes."""

    stream: Stream
    rate: Rate
    comes: Floats
    closes: Floats

    @classmethod
    def of(cls, stream: Stream, rate: Rate, number: int) -> _Keys:
        draw = np.random.default_rng([_KEYS, number]).random((4, _KEYS))
        open_for = _between(draw[0], (0.0, 0.0) if stream.unique else rate.opening_s or (0.0, 0.0))
        first = _between(draw[1], rate.first_s)
        closes = first + open_for + (0.0 if stream.unique else rate.delay_s)
        known = closes_keys(stream) is not None and (stream.unique or rate.opening_s is not None)
        closes = np.where((draw[2] < rate.punctuated) & known, closes, np.inf)
        return cls(stream, rate, first + draw[3] * open_for, closes)


def _between(draw: Floats, ends: tuple[float, float]) -> Floats:
    return ends[0] + draw * (ends[1] - ends[0])


def _predicted(plan: Plan, keys: Sequence[_Keys], i: int, horizon: float) -> Predicted:
    own, spec, purge = keys[i], plan.spec.inputs[i], plan.spec.strategies.purge
    life: Floats = np.zeros(_KEYS)
    for m, other in ((m, one) for m, one in enumerate(keys) if m != i):
        left = other.closes - own.comes
        if isinstance(purge, NoPurge):
            left = np.where(left > 0, np.inf, left)
        elif isinstance(purge, PurgeEvery) and purge.keys is not None and not purge.when_idle:
            left = np.where(left > 0, left + purge.keys / 2 / max(_closed_per_second(keys), 1e-9), left)
        spans = [spec.window_us, spec.ranges_us[m] if spec.ranges_us else None]
        for span in (each for each in spans if each is not None):
            left = np.minimum(left, max(0, span + (other.stream.lateness_us or 0)) / 1e6)
        life = np.maximum(life, left)
    if spec.ttl_us is not None:
        life = np.minimum(life, (spec.ttl_us + spec.lateness_us) / 1e6)
    mean_life = float(np.minimum(life, horizon).mean())
    rows = own.rate.rows_per_second * mean_life
    remembered = _remembered(plan, keys, i)
    closed_keys = own.rate.keys_per_second * float(np.minimum(remembered, horizon).sum()) / _KEYS
    tuple_bytes = own.rate.row_bytes or row_bytes(spec.layout)
    tombstones = 1 / (1 - plan.spec.compaction.tombstone_share / 2) if np.isfinite(life).any() else 1.0
    nbytes = rows * tuple_bytes * tombstones + closed_keys * row_bytes(spec.layout.keys_only)
    growing = bool((life > horizon).any())
    printed = _printed(keys, i, spec, horizon)
    given = None if printed is None else own.rate.keys
    ever = bool((remembered > horizon).any())
    return Predicted(own.stream.name, rows, closed_keys, nbytes, mean_life, growing, printed, given, ever)


def _closed_per_second(keys: Sequence[_Keys]) -> float:
    return sum(one.rate.keys_per_second for one in keys if np.isfinite(one.closes).any())


def _remembered(plan: Plan, keys: Sequence[_Keys], i: int) -> Floats:
    """How long each key that input i closes is remembered: until all others close it, or watermarks are past
    what it could match. An ordered input stores one range instead.
    """
    own, spec = keys[i], plan.spec
    closing = np.isfinite(own.closes)
    arrival = own.stream.arrival
    one_range = arrival is not None and arrival.closes_ranges and not own.stream.unique
    if one_range or not closing.any():
        return np.zeros(1)
    over: Floats = np.maximum.reduce([one.closes for one in keys])[closing] - own.closes[closing]
    if not spec.forgets_closed_keys:
        return over
    reach = [spec.inputs[i].reach_to(m) or 0 for m in range(len(keys)) if m != i]
    late = max(one.lateness_us for one in spec.inputs)
    return np.minimum(over, max(0, *reach) / 1e6 + late / 1e6)


def _printed(keys: Sequence[_Keys], i: int, spec: InputSpec, horizon: float) -> float | None:
    """Equation 1, which is of two inputs with windows, of which the other one punctuates."""
    other = keys[1 - i] if len(keys) == 2 else None
    if other is None or spec.window_us is None or not np.isfinite(other.closes).any():
        return None
    rate = keys[i].rate
    said = equation_1(
        rate=rate.rows_per_second,
        window=spec.window_us / 1e6,
        closed_keys=other.rate.keys_per_second * other.rate.punctuated,
        elapsed=horizon,
        keys=max(rate.distinct_keys(horizon), 1e-9),
    )
    return max(said, 0.0)  # more punctuations than keys: all of them are purged


def row_bytes(layout: Layout) -> float:
    """The bytes of one row, texts and lists guessed."""
    return sum(_width(field.type) for field in layout.schema)


def _width(dtype: Any) -> float:
    if pa.types.is_struct(dtype):
        return float(sum(_width(field.type) for field in dtype))
    try:
        return float(dtype.bit_width) / 8
    except ValueError:
        return _TEXT_BYTES
