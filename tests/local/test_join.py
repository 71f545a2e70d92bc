"""A local run: bad input and its sentences, empty streams, and warnings."""

import warnings
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import streamjoin as sj
from streamjoin.punctuation import ANY, Constant
from tests.tables import EMPTY, NOTHING, Story, at, rows, stream, table, unbounded_is_meant

NEWS = pa.schema({"sno": pa.int64(), "title": pa.string()})
ACCESS = pa.schema({"sno": pa.int64(), "ip": pa.string()})


def news_join(**options):
    """Bounded: one news per item, and access tells when an item is over."""
    news = stream("news", "sno title:str", unique=True)
    access = stream("access", "sno ip:str is_end:bool", punctuation=sj.marked("is_end"))
    return sj.join(news, access, **options)


def timed_join(zone=None):
    def one(name):
        columns = pa.schema({"k": pa.int64(), "t": pa.timestamp("us", zone)})
        return sj.stream(columns, name=name, key="k", time="t", window="10 seconds", lateness="0 seconds")

    return sj.join(one("a"), one("b"))


def of_keys(dtype, a=None, b=None):
    return sj.join(
        sj.stream(pa.schema({"k": dtype, "x": pa.int64()}), name="a", key="k", **(a or {})),
        sj.stream(pa.schema({"k": dtype, "y": pa.int64()}), name="b", key="k", **(b or {})),
    )


# ---------------------------------------------------------------- the example of the style page


def test_tuple_is_dropped_on_arrival_once_its_key_is_closed():
    run = Story(news_join())
    run.punctuate("access", sno=79)
    assert run.push("news", "sno title\n79 Cashless") == NOTHING
    assert run.state() == EMPTY


def test_a_run_gives_arrow_tables_of_the_declared_columns():
    run = news_join().local()
    result = run.push("news", table(NEWS, "sno title\n79 Cashless"))
    assert isinstance(result, pa.Table)
    assert result.schema == pa.schema({"sno": pa.int64(), "title": pa.string(), "ip": pa.string()})
    assert result.num_rows == 0
    access = table(pa.schema([*ACCESS, ("is_end", pa.bool_())]), "sno ip\n79 64.58.76.224")
    assert run.push("access", access).to_pylist() == [{"sno": 79, "title": "Cashless", "ip": "64.58.76.224"}]
    (batch,) = access.to_batches()
    assert run.push("access", batch).num_rows == 1  # a record batch is as good
    assert run.push("access", access.select(["is_end", "ip", "sno"])).num_rows == 1  # by name, not by place


def test_what_was_emitted_is_given_once():
    run = news_join().local()
    run.punctuate("access", sno=79)
    assert run.punctuations() == [sj.Punctuation((Constant(79),))]
    assert run.punctuations() == []


def test_counters_and_state_are_told_by_input():
    run = Story(news_join())
    run.push("news", "sno title\n1 a\n2 b\n- c")
    run.push("access", "sno ip is_end\n1 x false\n1 - true")
    counters = run.run.counters()
    assert {name: counters[name] for name in ("news_rows", "news_null_keys", "news_stored")} == {
        "news_rows": 3,
        "news_null_keys": 1,
        "news_stored": 2,
    }
    assert (counters["access_rows"], counters["access_punctuations"]) == (1, 1)
    assert (counters["results"], counters["propagated_keys"]) == (1, 1)
    state = run.state()
    assert dict(state.rows) == {"news": 1, "access": 0}
    assert state.nbytes > 0
    assert not state.empty


# ---------------------------------------------------------------- empty streams


def test_an_empty_stream():
    run = Story(news_join())
    empty = NEWS.empty_table()
    assert rows(run.run.push("news", empty)) == NOTHING
    assert run.finish() == NOTHING
    assert run.state() == EMPTY
    assert run.punctuations() == []
    assert run.count("news_rows") == 0


def test_an_empty_stream_beside_a_full_one():
    run = Story(news_join())
    run.push("news", "sno title\n1 a\n2 b")
    run.run.push("access", run.run.plan.streams[1].schema.empty_table())
    run.end("access")
    assert run.punctuations() == ["<1>", "<2>"]
    assert run.held() == {"news": 0, "access": 0}


def test_a_batch_of_nothing():
    run = news_join().local()
    assert run.step({}).num_rows == 0
    assert run.state() == EMPTY


