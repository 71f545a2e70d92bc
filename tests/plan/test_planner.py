"""What the planner refuses, each by name and with a way out; and what it chooses."""

import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin import PurgeImmediately, Sequential
from streamjoin.columnar.batch import Layout
from streamjoin.join.strategies.probe import MostSelectiveFirst
from tests.tables import stream

TIMED = {"time": "t", "lateness": "0 seconds"}
NEWS = stream("news", "sno title:str")
ACCESS = stream("access", "sno ip:str", unique=True)


def with_time(name, **declared):
    return stream(name, f"k {name}_x t:time", **declared)


# ---------------------------------------------------------------- inputs


def test_a_join_needs_two_inputs():
    with pytest.raises(sj.InvalidJoin, match="at least two inputs, this one has 1; add another stream"):
        sj.join(NEWS)
    with pytest.raises(sj.InvalidJoin, match="this one has 0"):
        sj.join()


def test_an_input_that_is_no_stream_is_refused():
    with pytest.raises(sj.InvalidJoin, match=r"'access' is not a stream; wrap it with sj\.stream"):
        sj.join(NEWS, "access")


def test_a_name_twice_is_refused():
    says = r"same name \(news, access, news\); give each stream its own name, .* declare it once for each"
    with pytest.raises(sj.InvalidJoin, match=says):
        sj.join(NEWS, ACCESS, NEWS)


def test_keys_of_different_width_are_refused():
    pair = stream("pair", "sno ip:str x", key=["sno", "ip"])
    with pytest.raises(
        sj.InvalidJoin, match=r"different width \(news: sno; pair: sno, ip\); name as many columns each"
    ):
        sj.join(NEWS, pair)


def test_key_types_without_a_common_one_are_refused():
    texts = stream("texts", "sno:str y")
    with pytest.raises(sj.InvalidJoin, match=r"news\.sno int64, texts\.sno string\); cast one of them first"):
        sj.join(NEWS, texts)


def test_the_key_of_every_input_is_checked():
    small = sj.stream(pa.schema({"sno": pa.int32(), "z": pa.int64()}), name="small", key="sno")
    assert sj.join(NEWS, ACCESS, small).plan.spec.key_types == (pa.int64(),)
    times = stream("times", "sno:time w")
    with pytest.raises(sj.InvalidJoin, match=r"small\.sno int32, times\.sno timestamp.*; cast one of them"):
        sj.join(NEWS, small, times)


def test_the_second_key_column_is_checked_too():
    one = stream("one", "a b x", key=["a", "b"])
    two = stream("two", "a b:str y", key=["a", "b"])
    with pytest.raises(sj.InvalidJoin, match=r"one\.b int64, two\.b string"):
        sj.join(one, two)


def test_a_clash_of_output_names_is_refused():
    with pytest.raises(sj.InvalidJoin, match="more than one column 'a_x'"):
        sj.join(stream("a", "a_x x"), stream("b", "a_x x"))


# ---------------------------------------------------------------- control sources


def controlled(dtype, **columns):
    """A join on a key of this type, one input with a control source of these columns."""
    columns = {"over": pa.timestamp("us"), **columns}
    news = sj.stream(pa.schema({"k": dtype, "x": pa.int64()}), name="news", key="k")
    access = sj.stream(
        pa.schema({"k": dtype, "t": pa.timestamp("us")}),
        name="access",
        key="k",
        time="t",
        lateness="0 seconds",
        punctuation=sj.control(pa.schema(columns), time="over"),
    )
    return sj.join(news, access)


@pytest.mark.parametrize(
    ("dtype", "columns"),
    [
        (pa.int64(), {"k": pa.int16()}),
        (pa.int64(), {"k": pa.list_(pa.int32())}),
        (pa.int64(), {"k_from": pa.int32(), "k_to": pa.int64()}),
        (pa.string(), {"k": pa.dictionary(pa.int8(), pa.string())}),
        (pa.string(), {"k": pa.large_list(pa.large_string())}),
        (pa.decimal128(21, 2), {"k": pa.int64()}),
        (pa.timestamp("us", "UTC"), {"k": pa.timestamp("ms", "Europe/Berlin")}),
        (pa.list_(pa.int64()), {"k": pa.list_(pa.int64())}),
        (pa.list_(pa.int64()), {"k": pa.list_(pa.list_(pa.int64()))}),
        (pa.int64(), {"k": pa.int64(), "over": pa.date32()}),
    ],
)
def test_control_columns_that_fit_the_key(dtype, columns):
    assert "keys are closed by the control stream of access" in controlled(dtype, **columns).explain()


