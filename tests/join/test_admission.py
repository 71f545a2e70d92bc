"""Rows that break what was declared: late, without time, after a punctuation, a second of a unique key.
They are counted and dropped, kept or fatal, as declared; never silently joined wrong, never lost.
"""

import itertools

import pyarrow as pa
import pytest

import streamjoin as sj
from tests.tables import EMPTY, NOTHING, Story, rows, stream, table, unbounded_is_meant

pytestmark = unbounded_is_meant

WINDOW = {"time": "t", "window": "10 seconds", "lateness": "0 seconds"}


def timed(a=None, b=None):
    """a(k, t, x) with b(k, t, y), windows of 10 s."""
    return sj.join(
        stream("a", "k t:time x", **{**WINDOW, **(a or {})}),
        stream("b", "k t:time y", **{**WINDOW, **(b or {})}),
    )


def plain(a=None, b=None, columns="k x"):
    return sj.join(stream("a", columns, **(a or {})), stream("b", "k y", **(b or {})))


# ---------------------------------------------------------------- late


def test_a_row_before_the_watermark_of_its_input_is_late(story):
    run = story(timed())
    run.push("a", "k t x\n9 100 1")
    run.push("b", "k t y\n1 95 2")
    assert run.push("a", "k t x\n1 99 3\n1 100 4") == [(1, 100, 4, 95, 2)]
    assert run.violations() == [("a", "late", 1, 99, 3)]
    assert run.count("a_late") == 1


def test_a_stream_that_conforms_to_its_lateness_has_no_late_row(story):
    run = story(timed(a={"lateness": "5 seconds"}))
    for second in (100, 95, 101, 96, 110, 105):
        run.push("a", f"k t x\n{second} {second} 1")
    assert run.violations() == []
    run.push("a", "k t x\n1 104 1")
    assert run.violations() == [("a", "late", 1, 104, 1)]


def test_rows_of_one_batch_are_not_late_for_each_other(story):
    run = story(timed())
    run.push("a", "k t x\n1 100 1\n2 5 2")
    assert run.violations() == []


def test_a_fast_input_makes_no_slow_one_late(story):
    run = story(timed())
    run.push("a", "k t x\n1 100000 1")
    run.push("b", "k t y\n1 5 2")
    assert run.violations() == []


def test_without_a_window_no_row_is_late(story):
    timed_only = {"time": "t", "lateness": "0 seconds"}
    run = story(sj.join(stream("a", "k t:time x", **timed_only), stream("b", "k y")))
    run.push("a", "k t x\n1 100 1")
    run.push("a", "k t x\n1 5 2")
    assert run.push("b", "k y\n1 3") == [(1, 5, 2, 3), (1, 100, 1, 3)]
    assert run.violations() == []


def test_a_row_with_a_null_key_still_moves_time(story):
    run = story(timed())
    run.push("a", "k t x\n- 100 1")
    run.push("a", "k t x\n1 99 2")
    assert run.violations() == [("a", "late", 1, 99, 2)]


# ---------------------------------------------------------------- null time


def test_a_null_time_is_a_violation(story):
    run = story(timed())
    run.push("b", "k t y\n1 10 5")
    assert run.push("a", "k t x\n1 - 1\n1 11 2") == [(1, 11, 2, 10, 5)]
    assert run.violations() == [("a", "null_time", 1, None, 1)]
    assert run.count("a_null_time") == 1
    assert run.held()["a"] == 1


def test_a_null_time_moves_no_time(story):
    run = story(timed())
    run.push("a", "k t x\n1 - 1")
    run.push("a", "k t x\n1 5 1")
    assert [found[1] for found in run.violations()] == ["null_time"]


def test_a_null_time_without_a_window_is_a_violation_too(story):
    run = story(sj.join(stream("a", "k t:time x", time="t"), stream("b", "k y")))
    run.push("b", "k y\n1 5")
    assert run.push("a", "k t x\n1 - 1") == NOTHING
    assert run.violations() == [("a", "null_time", 1, None, 1)]


# ---------------------------------------------------------------- unique