def test_a_stream_of_null_keys_only():
    run = Story(news_join())
    run.push("news", "sno title\n- a\n- b")
    assert run.count("news_null_keys") == 2
    assert run.state() == EMPTY


def test_a_stream_that_is_only_punctuations():
    run = Story(news_join())
    run.push("news", "sno title\n1 a\n2 b\n3 c")
    assert run.push("access", "sno is_end\n1 true\n2 true") == NOTHING
    assert run.punctuations() == ["<1>", "<2>"]
    assert run.held() == {"news": 1, "access": 0}
    assert (run.count("access_rows"), run.count("access_punctuations")) == (0, 2)


def test_streams_that_are_both_only_punctuations():
    run = Story(news_join())
    for key in range(10):
        run.punctuate("news", sno=key)
        run.push("access", f"sno is_end\n{key} true")
    assert run.state() == EMPTY
    assert len(run.punctuations()) == 10


# ---------------------------------------------------------------- unbounded state


def test_unbounded_state_warns_and_says_what_to_declare():
    joined = sj.join(stream("news", "sno title:str", unique=True), stream("access", "sno ip:str"))
    with pytest.warns(sj.UnboundedState) as caught:
        joined.local()
    (warning,) = caught
    told = str(warning.message)
    assert "the state of this join grows with its input" in told
    assert "news: declare punctuation=, arrival= or unique=True on access" in told
    assert "or window= on news (with time= and lateness= on every input)" in told
    assert Path(warning.filename) == Path(__file__)  # points at the caller


def test_a_bounded_join_does_not_warn():
    news_join().local()
    timed_join().local()


def test_going_on_from_a_snapshot_does_not_warn_again():
    joined = sj.join(stream("a", "k x"), stream("b", "k y"))
    with pytest.warns(sj.UnboundedState):
        snapshot = joined.local().snapshot()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        joined.local(snapshot=snapshot)


# ---------------------------------------------------------------- bad tables


def test_a_name_that_is_no_input_is_refused_with_the_inputs():
    run = timed_join().local()
    calls = [
        lambda: run.push("c", pa.table({})),
        lambda: run.step({"c": pa.table({})}),
        lambda: run.punctuate("c", k=1),
        lambda: run.advance("c", at(5)),
        lambda: run.end("c"),
    ]
    for call in calls:
        with pytest.raises(sj.InvalidJoin, match="no input 'c'; its inputs are a, b"):
            call()


def test_a_missing_key_column_is_refused():
    with pytest.raises(
        sj.BadInput,
        match=r"stream 'news': the pushed table has no column 'sno' \(it has title\); push tables",
    ):
        news_join().local().push("news", pa.table({"title": ["a"]}))


def test_a_missing_column_is_refused():
    with pytest.raises(sj.BadInput, match="no column 'title'"):
        news_join().local().push("news", pa.table({"sno": [1]}))
    with pytest.raises(sj.BadInput, match=r"no column 'sno' \(it has none\)"):
        news_join().local().push("news", pa.table({}))


def test_more_columns_than_declared_do_not_matter():
    run = news_join().local()
    run.push("news", pa.table({"sno": [1], "more": [2], "title": ["a"]}))
    assert dict(run.state().rows) == {"news": 1, "access": 0}


@pytest.mark.parametrize(
    ("column", "values"),
    [("sno", ["x"]), ("sno", [1.5]), ("sno", [b"\xff"]), ("title", [b"\xff\xfe"]), ("sno", [[1]])],
    ids=str,
)
def test_a_column_that_cannot_be_read_is_refused_with_its_name(column, values):
    columns = {"sno": [1], "title": ["a"], column: values}
    with pytest.raises(sj.BadInput, match=f"stream 'news', column '{column}': cannot read .* as "):
        news_join().local().push("news", pa.table(columns))


def test_a_column_of_another_type_that_can_be_read_is_read():
    run = Story(news_join())
    run.run.push(
        "news", pa.table({"sno": pa.array([79], pa.int8()), "title": pa.array(["a"]).dictionary_encode()})
    )
    assert run.push("access", "sno ip\n79 x") == [(79, "a", "x")]


def test_what_is_no_table_is_refused():
    for given in ({"sno": [1], "title": ["a"]}, [1], None):
        with pytest.raises(sj.BadInput, match="'news'"):
            news_join().local().push("news", given)


