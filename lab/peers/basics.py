"""The basic joins beside the peers: two-way, interval, three-way, lookup, and the scan of their files.

Every engine reads the same files in the same run, each in processes of its own, one after the other. Rows/s
are rows read by the seconds of the whole job, start-up apart. An engine that fails or answers wrongly has no
number: a claim against it stays open, and the figure's notes say why.

Cost: 15 to 45 s an engine and work in the quick form (3 batches), up to a minute in the full one (5 batches).
The quick form leaves out engines, and no claim is judged by it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from lab.contenders.protocol import WEIGHTS, Failed, Measured, run_contender
from lab.contenders.spark_contender import Engine
from lab.experiment import Claim, Statement
from lab.peers import nexmark, works
from lab.peers.basic_queries import BasicQuery
from lab.peers.environments import BYTEWAX, flink, flink_with_jdbc, python_of
from lab.peers.flink import Backend, Flink, run_flink, run_query
from lab.peers.flink_sql import JOBS, FlinkQuery
from lab.peers.postgres import Server
from lab.peers.works import Checked, scan_sql
from lab.report.figures import Context, Figure, ReportPart, Table
from streamjoin.plot import Bars, Chart, Picture

BATCHES, QUICK_BATCHES = 5, 3
_TIMEOUT_S = 300.0
_ISSUE = "issue 8"
Found = Measured | Failed
Contender = Callable[[Checked], Found]
LABELS: Mapping[str, str] = {
    "streamjoin": "this library",
    "spark-rocksdb": "Spark, RocksDB",
    "spark-heap": "Spark, heap",
    "flink-rocksdb": "Flink, RocksDB",
    "flink-heap": "Flink, heap",
    "flink-rocksdb-multi": "Flink multi-way, RocksDB",
    "flink-heap-multi": "Flink multi-way, heap",
    "bytewax": "bytewax",
}
_BY = "rows/s in multiples of"
SPARK_TWO_WAY = Statement(
    "basics-two-way-spark", f"two-way: {_BY} Spark's own join on RocksDB", _ISSUE, ">=", 3, "times"
)
FLINK_TWO_WAY = Statement(
    "basics-two-way-flink", f"two-way: {_BY} Flink's regular join on RocksDB", _ISSUE, ">=", 1.5, "times"
)
SPARK_THREE_WAY = Statement(
    "basics-three-way-spark", f"three-way: {_BY} Spark's chain on RocksDB", _ISSUE, ">=", 3, "times"
)


@dataclass(frozen=True)
class FigureText:
    """What a figure says around its numbers."""

    id: str
    title: str
    setting: str
    statement: str


def _spark(engine: Engine, job: str) -> Contender:
    def run(given: Checked) -> Found:
        query = BasicQuery.of(given.work, job, engine, given.check)
        return run_contender(query.command(), engine, given.work, _TIMEOUT_S)

    return run


def _flink(backend: Backend, job: str, at: Flink | Failed) -> Contender:
    return lambda given: run_flink(given.work, job, backend, given.check, at, _TIMEOUT_S)


def _bytewax(python: Path | Failed) -> Contender:
    def run(given: Checked) -> Found:
        if isinstance(python, Failed):
            return python
        task = {
            "engine": BYTEWAX.name,
            "detail": f"bytewax {BYTEWAX.version}, state in Python lists, recovery in SQLite every 10 s, "
            "2 processes; the join is written with its stateful operator",
            "folder": str(given.work.folder),
            "inputs": list(given.work.inputs),
            "weights": WEIGHTS,
        }
        command = [str(python), str(Path(__file__).with_name("bytewax_job.py")), json.dumps(task)]
        return run_contender(command, BYTEWAX.name, given.work, _TIMEOUT_S)

    return run


def _raced(context: Context, given: Checked, contenders: Mapping[str, Contender]) -> dict[str, Found]:
    found = {}
    for name, run in contenders.items():
        context.step(f"{given.work.name}: {LABELS[name]}")
        found[name] = run(given)
    return found


def _made(context: Context, name: str, make: Callable[[Path, int], Checked]) -> Checked:
    context.step(f"{name}: writing the files")
    batches = QUICK_BATCHES if context.quick else BATCHES
    return make(context.folder / f"basics-{name}", batches)


def two_way(context: Context) -> Sequence[Figure]:
    """All engines."""
    at, python = flink(context.step), python_of(BYTEWAX, context.step)
    given = _made(context, "two-way", works.two_way)
    contenders = {
        "streamjoin": _spark("streamjoin", "two-way"),
        "spark-rocksdb": _spark("spark-rocksdb", "two-way"),
        "flink-rocksdb": _flink("rocksdb", "two-way", at),
        "bytewax": _bytewax(python),
    }
    if not context.quick:
        contenders["spark-heap"] = _spark("spark-heap", "two-way")
        contenders["flink-heap"] = _flink("heap", "two-way", at)
    found = _raced(context, given, contenders)
    claims = [
        _times(context, SPARK_TWO_WAY, given, found, "spark-rocksdb"),
        _times(context, FLINK_TWO_WAY, given, found, "flink-rocksdb"),
    ]
    text = FigureText(
        "basics-two-way",
        "Two streams joined on a key",
        "Each key has one row in the first stream and ten in the second. All engines are text that the first "
        "stream's key is unique where they can be; nothing says when a key is over, so state grows.",
        "This library is well ahead of Spark's own join and of Flink on the same machine in the same run.",
    )
    return [_figure(text, given, found, claims)]


def interval(context: Context) -> Sequence[Figure]:
    """Pairs that are close in time: state is bounded for every engine."""
    at = flink(context.step)
    given = _made(context, "interval", works.interval)
    contenders = {
        "streamjoin": _spark("streamjoin", "interval"),
        "spark-rocksdb": _spark("spark-rocksdb", "interval"),
        "flink-rocksdb": _flink("rocksdb", "interval", at),
    }
    if not context.quick:
        contenders["spark-heap"] = _spark("spark-heap", "interval")
        contenders["flink-heap"] = _flink("heap", "interval", at)
    text = FigureText(
        "basics-interval",
        "Two streams joined within ten seconds",
        "As the two-way join, but rows have a time, and a pair counts if the second row is at most ten "
        "seconds younger. Event time runs on by a minute a batch, so every engine can evict old rows. "
        "bytewax is not here: its window join takes rows of the same window, not rows close in time.",
        "All engines bound their state; how fast are they?",
    )
    return [_figure(text, given, _raced(context, given, contenders), [])]


def three_way(context: Context) -> Sequence[Figure]:
    """One operator against chains, and against Flink's multi-way join."""
    at, python = flink(context.step), python_of(BYTEWAX, context.step)
    given = _made(context, "three-way", works.three_way)
    contenders = {
        "streamjoin": _spark("streamjoin", "three-way"),
        "spark-rocksdb": _spark("spark-rocksdb", "three-way"),
        "flink-rocksdb-multi": _flink("rocksdb", "three-way-multi", at),
    }
    if not context.quick:
        contenders["flink-rocksdb"] = _flink("rocksdb", "three-way", at)
        contenders["flink-heap-multi"] = _flink("heap", "three-way-multi", at)
        contenders["bytewax"] = _bytewax(python)
    found = _raced(context, given, contenders)
    text = FigureText(
        "basics-three-way",
        "Three streams joined on one key",
        "A key has one row in the first stream and four in each of the others, so sixteen results. This "
        "library and Flink's multi-way join (switched on with table.optimizer.multi-join.enabled) use one "
        "operator; Spark and Flink as it comes join two streams, and their result with the third.",
        "One operator keeps no intermediate results: at least 3 times Spark's chain.",
    )
    claims = [_times(context, SPARK_THREE_WAY, given, found, "spark-rocksdb")]
    return [_figure(text, given, found, claims)]