@pytest.mark.parametrize(
    ("dtype", "columns", "says"),
    [
        (
            pa.int64(),
            {"k": pa.string()},
            "'k' is string, the join's key 'k' is int64; cast 'k' to int64, or a",
        ),
        (pa.int32(), {"k": pa.int64()}, "'k' is int64, the join's key 'k' is int32; cast 'k' to int32"),
        (pa.int64(), {"k": pa.list_(pa.string())}, "'k' is list<item: string>, the join's key 'k' is int64"),
        (
            pa.string(),
            {"k_from": pa.string(), "k_to": pa.int64()},
            "'k_to' is int64, .*cast 'k_to' to string$",
        ),
        (pa.int64(), {"k": pa.timestamp("us")}, "'k' is timestamp.us., the join's key"),
        (
            pa.struct([("a", pa.int64())]),
            {"k_from": pa.struct([("a", pa.int64())]), "k_to": pa.struct([("a", pa.int64())])},
            "which has no order, so a range from 'k_from' to 'k_to' has no meaning; close values in a",
        ),
        (
            pa.int64(),
            {"k": pa.int64(), "over": pa.timestamp("us", "UTC")},
            "'over', is timestamp.us, tz=UTC.; give both a zone, or neither",
        ),
    ],
)
def test_control_columns_that_contradict_the_key_are_refused(dtype, columns, says):
    with pytest.raises(sj.InvalidJoin, match=f"stream 'access': .*{says}"):
        controlled(dtype, **columns)


def test_arrival_in_one_partition_and_punctuations_of_several_contradict_each_other():
    a = stream(
        "a",
        "k x end:bool p:str o",
        sequence=["p", "o"],
        arrival=sj.clustered(),
        punctuation=sj.marked("end", partitions=2),
    )
    with pytest.raises(sj.InvalidJoin, match=r"come through one partition, marked\(partitions=2\) that they"):
        sj.join(a, stream("b", "k y"))


def test_ordered_arrival_of_a_composite_key_is_refused():
    pair = stream("pair", "a b x", key=["a", "b"], arrival=sj.ordered())
    with pytest.raises(sj.InvalidJoin, match="key of one column, it has 2; declare clustered arrival"):
        sj.join(pair, stream("other", "a b y", key=["a", "b"]))


# ---------------------------------------------------------------- windows


def test_a_window_needs_a_time_on_every_input():
    windowed = with_time("a", **TIMED, window="10 seconds")
    with pytest.raises(
        sj.InvalidJoin, match="a has a window, so every input needs an event time: add time= to b"
    ):
        sj.join(windowed, stream("b", "k y"))


def test_a_window_needs_a_lateness_on_every_input():
    windowed = with_time("a", **TIMED, window="10 seconds")
    with pytest.raises(
        sj.InvalidJoin, match=r'every input needs a lateness: add lateness="0 seconds" .* to b'
    ):
        sj.join(windowed, with_time("b", time="t"))
    with pytest.raises(sj.InvalidJoin, match=r"lateness.* to a"):
        sj.join(with_time("a", time="t", window="10 seconds"), with_time("b", **TIMED))


def test_without_a_window_nobody_needs_a_time():
    assert not sj.join(with_time("a", time="t"), stream("b", "k y")).plan.spec.windowed


# ---------------------------------------------------------------- options

UNKNOWN = [("driver", "fastest"), ("order", "value"), ("purge", "sometimes"), ("probe", "selective")]


@pytest.mark.parametrize(("option", "value"), UNKNOWN, ids=str)
def test_a_strategy_that_nobody_knows_is_refused(option, value):
    with pytest.raises(sj.InvalidJoin, match=f"{option}=.* is not known; give one of"):
        sj.join(NEWS, ACCESS, **{option: value})


def test_a_refused_driver_says_which_there_are():
    with pytest.raises(sj.InvalidJoin, match="driver='fastest' is not known; give one of round_robin"):
        sj.join(NEWS, ACCESS, driver="fastest")