CONDITIONS = {
    "a column that does not exist": "end",
    "a column that is no flag": "x",
    "an expression over unknown columns": pc.field("end"),
    "an expression that is no flag": pc.field("x"),
}


@pytest.mark.parametrize("condition", CONDITIONS)
@unbounded_is_meant
def test_a_closing_condition_that_cannot_be_tested_is_refused(condition):
    """By whom it is found does not matter; that it is never a bare error of Arrow does."""
    with pytest.raises(sj.StreamJoinError, match="'a'"):
        of_keys(pa.int64(), a={"punctuation": sj.closing(CONDITIONS[condition])}).local().push(
            "a", pa.table({"k": [1], "x": [7]})
        )


@unbounded_is_meant
def test_a_refused_batch_leaves_nothing_behind():
    """What was pushed beside it is as if it had never come, and may come again."""
    run = Story(sj.join(stream("a", "k x", arrival=sj.clustered()), stream("b", "k y")))
    run.push("b", "k y\n1 100")
    with pytest.raises(sj.BadInput):
        run.run.step({"a": pa.table({"k": [1, 2], "x": [10, 20]}), "b": pa.table({"k": ["one"], "y": [5]})})
    assert run.push("a", "k x\n1 10\n2 20") == [(1, 10, 100)]
    assert run.violations() == []


# ---------------------------------------------------------------- bad punctuations


@pytest.mark.parametrize(
    "patterns",
    [
        {"sno": "79"},
        {"sno": 79.5},
        {"sno": [1, "2"]},
        {"sno": sj.between("a", "b")},
        {"sno": True},
        {"sno": 2**63},
        {"sno": None},
        {"sno": [1, None]},
        {"sno": {"x": 1}},
    ],
    ids=str,
)
def test_a_punctuation_of_the_wrong_type_is_refused(patterns):
    run = news_join().local()
    with pytest.raises(sj.BadInput):
        run.punctuate("access", **patterns)
    assert run.state() == EMPTY


@pytest.mark.parametrize(
    "punctuation",
    [
        sj.Punctuation((Constant("79"), ANY, ANY)),
        sj.Punctuation((Constant(79),)),  # access has three columns
        sj.Punctuation((Constant(79), ANY)),
        sj.Punctuation((ANY,)),
        sj.Punctuation((Constant(79), ANY, ANY, ANY)),
        sj.Punctuation((Constant(79), Constant(5), ANY)),  # an address is a text
        sj.Punctuation((sj.between("a", "b"), ANY, ANY)),
    ],
    ids=str,
)
def test_a_whole_punctuation_of_the_wrong_type_or_width_is_refused(punctuation):
    run = news_join().local()
    with pytest.raises(sj.BadInput):
        run.punctuate("access", punctuation)
    assert run.state() == EMPTY


@pytest.mark.parametrize(
    ("patterns", "named"),
    [({}, "nothing"), ({"k": 1}, "k"), ({"k": 1, "l": "u", "x": 5}, "k, l, x"), ({"x": 1}, "x")],
    ids=str,
)
@unbounded_is_meant
def test_every_key_column_and_no_other_must_be_named(patterns, named):
    run = sj.join(stream("a", "k l:str x", key=["k", "l"]), stream("b", "k l:str y", key=["k", "l"])).local()
    with pytest.raises(
        sj.BadInput, match=rf"punctuation of 'a' names {named}; name every key column \(k, l\), sj.ANY where"
    ):
        run.punctuate("a", **patterns)


@unbounded_is_meant
def test_a_value_that_fits_the_widened_key_is_taken():
    run = of_keys(pa.decimal128(10, 2)).local()
    run.push("b", pa.table({"k": [Decimal("5.00")], "y": [1]}))
    run.punctuate("a", k=5)
    assert [punctuation.text() for punctuation in run.punctuations()] == ["<5.00>"]


# ---------------------------------------------------------------- advance


@unbounded_is_meant
def test_advance_needs_an_event_time():
    run = sj.join(stream("a", "k x"), stream("b", "k y")).local()
    with pytest.raises(sj.InvalidJoin, match="stream 'a' has no event time; add time= to use advance"):
        run.advance("a", at(5))


@pytest.mark.parametrize("given", ["2026-11-15", [1], object()], ids=["text", "list", "object"])
def test_advance_takes_a_time(given):
    with pytest.raises(sj.BadInput, match=r"advance\('a', .*give a datetime"):
        timed_join().local().advance("a", given)


