"""TPC-H for the peers experiment: orders with their lines and customers, here, by Spark and by Flink.

What is known ("an order's lines come together", "an order comes once") lets this library hold what is open
now; the joins of Spark and Flink hold all where no time bounds them. The same files, every answer compared,
order rotated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from lab.contenders.protocol import Failed, Measured, Work, run_contender
from lab.contenders.spark_contender import Engine
from lab.experiment import Claim, Statement
from lab.peers.environments import flink
from lab.peers.flink import run_query
from lab.peers.flink_sql import FlinkQuery
from lab.peers.tpch_query import TpchQuery
from lab.peers.tpch_work import CHECK, TpchSize, prepare
from lab.report.figures import Context, Figure, ReportPart, Table
from streamjoin.errors import InvariantBroken
from streamjoin.plot import Chart

_ISSUE = "issue 8"
_OURS: Engine = "streamjoin"
_THEIRS: Engine = "spark-rocksdb"
_FLINK = "flink-rocksdb"
_ENGINES = (_OURS, _THEIRS, _FLINK)
_TIMEOUT_S = 240.0

QUERY = FlinkQuery(
    """
    SELECT o_orderkey, o_totalprice, l_extendedprice, l_linenumber, l_partkey, c_nationkey, c_mktsegment
    FROM `orders` JOIN `customers` ON o_custkey = c_custkey JOIN `lines` ON o_orderkey = l_orderkey""",
    keys={"orders": "o_orderkey", "customers": "c_custkey"},
)
FLAT = Statement(
    "tpch-flat",
    "the most orders and lines held after any batch, by all that were read",
    _ISSUE,
    "<=",
    0.01,
    "of the rows",
)
HELD = Statement(
    "tpch-held", "tuples held at the end by those of Spark's own joins on RocksDB", _ISSUE, "<", 0.1, "times"
)
FASTER = Statement(
    "tpch-rate",
    "rows/s over the last half of the batches, in multiples of Spark's own joins on RocksDB",
    _ISSUE,
    ">=",
    1,
    "times",
    3,
)


def tpch(context: Context) -> list[Figure]:
    """All engines, in turn."""
    context.step("TPC-H: writing the files")
    load = TpchSize(0.1, 3) if context.quick else TpchSize()
    work = prepare(context.folder / "tpch", load)
    runs: dict[str, list[Measured]] = {engine: [] for engine in _ENGINES}
    failed: dict[str, str] = {}
    for number in range(1 if context.quick else 2):
        for engine in _ENGINES[:: 1 if number % 2 == 0 else -1]:
            context.step(f"TPC-H: {engine}, round {number + 1}")
            found = _run(engine, work, context.step)
            if isinstance(found, Failed):
                failed[engine] = found.why
            else:
                runs[engine].append(found)
    if not runs[_OURS]:
        raise InvariantBroken(f"this library: {failed[_OURS]}")
    return [_figure(work, load, runs, failed)]


def _run(engine: str, work: Work, say: Callable[[str], None]) -> Measured | Failed:
    if engine == _FLINK:
        return run_query(work, QUERY, "rocksdb", CHECK, flink(say), timeout_s=_TIMEOUT_S)
    contender = TpchQuery(_OURS if engine == _OURS else _THEIRS, str(work.folder), work.inputs)
    return run_contender(contender.command(), engine, work, _TIMEOUT_S)


def _figure(work: Work, load: TpchSize, runs: dict[str, list[Measured]], failed: dict[str, str]) -> Figure:
    done = {engine: ones for engine, ones in runs.items() if ones}
    counted = {engine: ones[0] for engine, ones in done.items() if "input_rows" in ones[0].extra}
    curves = {_NAMES[engine]: _held(one) for engine, one in counted.items()}  # Flink counts bytes only
    rows = [
        [
            _NAMES[engine],
            work.rows / median(one.wall_s for one in ones),
            median(map(_late_rate, ones)) if engine in counted else None,
            median(one.cpu_s for one in ones),
            *(ones[0].state[-1][1:] if ones[0].state else (None, None)),
            ones[0].first_result_s,
            ones[0].startup_s,
        ]
        for engine, ones in done.items()
    ]
    columns = [
        "",
        "rows/s, whole job",
        "last half of the batches",
        "CPU s",
        "tuples held",
        "bytes held",
        "first result, s",
        "start-up, s",
    ]
    return Figure(
        "tpch-orders",
        "TPC-H: orders with their lines, and customers from a table",
        f"Scale factor {load.scale:g}: {work.rows:,} orders and lines as two streams, from {load.batches} "
        f"files each; orders come in a random order and an order's lines together, cut into files by number. "
        f"Each order is given its customer from a table, then joined with its lines. Declared here: an order "
        f"comes once, lines are clustered. The whole job, without start-up and staging.",
        "An order's lines come together (clustered arrival), so a join need hold only what is open now.",
        _claims(runs, failed),
        [Chart("Orders and lines held, the same files", "million rows read", "tuples", curves)],
        Table(columns, rows),
        [
            *(f"{_NAMES[engine]}: {ones[0].detail}." for engine, ones in done.items()),
            *(f"{_NAMES[engine]} did not run: {why}" for engine, why in failed.items()),
        ],
        {engine: [vars(one) | {"answer": vars(one.answer)} for one in ones] for engine, ones in done.items()},
    )


_NAMES: dict[str, str] = {
    _OURS: "this library",
    _THEIRS: "Spark's own joins, RocksDB",
    _FLINK: "Flink, regular joins, RocksDB",
}


def _held(one: Measured) -> tuple[list[float], list[float]]:
    read, x = 0, []
    for rows in one.extra["input_rows"]:
        read += rows
        x.append(read / 1e6)
    return x, [float(rows or 0) for _, rows, _ in one.state]


def _late_rate(one: Measured) -> float:
    """Rows by second of trigger time, over the last half of the batches."""
    half = len(one.extra["trigger_ms"]) // 2
    return float(1000 * sum(one.extra["input_rows"][half:]) / sum(one.extra["trigger_ms"][half:]))


def _claims(runs: dict[str, list[Measured]], failed: dict[str, str]) -> list[Claim]:
    flat = [max(_held(one)[1]) / sum(one.extra["input_rows"]) for one in runs[_OURS]]
    if not runs[_THEIRS]:
        why = failed[_THEIRS]
        return [FLAT.measured(flat), HELD.open(why), FASTER.open(why)]
    pairs = list(zip(runs[_OURS], runs[_THEIRS], strict=False))
    return [
        FLAT.measured(flat),
        HELD.measured([_held(ours)[1][-1] / _held(theirs)[1][-1] for ours, theirs in pairs]),
        FASTER.measured([_late_rate(ours) / _late_rate(theirs) for ours, theirs in pairs]),
    ]


def parts() -> Sequence[ReportPart]:
    """What this file adds to the peers experiment."""
    return [ReportPart("tpch", "TPC-H: orders, lines and customers", (90, 220), tpch)]