def test_the_timestamp_driver_needs_event_times():
    with pytest.raises(
        sj.InvalidJoin, match=r"driver='timestamp' .* add time= to b, or choose another driver"
    ):
        sj.join(with_time("a", time="t"), stream("b", "k y"), driver="timestamp")


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"goal": "speed"}, "goal='speed'; give one of throughput, memory, punctuation"),
        ({"buckets": 0}, "buckets=0; give a whole number of 1 or more"),
        ({"name": "my join"}, "name='my join'; give a name of letters, digits and _"),
        ({"name": ""}, "give a name of letters"),
    ],
    ids=str,
)
def test_options_without_sense_are_refused(options, hint):
    with pytest.raises(sj.InvalidJoin, match=hint):
        sj.join(NEWS, ACCESS, **options)


def test_a_quota_that_never_finishes_is_refused():
    with pytest.raises(sj.InvalidJoin, match="a quota of 0 rows would never finish; give 1 or more"):
        sj.RoundRobin(quota=0)


@pytest.mark.parametrize("strategy", [object(), 5, sj.RoundRobin], ids=["object", "number", "class"])
def test_a_strategy_that_is_none_is_refused(strategy):
    """The class instead of an object is an easy mistake: it must not fail in the middle of a run."""
    with pytest.raises(sj.InvalidJoin, match="driver="):
        sj.join(NEWS, ACCESS, driver=strategy)


# ---------------------------------------------------------------- what is chosen


def test_the_first_strategies_and_why():
    plan = sj.join(NEWS, ACCESS).plan
    chosen = plan.spec.strategies
    assert (chosen.driver, chosen.order, chosen.purge, chosen.probe) == (
        sj.Priority(),
        Sequential(),
        PurgeImmediately(),
        MostSelectiveFirst(),
    )
    assert [choice for choice, _ in plan.reasons] == [
        "driver: priority",
        "order: sequential",
        "purge: immediate",
        "probe: most_selective",
        "memory: all state",
    ]


def test_a_strategy_by_name_or_as_an_object():
    plan = sj.join(NEWS, ACCESS, driver="round_robin", purge="immediate").plan
    assert dict(plan.reasons)["driver: round_robin"] == "as you asked"
    plan = sj.join(NEWS, ACCESS, driver=sj.RoundRobin(quota=1)).plan
    assert plan.spec.strategies.driver.quota == 1


def test_the_goal_memory_compacts_early():
    assert sj.join(NEWS, ACCESS, goal="memory").plan.spec.compaction.tombstone_share == 0.15
    assert sj.join(NEWS, ACCESS).plan.spec.compaction.tombstone_share == 0.5


def test_layouts_have_the_common_key_and_times_where_they_are_declared():
    a = sj.stream(pa.schema({"k": pa.int32(), "x": pa.large_string()}), name="a", key="k")
    b = sj.stream(pa.schema({"k": pa.int64(), "t": pa.timestamp("us")}), name="b", key="k", time="t")
    spec = sj.join(a, b).plan.spec
    assert spec.inputs[0].layout == Layout((pa.int64(),), timed=False, payload_types=(pa.string(),))
    assert spec.inputs[1].layout == Layout((pa.int64(),), timed=True, payload_types=(pa.timestamp("us"),))


def test_explain_tells_the_plan():
    told = sj.join(
        with_time("a", **TIMED, window="10 seconds", unique=True),
        with_time("b", **TIMED, idle="1 minute", arrival=sj.clustered(slack=2)),
        with_time("c", time="t", lateness="5 seconds", punctuation=sj.closing("c_x > 3")),
        name="trade",
        goal="memory",
    ).explain()
    assert told.startswith("trade: a ⋈ b ⋈ c\n  inner join on a.k = b.k = c.k (int64), goal memory\n")
    assert "  a: one tuple per key; window 10 s; lateness 0 s\n" in told
    assert "  b: lateness 0 s; idle after 60 s; clustered arrival, slack 2\n" in told
    assert "  c: lateness 5 s; keys are closed by closing rows of c\n" in told
    assert "driver: priority (the unique input first" in told
    assert "nothing was declared" in sj.join(NEWS, ACCESS).explain()
