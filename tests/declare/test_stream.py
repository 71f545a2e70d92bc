"""What may be declared of a stream, and how each mistake is refused: the message ends with what to do."""

from dataclasses import FrozenInstanceError
from datetime import timedelta

import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.declare.arrival import Clustered, Ordered
from streamjoin.declare.closing import Closing
from streamjoin.declare.control import Control
from streamjoin.declare.durations import duration_us
from streamjoin.declare.marked import Marked
from tests.tables import schema

COLUMNS = schema("sno title:str at:time is_end:bool part:str offset price:float")


def declare(**declared):
    declared = {"name": "news", "key": "sno", **declared}
    return sj.stream(COLUMNS, **declared)


# ---------------------------------------------------------------- durations

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("given", "microseconds"),
    [
        ("12 hours", 12 * 3600 * SECOND),
        ("1 hour", 3600 * SECOND),
        ("0 seconds", 0),
        ("1 microsecond", 1),
        ("3 milliseconds", 3_000),
        ("2 days", 2 * 86_400 * SECOND),
        ("1 week", 7 * 86_400 * SECOND),
        ("1 minute 30 seconds", 90 * SECOND),
        ("1 minute, 30 seconds", 90 * SECOND),
        ("1.5 hours", 5_400 * SECOND),
        ("  5   Minutes ", 300 * SECOND),
        ("10seconds", 10 * SECOND),
        (timedelta(hours=12), 12 * 3600 * SECOND),
        (timedelta(microseconds=7), 7),
        (timedelta(0), 0),
    ],
)
def test_duration(given, microseconds):
    assert duration_us(given, what="window") == microseconds


@pytest.mark.parametrize(
    "given", ["", " ", "12", "hours", "12 parsecs", "12 hours ago", "1e3 seconds", "1 month"]
)
def test_text_that_is_no_duration_is_refused_with_the_units(given):
    with pytest.raises(
        sj.InvalidJoin, match=r"window is .*give a number and a unit such as \"12 hours\" .*units:.*week"
    ):
        duration_us(given, what="window")


def test_negative_duration_is_refused():
    with pytest.raises(sj.InvalidJoin, match="negative; give a duration of 0 or more"):
        duration_us(timedelta(seconds=-1), what="window")


@pytest.mark.parametrize("given", [12, 1.5, True, b"12 hours"])
def test_anything_else_is_no_duration(given):
    with pytest.raises(sj.InvalidJoin, match='give a duration such as "12 hours" or a timedelta'):
        duration_us(given, what="window")


def test_a_wrong_duration_names_its_stream_and_what_it_was_for():
    with pytest.raises(sj.InvalidJoin, match="stream 'news': lateness is 'soon'"):
        declare(time="at", lateness="soon")


# ---------------------------------------------------------------- what is declared is kept


def test_a_stream_is_a_frozen_value():
    news = declare(unique=True)
    assert news == declare(unique=True)
    assert news != declare()
    with pytest.raises(FrozenInstanceError):
        news.unique = False


def test_durations_are_microseconds_inside():
    news = declare(time="at", window="10 seconds", lateness=timedelta(seconds=2), idle="1 minute")
    assert (news.window_us, news.lateness_us, news.idle_us) == (10 * SECOND, 2 * SECOND, 60 * SECOND)


def test_one_column_or_a_list():
    assert declare(key="sno").key == ("sno",)
    assert declare(key=["sno", "title"]).key == ("sno", "title")
    assert declare(sequence="offset").sequence == ("offset",)
    assert declare(sequence=["part", "offset"]).sequence == ("part", "offset")


def test_helpers_make_the_declared_values():
    assert sj.clustered(slack=2) == Clustered(2)
    assert sj.ordered(descending=True, slack=3) == Ordered(descending=True, slack=3)
    assert sj.marked("is_end", null_is_wildcard=True, partitions=4) == Marked("is_end", True, 4)
    assert sj.closing("is_end") == Closing("is_end")
    assert sj.control("anything", time="at") == Control("anything", "at")


