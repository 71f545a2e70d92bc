"""The verb `enrich` and the declaration `table`: a stream joined with tables (a semi-stream join).

Nothing happens until the join is started, by `local()` in this process or on Spark; then each table is
staged, once for each version.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

import pyarrow as pa

from streamjoin.declare.durations import Duration, duration_us
from streamjoin.declare.short_lists import few
from streamjoin.declare.stream import Stream, column_names
from streamjoin.declare.table import How, Table
from streamjoin.enrich.segments import StagedVersion
from streamjoin.enrich.tables.files import table_source
from streamjoin.errors import BadInput, InvalidJoin, LimitExceeded
from streamjoin.join.strategies.spill import size_bytes
from streamjoin.local.enrich import EnrichRun, content_of, expected, is_frame
from streamjoin.plan.cost import Rate
from streamjoin.plan.enrich.explain import explained
from streamjoin.plan.enrich.planner import EnrichOptions, EnrichPlan, plan_enrich

if TYPE_CHECKING:
    from streamjoin.spark import DataFrame, StreamingQuery

Sink: TypeAlias = "Callable[[DataFrame, int], None]"


def table(
    source: Any,
    *,
    name: str,
    key: str | Sequence[str],
    memory: int | str,
    cycle_batches: int = 1,
    columns: str | Sequence[str] | None = None,
    version: str | None = None,
    wait: Duration | None = None,
    how: How = "inner",
) -> Table:
    """Declare a table that enriches a stream, however large it is.

    `source` is the path of a Parquet or Arrow file or folder, a `pyarrow.Table`, a Spark DataFrame (not a
    streaming one), `sj.postgresql(…)`, `sj.sqlite(…)`, or any object with the methods of `sj.TableSource`.
    `memory` is what the join may take for it, over all buckets. Each stream row is answered within
    `cycle_batches` micro-batches. `version` labels the table's present content; where it is left out the
    source tells whether it is new. With `wait`, a row without a match waits so long, in event time, for a
    table row that comes late. `how="left"` keeps stream rows without a match. "_version" among the `columns`
    adds the column `<name>_version` to the result.

    >>> import pyarrow as pa
    >>> import streamjoin as sj
    >>> rows = pa.table({"id": [1, 2], "city": ["Rome", "Oslo"]})
    >>> customers = sj.table(rows, name="customers", key="id", memory="64 MB")
    >>> customers.payload
    ('city',)
    """
    said = f"table {name!r}"
    schema, checked = _schema_and_source(source, name)
    return Table(
        name,
        schema,
        column_names(key, f"{said}: key"),
        size_bytes(memory, what=f"{said}: memory"),
        cycle_batches,
        None if columns is None else column_names(columns, f"{said}: columns"),
        version,
        None if wait is None else duration_us(wait, what=f"{said}: wait"),
        how,
        checked,
    )


def enrich(
    stream: Stream,
    *tables: Table,
    where: Any = None,
    name: str = "enrich",
    operator: Literal["ssbj", "meshjoin"] | None = None,
    buckets: int | None = None,
    access: Literal["auto", "scan", "lookup"] = "auto",
    switching_factor: float = 1.0,
) -> Enriched:
    """Give each row of a stream the columns of its row in one or more tables, matched by key position.

    Several tables are joined one after another, each on the stream's key. `where` is a further condition on
    the joined row, as in the ON clause of SQL: a left join pads rows for which no table row fulfils it. It is
    SQL text, a pyarrow expression or a list of them; of several tables a mapping by their names. `name` is
    that of the metrics and the state. `operator` runs it as a paper does, for comparison: "ssbj" or
    "meshjoin". `buckets` is how many parts of the key space work in parallel on Spark. `access` is how
    rows are found that are not cached: "scan" reads segments whole, "lookup" finds single keys, "auto" does
    what costs less. A value is cached from the number of waiting rows on that take `switching_factor` times
    the memory of its table rows: the SSBJ paper's factor, and its best is 1. How a table is read, cached and
    versioned is said where it is declared, in `sj.table`.

    >>> import pyarrow as pa
    >>> import streamjoin as sj
    >>> orders = sj.stream(
    ...     pa.schema({"customer": pa.int64(), "item": pa.string()}), name="orders", key="customer"
    ... )
    >>> rows = pa.table({"id": [1, 2], "city": ["Rome", "Oslo"]})
    >>> run = sj.enrich(orders, sj.table(rows, name="customers", key="id", memory="64 MB")).local()
    >>> run.push("orders", pa.table({"customer": [2, 3], "item": ["rice", "soap"]})).to_pylist()
    [{'customer': 2, 'item': 'rice', 'city': 'Oslo'}]
    """
    return Enriched(
        plan_enrich(stream, tables, EnrichOptions(name, operator, buckets, where, access, switching_factor))
    )


def _schema_and_source(source: Any, name: str) -> tuple[pa.Schema, Any]:
    said = f"table {name!r}"
    if is_frame(source):
        from streamjoin.spark.frame import arrow_schema
        from streamjoin.spark.session import check_connect

        check_connect(source, name)
        if source.isStreaming:
            raise InvalidJoin(
                f"{said} is a streaming DataFrame; declare it with sj.stream(…), or read it with spark.read"
            )
        return arrow_schema(source), source
    if isinstance(source, str) and "://" in source:
        raise InvalidJoin(
            f"{said}: {source!r} is no path of this machine; give the DataFrame that spark.read makes of it"
        )
    try:
        return table_source(source).schema(), source
    except (InvalidJoin, BadInput) as error:
        raise type(error)(f"{said}: {error}") from error


def _staged(plan: EnrichPlan, checkpoint: str | None) -> StagedVersion | None:
    """The newest version beside a checkpoint, if there is one."""
    if checkpoint is None:
        return None
    from streamjoin.spark.enrich_frame import staged_beside

    return staged_beside(checkpoint, plan).latest()


@dataclass(frozen=True, repr=False)
class Enriched:
    """A stream with its tables, planned and checked; start it where the data is.

    >>> import pyarrow as pa
    >>> import streamjoin as sj
    >>> orders = sj.stream(pa.schema({"id": pa.int64()}), name="orders", key="id")
    >>> rows = pa.table({"id": [1, 2], "city": ["Rome", "Oslo"]})
    >>> enriched = sj.enrich(orders, sj.table(rows, name="customers", key="id", memory="64 MB"))
    >>> print(enriched.explain())
    enrich: orders ⋈ customers, a stream and a table
      inner join on orders.id = customers.id (int64)
      result: id, city
      customers: the Arrow table, 2 rows, about 72 bytes (guessed from its columns)
    ...
    """

    plan: EnrichPlan

    def __repr__(self) -> str:
        first = self.plan.chain[0].stream
        tables = [plan.table.name for plan in self.plan.chain]
        names = few([first.name, *tables], " ⋈ ")
        on, emits = ", ".join(first.key), few(self.plan.spec.output.names)
        return f"<Enriched {self.plan.name}: {names} on {on} → {emits}>"

    def explain(
        self,
        *,
        rates: Mapping[str, Rate | float] | None = None,
        checkpoint: str | None = None,
        format: Literal["text", "json"] = "text",  # noqa: A002  # as Spark's own explain calls it
    ) -> str:
        """What is joined, how memory is divided, what is looked up or scanned, and how long a row waits.

        With the `checkpoint` of a query on Spark, by the figures of the versions that are staged beside it.
        With `rates`, the stream's rows per second by its name (or a `Rate` that says also how large a row
        is), the memory for that rate and the rate for the memory, by a cost model that is first calibrated
        on this machine: a few seconds.
        """
        contents = {
            plan.table.name: content_of(plan.table.source, _staged(plan, checkpoint))
            for plan in self.plan.chain
        }
        return explained(self.plan, contents, format, expected(self.plan, rates))

    def local(self, *, folder: str | Path | None = None, snapshot: bytes | None = None) -> EnrichRun:
        """Run in this process, with tables staged in `folder`; with a `snapshot`, go on from it.

        Without a folder they are staged in a temporary one, which goes with the run; a snapshot needs the
        folder it was made in.

        >>> import tempfile
        >>> import pyarrow as pa
        >>> import streamjoin as sj
        >>> orders = sj.stream(pa.schema({"id": pa.int64()}), name="orders", key="id")
        >>> rows = pa.table({"id": [1, 2], "city": ["Rome", "Oslo"]})
        >>> enriched = sj.enrich(orders, sj.table(rows, name="customers", key="id", memory="64 MB"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     stopped = enriched.local(folder=folder).snapshot()
        ...     run = enriched.local(folder=folder, snapshot=stopped)
        ...     run.push("orders", pa.table({"id": [2]})).to_pylist()
        [{'id': 2, 'city': 'Oslo'}]
        """
        for plan in self.plan.chain:
            if is_frame(plan.table.source):
                raise InvalidJoin(
                    f"table {plan.table.name!r} is a Spark DataFrame, which this process cannot read; "
                    "use write(…) or dataframe(…), or give the path of its files"
                )
        return EnrichRun(self.plan, folder=folder, snapshot=snapshot)

    def dataframe(self, *, checkpoint: str) -> DataFrame:
        """The result rows, as an ordinary (streaming) DataFrame.

        `checkpoint` is the folder that you give to `writeStream` too: the table is staged beside it,
        now, if this version of it is not there yet.
        """
        from streamjoin.spark.append_only import append_only
        from streamjoin.spark.enrich_frame import SparkEnrich
        from streamjoin.spark.resume import resumed_enrich

        return append_only(SparkEnrich.of(resumed_enrich(self.plan, checkpoint), checkpoint).dataframe())

    def write(
        self, *, rows: Sink, checkpoint: str, trigger: Mapping[str, Any] | None = None
    ) -> StreamingQuery:
        """Start a streaming query; the sink is `f(batch_df, batch_id)`.

        `trigger` is what `DataStreamWriter.trigger` takes, e.g. `{"availableNow": True}`: then the query
        ends when all rows that are there were answered.
        """
        from streamjoin.spark.enrich_frame import SparkEnrich, write
        from streamjoin.spark.resume import resumed_enrich
        from streamjoin.spark.sinks import check_checkpoint, check_start

        check_start({"rows": rows}, trigger)
        for source in (plan.stream.source for plan in self.plan.chain):
            if source is not None:
                check_checkpoint(source.sparkSession, checkpoint, "write")
        waits = [plan.table.name for plan in self.plan.chain if plan.spec.cycle_batches > 1]
        if waits and "once" in (trigger or {}):
            warnings.warn(
                f"a query of one batch ends while rows wait for {', '.join(waits)} (cycle_batches above 1): "
                'they stay in the checkpoint, unanswered; give trigger={"availableNow": True}',
                stacklevel=2,
            )
        join = SparkEnrich.of(resumed_enrich(self.plan, checkpoint), checkpoint)
        return write(join, rows, checkpoint=checkpoint, trigger=trigger)

    def group_by(self, *columns: str) -> NoReturn:
        """Refused: no key of an enriched stream is ever closed, so no group would be final.

        Group first and enrich the final rows, one lookup a group instead of one a row:

        >>> import pyarrow as pa
        >>> import streamjoin as sj
        >>> orders = sj.stream(pa.schema({"id": pa.int64(), "total": pa.int64()}), name="orders", key="id")
        >>> bills = sj.stream(pa.schema({"id": pa.int64()}), name="bills", key="id", unique=True)
        >>> sums = sj.join(orders, bills).group_by("id").agg(total=("total", "sum"))
        >>> grouped = sj.stream(pa.schema({"id": pa.int64(), "total": pa.int64()}), name="sums", key="id")
        >>> rows = pa.table({"id": [1, 2], "city": ["Rome", "Oslo"]})
        >>> enriched = sj.enrich(grouped, sj.table(rows, name="customers", key="id", memory="64 MB"))
        """
        tables = ", ".join(plan.table.name for plan in self.plan.chain)
        raise InvalidJoin(
            f"groups of {', '.join(map(repr, columns)) or 'an enriched stream'} are never final: no "
            f"punctuation closes a key of {self.plan.name}; group first, as in "
            f"groups = sj.join(…).group_by(…).agg(…), and enrich its rows: "
            f"sj.enrich(sj.stream(groups.dataframe(), …), {tables}); or aggregate each batch that "
            "write(rows=…) gives"
        )

    def refresh(self, *, checkpoint: str) -> list[str]:
        """Look at the table again and stage what is new; returns the ids of the present versions.

        A running query with this checkpoint takes a new version in its next batch.
        """
        from streamjoin.spark.enrich_frame import SparkEnrich

        return [one.id for one in SparkEnrich.versions(self.plan, checkpoint)]

    def run_until_done(
        self, start: Callable[[DataFrame], StreamingQuery], *, checkpoint: str, most: int = 100
    ) -> StreamingQuery:
        """Run a query that ends by itself, again and again, until no row waits for an answer.

        `start` gets the result rows and starts a query with the same checkpoint. One `availableNow` query
        answers all rows by itself; one that was stopped, or of one batch (`once`), may leave some that wait,
        and the next goes on.
        """
        from streamjoin.spark.enrich_frame import waiting_after

        for _ in range(most):
            query = start(self.dataframe(checkpoint=checkpoint))
            query.awaitTermination()
            if waiting_after(query, self.plan) == 0:
                return query
        raise LimitExceeded(
            f"rows still wait after {most} queries; does each begin with trigger(availableNow=True) and "
            "the checkpoint it was given?"
        )
