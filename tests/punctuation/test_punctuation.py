"""Patterns and punctuations: the meaning of each, and four properties over every type of column."""

import contextlib
import pickle
from datetime import UTC, date, datetime, timedelta
from itertools import combinations, product
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from streamjoin.errors import BadInput
from streamjoin.punctuation import (
    ANY,
    Constant,
    Empty,
    Enumeration,
    Pattern,
    Punctuation,
    Range,
    Wildcard,
    between,
    check,
    parse_pattern,
    pattern,
    simplify,
)

NAN = float("nan")
BERLIN = ZoneInfo("Europe/Berlin")
at = datetime.fromisoformat  # without a zone, as the types without one want it
# No deadline: a test says what is right, not how fast. The first draw of a text builds a table of Unicode.
steady = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

# ---------------------------------------------------------------- values of every type

YEARS = {"min_value": at("1700-01-01"), "max_value": at("2250-01-01")}


def instants(zone: ZoneInfo) -> st.SearchStrategy[datetime]:
    return st.datetimes(**YEARS).map(lambda naive: naive.replace(tzinfo=UTC).astimezone(zone))


VALUES: dict[pa.DataType, st.SearchStrategy] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float16(): st.floats(width=16),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.decimal128(20, 4): st.decimals(-(10**15), 10**15, places=4),
    pa.decimal256(60, 0): st.integers(-(10**59), 10**59),
    pa.string(): st.text(st.characters(codec="utf-8")),
    pa.large_string(): st.text("<>,\"\\{}[]()* '\n\té𝄞", max_size=8),
    pa.string_view(): st.text("ab", max_size=3),
    pa.dictionary(pa.int32(), pa.string()): st.text("ab", max_size=3),
    pa.binary(): st.binary(max_size=5),
    pa.large_binary(): st.binary(max_size=5),
    pa.binary_view(): st.binary(max_size=5),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.date32(): st.dates(),
    pa.date64(): st.dates(),
    pa.time32("s"): st.times().map(lambda t: t.replace(microsecond=0)),
    pa.time64("us"): st.times(),
    pa.timestamp("s"): st.datetimes(**YEARS).map(lambda t: t.replace(microsecond=0)),
    pa.timestamp("ms"): st.datetimes(**YEARS).map(
        lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)
    ),
    pa.timestamp("us"): st.datetimes(),
    pa.timestamp("us", tz="UTC"): st.datetimes(timezones=st.just(UTC)),
    pa.timestamp("us", tz="Europe/Berlin"): instants(BERLIN),
    pa.timestamp("us", tz="+05:30"): instants(BERLIN),
    pa.timestamp("ns"): st.integers(-(2**62), 2**62).map(pd.Timestamp),
    pa.timestamp("ns", tz="America/New_York"): st.integers(-(2**62), 2**62).map(
        lambda ns: pd.Timestamp(ns, tz="UTC")
    ),
    pa.duration("us"): st.timedeltas(timedelta(-(10**5)), timedelta(10**5)),
}
TYPES = sorted(VALUES, key=str)


@st.composite
def few_values(draw: st.DrawFn, dtype: pa.DataType) -> list:
    """A handful of values, so that patterns over them meet."""
    return draw(st.lists(VALUES[dtype], min_size=1, max_size=6))


def patterns_over(values: list) -> st.SearchStrategy[Pattern]:
    value = st.sampled_from(values)
    end = st.none() | value
    return st.one_of(
        st.just(ANY),
        st.just(Empty()),
        value.map(Constant),
        st.builds(Range, end, end, st.booleans(), st.booleans()),
        st.lists(value, max_size=4).map(tuple).map(Enumeration),
    )


@st.composite
def typed_patterns(draw: st.DrawFn, count: int = 1) -> tuple[pa.DataType, list, list[Pattern]]:
    dtype = draw(st.sampled_from(TYPES))
    values = draw(few_values(dtype))
    found = [check(draw(patterns_over(values)), dtype) for _ in range(count)]
    return dtype, [*pa.array(values, dtype).to_pylist(), None], found


# ---------------------------------------------------------------- properties


@steady
@given(typed_patterns())
def test_text_reads_back_to_the_same_punctuation(case):
    dtype, _, (one,) = case
    assert parse_pattern(one.text(), dtype) == simplify(one)
    whole = Punctuation((one, ANY, one))
    assert Punctuation.parse(whole.text(), [dtype, pa.list_(pa.int8()), dtype]) == whole


@steady
@given(typed_patterns(), st.booleans())
def test_mask_says_for_a_column_what_matches_says_for_each_value(case, chunked):
    dtype, sample, (one,) = case
    column = pa.array(sample, dtype)
    if chunked:
        column = pa.chunked_array([column[:1], column[1:1], column[1:]])
    assert one.mask(column).tolist() == [one.matches(value) for value in sample]
    assert one.mask(column).dtype == np.bool_


