"""A restart may add, remove and reorder the columns of a stream; another join is refused in one paragraph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import streamjoin as sj
from streamjoin.join.strategies.spill import SpillAbove
from streamjoin.plan.planner import Plan
from tests.tables import unbounded_is_meant

pytestmark = unbounded_is_meant

LONG, TEXT = pa.int64(), pa.string()


def news(*columns: str, **declared: Any) -> sj.Stream:
    types = {"k": LONG, "size": LONG, "t": pa.timestamp("us")}
    schema = pa.schema([(name, types.get(name, TEXT)) for name in ("k", *columns)])
    return sj.stream(schema, name="news", **{"key": "k", **declared})


def access(*columns: str, **declared: Any) -> sj.Stream:
    return sj.stream(
        pa.schema({"k": LONG, **dict.fromkeys(columns or ("ip",), TEXT)}), name="access", key="k", **declared
    )


NEWS = pa.table({"k": [1, 2], "title": ["a", "b"], "size": [10, 20]})


def stopped(joined: sj.Joined, rows: pa.Table = NEWS) -> bytes:
    run = joined.local()
    run.push("news", rows)
    return run.snapshot()


def answers(joined: sj.Joined, snapshot: bytes, keys: list[int]) -> list[dict[str, Any]]:
    run = joined.local(snapshot=snapshot)
    return run.push("access", pa.table({"k": keys, "ip": ["x"] * len(keys)})).to_pylist()


def test_a_column_that_is_added_is_null_in_stored_tuples() -> None:
    snapshot = stopped(sj.join(news("title", "size"), access()))
    wider = sj.join(news("lang", "title", "size"), access())
    assert answers(wider, snapshot, [2]) == [{"k": 2, "lang": None, "title": "b", "size": 20, "ip": "x"}]


def test_columns_may_be_removed_and_reordered() -> None:
    snapshot = stopped(sj.join(news("title", "size"), access()))
    assert answers(sj.join(news("size"), access()), snapshot, [1]) == [{"k": 1, "size": 10, "ip": "x"}]
    reordered = sj.join(news("size", "title"), access())
    assert list(answers(reordered, snapshot, [1])[0].values()) == [1, 10, "a", "x"]


def test_a_column_that_was_removed_and_added_again_is_null_whatever_was_compacted() -> None:
    """Its values may still be in a run that was not rewritten since; they must not come back."""
    both, one = sj.join(news("title", "size"), access()), sj.join(news("title"), access())
    run = one.local(snapshot=stopped(both))
    run.push("news", pa.table({"k": [3], "title": ["c"]}))
    again = both.local(snapshot=run.snapshot())
    again.push("news", pa.table({"k": [4], "title": ["d"], "size": [40]}))
    third = both.local(snapshot=again.snapshot())
    found = third.push("access", pa.table({"k": [1, 3, 4], "ip": ["x"] * 3})).sort_by("k")
    assert found.column("size").to_pylist() == [None, None, 40]
    assert found.column("title").to_pylist() == ["a", "c", "d"]


def test_violations_that_nobody_asked_for_yet_survive_too() -> None:
    run = sj.join(news("title", "size", unique=True), access()).local()
    run.push("news", pa.concat_tables([NEWS, NEWS]))
    again = sj.join(news("size", "lang", unique=True), access()).local(snapshot=run.snapshot())
    assert {tuple(one["row"].items()) for one in again.violations()} == {
        (("k", key), ("size", 10 * key), ("lang", None)) for key in (1, 2)
    }


def test_a_time_zone_may_be_spelled_differently() -> None:
    def joined(zone: str) -> sj.Joined:
        at = pa.timestamp("us", zone)
        left = sj.stream(pa.schema({"k": at, "made": pa.list_(at)}), name="a", key="k")
        right = sj.stream(pa.schema({"k": at, "y": LONG}), name="b", key="k")
        return sj.join(left, right, where=pc.field("y") > 0)

    run = joined("UTC").local()
    run.push("a", pa.table({"k": [5], "made": [[7]]}, joined("UTC").plan.streams[0].schema))
    run.punctuate("b", k=pa.scalar(9, pa.timestamp("us", "UTC")).as_py())
    for zone in ("Etc/UTC", "+00:00", "Europe/Oslo"):
        again = joined(zone).local(snapshot=run.snapshot())
        found = again.push("b", pa.table({"k": [5], "y": [1]}, joined(zone).plan.streams[1].schema))
        assert found.column("made").cast(pa.list_(LONG)).to_pylist() == [[7]]
        assert found.schema.field("made").type == pa.list_(pa.timestamp("us", zone))


def test_a_column_of_a_lower_join_is_known_by_its_stream_and_not_by_its_name_there() -> None:
    """`title` becomes `news_title` in the lower join's results when `access` gets a column of that name."""

    def chain(*columns: str) -> sj.Joined:
        lower = sj.join(news("title", unique=True), access(*columns, unique=True), name="lower")
        results = sj.stream(lower, name="results", key="k")
        return sj.join(results, sj.stream(pa.schema({"k": LONG, "z": LONG}), name="third", key="k"))

    run = chain("ip").local()
    run.push("news", pa.table({"k": [1], "title": ["a"]}))
    run.push("access", pa.table({"k": [1], "ip": ["x"]}))
    again = chain("ip", "title").local(snapshot=run.snapshot())
    assert again.push("third", pa.table({"k": [1], "z": [3]})).to_pylist() == [
        {"k": 1, "news_title": "a", "ip": "x", "access_title": None, "z": 3}
    ]


