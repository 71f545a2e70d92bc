"""A stream enriched with a table in this process: versions, waiting, stopping, and bad input."""

import re
import shutil
import sqlite3
import warnings
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamjoin as sj
from streamjoin.local.enrich import EnrichRun
from tests.tables import NOTHING, at, rows, schema, stream, table

ORDERS = "id item:str"
CUSTOMERS = "id city:str"


def table_of(text, columns=CUSTOMERS, /, **declared):
    """A table of this text; its key is the first column."""
    declared = {"name": "customers", "key": columns.split()[0], "memory": "1 MB", **declared}
    return sj.table(table(schema(columns), text), **declared)


class Story:
    """A run told in text."""

    def __init__(self, *tables, orders=None, folder=None, snapshot=None, operator=None, segment_bytes=None):
        self.orders = orders or stream("orders", ORDERS)
        plan = sj.enrich(self.orders, *tables, operator=operator).plan
        self.run = EnrichRun(plan, folder=folder, snapshot=snapshot, segment_bytes=segment_bytes)

    def push(self, text):
        return rows(self.run.push("orders", table(self.orders.schema, text)))

    def tick(self):
        return rows(self.run.tick())

    def refresh(self, *tables):
        return rows(self.run.refresh(*tables))

    def finish(self):
        return rows(self.run.finish())

    def versions(self, name="customers"):
        """The labels of the versions in use."""
        return [version.partition("-")[2] for version in self.run.state()[name].versions]


# ---------------------------------------------------------------- what it answers


def test_the_example_of_the_page_does_what_it_says():
    page = (Path(__file__).parents[2] / "docs" / "enrich.md").read_text()
    names = {}
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], names)
    assert rows(names["results"]) == [(2, "rice", "Oslo"), (3, "soap", None)]


def test_rows_of_a_stream_get_the_columns_of_their_table_row():
    story = Story(table_of("id city\n1 Rome\n2 Oslo"))
    assert story.push("id item\n1 tea\n2 rice\n3 soap") == [(1, "tea", "Rome"), (2, "rice", "Oslo")]
    assert story.push("id item\n2 figs") == [(2, "figs", "Oslo")]
    assert story.run.waiting == 0


def test_a_left_join_keeps_rows_without_one():
    story = Story(table_of("id city\n1 Rome\n- Nowhere", how="left"))
    assert story.push("id item\n1 tea\n3 soap\n- lost") == [
        (None, "lost", None),
        (1, "tea", "Rome"),
        (3, "soap", None),
    ]
    counted = story.run.counters()
    assert (counted["orders_rows"], counted["orders_null_keys"], counted["results"]) == (3, 1, 3)
    assert (counted["customers_rows"], counted["customers_null_keys"], counted["unmatched"]) == (1, 1, 2)


def test_in_an_inner_join_a_row_with_a_null_key_is_counted_and_gone():
    story = Story(table_of("id city\n1 Rome\n- Nowhere"))
    assert story.push("id item\n- lost") == NOTHING
    assert story.run.counters()["orders_null_keys"] == 1


def test_a_key_may_have_many_table_rows_and_many_columns():
    cities = table_of(
        "country no city\n1 7 Rome\n1 7 Bari\n2 7 Oslo", "country no city:str", key=["country", "no"]
    )
    orders = stream("orders", "land number item:str", key=["land", "number"])
    story = Story(cities, orders=orders)
    assert story.push("land number item\n1 7 tea\n2 8 soap") == [(1, 7, "tea", "Bari"), (1, 7, "tea", "Rome")]