def test_advance_with_a_zone_is_an_instant():
    run = timed_join("Europe/Berlin").local()
    one = pa.table(
        {"k": [1], "t": pa.array([datetime(2026, 11, 15, 10, tzinfo=UTC)], pa.timestamp("us", "UTC"))}
    )
    run.push("a", one)
    run.advance("b", datetime(2026, 11, 15, 10, 0, 10, tzinfo=UTC))
    assert run.state().rows["a"] == 1
    run.advance("b", datetime.fromisoformat("2026-11-15T11:00:10.000001+01:00"))
    assert run.state().rows["a"] == 0


def test_dates_are_times():
    columns = pa.schema({"k": pa.int64(), "d": pa.date32()})
    declared = {"key": "k", "time": "d", "window": "1 day", "lateness": "0 seconds"}
    run = sj.join(sj.stream(columns, name="a", **declared), sj.stream(columns, name="b", **declared)).local()
    run.push("a", pa.table({"k": [1, 1], "d": [date(2026, 1, 1), date(2026, 1, 2)]}))
    assert run.push("b", pa.table({"k": [1], "d": [date(2026, 1, 3)]})).num_rows == 1


# ---------------------------------------------------------------- keys of every type

KEYS = {
    "struct": (
        pa.struct([("x", pa.int64()), ("y", pa.string())]),
        [{"x": 1, "y": "a"}, {"x": None, "y": "a"}],
    ),
    "list": (pa.list_(pa.int64()), [[1, 2], []]),
    "decimal": (pa.decimal128(38, 2), [Decimal("1.50"), Decimal("9" * 36 + ".99")]),
    "binary": (pa.binary(), [b"", b"\0"]),
    "timestamp": (pa.timestamp("us", "UTC"), [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2)]),
    "float": (pa.float64(), [float("nan"), 0.0]),
    "bool": (pa.bool_(), [True, False]),
}


@pytest.mark.parametrize("kind", KEYS)
@unbounded_is_meant
def test_a_key_joins_whatever_comes_beside_it(kind):
    """One side brings the key alone, the other among different keys."""
    dtype, (one, other) = KEYS[kind]
    run = of_keys(dtype).local()
    run.push("a", pa.table({"k": pa.array([one], dtype), "x": [1]}))
    assert run.push("b", pa.table({"k": pa.array([other, one], dtype), "y": [2, 3]})).num_rows == 1


@pytest.mark.parametrize("kind", KEYS)
@unbounded_is_meant
def test_a_key_of_any_type_is_announced(kind):
    dtype, values = KEYS[kind]
    run = of_keys(dtype).local()
    run.push("a", pa.table({"k": pa.array(values, dtype), "x": [1, 2]}))
    run.end("b")
    assert len(run.punctuations()) == 2
    assert run.state().rows == {"a": 0, "b": 0}


@unbounded_is_meant
def test_minus_zero_is_zero_and_nan_is_nan():
    run = of_keys(pa.float64()).local()
    run.push("a", pa.table({"k": [0.0, float("nan"), None], "x": [1, 2, 3]}))
    result = run.push("b", pa.table({"k": [-0.0, float("nan"), None], "y": [1, 2, 3]}))
    assert sorted(result.column("x").to_pylist()) == [1, 2]
    run.punctuate("a", k=-0.0)
    run.push("a", pa.table({"k": [0.0], "x": [9]}))
    assert [found["reason"] for found in run.violations()] == ["after_punctuation"]


@unbounded_is_meant
def test_results_of_a_batch_leave_as_they_are_made():
    """Rows of a go first and find nothing; each frame of b's results leaves before the next is made."""
    a, b = stream("a", "k x"), stream("b", "k y")
    joined = sj.join(a, b)
    plan = replace(joined.plan, spec=replace(joined.plan.spec, frame_rows=1))
    run = replace(joined, plan=plan).local()
    batch = {"a": table(a.schema, "k x\n1 10\n2 20"), "b": table(b.schema, "k y\n1 100\n2 200\n2 201")}
    parts = run.produce(batch)
    assert next(parts).num_rows == 1
    with pytest.raises(sj.BadInput, match="not every table of produce"):
        run.push("a", batch["a"])
    assert [part.num_rows for part in parts] == [1, 1]
    assert run.push("a", batch["a"]).num_rows == 3
