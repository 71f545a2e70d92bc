"""Closed ranges of every key type: the ends, the merging, and many keys at once against a plain test."""

import itertools
import json
import random
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.columnar.keys import canonical
from streamjoin.columnar.types import orderable
from streamjoin.punctuation import Range, between
from streamjoin.state.closed_ranges import ClosedRanges

NAN, INF = float("nan"), float("inf")
at = datetime.fromisoformat

ASCENDING = {  # values of each type in their order
    "bool": (pa.bool_(), [False, True]),
    "int8": (pa.int8(), [-128, -1, 0, 1, 127]),
    "int64": (pa.int64(), [-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 2, 2**63 - 1]),
    "uint32": (pa.uint32(), [0, 1, 2**31, 2**32 - 1]),
    "uint64": (pa.uint64(), [0, 1, 2**63 - 1, 2**63, 2**64 - 1]),
    "float16": (pa.float16(), [np.float16(v) for v in (-INF, -1.5, 0.0, 1.5, INF, NAN)]),
    "float32": (pa.float32(), [-INF, -1.5, 0.0, 1.5, INF, NAN]),
    "float64": (pa.float64(), [-INF, -1.5, -5e-324, 0.0, 5e-324, 1.5, INF, NAN]),
    "decimal": (pa.decimal128(6, 2), [Decimal("-1.50"), Decimal("0.00"), Decimal("0.01"), Decimal("10.00")]),
    "wide decimal": (
        pa.decimal128(38, 2),
        [Decimal(f"123456789012345678901234567890123456.7{i}") for i in (7, 8, 9)],
    ),
    "decimal256": (pa.decimal256(60, 0), [Decimal("1" + "0" * 58 + str(i)) for i in range(3)]),
    "string": (pa.string(), ["", "\0", "A", "a", "a\0", "a\0\0", "aa", "b", "é", "𝄞"]),
    "binary": (pa.binary(), [b"", b"\0", b"a", b"a\0", b"a\0\0", b"a\xff", b"b", b"\xff\xff"]),
    "fixed binary": (pa.binary(2), [b"\0\0", b"\0\1", b"a\0", b"ab", b"\xff\xff"]),
    "date32": (pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2026, 11, 15)]),
    "date64": (pa.date64(), [date(1969, 12, 31), date(1970, 1, 1), date(2026, 11, 15)]),
    "time32": (pa.time32("s"), [time(0), time(0, 0, 1), time(23, 59, 59)]),
    "time64": (pa.time64("us"), [time(0), time(0, 0, 0, 1), time(23, 59, 59)]),
    "timestamp[s]": (
        pa.timestamp("s"),
        [at("1969-12-31T23:59:59"), at("1970-01-01"), at("2026-11-15T10:00:00")],
    ),
    "timestamp[us]": (
        pa.timestamp("us"),
        [at("1900-01-01"), at("2026-11-15"), at("2026-11-15T00:00:00.000001")],
    ),
    "timestamp[ms, zone]": (
        pa.timestamp("ms", "Europe/Berlin"),
        [datetime(2026, 10, 25, hour, tzinfo=UTC) for hour in (0, 1, 2)],  # the clock goes back between
    ),
    "duration": (pa.duration("us"), [timedelta(microseconds=i) for i in (-1, 0, 1)]),
}


def array(values, dtype):
    return canonical(pa.array(values, dtype))


def contains(closed, values):
    return closed.contains(array(values, closed.dtype)).tolist()


def set_of(dtype, *ranges):
    closed = ClosedRanges(dtype)
    for pattern in ranges:
        closed.add(pattern)
    return closed


# ---------------------------------------------------------------- the ends


@pytest.mark.parametrize("kind", ASCENDING)
def test_every_end_of_every_type(kind):
    """Each pair of ends, open, closed or missing, against the order of the values."""
    dtype, values = ASCENDING[kind]
    numbers = range(len(values))
    for low, high in itertools.product([None, *numbers], repeat=2):
        if low is None and high is None:
            continue
        for low_closed, high_closed in itertools.product([True, False], repeat=2):
            ends = [None if end is None else values[end] for end in (low, high)]
            if low is not None and high is not None and low > high:
                continue  # told below
            closed = set_of(dtype, Range(*ends, low_closed, high_closed))
            expected = [
                (low is None or i > low or (i == low and low_closed))
                and (high is None or i < high or (i == high and high_closed))
                for i in numbers
            ]
            assert contains(closed, values) == expected, (ends, low_closed, high_closed)


