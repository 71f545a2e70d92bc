"""Flink as a contender: a work's files as its tables, one of its queries, heap or RocksDB.

    run_flink(work, "q20", "rocksdb", Check(("price", "bidder"), "auction"), environments.flink(say))

`check` is over the columns of the query (see `flink_sql.JOBS`); its answer must be `work.answer`. A table
reads `<input>.csv`, one file by one reader in its order; rows with `is_end` are left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lab.contenders.protocol import END, Check, Failed, Measured, Work, run_contender
from lab.peers.flink_sql import JOBS, FlinkQuery

Backend = Literal["heap", "rocksdb"]
JOB = Path(__file__).with_name("flink_job.py")
TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Flink:
    """Where Flink is: the Python of its environment, and jars of connectors."""

    python: Path
    version: str
    jars: Sequence[Path] = ()


def run_flink(
    work: Work, job: str, backend: Backend, check: Check, flink: Flink | Failed, timeout_s: float = TIMEOUT_S
) -> Measured | Failed:
    """Run one job over a work."""
    return run_query(work, JOBS[job], backend, check, flink, timeout_s)


def run_query(
    work: Work, query: FlinkQuery, backend: Backend, check: Check, flink: Flink | Failed, timeout_s: float
) -> Measured | Failed:
    """Run a query over a work."""
    engine = f"flink-{backend}"
    if isinstance(flink, Failed):
        return Failed(engine, flink.why)
    state = {"heap": "hashmap state", "rocksdb": "RocksDB state, incremental"}[backend]
    plain, mixed = check.sql()
    task = {
        "engine": engine,
        "detail": f"Flink {flink.version}, {state} checkpoints every 10 s, mini-batch 2 s, parallelism 2; "
        "the answer is an aggregate on top",
        "backend": backend,
        "tables": _statements(work, query),
        "query": query.sql,
        "plain": plain,
        "mixed": mixed,
        "settings": dict(query.settings),
        "jars": [str(jar.resolve()) for jar in flink.jars],
    }
    return run_contender([str(flink.python), str(JOB), json.dumps(task)], engine, work, timeout_s)


def _statements(work: Work, query: FlinkQuery) -> list[str]:
    """A table for each input; with punctuations, a view of its rows."""
    statements = [f"CREATE TABLE `{name}` {rest}" for name, rest in query.tables.items()]
    for name, columns in work.inputs.items():
        marked = END in columns
        parts = [f"`{column}` {kind}" for column, kind in columns.items()]
        if name in query.times:
            parts.append(f"`rt` AS TO_TIMESTAMP_LTZ({query.times[name]}, 3)")
            parts.append("WATERMARK FOR `rt` AS `rt` - INTERVAL '0.001' SECOND")
        if name in query.keys:
            parts.append(f"PRIMARY KEY (`{query.keys[name]}`) NOT ENFORCED")
        table = f"{name}_file" if marked else name
        path = (work.folder / f"{name}.csv").resolve().as_uri()
        source = f"'connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv', 'csv.null-literal' = ''"
        statements.append(f"CREATE TABLE `{table}` ({', '.join(parts)}) WITH ({source})")
        if marked:
            kept = f"SELECT * FROM `{table}` WHERE `{END}` IS NOT TRUE"  # noqa: S608
            statements.append(f"CREATE VIEW `{name}` AS {kept}")
    return statements
