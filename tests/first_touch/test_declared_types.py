"""A declaration of the wrong type is refused when it is made, on both runtimes alike."""

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import streamjoin as sj
from streamjoin.declare.stream import Stream
from tests.tables import unbounded_is_meant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINES = pa.schema(
    {
        "id": pa.int64(),
        "t": pa.timestamp("us"),
        "qty": pa.int64(),
        "part": pa.int32(),
        "at": pa.int64(),
        "last": pa.bool_(),
    }
)
CONTROL = pa.schema({"id": pa.int64(), "over": pa.timestamp("us")})
CITIES = pa.table({"id": [1], "city": ["Rome"]})
NOTHING = object()
ODD: list[Any] = [NOTHING, 5, 5.5, True, None, b"id", ["id", 1], {"id": 1}, ("x", "y"), "no", "", -1]


def lines(**declared: Any) -> Stream:
    return sj.stream(LINES, **{"name": "lines", "key": "id", **declared})


def cities(**declared: Any) -> Any:
    return sj.table(CITIES, **{"name": "cities", "key": "id", "memory": "64 MB", **declared})


def timed(**declared: Any) -> Stream:
    return lines(time="t", lateness="0 s", **declared)


def join(**options: Any) -> sj.Joined:
    return sj.join(lines(name="a"), lines(name="b"), **options)


# what is declared, and which of the odd values are no mistake there
DECLARATIONS: dict[str, tuple[Any, list[Any]]] = {
    "stream name": (lambda given: lines(name=given), ["no"]),
    "stream key": (lambda given: lines(key=given), []),
    "stream time": (lambda given: lines(time=given), [None]),
    "stream window": (lambda given: timed(window=given), [None]),
    "stream lateness": (lambda given: lines(time="t", lateness=given), [None]),
    "stream idle": (lambda given: timed(idle=given), [None]),
    "stream ttl": (lambda given: timed(ttl=given), [None]),
    "stream unique": (lambda given: lines(unique=given), [True]),
    "stream arrival": (lambda given: lines(arrival=given), [None]),
    "stream sequence": (lambda given: lines(sequence=given), [None]),
    "stream columns": (lambda given: lines(columns=given), [None]),
    "stream punctuation": (lambda given: lines(punctuation=given), [None]),
    "stream on_violation": (lambda given: lines(on_violation=given), []),
    "marked column": (sj.marked, ["no"]),
    "marked null_is_wildcard": (lambda given: sj.marked("last", null_is_wildcard=given), [True]),
    "marked partitions": (lambda given: sj.marked("last", partitions=given), [5]),
    "closing condition": (sj.closing, ["no"]),
    "closing column": (lambda given: lines(punctuation=sj.closing(given)), []),
    "control time": (lambda given: sj.control(CONTROL, time=given), ["no"]),
    "control source": (lambda given: timed(punctuation=sj.control(given, time="over")), []),
    "clustered slack": (lambda given: sj.clustered(slack=given), [5]),
    "ordered slack": (lambda given: sj.ordered(slack=given), [5]),
    "ordered descending": (lambda given: sj.ordered(descending=given), [True]),
    "join name": (lambda given: join(name=given), ["no"]),
    "join how": (lambda given: join(how=given), []),
    "join where": (lambda given: join(where=given), [None]),
    "join goal": (lambda given: join(goal=given), []),
    "join operator": (lambda given: join(operator=given), [None]),
    "join driver": (lambda given: join(driver=given), [None]),
    "join order": (lambda given: join(order=given), [None]),
    "join purge": (lambda given: join(purge=given), [None]),
    "join probe": (lambda given: join(probe=given), [None]),
    "join memory": (lambda given: join(memory=given), [None]),
    "join propagate": (lambda given: join(propagate=given), [True]),
    "join buckets": (lambda given: join(buckets=given), [5, None]),
    "join strict": (lambda given: join(strict=given), []),
    "join keys": (lambda given: join(keys=given), []),
    "join names": (lambda given: join(names=given), []),
    "join null_safe": (lambda given: join(null_safe=given), [True]),
    "join on": (lambda given: join(on=given), [None]),
    "join rates": (lambda given: join(rates=given), [None]),
    "group_by": (lambda given: join().group_by(given).count(), []),
    "quota": (lambda given: sj.Priority(quota=given), [5, None, {"id": 1}]),
    "seed": (lambda given: sj.RandomInput(seed=given), [5, -1]),
    "purge keys": (lambda given: sj.PurgeEvery(given, when_idle=True), [5, None]),
    "purge memory": (lambda given: sj.PurgeEvery(3, memory=given), [5, None]),
    "purge when_idle": (lambda given: sj.PurgeEvery(3, when_idle=given), [True]),
    "spill limit": (sj.SpillAbove, [5]),
    "spill flush": (lambda given: sj.SpillAbove("1 MB", flush=given), []),
    "spill defer": (lambda given: sj.SpillAbove("1 MB", defer=given), [True]),
    "rate": (sj.Rate, [5, 5.5]),
    "rate open_for": (lambda given: sj.Rate(1, open_for=given), [None]),
    "rate row_bytes": (lambda given: sj.Rate(1, row_bytes=given), [5, 5.5, None]),
    "table name": (lambda given: cities(name=given), ["no"]),
    "table key": (lambda given: cities(key=given), []),
    "table memory": (lambda given: cities(memory=given), [5]),
    "table cycle_batches": (lambda given: cities(cycle_batches=given), [5]),
    "table columns": (lambda given: cities(columns=given), [None]),
    "table version": (lambda given: cities(version=given), [None, "no"]),
    "table wait": (lambda given: cities(wait=given), [None]),
    "table how": (lambda given: cities(how=given), []),
    "table source": (lambda given: sj.table(given, name="c", key="id", memory="1 MB"), []),
    "enrich stream": (lambda given: sj.enrich(given, cities()), []),
    "enrich table": (lambda given: sj.enrich(lines(), given), []),
    "enrich name": (lambda given: sj.enrich(lines(), cities(), name=given), ["no"]),
    "enrich operator": (lambda given: sj.enrich(lines(), cities(), operator=given), [None]),
    "enrich buckets": (lambda given: sj.enrich(lines(), cities(), buckets=given), [5, None]),
}