@pytest.mark.parametrize("kind", ASCENDING)
def test_a_stored_set_is_the_same_set(kind):
    dtype, values = ASCENDING[kind]
    closed = set_of(dtype, Range(values[0], values[1], True, False), Range(values[-1], None))
    stored = json.loads(json.dumps(closed.to_json()))
    assert ClosedRanges.from_json(dtype, stored) == closed
    assert contains(ClosedRanges.from_json(dtype, stored), values) == contains(closed, values)


def test_ends_that_cross_close_nothing():
    closed = set_of(
        pa.int64(),
        between(5, 1),
        between(5, 5, low_closed=False),
        between(5, 6, low_closed=False, high_closed=False),
    )
    assert len(closed) == 0
    assert contains(closed, [1, 5, 6]) == [False] * 3


def test_negative_zero_is_zero():
    assert contains(set_of(pa.float64(), between(-0.0, 1.0)), [-0.0, 0.0]) == [True, True]
    assert contains(set_of(pa.float64(), between(None, 0.0, high_closed=False)), [-0.0, 0.0]) == [
        False,
        False,
    ]


def test_an_empty_set_has_no_key():
    for dtype, values in ASCENDING.values():
        assert contains(ClosedRanges(dtype), values) == [False] * len(values)
        assert contains(set_of(dtype, Range(values[0], None)), []) == []


@pytest.mark.parametrize("dtype", [pa.list_(pa.int64()), pa.struct([("x", pa.int64())]), pa.null()], ids=str)
def test_keys_without_an_order_have_no_ranges(dtype):
    assert not orderable(dtype)
    with pytest.raises(sj.BadInput, match="has no meaning; punctuate single keys"):
        ClosedRanges(dtype).add(between(1, 5))


# ---------------------------------------------------------------- merging


@pytest.mark.parametrize(
    ("added", "left"),
    [
        ([(1, 5), (6, 9)], 1),  # whole numbers touch
        ([(6, 9), (1, 5)], 1),
        ([(1, 5), (7, 9)], 2),
        ([(1, 5), (7, 9), (6, 6)], 1),  # the gap is filled
        ([(1, 5), (2, 3)], 1),  # inside
        ([(2, 3), (1, 5)], 1),  # around
        ([(1, 5), (5, 9)], 1),
        ([(1, 2), (4, 5), (7, 8), (10, 11), (0, 8)], 2),
        ([(1, 2), (4, 5), (7, 8), (None, None)], 1),
        ([(None, 5), (6, None)], 1),
        ([(5, None), (1, 2)], 2),
        ([(5, None), (9, 12)], 1),
        ([(None, 5), (1, 2)], 1),
    ],
)
def test_ranges_of_whole_numbers_merge(added, left):
    closed = set_of(pa.int64(), *(between(low, high) for low, high in added))
    assert len(closed) == left
    values = list(range(-1, 14))
    expected = [
        any((low is None or low <= v) and (high is None or v <= high) for low, high in added) for v in values
    ]
    assert contains(closed, values) == expected
    assert closed.low == sorted(closed.low)


@pytest.mark.parametrize(
    ("dtype", "one", "other"),
    [
        (pa.string(), between("a", "b", high_closed=False), between("b", "c")),
        (pa.binary(), between(b"a", b"b"), between(b"b", b"c", low_closed=False)),
        (pa.float64(), between(0.0, 1.0), between(1.0, 2.0, low_closed=False)),
        (pa.date32(), between(date(2026, 1, 1), date(2026, 1, 31)), between(date(2026, 2, 1), None)),
        (
            pa.decimal128(6, 2),
            between(Decimal("0.01"), Decimal("0.05")),
            between(Decimal("0.06"), Decimal("1.00")),
        ),
        (
            pa.timestamp("s"),
            between(at("2026-01-01"), at("2026-01-02")),
            between(at("2026-01-02T00:00:01"), None),
        ),
    ],
    ids=str,
)
def test_touching_ranges_of_other_types_merge(dtype, one, other):
    assert len(set_of(dtype, one, other)) == len(set_of(dtype, other, one)) == 1