def test_a_unique_key_is_closed_by_its_first_tuple(story):
    run = story(plain(a={"unique": True}))
    run.push("b", "k y\n1 100\n2 200")
    assert run.push("a", "k x\n1 10") == [(1, 10, 100)]
    assert run.held() == {"a": 1, "b": 1}  # b's tuple of key 1 has met all it can meet
    assert run.push("b", "k y\n1 101") == [(1, 10, 101)]
    assert run.held() == {"a": 1, "b": 1}
    run.punctuate("b", k=1)
    assert run.punctuations() == ["<1>"]


def test_a_second_tuple_of_a_unique_key_is_a_violation(story):
    run = story(plain(a={"unique": True}))
    run.push("a", "k x\n1 10")
    run.push("b", "k y\n1 100")
    assert run.push("a", "k x\n1 11") == NOTHING
    assert run.violations() == [("a", "duplicate_key", 1, 11)]
    assert run.push("b", "k y\n1 101") == [(1, 10, 101)]
    assert run.count("a_duplicate_key") == 1


def test_a_second_tuple_is_told_from_one_after_a_punctuation(story):
    run = story(plain(a={"unique": True}))
    run.push("a", "k x\n1 10")
    run.punctuate("a", k=[1, 2])
    run.push("a", "k x\n1 11\n2 20")
    assert run.violations() == [("a", "after_punctuation", 2, 20), ("a", "duplicate_key", 1, 11)]


def test_both_unique_a_key_is_over_with_its_pair(story):
    run = story(plain(a={"unique": True}, b={"unique": True}))
    run.push("a", "k x\n1 10\n2 20")
    assert run.push("b", "k y\n1 100") == [(1, 10, 100)]
    assert run.punctuations() == ["<1>"]
    assert run.held() == {"a": 1, "b": 0}
    run.push("b", "k y\n2 200")
    assert run.state() == EMPTY


def test_a_late_tuple_of_a_unique_key_does_not_take_its_place(story):
    run = story(timed(a={"unique": True}))
    run.push("a", "k t x\n9 100 1")
    run.push("b", "k t y\n1 100 5")
    run.push("a", "k t x\n1 50 2")
    assert run.push("a", "k t x\n1 101 3") == [(1, 101, 3, 100, 5)]
    assert run.violations() == [("a", "late", 1, 50, 2)]


# ---------------------------------------------------------------- ties of unique keys


def ties(schema, values, time=None):
    """Which of some rows of one unique key in one batch stays, for every order in which they may come."""
    kept = set()
    for order in itertools.permutations(range(len(values))):
        a = sj.stream(schema, name="a", key="k", unique=True, time=time)
        run = sj.join(a, stream("b", "k y")).local()
        columns = {name: [1] * len(values) if name == "k" else [] for name in schema.names}
        for i in order:
            for name, value in zip(schema.names[1:], values[i], strict=True):
                columns[name].append(value)
        run.push("a", pa.table(columns, schema=schema))
        assert len(run.violations()) == len(values) - 1
        (found,) = rows(run.push("b", table(pa.schema({"k": pa.int64(), "y": pa.int64()}), "k y\n1 0")))
        kept.add(repr(found[1:-1]))
    assert len(kept) == 1
    return kept.pop()


@pytest.mark.parametrize(
    ("dtype", "values", "smallest"),
    [
        (pa.int64(), [9, 10, -1], -1),
        (pa.string(), ["b", "a", "B"], "B"),
        (pa.float64(), [10.0, 9.0, 100.0], 9.0),
        (pa.float64(), [float("nan"), 1.0, float("inf")], 1.0),
        (pa.decimal128(6, 2), [10, 9, 100], "Decimal('9.00')"),
        (pa.date32(), [20_000, 9_999, 30_000], "datetime.date(1997, 5, 18)"),
        (pa.bool_(), [True, False], False),
        (pa.int64(), [3, None, 1], None),  # nulls first
        (pa.string(), ["", None], None),
        (pa.binary(), [b"b", b"\xff", b"a"], b"a"),
    ],
    ids=str,
)
def test_without_a_sequence_the_smaller_row_stays(dtype, values, smallest):
    schema = pa.schema({"k": pa.int64(), "x": dtype})
    expected = (
        smallest if isinstance(smallest, str) and smallest.startswith(("Dec", "date")) else repr(smallest)
    )
    assert ties(schema, [(value,) for value in values]) == f"({expected},)"


