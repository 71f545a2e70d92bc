"""The public API of the stream join: `session`, `stream`, `join` and `Joined`.

A join is planned and checked when it is declared. It runs when it is started: by `local()` in this process,
by `dataframe()`, `elements()` or `write()` on Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa

from streamjoin.api.enrich import Enriched
from streamjoin.declare.arrival import Arrival
from streamjoin.declare.closing import Closing
from streamjoin.declare.control import Control
from streamjoin.declare.durations import Duration, duration_us
from streamjoin.declare.punctuation_source import PunctuationSource
from streamjoin.declare.short_lists import few
from streamjoin.declare.stream import OnViolation, Stream, column_names
from streamjoin.declare.table import Table
from streamjoin.declare.upstream import UpstreamJoin, UpstreamTime
from streamjoin.errors import InvalidJoin
from streamjoin.local.chain import run_class
from streamjoin.local.join import LocalRun
from streamjoin.plan.advice import advice
from streamjoin.plan.chain import all_streams, upstream_of, upstream_time
from streamjoin.plan.cost import Rate
from streamjoin.plan.explain import check_format, described, explain
from streamjoin.plan.figures import Figures, figures, joins
from streamjoin.plan.graph.order import plan_edges
from streamjoin.plan.group_by import grouped, number_columns, sparks_names
from streamjoin.plan.planner import JoinOptions, Plan, plan_join
from streamjoin.plan.where.sql_expression import translated
from streamjoin.plan.where.sql_text import NotTranslated

if TYPE_CHECKING:
    from streamjoin.spark import DataFrame, SparkSession, StreamingQuery
    from streamjoin.spark.frame import SparkJoin

Sink: TypeAlias = "Callable[[DataFrame, int], None]"


def session(**settings: Any) -> SparkSession:
    """A local Spark session with the settings that a stream join needs; see `streamjoin.spark.session`.

    >>> spark = session(cores=2)  # doctest: +SKIP
    """
    from streamjoin.spark.session import session as make

    return make(**settings)


def progress(query: Any) -> dict[str, Figures]:
    """The figures of each join of a query in its last micro-batch, by the join's name.

    `query` is a streaming query, or one progress of it (`query.recentProgress`, what a listener gets), as an
    object, a dict or JSON text. docs/metrics.md says what each figure is. Empty before the first batch ends.

    >>> progress({"observedMetrics": {"streamjoin_shop": {"names": "results", "buckets": ["0:3", "2:4"]}}})
    {'shop': {'results': 7}}
    """
    return joins(query.lastProgress if hasattr(query, "lastProgress") else query)


def stream(
    source: Any,
    *,
    name: str,
    key: str | Sequence[str],
    time: str | None = None,
    window: Duration | None = None,
    lateness: Duration | None = None,
    idle: Duration | None = None,
    unique: bool = False,
    arrival: Arrival | None = None,
    sequence: str | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    punctuation: PunctuationSource | None = None,
    on_violation: OnViolation = "drop",
    ttl: Duration | None = None,
) -> Stream:
    """Declare one input of a join and what is known of it.

    `source` is a Spark DataFrame, or a `pyarrow.Schema` for a join that runs in this process, or a join:
    then its results are the rows, and its punctuations are propagated where `key` is its own key. `ttl` is
    a bound of last resort: tuples that are older than that by the stream's watermark expire, whatever they
    could still join, and are counted as `expired`. Where `time` is the time of an input of the join that
    is the source, and that input has a window, the join sends a watermark for it: `lateness` is not needed,
    and ignored.

    >>> import pyarrow as pa
    >>> news = stream(
    ...     pa.schema({"sno": pa.int64(), "title": pa.string()}), name="news", key="sno", unique=True
    ... )
    >>> news.payload
    ('title',)
    """

    def micros(what: str, value: Duration | None) -> int | None:
        return None if value is None else duration_us(value, what=f"stream {name!r}: {what}")

    upstream = None
    if isinstance(source, Joined):
        declared = {"punctuation": punctuation, "arrival": arrival, "sequence": sequence}
        by = upstream_time(source.plan, name, time, micros("lateness", lateness))
        upstream, frame = source._as_input(name, column_names(key, f"stream {name!r}: key"), declared, by)  # noqa: SLF001
        schema = source.plan.spec.emits
    else:
        schema, frame = _schema_and_frame(source, name)
    lateness_us = micros("lateness", lateness)
    if upstream is not None and upstream.time is not None and upstream.time.watermark:
        lateness_us = 0  # below its watermark, and no other row, is late
    if frame is not None and frame.isStreaming and (time is None or lateness_us is None):
        time, lateness_us = _from_watermark(frame, time, lateness_us)
    if isinstance(punctuation, PunctuationSource) and punctuation.control is not None:
        punctuation = _with_schema(punctuation.control, name, on_spark=frame is not None)
    if isinstance(punctuation, Closing) and frame is None:
        punctuation = _as_expression(punctuation, name, schema)
    declared_stream = Stream(
        name,
        schema,
        column_names(key, f"stream {name!r}: key"),
        time,
        micros("window", window),
        lateness_us,
        micros("idle", idle),
        unique,
        arrival,
        () if sequence is None else column_names(sequence, f"stream {name!r}: sequence"),
        None if columns is None else column_names(columns, f"stream {name!r}: columns"),
        punctuation,
        on_violation,
        micros("ttl", ttl),
        upstream=upstream,
        source=frame,
    )
    if frame is not None:
        from streamjoin.spark.columns import check_tests

        check_tests(declared_stream)
    return declared_stream


def _as_expression(given: Closing, name: str, schema: pa.Schema) -> Closing:
    """SQL text over the columns of a local stream as a pyarrow expression."""
    text = given.condition
    if not isinstance(text, str) or text in schema.names:
        return given
    try:
        return replace(given, condition=translated(text, schema, {}))
    except NotTranslated as reason:
        raise InvalidJoin(
            f"stream {name!r}: closing({text!r}) cannot be tested ({reason}); give a boolean column's name, "
            f"or a condition over {', '.join(schema.names)}"
        ) from reason


def _from_watermark(frame: Any, time: str | None, lateness_us: int | None) -> tuple[str | None, int | None]:
    """What was not declared, from a watermark that the DataFrame already has."""
    from streamjoin.spark.watermark import watermark_of

    watermark = watermark_of(frame)
    if watermark is None or time not in (None, watermark.column):
        return time, lateness_us
    return watermark.column, watermark.delay_us if lateness_us is None else lateness_us


def _schema_and_frame(source: Any, name: str) -> tuple[pa.Schema, Any]:
    if isinstance(source, pa.Schema):
        return source, None
    if any(kind.__module__.startswith("pyspark.") for kind in type(source).__mro__):
        from streamjoin.spark.frame import arrow_schema
        from streamjoin.spark.session import check_connect

        check_connect(source, name)
        return arrow_schema(source), source
    if isinstance(source, Enriched):
        raise InvalidJoin(
            f"stream {name!r}: of a join with a table give the results: its dataframe(checkpoint=…), or "
            "locally its plan.spec.output, and push what it gives"
        )
    raise InvalidJoin(
        f"stream {name!r}: give a Spark DataFrame or a pyarrow.Schema, not a {type(source).__name__}"
    )


def _with_schema(control: Control, name: str, *, on_spark: bool) -> Control:
    """A control source with its columns; it must be where its stream is."""
    schema, frame = _schema_and_frame(control.source, f"{name}: control")
    if (frame is not None) != on_spark:
        kinds = ("a Spark DataFrame", "a pyarrow.Schema")
        there, here = kinds if on_spark else kinds[::-1]
        raise InvalidJoin(f"stream {name!r} is {there} and its control source {here}; give {there} for both")
    return replace(control, schema=schema)


def join(
    *inputs: Stream,
    name: str = "join",
    how: str = "inner",
    where: Any = None,
    goal: str = "throughput",
    operator: str | None = None,
    driver: Any = None,
    order: Any = None,
    purge: Any = None,
    probe: Any = None,
    memory: Any = None,
    propagate: bool = True,
    buckets: int | None = None,
    strict: bool = False,
    keys: Literal["once", "each"] = "once",
    names: Literal["short", "qualified"] = "short",
    null_safe: bool = False,
    on: str | Sequence[str] | None = None,
    rates: Mapping[str, Rate | float] | None = None,
) -> Joined:
    """Join two or more streams on their keys, matched by position; or `on` other columns.

    `on="a.x = b.x and b.y = c.y"`, or a list of such equations, joins streams that have no common key: by as
    few operators as possible, one after another in one query, in the order that is estimated to cost least.
    With `how="left"` it keeps every row of the first stream: `a left join (b join c)`.
    `rates` (rows per second by stream, or a `Rate` that says more) makes that estimate better.

    `where` is a further condition on the joined row: SQL text, a pyarrow expression, or a list of them.

    A result has the key once, under the name of the first input. `keys="each"` adds the key columns of each
    input, null where an outer join has no row of it. `names="qualified"` calls every column
    `<input>_<column>`, so that names do not depend on the order of the inputs. `null_safe=True` joins null
    keys with each other (`<=>` in SQL).

    A join whose state nothing bounds starts with a warning (`UnboundedState`), or is refused here where
    `strict` is asked for.

    >>> import pyarrow as pa
    >>> orders = stream(
    ...     pa.schema({"id": pa.int64(), "total": pa.int64()}), name="orders", key="id", unique=True
    ... )
    >>> paid = stream(pa.schema({"id": pa.int64(), "at": pa.int64()}), name="paid", key="id", unique=True)
    >>> run = join(orders, paid).local()
    >>> run.push("orders", pa.table({"id": [1, 2], "total": [30, 40]})).num_rows
    0
    >>> run.push("paid", pa.table({"id": [2], "at": [9]})).to_pylist()
    [{'id': 2, 'total': 40, 'at': 9}]
    >>> run.state().rows
    {'orders': 1, 'paid': 0}
    """
    options = JoinOptions(
        name,
        how,
        where,
        goal,
        operator,
        driver,
        order,
        purge,
        probe,
        memory,
        propagate,
        buckets,
        strict,
        keys,
        names,
        null_safe,
    )
    _refuse_tables(inputs)
    if on is not None and (keys, null_safe) != ("once", False):
        raise InvalidJoin("keys= and null_safe= are for joins on one common key; leave them or on= out")
    if on is None and rates is not None:
        raise InvalidJoin("rates= helps to order the operators of a join with on=; give it to explain()")
    plan = plan_join(inputs, options) if on is None else plan_edges(inputs, on, options, rates, _lifted)
    if plan.filter_on_spark is not None:
        from streamjoin.spark.frame import check_filter

        check_filter(plan)
    return Joined(plan)


def _refuse_tables(inputs: Sequence[Any]) -> None:
    tables = [one.name for one in inputs if isinstance(one, Table)]
    if tables:
        others = [one.name for one in inputs if isinstance(one, Stream)]
        stream = others[0] if len(others) == 1 else "stream"
        raise InvalidJoin(
            f"{', '.join(tables)}: sj.join joins streams, not tables; use sj.enrich({stream}, "
            f"{', '.join(tables)}){'' if len(others) < 2 else ' with the joined streams as its stream'}"
        )


def _lifted(plan: Plan, key: tuple[str, ...]) -> tuple[UpstreamJoin, Any]:
    """The results of a lower operator as an input of the next one."""
    declared = {"punctuation": None, "arrival": None, "sequence": None}
    return Joined(plan)._as_input(plan.options.name, key, declared)  # noqa: SLF001


@dataclass(frozen=True, repr=False)
class Joined:
    """A join that was planned and checked; start it where the data is.

    >>> import pyarrow as pa
    >>> a, b = (stream(pa.schema({"k": pa.int64()}), name=name, key="k", unique=True) for name in "ab")
    >>> joined = join(a, b)
    >>> joined.plan.spec.emits.names
    ['k']
    """

    plan: Plan

    def __repr__(self) -> str:
        emits = [name for name in self.plan.spec.emits.names if name not in self.plan.spec.stamps]
        return f"<Joined {_in_a_line(self.plan)} → {few(emits)}>"

    def explain(
        self,
        *,
        rates: Mapping[str, Rate | float] | None = None,
        after: Duration = "1 day",
        format: Literal["text", "json"] = "text",  # noqa: A002  # as Spark's own explain calls it
    ) -> str:
        """The plan, its reasons, and what bounds the state of each input; with `rates`, the predicted state.

        `rates` gives for each input by name its rows per second, or a `Rate` that says more; the state size
        is predicted for the time `after` the start.

        >>> import pyarrow as pa
        >>> a, b = (stream(pa.schema({"k": pa.int64()}), name=name, key="k", unique=True) for name in "ab")
        >>> [line for line in join(a, b).explain().splitlines() if line.endswith("bounded")]
        ['  a: bounded', '  b: bounded']
        """
        check_format(format)
        if format == "json":
            return json.dumps(described(self.plan, rates, after), ensure_ascii=False, indent=2)
        return explain(self.plan, rates, after)

    def advice(self, metrics: Any) -> list[str]:
        """Sentences on declarations that the data violates, declarations that it would satisfy, and a state
        that is not as predicted.

        `metrics` are the figures of a micro-batch, as `progress(query)["<name>"]` gives them.

        >>> import pyarrow as pa
        >>> a, b = (stream(pa.schema({"k": pa.int64()}), name=name, key="k", unique=True) for name in "ab")
        >>> join(a, b).advice({"a_duplicate_key": 3})
        ['a: 3 rows repeat a key that is declared unique (duplicate_key)']
        """
        found = figures(metrics)
        return advice(self.plan.streams, found | (found.get("monitor") or {}))

    def group_by(self, *columns: str) -> GroupedBy:
        """Aggregate results by the join's key (and further columns): `.agg(name=(column, function), …)`.

        >>> import pyarrow as pa
        >>> a, b = (stream(pa.schema({"k": pa.int64()}), name=name, key="k", unique=True) for name in "ab")
        >>> join(a, b).group_by("k").agg(n=("*", "count")).plan.spec.emits.names
        ['k', 'n']
        """
        return GroupedBy(self.plan, columns)

    def local(self, *, snapshot: bytes | None = None) -> LocalRun:
        """Run in this process; with a `snapshot`, go on from it.

        >>> import pyarrow as pa
        >>> a, b = (stream(pa.schema({"k": pa.int64()}), name=name, key="k", unique=True) for name in "ab")
        >>> joined = join(a, b)
        >>> run = joined.local()
        >>> run.push("a", pa.table({"k": [1, 2]})).num_rows
        0
        >>> joined.local(snapshot=run.snapshot()).push("b", pa.table({"k": [2]})).to_pylist()
        [{'k': 2}]
        """
        return run_class(self.plan)(self.plan, snapshot=snapshot)

    def dataframe(self, *, checkpoint: str | None = None) -> DataFrame:
        """The result rows, as an ordinary (streaming) DataFrame, to be written in append mode.

        With the `checkpoint` that you give to `writeStream` too, a restart keeps the number of buckets, and
        one that cannot go on from the checkpoint is refused here.

        >>> query = joined.dataframe().writeStream.format("noop").start()  # doctest: +SKIP
        """
        from streamjoin.spark.append_only import append_only

        return append_only(self._on_spark(checkpoint).dataframe())

    def elements(self, *, checkpoint: str | None = None) -> DataFrame:
        """Rows, punctuations and violations as one tagged DataFrame.

        `_kind` is row, punctuation or violation; `_punctuation` is its text, `_input` and `_reason` are those
        of a violation. Where a result has a column of such a name, all four have underscores before them.
        `checkpoint` is that of `dataframe`.

        >>> violations = joined.elements().where("_kind = 'violation'")  # doctest: +SKIP
        """
        from streamjoin.spark.append_only import append_only
        from streamjoin.spark.outputs import Packed

        wired = self._on_spark(checkpoint)
        return append_only(wired.elements(wired.emitted(Packed())))

    def write(
        self,
        *,
        rows: Sink | None = None,
        punctuations: Sink | None = None,
        violations: Sink | None = None,
        checkpoint: str,
        trigger: Mapping[str, Any] | None = None,
    ) -> StreamingQuery:
        """Start a streaming query; each sink is `f(batch_df, batch_id)`, each batch computed once.

        `trigger` is what `DataStreamWriter.trigger` takes, e.g. `{"availableNow": True}`.

        >>> results = []
        >>> def collect(batch_df, batch_id):
        ...     results.extend(batch_df.collect())
        >>> query = joined.write(rows=collect, checkpoint=folder)  # doctest: +SKIP
        """
        from streamjoin.spark.sinks import write

        sinks = {"rows": rows, "punctuations": punctuations, "violations": violations}
        return write(self._on_spark(), sinks, checkpoint=checkpoint, trigger=trigger)

    def _as_input(
        self, name: str, key: tuple[str, ...], declared: dict[str, Any], time: UpstreamTime | None = None
    ) -> tuple[UpstreamJoin, Any]:
        """The declarations that a stream of its results inherits, and on Spark the DataFrame of them."""
        timed_by = time.number if time is not None and time.watermark else None
        plan = replace(self.plan, spec=replace(self.plan.spec, feeds_join=True, timed_by=timed_by))
        if all(stream.source is None for stream in plan.streams):
            return replace(upstream_of(plan, name, key, declared), time=time), None
        from streamjoin.spark.chain import forward

        wired = Joined(plan)._on_spark()  # noqa: SLF001
        upstream = upstream_of(plan, name, key, declared, buckets=wired.spec.buckets)
        return replace(upstream, time=time), forward(wired, keys=upstream.key_positions is not None)

    def _on_spark(self, checkpoint: str | None = None) -> SparkJoin:
        without = [stream.name for stream in self.plan.streams if stream.source is None]
        if without:
            raise InvalidJoin(
                f"{', '.join(without)} was declared with a schema, not a DataFrame; "
                "use local(), or declare it with a DataFrame"
            )
        from streamjoin.spark.frame import SparkJoin

        join = SparkJoin.of(self.plan)
        if checkpoint is None:
            return join
        from streamjoin.spark.resume import resumed
        from streamjoin.spark.sinks import check_checkpoint

        check_checkpoint(join.spark, checkpoint, "dataframe")
        return resumed(join, checkpoint)


def _in_a_line(plan: Plan) -> str:
    """The name, the inputs and the key of a join."""
    spec = plan.spec
    streams = plan.streams
    if plan.steps:  # of several operators: the inputs of all, not the results between them
        streams = tuple(one for one in all_streams(plan.streams) if one.upstream is None)
    names = [one.name for one in streams]
    on = "" if len(plan.steps) > 1 else f" on {', '.join(spec.key_names)}"
    how = "" if spec.how.name == "inner" else f" ({spec.how.name})"
    return f"{spec.name}: {few(names[::-1] if spec.how.reversed else names, ' ⋈ ')}{on}{how}"


@dataclass(frozen=True, repr=False)
class GroupedBy:
    """The results of a join by group; `agg`, `count`, `sum`… say how to aggregate them, as in Spark.

    >>> import pyarrow as pa
    >>> item, bid = (
    ...     stream(pa.schema({"item": pa.int64(), name: pa.int64()}), name=name, key="item", unique=once)
    ...     for name, once in (("opened", True), ("price", False))
    ... )
    >>> groups = join(item, bid).group_by("item")
    >>> groups.count().plan.spec.emits.names, groups.max("price").plan.spec.emits.names
    (['item', 'count'], ['item', 'max(price)'])
    """

    plan: Plan
    columns: tuple[str, ...]

    def __repr__(self) -> str:
        return (
            f"<GroupedBy {_in_a_line(self.plan)} by {', '.join(map(str, self.columns))}; .agg(…) or .count()>"
        )

    def agg(self, functions: Mapping[str, str] | None = None, /, **aggregates: tuple[str, ...]) -> Joined:
        """A join that emits, in place of its rows, one row per group as soon as its key is closed.

        Each aggregate is a column and a function: count, sum, min, max, avg, first, last, collect, or
        min_by or max_by and the column that decides; `("*", "count")` counts rows. `first` and `last` go by
        event time. Or a mapping of columns to functions, whose names are then Spark's.

        >>> import pyarrow as pa
        >>> item, bid = (
        ...     stream(pa.schema({"item": pa.int64(), name: pa.int64()}), name=name, key="item", unique=once)
        ...     for name, once in (("opened", True), ("price", False))
        ... )
        >>> groups = join(item, bid).group_by("item")
        >>> groups.agg(n=("*", "count"), winner=("opened", "max_by", "price")).plan.spec.emits.names
        ['item', 'n', 'winner']
        >>> groups.agg({"price": "max", "*": "count"}).plan.spec.emits.names
        ['item', 'max(price)', 'count(1)']
        """
        return Joined(grouped(self.plan, self.columns, {**sparks_names(functions), **aggregates}))

    def count(self) -> Joined:
        """How many rows each group has, in a column `count`."""
        return self.agg(count=("*", "count"))

    def sum(self, *columns: str) -> Joined:
        """The sum of each column, of all that are numbers where none is named."""
        return self._each("sum", columns)

    def avg(self, *columns: str) -> Joined:
        """The average of each column, of all that are numbers where none is named."""
        return self._each("avg", columns)

    mean = avg

    def min(self, *columns: str) -> Joined:
        """The least value of each column, of all that are numbers where none is named."""
        return self._each("min", columns)

    def max(self, *columns: str) -> Joined:
        """The greatest value of each column, of all that are numbers where none is named."""
        return self._each("max", columns)

    def _each(self, function: str, columns: Sequence[str]) -> Joined:
        chosen = columns or number_columns(self.plan, function)
        return self.agg(dict.fromkeys(chosen, function))