def test_groups_and_joins_without_a_common_key_go_on() -> None:
    def grouped(*columns: str) -> sj.Joined:
        return sj.join(news(*columns, unique=True), access()).group_by("k").agg(most=("size", "max"))

    run = grouped("title", "size").local()
    run.push("news", NEWS)
    run.push("access", pa.table({"k": [1], "ip": ["x"]}))
    again = grouped("size", "lang").local(snapshot=run.snapshot())
    assert again.punctuate("access", k=1).to_pylist() == [{"k": 1, "most": 10}]

    def edges(*columns: str) -> sj.Joined:
        a = sj.stream(pa.schema({"x": LONG, **dict.fromkeys(columns, TEXT)}), name="a", key="x")
        b = sj.stream(pa.schema({"x": LONG, "y": LONG}), name="b", key="x")
        c = sj.stream(pa.schema({"y": LONG, "z": TEXT}), name="c", key="y")
        return sj.join(a, b, c, on="a.x = b.x and b.y = c.y")

    run = edges("p", "q").local()
    run.push("a", pa.table({"x": [1], "p": ["p"], "q": ["q"]}))
    run.push("b", pa.table({"x": [1], "y": [2]}))
    again = edges("r", "q").local(snapshot=run.snapshot())
    (row,) = again.push("c", pa.table({"y": [2], "z": ["z"]})).to_pylist()
    assert (row["r"], row["q"], row["z"]) == (None, "q", "z")


def test_an_enriched_stream_may_have_other_columns(tmp_path: Any) -> None:
    def enriched(*columns: str) -> Any:
        stream = sj.stream(
            pa.schema({"k": LONG, "t": pa.timestamp("us"), **dict.fromkeys(columns, TEXT)}),
            name="orders",
            key="k",
            time="t",
            lateness="0 seconds",
        )
        tables = [
            sj.table(
                pa.table({"k": ids, "city": ["Rome"] * len(ids)}),
                name=name,
                key="k",
                memory="1 MB",
                version=str(len(ids)),
                wait="1 hour",
                how="left",
            )
            for name, ids in (("one", self_ids), ("two", self_ids))
        ]
        return sj.enrich(stream, *tables)

    self_ids = [7]
    run = enriched("item", "note").local(folder=tmp_path)
    rows = pa.table({"k": [1], "t": pa.array([0], pa.timestamp("us")), "item": ["tea"], "note": ["hot"]})
    assert run.push("orders", rows).num_rows == 0  # it waits for its row in the first table
    self_ids = [7, 1]
    again = enriched("city", "item").local(folder=tmp_path, snapshot=run.snapshot())
    (row,) = again.finish().to_pylist()
    assert row == {
        "k": 1,
        "t": rows.column("t")[0].as_py(),
        "orders_city": None,
        "item": "tea",
        "one_city": "Rome",
        "two_city": "Rome",
    }


def test_another_key_of_an_enriched_stream_is_refused(tmp_path: Any) -> None:
    columns = pa.schema({"k": LONG, "item": LONG})
    table = sj.table(pa.table({"k": [7], "city": ["Rome"]}), name="one", key="k", memory="1 MB")
    begun = sj.enrich(sj.stream(columns, name="orders", key="k"), table).local(folder=tmp_path)
    other = sj.enrich(sj.stream(columns, name="orders", key="item"), table)
    with pytest.raises(sj.StateFormatError, match=r"key= of the stream was \['k'\] and is now \['item'\]"):
        other.local(folder=tmp_path, snapshot=begun.snapshot())