def test_without_a_sequence_the_earlier_time_stays_then_the_smaller_row():
    schema = pa.schema({"k": pa.int64(), "x": pa.int64(), "t": pa.timestamp("us")})
    at = [1_000_000 * second for second in (20, 10, 10)]
    assert ties(schema, [(1, at[0]), (7, at[1]), (5, at[2])], time="t") == "(5, 10)"


def test_equal_rows_of_a_unique_key_are_one_and_violations(story):
    run = story(plain(a={"unique": True}))
    run.push("a", "k x\n1 10\n1 10\n1 10")
    assert run.violations() == [("a", "duplicate_key", 1, 10)] * 2
    assert run.push("b", "k y\n1 5") == [(1, 10, 5)]


def test_with_a_sequence_the_first_stays(story):
    run = story(plain(a={"unique": True, "sequence": "o"}, columns="k x o"))
    run.push("a", "k x o\n1 1 7\n1 9 5\n1 3 6")
    assert run.push("b", "k y\n1 0") == [(1, 9, 0)]
    assert run.violations() == [("a", "duplicate_key", 1, 1), ("a", "duplicate_key", 1, 3)]


def test_a_tie_goes_to_a_row_that_is_no_violation(story):
    run = story(timed(a={"unique": True}))
    run.push("a", "k t x\n9 100 1")
    run.push("a", "k t x\n1 50 2\n1 105 3\n1 - 0")
    assert run.violations() == [("a", "late", 1, 50, 2), ("a", "null_time", 1, None, 0)]
    assert run.held()["a"] == 2


# ---------------------------------------------------------------- keep

KEEP = {"on_violation": "keep"}


def test_kept_a_second_tuple_joins_and_is_reported(story):
    run = story(plain(a={"unique": True, **KEEP}))
    run.push("a", "k x\n1 10")
    run.push("b", "k y\n1 100")
    assert run.push("a", "k x\n1 11") == NOTHING  # b's tuple was evicted: the key was said to be unique
    assert run.violations() == [("a", "duplicate_key", 1, 11)]
    assert run.push("b", "k y\n1 101") == [(1, 10, 101), (1, 11, 101)]


def test_kept_a_tuple_after_its_punctuation_joins_while_its_key_is_unfinished(story):
    run = story(plain(a=KEEP))
    run.push("a", "k x\n1 10")
    run.punctuate("a", k=1)
    run.push("a", "k x\n1 11")
    assert run.violations() == [("a", "after_punctuation", 1, 11)]
    assert run.push("b", "k y\n1 100") == [(1, 10, 100), (1, 11, 100)]


def test_kept_or_not_nothing_joins_once_its_key_is_finished(story):
    run = story(plain(a=KEEP))
    run.push("b", "k y\n1 100")
    run.punctuate("a", k=1)
    assert run.punctuations() == ["<1>"]
    assert run.push("a", "k x\n1 10") == NOTHING
    assert run.push("b", "k y\n1 101") == NOTHING
    assert run.violations() == [("a", "after_punctuation", 1, 10)]
    assert run.held() == {"a": 0, "b": 0}
    assert run.punctuations() == []


def test_kept_a_late_row_joins_what_is_still_there(story):
    run = story(timed(a=KEEP))
    run.push("b", "k t y\n1 95 5")
    run.push("a", "k t x\n9 100 1")
    assert run.push("a", "k t x\n1 99 2") == [(1, 99, 2, 95, 5)]
    assert run.violations() == [("a", "late", 1, 99, 2)]
    assert run.push("b", "k t y\n1 109 6") == [(1, 99, 2, 109, 6)]