def test_payload_leaves_out_key_marker_and_sequence():
    news = declare(punctuation=sj.marked("is_end"), sequence=["part", "offset"])
    assert news.payload == ("title", "at", "price")


def test_payload_follows_the_chosen_columns():
    assert declare(columns=["price", "title"]).payload == ("price", "title")
    assert declare(columns=["sno", "price"]).payload == ("price",)
    assert declare(columns=[]).payload == ()


def test_a_closing_column_stays_in_the_result():
    assert "is_end" in declare(punctuation=sj.closing("is_end")).payload


# ---------------------------------------------------------------- every refusal, with its hint

REFUSED = {
    "a source that is no schema": (
        lambda: sj.stream({"sno": "int"}, name="news", key="sno"),
        "'news': give .*pyarrow.Schema, not a dict",
    ),
    "a name with a dash": (lambda: declare(name="top-news"), "'top-news'; give a name of letters"),
    "a name that starts with a digit": (lambda: declare(name="1st"), "starts with a letter"),
    "no name": (lambda: declare(name=""), "give a name of letters, digits and _"),
    "no key": (lambda: declare(key=[]), "has no key; name at least one key column"),
    "a key column twice": (lambda: declare(key=["sno", "sno"]), r"names a column twice \(sno, sno\)"),
    "an unknown key": (
        lambda: declare(key="nso"),
        "key column 'nso' does not exist; its columns are sno, title, at",
    ),
    "an unknown second key": (lambda: declare(key=["sno", "x"]), "key column 'x' does not exist"),
    "an unknown time": (lambda: declare(time="t"), "time column 't' does not exist"),
    "an unknown sequence": (lambda: declare(sequence="o"), "sequence column 'o' does not exist"),
    "an unknown column": (lambda: declare(columns=["y"]), "columns column 'y' does not exist"),
    "an unknown marker": (
        lambda: declare(punctuation=sj.marked("end")),
        "marked column 'end' does not exist",
    ),
    "two columns of one name": (
        lambda: sj.stream(
            pa.schema([("sno", pa.int64()), ("x", pa.int64()), ("x", pa.int64())]), name="news", key="sno"
        ),
        "more than one column 'x'; rename one",
    ),
    "a window without time": (
        lambda: declare(window="1 hour"),
        "declares window without a time column; add time=<column>",
    ),
    "lateness without time": (lambda: declare(lateness="1 hour"), "lateness without a time column"),
    "idle without time": (lambda: declare(idle="1 hour"), "idle without a time column"),
    "idle without lateness": (
        lambda: declare(time="at", idle="1 hour"),
        'idle without lateness; add lateness="0 seconds"',
    ),
    "a time that is a number": (
        lambda: declare(time="price"),
        "time column 'price' is double; give a timestamp or date column",
    ),
    "a marker that is no flag": (
        lambda: declare(punctuation=sj.marked("title")),
        "marked column 'title' is string; give a boolean column",
    ),
    "a marker that is the key": (
        lambda: declare(key="is_end", punctuation=sj.marked("is_end")),
        "the marked column 'is_end' is a key",
    ),
    "marks of no partition": (
        lambda: sj.marked("is_end", partitions=0),
        "marked: partitions=0; give a whole number of 1 or more",
    ),
    "marks of partitions that nobody knows": (
        lambda: declare(punctuation=sj.marked("is_end", partitions=2), sequence="offset"),
        r"add sequence=\[partition column, offset column\]",
    ),
    "a sequence of three": (
        lambda: declare(sequence=["part", "offset", "title"]),
        r"sequence has 3 columns; give \[offset column\] or \[partition column, offset column\]",
    ),
    "an offset that is a text": (
        lambda: declare(sequence="title"),
        "offset column 'title' must be a whole number, it is string",
    ),
    "a negative slack when clustered": (lambda: sj.clustered(slack=-1), "slack is -1; give a whole number"),
    "a negative slack when ordered": (lambda: sj.ordered(slack=-1), "slack is -1; give a whole number"),
    "an unknown way with violations": (
        lambda: declare(on_violation="ignore"),
        "on_violation is 'ignore'; give 'drop', 'keep' or 'fail'",
    ),
}