def lookup(context: Context) -> Sequence[Figure]:
    """A stream enriched from a table."""
    at = flink_with_jdbc(context.step)
    given = _made(context, "lookup", works.lookup)
    contenders: dict[str, Contender] = {
        "streamjoin": _spark("streamjoin", "lookup"),
        "spark-rocksdb": _spark("spark-rocksdb", "lookup"),
        "flink-heap": partial(_flink_lookup, at=at),
    }
    text = FigureText(
        "basics-lookup",
        "A stream enriched from a table",
        "Each row of a stream gets the row of a table with its key; some keys come often (Zipf 1). This "
        "library and Spark's stream-static join read the table's file; Flink's lookup join asks a PostgreSQL "
        "server on this machine over JDBC, with a cache that has room for every row of the table.",
        "The table is small here; the experiment `spark-joins` has large ones.",
    )
    return [_figure(text, given, _raced(context, given, contenders), [])]


def _flink_lookup(given: Checked, at: Flink | Failed) -> Found:
    """Flink's lookup join, in a PostgreSQL server of its own."""
    if isinstance(at, Failed):
        return Failed("flink-heap", at.why)
    try:
        server = Server(tcp=True)
    except (OSError, RuntimeError) as error:
        return Failed("flink-heap", f"its lookup join needs a PostgreSQL server: {error}")
    try:
        server.sql("create table master (k bigint primary key, m bigint)")
        server.copy("master", given.work.folder / "master.csv")
        options = {
            "connector": "jdbc",
            "url": server.jdbc,
            "table-name": "master",
            "username": "postgres",
            "password": "unused",  # the server trusts who reaches it
            "lookup.cache": "PARTIAL",
            "lookup.partial-cache.max-rows": str(works.MASTER_ROWS),
        }
        source = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
        master = f"(k BIGINT, m BIGINT) WITH ({source})"
        streams = {name: columns for name, columns in given.work.inputs.items() if name != "master"}
        query = replace(JOBS["lookup"], tables={"master": master})
        return run_query(replace(given.work, inputs=streams), query, "heap", given.check, at, _TIMEOUT_S)
    finally:
        server.close()


