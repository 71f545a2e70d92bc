"""Stop and go on: a run told from any of its snapshots tells the same as one that never stopped."""

from decimal import Decimal

import pyarrow as pa

import streamjoin as sj
from tests.tables import Story, at, stream, table, unbounded_is_meant

NEWS = pa.schema({"sno": pa.int64(), "title": pa.string()})


def news_join():
    """Bounded: one news per item, and access tells when an item is over."""
    news = stream("news", "sno title:str", unique=True)
    access = stream("access", "sno ip:str is_end:bool", punctuation=sj.marked("is_end"))
    return sj.join(news, access)


@unbounded_is_meant
def test_snapshot_and_restore_at_every_step():
    """A run that is stopped before step i and goes on tells the same from there, for every i."""
    a = stream(
        "a", "k x t:time", time="t", window="20 seconds", lateness="5 seconds", arrival=sj.clustered(slack=2)
    )
    b = stream("b", "k y t:time", time="t", window="30 seconds", lateness="0 seconds", unique=True)
    c = stream(
        "c",
        "k z t:time end:bool p:str o",
        time="t",
        window="20 seconds",
        lateness="0 seconds",
        idle="15 seconds",
        punctuation=sj.marked("end", partitions=2),
        sequence=["p", "o"],
        columns=["z"],
        on_violation="keep",
    )
    joined = sj.join(a, b, c)
    steps = [
        ("push", "a", "k x t\n1 10 10\n1 11 12\n2 20 11"),
        ("push", "b", "k y t\n1 5 10\n2 6 12\n3 7 13"),
        ("push", "c", "k z t end p o\n1 100 14 false p 1\n2 200 15 false q 1\n1 - - true p 2"),
        ("punctuate", "b", {"k": sj.between(50, 60)}),
        ("push", "c", "k z t end p o\n1 - - true q 2\n1 101 15 false q 3\n3 300 16 false p 3"),
        ("push", "a", "k x t\n3 30 20\n4 40 21\n5 50 22\n1 12 23"),
        ("punctuate", "c", {"k": [2, 55]}),
        ("push", "b", "k y t\n1 8 20\n5 9 21\n55 1 22"),
        ("advance", "a", 30),
        ("push", "c", "k z t end p o\n5 500 24 false p 4\n5 501 1 false q 5"),
        ("advance", "b", 60),
        ("end", "a", None),
        ("finish", None, None),
    ]

    def tell(run, step):
        call, name, what = step
        if call == "finish":
            found = run.finish()
        elif call == "end":
            found = run.end(name)
        elif call == "punctuate":
            found = run.punctuate(name, **what)
        else:
            found = getattr(run, call)(name, what)
        state = run.state()
        return found, run.punctuations(), run.violations(), dict(state.rows), state.closed_keys

    straight, told, snapshots = Story(joined), [], []
    for step in steps:
        snapshots.append(straight.run.snapshot())
        told.append(tell(straight, step))
    assert sum(len(found) for found, *_ in told) > 5
    assert any(punctuations for _, punctuations, *_ in told)
    assert any(violations for _, _, violations, *_ in told)
    for i, snapshot in enumerate(snapshots):
        again = Story(joined, snapshot=snapshot)
        assert [tell(again, step) for step in steps[i:]] == told[i:], f"stopped before step {i}"
        assert again.run.counters() == straight.run.counters()


def test_a_snapshot_changes_nothing_and_may_be_used_twice():
    run = Story(news_join())
    run.push("news", "sno title\n1 a")
    first, second = run.run.snapshot(), run.run.snapshot()
    for snapshot in (first, second, first):
        again = Story(news_join(), snapshot=snapshot)
        assert again.push("access", "sno ip\n1 x") == [(1, "a", "x")]
    assert run.push("access", "sno ip\n1 y") == [(1, "a", "y")]


def test_what_nobody_has_asked_for_yet_survives_a_stop():
    """Propagated keys and violations are output: a stop must not lose them."""
    run = news_join().local()
    run.push("news", table(NEWS, "sno title\n1 a\n2 b"))
    run.push("news", table(NEWS, "sno title\n2 c"))
    run.punctuate("access", sno=1)
    again = news_join().local(snapshot=run.snapshot())
    assert again.punctuations() == run.punctuations()
    assert again.violations() == run.violations() != []


@unbounded_is_meant
def test_patterns_of_every_key_type_survive_a_stop():
    columns = {"k": pa.int64(), "d": pa.decimal128(6, 2), "t": pa.timestamp("us"), "s": pa.string()}
    keys = list(columns)
    joined = sj.join(
        sj.stream(pa.schema(columns), name="a", key=keys), sj.stream(pa.schema(columns), name="b", key=keys)
    )
    run = joined.local()
    run.punctuate("a", k=sj.between(1, 5, high_closed=False), d=Decimal("1.50"), t=sj.ANY, s=['x"y', "é, *>"])
    run.punctuate("a", k=sj.ANY, d=sj.between(None, 2), t=sj.between(at(10), None), s=sj.ANY)
    again = joined.local(snapshot=run.snapshot())
    assert again.join.closed_keys[0].patterns == run.join.closed_keys[0].patterns
    assert len(again.join.closed_keys[0].patterns) == 2


@unbounded_is_meant
def test_patterns_beside_a_struct_survive_a_stop():
    point = pa.struct([("x", pa.int64())])
    columns = pa.schema({"k": pa.int64(), "p": point})
    joined = sj.join(
        sj.stream(columns, name="a", key=["k", "p"]), sj.stream(columns, name="b", key=["k", "p"])
    )
    run = joined.local()
    run.punctuate("a", k=5, p=sj.ANY)
    again = joined.local(snapshot=run.snapshot())
    again.push("a", pa.table({"k": [5, 6], "p": pa.array([{"x": 1}, {"x": 1}], point)}))
    assert [found["row"]["k"] for found in again.violations()] == [5]