# ---------------------------------------------------------------- control sources


def controlled(columns, *, time="over", **declared):
    declared = {"time": "at", "lateness": "0 seconds", **declared}
    return declare(punctuation=sj.control(schema(columns), time=time), **declared)


REFUSED |= {
    "a control source of a stream without time": (
        lambda: declare(punctuation=sj.control(schema("sno over:time"), time="over")),
        r"act as its event time goes on; add time= and lateness= \(lateness may be \"0 seconds\"\)",
    ),
    "a control source of a stream without lateness": (
        lambda: controlled("sno over:time", lateness=None),
        r"add lateness= \(lateness may be",
    ),
    "a control source that is nothing": (
        lambda: declare(time="at", lateness="0 seconds", punctuation=sj.control(None, time="over")),
        "'news: control': give .*pyarrow.Schema, not a NoneType",
    ),
    "a control source without its time": (
        lambda: controlled("sno"),
        "of stream 'news' has the columns sno; its time column 'over' is missing, add it",
    ),
    "a control source with a number for a time": (
        lambda: controlled("sno over"),
        "time column 'over' is int64; give a timestamp or date column",
    ),
    "a control source without the key": (
        lambda: controlled("key over:time"),
        "has the columns key, over; for key column 'sno' add 'sno', or 'sno_from' and 'sno_to'",
    ),
    "a control source without the second key": (
        lambda: controlled("sno over:time", key=["sno", "title"]),
        "for key column 'title' add 'title', or 'title_from' and 'title_to'",
    ),
    "half a range": (
        lambda: controlled("sno_from over:time"),
        "for key column 'sno' add 'sno', or 'sno_from' and 'sno_to'",
    ),
    "a value and a range": (
        lambda: controlled("sno sno_from sno_to over:time"),
        "of 'sno' and 'sno_from', 'sno_to' keep one form only",
    ),
    "a control source with a column twice": (
        lambda: declare(
            time="at",
            lateness="0 seconds",
            punctuation=sj.control(pa.schema([("sno", pa.int64())] * 2), time="over"),
        ),
        r"the control source names a column twice \(sno, sno\)",
    ),
}


def test_a_key_column_may_be_called_like_the_end_of_a_range():
    columns = schema("k k_from at:time")
    source = sj.control(schema("k k_from over:time"), time="over")
    pair = sj.stream(
        columns, name="p", key=["k", "k_from"], time="at", lateness="0 seconds", punctuation=source
    )
    assert [pair.punctuation.form(key, pa.int64()) for key in pair.key] == ["value", "value"]


@pytest.mark.parametrize("mistake", REFUSED)
def test_refused_with_a_hint(mistake):
    make, hint = REFUSED[mistake]
    with pytest.raises(sj.InvalidJoin, match=hint):
        make()


# A declaration of the wrong kind must not be taken as "nothing declared".
WRONG_KIND = {
    "arrival as text": {"arrival": "clustered"},
    "punctuation as text": {"punctuation": "is_end"},
}


@pytest.mark.parametrize("mistake", WRONG_KIND)
def test_a_declaration_of_the_wrong_kind_is_refused(mistake):
    with pytest.raises(sj.InvalidJoin):
        declare(**WRONG_KIND[mistake])


@pytest.mark.parametrize("slack", [1.5, "1", None])
def test_slack_is_a_whole_number(slack):
    with pytest.raises(sj.InvalidJoin, match="give a whole number of tuples"):
        sj.clustered(slack=slack)


def test_dates_and_zoned_times_are_times():
    columns = pa.schema({"k": pa.int64(), "d": pa.date32(), "z": pa.timestamp("ms", "Europe/Berlin")})
    assert sj.stream(columns, name="s", key="k", time="d").time == "d"
    assert sj.stream(columns, name="s", key="k", time="z").time == "z"