@steady
@given(typed_patterns(count=2))
def test_intersection_matches_what_both_match(case):
    _, sample, (one, two) = case
    both = one.intersect(two)
    assert both == two.intersect(one) == simplify(both)
    for value in sample:
        assert both.matches(value) == (one.matches(value) and two.matches(value))
    assert one.covers(both)
    assert two.covers(both)


@steady
@given(typed_patterns(count=2))
def test_covering_means_matching_all_the_other_matches(case):
    _, sample, (one, two) = case
    if one.covers(two):
        assert all(one.matches(value) for value in sample if two.matches(value))
        assert one.intersect(two) == simplify(two)
    assert one.covers(one)
    assert simplify(one).covers(one)
    assert one.covers(simplify(one))


def test_all_pairs_of_small_patterns_on_a_dense_line():
    ends, flags = (None, 1, 2, 3), (False, True)
    ranges = [Range(low, high, a, b) for low in ends for high in ends for a in flags for b in flags]
    lists = [Enumeration(values) for size in range(4) for values in combinations((1, 2, 3), size)]
    every = [ANY, Empty(), *ranges, *lists]
    line = (None, 0.5, 1, 1.5, 2, 2.5, 3, 3.5)
    matched = {one: {value for value in line if one.matches(value)} for one in every}
    for one, two in product(every, every):
        assert one.covers(two) == (matched[one] >= matched[two])
        assert matched[one] & matched[two] == {v for v in line if one.intersect(two).matches(v)}


@steady
@given(typed_patterns())
def test_simplifying_keeps_the_meaning_and_a_pattern_survives_pickling(case):
    _, sample, (one,) = case
    assert [simplify(one).matches(v) for v in sample] == [one.matches(v) for v in sample]
    again = pickle.loads(pickle.dumps(one))
    assert again == one
    assert hash(again) == hash(one)


@steady
@given(st.text())
@example('<1, "')
@example("<1, \\")
@example("{" * 500)
def test_any_text_is_read_or_refused_never_worse(text):
    for dtype in (pa.int64(), pa.string(), pa.timestamp("us", tz="UTC")):
        with contextlib.suppress(BadInput):
            assert isinstance(parse_pattern(text, dtype), Pattern)


# ---------------------------------------------------------------- patterns


@pytest.mark.parametrize(
    ("given_", "simple"),
    [
        (Enumeration(()), Empty()),
        (Enumeration((7,)), Constant(7)),
        (Enumeration((2, 1, 2)), Enumeration((1, 2))),
        (between(5, 5), Constant(5)),
        (between(5, 5, low_closed=False), Empty()),
        (between(9, 1), Empty()),
        (between(None, None), ANY),
        (between(1, None), Range(1, None, True, False)),
        (between(NAN, NAN), Constant(NAN)),
        (ANY, Wildcard()),
    ],
)
def test_simplify(given_, simple):
    assert simplify(given_) == simple
    assert type(simplify(given_)) is type(simple)


def test_a_missing_end_is_never_closed():
    assert Range(None, 5, True, True) == Range(None, 5, False, True)
    assert Range(None, 5, True, True).low_closed is False


def test_null_is_matched_by_the_wildcard_only():
    for one in (Constant(1), Enumeration((1, 2)), between(1, 2), between(None, 2), Empty()):
        assert not one.matches(None)
        assert one.mask(pa.nulls(2)).tolist() == [False, False]
    assert ANY.matches(None)


def test_numbers_compare_as_in_spark():
    column = pa.array([NAN, -0.0, 0.0, 1.0, float("inf"), None])
    assert Constant(NAN).mask(column).tolist() == [True, False, False, False, False, False]
    assert Constant(0.0).mask(column).tolist() == [False, True, True, False, False, False]
    assert Enumeration((-0.0, NAN)).mask(column).tolist() == [True, True, True, False, False, False]
    assert between(1.0, None).mask(column).tolist() == [True, False, False, True, True, False]
    assert between(None, float("inf")).mask(column).tolist() == [False, True, True, True, True, False]
    assert between(None, NAN).mask(column).tolist() == [True, True, True, True, True, False]
    assert Constant(NAN) == Constant(float("nan"))
    assert Constant(-0.0).text() == "0.0"
    assert len({Constant(-0.0), Constant(0.0), Constant(NAN), Constant(np.float64("nan"))}) == 2


def test_the_two_half_past_two_of_a_clock_change_are_two_values():
    first = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)
    second = first.replace(fold=1)
    dtype = pa.timestamp("us", tz="Europe/Berlin")
    assert first == second  # so says Python
    assert Constant(first) != Constant(second)
    assert not Constant(first).matches(second)
    assert not between(None, first).matches(second)
    assert Constant(first).mask(pa.array([first, second], dtype)).tolist() == [True, False]
    assert parse_pattern(Constant(second).text(), dtype) == Constant(second)


