"""What a text may say, which values a type takes, and how each mistake is told."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from streamjoin.errors import BadInput
from streamjoin.punctuation import (
    ANY,
    Constant,
    Empty,
    Enumeration,
    Punctuation,
    Range,
    between,
    check,
    parse_pattern,
    simplify,
)

NAN = float("nan")
BERLIN = ZoneInfo("Europe/Berlin")
ACCESS = [pa.int64(), pa.string()]
at = datetime.fromisoformat  # without a zone, as the types without one want it

# ---------------------------------------------------------------- types


@pytest.mark.parametrize(
    ("value", "dtype", "held"),
    [
        (5, pa.decimal128(10, 2), Decimal("5.00")),
        (5, pa.float64(), 5.0),
        (0.1, pa.float32(), float(np.float32(0.1))),
        (
            datetime(2026, 7, 1, 12, tzinfo=UTC),
            pa.timestamp("us", tz="Europe/Berlin"),
            datetime(2026, 7, 1, 14, tzinfo=BERLIN),
        ),
    ],
)
def test_check_gives_the_value_as_the_column_holds_it(value, dtype, held):
    for one in (Constant(value), between(value, value), Enumeration((value,))):
        assert simplify(check(one, dtype)) == Constant(held)
        assert repr(simplify(check(one, dtype)).value) == repr(pa.scalar(held, dtype).as_py())


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ("5", pa.int64()),
        (5.0, pa.int64()),
        (True, pa.int64()),
        (300, pa.int8()),
        (-1, pa.uint64()),
        (1, pa.bool_()),
        (5, pa.string()),
        ("\ud800", pa.string()),
        (0.5, pa.decimal128(10, 2)),
        (Decimal("0.005"), pa.decimal128(10, 2)),
        (1e300, pa.float32()),
        (2**53 + 1, pa.float64()),
        ("abc", pa.binary()),
        (b"ab", pa.binary(3)),
        (at("2026-01-01"), pa.date32()),
        (date(2026, 1, 1), pa.timestamp("us")),
        (at("2026-01-01T00:00:00.000005"), pa.timestamp("ms")),
        (at("2026-01-01"), pa.timestamp("us", tz="UTC")),
        (datetime(2026, 1, 1, tzinfo=UTC), pa.timestamp("us")),
        (time(1, 2, 3, 4), pa.time32("s")),
        (timedelta(microseconds=5), pa.duration("s")),
    ],
)
def test_check_refuses_what_does_not_fit_and_names_type_and_value(value, dtype):
    with pytest.raises(BadInput) as refused:
        check(Constant(value), dtype)
    assert str(dtype) in str(refused.value)
    assert repr(value) in str(refused.value)
    assert "Write " in str(refused.value)


@pytest.mark.parametrize(
    "dtype", [pa.list_(pa.int64()), pa.struct([]), pa.null(), pa.duration("ns"), pa.time64("ns")]
)
def test_types_without_a_text_form_take_only_the_wildcard(dtype):
    assert check(ANY, dtype) is ANY
    assert parse_pattern("*", dtype) is ANY
    with pytest.raises(BadInput, match="cannot be part of a punctuation"):
        check(Constant(1), dtype)


# ---------------------------------------------------------------- text


@pytest.mark.parametrize(
    ("text", "dtype", "expected"),
    [
        ("180", pa.int64(), Constant(180)),
        ("(, 5]", pa.int64(), Range(None, 5, False, True)),
        ("[, 5]", pa.int64(), Range(None, 5, False, True)),
        ("[1, )", pa.int64(), Range(1, None, True, False)),
        ("{ 2, 1 }", pa.int64(), Enumeration((1, 2))),
        ("{}", pa.int64(), Empty()),
        ("12.50", pa.decimal128(10, 2), Constant(Decimal("12.50"))),
        ("-inf", pa.float64(), Constant(float("-inf"))),
        ("nan", pa.float64(), Constant(NAN)),
        ("true", pa.bool_(), Constant(True)),
        ("0x00FF", pa.binary(), Constant(b"\x00\xff")),
        ('"a, <b> \\"c\\" \\u00e9"', pa.string(), Constant('a, <b> "c" é')),
        ("2026-11-15", pa.date32(), Constant(date(2026, 11, 15))),
        ("2026-11-15 10:00:00.500", pa.timestamp("ms"), Constant(at("2026-11-15T10:00:00.500"))),
        (
            "2026-11-15T10:00:00Z",
            pa.timestamp("us", tz="UTC"),
            Constant(datetime(2026, 11, 15, 10, tzinfo=UTC)),
        ),
        ("10:00", pa.time64("us"), Constant(time(10))),
        ("-PT1.5S", pa.duration("ms"), Constant(timedelta(seconds=-1.5))),
    ],
)
def test_reading_a_pattern(text, dtype, expected):
    assert parse_pattern(text, dtype) == expected
    assert parse_pattern(f"\n {text}\t", dtype, bare_strings=True) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" Smart Card ", Constant("Smart Card")),
        ("*", ANY),
        ("* and more", Constant("* and more")),
        ('{"a", "b"}', Enumeration(("a", "b"))),
        ("{a, b}", Constant("{a, b}")),
        ('["a", )', Range("a", None, True, False)),
        ("(sic)", Constant("(sic)")),
        ('"quoted"', Constant("quoted")),
        ('"quoted" and more', Constant('"quoted" and more')),
        ("<b>", Constant("<b>")),
    ],
)
def test_a_bare_string_stands_for_itself(text, expected):
    assert parse_pattern(text, pa.string(), bare_strings=True) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", ["the text ends", "'<'"]),
        ("79, *", ["found '79'", "'<'"]),
        ("<79>", ["column 0", "found '>'", "2 columns"]),
        ("<79, *, *>", ["column 1", "found ','", "2 columns"]),
        ("<79, *", ["the text ends", "'>'"]),
        ("<79, *> x", ["found 'x'", "the end"]),
        ("<79 80, *>", ["column 0", "'79 80'", "int64", "whole number"]),
        ("<abc, *>", ["column 0", "'abc'", "int64", "such as 180"]),
        ('<"79", *>', ["column 0", "'\"79\"'", "whole number"]),
        ("<99999999999999999999, *>", ["column 0", "'99999999999999999999'", "int64"]),
        ("<79, abc>", ["column 1", "found 'abc'", "JSON quotes"]),
        ('<79, "abc>', ["column 1", "found '\"'", "JSON quotes"]),
        ('<79, "\\x">', ["column 1", "JSON quotes"]),
        ("<[1 5], *>", ["column 0", "'1 5'"]),
        ("<[1, 5, *>", ["column 0", "found ','", "']' or ')'"]),
        ("<[1], *>", ["column 0", "found ']'", "','"]),
        ("<{1, }, *>", ["column 0", "found '}'", "a value"]),
        ("<{1; 2}, *>", ["column 0", "'1; 2'"]),
        ("<, *>", ["column 0", "found ','", "'*'"]),
        ("<{*}, *>", ["column 0", "found '*'", "a value"]),
    ],
)
def test_malformed_text_is_refused_with_place_text_and_expectation(text, says):
    with pytest.raises(BadInput) as refused:
        Punctuation.parse(text, ACCESS)
    for part in [repr(text), *says]:
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("1_000", pa.int64()),
        ("1" * 5000, pa.int64()),
        ("0x1", pa.binary()),
        ("1e5", pa.decimal128(10, 2)),
        ("infinity", pa.float64()),
        ("True", pa.bool_()),
        ("2026-02-30", pa.date32()),
        ("2026-11-15T10:00:00", pa.timestamp("us", tz="UTC")),
        ("2026-11-15T10:00:00Z", pa.timestamp("us")),
        ("2026-11-15T10:00:00.5", pa.timestamp("s")),
        ("25:00", pa.time64("us")),
        ("1 hour", pa.duration("us")),
    ],
)
def test_a_value_of_another_form_is_refused(text, dtype):
    with pytest.raises(BadInput) as refused:
        parse_pattern(text, dtype)
    assert str(dtype) in str(refused.value)