def test_a_gap_that_holds_a_value_stays_open():
    closed = set_of(pa.string(), between("a", "b", high_closed=False), between("b", "c", low_closed=False))
    assert len(closed) == 2
    assert contains(closed, ["a", "az", "b", "b\0", "c"]) == [True, True, False, True, True]


def test_punctuations_in_order_need_one_range():
    closed = ClosedRanges(pa.int64())
    for i in range(1_000):
        closed.add(between(i, i))
    assert len(closed) == 1


# ---------------------------------------------------------------- many at once


def naive(values, ranges):
    def inside(value, pattern):
        low = pattern.low is None or value > pattern.low or (value == pattern.low and pattern.low_closed)
        high = pattern.high is None or value < pattern.high or (value == pattern.high and pattern.high_closed)
        return low and high

    return [any(inside(value, pattern) for pattern in ranges) for value in values]


@pytest.mark.parametrize("kind", ["whole numbers", "texts"])
def test_100_000_keys_at_once_equal_a_naive_test(kind):
    draw = random.Random(7)

    def value():
        number = draw.randrange(0, 30_000)
        return number if kind == "whole numbers" else f"{number:05d}"

    dtype = pa.int64() if kind == "whole numbers" else pa.string()
    ranges = []
    for _ in range(30):
        low, high = sorted([value(), value()])
        high = min(high, low + 400 if kind == "whole numbers" else f"{int(low) + 400:05d}")
        ranges.append(Range(low, high, draw.random() < 0.5, draw.random() < 0.5))
    values = [value() for _ in range(100_000)]
    found = set_of(dtype, *ranges).contains(pa.array(values, dtype))
    by_value = dict(zip(sorted(set(values)), naive(sorted(set(values)), ranges), strict=True))
    assert found.tolist() == [by_value[v] for v in values]
    assert 0 < found.sum() < 100_000


def test_many_ranges_and_many_keys():
    closed = ClosedRanges(pa.int64())
    starts = random.Random(3).sample(range(0, 300_000, 3), 5_000)
    for start in starts:
        closed.add(between(start, start + 1))
    values = np.arange(300_000)
    expected = np.isin(values - values % 3, starts) & (values % 3 < 2)
    assert np.array_equal(closed.contains(pa.array(values)), expected)


# ---------------------------------------------------------------- what two sets share, and as patterns


@pytest.mark.parametrize("name", ASCENDING)
def test_ranges_read_back_as_patterns(name):
    dtype, values = ASCENDING[name]
    ends = [(None, None), *itertools.combinations(values, 2)]
    ends += [*((None, v) for v in values), *((v, None) for v in values)]
    for (low, high), low_closed, high_closed in itertools.product(ends, (True, False), (True, False)):
        given = ClosedRanges(dtype)
        given.add(Range(low, high, low_closed, high_closed))
        again = ClosedRanges(dtype)
        for pattern in given.patterns():
            (read,) = sj.Punctuation.parse(sj.Punctuation((pattern,)).text(), [dtype]).patterns
            again.add(read if isinstance(read, Range) else Range(read.value, read.value))
        keys = array(values, dtype)
        assert again.contains(keys).tolist() == given.contains(keys).tolist(), given.patterns()


def test_what_two_sets_share_and_what_has_grown():
    def of(*ranges):
        found = ClosedRanges(pa.int64())
        for one in ranges:
            found.add(between(*one))
        return found

    rng = random.Random(7)
    numbers = array(list(range(40)), pa.int64())
    for _ in range(200):
        one, two = ([(low, low + rng.randrange(9)) for low in rng.sample(range(40), 4)] for _ in "ab")
        both = of(*one).intersect(of(*two))
        expected = of(*one).contains(numbers) & of(*two).contains(numbers)
        assert both.contains(numbers).tolist() == expected.tolist()
        assert all(low < high for low, high in zip(both.low, both.high, strict=True))
    assert [p.text() for p in of((1, 5)).intersect(of((None, 3), (5, None))).patterns()] == [
        "[1, 3]",
        "[5, 5]",
    ]
    texts = ClosedRanges(pa.string())
    texts.add(between("b", None))
    assert [p.text() for p in texts.intersect(texts).patterns()] == ['["b", )']
    grown = of((1, 7), (20, 29), (40, 41)).beyond(of((1, 5), (20, 29)))
    assert [p.text() for p in grown.patterns()] == ["[1, 7]", "[40, 41]"]