TIMED = {"time": "t", "lateness": "0 seconds"}
BEGUN: Callable[[], sj.Joined] = lambda: sj.join(news("title", "size"), access())  # noqa: E731
REFUSED: dict[str, tuple[Callable[[], sj.Joined], str]] = {
    "another key": (
        lambda: sj.join(news("title", "size", key="size"), access()),
        "key= of news was ['k'] and is now ['size']: write key=['k']",
    ),
    "another type": (
        lambda: sj.join(sj.stream(pa.schema({"k": LONG, "size": TEXT}), name="news", key="k"), access()),
        "column size of news was int64 and is now string: cast it to int64, or give the new one another name",
    ),
    "a window": (
        lambda: sj.join(
            news("title", "size", "t", window="10 minutes", **TIMED),
            sj.stream(pa.schema({"k": LONG, "t": pa.timestamp("us")}), name="access", key="k", **TIMED),
        ),
        'window= of news was none and is now "10 min": leave it out',
    ),
    "another join type": (
        lambda: sj.join(news("title", "size"), access(), how="left"),
        "how= was inner and is now left: write how='inner'",
    ),
    "another input": (
        lambda: sj.join(access(), news("title", "size")),
        "the list of inputs was news, access and is now access, news",
    ),
    "a unique key": (
        lambda: sj.join(news("title", "size", unique=True), access()),
        "the key of news was not unique and now is: leave out unique=True",
    ),
    "another condition": (
        lambda: sj.join(news("title", "size"), access(), where="size > 5"),
        "where= was none and is now (size > 5)",
    ),
    "groups": (
        lambda: sj.join(news("title", "size", unique=True), access()).group_by("k").count(),
        "group_by was none and is now k: count = count(*)",
    ),
}


@pytest.mark.parametrize("change", REFUSED)
def test_what_cannot_go_on_is_refused_with_the_change_and_what_to_write(change: str) -> None:
    make, says = REFUSED[change]
    with pytest.raises(sj.StreamJoinError) as refused:
        make().local(snapshot=stopped(BEGUN()))
    text = str(refused.value)
    assert says in text
    assert text.startswith("the query cannot go on from its state: ")
    assert text.endswith("Write what it was, or begin with a new checkpoint")
    assert "\n" not in text
    assert "{" not in text


@pytest.mark.parametrize(
    "use", [{"where": "lang = 'en'"}, {"group": "lang"}, {"key": "lang"}, {"time": "at"}], ids=str
)
def test_an_added_column_may_not_decide_what_joined_before(use: dict[str, str]) -> None:
    """Of stored tuples nobody knows what it would have been."""
    added = news("title", "size", "lang", "t", **({"time": "t"} if "time" in use else {}))
    if "key" in use:
        added = news("title", "size", "lang", key="lang")
        right = sj.stream(pa.schema({"k": TEXT, "ip": TEXT}), name="access", key="k")
    else:
        right = access()
    joined = sj.join(added, right, where=use.get("where"))
    if "group" in use:
        joined = joined.group_by("k", "lang").count()
    with pytest.raises(sj.StateFormatError, match="the query cannot go on"):
        joined.local(snapshot=stopped(BEGUN()))


def test_a_condition_that_stays_may_not_use_a_column_that_moved_to_another_input() -> None:
    """The text of where= is the same, and still another column decides."""
    before = sj.join(news("lang", "size"), access(), where="lang = 'en'")
    after = sj.join(news("size"), access("lang", "ip"), where="lang = 'en'")
    rows = pa.table({"k": [1], "lang": ["en"], "size": [1]})
    with pytest.raises(sj.StateFormatError, match="column lang of access is new, and stored tuples do not"):
        after.local(snapshot=stopped(before, rows))


@pytest.mark.parametrize("seed", range(20))
def test_any_sequence_of_changes_gives_what_the_names_say(seed: int) -> None:
    """Columns come and go at every restart; each tuple has the values that were there all the time since."""
    rng, known = Random(seed), "pqrsu"
    run, columns = None, ["p", "q"]
    tuples: dict[int, dict[str, str]] = {}
    for step in range(12):
        columns = rng.sample(known, rng.randint(1, len(known)))
        plan = sj.join(news(*columns), access()).plan
        plan = _spilling(plan) if seed % 2 else plan
        run = sj.LocalRun(plan, snapshot=None if run is None else run.snapshot())
        tuples = {key: {c: v for c, v in row.items() if c in columns} for key, row in tuples.items()}
        for key in rng.sample(range(step * 10, step * 10 + 10), 3):
            tuples[key] = {column: f"{column}{key}" for column in columns}
            rows = {"k": [key], **{column: [value] for column, value in tuples[key].items()}}
            run.push("news", pa.table(rows))
        asked = rng.sample(sorted(tuples), min(4, len(tuples)))
        found = run.push("access", pa.table({"k": asked, "ip": ["x"] * len(asked)})).to_pylist()
        wanted = [{"k": key, **{c: tuples[key].get(c) for c in columns}, "ip": "x"} for key in asked]
        assert sorted(map(str, found)) == sorted(map(str, wanted))
        run = sj.LocalRun(plan, snapshot=run.snapshot())


def _spilling(plan: Plan) -> Plan:
    """With hardly any memory: nearly every run is read from disk again."""
    spill = SpillAbove(200)
    return replace(plan, spec=replace(plan.spec, strategies=replace(plan.spec.strategies, spill=spill)))