KEYS = {
    "widened": (pa.int8(), [1, 2, -3], pa.int64(), [2, -3, 1 << 40], [2, -3]),
    "decimal": (
        pa.int64(),
        [1, 2],
        pa.decimal128(10, 2),
        [Decimal("2.00"), Decimal("2.50")],
        [Decimal("2.00")],
    ),
    "zero and NaN": (
        pa.float64(),
        [0.0, float("nan"), 1.5],
        pa.float32(),
        [-0.0, float("nan")],
        [0.0, "nan"],
    ),
    "texts": (pa.dictionary(pa.int8(), pa.string()), ["a", "b"], pa.large_string(), ["b", ""], ["b"]),
    "days": (
        pa.date32(),
        [at(86400).date()],
        pa.timestamp("us"),
        [at(86400)],
        [at(86400)],
    ),
    "structs": (
        pa.struct({"a": pa.int32()}),
        [{"a": 1}, {"a": None}],
        pa.struct({"a": pa.int64()}),
        [{"a": 1}, {"a": None}],
        [{"a": 1}, {"a": None}],
    ),
    "lists": (pa.list_(pa.int64()), [[1], []], pa.list_(pa.int64()), [[1], [1, 2]], [[1]]),
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_kind_are_equal_by_value(kind):
    """Of the table only its key is taken, so a result is a stream row that has a partner."""
    mine, came, theirs, known, meet = KEYS[kind]
    orders = sj.stream(pa.schema({"k": mine}), name="orders", key="k")
    customers = sj.table(
        pa.table({"k": pa.array(known, theirs), "x": known}), name="c", key="k", memory="1 MB", columns=[]
    )
    run = sj.enrich(orders, customers).local()
    found = run.push("orders", pa.table({"k": pa.array(came, mine)})).column("k").to_pylist()
    assert sorted(map(repr, found)) == sorted(str(key) if key == "nan" else repr(key) for key in meet)


def test_several_tables_are_joined_one_after_another():
    ratings = table_of("id stars\n1 5\n3 2", "id stars", name="ratings", how="left")
    story = Story(table_of("id city\n1 Rome\n2 Oslo"), ratings)
    assert story.push("id item\n1 tea\n2 rice\n3 soap") == [(1, "tea", "Rome", 5), (2, "rice", "Oslo", None)]
    counted = story.run.counters()
    assert (counted["enrich_customers_orders_rows"], counted["orders_rows"]) == (3, 2)
    assert set(story.run.state()) == {"customers", "ratings"}


# ---------------------------------------------------------------- cycles


@pytest.mark.parametrize("operator", ["meshjoin", "ssbj"])
def test_a_row_is_answered_within_so_many_batches(operator):
    """Each of the three rows is a segment: one is read in each call, and a row waits until it met all."""
    slow = table_of("id city\n1 Rome\n2 Oslo\n3 Bari", cycle_batches=3)
    story = Story(slow, operator=operator, segment_bytes=1)
    found = [story.push("id item\n1 tea\n2 rice\n3 soap")]
    assert story.run.waiting == 3
    found += [story.tick(), story.tick()]
    assert sorted(row for each in found for row in each) == [
        (1, "tea", "Rome"),
        (2, "rice", "Oslo"),
        (3, "soap", "Bari"),
    ]
    assert [len(each) for each in found] == [1, 1, 1]
    assert story.run.waiting == 0


def test_in_order_a_row_waits_for_its_own_segment_only():
    slow = table_of("id city\n1 Rome\n2 Oslo\n3 Bari", cycle_batches=3)
    story = Story(slow, segment_bytes=1)
    story.push("id item\n1 tea\n2 rice\n3 soap")
    assert story.run.waiting == 2
    story.tick()
    assert story.run.waiting == 1
    assert len(story.finish()) == 1  # and what is left comes at the end
    assert story.run.waiting == 0


# ---------------------------------------------------------------- versions


def test_rows_finish_with_the_version_they_began_with():
    """Tea waits for Rome, of the first version, while figs meets the second."""

    def told(text, version):
        return table_of(text, cycle_batches=3, version=version, columns=["city", "_version"])

    story = Story(told("id city\n1 Rome\n2 Oslo\n3 Bari", "may"), operator="meshjoin", segment_bytes=1)
    found = story.push("id item\n1 tea\n2 rice\n3 soap")
    found += story.refresh(told("id city\n1 Paris", "june"))
    assert story.versions() == ["may", "june"]
    found += story.push("id item\n1 figs")
    assert sorted(found) == [
        (1, "figs", "Paris", "0002-june"),
        (1, "tea", "Rome", "0001-may"),
        (2, "rice", "Oslo", "0001-may"),
        (3, "soap", "Bari", "0001-may"),
    ]
    assert story.versions() == ["june"]


def test_refresh_sees_that_a_folder_has_changed(tmp_path):
    source, staged = tmp_path / "customers", tmp_path / "staged"
    source.mkdir()
    pq.write_table(table(schema(CUSTOMERS), "id city\n1 Rome"), source / "a.parquet")
    customers = sj.table(source, name="customers", key="id", memory="1 MB")
    story = Story(customers, folder=staged)
    assert story.push("id item\n1 tea\n2 rice") == [(1, "tea", "Rome")]

    before = story.versions()
    story.refresh()
    assert story.versions() == before  # nothing is new

    pq.write_table(table(schema(CUSTOMERS), "id city\n2 Oslo"), source / "b.parquet")
    assert story.push("id item\n2 figs") == NOTHING  # not before it is refreshed
    story.refresh()
    assert story.push("id item\n1 tea\n2 rice") == [(1, "tea", "Rome"), (2, "rice", "Oslo")]
    assert [path.name[:5] for path in (staged / "enrich" / "customers").glob("0*")] == ["0002-"]


def test_refresh_sees_that_a_database_has_changed(tmp_path):
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        shop.execute("CREATE TABLE customers (id INTEGER, city TEXT)")
        shop.execute("INSERT INTO customers VALUES (1, 'Rome')")
        shop.commit()
        source = sj.sqlite(tmp_path / "shop.db", table="customers")
        story = Story(sj.table(source, name="customers", key="id", memory="1 MB"))
        assert story.push("id item\n1 tea\n2 rice") == [(1, "tea", "Rome")]
        shop.execute("INSERT INTO customers VALUES (2, 'Oslo')")
        shop.commit()
        story.refresh()
        assert story.push("id item\n1 tea\n2 rice") == [(1, "tea", "Rome"), (2, "rice", "Oslo")]


def test_a_label_says_which_content_it_is():
    """The same label is the same version, whatever the table holds now."""
    story = Story(table_of("id city\n1 Rome", version="may"))
    story.refresh(table_of("id city\n1 Paris", version="may"))
    assert story.push("id item\n1 tea") == [(1, "tea", "Rome")]
    story.refresh(table_of("id city\n1 Paris", version="june"))
    assert story.push("id item\n1 tea") == [(1, "tea", "Paris")]
    assert "0002-june is staged; labelled 'june'" in story.run.explain()


def test_another_table_is_another_join():
    story = Story(table_of("id city\n1 Rome"))
    with pytest.raises(
        sj.InvalidJoin, match="another key, columns or options than in this join; change only"
    ):
        story.refresh(table_of("id town\n1 Rome", "id town:str"))
    with pytest.raises(sj.InvalidJoin, match="this join has no table ratings; refresh one of customers"):
        story.refresh(table_of("id stars\n1 5", "id stars", name="ratings"))


# ---------------------------------------------------------------- waiting for a table row that comes late

TIMED = {"time": "t", "lateness": "2 seconds"}


def timed_orders():
    return stream("orders", "id item:str t:time", **TIMED)


def test_a_row_waits_for_a_table_row_that_comes_late():
    def known(text, version):
        return table_of(text, version=version, wait="10 seconds", how="left")

    story = Story(known("id city\n1 Rome", "8:00"), orders=timed_orders())
    assert story.push("id item t\n1 tea 100\n2 rice 100\n3 soap 103") == [(1, "tea", 100, "Rome")]
    assert (story.run.in_waiting_room, story.run.waiting) == (2, 0)
    assert story.refresh(known("id city\n1 Rome\n2 Oslo", "8:05")) == [(2, "rice", 100, "Oslo")]
    assert story.run.in_waiting_room == 1
    assert story.push("id item t\n1 figs 115") == [(1, "figs", 115, "Rome")]  # 115 - 2 = 103 + 10
    assert story.push("id item t\n1 dates 116") == [(1, "dates", 116, "Rome"), (3, "soap", 103, None)]
    assert story.run.in_waiting_room == 0
    assert story.refresh(known("id city\n3 Bari", "8:10")) == NOTHING
    assert story.run.counters()["retried"] == 2


def test_at_the_end_nobody_waits():
    story = Story(table_of("id city\n1 Rome", wait="10 seconds", how="left"), orders=timed_orders())
    assert story.push("id item t\n3 soap 103") == NOTHING
    assert story.finish() == [(3, "soap", 103, None)]
    assert story.run.in_waiting_room == 0


def test_a_row_without_a_time_does_not_wait():
    story = Story(table_of("id city\n1 Rome", wait="10 seconds", how="left"), orders=timed_orders())
    assert story.push("id item t\n4 salt -") == [(4, "salt", None, None)]
    assert story.push("id item t\n3 soap 103\n4 salt -") == [(4, "salt", None, None)]
    assert story.run.in_waiting_room == 1


# ---------------------------------------------------------------- stop and go on


def test_a_run_goes_on_from_its_snapshot(tmp_path):
    """What waits, what is in the room and what was counted; the version it began with is still there."""
    options = {"cycle_batches": 3, "wait": "10 seconds", "how": "left"}
    first = table_of("id city\n1 Rome\n2 Oslo\n3 Bari", version="may", **options)
    told = {"orders": timed_orders(), "folder": tmp_path, "operator": "meshjoin", "segment_bytes": 1}
    story = Story(first, **told)
    found = story.push("id item t\n1 tea 100\n2 rice 100\n9 soap 103")
    assert story.run.waiting == 3
    snapshot = story.run.snapshot()

    second = table_of("id city\n9 Kyiv", version="june", **options)
    story = Story(second, **told, snapshot=snapshot)  # it is june now: that is staged when the run begins
    assert story.versions() == ["may", "june"]
    assert story.run.waiting == 3
    for _ in range(4):
        found += story.tick()
    assert sorted(found) == [(1, "tea", 100, "Rome"), (2, "rice", 100, "Oslo"), (9, "soap", 103, "Kyiv")]
    assert story.run.counters()["orders_rows"] == 3


def test_the_versions_of_the_last_snapshot_are_kept(tmp_path):
    story = Story(table_of("id city\n1 Rome", version="may"), folder=tmp_path)
    snapshot = story.run.snapshot()
    story.refresh(table_of("id city\n1 Paris", version="june"))
    story.push("id item\n1 tea")
    again = Story(table_of("id city\n1 Rome", version="may"), folder=tmp_path, snapshot=snapshot)
    assert again.push("id item\n1 tea") == [(1, "tea", "Rome")]


def test_a_snapshot_of_another_join_is_refused(tmp_path):
    snapshot = Story(table_of("id city\n1 Rome", version="may"), folder=tmp_path).run.snapshot()
    with pytest.raises(sj.StateFormatError, match=r"cannot go on from its state: how= was "):
        Story(table_of("id city\n1 Rome", version="may", how="left"), folder=tmp_path, snapshot=snapshot)
    with pytest.raises(sj.StateFormatError, match="of a join with customers, not with towns; go on with the"):
        Story(table_of("id city\n1 Rome", name="towns"), folder=tmp_path, snapshot=snapshot)


# ---------------------------------------------------------------- bad input


def test_a_table_that_is_not_there(tmp_path):
    with pytest.raises(sj.InvalidJoin, match=r"table 'customers': .*gone is not there; give the"):
        sj.table(tmp_path / "gone", name="customers", key="id", memory="1 MB")
    with pytest.raises(sj.InvalidJoin, match="table 'customers': a int is no table; give the path of"):
        sj.table(5, name="customers", key="id", memory="1 MB")
    customers = tmp_path / "customers.parquet"
    pq.write_table(table(schema(CUSTOMERS), "id city\n1 Rome"), customers)
    story = Story(sj.table(customers, name="customers", key="id", memory="1 MB"))
    customers.unlink()
    with pytest.raises(sj.InvalidJoin, match=r"customers\.parquet is not there; give the path"):
        story.refresh()
    assert story.push("id item\n1 tea") == [(1, "tea", "Rome")]  # the version that is staged is still good


@pytest.mark.parametrize("text", ["id city", "id city\n- Rome"], ids=["no rows", "no keys"])
def test_an_empty_table_is_warned_of_and_joined(text):
    with pytest.warns(
        sj.EmptyTable, match=r"table 'customers', version .* has no rows with a key: no row of "
    ):
        story = Story(table_of(text, how="left"))
    assert story.push("id item\n1 tea") == [(1, "tea", None)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        story.refresh(table_of("id city\n1 Rome", how="left"))
    assert story.push("id item\n1 tea") == [(1, "tea", "Rome")]


def test_a_key_column_that_is_not_there_or_of_another_type():
    with pytest.raises(sj.InvalidJoin, match="key column 'cid' does not exist; its columns are id, city"):
        table_of("id city\n1 Rome", key="cid")
    with pytest.raises(sj.InvalidJoin, match=r"\(orders.id int64, customers.id string\); cast one of them"):
        Story(table_of("id city\n1 Rome", "id:str city:str", key="id"))


def test_memory_that_is_too_small_is_refused_with_the_minimum():
    many = "id city\n" + "\n".join(f"{i} Rome" for i in range(100))
    with pytest.raises(
        sj.InvalidJoin, match=r"memory=1,000 bytes is too small: it needs ([0-9,]+), twice"
    ) as told:
        Story(table_of(many, memory=1000))
    least = int(str(told.value).partition("it needs ")[2].partition(", twice")[0].replace(",", ""))
    assert Story(table_of(many, memory=least)).push("id item\n7 tea") == [(7, "tea", "Rome")]


def test_a_staged_version_that_was_deleted_by_hand(tmp_path):
    """A clear failure for who needs it; a run that begins anew stages it again."""
    customers = table_of("id city\n1 Rome", version="may")
    story = Story(customers, folder=tmp_path)
    snapshot = story.run.snapshot()
    shutil.rmtree(tmp_path / "enrich" / "customers" / "0001-may")
    gone = r"table 'customers', version 0001-may: .* is not there; restore the folder of this version"
    with pytest.raises(sj.StateFormatError, match=gone):
        story.push("id item\n1 tea")
    with pytest.raises(
        sj.BadInput, match="the last batch of this run failed before its end; go on from a sna"
    ):
        story.push("id item\n1 tea")
    with pytest.raises(sj.StateFormatError, match=gone):
        Story(customers, folder=tmp_path, snapshot=snapshot)
    assert Story(customers, folder=tmp_path).push("id item\n1 tea") == [(1, "tea", "Rome")]


def test_what_is_pushed_is_checked():
    story = Story(table_of("id city\n1 Rome"))
    with pytest.raises(sj.InvalidJoin, match="this join has no stream 'customers'; push rows of orders"):
        story.run.push("customers", pa.table({}))
    with pytest.raises(sj.BadInput, match="the pushed table has no column 'item'"):
        story.run.push("orders", pa.table({"id": [1]}))
    assert story.run.counters()["orders_rows"] == 0