def test_kept_a_null_time_joins_only_where_no_window_asks_for_it(story):
    run = story(sj.join(stream("a", "k t:time x", time="t", **KEEP), stream("b", "k y")))
    run.push("b", "k y\n1 5")
    assert run.push("a", "k t x\n1 - 1") == [(1, None, 1, 5)]
    run = story(timed(a=KEEP))
    run.push("b", "k t y\n1 10 5")
    assert run.push("a", "k t x\n1 - 1") == NOTHING
    assert run.violations() == [("a", "null_time", 1, None, 1)]


def test_a_violation_says_whether_it_was_kept():
    for on_violation, is_kept in (("keep", True), ("drop", False)):
        run = plain(a={"unique": True, "on_violation": on_violation}).local()
        run.push("a", table(pa.schema({"k": pa.int64(), "x": pa.int64()}), "k x\n1 10\n1 11"))
        assert run.violations() == [
            {"stream": "a", "reason": "duplicate_key", "kept": is_kept, "row": {"k": 1, "x": 11}}
        ]
        assert run.violations() == []


# ---------------------------------------------------------------- fail

FAIL = {"on_violation": "fail"}


def failing(error, message, joined, *steps):
    run = Story(joined)
    for step in steps[:-1]:
        run.push(*step)
    with pytest.raises(error, match=message):
        run.push(*steps[-1])


@pytest.mark.parametrize(
    ("error", "said", "joined", "steps"),
    [
        (
            sj.PunctuationViolated,
            r"row 1 of the batch \(k=1\) is a second tuple .*; the first is in an earlier batch",
            lambda: plain(a={"unique": True, **FAIL}),
            [("a", "k x\n1 10"), ("a", "k x\n2 20\n1 11")],
        ),
        (
            sj.PunctuationViolated,
            r"the row at offset 2 \(k=3\) came after a punctuation .*, which is in an earlier batch",
            lambda: plain(a={"arrival": sj.clustered(), **FAIL}),
            [("a", "k x\n3 10\n4 11"), ("a", "k x\n3 12")],
        ),
        (
            sj.BadInput,
            r"row 0 of the batch \(k=1\) came later than its declared lateness allows",
            lambda: timed(a=FAIL),
            [("a", "k t x\n9 100 1"), ("a", "k t x\n1 99 2")],
        ),
        (
            sj.BadInput,
            r"row 1 of the batch \(k=2\) has no event time",
            lambda: timed(a=FAIL),
            [("a", "k t x\n1 100 1\n2 - 2")],
        ),
    ],
    ids=["duplicate_key", "after_punctuation", "late", "null_time"],
)
def test_fail_names_stream_row_key_and_what_to_do(error, said, joined, steps):
    failing(error, f"stream 'a': {said}; correct the stream .* or declare on_violation=", joined(), *steps)


def test_fail_is_for_its_own_stream_only(story):
    run = story(plain(a={"unique": True}, b={"unique": True, **FAIL}))
    run.push("a", "k x\n1 10")
    run.push("a", "k x\n1 11")
    assert run.violations() == [("a", "duplicate_key", 1, 11)]


def test_an_unbroken_stream_never_fails(story):
    run = story(plain(a={"unique": True, **FAIL}, b={"unique": True, **FAIL}))
    run.push("a", "k x\n1 10\n2 20")
    assert run.push("b", "k y\n2 200\n1 100") == [(1, 10, 100), (2, 20, 200)]
    assert run.state() == EMPTY


def test_fail_names_both_positions_where_a_sequence_tells_them():
    sequence = {"sequence": ["p", "n"], "on_violation": "fail"}
    ended = stream("a", "k x end:bool p n", punctuation=sj.marked("end"), **sequence)
    twice = stream("a", "k x p n", unique=True, **sequence)
    rows = "k x end p n\n1 10 false 0 4\n1 - true 0 6\n1 11 false 0 9"
    at = r"the row at offset 9 \(k=1\) came after a punctuation .*, which is at offset 6;"
    failing(sj.PunctuationViolated, at, sj.join(ended, stream("b", "k y")), ("a", rows))
    at = r"the row at offset 9 \(k=1\) is a second tuple .* the first is the row at offset 4;"
    failing(
        sj.PunctuationViolated, at, sj.join(twice, stream("b", "k y")), ("a", "k x p n\n1 10 0 4\n1 11 0 9")
    )