@pytest.mark.parametrize("what", DECLARATIONS)
@pytest.mark.parametrize("given", ODD, ids=lambda given: "object" if given is NOTHING else repr(given))
def test_a_wrong_type_is_refused_when_it_is_declared(what: str, given: Any) -> None:
    declare, meant = DECLARATIONS[what]
    if any(type(given) is type(one) and given == one for one in meant):
        declare(given)
        return
    with pytest.raises(sj.StreamJoinError):
        declare(given)


NO_CONDITIONS = {
    "a number column": ("qty", "int64|bigint"),
    "a number": ("qty + 1", "int|bigint"),
    "a text": ("'x'", "string"),
    "no column": ("end", "end"),
    "no SQL": ("qty >", "cannot be tested"),
}


@pytest.mark.parametrize("case", NO_CONDITIONS)
def test_a_closing_condition_that_is_none_is_refused_locally(case: str) -> None:
    condition, says = NO_CONDITIONS[case]
    with pytest.raises(sj.InvalidJoin, match=rf"stream 'lines': closing\(.*({says})"):
        lines(punctuation=sj.closing(condition))


@pytest.mark.parametrize("expression", [pc.field("qty"), pc.field("end") > 3, pc.field("last") > 3])
def test_a_pyarrow_expression_that_is_no_condition_is_refused(expression: Any) -> None:
    with pytest.raises(sj.InvalidJoin, match="stream 'lines': closing"):
        lines(punctuation=sj.closing(expression))


@unbounded_is_meant
@pytest.mark.parametrize("condition", ["last", "qty = 3", pc.field("qty") == 3])
def test_a_condition_is_a_column_or_sql_or_an_expression(condition: Any) -> None:
    orders = sj.stream(pa.schema({"id": pa.int64()}), name="orders", key="id")
    run = sj.join(orders, lines(punctuation=sj.closing(condition), columns=["qty"])).local()
    rows = {name: pa.nulls(3, LINES.field(name).type) for name in LINES.names}
    rows |= {"id": [1, 1, 2], "qty": [1, 3, 1], "last": [False, True, None]}
    run.push("orders", pa.table({"id": [1, 2]}))
    assert run.push("lines", pa.table(rows, LINES)).num_rows == 3
    assert run.state().rows["orders"] == 1  # order 1 is over


@pytest.mark.spark
def test_on_spark_too(spark: "SparkSession") -> None:
    frame = spark.createDataFrame([], "id long, qty long, last boolean")
    for condition, says in NO_CONDITIONS.values():
        with pytest.raises(sj.InvalidJoin, match=rf"stream 'lines': closing\(.*({says})"):
            sj.stream(frame, name="lines", key="id", punctuation=sj.closing(condition))
    with pytest.raises(sj.InvalidJoin, match="SQL text"):
        sj.stream(frame, name="lines", key="id", punctuation=sj.closing(pc.field("qty") == 3))
    with pytest.raises(sj.InvalidJoin, match="unique is 'no'; give True or False"):
        sj.stream(frame, name="lines", key="id", unique="no")  # type: ignore[arg-type]
    for condition in ("last", "qty = 3", "id = 1 and qty > 3"):
        sj.stream(frame, name="lines", key="id", punctuation=sj.closing(condition))