def test_a_zone_that_was_off_by_seconds_is_written_in_utc():
    old = datetime(1850, 1, 1, 12, tzinfo=BERLIN)  # 53 minutes and 28 seconds ahead
    assert Constant(old).text() == "1850-01-01T11:06:32+00:00"
    assert parse_pattern(Constant(old).text(), pa.timestamp("us", tz="Europe/Berlin")) == Constant(old)


def test_what_a_user_writes_becomes_a_pattern():
    assert pattern(79) == Constant(79)
    assert pattern(np.int64(79)) == Constant(79)
    assert pattern(pa.scalar(79)) == Constant(79)
    assert pattern(np.datetime64("2026-11-15")) == Constant(date(2026, 11, 15))
    assert pattern(bytearray(b"x")) == Constant(b"x")
    assert pattern([2, 1]) == pattern({1, 2}) == pattern((1, 2)) == Enumeration((1, 2))
    assert pattern(ANY) is ANY


@pytest.mark.parametrize("nothing", [None, pd.NaT, [1, None], pa.scalar(None, pa.int64())])
def test_a_null_is_no_pattern_and_the_message_says_what_to_use(nothing):
    with pytest.raises(BadInput, match="Use ANY"):
        pattern(nothing)


def test_values_without_a_common_order_are_refused():
    for make in (lambda: between(1, "a"), lambda: Enumeration((1, "a")), lambda: between(1, 5).matches("a")):
        with pytest.raises(BadInput, match="no common order"):
            make()
    with pytest.raises(BadInput, match="of type object"):
        Constant(object())
    assert not Constant(1).matches("a")
    assert not Enumeration((1, 2)).matches("a")


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        (ANY, between(1, 5), True),
        (between(1, 5), ANY, False),
        (between(1, 5), between(1, 5, high_closed=False), True),
        (between(1, 5, high_closed=False), between(1, 5), False),
        (between(None, 5), between(1, 5), True),
        (between(1, 5), between(1, None), False),
        (between(1, 5), Enumeration((1, 3, 5)), True),
        (between(1, 5), Enumeration((1, 6)), False),
        (Enumeration((1, 2)), between(1, 2), False),
        (Enumeration((1, 2)), between(2, 2), True),
        (Empty(), between(3, 1), True),
        (Empty(), Constant(1), False),
    ],
)
def test_covers(wide, narrow, expected):
    assert wide.covers(narrow) is expected


# ---------------------------------------------------------------- punctuations

ACCESS = [pa.int64(), pa.string()]


def test_a_punctuation_speaks_of_rows_that_match_every_pattern():
    over = Punctuation.parse('<{79, 81}, "a">', ACCESS)
    assert over.matches((79, "a"))
    assert not over.matches((79, "b"))
    assert not over.matches((79, None))
    columns = [pa.array([79, 81, 79, 80]), pa.array(["a", "a", "b", "a"])]
    assert over.mask(columns).tolist() == [True, True, False, False]
    assert Punctuation((ANY, ANY)).mask(columns).tolist() == [True] * 4


def test_a_key_is_closed_only_when_all_else_is_a_wildcard():
    assert Punctuation.parse("<79, *>", ACCESS).closes_key([0])
    assert Punctuation.parse("<[1, 5), *>", ACCESS).closes_key([0])
    assert Punctuation.parse("<79, (, )>", ACCESS).closes_key([0])
    assert not Punctuation.parse('<79, "64.58.76.224">', ACCESS).closes_key([0])
    assert not Punctuation.parse("<79, {}>", ACCESS).closes_key([0])
    both = Punctuation.parse('<79, "a">', ACCESS)
    assert both.closes_key([1, 0])
    assert both.key_patterns([1, 0]) == (Constant("a"), Constant(79))


def test_punctuations_meet_and_compare_column_by_column():
    one = Punctuation.parse("<[1, 5], *>", ACCESS)
    two = Punctuation.parse('<[3, 9], "a">', ACCESS)
    assert one.intersect(two).text() == '<[3, 5], "a">'
    assert one.covers(one.intersect(two))
    assert not one.covers(two)
    assert two.covers(Punctuation((ANY, Empty())))  # it speaks of no row
    assert Punctuation((ANY, Empty())).says_nothing


def test_equal_punctuations_are_equal_values_however_written():
    assert Punctuation((between(5, 5), ANY)) == Punctuation((Enumeration((5,)), between(None, None)))
    assert (
        len({Punctuation.parse(text, ACCESS) for text in ("<5,*>", " < [5, 5] , * > ", "<{5, 5}, *>")}) == 1
    )


@pytest.mark.parametrize("width", [1, 3])
def test_a_row_of_another_width_is_refused(width):
    one = Punctuation((ANY, ANY))
    for use in (one.matches, one.mask, lambda row: one.covers(Punctuation(tuple([ANY] * len(row))))):
        with pytest.raises(BadInput, match=f"has 2 columns.* {width}"):
            use([pa.array([1])] * width)


def test_a_punctuation_is_made_of_patterns():
    for wrong in ((), (79, ANY)):
        with pytest.raises(BadInput, match="one pattern for each column"):
            Punctuation(wrong)