def scan(context: Context) -> Sequence[Figure]:
    """What reading costs, apart: of the two-way join's files, and of NEXMark q20's."""
    two_streams = works.scan_of(_made(context, "scan", works.two_way).work)
    figures = [_scan(context, two_streams, "basics-scan", "The scan alone")]
    if not context.quick:
        context.step("scan: the files of NEXMark q20")
        auctions = works.scan_of(nexmark.prepared(context, "q20"))
        title = "The scan of NEXMark's bids and auctions alone"
        figures.append(_scan(context, auctions, "nexmark-scan", title))
    return figures


def _scan(context: Context, given: Checked, name: str, title: str) -> Figure:
    at = flink(context.step)
    parts = [f"SELECT {scan_sql(columns)} AS n FROM `{name}`" for name, columns in given.work.inputs.items()]  # noqa: S608
    query = FlinkQuery(" UNION ALL ".join(parts))
    contenders: dict[str, Contender] = {
        "spark-heap": _spark("spark-heap", "scan"),
        "flink-heap": lambda one: run_query(one.work, query, "heap", one.check, at, _TIMEOUT_S),
    }
    text = FigureText(
        name,
        title,
        "Every column of every row is read and nothing is joined. This library reads with Spark. Flink reads "
        "one file with one reader, to keep its order.",
        "What part of the other figures is reading?",
    )
    return _figure(text, given, _raced(context, given, contenders), [])


def _rate(given: Checked, found: Measured) -> float:
    return given.work.rows / found.wall_s


def _times(
    context: Context, statement: Statement, given: Checked, found: Mapping[str, Found], other: str
) -> Claim:
    """This library's rows/s by another's; open where one of them has none, and where the job is short."""
    if context.quick:
        return statement.open(f"needs {BATCHES} batches: run without --quick")
    ours, theirs = found["streamjoin"], found[other]
    for each in (ours, theirs):
        if isinstance(each, Failed):
            return statement.open(f"{each.engine}: {_short(each.why)}")
    assert isinstance(ours, Measured)  # noqa: S101
    assert isinstance(theirs, Measured)  # noqa: S101
    return statement.measured([_rate(given, ours) / _rate(given, theirs)])


def _short(why: str) -> str:
    return " ".join(why.split())[:400]


def _figure(text: FigureText, given: Checked, found: Mapping[str, Found], claims: Sequence[Claim]) -> Figure:
    measured = {name: each for name, each in found.items() if isinstance(each, Measured)}
    failed = {name: each for name, each in found.items() if isinstance(each, Failed)}
    pictures: list[Picture] = []
    if measured:
        rates = {LABELS[name]: [_rate(given, each) / 1000] for name, each in measured.items()}
        pictures.append(Bars(text.title, "thousand rows/s", [given.work.name], rates))
    curves = {LABELS[name]: curve for name, each in measured.items() if (curve := _bytes(each))}
    if curves:
        pictures.append(Chart("State over time", "seconds since the job began", "MB of state", curves))
    return Figure(
        text.id,
        text.title,
        f"{text.setting} {given.work.says}; {given.work.rows:,} rows in all.",
        text.statement,
        claims,
        pictures,
        _table(given, measured),
        [f"{LABELS[name]} has no number: {_short(each.why)}" for name, each in failed.items()],
        {"found": {name: _series(given, each) for name, each in found.items()}},
    )


def _bytes(found: Measured) -> tuple[list[float], list[float]] | None:
    """Of what has a state at all."""
    points = [(0.0, 0.0), *((at, size / 1e6) for at, _, size in found.state if size is not None)]
    return (
        ([at for at, _ in points], [size for _, size in points]) if any(size for _, size in points) else None
    )


def _table(given: Checked, measured: Mapping[str, Measured]) -> Table:
    times = ("start-up s", "job s", "CPU s", "first result s")
    columns = ("engine", "rows/s", *times, "state rows", "state MB", "how")
    rows = []
    for name, each in measured.items():
        _, held, size = each.state[-1] if each.state else (0.0, None, None)
        seconds = (each.startup_s, each.wall_s, each.cpu_s, each.first_result_s)
        rounded = [None if value is None else round(value, 1) for value in seconds]
        size_mb = None if size is None else round(size / 1e6, 1)
        rows.append((LABELS[name], round(_rate(given, each)), *rounded, held, size_mb, each.detail))
    return Table(columns, rows)


def _series(given: Checked, found: Found) -> dict[str, object]:
    if isinstance(found, Failed):
        return {"failed": found.why}
    return {
        "rows_per_s": _rate(given, found),
        "wall_s": found.wall_s,
        "cpu_s": found.cpu_s,
        "state": found.state,
    }


def parts() -> Sequence[ReportPart]:
    """What this file adds to the experiment `peers`."""
    return [
        ReportPart("basics-two-way", "two streams on a key", (100, 240), two_way),
        ReportPart("basics-interval", "two streams within ten seconds", (85, 150), interval),
        ReportPart("basics-three-way", "three streams on a key", (105, 200), three_way),
        ReportPart("basics-lookup", "a stream with a table", (70, 60), lookup),
        ReportPart("basics-scan", "the files alone", (25, 110), scan),
    ]
